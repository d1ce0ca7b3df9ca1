"""What a reader of a page would stumble over, as JavaScript that finds it in a browser: an empty list is good news."""

from __future__ import annotations

from typing import Any, Final

from chromium import Tab

#: Text that is drawn: not in closed details, not hidden, not for screen readers alone.
_TEXTS: Final = """
const texts = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, element = node.parentElement;
  if (!node.data.trim() || element.closest('title, desc, style, defs')) continue;
  if (!element.checkVisibility({contentVisibilityAuto: true, visibilityProperty: true})) continue;
  const range = document.createRange(); range.selectNodeContents(node);
  const box = range.getBoundingClientRect();
  if (box.width && box.height) texts.push({node, element, box});
}
"""

_CONTRAST: Final = (
    """
(() => {
"""
    + _TEXTS
    + """
const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
const luminance = ([r, g, b]) => [r, g, b].map(c => c / 255)
  .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const ground = element => {
  for (let at = element; at; at = at.parentElement) {
    const colour = numbers(getComputedStyle(at).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
return texts.map(({node, element}) => {
  const style = getComputedStyle(element);
  const ink = luminance(numbers(element.closest('svg') ? style.fill : style.color));
  const paper = luminance(ground(element));
  const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
  const least = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
  return ratio < least ? `${ratio.toFixed(2)}: ${node.data.trim().slice(0, 60)}` : null;
}).filter(Boolean);
})()
"""
)

_OUTSIDE: Final = (
    """
(() => {
"""
    + _TEXTS
    + """
const width = document.documentElement.clientWidth;
const found = texts.filter(({box}) => box.left < -1 || box.right > width + 1).map(({node}) => node.data.slice(0, 60));
const whole = document.documentElement.scrollWidth;
if (whole > width) found.push(`the page is ${whole} wide`);
return found;
})()
"""
)

#: Labels of a drawing that lie on each other, or leave it.
_LABELS: Final = """
(() => {
const found = [];
for (const svg of document.querySelectorAll('svg.chart')) {
  const frame = svg.getBoundingClientRect();
  if (!frame.width) continue;
  const boxes = [...svg.querySelectorAll('.roofs text:not([transform]), .label')].map(text => {
    const box = text.getBoundingClientRect();
    return {text: text.textContent, left: box.left, right: box.right, top: box.top + 2, bottom: box.bottom - 2};
  });
  for (const box of boxes)
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top || box.bottom > frame.bottom)
      found.push(`${box.text} leaves the drawing`);
  boxes.forEach((one, index) => boxes.slice(index + 1).forEach(other => {
    if (one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom)
      found.push(`${one.text} on ${other.text}`);
  }));
}
return found;
})()
"""

_VISIBLE: Final = "(() => {" + _TEXTS + "return texts.map(({node}) => node.data.trim()).join('\\n'); })()"

OPEN_ALL: Final = "document.querySelectorAll('details').forEach(one => { one.open = true; })"


def low_contrast(tab: Tab) -> list[str]:
    """Texts whose colour is too near to their ground's (WCAG 2.2 AA)."""
    return _list(tab, _CONTRAST)


def outside(tab: Tab) -> list[str]:
    """Texts that are cut off, or that make the page wider than the screen."""
    return _list(tab, _OUTSIDE)


def colliding_labels(tab: Tab) -> list[str]:
    """Labels of charts that cover each other."""
    return _list(tab, _LABELS)


def visible_text(tab: Tab) -> str:
    """What can be read without opening anything, in its order."""
    return str(tab.evaluate(_VISIBLE))


def roles(tab: Tab) -> list[tuple[str, str, int | None]]:
    """Role, name and heading level of each node, as a screen reader meets them."""
    found = []
    for node in tab.accessibility():
        level = next((one["value"]["value"] for one in node.get("properties", []) if one["name"] == "level"), None)
        found.append((node["role"]["value"], node.get("name", {}).get("value", ""), level))
    return found


def _list(tab: Tab, expression: str) -> list[str]:
    found: Any = tab.evaluate(expression)
    assert isinstance(found, list)
    return found
