"""The server's side."""

import gc
import threading
import weakref

import numpy as np
import pytest
import torch

import stepvan


def push(cluster, worker, key, tensor, pulls=(), keys=()):
    return cluster.workers[worker].worker.push_pull([tensor], [key], list(pulls), list(keys))


def test_pushes_land_in_a_registered_buffer(cluster):
    c = cluster(workers=2)
    server = c.servers[0].server
    buffer = torch.zeros(4, 8)
    server.register_recv_buffer(buffer, [0, 0, 1, 1], [1, 2, 1, 2])
    handles = [
        c.workers[w].worker.push_pull([torch.full((8,), 10.0 * w + 1), torch.full((2, 2), 10.0 * w + 2)], [1, 2], [], [])
        for w in range(2)
    ]
    batch = server.get_batch(timeout=10)
    assert [(r.worker, r.keys) for r in batch] == [(0, [1, 2]), (1, [1, 2])]
    for r in batch:
        assert [t.shape for t in r.tensors] == [(8,), (2, 2)]
        assert [t.data_ptr() for t in r.tensors] == [buffer[2 * r.worker + i].data_ptr() for i in range(2)]
        r.respond([])
    assert buffer[:, 0].tolist() == [1, 2, 11, 12] and buffer[1, 4] == 0
    for handle in handles:
        handle.wait(10)


@pytest.mark.parametrize("kind", ["numpy", "bytearray", "shared"])
def test_other_buffers(cluster, kind):
    c = cluster()
    node = c.servers[0]
    buffer = {"numpy": lambda: np.zeros(8, np.float32), "bytearray": lambda: bytearray(32), "shared": lambda: node.zeros(8, "float32")}[kind]()
    y = torch.zeros(8)
    with node.server.register_recv_buffer(buffer, [0], [1]):
        for i in range(3):
            handle = push(c, 0, 1, torch.full((8,), float(i)), [y], [2])
            request = node.server.get_batch(timeout=10)[0]
            assert request.tensors[0].eq(i).all()
            assert torch.equal(torch.frombuffer(buffer, dtype=torch.float32) if kind != "shared" else buffer, request.tensors[0])
            request.respond([request.tensors[0]])
            handle.wait(10)
            assert y.eq(i).all()


def test_registrations_that_are_refused(cluster):
    server = cluster().servers[0].server
    buffer = torch.zeros(8)
    for arguments, match in [
        ((buffer, [0, 0], [1]), "2 worker_ranks and 1 push_keys"),
        ((buffer, [0, 0, 0], [1, 2, 3]), "divide|chunk"),
        ((buffer, [7], [1]), "7"),
        ((torch.zeros(4, 4).t(), [0], [1]), "not contiguous"),
        ((bytes(32), [0], [1]), "read-only"),
    ]:
        with pytest.raises(stepvan.InvalidError, match=match):
            server.register_recv_buffer(*arguments)
    server.register_recv_buffer(buffer, [0], [1])
    with pytest.raises(stepvan.InvalidError):
        server.register_recv_buffer(buffer, [0], [2])


def test_respond_vec_with_two_workers(cluster):
    c = cluster(workers=2)
    server = c.servers[0].server
    for rows in [(3, 2), (1, 4)]:
        pulls = [torch.zeros(n, 4) for n in rows]
        handles = [push(c, w, 1, torch.full((n, 4), float(w)), [pulls[w]], [2]) for w, n in enumerate(rows)]
        batch = server.get_batch(timeout=10)
        answer = torch.cat([r.tensors[0] for r in batch] + [torch.full((1, 4), -1.0)]) + torch.arange(6).unsqueeze(1)
        server.respond_vec(answer, [r.tensors[0] for r in batch], batch)
        for handle in handles:
            handle.wait(10)
        assert pulls[0][:, 0].tolist() == list(range(rows[0]))
        assert pulls[1][:, 0].tolist() == [1.0 + i for i in range(rows[0], 5)]


