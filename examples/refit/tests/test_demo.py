"""The demonstration between processes: as a whole, interrupted, and with a process that dies."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[1] / "demo.py"
sys.path.insert(0, str(DEMO.parent))

import parallel  # noqa: E402, F401
from minilm import ModelUnavailable, fetch  # noqa: E402

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("stepvan"), reason="stepvan is not installed: pip install ./python"
)


class Demo:
    """A run of demo.py in a session of its own, whose processes all have the folder in their command lines."""

    def __init__(self, folder, *options):
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, str(DEMO), *options],
            env={**os.environ, "TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def until(self, what):
        """Reads lines until one has this in it."""
        for line in self.process.stdout:
            if what in line:
                return
        pytest.fail(f"the run ended without {what!r}: {self.process.stderr.read()}")

    def end(self):
        """Its exit code and all that it has printed since; nothing of it is left."""
        printed, errors = self.process.communicate(timeout=240)
        assert self.processes() == {}
        assert list(self.folder.glob("stepvan-refit-*")) == []
        assert "Traceback" not in errors
        return self.process.returncode, printed, errors

    def processes(self):
        """Their numbers, by rank among the peers; that of the launcher is under None."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if str(self.folder) in (entry / "cmdline").read_text():
                    settings = (entry / "environ").read_text().split("\0")
                    rank = [s.partition("=")[2] for s in settings if s.startswith("DMLC_NODE_RANK=")]
                    found[int(rank[0]) if rank else None] = int(entry.name)
        return found


@pytest.fixture
def demo(tmp_path):
    """Starts runs; none of their processes survives the test."""
    started = []

    def start(*options):
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Demo(folder, *options))
        return started[-1]

    yield start
    for run in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.process.pid, signal.SIGKILL)
        run.process.wait()
        for number in run.processes().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


def whole(printed, steps):
    """Asserts that a run has shown all that it is to show."""
    weights, bits, layouts = printed.splitlines()[-3:]
    assert weights.endswith(f"the trainers' after step {steps}, bit for bit.")
    assert bits.endswith(f"with {steps} versions, have the bits of one process in the same layout.")
    assert layouts.startswith("The trainers' layout gives the same embeddings")
    for version in range(1, steps + 1):
        assert f"trainer 0   | step {version}: loss " in printed
        for inference in range(3):
            assert f"inference {inference} | serves version {version}: " in printed


def test_small_model_over_tcp(demo):
    code, printed, errors = demo("--small", "--steps", "4", "--sentences", "30", "--van", "tcp").end()
    assert code == 0, printed + errors
    whole(printed, 4)
    losses = [float(x) for x in re.findall(r"loss ([0-9.]+)", printed)]
    assert losses[-1] < losses[0]


def test_published_model(demo):
    try:
        files = fetch(os.environ.get("STEPVAN_TEST_MODEL_DIR"))
    except ModelUnavailable as error:
        if os.environ.get("STEPVAN_TEST_REQUIRE_MODEL") == "1":
            pytest.fail(f"STEPVAN_TEST_REQUIRE_MODEL=1, but: {error}")
        pytest.skip(f"NOT TESTED WITH THE REAL MODEL (STEPVAN_TEST_REQUIRE_MODEL=1 makes this a failure): {error}")
    code, printed, errors = demo("--steps", "2", "--sentences", "12", "--model", str(files.config.parent)).end()
    assert code == 0, printed + errors
    whole(printed, 2)


def test_two_runs_at_once(demo):
    runs = [demo("--small", "--steps", "3", "--van", "shm") for _ in range(2)]
    for run in runs:
        code, printed, errors = run.end()
        assert code == 0, printed + errors
        whole(printed, 3)


@pytest.mark.parametrize("whom", ["all", "demo"])
def test_interrupted(demo, whom):
    run = demo("--small", "--steps", "1000000")
    run.until("serves version 3")
    assert set(run.processes()) == {None, 0, 1, 2, 3, 4}
    if whom == "all":  # as a terminal does
        os.killpg(run.process.pid, signal.SIGINT)
    else:
        run.process.send_signal(signal.SIGINT)
    code, _, errors = run.end()
    assert code == 130, errors
    assert "stopped by SIGINT" in errors


@pytest.mark.parametrize("rank", [1, 2])
def test_a_process_dies(demo, rank):
    run = demo("--small", "--steps", "1000000")
    run.until("serves version 3")
    os.kill(run.processes()[rank], signal.SIGKILL)
    code, printed, errors = run.end()
    assert code not in (0, None)
    assert f"peer {rank}" in errors
    assert "bit for bit" not in printed


@pytest.mark.parametrize(("option", "value"), [("--steps", "0"), ("--sentences", "3")])
def test_options_that_make_no_run(demo, option, value):
    code, printed, errors = demo("--small", option, value).end()
    assert (code, printed) == (2, "")
    assert f"{option} is {value}" in errors


def test_a_difference_is_a_failure(tmp_path, monkeypatch, capsys):
    """The exit code and the message, with a run that has written something else."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # which the program sets, too
    spec = importlib.util.spec_from_file_location("refit_demo", DEMO)
    module = importlib.util.module_from_spec(spec)
    handler = signal.getsignal(signal.SIGINT)
    spec.loader.exec_module(module)

    def check(*_):
        yield "The first thing is as it must be."
        raise module.Different("ffn.nets.1.up.bias: 1 of 70 elements differ")

    monkeypatch.setattr(module, "launch", lambda *_: 0)
    monkeypatch.setattr(module, "check", check)
    monkeypatch.setattr(sys, "argv", ["demo.py", "--small"])
    try:
        assert module.main() == 1
    finally:
        signal.signal(signal.SIGINT, handler)
    printed = capsys.readouterr()
    assert printed.out.endswith("The first thing is as it must be.\n")
    assert printed.err == "demo.py: ffn.nets.1.up.bias: 1 of 70 elements differ\n"
