"""From a load generator's result file to its benchmark runs. Content tells the tool (data/benchmarks.yaml)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from pytest_llmroof.advice import as_advice
from pytest_llmroof.data import load
from pytest_llmroof.telemetry.bench_json import at, json_values, number, texts
from pytest_llmroof.telemetry.bench_latencies import stated_waits, summaries
from pytest_llmroof.telemetry.bench_requests import APART, INSIDE, only_completed
from pytest_llmroof.telemetry.client import Client, Request
from pytest_llmroof.telemetry.facttext import fact_text

#: The key of the tool that measures an engine without requests: telemetry/llamabench.py reads it.
LLAMA_BENCH: Final = "llama-bench"

Tool = Mapping[str, Any]
Run = Mapping[str, Any]


def tool_runs(text: str, location: str) -> tuple[list[tuple[str, Run]], int]:
    """The runs in a file, each with its tool's key, and how many other values it holds beside them.

    No runs where no load generator that is known wrote it. SourceError where such a file is damaged or cut off.
    """
    if not any(_may_be(text, tool) for tool in _tools().values()):
        return [], 0
    found: list[tuple[str, Run]] = []
    others = 0
    for value in json_values(text, location):
        for one in value if isinstance(value, list) else [value]:
            key = _tool_of(one) if isinstance(one, Mapping) else None
            if key is None:
                others += 1
                continue
            runs = list(_runs(one, _tools()[key]))
            found.extend((key, run) for run in runs)
            others += len(one[_tools()[key]["runs"]]) - len(runs) if "runs" in _tools()[key] else 0
    return found, others


def unread_reason(tool: str) -> str | None:
    """Why a known tool's file is of no use here, None where it is."""
    reason: str | None = _tools()[tool].get("unread")
    return reason


def clients_of(runs: list[tuple[str, Run]], location: str) -> list[Client]:
    """The runs of one file as their clients saw them."""
    several = len(runs) > 1
    return [
        client_of(tool, run, f"{location} (run {place} of {len(runs)})" if several else location)
        for place, (tool, run) in enumerate(runs, start=1)
    ]


def client_of(key: str, run: Run, location: str) -> Client:
    """One run. A run of which every request failed has no latencies, whatever zeros the tool wrote for them."""
    tool = _tools()[key]
    completed = _figure(run, tool, "completed")
    requests = INSIDE[tool["records"]](run) if "records" in tool else ()
    if completed is None and "completed" in tool:
        requests = ()  # of how many there should be records nobody knows
    started = _figure(run, tool, "started")
    duration = _figure(run, tool, "duration")
    client = Client(
        tool=key,
        title=tool["title"],
        location=location,
        model_name=_text(run, tool, "model"),
        duration_seconds=duration * float(tool.get("duration_scale", 1.0)) if duration else None,
        completed=completed,
        failed=_failed(run, tool, completed),
        input_tokens=_tokens(run, tool, "input", completed),
        output_tokens=_tokens(run, tool, "output", completed),
        output_rate=_figure(run, tool, "output_rate"),
        input_rate=_figure(run, tool, "input_rate"),
        request_rate=_figure(run, tool, "request_rate"),
        concurrency=_figure(run, tool, "concurrency"),
        accept_length=_figure(run, tool, "accept_length"),
        acceptance_rate=_percent(_figure(run, tool, "acceptance_percent")),
        batch=_figure(run, tool, "batch") if at(run, "probe.phase") == "decode" else None,
        computed_tokens=_figure(run, tool, "computed_tokens"),
        failure=next(iter(texts(at(run, "failures"))), None),
        started=started,
        ended_local=_local(run, tool),
        requests=requests,
        definitions=_definitions(tool),
        waits=stated_waits(run, tool),
        settings=_settings(run, tool),
        facts=_facts(run, tool),
        notes=tuple(_notes(run, tool)),
        remedies={key: as_advice(advice) for key, advice in tool["remedies"].items()},
    )
    untold = client.failed is None and only_completed(tool.get("records", ""), run)
    client = _by_records(client, untold)
    if client.completed == 0:
        return client
    return replace(client, summaries=summaries(run, tool, client), duration_seconds=_duration(client))


def _notes(run: Run, tool: Tool) -> Iterator[str]:
    if "cancelled" in tool and at(run, tool["cancelled"]) is True:
        yield f"{tool['title']} says that the run was cancelled: its figures are of the requests that ran until then"
    if "notes" in tool:
        yield from texts(run.get("notes"))


def _local(run: Run, tool: Mapping[str, Any]) -> float | None:
    """When a run ended, by a clock that names no time zone."""
    text = _text(run, tool, "ended_local")
    try:
        return datetime.strptime(text, "%Y%m%d-%H%M%S").replace(tzinfo=UTC).timestamp() if text else None
    except ValueError:
        return None


def records_client(text: str, location: str) -> Client | None:
    """A file with one record per request; None where it is none that is known."""
    kinds = load("benchmarks.yaml")["per_request"]
    if not any(all(f'"{part}"' in text for path in kind["all"] for part in path.split(".")) for kind in kinds.values()):
        return None
    records: list[Any] = []
    for value in json_values(text, location):
        records.extend(value if isinstance(value, list) else [value])
    for key, kind in kinds.items():
        ours = [one for one in records if all(at(one, path) is not None for path in kind["all"])]
        if ours and len(ours) == len(records):
            return client_of_requests(key, APART[key](ours), location)
    return None