def test_respond_vec_with_several_pulls(cluster):
    c = cluster(workers=2)
    server = c.servers[0].server
    pulls = [[torch.zeros(1, 2), torch.zeros(2, 2)] for _ in range(2)]
    handles = [push(c, w, 1, torch.zeros(3, 2), pulls[w], [2, 3]) for w in range(2)]
    batch = server.get_batch(timeout=10)
    server.respond_vec(torch.arange(12.0).reshape(6, 2), [[r.tensors[0]] for r in batch], [r.handler for r in batch])
    for handle in handles:
        handle.wait(10)
    assert [[t[:, 0].tolist() for t in p] for p in pulls] == [[[0], [2, 4]], [[6], [8, 10]]]


def test_respond_vec_sends_nothing_when_it_is_wrong(cluster):
    c = cluster(workers=2)
    server = c.servers[0].server
    pulls = [torch.zeros(2, 2) for _ in range(2)]
    handles = [push(c, w, 1, torch.zeros(2, 2), [pulls[w]], [2]) for w in range(2)]
    batch = server.get_batch(timeout=10)
    answer = torch.ones(4, 2)
    for arguments in [
        (answer, [2], batch),
        (torch.ones(3, 2), [2, 2], batch),
        (answer, [1, 3], batch),
        (answer, [[], 2], batch),
        (answer, [torch.tensor(1.0), 2], batch),
        (answer.t(), [2, 2], batch),
    ]:
        with pytest.raises(stepvan.InvalidError):
            server.respond_vec(*arguments)
    assert not any(handle.done() for handle in handles)
    server.respond_vec(answer, [2, 2], batch).wait(10)
    for handle in handles:
        handle.wait(10)


def test_one_respond_per_request(cluster):
    c = cluster()
    server = c.servers[0].server
    y = torch.zeros(2)
    handle = push(c, 0, 1, torch.zeros(1), [y], [2])
    request = server.get_batch(timeout=10)[0]
    for wrong in [[], [torch.zeros(2), torch.zeros(2)], [torch.zeros(1)], [torch.zeros(3)]]:
        with pytest.raises(stepvan.InvalidError):
            request.respond(wrong)
    with pytest.raises(stepvan.InvalidError, match="no out"):
        server.respond(None, request.handler)
    response = server.respond([torch.ones(2)], request.handler)
    handle.wait(10)
    with pytest.raises(stepvan.StaleError):
        request.respond([torch.ones(2)])
    with pytest.raises(stepvan.StaleError):
        server.respond([], 12345)
    response.wait(10)
    assert response.done() and y.eq(1).all()


def test_arguments_of_a_respond(cluster):
    c = cluster()
    y = torch.zeros(2)
    for arguments, named in [(([torch.ones(2)],), {}), ((), {"tensors": [torch.ones(2)]}), ((), {}), ((None,), {}), ((), {"tensors": None})]:
        handle = push(c, 0, 1, torch.zeros(1), [y.zero_()], [2])
        request = c.servers[0].server.get_batch(timeout=10)[0]
        request.out(0).fill_(1)
        for wrong, wrongly in [((1, 2), {}), (([],), {"tensors": []}), ((), {"tensor": []}), ((), {"tensors": [], "more": 1})]:
            with pytest.raises(TypeError, match=r"respond\(\)"):
                request.respond(*wrong, **wrongly)
        response = request.respond(*arguments, **named)
        assert isinstance(response, stepvan.Response)
        response.wait(10)
        handle.wait(10)
        assert y.eq(1).all()


def test_a_request_keeps_its_node(cluster):
    c = cluster()
    y = torch.zeros(2)
    handle = push(c, 0, 1, torch.zeros(1), [y], [2])
    node = c.servers.pop()
    c.nodes.remove(node)
    request = node.server.get_batch(timeout=10)[0]
    alive = weakref.ref(node)
    del node
    gc.collect()
    response = request.respond([torch.ones(2)])
    del request
    gc.collect()
    assert alive() is not None
    response.wait(10)
    handle.wait(10)
    assert y.eq(1).all()
    del response
    gc.collect()
    assert alive() is None
    c.close()


