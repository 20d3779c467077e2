"""The programs of docs/python.md, docs/peers.md, docs/tensor-bus.md and docs/particles.md."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import free_port

import stepvan

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "python.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
WHOLE = [block for block in BLOCKS if "stepvan.Node()" in block or "stepvan.init()" in block]
PARTS = [block for block in BLOCKS if block not in WHOLE]


@pytest.mark.parametrize("program", WHOLE, ids=map(str, range(len(WHOLE))))
def test_whole_programs(program, tmp_path):
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-m", "stepvan", "launch", "-n", "2w1s", "--timeout", "50s", "--", sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("part", PARTS, ids=map(str, range(len(PARTS))))
def test_parts_of_a_worker(part, cluster):
    c = cluster()
    c.serve(lambda request: [request.tensors[0] * 2])
    exec(part, {"node": c.workers[0], "stepvan": stepvan, "torch": torch})


PEERS = (REPOSITORY / "docs" / "peers.md").read_text()
REFIT, *PEERS_PARTS = re.findall(r"^```python\n(.*?)^```", PEERS, re.MULTILINE | re.DOTALL)


def test_a_refit_between_two_jobs(tmp_path):
    (tmp_path / "refit.py").write_text(REFIT)
    assert len(REFIT.splitlines()) <= 25
    address = f"127.0.0.1:{free_port()}"
    started = [
        subprocess.Popen([sys.executable, "refit.py", side, address], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for side in ("train", "serve")
    ]
    (sent, errors), (served, others) = (program.communicate(timeout=100) for program in started)
    assert [line.split()[0] for line in sent.splitlines()] == ["1", "2", "3"], errors
    assert sent == served, others


def test_the_tensor_bus_between_two_jobs(tmp_path):
    page = (REPOSITORY / "docs" / "tensor-bus.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"print:\n\n```\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(program.splitlines()) <= 25
    (tmp_path / "refit.py").write_text(program)
    address = f"127.0.0.1:{free_port()}"
    started = [
        subprocess.Popen([sys.executable, "refit.py", side, address], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for side in ("train", "serve")
    ]
    for program in started:
        out, errors = program.communicate(timeout=100)
        assert (out, program.returncode) == (shown, 0), errors


@pytest.mark.parametrize("part", PEERS_PARTS, ids=map(str, range(len(PEERS_PARTS))))
def test_parts_of_peers(part, cluster):
    c = cluster(0, 0, 2)
    a, b = (node.peer for node in c.peers)
    exec(part, {"a": a, "b": b, "threads": c.pool, "stepvan": stepvan, "torch": torch})


def test_the_page_has_programs_of_both_kinds():
    assert len(WHOLE) >= 3 and len(PARTS) >= 3


def test_the_first_program_is_that_of_the_example():
    assert WHOLE[0] == (REPOSITORY / "examples" / "hello" / "hello.py").read_text()


def test_every_error_is_in_the_table():
    named = set(re.findall(r"`(\w+Error)`", PAGE.partition("## Errors")[2].partition("\n## ")[0]))
    errors = {name for name in stepvan.__all__ if isinstance(getattr(stepvan, name), type) and issubclass(getattr(stepvan, name), Exception)}
    assert named == errors - {"Error"}


def test_links_lead_somewhere():
    for page in (*(REPOSITORY / "docs" / name for name in ("python.md", "peers.md", "tensor-bus.md")), REPOSITORY / "README.md"):
        for link in re.findall(r"\]\(([\w./-]+)\)", page.read_text()):
            assert (page.parent / link).exists(), link


def test_particles(tmp_path):
    page = (REPOSITORY / "docs" / "particles.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^It prints `(.*)`\.$", page, re.MULTILINE)
    (tmp_path / "particles.py").write_text(program)
    done = subprocess.run([sys.executable, "particles.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == shown + "\n", done.stderr
