"""Gate files: what each key becomes, and every mistake at its place."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_llmroof.errors import ConfigError, ConfigErrors, Position
from pytest_llmroof.gates import document, grammar, schema
from pytest_llmroof.gates.file import load_gate_file
from pytest_llmroof.gates.spec import WindowSpec


class Loader:
    """Writes a gate file and loads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, text: str, name: str = "llmroof.yaml") -> tuple[WindowSpec, ...]:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return load_gate_file(path, self.folder)

    def only(self, text: str) -> WindowSpec:
        """The one window of a file."""
        (spec,) = self(text)
        return spec

    def window(self, keys: str, head: str = "") -> WindowSpec:
        """A window ``w`` of these keys, indented as they are."""
        text = textwrap.indent(textwrap.dedent(keys).strip("\n"), "    ")
        return self.only(f"{textwrap.dedent(head)}windows:\n  w:\n{text}\n")

    def errors(self, text: str) -> list[str]:
        """What is wrong with a file, each with its place; the file's name cut."""
        with pytest.raises(ConfigErrors) as refusal:
            self(text)
        return [str(error).removeprefix("llmroof.yaml:") for error in refusal.value.errors]

    def error(self, text: str) -> str:
        """The one thing that is wrong."""
        (error,) = self.errors(text)
        return error


@pytest.fixture
def load(tmp_path: Path) -> Loader:
    return Loader(tmp_path)


FULL = """\
    # A release gate.
    name: Llama 3.1 70B, release gate
    gpu: h100
    model: llama-3.1-70b
    deployment:
      tensor_parallel: 4
      weights: bf16
    labels: {engine: vllm-0.33.1}
    windows:
      decode:
        phase: decode
        telemetry: recordings/decode
        duration: 60s
        gates:
          - decode.mbu >= 75%
          - tpot.p99<=50ms
          - gate: kv_cache.usage.max <= 95%
            id: REL-12
            why: headroom for a failover of one replica
            severity: warn
          - {gate: decode.mbu >= 70%, per: replica}
      prefill:
        phase: prefill
        gpu: {name: mine, peaks: {bf16: 400TFLOP/s}, memory_bandwidth: 2TB/s, memory: 80GB}
        deployment: {tensor_parallel: 8}
        labels: {night: "1"}
        interval: 500ms
        warmup: 0
        repeat: 3
        min_requests: 2e2
        max_wait: 5m
        flops: exact
        served_model_name: my-llama
        name: prefill only
    """


def test_every_key_arrives(load: Loader, tmp_path: Path) -> None:
    decode, _prefill = load(FULL)
    assert (decode.id, decode.name, decode.title) == (
        "llmroof.yaml::decode", "decode", "Llama 3.1 70B, release gate")  # fmt: skip
    assert (decode.phase, decode.gpu, decode.model, decode.base) == ("decode", "h100", "llama-3.1-70b", tmp_path)
    assert decode.deployment == {"tensor_parallel": 4, "weights": "bf16"}
    assert decode.labels == {"engine": "vllm-0.33.1"}
    assert (decode.duration_seconds, decode.interval_seconds, decode.warmup_seconds) == (60.0, None, 0.0)
    assert (decode.repeat, decode.min_requests, decode.max_wait_seconds, decode.flops) == (1, None, 600.0, "model")
    (source,) = decode.telemetry
    assert (source.kind, source.shown, source.path) == (
        "path", "recordings/decode", tmp_path / "recordings" / "decode")  # fmt: skip
    names = [gate.name for gate in decode.gates]
    assert names == ["decode.mbu >= 75%", "tpot.p99 <= 50ms", "kv_cache.usage.max <= 95%", "decode.mbu >= 70%"]
    third = decode.gates[2]
    assert (third.id, third.severity) == ("REL-12", "warn")
    assert third.why == "headroom for a failover of one replica"
    assert decode.gates[3].per == "replica"
    assert not decode.live
    assert decode.unset == ()


def test_a_window_wins_over_the_head_and_deployment_and_labels_merge(load: Loader) -> None:
    _, prefill = load(FULL)
    assert prefill.title == "prefill only"
    assert isinstance(prefill.gpu, dict)
    assert prefill.gpu["peaks"] == {"bf16": "400TFLOP/s"}
    assert prefill.deployment == {"tensor_parallel": 8, "weights": "bf16"}
    assert prefill.labels == {"engine": "vllm-0.33.1", "night": "1"}
    assert (prefill.interval_seconds, prefill.repeat, prefill.min_requests) == (0.5, 3, 200)
    assert isinstance(prefill.min_requests, int)
    assert (prefill.max_wait_seconds, prefill.flops, prefill.served_model_name) == (300.0, "exact", "my-llama")
    assert [gate.canonical for gate in prefill.gates] == ["prefill.mfu >= 45%"]
    assert prefill.gates[0].default