def test_policies(cluster):
    c = cluster(workers=2)
    server = c.servers[0].server
    first = push(c, 1, 1, torch.zeros(1))
    with pytest.raises(stepvan.TimeoutError):
        server.get_batch("lockstep", timeout=0.05)
    with pytest.raises(stepvan.TimeoutError):
        server.get_batch(2, timeout=0)
    batch = server.get_batch("any", timeout=10)
    assert [r.worker for r in batch] == [1]
    batch[0].respond([])
    second = [push(c, w, 5, torch.zeros(1)) for w in range(2)]
    batch = server.get_batch(2, timeout=10)
    assert [r.worker for r in batch] == [0, 1]
    for r in batch:
        r.respond([])
    for handle in [first, *second]:
        handle.wait(10)
    for wrong in ["all", 0, -3, 1.5]:
        with pytest.raises(stepvan.InvalidError):
            server.get_batch(wrong, timeout=0)


def test_iteration_ends_when_the_workers_have_left(cluster):
    c = cluster(workers=2)
    seen = []

    def loop():
        for batch in c.servers[0].server:
            for request in batch:
                seen.append(request.worker)
                request.respond([])

    thread = threading.Thread(target=loop)
    thread.start()
    for handle in [push(c, w, 1, torch.zeros(1)) for w in range(2)]:
        handle.wait(10)
    stops = [c.pool.submit(node.stop, 20) for node in c.workers]
    thread.join(20)
    assert not thread.is_alive() and sorted(seen) == [0, 1]
    for node in [*c.servers, c.nodes[0]]:
        c.pool.submit(node.stop, 20)
    for stop in stops:
        stop.result(20)


def test_pulls(cluster):
    c = cluster()
    a, b = torch.zeros(2, 3, dtype=torch.float16), np.zeros(4, np.int64)
    handle = c.workers[0].worker.push_pull([], [], [a, b], [7, 8], variable=[False, True])
    request = c.servers[0].server.get_batch(timeout=10)[0]
    assert request.tensors == [] and request.keys == []
    assert request.pulls == [
        stepvan.Pull(7, (2, 3), torch.float16, 12, False),
        stepvan.Pull(8, (4,), torch.int64, 32, True),
    ]
    request.respond([torch.ones(2, 3, dtype=torch.float16), torch.ones(1, dtype=torch.int64)])
    handle.wait(10)
    assert handle.lengths() == [12, 8]


@pytest.mark.parametrize("van", ["shm", "tcp"])
def test_answers_in_place(cluster, van):
    c = cluster(STEPVAN_VAN=van)
    node = c.workers[0]
    x, y = node.zeros((64, 256), "float32").fill_(3), node.zeros((64, 256), "float32")
    handle = node.worker.push_pull([x], [1], [y], [2])
    request = c.servers[0].server.get_batch(timeout=10)[0]
    torch.mul(request.input(0), 2, out=request.out(0))
    if van == "shm":
        assert y.eq(6).all(), "it is the worker's own tensor"
        request.tensors[0].fill_(9)
        assert x.eq(3).all(), "what may be written to is the server's"
    request.respond()
    handle.wait(10)
    assert y.eq(6).all()
    with pytest.raises(stepvan.StaleError):
        request.input(0)


def test_input_and_out_of_nothing(cluster):
    c = cluster()
    handle = push(c, 0, 1, torch.zeros(0), [torch.zeros(0)], [2])
    request = c.servers[0].server.get_batch(timeout=10)[0]
    assert request.input(0).shape == (0,) and request.out(0).shape == (0,)
    for wrong in [1, -1, "x"]:
        with pytest.raises(stepvan.InvalidError):
            request.out(wrong)
    request.respond()
    handle.wait(10)


def test_requests_after_close(cluster):
    c = cluster()
    handle = push(c, 0, 1, torch.full((9000,), 2.0), [torch.zeros(9000)], [2])
    request = c.servers[0].server.get_batch(timeout=10)[0]
    tensor = request.tensors[0]
    c.close()
    assert tensor.eq(2).all()
    with pytest.raises(stepvan.ClosedError):
        request.respond()
    with pytest.raises(stepvan.ClosedError):
        handle.wait(1)


def test_large_batches(cluster):
    """More tensors than the arrays of the extension have room for at first."""
    c = cluster()
    n = 300
    handle = c.workers[0].worker.push_pull([torch.full((2,), float(i)) for i in range(n)], range(n), [torch.zeros(1)] * 1, [n])
    request = c.servers[0].server.get_batch(timeout=10)[0]
    assert [t[0].item() for t in request.tensors] == list(range(n)) and request.keys == list(range(n))
    request.respond([torch.ones(1)])
    handle.wait(10)
