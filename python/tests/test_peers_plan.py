"""Plans of peers."""

import asyncio
import gc
import logging

import numpy as np
import pytest
import torch

import stepvan
from stepvan import Move, _plan


@pytest.fixture
def pair(cluster):
    c = cluster(0, 0, 2)
    return c, *(node.peer for node in c.peers)


def agree(c, a, b, sends, recvs, name="weights", timeout=20):
    """The two sides of a plan in which peer 0 sends to peer 1."""
    other = c.pool.submit(b.plan, name, (), recvs, timeout)
    return a.plan(name, sends, timeout=timeout), other.result(30)


def test_runs(pair):
    c, a, b = pair
    weights = {"w": torch.randn(30, 40), "b": torch.randn(7), "one": torch.tensor(3.0)}
    copies = {name: torch.zeros(w.shape[::-1]) for name, w in weights.items()}
    sends = [(i, 1, w, name) for i, (name, w) in enumerate(weights.items())]
    recvs = [Move(i, 0, y.T if y.dim() == 2 else y, name) for i, (name, y) in enumerate(copies.items())]
    out, into = agree(c, a, b, sends, recvs)
    assert repr(into) == "<stepvan.Plan: weights>" and into.version == into.offered == 0
    for version in (1, 2, 7):
        for w in weights.values():
            w += 1
        sent = out.run(version)
        while not into.offered:
            pass
        assert into.offered == version and into.version < version
        into.run().wait(20)
        sent.wait(20)
        assert into.version == out.version == version
        assert all(torch.equal(w, copies[name].T if w.dim() == 2 else copies[name]) for name, w in weights.items())
    assert (into.stats.moves, into.stats.received, out.stats.sent) == (3, 4 * 1208, 4 * 1208)
    with pytest.raises(stepvan.InvalidError, match="version: it falls"):
        out.run(6)
    with pytest.raises(stepvan.InvalidError, match="version: a peer that sends gives one"):
        out.run()
    with pytest.raises(stepvan.InvalidError, match="version is -1"):
        out.run(-1)
    out.run(8)
    with pytest.raises(stepvan.BusyError, match="the last run has not completed"):
        out.run(9)
    into.run(8).wait(20)
    with out, into:
        pass
    out.close()
    with pytest.raises(stepvan.ClosedError, match="plan weights: it was closed"):
        out.run(9)


def test_numpy_and_an_event_loop(pair):
    c, a, b = pair
    x, y = np.arange(12.0).reshape(3, 4), np.zeros((4, 3))
    out, into = agree(c, a, b, [(1, 1, x.T)], [(1, 0, y)])

    async def run():
        received = into.run(1)
        await out.run(1)
        await received

    asyncio.run(run())
    assert (x.T == y).all()


def test_sides_that_do_not_fit(pair):
    c, a, b = pair
    for sends, recvs, message in (
        ([(1, 1, torch.zeros(3), "w")], [(1, 0, torch.zeros(4), "v")], r"move 1 \(\w\): the two sides differ"),
        ([(1, 1, torch.zeros(3))], [(1, 0, torch.zeros(3, dtype=torch.int32))], "move 1: the two sides differ"),
        ([(1, 1, torch.zeros(3))], [(2, 0, torch.zeros(3))], "move [12]"),
    ):
        other = c.pool.submit(b.plan, "weights", (), recvs, 20)
        with pytest.raises(stepvan.InvalidError, match="plan weights: peer 1: " + message):
            a.plan("weights", sends, timeout=20)
        assert isinstance(other.exception(30), stepvan.InvalidError)
    agree(c, a, b, [(1, 1, torch.zeros(3))], [(1, 0, torch.zeros(3))])  # nothing is left of the others


@pytest.mark.parametrize(
    ("sends", "recvs", "message"),
    [
        (5, (), "sends is 5: it must be a list of moves"),
        ([(1, 1)], (), r"sends\[0\] is \(1, 1\): it must be \(id, peer, tensor\)"),
        (["abc"], (), r"sends\[0\] is 'abc'"),
        ([(-1, 1, "x")], (), r"sends\[0\]: 'x' is not a tensor"),
        ([(-1, 1, torch.zeros(1))], (), r"sends\[0\].id is -1"),
        ([(1, 1.5, torch.zeros(1))], (), r"sends\[0\].peer is 1.5"),
        ([(1, 2**31, torch.zeros(1))], (), r"sends\[0\].peer is 2147483648: it must be the rank of a peer"),
        ([(1, 9, torch.zeros(1))], (), "peer 9: the cluster has no such peer"),
        ((), [(1, 1, torch.zeros(1), 7)], "the name of a tensor is 7"),
        ((), [(1, 1, torch.zeros(3).expand(2, 3), "w")], r"move 1 \(w\)"),
        ((), [(1, 1, torch.nn.Parameter(torch.zeros(3)), "w")], "w: it requires grad"),
        ([(1, 1, torch.zeros(3)), (1, 1, torch.zeros(3), "v")], (), "they have the same ID"),
    ],
)
def test_wrong_moves(pair, sends, recvs, message):
    with pytest.raises(stepvan.InvalidError, match=message):
        pair[1].plan("weights", sends, recvs, timeout=20)
    with pytest.raises(stepvan.InvalidError, match="name"):
        pair[1].plan("", timeout=20)
    with pytest.raises(stepvan.InvalidError, match="name is 5"):
        pair[1].plan(5, timeout=20)


