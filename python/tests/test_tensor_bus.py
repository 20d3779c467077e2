"""Clients of the tensor bus, with agents in this process."""

import asyncio
import gc
import logging
import threading
import time
import weakref

import numpy as np
import pytest
import torch

import stepvan
from stepvan.tensor_bus import Agent, TensorBusClient, bootstrap_client, client as client_module
from stepvan.tensor_bus.commands import InitPair, QueryStatus, Transfer


class Town:
    """A cluster with an agent at each peer, and clients of them."""

    def __init__(self, c, folder, **options):
        self.c = c
        self.agents = [Agent(node, path=folder / f"{i}.sock", **options) for i, node in enumerate(c.peers)]
        self.clients = []

    def client(self, agent=0, rank=0, **options):
        self.clients.append(self.agents[agent].client(rank, connection_timeout=10, **options))
        return self.clients[-1]

    def both(self, *calls):
        """What calls return that wait for each other."""
        futures = [self.c.pool.submit(*call) if isinstance(call, tuple) else self.c.pool.submit(call) for call in calls]
        return [f.result(60) for f in futures]

    def close(self):
        for x in [*self.clients, *self.agents]:
            x.close()


@pytest.fixture
def town(cluster, tmp_path):
    made = []
    tmp_path.chmod(0o700)

    def make(agents=2, settings=None, **options):
        made.append(Town(cluster(0, 0, agents, **(settings or {})), tmp_path, **options))
        return made[-1]

    yield make
    for t in made:
        t.close()


def open_pair(t, a, b, name="weights", mesh=None, here=None, there=None, **options):
    """Opens a pair between clients of training and of inference."""

    def one(client, local, remote, size, placements):
        shape = None if placements is None else mesh or (size,)
        return lambda: client.init_pair(name, local, remote, size, shape, placements, **options)

    t.both(*(one(x, "training", "inference", len(a), here) for x in a), *(one(x, "inference", "training", len(b), there) for x in b))


def register(t, clients, tensors, batch="step", pair="weights"):
    return t.both(*(lambda c=c, x=x: c.register_tensors(batch, [(x, pair)]) for c, x in zip(clients, tensors, strict=True)))


def exchange(send, recv):
    """A round."""
    for r in [*(h.transfer("send") for h in send), *(h.transfer("recv") for h in recv)]:
        r.wait()


def test_rounds(town, caplog, monkeypatch):
    monkeypatch.setattr(client_module, "_mentioned", False)
    t = town()
    a, b = [t.client(0, 0), t.client(0, 1)], [t.client(1, 0), t.client(1, 1)]
    open_pair(t, a, b, here=[("shard", 0)], there=[("shard", 1)])
    whole = torch.arange(24.0).reshape(4, 6)
    sources = [whole[:2].clone(), whole[2:].clone()]
    targets = [torch.zeros(4, 3), torch.zeros(4, 3)]
    with caplog.at_level(logging.WARNING, "stepvan"):
        out = register(t, a + b, sources + targets)
    assert sum("lie in private memory" in r.message for r in caplog.records) == 1
    out, into = out[:2], out[2:]
    assert out[0].query_status() == ("registered", 0, None) and not into[0].query_transfer_signal()
    for number in range(1, 4):
        for s in sources:
            s += 1
        results = [h.transfer("send") for h in out]
        while not into[0].query_transfer_signal():
            pass
        for r in [*results, *(h.transfer("recv") for h in into)]:
            r.wait()
            assert r.done() and "(done)" in repr(r)
        assert torch.equal(torch.cat(targets, 1), whole + number)
        assert into[1].query_status() == ("done", number, None)
    targets[0] += 1  # the other way
    exchange(into, out)
    assert torch.equal(torch.cat(sources), torch.cat(targets, 1))
    with pytest.raises(stepvan.InvalidError, match="the batch_id is in use"):
        a[0].register_tensors("step", [(sources[0], "weights")])
    for h in out + into:
        h.close()
        h.close()
    assert a[0].query_status("step") == ("unknown", 0, None)
    with pytest.raises(stepvan.InvalidError, match='Transfer: batch "step": it is not registered'):
        out[0].transfer("send", blocking=True)


