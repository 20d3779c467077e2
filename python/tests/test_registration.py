"""What calls that are refused keep of the program's tensors: nothing."""

import gc
import sys
import threading

import numpy as np
import pytest

import stepvan
from stepvan import _core


def references(*arrays):
    """How often each is referred to."""
    gc.collect()
    _core.collect()
    return [sys.getrefcount(array) for array in arrays]


def unaligned():
    return np.zeros(65, np.uint8)[1:].view(np.float64)


def refusals_of_buffers(c):
    """(name, buffer, ranks, keys, error)"""
    floats = np.zeros(8, np.float32)
    taken = np.zeros(8, np.float32)
    server = c.servers[0]
    server.server.register_recv_buffer(taken, [0], [1])
    handle = c.workers[0].worker.push_pull([np.ones(8, np.float32)], [1], [], [])
    request = server.server.get_batch(timeout=10)[0]
    yield "a stranger", floats, [9], [5], stepvan.InvalidError
    yield "a rank that cannot be", floats, [2**40], [5], stepvan.InvalidError
    yield "does not divide", floats, [0, 0, 0], [5, 6, 7], stepvan.InvalidError
    yield "lists of other lengths", floats, [0], [5, 6], stepvan.InvalidError
    yield "no chunks", floats, [], [], stepvan.InvalidError
    yield "no bytes", np.zeros(0, np.float32), [0], [5], stepvan.InvalidError
    yield "unaligned", unaligned(), [0], [5], stepvan.InvalidError
    yield "overlaps", taken, [0], [6], stepvan.InvalidError
    yield "overlaps in part", taken[2:6], [0], [6], stepvan.InvalidError
    yield "replaces what is busy", floats, [0], [1], stepvan.BusyError
    yield "read-only", np.frombuffer(bytes(32), np.float32), [0], [5], stepvan.InvalidError
    request.respond([])
    handle.wait(10)


def test_buffers_that_are_refused_are_not_kept(cluster):
    c = cluster()
    for name, buffer, ranks, keys, error in refusals_of_buffers(c):
        before = references(buffer)
        for _ in range(3):
            with pytest.raises(error):
                c.servers[0].server.register_recv_buffer(buffer, ranks, keys)
            assert references(buffer) == before, name


@pytest.mark.parametrize("how", ["stop", "close"])
def test_nodes_that_have_ended_keep_nothing(cluster, how):
    c = cluster()
    worker, server = c.workers[0].worker, c.servers[0].server
    x, y, buffer = np.zeros(4), np.zeros(4), np.zeros(4)
    before = references(x, y, buffer)
    c.stop() if how == "stop" else c.close()
    for _ in range(3):
        with pytest.raises(stepvan.ClosedError):
            worker.push_pull([x], [1], [y], [2])
        for side in worker, server:
            with pytest.raises(stepvan.ClosedError):
                side.register(x)
        with pytest.raises(stepvan.ClosedError):
            server.register_recv_buffer(buffer, [0], [1])
        with pytest.raises((stepvan.ClosedError, stepvan.StaleError)):
            server.respond([x], 1)
        with pytest.raises((stepvan.ClosedError, stepvan.StaleError)):
            server.respond_vec(x, [4], [1])
    assert references(x, y, buffer) == before


def test_exchanges_that_are_refused_keep_nothing(cluster):
    c = cluster(STEPVAN_OUTSTANDING="1")
    worker, server = c.workers[0].worker, c.servers[0].server
    x, y, odd = np.zeros(4), np.zeros(4), unaligned()
    before = references(x, y, odd)
    with pytest.raises(stepvan.InvalidError):
        worker.push_pull([odd], [1], [], [])
    with pytest.raises(stepvan.InvalidError):
        worker.push_pull([x], [1], [y], [2], routing="named", push_to=7)
    handle = worker.push_pull([np.zeros(1)], [1], [np.zeros(4)], [2])
    for key, error in [(1, (stepvan.BusyError, stepvan.WouldBlockError)), (3, stepvan.WouldBlockError)]:
        with pytest.raises(error):
            worker.push_pull([x], [key], [y], [4])
    request = server.get_batch(timeout=10)[0]
    for wrong in [[x, y], [np.zeros(4, np.int8)]]:
        with pytest.raises(stepvan.InvalidError):
            request.respond(wrong)
    with pytest.raises(stepvan.InvalidError):
        server.respond_vec(x, [9], [request])
    del wrong
    request.respond([y]).wait(10)
    handle.wait(10)
    assert references(x, y, odd) == before


def test_what_was_taken_is_given_back_once(cluster):
    c = cluster()
    worker, server = c.workers[0].worker, c.servers[0].server
    x, y, buffer = np.zeros(4), np.zeros(4), np.zeros(4)
    before = references(x, y, buffer)
    for _ in range(5):
        with worker.register(x), server.register(x), server.register_recv_buffer(buffer, [0], [1]):
            assert references(buffer) != before[2:]
            handle = worker.push_pull([x], [1], [y], [2])
            request = server.get_batch(timeout=10)[0]
            request.respond([request.tensors[0]]).wait(10)
            handle.wait(10)
            del request
    assert references(x, y, buffer) == before


def test_threads_that_wait_for_one_that_is_refused(cluster):
    """Registrations that are refused while their beginner and others wait for them: each is given back once."""
    c = cluster()
    number = c.servers[0].number
    buffer = np.zeros(4)
    before = references(buffer)
    errors = []

    def register():
        for _ in range(50):
            try:
                begun = _core.register_recv_buffer(number, buffer, [9], [1])
                _core.registration_wait(begun[0], 30)  # it was not refused at once
            except stepvan.InvalidError as error:
                errors.append(str(error))

    threads = [threading.Thread(target=register) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert len(errors) == 200
    assert references(buffer) == before


def test_unregister_again_has_no_effect(cluster):
    c = cluster()
    for registration in (
        c.workers[0].worker.register(np.zeros(8)),
        c.servers[0].server.register(np.zeros(8)),
        c.servers[0].server.register_recv_buffer(np.zeros(8), [0], [5]),
    ):
        with registration:
            registration.unregister()
            registration.unregister(1)
        registration.unregister(0)


@pytest.mark.parametrize("side", ["worker", "server"])
def test_ending_one_registration_of_a_tensor_twice_leaves_the_other(cluster, side):
    c = cluster()
    at = c.workers[0].worker if side == "worker" else c.servers[0].server
    tensor = np.zeros(8)
    first, second = at.register(tensor), at.register(tensor)
    first.unregister()
    first.unregister()
    assert int(first) != int(second)
    stepvan._core.unregister(int(second), 0)  # StaleError if it had been ended
    with pytest.raises(stepvan.StaleError):
        stepvan._core.unregister(int(second), 0)
