"""Waits: limits, interrupts, threads."""

import signal
import threading
import time

import pytest
import torch

import stepvan


def test_timeouts(cluster):
    c = cluster()
    y = torch.zeros(1)
    handle = c.workers[0].worker.push_pull([torch.zeros(1)], [1], [y], [2])
    for limit in [0, 0.01, 0.12]:
        started = time.monotonic()
        with pytest.raises(stepvan.TimeoutError) as info:
            handle.wait(limit)
        assert time.monotonic() - started >= limit * 0.99
        assert isinstance(info.value, TimeoutError) and isinstance(info.value, stepvan.Error)
    for wrong in [-1, float("nan")]:
        with pytest.raises(stepvan.InvalidError):
            handle.wait(wrong)
    with pytest.raises(stepvan.InvalidError, match="timeout is 'soon'"):
        handle.wait("soon")
    with pytest.raises(stepvan.TimeoutError):
        c.workers[0].barrier(timeout=0.01)
    c.servers[0].server.get_batch(timeout=10)[0].respond([y])
    handle.wait(10)
    with pytest.raises(stepvan.TimeoutError, match="get_batch timed out"):
        c.servers[0].server.get_batch(timeout=0.06)
    with pytest.raises(stepvan.TimeoutError):
        c.workers[0].stop(timeout=0)


def test_a_start_that_times_out_is_given_up(scheduler):
    settings = scheduler()
    with pytest.raises(stepvan.TimeoutError):
        stepvan.Node({**settings, "DMLC_ROLE": "worker"}, timeout=0.2)
    threads = [threading.Thread(target=lambda r=r: stepvan.Node({**settings, "DMLC_ROLE": r}).stop()) for r in ("worker", "server")]
    for t in threads:
        t.start()
    for t in threads:
        t.join(20)


def test_the_lock_is_released_while_waiting(cluster):
    c = cluster()
    handle = c.workers[0].worker.push_pull([torch.zeros(1)], [1], [torch.zeros(1)], [2])
    thread = threading.Thread(target=handle.wait)
    thread.start()
    c.servers[0].server.get_batch(timeout=10)[0].respond([torch.zeros(1)])
    thread.join(10)
    assert not thread.is_alive()


def test_threads(cluster):
    c = cluster()
    c.serve(lambda request: [request.tensors[0] + 1])
    errors = []

    def work(thread):
        try:
            for i in range(100):
                x, y = torch.full((20,), float(i)), torch.zeros(20)
                c.workers[0].worker.push_pull([x], [thread], [y], [100 + thread]).wait(10)
                assert y.eq(i + 1).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert not errors


def test_close_ends_waits(cluster):
    c = cluster()
    failed = []

    def wait():
        try:
            c.servers[0].server.get_batch()
        except (stepvan.ClosedError, stepvan.StaleError) as error:  # stale: closed before it was called
            failed.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    c.servers[0].close()
    thread.join(10)
    assert not thread.is_alive() and failed
    c.close()


INTERRUPTED = """
import os, signal, sys, time
import stepvan, torch

what = sys.argv[1]
if what == "init":
    print("ready", flush=True)
    call = stepvan.init
else:
    stepvan.init()
    call = {
        "wait": lambda: stepvan.wait(stepvan.push_pull([torch.zeros(1)], [1], [torch.zeros(1)], [2]), None),
        "get_batch": stepvan.get_batch,
        "barrier": lambda: stepvan.barrier(True, True),
        "stop": stepvan.stop,
    }[what]
    print("ready", flush=True)
try:
    call()
    print("returned")
except KeyboardInterrupt:
    print("interrupted", time.monotonic_ns(), flush=True)
    os._exit(0)
"""


def test_the_scheduler_in_a_barrier(cluster):
    c = cluster()
    for node in c.nodes[1:]:  # whoever it is, the scheduler is missing
        with pytest.raises(stepvan.TimeoutError):
            node.barrier(timeout=0.01, scheduler=True)
    list(c.pool.map(lambda node: node.barrier(timeout=10, scheduler=True), c.nodes))


@pytest.mark.parametrize("what", ["wait", "get_batch", "barrier", "stop", "init"])
def test_interrupts(run, scheduler, what):
    settings = scheduler(STEPVAN_START_TIMEOUT="10s" if what == "init" else "30s")
    role, other = ("server", "worker") if what == "get_batch" else ("worker", "server")
    program = run(INTERRUPTED, {**settings, "DMLC_ROLE": role}, what)
    peer = stepvan.Node({**settings, "DMLC_ROLE": other}) if what != "init" else None
    assert program.line() == "ready"
    time.sleep(0.3)  # so that it is in the call: too early is as well, but tests less
    sent = time.monotonic_ns()
    program.process.send_signal(signal.SIGINT)
    word, at = program.line().split()
    assert word == "interrupted" and int(at) - sent < 2e9
    program.result()
    if peer is not None:
        peer.close()


def test_python_handlers_run_while_waiting(run, scheduler):
    program = run(
        """
        import signal, stepvan, torch
        stepvan.init()
        handler = stepvan.push_pull([torch.zeros(1)], [1], [torch.zeros(1)], [2])
        signal.signal(signal.SIGALRM, lambda *_: print("ticked", flush=True))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            stepvan.wait(handler, 1000)
        except stepvan.TimeoutError:
            print("went on")
        (request, _, _), = stepvan.get_batch()
        stepvan.respond([torch.zeros(1)], request)
        stepvan.wait(handler)
        stepvan.stop()
        """,
        {**scheduler(), "DMLC_ROLE": "joint"},
    )
    assert program.result().split() == ["ticked", "went", "on"]