def test_positions_say_where_each_value_stands(load: Loader) -> None:
    decode, prefill = load(FULL)
    assert decode.positions["gpu"] == Position("llmroof.yaml", 3, 6)
    assert decode.positions["model"] == Position("llmroof.yaml", 4, 8)
    assert decode.positions["deployment.tensor_parallel"] == Position("llmroof.yaml", 6, 20)
    assert decode.positions["telemetry"] == Position("llmroof.yaml", 12, 16)
    assert prefill.positions["gpu"] == Position("llmroof.yaml", 24, 10)
    assert prefill.positions["gpu.peaks.bf16"] == Position("llmroof.yaml", 24, 37)
    assert prefill.positions["deployment.tensor_parallel"] == Position("llmroof.yaml", 25, 35)
    assert prefill.positions["deployment.weights"] == Position("llmroof.yaml", 7, 12)
    assert "gpu.peaks.bf16" not in decode.positions
    assert [gate.position for gate in decode.gates] == [
        Position("llmroof.yaml", 15, 9), Position("llmroof.yaml", 16, 9),
        Position("llmroof.yaml", 17, 15), Position("llmroof.yaml", 21, 16),
    ]  # fmt: skip


def test_the_head_of_a_window_replaces_a_mapping_of_the_head(load: Loader) -> None:
    spec = load.window("phase: decode\ngpu: h200", head="gpu: {name: mine, memory: 80GB}\n")
    assert spec.gpu == "h200"
    assert spec.positions["gpu"].line == 5
    assert "gpu.memory" not in spec.positions


def test_ids_and_paths_of_a_file_in_a_folder(load: Loader, tmp_path: Path) -> None:
    (spec,) = load("windows: {d: {phase: decode, telemetry: ../rec}}", "gates/nightly.llmroof.yaml")
    assert spec.id == "gates/nightly.llmroof.yaml::d"
    assert spec.base == tmp_path / "gates"
    assert (spec.telemetry[0].shown, spec.telemetry[0].path) == ("../rec", tmp_path / "rec")
    assert spec.positions["phase"].file == "gates/nightly.llmroof.yaml"


def test_severity_is_inherited(load: Loader) -> None:
    text = """\
        severity: warn
        windows:
          a: {phase: decode}
          b: {severity: error, gates: [decode.mbu >= 75%, {gate: ttft.p99 <= 2s, severity: warn}]}
        """
    a, b = load(text)
    assert [gate.severity for gate in a.gates] == ["warn"]
    assert [gate.severity for gate in b.gates] == ["error", "warn"]


def test_equal_expressions_are_told_apart(load: Loader) -> None:
    spec = load.window("""
        gates:
          - decode.mbu >= 75%
          - {gate: decode.mbu>=75%, severity: warn}
          - {gate: decode.mbu >= 75%, per: replica}
          - {gate: decode.mbu >= 75%, id: REL-1}
          - kernels(a::b).mfu >= 75%
          - kernels(a.b).mfu >= 75%
    """)
    assert [gate.name for gate in spec.gates] == [
        "decode.mbu >= 75%", "decode.mbu >= 75%#2", "decode.mbu >= 75%#3", "decode.mbu >= 75%#4",
        "kernels(a.b).mfu >= 75%", "kernels(a.b).mfu >= 75%#2",
    ]  # fmt: skip
    assert [gate.canonical for gate in spec.gates][:2] == ["decode.mbu >= 75%"] * 2


