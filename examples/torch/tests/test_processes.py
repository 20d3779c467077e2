"""The connector and the split model across processes, with the real stepvan."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
from conftest import EXAMPLE

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("stepvan"), reason="stepvan is not installed: pip install ./python"
)


@pytest.mark.parametrize("van", ["shm", "tcp"])
@pytest.mark.parametrize("policy", ["lockstep", "any"])
@pytest.mark.parametrize("nodes", ["1w1s", "2w2s"])
def test_connector(nodes, policy, van):
    command = [sys.executable, "-m", "stepvan", "launch", "-n", nodes, "--van", van, "--timeout", "2m", "--"]
    command += [sys.executable, str(EXAMPLE / "tests" / "toy.py")]
    environment = {**os.environ, "STEPVAN_BATCH": policy, "STEPVAN_LOG_LEVEL": "warn"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout
    workers, servers = int(nodes[0]), int(nodes[2])
    assert printed.count("checked ") == workers
    assert printed.count("answered ") == servers


@pytest.mark.parametrize(("nodes", "van"), [("2w2s", "shm"), ("1w1s", "tcp"), ("3w2s", "auto")])
def test_split_model_equals_unsplit(files, nodes, van):
    command = [sys.executable, str(EXAMPLE / "demo.py"), "-n", nodes, "--van", van, "--sentences", "40"]
    command += ["--model", str(files.config.parent)]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "40 sentences embedded" in done.stdout
