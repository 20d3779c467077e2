"""The nodes that ``stepvan bench`` measures."""

import json
import subprocess
import sys

import numpy as np
import pytest

from stepvan._bench.spec import answer_to


def bench(*arguments):
    command = [sys.executable, "-m", "stepvan", "bench", "--json", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=50)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workload", "echo", "--van", "shm,unix"],
        ["--workload", "echo", "--van", "tcp", "--inflight", "3", "--workers", "2"],
        ["--workload", "afd", "--van", "shm", "--push", "4KiB,8KiB", "--pull", "8KiB,2KiB"],
        ["--workload", "afd", "--van", "shm", "--in-place"],
        ["--workload", "fanout", "--van", "shm", "--servers", "2", "--pin", "1"],
        ["--workload", "weights", "--van", "shm", "--push", "1MiB"],
        ["--workload", "batch", "--van", "shm", "--workers", "2", "--inflight", "3"],
    ],
    ids=" ".join,
)
def test_workloads(arguments):
    """Answers are checked before anything is measured."""
    done = bench(*arguments, "--nodes", "go,numpy", "--count", "20", "--rounds", "3")
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        report = json.loads(line)
        assert report["p50_us"] > 0 and report["percentiles"]["count"] >= 20
        assert (report["limit"] == "go nodes") == ("nodes" in report)
    assert done.stdout.count('"nodes":"numpy"') == done.stdout.count("\n") / 2


def test_torch():
    done = bench("--workload", "echo", "--van", "shm", "--nodes", "torch", "--count", "20", "--rounds", "2")
    assert done.returncode == 0, done.stderr
    [report] = map(json.loads, done.stdout.splitlines())
    assert report["nodes"] == "torch" and report["ratio"] > 0 and report["over_go_us"] != 0


@pytest.mark.parametrize(("size", "want"), [(3, [3, 4, 5]), (7, [3, 4, 5, 3, 4, 5, 3]), (2, [2 + 4 + 1, 3 + 1]), (1, [2 + 3 + 4 + 1])])
def test_answers(size, want):
    """As in Go: the bytes again and again, or sums of them, each with the mark."""
    assert answer_to(np.array([2, 3, 4], np.uint8), size, 1).tolist() == want


def test_answers_wrap_around():
    assert answer_to(np.array([255, 255], np.uint8), 1, 3) == [1]
