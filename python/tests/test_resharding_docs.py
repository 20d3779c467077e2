"""The programs of docs/resharding.md."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "resharding.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=map(str, range(len(PROGRAMS))))
def test_programs(program, tmp_path):
    (tmp_path / "program.py").write_text(program)
    launch = ["-m", "stepvan", "launch", "-n", "3p", "--timeout", "50s", "--", sys.executable] if "stepvan.Node()" in program else []
    done = subprocess.run([sys.executable, *launch, "program.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_has_programs():
    assert len(PROGRAMS) == 3
