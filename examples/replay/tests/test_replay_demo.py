"""The demonstration, whole."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[1] / "demo.py"


@pytest.mark.parametrize("van", ["shm", "tcp"])
def test_training_is_that_of_one_process(van):
    done = subprocess.run([sys.executable, str(DEMO), "--ticks", "200", "--van", van], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    stops = [float(x) for x in re.findall(r"the cart stops (\S+) from the middle", done.stdout)]
    assert len(stops) == 6 and stops[-1] < stops[0] / 2, done.stdout
    assert "the weights are bit for bit those of one process" in done.stdout
