"""The HTML report as people see it: in a real browser, on a desk and on a phone, light and dark, read and printed."""

from __future__ import annotations

import base64
import struct
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from chromium import Browser, Tab, opened
from page_checks import OPEN_ALL, colliding_labels, low_contrast, outside, roles, visible_text
from report_pages import change, hostile, kernels, many, of_everything, several_accelerators

from pytest_llmroof.report.html import render

SCREENS: Final = [(1280, False), (1280, True), (390, False), (390, True)]
IDS: Final = ["desk light", "desk dark", "phone light", "phone dark"]
SENTENCE: Final = "Blocked: 2 of 9 gates failed, 2 were not measured, 2 did not run; 1 gave a warning"


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report in which every section has something to say."""
    return written(tmp_path_factory.mktemp("page"), of_everything())


def written(folder: Path, document: dict[str, Any]) -> Path:
    page = folder / "report.html"
    page.write_text(render(document), encoding="utf-8")
    return page


def top_of(tab: Tab, selector: str) -> float:
    return float(tab.evaluate(f"document.querySelector({selector!r}).getBoundingClientRect().top"))


def pixel(tab: Tab, x: int, y: int) -> tuple[int, ...]:
    """The colour of one point of the page, from a screenshot of it."""
    clip = {"x": x, "y": y, "width": 1, "height": 1, "scale": 1}
    png = base64.b64decode(tab.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"])
    data, at = b"", 8
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        data += png[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += length + 12
    return tuple(zlib.decompress(data)[1:4])  # after the row's filter byte


@pytest.mark.parametrize(("width", "dark"), SCREENS, ids=IDS)
def test_a_page_is_readable_on_every_screen(browser: Browser, everything: Path, width: int, dark: bool) -> None:
    with opened(browser, everything, width=width, dark=dark) as tab:
        png = tab.screenshot()
        assert struct.unpack(">I", png[16:20]) == (width,)
        assert (max(pixel(tab, 2, 700)) < 60) if dark else (min(pixel(tab, 2, 700)) > 240)
        for _ in ("as it comes", "with everything open"):
            assert outside(tab) == []
            assert low_contrast(tab) == []
            assert colliding_labels(tab) == []
            tab.evaluate(OPEN_ALL)
        assert tab.said() == []
        assert tab.requests() == [everything.as_uri()]


@pytest.mark.parametrize("width", [1280, 390])
def test_the_verdict_comes_first_and_the_order_is_that_of_a_reader(
    browser: Browser, everything: Path, width: int
) -> None:
    with opened(browser, everything, width=width) as tab:
        assert " ".join(visible_text(tab).split()).startswith(SENTENCE)
        order = ["h1", ".tested", "#failed", "#unmeasured", "#change", "#time", "#roofline", "#warned", "#passed",
                 "#not-run", "#notes", "#details", "footer"]  # fmt: skip
        tops = [top_of(tab, selector) for selector in order]
        assert tops == sorted(tops)
        # On the first screen: what failed, in words.
        assert top_of(tab, ".words") < 900


def test_what_the_first_screen_says(browser: Browser, everything: Path) -> None:
    with opened(browser, everything) as tab:
        text = visible_text(tab)
    flat = " ".join(text.split())
    assert "Llama 3.1 70B bf16, TP 4" in flat
    assert "4 × NVIDIA H100 SXM5 80GB, 989 TFLOP/s dense bf16, 3.35 TB/s" in flat
    assert "commit=abc123" in flat
    assert "decode.mbu >= 75 % REL-7 default 41.3 % 33.7 points short" in flat
    assert "Scenario C: communication and interconnect stalls" in flat
    assert "What to do first Keep tensor parallelism inside the NVLink domain" in flat
    assert "Connection refused at http://host:8000/metrics" in flat
    assert "To measure it python -m pytest_llmroof record" in flat
    assert "Decode step 9.0 → 14.3 ms (+5.3)" in flat
    assert "Mean decode step 26.2 ms" in flat
    # What is folded is not read by accident.
    assert "How it was measured" not in flat


def test_without_script_it_is_the_same_page(browser: Browser, everything: Path) -> None:
    with opened(browser, everything) as with_script, opened(browser, everything, script=False) as without:
        assert visible_text(without) == visible_text(with_script)
        assert without.said() == []


def test_it_is_usable_with_the_keyboard_alone(browser: Browser, everything: Path) -> None:
    with opened(browser, everything) as tab:
        for _ in range(20):
            press(tab, "Tab")
            if tab.evaluate("document.activeElement.tagName") == "SUMMARY":
                break
        assert not tab.evaluate("document.activeElement.parentElement.open")
        assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        press(tab, "Enter", "\r")
        assert tab.evaluate("document.activeElement.parentElement.open")
        assert "How it was measured" in visible_text(tab)


def press(tab: Tab, key: str, text: str = "") -> None:
    codes = {"Tab": 9, "Enter": 13}
    for kind in ("keyDown", "keyUp"):
        tab.send(
            "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key],
            **({"text": text} if text and kind == "keyDown" else {}),
        )  # fmt: skip


@pytest.mark.parametrize("width", [1280, 390])
def test_a_screen_reader_finds_its_way(browser: Browser, everything: Path, width: int) -> None:
    with opened(browser, everything, width=width) as tab:
        tab.evaluate(OPEN_ALL)
        met = roles(tab)
        assert tab.evaluate("document.documentElement.lang") == "en"
    found = [role for role, _, _ in met]
    for landmark in ("banner", "navigation", "main", "contentinfo"):
        assert found.count(landmark) == 1
    levels = [level for role, _, level in met if role == "heading" and level]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    unnamed = [role for role, name, _ in met if role in ("table", "image", "link", "region") and not name.strip()]
    assert unnamed == []
    charts = [name for role, name, _ in met if role == "image" and name.startswith("Roofline of NVIDIA H100")]
    assert len(charts) == 1  # the one for this width
    bars = [name for role, name, _ in met if role == "image" and "memory floor: weights" in name]
    # 10.4 of 26.2 ms are 39.6 %, 0.45 ms 1.7 %: rounded so that all add up to 100.
    assert "39 % memory floor: weights (computed), 2 % memory floor: KV" in bars[0]
    assert "row" in found
    assert found.count("columnheader") > 3 or width == 390


def test_paper_shows_the_evidence_and_no_navigation(browser: Browser, everything: Path) -> None:
    with opened(browser, everything, dark=True) as tab:
        pdf = tab.pdf()
        tab.send(
            "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
        )
        text = visible_text(tab)
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert tab.evaluate("document.querySelector('nav').offsetHeight") == 0
        assert low_contrast(tab) == []
    assert pdf.startswith(b"%PDF")
    assert "all-reduce kernels exposed" in text
    assert "How it was measured" in text
    assert "All measurements" not in text


@pytest.mark.parametrize("width", [1280, 390])
def test_several_accelerators_have_a_chart_each(browser: Browser, tmp_path: Path, width: int) -> None:
    with opened(browser, written(tmp_path, several_accelerators()), width=width) as tab:
        assert colliding_labels(tab) == []
        titles = tab.evaluate("[...document.querySelectorAll('.roofline figcaption')].map(one => one.textContent)")
        assert [title.split(" one GPU")[0] for title in titles] == ["NVIDIA H100 SXM5 80GB", "NVIDIA H200 SXM 141GB"]


@pytest.mark.parametrize("width", [1280, 390])
def test_kernels_are_points_whose_labels_keep_apart(browser: Browser, tmp_path: Path, width: int) -> None:
    with opened(browser, written(tmp_path, kernels(24)), width=width) as tab:
        assert colliding_labels(tab) == []
        shown = "svg.wide" if width > 640 else "svg.narrow"
        assert tab.evaluate(f"document.querySelectorAll('{shown} path.mark.kernel').length") > 12
        labels = tab.evaluate(f"[...document.querySelectorAll('{shown} .label')].map(one => one.textContent)")
        rows = tab.evaluate("[...document.querySelectorAll('.points tbody th')].map(one => one.textContent)")
        assert "What the numbers stand for" in visible_text(tab)
    # So many names would hide the points: they have numbers, and the table below says which is which.
    numbers = {number for label in labels for number in label.rstrip("…").split(", ")}
    assert len(numbers) > (18 if width > 640 else 8)
    assert numbers <= {row.split()[0] for row in rows}
    assert rows[1] == "2 gemm_0_of_some_length"


@pytest.mark.parametrize("width", [1280, 390])
def test_hostile_names_stay_texts(browser: Browser, tmp_path: Path, width: int) -> None:
    with opened(browser, written(tmp_path, hostile()), width=width) as tab:
        tab.evaluate(OPEN_ALL)
        assert outside(tab) == []
        text = visible_text(tab)
        assert tab.said() == []
        assert tab.evaluate("document.querySelectorAll('script, img, b b, iframe').length") == 0
        assert tab.evaluate("document.title") == "Blocked: the only gate failed" or "failed" in text
    assert "<script>alert(1)</script>" in text
    assert "\\u202eevil" in text
    assert "\\x1b[31m" in text
    assert "\\ud800" in text
    assert "{{ 7 * 7 }}" in text
    assert "نافذة" in text


def test_ten_thousand_gates_are_a_short_page(browser: Browser, tmp_path: Path) -> None:
    page = written(tmp_path, many(windows=20, gates=500))
    assert page.stat().st_size < 10e6
    with opened(browser, page) as tab:
        assert tab.evaluate("document.documentElement.scrollHeight") < 12_000  # folded
        assert outside(tab) == []
        assert tab.evaluate("document.querySelectorAll('table.gates tbody tr, .gate').length") == 10_000


def test_what_changed_is_drawn_to_scale(browser: Browser, everything: Path) -> None:
    # +3.3 of traffic takes all of the half, +2.0 of the engine 2.0 / 3.3 of it.
    assert {part["seconds"] for part in change()["parts"]} == {0.0033, 0.002}
    with opened(browser, everything) as tab:
        widths = tab.evaluate(
            "[...document.querySelectorAll('.parts .more')].map(one => one.getBoundingClientRect().width)"
        )
    assert widths[1] / widths[0] == pytest.approx(2.0 / 3.3, rel=0.02)


def test_the_checks_find_what_they_are_for(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><body style='margin:0;background:#fff'><p style='color:#aaa'>pale</p>"
        "<p style='white-space:nowrap'>" + "wide " * 400 + "</p><p style='display:none'>hidden</p>"
        "<svg class='chart' width='200' height='50'><text class='label' x='10' y='20'>one</text>"
        "<text class='label' x='12' y='22'>other</text><text class='label' x='190' y='40'>outside</text></svg>"
        "<script>console.warn('said'); document.body.append('by script')</script>",
        encoding="utf-8",
    )
    with opened(browser, page) as tab:
        assert low_contrast(tab) == ["2.32: pale"]
        assert len(outside(tab)) == 2
        assert colliding_labels(tab) == ["outside leaves the drawing", "one on other"]
        assert "said" in tab.said()[0]
        text = visible_text(tab)
        assert "by script" in text
        assert "hidden" not in text
    with opened(browser, page, script=False) as tab:
        assert "by script" not in visible_text(tab)
        assert tab.said() == []