def test_shared_memory_views_and_types(town):
    """Tensors of stepvan's memory, with strides, of numpy, and in a narrower type."""
    t = town()
    a, b = t.client(0), t.client(1)
    open_pair(t, [a], [b])
    fused = torch.arange(48.0).reshape(6, 8)
    stepvan.share_(fused, t.c.peers[0])
    array = np.arange(6, dtype=np.int32)
    sources = [fused[:, ::2], fused[2, 1::2], array[::-1].copy(), torch.zeros(0, 5), torch.tensor(7.0)]
    made = t.c.peers[1].zeros((6, 4), torch.bfloat16)
    targets = [made, torch.zeros(8)[::2], np.zeros((2, 6), np.int32)[1], torch.zeros(0, 5), torch.tensor(0.0)]
    out, into = t.both(
        *(lambda c=c, xs=xs: c.register_tensors("step", [(x, "weights") for x in xs]) for c, xs in ((a, sources), (b, targets)))
    )
    exchange([out], [into])
    assert torch.equal(targets[0].float(), fused[:, ::2].bfloat16().float()) and torch.equal(targets[1], fused[2, 1::2])
    assert targets[2].tolist() == array[::-1].tolist() and targets[4] == 7
    fused *= 2
    exchange([out], [into])
    assert torch.equal(targets[1], fused[2, 1::2])
    sources[4].data = torch.tensor(8.0)
    with pytest.raises(stepvan.InvalidError, match=r"tensors\[4\]: its memory was moved .* since it was registered.*: close the batch, and register it again"):
        out.transfer("send")
    with out, into:
        pass


def test_partial(town):
    t = town()
    a, b = [t.client(0, 0), t.client(0, 1)], [t.client(1, 0)]
    open_pair(t, a, b, here=[("partial", "sum")], there=["replicate"])
    sources, target = [torch.ones(5, 3), torch.full((5, 3), 2.0)], torch.zeros(5, 3)
    *out, into = register(t, a + b, [*sources, target])
    exchange(out, [into])
    assert torch.equal(target, torch.full((5, 3), 3.0)) and torch.equal(sources[0], torch.ones(5, 3))
    with pytest.raises(stepvan.InvalidError, match="partial"):
        into.transfer("send", blocking=True)


def test_both_sides_at_one_client(town):
    """One agent, and one client that is both sides: float32 to bfloat16."""
    t = town(1)
    c = t.client()
    master, served = torch.randn(8, 4), torch.zeros(8, 4, dtype=torch.bfloat16)
    before = master.clone()
    t.both(
        lambda: c.init_pair("w", "training", "inference", 1, (1,), [("shard", 0)]),
        lambda: c.init_pair("w", "inference", "training", 1, (1, 1), ["replicate", ("shard", 1)]),
    )
    with pytest.raises(stepvan.InvalidError, match="name the role"):
        c.register_tensors("step", [(master, "w")])
    with pytest.raises(stepvan.InvalidError, match='this client is not "nobody"'):
        c.register_tensors("step", [(master, "w")], role="nobody")
    out, into = t.both(
        lambda: c.register_tensors("step", [(master, "w")], role="training"),
        lambda: c.register_tensors("step", [(served, "w")], role="inference"),
    )
    exchange([out], [into])
    assert torch.equal(served, before.bfloat16()) and torch.equal(master, before)
    assert out.query_status() == into.query_status() == ("done", 1, None) and c.query_status("step").state == "unknown"
    out.close()
    into.close()


def test_two_pairs_in_opposite_order(town):
    t = town()
    a, b = t.client(0), t.client(1)
    first = a.init_pair("obs", "x", "y", 1, blocking=False)
    second = b.init_pair("action", "y", "x", 1, blocking=False)
    assert not first.done()
    b.init_pair("obs", "y", "x", 1)
    a.init_pair("action", "x", "y", 1)
    first.wait()
    second.wait()
    b.init_pair("obs", "y", "x", 1)
    with pytest.raises(stepvan.InvalidError, match="it is open with another layout"):
        b.init_pair("obs", "y", "x", 1, (1,), [("shard", 0)])


def test_await(town):
    t = town()
    a, b = t.client(0), t.client(1)
    source, target = torch.ones(3), torch.zeros(3)

    async def both():
        here = a.init_pair("weights", "x", "y", 1, blocking=False)
        there = b.init_pair("weights", "y", "x", 1, blocking=False)
        await asyncio.gather(awaited(here), awaited(there))
        out, into = await asyncio.gather(
            asyncio.to_thread(a.register_tensors, "s", [(source, "weights")]), asyncio.to_thread(b.register_tensors, "s", [(target, "weights")])
        )
        sent, come = out.transfer("send"), into.transfer("recv")
        await sent
        await come
        await come
        with pytest.raises(stepvan.InvalidError, match="not registered"):
            await a.transfer("none", "send")

    asyncio.run(both())
    assert torch.equal(source, target)


async def awaited(result):
    await result