def client_of_requests(key: str, requests: tuple[Request, ...], location: str) -> Client:
    """A run of which there are only the requests: it lasts from the first one's start to the last one's end."""
    tool = _tools()[key]
    good = [request for request in requests if not request.failed]
    starts = [request.started for request in requests if request.started is not None]
    ends = [one.started + one.e2e for one in good if one.started is not None and one.e2e is not None]
    unix = bool(starts) and min(starts) > 1e9
    return Client(
        tool=key,
        title=tool["title"],
        location=location,
        duration_seconds=max(ends) - min(starts) if ends and len(starts) == len(requests) else None,
        completed=float(len(good)),
        failed=float(len(requests) - len(good)),
        input_tokens=_sum([request.input_tokens for request in good]),
        output_tokens=_sum([request.output_tokens for request in good]),
        started=min(starts) if unix else None,
        requests=requests,
        definitions=_definitions(tool),
        remedies={key: as_advice(advice) for key, advice in tool["remedies"].items()},
    )


def _tools() -> Mapping[str, Tool]:
    tools: Mapping[str, Tool] = load("benchmarks.yaml")["tools"]
    return tools


def _may_be(text: str, tool: Tool) -> bool:
    """Whether a file can be this tool's at all: its keys are somewhere in the text."""
    return all(f'"{path.split(".")[0]}"' in text for path in tool["all"])


def _tool_of(value: Mapping[str, Any]) -> str | None:
    """The tool that wrote this: the first whose paths are there, and that has runs."""
    for key, tool in _tools().items():
        has = all(at(value, path) is not None for path in tool["all"])
        some = "any" not in tool or any(path in value for path in tool["any"])
        if has and some and not any(path in value for path in tool.get("lacks", ())) and list(_runs(value, tool)):
            return key
    return None


def _runs(value: Mapping[str, Any], tool: Tool) -> Iterator[Run]:
    if "runs" not in tool:
        yield value
        return
    found = value.get(tool["runs"])
    for one in found if isinstance(found, list) else []:
        if isinstance(one, Mapping) and at(one, tool["run_has"]) is not None:
            yield one


def _figure(run: Run, tool: Tool, name: str) -> float | None:
    found = (number(at(run, path)) for path in tool.get(name, ()))
    return next((value for value in found if value is not None), None)


def _text(run: Run, tool: Tool, name: str) -> str | None:
    found = (at(run, path) for path in tool.get(name, ()))
    return next((value for value in found if isinstance(value, str) and value), None)


def _failed(run: Run, tool: Tool, completed: float | None) -> float | None:
    """Failed requests: as counted, else what is missing of those that were sent."""
    failed = _figure(run, tool, "failed")
    if failed is not None:
        return failed
    share, asked = _figure(run, tool, "failed_share"), _figure(run, tool, "asked")
    if share is not None and completed is not None and share < 100:
        return float(round(completed * share / (100 - share)))
    return asked - completed if asked is not None and completed is not None and asked >= completed else None


def _tokens(run: Run, tool: Tool, side: str, completed: float | None) -> float | None:
    total, mean = _figure(run, tool, f"{side}_tokens"), _figure(run, tool, f"mean_{side}")
    return total if total is not None or mean is None or completed is None else mean * completed


def _percent(value: float | None) -> float | None:
    return None if value is None else value / 100


def _definitions(tool: Tool) -> dict[str, str]:
    stated = {name: latency["definition"] for name, latency in tool["latencies"].items()}
    return {**stated, **tool.get("record_definitions", {})}


def _settings(run: Run, tool: Tool) -> dict[str, str]:
    """What tells this load from another: its plain settings, whatever the tool's version calls them."""
    if "settings" in tool:
        results = re.compile(tool["settings"]["not"])
        places: list[Any] = [{key: value for key, value in run.items() if not results.search(key)}]
    else:
        places = [at(run, path) for path in tool.get("settings_at", ())]
    only = tool.get("settings_only")
    return {
        key: str(value)
        for place in places
        if isinstance(place, Mapping)
        for key, value in place.items()
        if isinstance(value, str | int | float | bool) and (only is None or key in only)
    }


def _facts(run: Run, tool: Tool) -> dict[str, str]:
    """What the tool knows of the deployment, under the names of telemetry/told.py."""
    found = {fact: fact_text(fact, at(run, path)) for fact, path in tool.get("facts", {}).items()}
    return {fact: text for fact, text in found.items() if text is not None}


def _by_records(client: Client, untold: bool) -> Client:
    """The run with its requests counted by their records, where there is one of each; a part of them is of no use.

    ``untold``: nothing says how many failed, and the records would not show it.
    """
    if not client.requests:
        return client
    if not client.complete:
        of = f"{len(client.requests)} of {client.total:.0f}"
        note = f"{client.location} holds {of} requests only: single requests are not looked at"
        return replace(client, requests=(), notes=(*client.notes, note))
    if len(client.requests) < (client.total or 0.0):
        return client  # of the failed ones there are no records
    if untold:
        return replace(client, completed=float(len(client.requests)))
    failed = float(sum(request.failed for request in client.requests))
    said = client.failed or 0.0
    client = replace(client, completed=len(client.requests) - failed, failed=failed)
    if failed <= said:
        return client
    note = f"{failed - said:.0f} requests that {client.title} counts as completed gave no token: they count as failed"
    return replace(client, notes=(*client.notes, note))


def _duration(client: Client) -> float | None:
    """The run's duration: as stated, else completed requests over their rate."""
    if client.duration_seconds is not None or not client.request_rate or not client.completed:
        return client.duration_seconds
    return client.completed / client.request_rate


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
