"""Transfers between peers, and handles of peers."""

import asyncio
import gc
import logging
import threading
import weakref

import numpy as np
import pytest
import torch

import stepvan


@pytest.fixture
def pair(cluster):
    """Two peers of this process."""
    return [node.peer for node in cluster(0, 0, 2).peers]


def test_views_of_any_kind(pair):
    a, b = pair
    for tag, (x, y) in enumerate(
        [
            (torch.randn(3, 4).T, torch.zeros(4, 3)),
            (torch.randn(300, 500)[:, 7:400], torch.zeros(393, 300).T),
            (np.arange(12.0).reshape(3, 4)[::2], torch.zeros(2, 4, dtype=torch.float64)),
            (torch.ones(1, dtype=torch.bfloat16).expand(5), np.zeros(5, dtype="uint16").view(torch_bfloat16())),
            (torch.arange(6), torch.zeros(2, 3, dtype=torch.int64)),
            (torch.tensor(5.0), torch.zeros(())),
            (torch.zeros(0, 3), torch.ones(3, 0)),
        ]
    ):
        handles = [b.recv(y, source=0, tag=tag), a.send(x, to=1, tag=tag)]
        for handle in handles:
            handle.wait(20)
            assert handle.done()
        want, got = (torch.as_tensor(np.array(v, dtype=np.float64) if isinstance(v, np.ndarray) else v).double() for v in (x, y))
        assert torch.equal(want.reshape(-1), got.reshape(-1))


def torch_bfloat16():
    import ml_dtypes

    return ml_dtypes.bfloat16


def test_in_order_and_to_itself(pair):
    a, b = pair
    numbers = [torch.full((2000,), float(i)) for i in range(10)]
    to = [torch.zeros(2000) for _ in range(10)]
    handles = [a.send(x, 1, 5) for x in numbers] + [b.recv(y, 0, 5) for y in to]
    handles += [a.send(numbers[3], 0), a.recv(mine := torch.zeros(2000), 0)]
    for handle in handles:
        handle.wait(20)
    assert all(map(torch.equal, numbers, to)) and torch.equal(mine, numbers[3])


def test_the_two_sides_differ(pair):
    a, b = pair
    for y in (torch.zeros(5000), torch.zeros(4999, dtype=torch.float64)):
        sent, got = a.send(torch.zeros(4999), 1), b.recv(y, 0)
        for handle, other in ((sent, "peer 1"), (got, "peer 0")):
            with pytest.raises(stepvan.InvalidError, match="float32.4999.*the two sides differ|the two sides differ.*float32.4999") as info:
                handle.wait(20)
            assert info.value.subject == other


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p, x: p.send(x, 2), "send: peer 2: the cluster has no such peer .got 2, want 0 to 1"),
        (lambda p, x: p.send(x, -1), "to is -1: it must be from 0"),
        (lambda p, x: p.send(x, "0"), "to is '0': it must be an integer"),
        (lambda p, x: p.send(x, 2**40), "to is 1099511627776: it must be the rank of a peer"),
        (lambda p, x: p.recv(x, None), "source is None: it must be an integer"),
        (lambda p, x: p.send(x, 1, 2**63), "tag 0x8000000000000000: it is too large"),
        (lambda p, x: p.recv(x, 1, 1.5), "tag is 1.5: it must be an integer"),
        (lambda p, x: p.send([1.0], 1), r"x: \[1.0\] is not a tensor"),
        (lambda p, x: p.recv(x.expand(2, 3), 1), "recv: .* several elements in one place"),
        (lambda p, x: p.recv(torch.nn.Parameter(x), 1), "y: it requires grad"),
        (lambda p, x: p.send(np.arange(3)[::-1], 1), "x: dimension 0 runs backwards"),
        (lambda p, x: p.recv(np.broadcast_to(np.zeros(3), (2, 3)), 1), "y: "),
    ],
)
def test_wrong_arguments(pair, call, message):
    with pytest.raises(stepvan.InvalidError, match=message):
        call(pair[0], torch.zeros(3))


def test_cancel(pair):
    a, b = pair
    y = torch.zeros(3)
    handle = b.recv(y, 0, 9)
    with pytest.raises(stepvan.TimeoutError):
        handle.wait(0.01)
    assert b.cancel(handle) and not b.cancel(handle)
    with pytest.raises(stepvan.ClosedError, match="it was cancelled"):
        handle.wait()
    b.recv(y, 0, 9)
    a.send(torch.ones(3), 1, 9).wait(20)
    with pytest.raises(stepvan.InvalidError, match="only a worker pushes and pulls"):
        handle.trace()