def test_what_does_not_fit(town):
    t = town()
    a, b = t.client(0), t.client(1)
    open_pair(t, [a], [b])
    for call in (
        lambda: a.init_pair("p", "x", "y", 1, device_mesh=(1,)),
        lambda: a.init_pair("p", "x", "y", 1, placements=["replicate"]),
        lambda: a.init_pair("p", "x", "x", 1),
        lambda: a.init_pair("p", "x", "y", 0),
        lambda: a.init_pair("p", "x", "y", "two"),
        lambda: a.init_pair("p/q", "x", "y", 1),
        lambda: a.init_pair("p", "x", "y", 3, (2,), ["replicate"]),
        lambda: a.init_pair("p", "x", "y", 2, (2,), ["replicate", "replicate"]),
        lambda: a.register_tensors("s", []),
        lambda: a.register_tensors("s", 3),
        lambda: a.register_tensors("s", [torch.ones(1)]),
        lambda: a.register_tensors("s", [(torch.ones(1), "none")]),
        lambda: a.register_tensors("s", [(torch.ones(1), "weights")], bucket_size=-1),
        lambda: a.register_tensors("s", [("text", "weights")]),
        lambda: a.register_tensors("s", [(torch.ones(1), "weights")], timeout=-1),
        lambda: a.transfer("s", "both", blocking=True),
        lambda: TensorBusClient("0"),
        lambda: TensorBusClient(0, port=0),
        lambda: Agent(3),
        lambda: t.agents[0].client(-2),
    ):
        with pytest.raises((stepvan.InvalidError, stepvan.ProtocolError, stepvan.RemoteError)):
            call()
    with pytest.raises(stepvan.InvalidError, match="this peer has an agent already"):
        Agent(t.c.peers[0])
    errors = []

    def fails(c, x):
        try:
            c.register_tensors("s", [(x, "weights")])
        except stepvan.InvalidError as error:
            errors.append(str(error))

    t.both(lambda: fails(a, torch.ones(3)), lambda: fails(b, torch.ones(4)))
    assert len(errors) == 2 and all("3" in e and "4" in e for e in errors), errors
    errors.clear()
    t.both(lambda: fails(a, torch.ones(3)), lambda: fails(b, torch.ones(3, dtype=torch.int64)))
    assert len(errors) == 2, errors
    assert a.query_status("s").state == "unknown"
    out, into = register(t, [a, b], [torch.ones(3), torch.zeros(3)], "s")  # nothing is left of the attempts
    exchange([out], [into])


def test_time_limits(town):
    t = town()
    a = t.client(0)
    began = time.monotonic()
    with pytest.raises(stepvan.TimeoutError, match="and of inference 0 of an unknown number"):
        a.init_pair("weights", "training", "inference", 1, timeout=0.2)
    open_pair(t, [a], [t.client(1)])
    with pytest.raises(stepvan.TimeoutError, match="RegisterTensors"):
        a.register_tensors("s", [(torch.ones(1), "weights")], timeout=0.2)
    assert time.monotonic() - began < 20 and a.query_status("s").state == "unknown"
    out, into = register(t, [a, t.clients[1]], [torch.ones(3), torch.zeros(3)], "s")
    sent = out.transfer("send")
    with pytest.raises(stepvan.TimeoutError, match="Transfer: it has not completed in time"):
        sent.wait(0.05)
    assert out.query_status().state == "transferring"
    with pytest.raises(stepvan.BusyError, match="round 1 has not completed"):
        out.close()
    into.transfer("recv", blocking=True)
    sent.wait()
    out.close()


def test_a_queue_of_five(town):
    t = town(1, queue=5)
    a = t.client()
    waiting = [a.init_pair(f"p{i}", "x", "y", 1, blocking=False, timeout=60) for i in range(5)]
    with pytest.raises(stepvan.WouldBlockError, match="5 commands of this client have not completed"):
        a.enqueue(QueryStatus(batch_id="b"))
    began = time.monotonic()
    with pytest.raises(stepvan.WouldBlockError):
        a.enqueue(QueryStatus(batch_id="b"), timeout=0.1)
    assert time.monotonic() - began >= 0.1
    freed = t.c.pool.submit(a.enqueue, QueryStatus(batch_id="b"), 30)
    other = t.client(0, 1)
    other.init_pair("p3", "y", "x", 1)
    waiting[3].wait()
    freed.result(30).wait()
    assert [r.done() for r in waiting] == [False, False, False, True, False]
    a.close()
    a.close()
    for r in waiting[:3]:
        with pytest.raises(stepvan.ClosedError, match="the client was closed"):
            r.wait()
    with pytest.raises(stepvan.ClosedError):
        a.query_status("b")


