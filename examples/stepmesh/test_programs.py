"""Runs every program across processes, over shared memory and over TCP; the programs check the values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import run

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "python" / "tests"))

import preloaded  # noqa: E402

RUNS = [
    ("several_tensors", 1, 1, 1),
    ("several_tensors", 2, 2, 1),
    ("stages_in_flight", 1, 1, 1),
    ("stages_in_flight", 2, 1, 1),
    ("expert_gather", 2, 1, 1),
    ("expert_gather", 2, 2, 1),
    ("notify", 2, 1, 1),
    ("barriers", 1, 1, 2),
    ("barriers", 2, 1, 1),
]


ALONE = RUNS[:1]
"""Those whose processes start as a user's: in an interpreter of their own, which imports torch."""


@pytest.fixture(scope="module")
def with_torch():
    pytest.importorskip("torch")
    parent = preloaded.Parent(OMP_NUM_THREADS="1")
    yield parent
    parent.close()


@pytest.mark.parametrize("van", ["shm", "tcp"])
@pytest.mark.parametrize(("program", "workers", "servers", "group_size"), RUNS)
def test_program(program, workers, servers, group_size, van, tmp_path, monkeypatch, capfd, with_torch):
    pytest.importorskip("fserver_lib", reason="stepvan is not installed: pip install ./python")
    monkeypatch.setenv("STEPVAN_VAN", van)
    if (program, workers, servers, group_size) not in ALONE:

        def start(command, env, stdout, stderr, text):
            assert (command[0], stdout, stderr, text) == (sys.executable, subprocess.PIPE, subprocess.STDOUT, True)
            return with_torch.start(preloaded.running(command[1]), env, command[2:], merged=True)

        monkeypatch.setattr(run.subprocess, "Popen", start)
    code = run.run([str(HERE / f"{program}.py"), str(tmp_path)], workers, servers, group_size)
    printed = capfd.readouterr().out
    assert code == 0, printed
    finished = [line for line in printed.splitlines() if line.startswith(("[worker ", "[server "))]
    assert len(finished) >= (workers + servers) * group_size, printed


def test_the_first_failure_ends_the_run(tmp_path, capfd):
    program = tmp_path / "fails.py"
    program.write_text("import os, sys, time\nif os.environ['DMLC_ROLE'] == 'worker': sys.exit(7)\ntime.sleep(60)\n")
    assert run.run([str(program)], workers=1) == 7
    assert "worker 0.0 failed with 7" in capfd.readouterr().out


def test_a_run_has_a_limit(tmp_path, capfd):
    program = tmp_path / "sleeps.py"
    program.write_text("import time\ntime.sleep(60)\n")
    assert run.run([str(program)], workers=1, timeout=0.1) == 124
    assert "still running: scheduler" in capfd.readouterr().out
