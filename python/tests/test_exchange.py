"""Exchanges, as workers see them."""

import asyncio
import time

import numpy as np
import pytest
import torch

import stepvan

VANS = ["shm", "tcp"]


def double(request):
    return [t * 2 for t in request.tensors]


@pytest.mark.parametrize("van", VANS)
def test_torch(cluster, van):
    c = cluster(STEPVAN_VAN=van)
    c.serve(double)
    worker = c.workers[0].worker
    for shape in [(), (1,), (3, 5), (128, 1024), (0, 4), (2, 3, 4, 5)]:
        x, y = torch.rand(shape), torch.empty(shape)
        worker.push_pull([x], [1], [y], [2]).wait(10)
        assert torch.equal(y, x * 2)
    assert c.workers[0].peers[0].van == ("unix" if van == "tcp" else "shm")


def test_numpy_and_torch_in_one_exchange(cluster):
    c = cluster()
    c.serve(double)
    x, y = np.arange(6, dtype=np.int32).reshape(2, 3), torch.ones(5, dtype=torch.float64)
    a, b = np.zeros_like(x), torch.zeros_like(y)
    c.workers[0].worker.push_pull([x, y], [1, 2], [a, b], [3, 4]).wait(10)
    assert (a == x * 2).all() and torch.equal(b, y * 2)


def test_buffers(cluster):
    c = cluster()
    c.serve(lambda request: [request.tensors[0] + 1])
    answer = bytearray(4)
    c.workers[0].worker.push_pull([b"\x01\x02\x03\x04"], [1], [answer], [2]).wait(10)
    assert answer == b"\x02\x03\x04\x05"


