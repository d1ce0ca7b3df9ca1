"""Report documents for tests of what is written from them: one with everything, large ones, hostile ones."""

from __future__ import annotations

import copy
from typing import Any, Final

from assessments import assessment, flagship_verdict, gate, impossible, itl, mbu, measured, no_data, spec, verdict

from pytest_llmroof.report.document import report_document, window_document

Document = dict[str, Any]
CREATED: Final = "2026-11-29T12:00:00Z"
HOSTILE: Final = "<script>alert(1)</script> {{ 7 * 7 }} </style>\"'& \u202eevil\x1b[31m \ud800"


def of_everything() -> Document:
    """Two failed, two not measured, one warned, two passed, two not run; with a change, notes and labels."""
    decode = window_document(
        assessment(
            flagship_verdict(),
            verdict(gate("itl.mean", "<=", 0.02, "20ms", "seconds"), itl()),
            verdict(gate("tpot.p99", "<=", 0.05, "50ms", "seconds"), tpot(), "pass", approximate=True,
                    advice=("280 more requests",)),
            verdict(gate("kv_cache.usage.max", "<=", 0.95, "95%", id="REL-12"), usage(), "pass"),
            verdict(gate("preemptions", "<=", 0.0, "0", "count", severity="warn"), preemptions()),
            outcomes={"decode.mbu": mbu(), "decode.intensity": intensity(), "itl.mean": itl()},
        )
    )  # fmt: skip
    decode.update(change=change(), changes={"decode": change()}, started="2026-11-29T11:58:00Z")
    decode["notes"] = ["the server restarted 12 s into the window; the longer part was used"]
    quiet = window_document(
        assessment(
            verdict(gate("ttft.p99", "<=", 2.0, "2s", "seconds"), no_data("ttft.p99"), "no data"),
            verdict(gate(), impossible(), "impossible"),
            outcomes={}, attribution=None, diagnosis=None, diagnoses={},
            spec=spec(id="llmroof.yaml::peak", name="peak"),
        )
    )  # fmt: skip
    unrun = [
        {"node_id": "llmroof.yaml::night::decode.mbu >= 75%", "reason": "deselected"},
        {"node_id": "tests/test_load.py::test_decode", "reason": "stopped by -x"},
    ]
    return report_document([decode, quiet], labels={"commit": "abc123"}, created=CREATED, not_run=unrun)


def tpot() -> Any:
    return measured("tpot.p99", 0.0495, 0.045, 0.055, "seconds")


def usage() -> Any:
    return measured("kv_cache.usage.max", 0.4, 0.4, 0.4, "fraction")


def preemptions() -> Any:
    return measured("preemptions", 60.0, 60.0, 60.0, "count")


def intensity(value: float = 12.2) -> Any:
    return measured("decode.intensity", value, value, value, "FLOP/byte")


def change() -> Document:
    """8B on one H100: batch 24 -> 40, context 1.5k -> 3.0k: 9.0 -> 14.3 ms, of it traffic 3.3 and engine 2.0."""
    traffic = {"of": "traffic", "cause": "memory floor: KV", "before_seconds": 0.0014, "after_seconds": 0.0047,
               "seconds": 0.0033, "observed": False}  # fmt: skip
    engine = {"of": "engine", "cause": "not attributed", "before_seconds": None, "after_seconds": None,
              "seconds": 0.002, "observed": False}  # fmt: skip
    return {
        "of": "decode step",
        "baseline": {"report": "base/night1.json", "window": "llmroof.yaml::decode", "created": CREATED, "labels": {},
                     "windows": 3},
        "before_seconds": 0.009, "after_seconds": 0.0143, "seconds": 0.0053,
        "traffic_seconds": 0.0033, "queue_seconds": None, "engine_seconds": 0.002,
        "floor_before_seconds": 0.0059, "floor_after_seconds": 0.0092,
        "parts": [traffic, engine],
        "facts": [{"name": "batch", "unit": "count", "before": 24.0, "after": 40.0}],
        "differences": [], "missing": [],
    }  # fmt: skip


def several_accelerators() -> Document:
    """The same window on two accelerators."""
    first = of_everything()["windows"][0]
    second = copy.deepcopy(first)
    second["id"] = "other.llmroof.yaml::decode"
    second["gpu"].update(
        name="h200-sxm-141gb", product="NVIDIA H200 SXM 141GB", memory_bandwidth_bytes_per_second=4.8e12,
        ridge_flops_per_byte=206.1,
    )  # fmt: skip
    return report_document([first, second], labels={}, created=CREATED)