def test_all_errors_at_once_in_the_order_of_the_file(load: Loader) -> None:
    text = """\
        gpuu: h100
        phase: decode
        deployment: {tensor_parallel: 4x, weights: bf61, tensor_paralel: 3}
        windows:
          decode:
            phase: decod
            duration: 60:30
            warmup: 5GB
            gates:
              - decode.mbuu >= 75%
              - "decode.mbu >= 75"
              - {gate: decode.mbu >= 70%, severity: warning, idd: 3}
              - {gate: goodput(ttft<=2s, tpot<=50ms) >= 95%}
              - decode.mbu >= 75%
              - decode.mbu>=75%
              - [a]
              -
          a::b: {phase: decode}
          x: {}
          x: {}
          y: {phase: mixed, gates: }
          z: {phase: mixed}
        """
    assert [error.partition(", at column")[0] for error in load.errors(text)] == [
        "1:1: gpuu: unknown key 'gpuu' (did you mean 'gpu'?)",
        "2:1: phase: unknown key 'phase': it belongs to a window",
        "3:31: deployment.tensor_parallel: expected a whole number, not '4x'",
        "3:44: deployment.weights: expected fp32, tf32, bf16, fp16, fp8, int8, fp4, int4, mxfp4, nvfp4 or w4a16, "
        "not 'bf61' (did you mean 'bf16' or 'fp16'?)",
        "3:50: deployment.tensor_paralel: unknown key 'tensor_paralel' (did you mean 'tensor_parallel' or "
        "'expert_parallel' or 'data_parallel'?)",
        "6:12: windows.decode.phase: expected decode, prefill or mixed, not 'decod' (did you mean 'decode'?)",
        "7:15: windows.decode.duration: expected a duration (50ms, 2s), not '60:30': unknown unit ':30'",
        "8:13: windows.decode.warmup: expected a duration (50ms, 2s), not a size (80GB)",
        "10:9: windows.decode.gates[0]: unknown metric 'decode.mbuu' (did you mean 'decode.mbu' or 'decode.mfu' or "
        "'decode.batch'?); --llmroof-list=metrics names all",
        "11:24: windows.decode.gates[1]: decode.mbu is a share, and 75 is above 1: did you mean 75%?",
        "12:45: windows.decode.gates[2].severity: expected error or warn, not 'warning' (did you mean 'warn'?)",
        "12:54: windows.decode.gates[2].idd: unknown key 'idd' (did you mean 'id'?)",
        "13:34: windows.decode.gates[3].tpot<=50ms) >= 95%: unknown key 'tpot<=50ms) >= 95%': put an expression that "
        "holds a comma in quotes",
        "15:9: windows.decode.gates[5]: the same gate stands here twice: 'decode.mbu >= 75%', first in line 14",
        "16:9: windows.decode.gates[6]: expected text or a mapping, not a list",
        "17:8: windows.decode.gates[7]: expected text or a mapping, not nothing",
        "18:3: a window's name must not hold '::': pytest could not select it ('a::b')",
        "19:3: windows.x: a window without gates needs its phase (decode or prefill); or write gates:, like "
        "'roofline.efficiency >= 50%', 'output.tokens_per_second >= 1000tok/s', 'ttft.p99 <= 2s', 'tpot.p99 <= 50ms'",
        "20:3: the key 'x' stands here twice: first in line 19",
        "21:28: windows.y.gates: expected a list, not nothing",
        "22:3: windows.z: a mixed window has no default gates: write gates:, like 'roofline.efficiency >= 50%', "
        "'output.tokens_per_second >= 1000tok/s', 'ttft.p99 <= 2s', 'tpot.p99 <= 50ms'",
    ]


