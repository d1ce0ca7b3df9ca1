"""Names of windows and gates that keep their history: without limits, and unique within a report.

GitLab counts only the first of two test cases with one name, and a metrics page with one series twice is refused whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_llmroof.report.headline import one_line
from pytest_llmroof.report.wire import Document, visible


@dataclass(frozen=True)
class WindowName:
    """The file a window stands in (empty: the command line) and its name there; ``case`` joins both with a dot."""

    file: str
    window: str
    case: str


def window_names(windows: Sequence[Document]) -> list[WindowName]:
    """A name for each window; windows of one id are told apart by their accelerator, else by their place."""
    texts = [_line(window["id"]) for window in windows]
    texts = _told_apart(texts, [[_gpu(window)] for window in windows])
    names = [_window_name(text, window) for text, window in zip(texts, windows, strict=True)]
    cases = _numbered([name.case for name in names])  # a/b.yaml and a.b.yaml have one dotted name
    return [replace(name, case=case) for name, case in zip(names, cases, strict=True)]


def _window_name(text: str, window: Document) -> WindowName:
    file, separator, name = text.partition("::")
    if not separator:  # the window of the command line, whose id names no file
        return WindowName("", _line(window["name"]) + text.removeprefix(_line(window["id"])), text)
    return WindowName(file, name, f"{file.replace('/', '.')}.{name.replace('::', '.')}")


def _gpu(window: Document) -> str:
    return f"({_line(window['gpu']['name'])})" if window["gpu"] else ""


def gate_names(gates: Sequence[Document]) -> list[str]:
    """``REL-7 decode.mbu`` for each gate of a window.

    Gates that would share a name are told apart by their operator, by their severity, and at last by their place; a
    changed limit changes none of that.
    """
    texts = [_line(" ".join(filter(None, [gate["id"], gate["metric"], _per(gate)]))) for gate in gates]
    more = [[gate["operator"], "(warn)" if gate["severity"] == "warn" else ""] for gate in gates]
    return _told_apart(texts, more)


def _per(gate: Document) -> str:
    return f"per {gate['per']}" if gate["per"] else ""


def _told_apart(texts: list[str], more: Sequence[Sequence[str]]) -> list[str]:
    """The texts; those that are not unique get further parts, one after the other, and then ``#2``, ``#3``, ..."""
    for level in range(max(map(len, more), default=0)):
        texts = _where_shared(texts, [parts[level] for parts in more])
    return _numbered(texts)


def _where_shared(texts: list[str], parts: Sequence[str]) -> list[str]:
    counts = Counter(texts)
    return [f"{text} {part}".rstrip() if counts[text] > 1 else text for text, part in zip(texts, parts, strict=True)]


def _numbered(texts: list[str]) -> list[str]:
    taken, numbers, result = set(texts), Counter[str](), []
    for text in texts:
        numbers[text] += 1
        name = text
        while numbers[text] > 1 and name in taken:
            name = f"{text} #{numbers[text]}"
            numbers[text] += name in taken
        taken.add(name)
        result.append(name)
    return result


def _line(text: str) -> str:
    return one_line(visible(text))
