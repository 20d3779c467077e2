"""Exchanges between two processes, after which there is no more of anything than before: a million with make soak."""

import contextlib
import ctypes
import gc
import json
import os
import statistics
import sys
import threading
from pathlib import Path

import pytest

import stepvan
from stepvan import _core

EXCHANGES = int(os.environ.get("STEPVAN_TEST_EXCHANGES", "20000"))
WARM = 30000  # exchanges before anything is counted: tables and pools have their size by then
SAMPLES = 20
PATIENCE = 60 + EXCHANGES / 1000  # seconds

pytestmark = pytest.mark.serial


class Census:
    """Prints how much this process has of everything, again and again."""

    def __init__(self, *watched):
        self.watched = (*watched, None, True, stepvan.Request, type(watched[0]))

    def take(self):
        gc.collect()
        _core.collect()
        sample = {
            "objects": len(gc.get_objects()),
            "blocks": sys.getallocatedblocks(),
            "references": [sys.getrefcount(x) for x in self.watched],
            "all references": getattr(sys, "gettotalrefcount", int)(),
            "files": len(os.listdir("/proc/self/fd")),
            "threads": len(os.listdir("/proc/self/task")),
            "KiB": resident(),
        }
        print(json.dumps(sample), flush=True)


def resident():
    """Memory of this process that is not shared with others."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0])


def grown(samples, exchanges):
    """What has grown between the first third of the samples and the last, which are of so many exchanges."""
    first, last = samples[: len(samples) // 3], samples[-len(samples) // 3 :]

    def growth(name):
        return statistics.median(s[name] for s in last) - statistics.median(s[name] for s in first)

    found = {name: growth(name) for name in ("objects", "blocks", "all references", "files", "threads", "KiB")}
    found["references"] = max(
        statistics.median(b) - statistics.median(a)
        for a, b in zip(zip(*(s["references"] for s in first)), zip(*(s["references"] for s in last)), strict=True)
    )
    # Go's threads come and go, and its heap varies in size. Anything else is a leak that is much rarer than one
    # per exchange.
    allowed = {"objects": 20, "blocks": 100, "all references": 300, "references": 5, "files": 0, "threads": 3}
    allowed["KiB"] = max(768, exchanges / 125)
    return {name: value for name, value in found.items() if value > allowed[name]}


def tensors(framework):
    """What makes tensors of float32."""
    if framework == "torch":
        import torch

        return lambda n: torch.full((n,), 1.0)
    import numpy as np

    return lambda n: np.ones(n, np.float32)


SIZES = {5: 2, 6: 64, 7: 4096, 8: 65536}
"""By key: to a registered buffer; copied; shown where it was received; left at the worker and answered there."""


def leak(kind, i, kept, x):
    """What an exchange must not leave."""
    if kind == "object":
        kept.append([])
    elif kind == "block":
        kept.append(len(kept) * 1_000_003)
    elif kind == "reference":
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(x))
    elif kind == "file" and i % 50 == 0:
        kept.append(os.dup(0))
    elif kind == "thread" and i % 50 == 0:
        kept.append(threading.Thread(target=threading.Event().wait, daemon=True))
        kept[-1].start()
    elif kind == "memory":
        ctypes.memset(malloc(256), 1, 256)


def malloc(size):
    function = ctypes.CDLL(None).malloc
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    return function(size)


def work(framework, exchanges, leaking=""):
    """The worker."""
    make = tensors(framework)
    with stepvan.Node() as node:
        worker, kept = node.worker, []
        pushes = {key: node.empty(n, type_of(make)) if key == 8 else make(n) for key, n in SIZES.items()}
        pulls = {key: node.empty(n, type_of(make)) if key == 8 else make(n) for key, n in SIZES.items()}
        pushes[8][:] = 1
        census = Census(*pushes.values(), *pulls.values())
        for i in range(-WARM, exchanges):
            if i >= 0 and i % (exchanges // SAMPLES) == 0:
                census.take()
            key = 5 + i % 4
            handle = worker.push_pull([pushes[key]], [key], [pulls[key]], [key + 10], label="exchange")
            if i % 100 == 0:
                with pytest.raises(stepvan.InvalidError):
                    worker.push_pull([pushes[key]], [key, key], [], [])
                with contextlib.suppress(stepvan.TimeoutError):
                    handle.wait(0)
            handle.wait(30)
            if i % 10 == 0:
                assert handle.done() and len(handle.traces()) == 1
            if i >= 0:
                for kind in leaking.split():
                    leak(kind, i, kept, pushes[5])
        census.take()


def type_of(make):
    return make(1).dtype


def next_batch(server, impatient):
    """A batch; an impatient caller mostly meets a TimeoutError first."""
    if impatient:
        with contextlib.suppress(stepvan.TimeoutError):
            return server.get_batch(timeout=0)
    return server.get_batch(timeout=30)


def serve(framework, exchanges):
    """The server."""
    make = tensors(framework)
    with stepvan.Node() as node:
        server = node.server
        buffer, answers = make(SIZES[5]), {key: make(n) for key, n in SIZES.items()}
        server.register_recv_buffer(buffer, [0], [5])
        census = Census(buffer, *answers.values())
        for i in range(-WARM, exchanges):
            if i >= 0 and i % (exchanges // SAMPLES) == 0:
                census.take()
            [request] = next_batch(server, impatient=i % 100 == 0)
            [key] = request.keys
            if key == 8:
                assert request.input(0)[-1] == 1 and request.pulls[0].nbytes == 4 * SIZES[8]
                request.out(0)[:4] = request.tensors[0][:4]
                response = request.respond()
            elif key == 6:
                response = server.respond_vec(answers[key], [request.tensors], [request])
            else:
                response = request.respond([answers[key] if i % 8 < 4 else request.tensors[0]])
            if i % 10 == 0:
                response.wait(30)
        census.take()


def exchange(run, scheduler, framework, exchanges, leaking=""):
    """What has grown at the worker, and at the server."""
    # What is kept of finished exchanges is full soon, and Go's heap is collected from 400 KiB on, not from 4 MiB.
    small = {"STEPVAN_HANDLES": "256", "STEPVAN_TRACE_EVENTS": "256", "STEPVAN_STOP_TIMEOUT": f"{PATIENCE}s", "GOGC": "10"}
    settings = {**scheduler(**small), "PYTHONPATH": str(Path(__file__).parent)}
    code = "import test_steady as t; "
    worker = run(code + f"t.work({framework!r}, {exchanges}, {leaking!r})", {**settings, "DMLC_ROLE": "worker"})
    server = run(code + f"t.serve({framework!r}, {exchanges})", {**settings, "DMLC_ROLE": "server"})
    output = [program.result(None, PATIENCE) for program in (worker, server)]
    assert [p.process.returncode for p in (worker, server)] == [0, 0], worker.error + server.error
    reports = [[json.loads(line) for line in text.splitlines()] for text in output]
    return [grown(samples, exchanges) for samples in reports]


@pytest.mark.timeout(PATIENCE + 10)
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_exchanges_leave_nothing(run, scheduler, framework):
    assert exchange(run, scheduler, framework, EXCHANGES) == [{}, {}]


FOUND_AS = {"object": "objects", "block": "blocks", "reference": "references", "file": "files", "thread": "threads", "memory": "KiB"}


@pytest.mark.parametrize("leaking", ["reference object", "block memory", "thread file"])
def test_what_is_left_is_found(run, scheduler, leaking):
    """Each kind of leak. Those of one run are not found as each other."""
    at_worker, at_server = exchange(run, scheduler, "numpy", 8000, leaking)
    assert {FOUND_AS[kind] for kind in leaking.split()} <= set(at_worker) and not at_server