@pytest.mark.parametrize(
    ("window", "error"),
    [
        ("gpu: {name: x, peaks: {bf17: 1TFLOP/s}}", "2:25: windows.w.gpu.peaks.bf17: unknown key 'bf17' (did you mean"),
        ("gpu: {name: x, memory: 80}\nphase: decode", None),
        ("gpu: {name: x, memory: 80GB/s}", "2:25: windows.w.gpu.memory: expected a size (80GB), not a bandwidth"),
        ("gpu: {memory: -80GB}", "2:16: windows.w.gpu.memory: expected a size (80GB) above 0"),
        ("gpu: [h100]", "2:7: windows.w.gpu: expected text or a mapping, not a list"),
        ("model: {parameters: many}", "2:22: windows.w.model.parameters: expected a number, not 'many'"),
        ("model: {parameters: 0}", "2:22: windows.w.model.parameters: expected a number above 0, not 0"),
        ("model: {layers: 1.5}", "2:18: windows.w.model.layers: expected a whole number, not 1.5"),
        ("model: ''", "2:9: windows.w.model: is empty"),
        ("model: ", "2:9: windows.w.model: expected text or a mapping, not nothing"),
        ("deployment: {tensor_parallel: 0}", "2:32: windows.w.deployment.tensor_parallel: expected a whole number of"
         " at least 1, not 0"),
        ("deployment: {expert_parallel: 1}", "2:32: windows.w.deployment.expert_parallel: expected true or false, not"),
        ("deployment: {tp: 4}", "2:15: windows.w.deployment.tp: unknown key 'tp' (did you mean 'tensor_parallel'?)"),
        ("tensor_parallel: 4", "2:2: windows.w.tensor_parallel: unknown key 'tensor_parallel': it belongs to 'deploym"),
        ("windows: {}", "2:2: windows.w.windows: unknown key 'windows': it belongs to the file's head"),
        ("repeat: 0", "2:10: windows.w.repeat: expected a whole number of at least 1, not 0"),
        ("duration: 0s", "2:12: windows.w.duration: expected a duration (50ms, 2s) above 0"),
        ("duration: -5s", "2:12: windows.w.duration: expected a duration (50ms, 2s) above 0"),
        ("warmup: -5s", "2:10: windows.w.warmup: expected a duration (50ms, 2s) of 0 or more"),
        ("duration: .inf", "2:12: windows.w.duration: expected a duration (50ms, 2s), not '.inf'"),
        ("duration: yes", "2:12: windows.w.duration: expected a duration (50ms, 2s), not 'yes'"),
        ("duration: [1s]", "2:12: windows.w.duration: expected a duration (50ms, 2s), not a list"),
        ("gates: []", "2:9: windows.w.gates: is empty"),
        ("gates: decode.mbu >= 75%", "2:9: windows.w.gates: expected a list, not 'decode.mbu >= 75%'"),
        ("gates: [{id: x}]", "2:10: windows.w.gates[0]: needs the key 'gate'"),
        ("gates: [{gate: decode.mbu >= 75%, per: gpus}]", "2:41: windows.w.gates[0].per: expected replica or gpu, not"),
        ("telemetry: []", "2:13: windows.w.telemetry: is empty"),
        ("telemetry: {}", "2:13: windows.w.telemetry: needs one of the keys 'url' and 'prometheus'"),
        ("telemetry: {url: http://a/m, prometheus: http://b}", "2:13: windows.w.telemetry: needs one of the keys"),
        ("telemetry: {url: http://a/m, selector: 'a=\"b\"'}", "2:13: windows.w.telemetry: 'selector' goes with "
         "'prometheus'"),
        ("telemetry: ftp://a/m", "2:13: windows.w.telemetry: expected a URL that starts with http:// or https://, found"
         " ftp://"),
        ("telemetry: [http://]", "2:14: windows.w.telemetry[0]: not a URL: expected http://HOST:PORT/PATH"),
        ("telemetry: {url: localhost}", "2:19: windows.w.telemetry.url: expected a URL that starts with http:// or"),
        ("telemetry: {url: http://a/m, cert: [a]}", "2:37: windows.w.telemetry.cert: expected 2 entries, not 1"),
        ("telemetry: {url: http://a/m, headers: [a]}", "2:40: windows.w.telemetry.headers: expected a mapping, not a"),
        ("telemetry: {prometheus: http://a, end: now-5GB}", "2:41: windows.w.telemetry.end: expected a duration after"),
        ("telemetry: {prometheus: http://a, end: 2026-11-29T12:00:00}", "2:41: windows.w.telemetry.end: a time zone is "
         "missing"),
        ("telemetry: {prometheus: http://a, end: 2026-13-29T12:00:00Z}", "2:41: windows.w.telemetry.end: not a time"),
        ("telemetry: {prometheus: http://a, end: 999999999999}", "2:41: windows.w.telemetry.end: not a time: Unix"),
        ("telemetry: {prometheus: http://a, end: now-1e300s}", "2:41: windows.w.telemetry.end: expected a duration"),
        ("telemetry: {prometheus: http://a, end: now-soon}", "2:41: windows.w.telemetry.end: after 'now-': 'soon'"),
        ("telemetry: {url: http://a/m, cert: [a, b, c]}", "2:37: windows.w.telemetry.cert: expected 2 entries, not 3"),
        ('telemetry: "a\\nb"', "2:13: windows.w.telemetry: a path must not hold control characters"),
        ("telemetry: {prometheus: http://a, end: tomorrow}", "2:41: windows.w.telemetry.end: expected now, now-24h"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_window(load: Loader, window: str, error: str | None) -> None:
    text = "windows: {w: {phase: decode,\n " + window.replace("\n", ",\n ") + "}}\n"
    if window.endswith("phase: decode"):
        text = "windows: {w: {\n " + window.replace("\n", ",\n ") + "}}\n"
    if error is None:
        load(text)
    else:
        assert load.error(text).startswith(error)


def test_default_gates_wait_for_the_phase_only_where_files_tell_it(load: Loader) -> None:
    """A phase that is not written is found from recordings before the gates are judged; a server is asked later."""
    (spec,) = load("windows: {w: {telemetry: [a.prom, b.prom], severity: warn}}")
    assert (spec.gates, spec.default_severity) == ((), "warn")
    for keys in ("telemetry: [a.prom, http://h/metrics]", "telemetry: http://h/metrics", "gpu: h100"):
        assert "a window without gates needs its phase" in load.error(f"windows: {{w: {{{keys}}}}}")


def test_a_window_with_a_wrong_key_is_not_told_about_a_phase_as_well(load: Loader) -> None:
    """It may have been meant for the phase."""
    assert load.error("windows: {w: {phas: decode}}").startswith("1:15: windows.w.phas: unknown key 'phas'")


def test_names_are_looked_up_where_something_else_is_wrong_already(tmp_path: Path) -> None:
    """Mappings are left out: what is wrong in them was said."""
    seen: list[tuple[object, object, object]] = []

    def look_up(spec: WindowSpec) -> None:
        seen.append((spec.gpu, spec.model, spec.deployment))
        if spec.gpu == "h1000":
            raise ConfigError("unknown accelerator 'h1000'", spec.positions["gpu"])

    path = tmp_path / "llmroof.yaml"
    path.write_text(
        "deployment: {tensor_parallel: 2}\nwindows:\n  a: {phase: decode, gpu: h1000, model: {parameters: 7e9}}\n"
        "  b: {phase: decode, gpu: {name: x, memory: 80GB}, model: m, zzz: 1}\n"
    )
    with pytest.raises(ConfigErrors) as caught:
        load_gate_file(path, tmp_path, look_up)
    assert seen == [("h1000", None, {}), (None, "m", {})]
    first, second = map(str, caught.value.errors)
    assert first == "llmroof.yaml:3:27: unknown accelerator 'h1000'"
    assert second.startswith("llmroof.yaml:4:62: windows.b.zzz: unknown key 'zzz'")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "the file is empty"),
        ("# nothing\n", "the file is empty"),
        ("- a\n", "1:1: expected a mapping with windows:, not a list"),
        ("windows\n", "1:1: expected a mapping with windows:, not a single value"),
        ("name: x\n", "1:1: needs the key 'windows'"),
        ("windows:\n", "1:9: windows: expected a mapping, not nothing"),
        ("windows: {}\n", "1:10: windows: is empty"),
        ("windows:\n  w: 3\n", "2:6: windows.w: expected a mapping, not '3'"),
        ("windows:\n\tw: {}\n", "2:1: a tab stands here: YAML is indented with spaces"),
        ("windows: [a\n", "not YAML: "),
        ("windows: {}\n---\na: 1\n", "2:1: a second document starts here"),
        ("windows: {w: {phase: !python/name:os.system decode}}\n", "1:22: unknown tag '!python/name:os.system'"),
        ("windows: {w: {phase: !!python/name:os.system decode}}\n", "1:22: unknown tag"),
        ("windows: {w: {phase: decode}, ? [a] : b}\n", "1:33: a key must be text"),
        ("windows: {w: {phase: decode}, ' ': {phase: decode}}\n", "1:31: a window's name must not be empty"),
        ('windows: {"a\\n": {phase: decode}}\n', "1:11: a window's name must not hold control characters"),
        ("windows: {a[0]: {phase: decode}}\n", None),
        ("windows:\n  a[0]: {phase: decode}\n", "2:3: a window's name must not hold '['"),
        ("windows: {w: {<<: 3, phase: decode}}\n", "1:19: '<<' merges mappings only"),
        ("windows: {w: &w {<<: *w}}\n", "nested more than"),
        ("windows: &w {w: *w}\n", "nested more than"),
    ],
)
def test_a_file_that_is_none(load: Loader, text: str, error: str | None) -> None:
    errors = load.errors(text)
    assert len(errors) == 1 or error is None
    if error is not None:
        assert error in errors[0].removeprefix("llmroof.yaml: ")


