"""Whose memory lives how long."""

import gc
import os
import sys
import weakref

import numpy as np
import pytest
import torch

import stepvan
from stepvan import _core


class Owner:
    """Memory whose end can be seen: torch tensors of it hold its array."""

    def __init__(self, shape, fill=0.0):
        self.array = np.full(shape, fill, np.float32)
        self.alive = weakref.ref(self.array)

    def tensor(self):
        array, self.array = self.array, None
        return torch.from_numpy(array)


def collected(alive):
    gc.collect()
    _core.collect()
    return alive() is None


def test_tensors_in_flight_are_kept(cluster):
    c = cluster()
    push, pull = Owner(1000, 7.0), Owner(1000)
    x, y = push.tensor(), pull.tensor()
    handle = c.workers[0].worker.push_pull([x], [1], [y], [2])
    del x, y
    gc.collect()
    assert push.alive() is not None and pull.alive() is not None
    request = c.servers[0].server.get_batch(timeout=10)[0]
    assert request.tensors[0].eq(7).all()
    response = request.respond([torch.full((1000,), 8.0)])
    handle.wait(10)
    assert pull.alive() is None or pull.alive()[0] == 8
    response.wait(10)
    del request
    for _ in range(100):
        if collected(push.alive) and collected(pull.alive):
            break
        c.workers[0].worker.push_pull([torch.zeros(1)], [9], [], []).wait(10)
        c.servers[0].server.get_batch(timeout=10)[0].respond([])
    assert collected(push.alive) and collected(pull.alive)


def test_storage_is_kept_when_the_tensor_gets_another(cluster):
    c = cluster()
    push = Owner(1000, 7.0)
    x, y = push.tensor(), torch.zeros(1000)
    handle = c.workers[0].worker.push_pull([x], [1], [y], [2])
    x.data = torch.zeros(1)
    gc.collect()
    assert push.alive() is not None
    request = c.servers[0].server.get_batch(timeout=10)[0]
    request.respond([request.tensors[0]])
    handle.wait(10)
    assert y.eq(7).all()


def test_a_refused_exchange_keeps_nothing(cluster):
    worker = cluster().workers[0].worker
    push = Owner(10)
    with pytest.raises(stepvan.InvalidError):
        worker.push_pull([push.tensor()], [1], [torch.zeros(4, 4).t()], [2])
    with pytest.raises(stepvan.InvalidError):
        worker.push_pull([torch.zeros(1), torch.zeros(1)], [1, 1], [], [])
    assert collected(push.alive)


def test_answers_are_kept(cluster):
    c = cluster()
    y = torch.zeros(100_000)
    handle = c.workers[0].worker.push_pull([torch.zeros(1)], [1], [y], [2])
    answer = Owner(100_000, 3.0)
    response = c.servers[0].server.get_batch(timeout=10)[0].respond([answer.tensor()])
    gc.collect()
    handle.wait(10)
    assert y.eq(3).all()
    response.wait(10)
    assert collected(answer.alive)


def test_registered_memory_is_kept(cluster):
    c = cluster()
    server, worker = c.servers[0].server, c.workers[0].worker
    buffer = Owner(64)
    registration = server.register_recv_buffer(buffer.tensor(), [0], [5])
    gc.collect()
    assert buffer.alive() is not None
    handle = worker.push_pull([torch.full((64,), 3.0)], [5], [], [])
    request = server.get_batch(timeout=10)[0]
    view = request.tensors[0]
    assert view.data_ptr() == buffer.alive().ctypes.data and view.eq(3).all()
    request.respond([])
    handle.wait(10)
    registration.unregister(10)
    del request
    gc.collect()
    _core.collect()
    assert buffer.alive() is not None, "the view holds it"
    view.fill_(4)
    assert (buffer.alive() == 4).all()
    del view
    assert collected(buffer.alive)


def test_registered_memory_of_a_worker_is_kept(cluster):
    worker = cluster().workers[0].worker
    owner = Owner(64)
    registration = worker.register(owner.tensor())
    gc.collect()
    assert owner.alive() is not None
    registration.unregister()
    assert collected(owner.alive)


def test_memory_at_an_address_that_was_used_before(cluster):
    """A buffer that is unregistered and freed, and another that gets its address, are never taken for one another."""
    c = cluster()
    server, worker = c.servers[0].server, c.workers[0].worker
    node = c.servers[0]
    addresses = set()
    reused = False
    done = torch.zeros(1)
    for i in range(20):
        buffer = node.empty(4096, torch.float32) if i % 2 else torch.empty(4096)
        reused = reused or buffer.data_ptr() in addresses
        addresses.add(buffer.data_ptr())
        with server.register_recv_buffer(buffer, [0], [5]):
            handle = worker.push_pull([torch.full((4096,), float(i))], [5], [done], [6])
            request = server.get_batch(timeout=10)[0]
            assert request.tensors[0].data_ptr() == buffer.data_ptr()
            request.respond([done.clone()])
            handle.wait(10)
        del buffer, request
        gc.collect()
        _core.collect()
        # Not registered: it must not land in the old chunk, nor be shown there.
        handle = worker.push_pull([torch.full((4096,), -1.0)], [5], [done], [6])
        request = server.get_batch(timeout=10)[0]
        other = node.empty(4096, torch.float32).fill_(9)
        assert request.tensors[0].eq(-1).all() and other.eq(9).all()
        request.respond([done.clone()])
        handle.wait(10)
    assert reused


