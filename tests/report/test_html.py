"""The HTML report as text: what it holds, and that nothing in it is taken for markup."""

from __future__ import annotations

import base64
import copy
import hashlib
import html
import json
import re
import subprocess
import sys
from typing import Any

import assessments as made
import pytest
from report_pages import hostile, many, of_everything, profiled

from pytest_llmroof.analysis.diagnosis import Diagnosis, Remedy
from pytest_llmroof.report.document import report_document, window_document
from pytest_llmroof.report.html import render
from pytest_llmroof.report.html.bars import bar
from pytest_llmroof.report.html.naming import named, set_text


def sections(page: str) -> list[str]:
    return re.findall(r'<section id="([a-z-]+)"', page)


def test_the_page_is_one_file_that_loads_and_runs_nothing() -> None:
    page = render(of_everything())
    assert page.startswith('<!doctype html>\n<html lang="en">')
    assert page.rstrip().endswith("</html>")
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert not re.search(r"<(script|link(?! rel=\"icon\" href=\"data:,\")|iframe|img|object|form)\b", page)
    assert not re.search(r"\s(style|on\w+)=", page)
    assert set(re.findall(r'(?:src|href)="([^"]*)"', page)) == {"data:,", *re.findall(r'href="(#[^"]*)"', page)}
    assert "url(" not in page.replace("url(#hatch)", "")


def test_its_policy_allows_its_own_style_and_nothing_else() -> None:
    page = render(of_everything())
    policy = html.unescape(re.findall(r'Content-Security-Policy" content="([^"]*)"', page)[0])
    style = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def test_every_link_and_label_leads_somewhere() -> None:
    page = render(of_everything())
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    meant = set(re.findall(r'href="#([^"]+)"', page)) | set(re.findall(r"url\(#([^)]+)\)", page))
    for labels in re.findall(r'aria-labelledby="([^"]+)"', page):
        meant |= set(labels.split())
    assert meant <= set(ids)


def test_it_follows_from_the_document_alone_and_leaves_it_as_it_is() -> None:
    document = of_everything()
    before = copy.deepcopy(document)
    page = render(document)
    assert document == before
    assert render(json.loads(json.dumps(document))) == page


def test_sections_are_there_where_they_have_something_to_say() -> None:
    assert sections(render(of_everything())) == [
        "failed", "unmeasured", "change", "time", "roofline", "warned", "passed", "not-run", "notes", "details",
    ]  # fmt: skip
    assert sections(render(report_document([], labels={}, created="2026-11-29T12:00:00Z"))) == []
    passed = of_everything()["windows"][0]
    passed = {**passed, "gates": [passed["gates"][3]], "notes": [], "change": None, "changes": {}}
    page = render(report_document([passed], labels={}, created="2026-11-29T12:00:00Z"))
    assert sections(page) == ["time", "roofline", "passed", "details"]
    assert "Passed:</strong> the only gate holds" in page


def test_a_window_of_which_nothing_is_known_is_still_a_page() -> None:
    window = of_everything()["windows"][1]
    window = {**window, "gpu": None, "model": None, "facts": None, "failure": "after.prom does not exist"}
    page = render(report_document([window], labels={}, created="2026-11-29T12:00:00Z"))
    assert sections(page) == ["unmeasured", "details"]
    assert "after.prom does not exist" in page


def test_reports_without_the_other_peaks_have_the_own_one() -> None:
    document = of_everything()
    for window in document["windows"]:
        del window["gpu"]["peaks"]
    page = render(document)
    assert "bf16 989 TFLOP/s" in page
    assert "fp8 1.98 PFLOP/s" not in page
    assert "fp8 1.98 PFLOP/s" in render(of_everything())