def test_a_control_character_and_foreign_bytes_have_a_place(load: Loader, tmp_path: Path) -> None:
    assert load.error("name: x\nwin\x01dows: 3\n") == "2:4: not YAML: the character U+0001 is not allowed"
    path = tmp_path / "llmroof.yaml"
    path.write_bytes(b"name: x\nn\xe9: 3\n")
    with pytest.raises(ConfigErrors, match=r"^llmroof\.yaml:2:2: not UTF-8 text$"):
        load_gate_file(path, tmp_path)


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigErrors, match=r"^nowhere\.yaml: cannot be read: No such file or directory$"):
        load_gate_file(tmp_path / "nowhere.yaml", tmp_path)
    monkeypatch.setattr(document, "MOST_BYTES", 3 * 2**20)
    (tmp_path / "full.yaml").write_text("#" * 3 * 2**20)
    with pytest.raises(ConfigErrors, match=r"^full\.yaml: the file is empty"):
        load_gate_file(tmp_path / "full.yaml", tmp_path)
    (tmp_path / "larger.yaml").write_text("#" * (3 * 2**20 + 1))
    with pytest.raises(ConfigErrors, match=r"^larger\.yaml: larger than 3 MiB: this is no gate file$"):
        load_gate_file(tmp_path / "larger.yaml", tmp_path)
    monkeypatch.setattr(document, "MOST_BYTES", 10)
    (tmp_path / "large.yaml").write_text("a" * 11)
    with pytest.raises(ConfigErrors, match=r"^large\.yaml: larger than"):
        load_gate_file(tmp_path / "large.yaml", tmp_path)