def test_await(pair):
    a, b = pair

    async def both():
        y = torch.zeros(4000)
        got = b.recv(y, 0)
        assert not got.done()
        waiting = asyncio.ensure_future(arrive(got))
        await asyncio.sleep(0.01)
        await a.send(torch.ones(4000), 1)
        await waiting
        assert y.eq(1).all()
        late = b.recv(y, 0)
        b.cancel(late)
        with pytest.raises(stepvan.ClosedError):
            await late

    async def arrive(handle):
        await handle

    asyncio.run(both())


def test_tensors_live_until_they_are_sent(pair):
    a, b = pair
    x = torch.full((100_000,), 7.0)
    gone = weakref.ref(x)
    a.send(x, 1)
    del x
    gc.collect()
    y = torch.zeros(100_000)
    b.recv(y, 0).wait(20)
    assert y.eq(7).all()
    a.send(torch.zeros(1), 1).wait(20)
    gc.collect()
    assert gone() is None


def test_a_peer_that_dies(cluster):
    c = cluster(0, 0, 3)
    a, b, _ = (node.peer for node in c.peers)
    handle = a.recv(torch.zeros(3), 2)
    c.peers[2].close()
    with pytest.raises(stepvan.PeerLostError) as info:
        handle.wait(20)
    assert info.value.subject == "peer 2"
    a.send(torch.zeros(3), 1).wait(20)
    with pytest.raises(stepvan.PeerLostError):
        b.send(torch.zeros(3), 2).wait(20)
    c.close()
    with pytest.raises(stepvan.ClosedError):
        a.send(torch.zeros(3), 1)


def test_threads(pair):
    a, b = pair
    errors = []

    def work(tag):
        try:
            for i in range(50):
                y = torch.zeros(300)
                got = b.recv(y, 0, tag)
                a.send(torch.full((300,), float(i)), 1, tag).wait(20)
                got.wait(20)
                assert y.eq(i).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert not errors


def test_groups(cluster):
    c = cluster(0, 0, 3)
    peers = [node.peer for node in c.peers]
    groups = [p.group([2, 0, 1]) for p in peers]
    assert [g.index for g in groups] == [1, 2, 0] and groups[0].name == "2,0,1"
    list(c.pool.map(lambda g: g.barrier(20), groups))
    big = [b"", b"x" * 100_000, bytearray(b"seven")]
    for got in c.pool.map(lambda g, data: g.all_gather(data, 20), groups, big):
        assert got == [b"seven", b"", b"x" * 100_000]
    with pytest.raises(stepvan.TimeoutError, match="barrier of group 2,0,1"):
        groups[0].barrier(0.01)
    with pytest.raises(stepvan.BusyError, match="another operation of the group is not over"):
        groups[0].all_gather(b"")
    list(c.pool.map(lambda g: g.barrier(20), groups))  # continues that one
    for wrong, message in (("text", "data is 'text': it must be bytes"), (5, "data is 5")):
        with pytest.raises(stepvan.InvalidError, match=message):
            groups[0].all_gather(wrong)
    for ranks, message in (([1, 2], "not a member"), ([0, 0], "named twice"), ([0, 7], "no such peer"), ([0, "1"], r"ranks\[1\] is '1'"), (5, "ranks is 5")):
        with pytest.raises(stepvan.InvalidError, match=message):
            peers[0].group(ranks)
    with groups[2]:
        pass
    with pytest.raises(stepvan.StaleError):
        groups[2].barrier()
    handle = groups[0].begin_barrier()
    groups[0].close()  # fails it at the other
    with pytest.raises(stepvan.RemoteError):
        groups[1].barrier(20)
    with pytest.raises(stepvan.StaleError):
        handle.wait(0)
    for _ in range(2):
        groups = [p.group([0, 1, 2], "once") for p in peers]
        list(c.pool.map(lambda g: g.barrier(20), groups))
        for g in groups:
            g.forget()
            g.forget()  # which does nothing
            g.close()
    with pytest.raises(stepvan.StaleError):
        groups[0].barrier()


