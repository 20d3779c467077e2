"""The environment that builds and tests: scripts/venv.sh."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "venv.sh"


PYTHON = """#!/bin/bash
if [[ $1 == -m ]]; then # venv --clear --system-site-packages FOLDER
	rm -rf "$5"
	mkdir -p "$5/bin"
	printf '#!/bin/bash\\necho "$@" >"%s"\\n' "$5/installed" >"$5/bin/python"
	chmod +x "$5/bin/python"
else
	exec {} "$@"
fi
"""
"""A Python that makes environments in no time, whose pip only writes down what it is to install."""


def test_the_environment_is_made_again_when_what_lies_beside_it_changes(tmp_path):
    requirements, folder = tmp_path / "requirements.txt", tmp_path / "venv"
    requirements.write_text("")
    beside, python = tmp_path / "beside", tmp_path / "python"
    python.write_text(PYTHON.replace("{}", sys.executable))
    python.chmod(0o755)

    def make() -> bool:
        """Whether it was made again."""
        mark = folder / "mark"
        if folder.exists():
            mark.touch()
        command = [SCRIPT, python, folder, requirements]
        subprocess.run(command, check=True, timeout=60, env={**os.environ, "PYTHONPATH": str(beside)})
        assert (folder / "bin" / "python").exists()
        return not mark.exists()  # nor is it there at first

    def lies(name: str, version: str) -> None:
        info = beside / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    lies("torch", "9.9")
    assert make() and not make()
    assert "numpy" not in (folder / "installed").read_text()
    lies("numpy", "1.99")
    assert make() and not make()
    (beside / "torch-9.9.dist-info" / "METADATA").unlink()
    (beside / "torch-9.9.dist-info").rmdir()
    lies("torch", "1.13.1")  # which needs a numpy before 2
    assert make() and not make()
    assert "numpy<2" in (folder / "installed").read_text()
    requirements.write_text("# another\n")
    assert make() and not make()
