"""The demonstration, whole: over one node and two, on shared memory and TCP."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[1] / "demo.py"


def demo(*arguments):
    return subprocess.run([sys.executable, str(DEMO), "--epochs", "2", *arguments], capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize("nodes, van, cache", [(1, "auto", 1), (2, "shm", 1), (2, "tcp", 4)])
def test_three_methods_give_the_bits_of_one_process(nodes, van, cache):
    done = demo("--nodes", str(nodes), "--van", van, "--cache", str(cache), "--particles", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    over = "" if nodes == 1 else f" over {van}"
    for method in ("ensemble", "swag", "svgd"):
        line = rf"^{method}: 5 particles, {nodes} x 2 devices{over}: (\d+\.\d)% of the digits, the bits of one process$"
        (share,) = re.findall(line, done.stdout, re.MULTILINE)
        assert float(share) > 60, done.stdout


def test_other_bits_are_found():
    done = demo("--nodes", "1", "--particles", "2", "--spoil")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"^swag: .*OTHER BITS$", done.stdout, re.MULTILINE) and "FAILED" in done.stdout
    assert re.search(r"^ensemble: .*the bits of one process$", done.stdout, re.MULTILINE)