def test_commands_begin_in_order(town):
    t = town(1)
    a = t.client()
    ended = []
    for i in range(2000):
        a.enqueue(QueryStatus(batch_id=str(i)), 10)._pending.then(lambda i=i: ended.append(i))
    a.query_status("last")
    assert ended == list(range(2000))
    with pytest.raises(stepvan.InvalidError, match="use a name once"):
        first = InitPair(pair_name="p", local_name="x", expected_world_size=1, remote_name="y", semaphore_name="mine")
        a.enqueue(first)
        a.enqueue(first)
    with pytest.raises(stepvan.InvalidError, match="not registered"):
        a.enqueue(Transfer(batch_id="b", transfer_type="send")).wait()


def test_a_client_that_is_forgotten(town):
    """Its batches end, at all ranks, and its tensors go."""
    t = town()
    a, b = t.agents[0].client(0), t.client(1)
    open_pair(t, [a], [b])
    source = torch.ones(1000)
    out, into = register(t, [a, b], [source, torch.zeros(1000)])
    storage = weakref.ref(source)
    come = into.transfer("recv")
    del a, out, source
    gc.collect()
    with pytest.raises(stepvan.PeerLostError, match="a client of peer 0 has ended"):
        come.wait()
    assert into.query_status().state == "failed" and isinstance(into.query_status().error, stepvan.PeerLostError)
    deadline = time.monotonic() + 30
    while storage() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert storage() is None
    into.close()


def test_an_agent_that_is_closed(town):
    t = town()
    a, b = t.client(0), t.client(1)
    open_pair(t, [a], [b])
    out, into = register(t, [a, b], [torch.ones(3), torch.zeros(3)])
    come = into.transfer("recv")
    assert repr(t.agents[0]).startswith("<stepvan.tensor_bus.Agent: 0 at ")
    t.agents[0].close()
    with pytest.raises(stepvan.PeerLostError):
        come.wait()
    with pytest.raises(stepvan.PeerLostError, match="agent at .*0.sock: it has ended"):
        out.transfer("send", blocking=True)
    with pytest.raises(stepvan.TimeoutError, match="there is none .*: start one with python -m stepvan agent"):
        t.agents[0].client(0, connection_timeout=0.1)
    t.agents[0] = Agent(t.c.peers[0], path=t.agents[0].path)  # and another one
    a2, b2 = t.client(0), t.client(1)
    open_pair(t, [a2], [b2], "again")
    out, into = register(t, [a2, b2], [torch.ones(3), x := torch.zeros(3)], "again", "again")
    exchange([out], [into])
    assert torch.equal(x, torch.ones(3))


def test_bootstrap(town, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    t = town(2)
    t.agents[1].close()
    t.agents[1] = Agent(t.c.peers[1])
    port = t.c.settings["DMLC_PS_ROOT_PORT"]
    assert t.agents[1].path.endswith(f"/bus-{port}-1.sock")
    for name in "AGENT_RANK", "RANK", "AGENT_RANK_OFFSET":
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DMLC_PS_ROOT_PORT", port)
    for variables in {"AGENT_RANK": "1", "RANK": "7"}, {"RANK": "0", "AGENT_RANK_OFFSET": "1"}, {"RANK": "1"}:
        with monkeypatch.context() as m:
            for name, value in variables.items():
                m.setenv(name, value)
            with bootstrap_client(connection_timeout=10) as c:
                assert c.agent_rank == 1 and c.query_status("none").state == "unknown"
                assert repr(c) == "<stepvan.tensor_bus.TensorBusClient: of agent 1>"
    with pytest.raises(stepvan.InvalidError, match="AGENT_RANK and RANK are not set"):
        bootstrap_client()
    monkeypatch.setenv("AGENT_RANK", "one")
    with pytest.raises(stepvan.InvalidError, match="AGENT_RANK is 'one': it must be a number"):
        bootstrap_client()
    monkeypatch.delenv("AGENT_RANK")
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(stepvan.InvalidError, match="RANK is 'one'"):
        t.agents[0].client()
    monkeypatch.delenv("DMLC_PS_ROOT_PORT")
    with pytest.raises(stepvan.InvalidError, match="the port of the scheduler is ''"):
        TensorBusClient(0)


def test_threads(town):
    """Several threads use one client, and the rounds of their batches do not mix."""
    t = town()
    a, b = t.client(0), t.client(1)
    open_pair(t, [a], [b])
    failed = []

    def work(c, kind, i):
        try:
            x = torch.full((100,), float(i) if kind == "send" else 0.0)
            with c.register_tensors(f"batch {i}", [(x, "weights")]) as h:
                for _ in range(20):
                    h.transfer(kind, blocking=True)
            assert torch.equal(x, torch.full((100,), float(i)))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(c, kind, i)) for i in range(4) for c, kind in ((a, "send"), (b, "recv"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed and not any(thread.is_alive() for thread in threads), failed