def test_a_push_stays_readable_after_the_respond(cluster):
    """Also in pooled memory: later requests get other memory while a tensor shows it."""
    for van in ["tcp", "shm"]:
        c = cluster(STEPVAN_VAN=van)
        server, worker = c.servers[0].server, c.workers[0].worker
        kept = []
        for i in range(10):
            n = 50_000 if i % 2 else 5
            handle = worker.push_pull([torch.full((n,), float(i))], [i], [], [])
            request = server.get_batch(timeout=10)[0]
            kept.append(request.tensors[0])
            request.respond([])
            handle.wait(10)
        for i, tensor in enumerate(kept):
            assert tensor.eq(i).all()
            tensor.fill_(100)
        assert all(t.eq(100).all() for t in kept)


def test_out_stays_mapped_after_the_node(cluster):
    c = cluster()
    node = c.workers[0]
    y = node.zeros(100_000, torch.float32)
    handle = node.worker.push_pull([node.zeros(100_000, torch.float32)], [1], [y], [2])
    request = c.servers[0].server.get_batch(timeout=10)[0]
    out, seen = request.out(0), request.input(0)
    assert request.out(0) is out
    out.fill_(5)
    assert seen.sum() == 0
    request.respond()
    handle.wait(10)
    assert y.eq(5).all()
    with pytest.raises(stepvan.StaleError):
        request.out(0)
    c.stop()
    c.close()
    out.fill_(6)
    assert out.eq(6).all() and seen.shape == (100_000,)


def test_pooled_out_is_not_given_to_others_while_it_is_seen(cluster):
    c = cluster(STEPVAN_VAN="tcp")
    worker, server = c.workers[0].worker, c.servers[0].server
    outs = []
    for i in range(5):
        y = torch.zeros(50_000)
        handle = worker.push_pull([torch.zeros(1)], [1], [y], [2])
        request = server.get_batch(timeout=10)[0]
        outs.append(request.out(0).fill_(i))
        request.respond()
        handle.wait(10)
        assert y.eq(i).all()
    assert [out[0].item() for out in outs] == [0, 1, 2, 3, 4]


def test_shared_memory_outlives_the_node(cluster):
    c = cluster()
    x = c.workers[0].zeros(1000, torch.float32)
    c.stop()
    c.close()
    x.fill_(3)
    assert x.sum() == 3000


def test_shared_memory_is_given_back(cluster):
    node = cluster().workers[0]
    for _ in range(200):
        node.empty(10_000_000, "float32")
    address = node.empty(10_000_000, "float32").data_ptr()
    assert node.empty(10_000_000, "float32").data_ptr() == address


def test_shape_changes_of_a_view_do_not_last(cluster):
    c = cluster()
    server, worker = c.servers[0].server, c.workers[0].worker
    buffer, done = torch.zeros(4), torch.zeros(1)
    server.register_recv_buffer(buffer, [0], [5])
    for _ in range(3):
        handle = worker.push_pull([torch.ones(2, 2)], [5], [done], [6])
        request = server.get_batch(timeout=10)[0]
        view = request.tensors[0]
        assert view.shape == (2, 2) and not view.requires_grad and view.data_ptr() == buffer.data_ptr()
        view.unsqueeze_(0)
        view.requires_grad_()
        request.respond([torch.ones(1)])
        handle.wait(10)


@pytest.mark.serial
def test_nothing_grows(cluster):
    c = cluster()
    server, worker = c.servers[0].server, c.workers[0].worker
    buffer = torch.zeros(8)
    server.register_recv_buffer(buffer, [0], [5])
    x, y, z = torch.ones(8), torch.zeros(8), torch.ones(8)

    def exchange(n):
        for _ in range(n):
            handle = worker.push_pull([x], [5], [y], [6])
            server.get_batch(timeout=10)[0].respond([z])
            handle.wait(10)
        gc.collect()
        _core.collect()

    exchange(100)
    before = len(gc.get_objects()), sys.getallocatedblocks(), sys.getrefcount(x), sys.getrefcount(torch.float32)
    exchange(int(os.environ.get("STEPVAN_TEST_EXCHANGES", "2000")))
    after = len(gc.get_objects()), sys.getallocatedblocks(), sys.getrefcount(x), sys.getrefcount(torch.float32)
    assert after[2] == before[2] and abs(after[3] - before[3]) < 10
    assert after[0] - before[0] < 50 and after[1] - before[1] < 500


def test_received_tensors_share_no_storage(cluster):
    """What a program does to the storage of one, like a queue of torch.multiprocessing, changes no later one."""
    c = cluster()
    worker, server = c.workers[0].worker, c.servers[0].server
    buffer = torch.zeros(4)
    server.register_recv_buffer(buffer, [0], [5])
    seen, x, done = [], torch.empty(4), torch.zeros(1)
    for value in range(5):
        x.fill_(value)
        handle = worker.push_pull([x], [5], [done], [6])
        [request] = server.get_batch(timeout=10)
        seen.append(request.tensors[0][0].item())
        request.tensors[0].share_memory_()
        request.respond([done])
        handle.wait(10)
    assert seen == [0, 1, 2, 3, 4]
    assert buffer[0] == 4


def test_no_memory_left_is_no_mistake_of_the_library(cluster):
    node = cluster().workers[0]
    for make in node.empty, node.zeros:
        with pytest.raises(stepvan.OutOfMemoryError, match="ask for less") as info:
            make(2**45, torch.uint8)
        assert isinstance(info.value, MemoryError)
    assert node.zeros(4, torch.uint8).eq(0).all()