def test_hostile_texts_are_escaped_and_spelled_out() -> None:
    page = render(hostile())
    page.encode("utf-8")  # no half of a pair is left
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", page)
    assert page.count("<script") == page.count("<b>note") == 0
    assert page.count("</style>") == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\\u202eevil\\x1b[31m \\ud800" in page
    assert "<bdi>נ" not in page
    assert "<bdi>שלום &lt;b&gt;עולם&lt;/b&gt;</bdi>" in page
    assert len(page) < 200_000  # five thousand letters are cut where nobody would read them


#: What the page chooses by, rather than shows.
CHOSEN_BY = {"verdict", "severity", "operator", "unit", "limit_kind", "family", "of", "per", "precision"}


def spoiled(value: Any, key: str = "") -> Any:
    """Markup in place of every text of a document."""
    if isinstance(value, dict):
        return {name: spoiled(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [spoiled(one, key) for one in value]
    return f"<x y=1>\"'&amp;{value}" if isinstance(value, str) and key not in CHOSEN_BY else value


def test_no_text_of_a_document_becomes_markup() -> None:
    for document in (of_everything(), profiled(), hostile()):
        page = render(spoiled(document))
        assert "<x" not in page
        assert page.count("&lt;x y=1&gt;&#34;&#39;&amp;amp;") > 50


def test_what_changed_can_be_checked_by_eye() -> None:
    page = re.sub(r"<svg.*?</svg>", "", render(of_everything()), flags=re.DOTALL)
    rows = re.findall(r"<tr><th scope=\"row\">(traffic|engine): [^<]*</th>(.*?)</tr>", page)
    cells = [[kind, *re.findall(r"<td[^>]*>([^<]*)</td>", row)[:3]] for kind, row in rows]
    # 4.7 - 1.4 = 3.3; with 2.0 they are the 14.3 - 9.0 of the first line.
    assert cells == [["traffic", "1.4", "4.7", "+3.3"], ["engine", "", "", "+2.0"]]
    assert "Decode step 9.0 → 14.3\u00a0ms (+5.3) against base/night1.json" in page


def test_where_nothing_tells_causes_apart_a_remedy_is_not_what_to_do_first() -> None:
    flagship = window_document(made.assessment(made.flagship_verdict()))
    certain = render(report_document([flagship], labels={}, created=""))
    assert "<h4>What to do first</h4>" in certain
    remedy = Remedy("Capture decode steps", "", "at most: less, if the cause is launches")
    either = Diagnosis("C or D", ("C", "D"), "one or the other", None, "low", "decode",
                       remedies=(remedy,), missing=("add a profile of a few steps",))  # fmt: skip
    window = window_document(made.assessment(made.flagship_verdict(), diagnoses={"decode": either}))
    page = render(report_document([window], labels={}, created=""))
    assert "What to do first" not in page
    texts = ("What to find out first", "Add a profile of a few", "A guess until then", "Capture decode steps")
    places = [page.index(text) for text in texts]
    assert places == sorted(places)


def test_ten_thousand_gates_are_all_there_in_a_file_that_can_be_mailed() -> None:
    page = render(many(windows=100, gates=100))
    assert len(page) < 9e6
    assert set(re.findall(r"REL-\d+-\d+", page)) == {f"REL-{one}-{two}" for one in range(100) for two in range(100)}


def test_many_windows_say_what_was_left_out() -> None:
    page = render(many(windows=90, gates=1))
    assert page.count('<details class="window">') == 60
    assert "30 more windows are in the JSON report" in page
    assert page.count('<figure class="bar">') == 40
    assert "50 more bars of where the time went: the JSON report holds them" in page


def window(identity: str, name: str = "decode", title: str = "") -> dict[str, Any]:
    return {"id": identity, "name": name, "title": title}


@pytest.mark.parametrize(
    ("windows", "names"),
    [
        ([window("a.yaml::decode"), window("a.yaml::peak", "peak")], ["decode", "peak"]),
        ([window("x/a.llmroof.yaml::decode"), window("x/b.yml::decode")], ["decode (a)", "decode (b)"]),
        (
            [window("x/a.yaml::decode", title="70B"), window("y/a.yaml::decode", title="8B")],
            ["decode (70B)", "decode (8B)"],
        ),
        (
            [window("x/a.yaml::decode"), window("y/a.yaml::decode")],
            ["decode (x/a.yaml::decode)", "decode (y/a.yaml::decode)"],
        ),
    ],
)
def test_windows_of_one_name_tell_themselves_apart(windows: list[dict[str, Any]], names: list[str]) -> None:
    assert [one["name"] for one in named(windows)] == names


def test_numbers_stay_with_their_units() -> None:
    assert set_text("step 26.2 ms toward 17.3 .. 19.0 ms") == "step 26.2\u00a0ms toward 17.3 to 19.0\u00a0ms"
    assert set_text("24 -> 48 sequences, 28 400 output tokens") == "24 → 48 sequences, 28\u202f400 output tokens"
    assert set_text("41.3 % of 3.35 TB/s") == "41.3\u00a0% of 3.35\u00a0TB/s"
    assert set_text("vllm serve --max-num-seqs 64 -- 4 s") == "vllm serve --max-num-seqs 64 -- 4\u00a0s"


def test_a_bar_is_whole_and_says_how_each_part_is_known() -> None:
    found = bar(of_everything()["windows"][0])
    assert found is not None
    assert found.parts[0].start == 0
    for part, following in zip(found.parts, found.parts[1:], strict=False):
        assert following.start == pytest.approx(part.start + part.width, abs=0.002)
    assert found.parts[-1].start + found.parts[-1].width == pytest.approx(100, abs=0.01)
    assert sum(int(part.percent.removesuffix(" %")) for part in found.parts) == 100
    assert {part.cause: part.known for part in found.parts} == {
        "memory floor: weights": "computed",
        "memory floor: KV": "computed",
        "exposed communication: transport": "observed",
        "idle: between steps": "observed",
        "kernel ceiling": "estimated",
        "slow kernels": "observed",
    }


def test_jinja_is_imported_when_a_page_is_written_and_not_before() -> None:
    code = "import sys, pytest_llmroof.report.html; print('jinja2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_one_measurement_is_not_several() -> None:
    window = window_document(made.assessment(made.flagship_verdict()))
    window["measurements"] = dict([next(iter(window["measurements"].items()))])
    page = render(report_document([window], labels={}, created="2026-11-29T12:00:00Z"))
    assert re.search(r"\b1 measurement</span>", page)
