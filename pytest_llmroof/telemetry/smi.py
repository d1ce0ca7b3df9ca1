"""What nvidia-smi and amd-smi printed into a file: recognised by content, read as a table of GPU counters."""

from __future__ import annotations

import re
from typing import Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.gputables import GpuTable, table_of
from pytest_llmroof.telemetry.smicsv import csv_rows, dmon_rows, is_csv
from pytest_llmroof.telemetry.smidocs import amd_json_rows, document_rows, is_document

_SCRAPED_AT: Final = re.compile(r"^#[ \t]*scraped_at[ \t]+(\d{9,10}(?:\.\d+)?)(?:\.N)?[ \t]*$", re.MULTILINE)


def is_table(head: str) -> bool:
    """Whether a file that begins so is one of these (JSON apart)."""
    return is_document(head) or is_csv(head)


def read_table(text: str, location: str) -> GpuTable | None:
    """The table in a text; None where there is none. SourceError for one that is damaged, with the line."""
    found = document_rows(text, location) or dmon_rows(text, location) or csv_rows(text, location)
    if found is None:
        return None
    key, rows, notes = found
    if not rows:
        raise SourceError(f"{location} tells of no GPU", "record it again, where there is one")
    stamp = _SCRAPED_AT.search(text[:4000])
    return table_of(key, rows, location, float(stamp[1]) if stamp else None, notes)


def read_amd_json(text: str, location: str) -> GpuTable | None:
    """The same of what amd-smi prints with ``--json``; None for any other JSON."""
    if '"gpu"' not in text[:16_384]:
        return None
    found = amd_json_rows(text)
    return None if found is None else table_of(found[0], found[1], location, None, found[2])