def test_an_alias_bomb_is_refused(load: Loader) -> None:
    lines = ["x0: &x0 [a, a, a, a, a, a, a, a, a, a]"]
    lines += [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert "are aliases nested?" in load.error("\n".join(lines))


def test_deep_nesting_is_refused(load: Loader) -> None:
    assert load.error("windows: " + "[" * 200 + "]" * 200).startswith("1:34: nested more than 24 levels deep")
    assert "nest" in load.error("windows: " + "[" * 20_000)  # the parser's own limit, where it has one


def test_anchors_and_merge_keys(load: Loader) -> None:
    text = """\
        windows:
          a: &base
            phase: decode
            duration: 60s
            deployment: {tensor_parallel: 2}
          b:
            <<: *base
            phase: prefill
          c:
            <<: [{interval: 2s, duration: 5s}, *base]
        """
    a, b, c = load(text)
    assert (a.phase, a.duration_seconds, b.phase, b.duration_seconds) == ("decode", 60.0, "prefill", 60.0)
    assert b.deployment == {"tensor_parallel": 2}
    assert (c.phase, c.duration_seconds, c.interval_seconds) == ("decode", 5.0, 2.0)
    assert b.positions["duration"] == Position("llmroof.yaml", 4, 15)


def test_yaml_traps_change_no_meaning(load: Loader) -> None:
    text = """\
        name: 2026-11-29
        labels: {on: no, build: 007, run: 1e3, time: 12:30:00, empty: ''}
        served_model_name: 1_000
        model: {parameters: 70e9, layers: 80, weight_bytes: 1_000, kv_bytes_per_token: 131072}
        deployment: {tensor_parallel: 4, expert_parallel: no, speculative_tokens: 0}
        windows:
          60:
            duration: 1e3
            interval: 1_0
            telemetry: 2026-11-29
            gates:
              - {gate: decode.mbu >= 75%, id: 007, why: no}
          on: {phase: decode}
          'null': {phase: decode}
        """
    spec, on, null = load(text)
    assert (spec.name, on.name, null.name) == ("60", "on", "null")
    assert spec.title == "2026-11-29"
    assert spec.labels == {"on": "no", "build": "007", "run": "1e3", "time": "12:30:00", "empty": ""}
    assert spec.served_model_name == "1_000"
    assert spec.model == {"parameters": 70e9, "layers": 80, "weight_bytes": 1000, "kv_bytes_per_token": 131072}
    assert spec.deployment == {"tensor_parallel": 4, "expert_parallel": False, "speculative_tokens": 0}
    assert (spec.duration_seconds, spec.interval_seconds) == (1000.0, 10.0)
    assert spec.telemetry[0].shown == "2026-11-29"
    assert (spec.gates[0].id, spec.gates[0].why) == ("007", "no")


@pytest.mark.parametrize("number", ["010", "0x10", "0o10", "1:30", "1,000", "٤", '"4"', ".nan", "1" * 400])
def test_what_is_no_plain_number_is_refused_and_not_converted(load: Loader, number: str) -> None:
    text = f"deployment:\n  tensor_parallel: {number}\nwindows:\n  w:\n    phase: decode\n"
    assert load.error(text).startswith("2:20: deployment.tensor_parallel: expected a whole number, not ")


def test_the_column_of_an_expression_in_quotes_and_over_lines(load: Loader) -> None:
    text = """\
        windows:
          é:
            gates:
              - 'decode.mbu >= 75'
              - decode.mbu
                  >= 75
              - {id: "ü", gate: "ttft.p42 <= 2s"}
        """
    errors = load.errors(text)
    assert [error.split(": ", 1)[0] for error in errors] == ["4:24", "5", "7:26"]


def environment(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name in ("TOKEN", "TP", "GPU", "WAIT", "LIMIT", "NOWHERE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name, value)


VARIABLES = """\
    gpu: ${GPU:-h100}
    deployment: {tensor_parallel: "${TP:-4}"}
    windows:
      w:
        duration: ${WAIT:-60s}
        telemetry:
          - {url: "http://me:${TOKEN}@host:8000/metrics?key=${TOKEN}", headers: {Authorization: "Bearer ${TOKEN}"}}
        gates: ["decode.mbu >= ${LIMIT:-75%}", {gate: tpot.p99 <= 1s, why: "not ${NOWHERE}"}]
    """


def test_variables_come_from_the_environment(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, TOKEN="s3cret-s3cret", TP="8", WAIT="", LIMIT="80%")
    spec = load.only(VARIABLES)
    assert (spec.gpu, spec.deployment, spec.duration_seconds) == ("h100", {"tensor_parallel": 8}, 60.0)
    assert [gate.canonical for gate in spec.gates] == ["decode.mbu >= 80%", "tpot.p99 <= 1s"]
    assert spec.gates[1].why == "not ${NOWHERE}"
    assert spec.unset == ()
    (source,) = spec.telemetry
    assert source.kind == "url"
    assert source.shown == "http://host:8000/metrics"
    assert source.options["url"] == "http://me:s3cret-s3cret@host:8000/metrics?key=s3cret-s3cret"
    assert source.options["headers"] == {"Authorization": "Bearer s3cret-s3cret"}
    assert spec.live
    assert "s3cret" not in repr(spec)


def test_a_variable_that_a_window_replaces_may_be_unset(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TP", "PP", "GPU"):
        monkeypatch.delenv(name, raising=False)
    a, b, c = load("""
        gpu: "${GPU}"
        deployment: {tensor_parallel: "${TP}", pipeline_parallel: "${PP}"}
        windows:
          a: {phase: decode, gpu: h100, deployment: {pipeline_parallel: 1}}
          b: {phase: decode, deployment: {tensor_parallel: 2, pipeline_parallel: 1}}
          c: {phase: decode, gpu: {name: mine}}
    """)
    assert [set(spec.unset) for spec in (a, b, c)] == [{"TP"}, {"GPU"}, {"TP", "PP"}]


def test_an_unset_variable_is_named_and_is_no_error(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch)
    spec = load.only(VARIABLES)
    assert spec.unset == ("TOKEN",)
    assert len(spec.gates) == 2
    text = """\
        gpu: ${GPU}
        deployment: {tensor_parallel: "${TP}", weights: bf16}
        labels: {build: "${NOWHERE}", kept: x}
        windows:
          a: {phase: decode, duration: "${WAIT}"}
          b: {phase: decode, gpu: h200, deployment: {tensor_parallel: 2}, labels: {build: "1"}}
        """
    a, b = load(text)
    assert set(a.unset) == {"WAIT", "GPU", "TP", "NOWHERE"}
    assert (a.gpu, a.deployment, a.labels, a.duration_seconds) == (None, {"weights": "bf16"}, {"kept": "x"}, None)
    assert [gate.canonical for gate in a.gates] == ["decode.mbu >= 75%"]
    assert (b.unset, b.gpu, b.deployment["tensor_parallel"]) == ((), "h200", 2)


def test_what_a_variable_stands_for_is_never_printed(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, TOKEN="s3cret-s3cret")
    text = """\
        deployment: {tensor_parallel: "${TOKEN}", weights: "${TOKEN}"}
        windows:
          w:
            phase: "${TOKEN}"
            duration: ${TOKEN}
            telemetry:
              - {url: "${TOKEN}", timeout: "${TOKEN}"}
              - {prometheus: "http://u:${TOKEN}@h:99999999/", end: "${TOKEN}"}
              - {url: "http://u:s3cret@h/", headers: "s3cret"}
            gates:
              - decode.mbu >= ${TOKEN}
              - {gate: "${TOKEN}"}
              - {gate: decode.mbu >= 3%, severity: "${TOKEN}"}
        """
    errors = load.errors(text)
    assert len(errors) == 12
    assert not [error for error in errors if "s3cret" in error]
    assert errors[0] == "1:31: deployment.tensor_parallel: expected a whole number, not what ${TOKEN} stands for"


def test_variables_that_are_none(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch)
    text = """\
        name: "a $${TOKEN} and $5"
        gpu: "${}"
        model: "${TOKEN"
        windows:
          w:
            gates:
              - decode.mbu >= ${LIMIT}
        """
    errors = load.errors(text)
    assert [error.split(": ", 1)[0] for error in errors] == ["2:6", "3:8", "7:9"]
    assert "'${' starts no variable" in errors[0]
    assert "write ${LIMIT:-DEFAULT}" in errors[2]
    assert load.only('name: "a $${TOKEN} and $5"\nwindows: {w: {phase: decode}}').title == "a ${TOKEN} and $5"


def test_many_gates_are_checked_and_parsed_by_their_kinds(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    check = schema.problems

    def counted(value: object, place: schema.Place, shown: Any) -> list[schema.Problem]:
        asked.append(place)
        return check(value, place, shown)

    monkeypatch.setattr(schema, "problems", counted)
    grammar.parse_expression.cache_clear()
    lines = ["windows:"]
    for window in range(20):
        lines += [f"  w{window}:", "    gates:"]
        lines += [f"      - decode.mbu >= {limit}%" for limit in range(50)]
        lines += [f"      - {{gate: tpot.p99 <= {limit}ms, id: R-{window}-{limit}}}" for limit in range(50)]
    specs = load("\n".join(lines))
    assert sum(len(spec.gates) for spec in specs) == 2000
    assert asked == ["file", "gate"]
    assert grammar.parse_expression.cache_info().misses == 100


def test_telemetry_in_all_its_forms(load: Loader, tmp_path: Path) -> None:
    outside = tmp_path.parent / "elsewhere" / "x.prom"
    spec = load.window(f"""
        phase: decode
        telemetry:
          - before.prom
          - {tmp_path}/recordings/a
          - {outside}
          - http://localhost:8000/metrics
          - {{url: "https://h/m", token_file: token, verify: no, cert: [c.pem, k.pem], timeout: 500ms}}
          - {{url: "https://[::1]:8000/m", verify: ca.pem, cert: both.pem}}
          - {{prometheus: "http://prom:9090", selector: 'namespace="prod"', duration: 10m, end: now-24h}}
          - {{prometheus: "http://prom:9090", end: 1764417600}}
          - {{prometheus: "http://prom:9090", end: 2026-11-29T12:00:00+01:00}}
    """)
    assert [source.kind for source in spec.telemetry] == ["path"] * 3 + ["url"] * 3 + ["prometheus"] * 3
    assert [source.shown for source in spec.telemetry] == [
        "before.prom", "recordings/a", "x.prom", "http://localhost:8000/metrics", "https://h/m", "https://[::1]:8000/m",
        "http://prom:9090", "http://prom:9090", "http://prom:9090",
    ]  # fmt: skip
    assert spec.telemetry[2].path == outside
    assert spec.telemetry[3].options == {"url": "http://localhost:8000/metrics"}
    options: dict[str, Any] = dict(spec.telemetry[4].options)
    assert (options["timeout"], options["verify"]) == (0.5, False)
    assert options["token_file"] == tmp_path / "token"
    assert options["cert"] == (tmp_path / "c.pem", tmp_path / "k.pem")
    assert spec.telemetry[5].options["verify"] == tmp_path / "ca.pem"
    asked = {"prometheus": "http://prom:9090", "selector": 'namespace="prod"', "duration": 600.0, "end": "now-24h"}
    assert spec.telemetry[6].options == asked
    assert [source.options["end"] for source in spec.telemetry[7:]] == ["1764417600", "2026-11-29T12:00:00+01:00"]


def test_without_the_fast_parser_it_is_the_same(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(yaml.SafeLoader):
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as the base class has it

    fast = load(FULL)
    monkeypatch.setattr(document, "_Loader", Slow)
    assert load(FULL) == fast
    assert load.error("windows:\n\tw: {}\n") == "2:1: a tab stands here: YAML is indented with spaces"
    assert "deep" in load.error("windows: " + "[" * 5_000)
    assert load.error("name: x\nwin\x01dows: 3\n") == "2:4: not YAML: the character U+0001 is not allowed"


def test_a_byte_order_mark_and_windows_line_ends(load: Loader, tmp_path: Path) -> None:
    path = tmp_path / "llmroof.yaml"
    path.write_bytes(b"\xef\xbb\xbfwindows:\r\n  w:\r\n    phase: decode\r\n")
    assert load_gate_file(path, tmp_path)[0].phase == "decode"