def kernels(count: int) -> Document:
    """A window with that many kernels of counted FLOPs and bytes, many of them close to each other."""
    document = report_document(of_everything()["windows"][:1], labels={}, created=CREATED)
    measurements = document["windows"][0]["measurements"]
    plain = measurements["decode.mbu"]
    for number in range(count):
        mfu, mbu_ = 0.04 + 0.9 * (number % 7) / 10, 0.1 + 0.8 * (number % 5) / 6
        for metric, value in (("mfu", mfu), ("mbu", mbu_)):
            measurements[f"kernels(gemm_{number}_of_some_length).{metric}"] = {**plain, "value": value}
    return document


def many(windows: int, gates: int) -> Document:
    """So many windows of so many gates each, two of three passed."""
    window = of_everything()["windows"][0]
    failed, passed = window["gates"][0], window["gates"][3]
    made = []
    for number in range(windows):
        one = {**window, "id": f"fleet.llmroof.yaml::window {number}", "name": f"window {number}"}
        one["gates"] = [
            {**(failed if index % 3 == 0 else passed), "id": f"REL-{number}-{index}"} for index in range(gates)
        ]
        made.append(one)
    return report_document(made, labels={}, created=CREATED)


def hostile() -> Document:
    """Whatever a file from elsewhere can hold, in every place where somebody may write something."""
    document = copy.deepcopy(of_everything())
    decode, quiet = document["windows"]
    document["labels"] = {"<b>": HOSTILE, "k" * 5000: "v" * 5000}
    document["not_run"] = [{"node_id": HOSTILE + "n" * 5000, "reason": HOSTILE}]
    decode.update(name=HOSTILE + "x" * 5000, notes=[HOSTILE, "y" * 5000, "שלום <b>עולם</b>"], unread=[HOSTILE])
    quiet["name"] = "نافذة فك التشفير"
    decode["model"]["title"] = decode["gpu"]["product"] = HOSTILE
    decode["sources"] = [{"kind": HOSTILE, "location": "p" * 5000}]
    decode["gates"][0].update(id=HOSTILE + "z" * 5000, why="w" * 5000, in_words=HOSTILE + "v" * 5000)
    quiet["gates"][0].update(reason=HOSTILE, remedy="r" * 5000)
    quiet["gates"][1]["expression"] = quiet["gates"][1]["metric"] = f"goodput({HOSTILE})"
    for diagnosis in (decode["diagnosis"], *decode["diagnoses"].values()):
        diagnosis["evidence"][0].update(statement=HOSTILE, source="s" * 5000)
        diagnosis["remedies"][0].update(title=HOSTILE, effect="e" * 5000, detail=HOSTILE)
        diagnosis["missing"] = [HOSTILE]
    return document


def profiled() -> Document:
    """Three kernels that Nsight Compute counted: one in fp8, one in part only, one that counted no FLOPs."""
    document = report_document(of_everything()["windows"][:1], labels={}, created=CREATED)
    point = {
        "label": "gemm_fp8", "kernel": "void gemm_fp8<128>(...)", "scope": "kernel", "launches": 40, "seconds": 0.004,
        "time_share": 0.5, "flops_per_second": 1000e12, "bytes_per_second": 1e12, "intensity": 1000.0,
        "lower_bound": False, "precision": "fp8", "mfu": 1.01, "mbu": 0.3, "regime": "compute", "of_roof": 0.505,
        "reading": "compute", "l2_hit_rate": 0.6, "occupancy": 0.25, "waves": 2.0, "bank_conflict_share": 0.01,
        "stalls": [{"waits_for": "long scoreboard", "share": 0.41}], "rules": [],
    }  # fmt: skip
    partly = {**point, "label": "attention", "intensity": 10.0, "flops_per_second": 20e12, "of_roof": 0.597,
              "lower_bound": True, "stalls": [], "mfu": 0.02, "reading": None}  # fmt: skip
    copied = {**point, "label": "copy", "intensity": None, "flops_per_second": None, "of_roof": None, "mfu": None}
    document["windows"][0]["kernels"] = {
        "source": "kernels.csv", "launches": 120, "seconds": 0.008, "devices": ["NVIDIA H100 80GB HBM3"], "notes": [],
        "points": [point, partly, copied],
    }  # fmt: skip
    return document
