"""The demonstration, whole."""

import re
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[1] / "demo.py"


def demo(*arguments):
    return subprocess.run([sys.executable, str(DEMO), *arguments], capture_output=True, text=True, timeout=200)


def test_versions_arrive():
    done = demo("--steps", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        served = re.findall(rf"^serve {rank}: version (\d+), the trainers' bytes$", done.stdout, re.MULTILINE)
        assert served == ["1", "2", "3"], done.stdout


def test_other_bytes_are_found():
    done = demo("--steps", "2", "--spoil", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    for rank in range(2):
        assert f"serve {rank}: version 1, the trainers' bytes\n" in done.stdout
        assert f"serve {rank}: version 2 DIFFERS in norm\n" in done.stdout