@pytest.mark.parametrize("name", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_types_of_torch(cluster, name):
    c = cluster()
    seen = []
    c.serve(lambda request: seen.append(request.pulls[0].dtype) or [request.tensors[0].clone()])
    dtype = getattr(torch, name)
    x = torch.tensor([0, 1, 1, 0, 1]).to(dtype)
    y = torch.zeros(5, dtype=dtype)
    c.workers[0].worker.push_pull([x], [1], [y], [2]).wait(10)
    assert torch.equal(x, y) and seen == [dtype]


def test_sizes_change_between_exchanges(cluster):
    c = cluster()
    c.serve(double)
    for n in [1, 70_000, 3, 1_000_000, 2]:
        x, y = torch.rand(n), torch.empty(n)
        c.workers[0].worker.push_pull([x], [1], [y], [2]).wait(10)
        assert torch.equal(y, x * 2)


def test_several_in_flight(cluster):
    c = cluster()
    c.serve(double)
    worker = c.workers[0].worker
    stages = [(torch.full((1000,), float(i)), torch.empty(1000)) for i in range(50)]
    handles = [worker.push_pull([x], [i], [y], [1000 + i]) for i, (x, y) in enumerate(stages)]
    for handle, (x, y) in zip(reversed(handles), reversed(stages)):
        handle.wait(10)
        assert handle.done() and torch.equal(y, x * 2)


def test_pulls_are_server_major(cluster):
    c = cluster(servers=2)
    for s in range(2):
        c.serve(lambda request, s=s: [torch.full((2,), float(10 * s + i)) for i in range(2)], server=s)
    pulls = [torch.zeros(2) for _ in range(4)]
    handle = c.workers[0].worker.push_pull([torch.zeros(1)], [1], pulls, [2, 3, 2, 3])
    handle.wait(10)
    assert [p[0].item() for p in pulls] == [0, 1, 10, 11]
    assert len(handle.traces()) == 2 and handle.operations() == 3


def test_named_servers(cluster):
    c = cluster(servers=2, STEPVAN_ROUTING="named")
    for s in range(2):
        c.serve(lambda request, s=s: [torch.full((1,), float(s))] * request.pull_count, server=s)
    a, b = torch.zeros(1), torch.zeros(1)
    worker = c.workers[0].worker
    worker.push_pull([torch.zeros(1)], [1], [a, b], [2, 3], push_to=1, pull_to=[1, 0]).wait(10)
    assert (a.item(), b.item()) == (1, 0)
    worker.push_pull([torch.zeros(1)], [1], [b], [3], push_to=[1], pull_to="push").wait(10)
    assert b.item() == 1


def test_variable_length(cluster):
    c = cluster()
    c.serve(lambda request: [torch.arange(3.0)])
    y = torch.zeros(10)
    worker = c.workers[0].worker
    handle = worker.push_pull([torch.zeros(1)], [1], [y], [2], variable=True, label="decode")
    handle.wait(10)
    assert handle.lengths() == [12]
    assert y.tolist() == [0, 1, 2, 0, 0, 0, 0, 0, 0, 0]
    with pytest.raises(stepvan.InvalidError, match="1 per pull|per pull"):
        worker.push_pull([torch.zeros(1)], [1], [y], [2], variable=[True, False])


def test_traces(cluster):
    c = cluster()
    c.serve(double)
    handle = c.workers[0].worker.push_pull([torch.zeros(1)], [1], [torch.zeros(1)], [2])
    handle.wait(10)
    stamps = handle.trace()
    assert len(stamps) == 8 and all(stamps)
    trace = stepvan.Trace(*stamps)
    assert trace.request_start <= trace.response_process <= stepvan.get_nanosecond()
    assert handle.traces() == [trace]


def test_the_clock_counts_from_1970():
    assert abs(stepvan.get_nanosecond() - time.time_ns()) < 3600 * 10**9


def test_a_busy_key_is_refused(cluster):
    c = cluster()
    worker, server = c.workers[0].worker, c.servers[0].server
    x, y = torch.zeros(1), torch.zeros(1)
    first = worker.push_pull([x], [1], [y], [2])
    with pytest.raises(stepvan.BusyError):
        worker.push_pull([x], [1], [y], [2])
    server.get_batch(timeout=10)[0].respond([x])
    first.wait(10)


def test_wrong_counts(cluster):
    worker = cluster().workers[0].worker
    x = torch.zeros(1)
    for arguments in [([x], [], [x], [1]), ([x], [1], [x], [1, 2]), ([x, x], [1, 1], [], [])]:
        with pytest.raises(stepvan.InvalidError):
            worker.push_pull(*arguments)
    with pytest.raises(stepvan.InvalidError, match="push_keys"):
        worker.push_pull([x], ["one"], [x], [2])
    with pytest.raises(stepvan.InvalidError, match="2\\*\\*64"):
        worker.push_pull([x], [-1], [x], [2])
    with pytest.raises(stepvan.InvalidError, match="routing"):
        worker.push_pull([x], [1], [x], [2], routing="nearest")
    with pytest.raises(stepvan.InvalidError, match="list"):
        worker.push_pull(7, [1], [x], [2])


def test_keys_have_64_bits(cluster):
    c = cluster()
    seen = []
    c.serve(lambda request: seen.append((request.keys, request.pulls[0].key)) or double(request))
    key = 2**64 - 1
    c.workers[0].worker.push_pull([torch.zeros(1)], (np.uint64(key),), [torch.zeros(1)], [key - 1]).wait(10)
    assert seen == [([key], key - 1)]


class Index:
    """An integer that does something when it is looked at."""

    def __init__(self, look):
        self.look = look

    def __index__(self):
        return self.look()


def test_keys_that_raise_or_change_their_list(cluster):
    worker = cluster().workers[0].worker
    x = torch.ones(1)

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.push_pull([x, x], [1, Index(interrupt)], [], [])

    def shorten():
        keys.clear()
        return 1

    keys = [Index(shorten), 2]
    with pytest.raises((stepvan.InvalidError, IndexError)):
        worker.push_pull([x, x], keys, [], [])


def test_many_tensors(cluster):
    c = cluster()
    c.serve(double)
    n = 100
    xs, ys = [torch.full((3,), float(i)) for i in range(n)], [torch.empty(3) for _ in range(n)]
    c.workers[0].worker.push_pull(xs, list(range(n)), ys, range(n, 2 * n)).wait(10)
    assert all(torch.equal(y, x * 2) for x, y in zip(xs, ys))


def test_await(cluster):
    c = cluster()
    responses = []

    def answer():
        for batch in c.servers[0].server:
            responses.extend(r.respond(double(r)) for r in batch)

    c.serving.append(c.pool.submit(answer))
    worker = c.workers[0].worker

    async def exchange(i):
        x, y = torch.full((4,), float(i)), torch.empty(4)
        await worker.push_pull([x], [i], [y], [100 + i])
        return torch.equal(y, x * 2)

    async def main():
        done = await asyncio.gather(*(exchange(i) for i in range(20)))
        await responses[0]
        return done

    for _ in range(2):  # two loops, one after the other
        assert all(asyncio.run(main()))


def test_await_is_cancelled(cluster):
    c = cluster()
    y = torch.zeros(1)
    handle = c.workers[0].worker.push_pull([torch.ones(1)], [1], [y], [2])

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.ensure_future(_wait(handle)), 0.05)
        c.servers[0].server.get_batch(timeout=10)[0].respond([torch.ones(1)])
        await handle

    asyncio.run(main())
    assert y.item() == 1


async def _wait(handle):
    await handle
