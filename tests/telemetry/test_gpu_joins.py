"""Several tools' views of GPUs as one: what cannot be told apart is left out, and said."""

from __future__ import annotations

from pytest_llmroof.telemetry.gpujoin import joined
from pytest_llmroof.telemetry.hardware import Gpu, Hardware
from pytest_llmroof.telemetry.window import Series

BUSY = {"utilization": Series((0.0, 1.0), (0.9, 0.9))}


def gpu(host: str | None) -> Gpu:
    return Gpu(f"gpu 0 of {host}" if host else "gpu 0", host=host, index="0", series=BUSY)


def test_a_number_that_two_hosts_have_tells_no_gpu() -> None:
    dcgm = Hardware((gpu("a"), gpu("b")), kinds=("dcgm",), location="dcgm.prom")
    first = Gpu("gpu 0", index="0", counters={"power_seconds": 1.0})
    table = Hardware((first,), kinds=("nvidia-smi",), location="s.csv")
    found = joined([dcgm, table])
    assert found is not None
    assert found.gpus == dcgm.gpus
    assert found.notes == ("which GPU gpu 0 of s.csv is cannot be told: it is left out",)


def test_a_number_that_one_host_has_does() -> None:
    dcgm = Hardware((gpu("a"),), kinds=("dcgm",), location="dcgm.prom")
    first = Gpu("gpu 0", index="0", counters={"power_seconds": 1.0})
    table = Hardware((first,), kinds=("nvidia-smi",), location="s.csv")
    found = joined([dcgm, table])
    assert found is not None
    assert (found.gpus[0].counters, found.notes) == ({"power_seconds": 1.0}, ())
