"""``python -m pytest_llmroof record``: a recording is framed round any load."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from loopback import respond

from pytest_llmroof import recorder
from pytest_llmroof.__main__ import VERBS, main
from pytest_llmroof.telemetry import recording as recording_module

#: A load that lasts until the server was scraped so often, and says so on both of its outputs.
LOAD = """
import sys, urllib.request
print("load begins", flush=True)
urllib.request.urlopen(sys.argv[1]).read()
print("load went well", file=sys.stderr, flush=True)
sys.exit(int(sys.argv[2]))
"""

#: A load that counts the interrupts it gets, until it is told to end.
STUBBORN = """
import signal, sys, urllib.request
got = []
signal.signal(signal.SIGINT, lambda number, frame: got.append(number))
url = sys.argv[1]
urllib.request.urlopen(url + "?2").read()     # sampling has begun, and so the handler is in place
urllib.request.urlopen(url + "/ready").read()
while not got:
    signal.pause()
urllib.request.urlopen(url + "/more").read()  # time for a second interrupt to come
sys.exit(40 + len(got))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "load.py").write_text(LOAD)
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    return tmp_path


def record(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_llmroof", "record", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def load(server: Any, scrapes: int, code: int = 0) -> list[str]:
    return ["--", sys.executable, "load.py", f"http://127.0.0.1:{server.port}/until?{scrapes}", str(code)]


def pages(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.prom"))


def manifest(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "recording.json").read_text())
    return content


def test_a_load_is_framed(server: Any, folder: Path) -> None:
    result = record("--out=rec/night1", "--interval=20ms", server.url, *load(server, 10))
    assert result.returncode == 0
    assert result.stdout == "load begins\n"
    kept = pages(folder / "rec/night1")
    assert len(kept) == server.count() >= 12  # one before the load, ten in it at least, one after it
    says = f"llmroof record: {len(kept)} scrapes of 1 endpoint in rec/night1"
    step = "gates read it with 'telemetry: rec/night1' in a gate file, or --llmroof-telemetry=rec/night1"
    assert result.stderr.splitlines() == ["load went well", says, f"llmroof record: {step}"]
    heads = [path.read_text().splitlines()[:3] for path in kept]
    times = [float(first.removeprefix("# scraped_at ")) for first, _, _ in heads]
    assert times == sorted(times)
    assert abs(times[0] - time.time()) < 60
    assert all(0 < float(second.removeprefix("# scrape_seconds ")) < 60 for _, second, _ in heads)
    assert {third for _, _, third in heads} == {f"# endpoint {server.url}"}
    running = ['running{engine="0"} 24.0' in path.read_text() for path in kept]
    assert (running[0], running[-1]) == (False, False)  # idle at both ends
    assert sum(running) >= 9  # all that came within the load, but one that may have been under way as it began
    about = manifest(folder / "rec/night1")
    assert (about["ended"], about["exit_code"], about["failed_scrapes"]) == ("command", 0, [])
    assert about["command"] == Path(sys.executable).name
    assert about["interval_seconds"] == 0.02


def test_the_code_of_the_load_is_the_code_of_the_recorder(server: Any, folder: Path) -> None:
    result = record("--out=rec", "--interval=0.02s", server.url, *load(server, 3, code=7))
    assert result.returncode == 7
    assert len(pages(folder / "rec")) >= 4
    assert manifest(folder / "rec")["exit_code"] == 7


def test_a_load_that_a_signal_ended(server: Any, folder: Path) -> None:
    result = record("--out=rec", server.url, "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert result.returncode == 128 + 9
    assert len(pages(folder / "rec")) == 2


def test_a_server_that_does_not_answer_is_said_before_the_load(server: Any, refused: str, folder: Path) -> None:
    result = record("--out=rec", server.url, refused, "--", sys.executable, "-c", "open('ran', 'w')")
    assert result.returncode == 2
    assert result.stderr == (
        f"llmroof record: connection refused at {refused}; is the server running, and is this its port?\n"
    )
    assert not (folder / "ran").exists()
    assert not (folder / "rec").exists()


@pytest.mark.parametrize(("command", "expected"), [
    ("no-such-load", "the command was not found: no-such-load"),
    ("./load.py", "the command can't be run: ./load.py: Permission denied"),
])  # fmt: skip
def test_a_command_that_cannot_be_run(server: Any, folder: Path, command: str, expected: str) -> None:
    result = record("--out=rec", server.url, "--", command)
    assert (result.returncode, result.stderr) == (2, f"llmroof record: {expected}\n")
    assert not (folder / "rec").exists()


def test_two_recordings_do_not_mix(server: Any, folder: Path) -> None:
    assert record("--out=rec", server.url, "--", "true").returncode == 0
    before = pages(folder / "rec")
    result = record("--out=rec", server.url, "--", "touch", "ran")
    assert result.returncode == 2
    assert result.stderr == (
        "llmroof record: rec already holds a recording: remove it, or name another folder, as two would mix\n"
    )
    assert pages(folder / "rec") == before
    assert not (folder / "ran").exists()


def test_what_the_load_writes_lands_beside_the_scrapes(server: Any, folder: Path) -> None:
    result = record("--out=rec", server.url, "--", "sh", "-c", "cat > rec/result.json")
    assert result.returncode == 0
    assert (folder / "rec/result.json").exists()


def test_failed_scrapes_are_noted_and_never_a_page(
    server: Any, folder: Path, respond_with: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer = lambda handler: respond_with(b"a 1\n", 503 if server.count() == 3 else 200)(handler)
    result = record("--out=rec", "--interval=20ms", server.url, *load(server, 5))
    assert result.returncode == 0
    assert result.stderr.splitlines()[-2] == f"llmroof record: 1 failed: {server.url} is not ready (503)"
    assert len(pages(folder / "rec")) == server.count() - 1
    (noted,) = manifest(folder / "rec")["failed_scrapes"]
    assert (noted["count"], noted["reason"]) == (1, f"{server.url} is not ready (503)")


def test_secrets_reach_no_file_no_name_and_no_message(
    server: Any, folder: Path, respond_with: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer = lambda handler: respond_with(b"a 1\n", 503 if server.count() == 3 else 200)(handler)
    monkeypatch.setenv("KEY", "hunter2")
    (folder / "token").write_text("b3arer")
    url = server.url.replace("http://", "http://me:s3cret@") + "?key=t0ken"
    result = record("--out=rec", "--interval=20ms", "--header=X-Key: ${KEY}", "--token-file=token", url,
                    *load(server, 5), "pa55word")  # fmt: skip
    assert result.returncode == 0
    sent = server.asked[0]
    assert (sent[0], sent[1]["X-Key"], sent[1]["Authorization"]) == ("/metrics?key=t0ken", "hunter2", "Bearer b3arer")
    everything = result.stdout + result.stderr
    everything += "".join(path.name + path.read_text() for path in (folder / "rec").iterdir())
    for secret in ("s3cret", "t0ken", "hunter2", "b3arer", "pa55word"):
        assert secret not in everything


def test_durations_stand_for_a_command(server: Any, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--out=rec", "--duration=50ms", "--interval=10s", server.url]) == 0
    assert len(pages(folder / "rec")) == 2
    about = manifest(folder / "rec")
    assert (about["ended"], about["command"], about["exit_code"]) == ("duration", None, 0)
    assert capfd.readouterr().err.splitlines()[0] == "llmroof record: 2 scrapes of 1 endpoint in rec"


def test_a_warm_up_is_left_out(server: Any, folder: Path) -> None:
    result = record("--out=rec", "--interval=20ms", "--warmup=10ms", server.url, *load(server, 5))
    assert result.returncode == 0
    kept = pages(folder / "rec")
    assert len(kept) == server.count() - 1  # the first one only looked whether the server is there
    assert any('running{engine="0"} 24.0' in path.read_text() for path in kept)
    assert manifest(folder / "rec")["warmup_seconds"] == 0.01


def test_a_warm_up_before_a_duration(server: Any, folder: Path) -> None:
    assert main(["record", "--out=rec", "--warmup=10ms", "--duration=10ms", "--interval=1h", server.url]) == 0
    assert (len(pages(folder / "rec")), server.count()) == (2, 3)


def test_a_load_shorter_than_its_warm_up(server: Any, folder: Path) -> None:
    result = record("--out=rec", "--warmup=1h", server.url, "--", "sh", "-c", "exit 3")
    assert result.returncode == 3
    assert "the load ended within the warm-up of 3600 s: nothing was recorded" in result.stderr
    assert not (folder / "rec").exists()
    assert record("--out=rec", "--warmup=1h", server.url, "--", "true").returncode == 2


def test_a_server_that_dies_with_the_load(server: Any, folder: Path, respond_with: Callable[..., Any]) -> None:
    server.answer = lambda handler: respond_with(b"a 1\n", 200 if server.count() == 1 else 500)(handler)
    result = record("--out=rec", "--interval=1h", server.url, "--", "true")
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "llmroof record: 1 scrapes of 1 endpoint in rec, 1 failed",
        f"llmroof record: 1 failed: {server.url} failed (500)",
        "llmroof record: an endpoint has fewer than two scrapes: no window can be measured from it",
    ]


def test_a_full_disk_ends_the_recording_not_the_load(
    server: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    keep = recording_module.Recording.keep
    was_full = threading.Event()

    def full(self: recording_module.Recording, page: recording_module.Page) -> None:
        if any(path == "/load" for path, _ in server.asked):
            was_full.set()
            raise OSError(28, "No space left on device")
        keep(self, page)

    def until_full(handler: BaseHTTPRequestHandler) -> None:
        assert was_full.wait(timeout=120)
        respond(handler, b"done")

    server.answers["/load"] = until_full  # no count of scrapes: none comes after the one that could not be kept
    monkeypatch.setattr(recording_module.Recording, "keep", full)
    command = [sys.executable, "load.py", f"http://127.0.0.1:{server.port}/load", "0"]
    assert main(["record", "--out=rec", "--interval=20ms", server.url, "--", *command]) == 2
    out, err = capfd.readouterr()
    assert out == "load begins\n"
    assert "load went well" in err
    assert "rec can't be written (No space left on device): the recording is not complete" in err
    assert manifest(folder / "rec")["exit_code"] == 0
    assert pages(folder / "rec")


@pytest.mark.parametrize(("arguments", "expected"), [
    ([], "the following arguments are required: VERB"),
    (["init-"], "invalid choice: 'init-'"),
    (["record"], "the following arguments are required: URL, --out"),
    (["record", "--out=rec", "http://h/metrics"], "nothing to record: give a command after --, or --duration=60s"),
    (["record", "--out=rec", "--duration=1s", "http://h/metrics", "--", "true"], "--duration stands for a command"),
    (["record", "--out=rec", "--interval=0s", "http://h/metrics"], "argument --interval: a time must be more than "),
    (["record", "--out=rec", "--warmup=-1s", "http://h/metrics"], "argument --warmup: a time can't be negative"),
    (["record", "--out=rec", "--duration=5GB", "http://h/metrics"], "argument --duration: expected a duration (50ms"),
    (["record", "--out=rec", "--header=X: ${UNSET_KEY}", "http://h/metrics"], "the environment variable UNSET_KEY of "
                                                                              "header X is not set"),
    (["record", "--out=rec", "--header=s3cret", "http://h/metrics"], "a header is written 'Name: value'"),
    (["record", "--out=rec", "localhost:1/metrics", "--", "true"], "write http://localhost:1/metrics"),
])  # fmt: skip
def test_mistakes_on_the_command_line(
    arguments: list[str], expected: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(arguments)
    except SystemExit as error:
        code = error.code
    assert code == 2
    err = capfd.readouterr().err
    assert expected in err
    assert "s3cret" not in err
    assert not (folder / "rec").exists()


def test_help_names_the_verbs_there_are(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    listed = capfd.readouterr().out
    assert all(verb in listed for verb in VERBS)


_started: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Also where a test fails, the recorder that it started ends with it, and so does the load."""
    yield
    while _started:
        process = _started.pop()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def started(folder: Path, server: Any, *, terminal: str | None = None) -> subprocess.Popen[bytes]:
    """The recorder round the stubborn load, in a session of its own; with that terminal where one is given."""
    url = f"http://127.0.0.1:{server.port}/until"
    command = [sys.executable, "-m", "pytest_llmroof", "record", "--out=rec", "--interval=20ms", server.url,
               "--", sys.executable, "stubborn.py", url]  # fmt: skip
    if terminal is not None:
        # The first terminal that the leader of a session opens becomes its controlling one.
        take = "import os, sys; os.open(sys.argv[1], os.O_RDWR); os.execv(sys.argv[2], sys.argv[2:])"
        command = [sys.executable, "-c", take, terminal, *command]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL, cwd=folder)
    _started.append(process)
    return process


def wait_until_ready(server: Any, path: str) -> None:
    with server.changed:
        assert server.changed.wait_for(lambda: any(path in asked for asked, _ in server.asked), timeout=120)


@pytest.fixture
def stubborn(server: Any, respond_with: Callable[..., Any]) -> Any:
    """The server of the stubborn load: /until/more is answered once three more scrapes came."""

    def answer(handler: Any) -> None:
        if handler.path == "/until/more":
            server.wait_for(server.count() + 3)
        respond_with(b"a 1\n")(handler)

    server.answer = answer
    return server


def test_signals_are_passed_on_and_the_recording_is_kept(stubborn: Any, folder: Path) -> None:
    process = started(folder, stubborn)
    wait_until_ready(stubborn, "/until/ready")
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 41  # one interrupt came, and the load chose its own code
    about = manifest(folder / "rec")
    assert (about["ended"], about["exit_code"]) == ("signal", 41)
    assert about["endpoints"][0]["pages"] == len(pages(folder / "rec")) >= 5


def test_ctrl_c_at_a_terminal_reaches_the_load_once(stubborn: Any, folder: Path) -> None:
    master, slave = os.openpty()
    try:
        process = started(folder, stubborn, terminal=os.ttyname(slave))
        wait_until_ready(stubborn, "/until/ready")
        os.write(master, b"\x03")
        assert process.wait(300) == 41
    finally:
        os.close(master)
        os.close(slave)
    assert manifest(folder / "rec")["ended"] == "signal"


def test_a_duration_ends_early_with_a_signal(server: Any, folder: Path) -> None:
    command = [sys.executable, "-m", "pytest_llmroof", "record", "--out=rec", "--interval=20ms", "--duration=1h"]
    process = subprocess.Popen([*command, server.url], start_new_session=True, stderr=subprocess.PIPE)
    server.wait_for(3)
    process.terminate()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM
    assert b"scrapes of 1 endpoint in rec" in err
    assert manifest(folder / "rec")["ended"] == "signal"


def test_an_interrupt_before_the_load_begins(
    server: Any, folder: Path, respond_with: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupt(handler: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        respond_with(b"a 1\n")(handler)

    server.answer = interrupt
    assert main(["record", "--out=rec", server.url, "--", "touch", "ran"]) == 128 + signal.SIGTERM
    assert capfd.readouterr().err == "llmroof record: interrupted before the load began: nothing was recorded\n"
    assert not (folder / "rec").exists()
    assert not (folder / "ran").exists()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL  # as it was before


def test_a_signal_that_comes_while_the_load_is_being_started() -> None:
    signals = recorder._Signals()
    signals._handle(signal.SIGTERM, None)
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        signals.forward_to(process)
        assert process.wait(300) == -signal.SIGTERM
    assert signals.code == 128 + signal.SIGTERM


def test_nothing_but_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with recorder._Signals():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # nohup
            assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("warmup", ["0s", "10ms"])
def test_a_disk_that_is_full_from_the_start(
    warmup: str, server: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(self: recording_module.Recording, page: recording_module.Page) -> None:
        (folder / "go").touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recording_module.Recording, "keep", full)
    command = ["sh", "-c", "until [ -e go ]; do sleep 0.01; done; touch ran"]
    assert main(["record", "--out=rec", f"--warmup={warmup}", server.url, "--", *command]) == 2
    assert "rec can't be written" in capfd.readouterr().err
    # Before the load it is not begun; in it, it runs to its end.
    assert (folder / "ran").exists() == (warmup != "0s")
