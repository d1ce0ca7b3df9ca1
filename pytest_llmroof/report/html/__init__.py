"""The report as one HTML file: no network, no script, readable without style, for screens, phones and paper."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_llmroof.report.figures import quantity
from pytest_llmroof.report.files import write_whole
from pytest_llmroof.report.headline import shorten
from pytest_llmroof.report.html.naming import set_text
from pytest_llmroof.report.html.page import page
from pytest_llmroof.report.wire import Document, visible
from pytest_llmroof.units import grouped

if TYPE_CHECKING:
    import jinja2

_TEMPLATES: Final = Path(__file__).parents[2] / "data" / "html"
#: Names longer than this are cut in headings and labels.
_NAME: Final = 120
#: Nobody reads a longer sentence; the JSON report has it whole.
_PROSE: Final = 800


def write(path: Path, document: Document) -> None:
    """Write the page of a report document, whole or not at all. Raises OSError."""
    write_whole(path, render(document))


def render(document: Document) -> str:
    """The page of a report document: a pure function of it, apart from the packaged template and style."""
    style = _style()
    return _environment().get_template("report.html.j2").render(page=page(document), style=style, policy=_policy(style))


@cache
def _environment() -> jinja2.Environment:
    # Imported here: half of a run's time would go into an engine that most runs do not need.
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters["name"] = lambda text: shorten(text, _NAME)
    environment.filters["prose"] = lambda text: shorten(text, _PROSE)
    environment.filters["whole"] = grouped
    environment.filters["figure"] = quantity
    environment.filters["set"] = set_text
    return environment


def _shown(value: Any) -> Any:
    """Whatever is put into the page: a report from a file can hold characters that rewrite a line or break an encoder.

    Texts that are markup already came through here, or are the template's own.
    """
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value)
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


@cache
def _style() -> str:
    """The packaged style sheet without comments and indentation."""
    text = (_TEMPLATES / "report.css").read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def _policy(style: str) -> str:
    """Nothing may be loaded or run; of styles only the one in the page, by its hash."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