def test_destinations_with_a_common_element(pair):
    y = torch.zeros(10)
    with pytest.raises(stepvan.InvalidError, match=r"move 1 \(low\).*move 2 \(high\).*both write"):
        pair[1].plan("weights", recvs=[(1, 1, y[:6], "low"), (2, 1, y[5:], "high")])


def test_tensors_that_have_moved(pair):
    c, a, b = pair
    x, y = torch.randn(100), torch.zeros(100)
    out, into = agree(c, a, b, [(1, 1, x, "layer.0.weight")], [(1, 0, y)])
    into.run(1)
    out.run(1).wait(20)
    x.data = x.clone()
    with pytest.raises(stepvan.InvalidError, match="layer.0.weight: its memory was moved or resized"):
        out.run(2)
    y.resize_(200_000)
    with pytest.raises(stepvan.InvalidError, match=r"recvs\[0\]: its shape, strides or type was changed"):
        into.run(2)


def test_a_plan_that_nobody_else_makes(pair):
    c, a, b = pair
    with pytest.raises(stepvan.ExpiredError, match="plan weights with peer 1: it did not take part in time") as info:
        a.plan("weights", [(1, 1, torch.zeros(1))], timeout=0.05)
    assert info.value.subject == "peer 1" and isinstance(info.value, TimeoutError)
    agree(c, a, b, [(1, 1, torch.zeros(1))], [(1, 0, torch.zeros(1))])
    with pytest.raises(stepvan.BusyError, match="this peer has a plan of that name"):
        a.plan("weights", [(1, 1, torch.zeros(1))], timeout=20)


def test_a_peer_that_dies(pair):
    c, a, b = pair
    out, into = agree(c, a, b, [(1, 1, torch.zeros(1))], [(1, 0, torch.zeros(1))])
    handle = into.run()
    c.peers[0].close()
    with pytest.raises(stepvan.PeerLostError, match="plan weights.*peer 0"):
        handle.wait(20)
    assert into.version == 0
    with pytest.raises(stepvan.PeerLostError):
        into.run(3)
    into.close(20)
    with pytest.raises(stepvan.ClosedError):
        out.run(1)
    c.close()


def test_what_private_memory_costs_is_said_once(pair, caplog, monkeypatch):
    c, a, b = pair
    monkeypatch.setattr(_plan, "_mentioned", False)
    shared, private = c.peers[0].zeros(50, torch.float32), torch.zeros(50)
    with caplog.at_level(logging.WARNING, "stepvan"):
        for name, x in (("shared", shared), ("private", private), ("again", private)):
            agree(c, a, b, [(1, 1, x)], [(1, 0, torch.zeros(50))], name)
    if any(peer.van == "shm" for peer in c.peers[0].peers):
        assert [r.getMessage().split(":")[0] for r in caplog.records] == ["plan private"]


def test_tensors_live_as_long_as_the_plan(pair):
    c, a, b = pair
    y = torch.zeros(1000)
    x = torch.ones(1000)
    storage = x.storage() if not hasattr(x, "untyped_storage") else x.untyped_storage()
    address = storage.data_ptr()
    out, into = agree(c, a, b, [(1, 1, x)], [(1, 0, y)])
    del x, storage
    gc.collect()
    assert torch.empty(1000).data_ptr() != address
    into.run(1)
    out.run(1).wait(20)
    into.close(20)
    assert y.eq(1).all()


def test_replicas(cluster):
    c = cluster(0, 0, 4, STEPVAN_VAN="tcp")
    peers = [node.peer for node in c.peers]
    x = torch.randn(500, 700)
    size = 4 * x.numel()
    copies = [torch.zeros(500, 700 + i)[:, i:] for i in range(1, 4)]
    others = [c.pool.submit(p.plan, "weights", (), [(i, 0, y)], 20, replicas=True) for i, (p, y) in enumerate(zip(peers[1:], copies, strict=True))]
    plans = [peers[0].plan("weights", [(i, i + 1, x) for i in range(3)], timeout=20, replicas=True), *(other.result(30) for other in others)]
    for version in (1, 2):
        x += 1
        for handle in [plan.run(version) for plan in plans]:
            handle.wait(20)
        assert all(torch.equal(x, y) for y in copies)
    assert [plan.stats.sent for plan in plans] == [size, size, size, 0]
    assert [plan.stats.passed for plan in plans] == [0, size, size, 0]
    for plan in plans:
        plan.close()
    rows = [c.pool.submit(p.match, "rows", None, {"w": y}, 20, replicas=True) for p, y in zip(peers[1:], copies, strict=True)]
    matched = [peers[0].match("rows", {"w": x}, timeout=20, replicas=True), *(other.result(30) for other in rows)]
    assert [plan.stats.passed for plan in matched].count(size) == 2
    for plan in matched:
        plan.close()
    other = c.pool.submit(peers[1].plan, "differ", (), [(1, 0, copies[0])], 20)
    with pytest.raises(stepvan.InvalidError, match=r"PlanOptions: the two sides differ \(here Replicas true, there Replicas false\)"):
        peers[0].plan("differ", [(1, 1, x)], timeout=20, replicas=True)
    with pytest.raises(stepvan.InvalidError, match="here Replicas false, there Replicas true"):
        other.result(30)
    with pytest.raises(stepvan.InvalidError, match="replicas is 1: it must be True or False"):
        peers[0].plan("differ", replicas=1)