def test_broadcast_and_reduce(cluster):
    c = cluster(0, 0, 3)
    groups = [c.peers[rank].peer.group([2, 0, 1]) for rank in (2, 0, 1)]
    for shape, dtype in ((7,), torch.float32), ((300, 400), torch.bfloat16), ((), torch.int64):
        for root in range(3):
            xs = [torch.full(shape, i + 1.0).to(dtype) for i in range(3)]
            into = torch.zeros(shape[::-1], dtype=dtype).T if len(shape) == 2 else torch.zeros(shape, dtype=dtype)
            ops = [("sum", 6), ("max", 3), ("min", 1), ("product", 6)] + [("avg", 2)] * dtype.is_floating_point
            for op, want in ops:
                list(c.pool.map(lambda g, x: g.reduce(x, into if g.index == root else None, root, op, 20), groups, xs))  # noqa: B023
                assert (into == want).all() and [x.max().item() for x in xs] == [1, 2, 3]
            list(c.pool.map(lambda g, x: g.broadcast(x, root, 20), groups, xs))  # noqa: B023
            assert all((x == root + 1).all() for x in xs)
    x, others = torch.ones(5), [torch.zeros(5), np.zeros(5, dtype="float32")]
    for _ in range(2):
        with pytest.raises(stepvan.TimeoutError, match="broadcast of group 2,0,1"):
            groups[0].broadcast(x, timeout=0.01)
    with pytest.raises(stepvan.BusyError, match="another operation"):
        groups[0].broadcast(torch.ones(5))
    list(c.pool.map(lambda g, x: g.broadcast(x, timeout=20), groups, [x, *others]))  # continues that one
    assert (others[0] == 1).all() and (others[1] == 1).all()
    alive, handles = weakref.ref(x), [g.begin_reduce(x, into=x.clone()) for g in groups[1:]]
    result = torch.zeros(5)
    handles.append(groups[0].begin_reduce(x, result))
    del x
    for handle in handles:
        handle.wait(20)
    assert alive() is None and (result == 3).all()

    group, y = groups[0], torch.zeros(5)
    for call, message in (
        (lambda: group.reduce(y, y.clone(), op="mean"), "op is 'mean': it must be 'sum'"),
        (lambda: group.reduce(y, y.clone(), op=None), "op is None"),
        (lambda: group.reduce(y), "into is None: member root must give a tensor"),
        (lambda: group.broadcast(y, root="1"), "root is '1'"),
        (lambda: group.broadcast(5), "x: 5 is not a tensor"),
        (lambda: group.reduce(y, into=y), "shares elements with the source"),  # the others may have begun: the group is over
    ):
        with pytest.raises(stepvan.InvalidError, match=message):
            call()


def test_views_that_differ_fail_at_all_members(cluster):
    c = cluster(0, 0, 3)
    groups = [node.peer.group([0, 1, 2]) for node in c.peers]
    failed = [c.pool.submit(g.broadcast, torch.zeros(5 + g.index // 2), 1, 20) for g in groups]
    for future in failed:
        assert isinstance(future.exception(30), stepvan.InvalidError) and "[6]" in str(future.exception())
    with pytest.raises(stepvan.InvalidError, match="an operation has failed before"):
        groups[0].barrier(20)


def test_groups_in_an_event_loop(cluster):
    c = cluster(0, 0, 3)
    groups = [node.peer.group([0, 1, 2], name="all") for node in c.peers]

    async def member(group):
        await group.begin_barrier()
        x, total = torch.full((4,), float(group.index)), torch.zeros(4)
        await group.begin_broadcast(x, root=2)
        await group.begin_reduce(x, total, root=1)
        assert (x == 2).all() and (total == (6 if group.index == 1 else 0)).all()
        gathering = group.begin_all_gather(bytes([group.index]))
        return await gathering, gathering.result(0)

    async def everybody():
        return await asyncio.gather(*map(member, groups))

    assert asyncio.run(everybody()) == [([b"\0", b"\1", b"\2"],) * 2] * 3


def test_a_member_that_dies(cluster):
    c = cluster(0, 0, 3)
    groups = [node.peer.group([0, 1, 2]) for node in c.peers]
    waiting = [c.pool.submit(g.barrier, 20) for g in groups[:2]]
    c.peers[2].close()
    for future in waiting:
        assert isinstance(future.exception(30), stepvan.PeerLostError | stepvan.RemoteError)
    c.close()


def test_logging_is_left_to_the_program():
    assert logging.getLogger("stepvan").level == logging.NOTSET
