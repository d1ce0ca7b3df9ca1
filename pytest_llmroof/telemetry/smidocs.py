"""Rows of what nvidia-smi and amd-smi print as documents: ``-q``, ``-q -x``, ``-L``, the plain table, and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from xml.etree import ElementTree

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.exporters import exporters
from pytest_llmroof.telemetry.gputables import Row

_QUERY: Final = re.compile(r"=+NVSMI LOG=+")
_GPU: Final = re.compile(r"GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
_LISTED: Final = re.compile(r"GPU (?P<index>\d+): (?P<name>.+?) \(UUID: (?P<uuid>GPU-[^)]+)\)")
_SLICE: Final = re.compile(r"\s+MIG (?P<profile>\S+)\s+Device\s+(?P<index>\d+): \(UUID: (?P<uuid>[^)]+)\)")
_TABLE: Final = re.compile(r"\| NVIDIA-SMI \d|\+-+\+\n\| NVIDIA-SMI")
_TABLE_GPU: Final = re.compile(
    r"\|\s+(?P<index>\d+)\s{1,3}(?P<name>\S.*?)\s{2,}(?:On|Off|N/A)\s*\|\s*[0-9A-Fa-f]{4,8}:"
)
_XML: Final = re.compile(r"<nvidia_smi_log>.*?</nvidia_smi_log>", re.DOTALL)
#: How much of a file's beginning is looked at.
_LOOKED_AT: Final = 4_000
#: A line of the plain table is no wider.
_WIDEST: Final = 300
#: No document of nvidia-smi declares an entity; one that does is an attack on the reader.
_ENTITY: Final = "<!entity"


def is_document(head: str) -> bool:
    """Whether a text begins as such a document (JSON apart)."""
    start = head[:_LOOKED_AT]
    if "<nvidia_smi_log>" in start or "NVSMI LOG" in start:
        return True
    return _LISTED.match(start.lstrip()) is not None or ("NVIDIA-SMI " in start and _TABLE.search(start) is not None)


def document_rows(text: str, location: str) -> tuple[str, list[Row], list[str]] | None:
    """The tool, its rows, and what to say of them; None for a text that is no such document."""
    start = text.lstrip()[:_LOOKED_AT]
    if "<nvidia_smi_log>" in start:
        return "nvidia-smi", list(_of_xml(text, location)), []
    if _QUERY.search(start):
        return "nvidia-smi", list(_of_query(text)), []
    if rows := list(_of_list(text)):
        return "nvidia-smi", rows, []
    if _TABLE.search(text[:_LOOKED_AT]):
        rows, notes = _of_table(text, location)
        return "nvidia-smi", rows, notes
    return None


def _of_xml(text: str, location: str) -> Iterator[Row]:
    """``nvidia-smi -q -x``, as often as it stands in the file."""
    if _ENTITY in text.casefold():
        raise SourceError(f"{location}: XML that declares entities, which nvidia-smi never does", "record it again")
    logs = _XML.findall(text)
    if not logs or text.count("<nvidia_smi_log>") != len(logs):
        raise SourceError(f"{location}: XML of nvidia-smi that was cut off", "record it again, to its end")
    line = 1
    for log in logs:
        try:
            root = ElementTree.fromstring(log)  # noqa: S314 - without entities, and without its document type
        except ElementTree.ParseError as error:
            raise SourceError(f"{location}: damaged XML of nvidia-smi ({error.msg})", "record it again") from None
        time = (root.findtext("timestamp") or "").strip() or None
        for number, gpu in enumerate(root.findall("gpu")):
            cells = {"index": str(number), **dict(_leaves(gpu))}
            slices = gpu.findall("mig_devices/mig_device")
            yield Row(line, cells, time)
            for one in slices:
                instance = (one.findtext("gpu_instance_id") or "").strip()
                yield Row(line, {**_who(cells), "mig_instance": instance, "mig_profile": "a slice"}, time)


def _who(cells: Mapping[str, str]) -> dict[str, str]:
    return {name: cells[name] for name in ("index", "uuid", "product_name") if name in cells}


def _leaves(element: ElementTree.Element, way: str = "") -> Iterator[tuple[str, str]]:
    for child in element:
        name = f"{way}/{child.tag}" if way else child.tag
        if len(child):
            yield from _leaves(child, name)
        else:
            yield name.casefold(), (child.text or "").strip()


def _of_query(text: str) -> Iterator[Row]:
    """``nvidia-smi -q``: names and values by indentation."""
    time: str | None = None
    cells: dict[str, str] = {}
    begun, number = 0, -1
    ways: list[tuple[int, str]] = []
    for line, content in enumerate(text.splitlines(), start=1):
        if _QUERY.match(content) or _GPU.match(content):
            if cells:
                yield Row(begun, cells, time)
            log = content.startswith("=")  # watching prints one after the other
            number = -1 if log else number + 1
            begun, cells, ways = line, {} if log else {"index": str(number)}, []
            continue
        name, colon, value = (part.strip() for part in content.partition(":"))
        indent = len(content) - len(content.lstrip())
        ways = [way for way in ways if way[0] < indent]
        if not colon:
            if name:
                ways.append((indent, name))
        elif not cells and name == "Timestamp":
            time = value
        elif cells:
            cells.setdefault("/".join([*(way for _, way in ways), name]).casefold(), value)
    if cells:
        yield Row(begun, cells, time)


def _of_list(text: str) -> Iterator[Row]:
    """``nvidia-smi -L``: the devices, and the slices they are cut into."""
    gpu: dict[str, str] = {}
    for line, content in enumerate(text.splitlines(), start=1):
        if found := _LISTED.match(content):
            gpu = {"index": found["index"], "name": found["name"], "uuid": found["uuid"]}
            yield Row(line, gpu)
        elif gpu and (found := _SLICE.match(content)):
            yield Row(line, {**gpu, "mig_instance": found["index"], "mig_profile": found["profile"]})


def _of_table(text: str, location: str) -> tuple[list[Row], list[str]]:
    """The table that ``nvidia-smi`` prints by itself: names only, where they are not cut off."""
    rows: list[Row] = []
    for line, content in enumerate(text.splitlines(), start=1):
        if found := _TABLE_GPU.match(content[:_WIDEST]):
            cut = found["name"].endswith("...")
            rows.append(Row(line, {"index": found["index"]} | ({} if cut else {"name": found["name"]})))
    if not rows:
        raise SourceError(f"{location}: a table of nvidia-smi without a GPU", "record it again")
    return rows, [f"{location}: of nvidia-smi's table only the devices' names are read: record it with --query-gpu"]


def amd_json_rows(text: str) -> tuple[str, list[Row], list[str]] | None:
    """What ``amd-smi metric``, ``monitor`` or ``static`` print with ``--json``; None for any other JSON."""
    known = set(exporters()["amd-smi"].names) | set(exporters()["amd-smi"].device_labels)
    rows: list[Row] = []
    for value in _values(text):
        listed = value.get("gpu_data") if isinstance(value, Mapping) else value
        if not isinstance(listed, list):
            return None
        for one in listed:
            if not isinstance(one, Mapping) or not isinstance(one.get("gpu"), int):
                return None
            cells = dict(_flat(one))
            time = cells.pop("timestamp", None)
            rows.append(Row(1, cells, time))
    return ("amd-smi", rows, []) if any(known & row.cells.keys() for row in rows) else None


def _values(text: str) -> Iterator[Any]:
    """JSON values one after the other: watching prints one each time."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at < len(text):
            try:
                value, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                yield None
                return
            yield value


def _flat(value: Mapping[str, Any], way: str = "") -> Iterator[tuple[str, str]]:
    for key, one in value.items():
        name = f"{way}/{key}" if way else str(key)
        if isinstance(one, Mapping) and set(one) == {"value", "unit"}:
            unit = str(one["unit"])
            yield name.casefold(), str(one["value"]) + (f" {unit}" if one["value"] != "N/A" and unit else "")
        elif isinstance(one, Mapping):
            yield from _flat(one, name)
        elif not isinstance(one, list):
            yield name.casefold(), str(one)
