"""Particles over one node and over two, in this process."""

import asyncio
import gc
import os
import queue
import random
import threading
import time
import weakref

import numpy as np
import pytest
import torch
from particle_town import RECEIVE, Town, echo, halving, linear, sgd, where

import stepvan
from stepvan.particles import _wire, messages
from stepvan.particles.node_event_loop import NodeEventLoop
from stepvan.particles.pfuture import PFuture
from stepvan.particles.push import Nodes, PusH, serve


@pytest.fixture(params=[1, 2], ids=["one node", "two nodes"])
def town(request, cluster):
    """Makes a PusH over one node or two, with two devices in all."""
    made = []

    def make(mk_module=linear, *args, devices=None, **options):
        c = cluster(0, 0, request.param)
        made.append(Town(c.peers, mk_module, *args, devices=devices or 3 - request.param, **options))
        return made[-1]

    yield make
    for t in made:
        t.close()
        assert t.failures == []


X, Y = torch.linspace(-1, 1, 12).reshape(4, 3), torch.linspace(0, 1, 4).reshape(4, 1)


def plain(seed, steps, x=X, y=Y):
    """What a particle computes, without particles."""
    torch.manual_seed(seed)
    module = linear()
    optimizer = sgd(module.parameters())
    losses = []
    for _ in range(steps):
        module.zero_grad()
        loss = torch.nn.functional.mse_loss(module(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return module, losses


@pytest.mark.parametrize("cache_size", [1, 4])
def test_training_equals_a_plain_program(town, cache_size):
    t = town(cache_size=cache_size)
    pids = t.create(4)
    assert pids == [0, 1, 2, 3] == t.push.particle_ids() == t.push.nel.particles() and t.push.num_particles() == 4
    values = t.push.p_wait([t.push.p_launch(pid, "train", X, Y, 5) for pid in pids])
    for pid, losses in zip(pids, values.values(), strict=True):
        module, want = plain(pid, 5)
        assert losses == want
        assert all(torch.equal(a, b) for a, b in zip(t.push.p_parameters(pid), module.parameters(), strict=True))
    assert len({t.push.p_launch(pid, "where").wait()[2] for pid in pids}) >= 1


def test_views_show_one_moment(town):
    t = town()
    a, b = t.create(2)
    t.push.p_launch(b, "train", X, Y, 2).wait()
    first = t.push.nel.get(-1, b).wait()
    t.push.p_launch(b, "train", X, Y, 1).wait()
    second = t.push.nel.get(-1, b).wait()
    for view, steps in ((first, 2), (second, 3)):
        module, _ = plain(b, steps)
        seen = view.view()
        assert view.view() is seen and isinstance(seen, torch.nn.Linear)
        for p, q in zip(seen.parameters(), module.parameters(), strict=True):
            assert torch.equal(p, q) and torch.equal(p.grad, q.grad) and isinstance(p, torch.nn.Parameter)
        assert torch.equal(seen(X), module(X))
    params, grads = t.push.p_launch(a, "see", b).wait()
    assert torch.equal(params[0], second.view().weight) and torch.equal(grads[0], second.view().weight.grad)
    assert t.push.p_launch(a, "see", a).wait()[1] == [None, None], "a parameter without a gradient has none"


class Odd(torch.nn.Module):
    """Buffers, a number without dimensions, a sparse gradient, a tied parameter, and a reference beside the modules."""

    def __init__(self, lock=False):
        super().__init__()
        self.table = torch.nn.Embedding(5, 3, sparse=True)
        self.norm = torch.nn.BatchNorm1d(3)
        self.last = torch.nn.Linear(3, 5, bias=False)
        self.last.weight = self.table.weight if not lock else self.last.weight
        self.scale = torch.nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
        self.beside = [self.last]
        self.lock = threading.Lock() if lock else None

    def forward(self, i):
        return self.beside[0](self.norm(self.table(i))) * self.scale


def odd_gradient(particle):
    torch.nn.functional.embedding(torch.tensor([1, 1, 2]), particle.module.table.weight, sparse=True).sum().backward()
    particle.module(torch.tensor([0, 1, 2]))


def test_views_of_modules_of_many_kinds(town):
    t = town(Odd)
    a, b = (t.push.p_create(None, train_key=i, device=i, receive={"go": odd_gradient, "hand": hand_over}) for i in range(2))
    for pid, other in ((a, b), (b, a)):
        t.push.p_launch(pid, "go").wait()
        module = t.push.nel.get(-1, pid).wait().view()
        assert module.table.weight is module.last.weight is module.beside[0].weight
        assert module.table.weight.grad[:, 0].tolist() == [0, 2, 1, 0, 0] and module.scale.item() == 2 and module.scale.grad is None
        assert module.norm.num_batches_tracked.item() == 1
        module(torch.tensor([0, 1, 2]))  # which changes the buffers of the view alone
        assert t.push.nel.get(-1, pid).wait().view().norm.num_batches_tracked.item() == 1
        torch.manual_seed(pid)
        want = [p.detach() for p in Odd().parameters()]
        for got in (t.push.p_launch(other, "hand", pid).wait(), t.push.p_parameters(pid)):
            assert all(type(p) is torch.Tensor and torch.equal(p, q) for p, q in zip(got, want, strict=True))


def hand_over(particle, other):
    return list(particle.get(other).wait().view().parameters())  # as they are: the library copies them


def test_a_module_that_cannot_be_copied_has_no_view(town):
    t = town(Odd, True)
    a, b = (t.push.p_create(None, device=i, receive=RECEIVE) for i in range(2))
    for pid in (a, b):
        assert t.push.p_launch(pid, "echo", 1).wait() == (1,)
        with pytest.raises(stepvan.InvalidError, match="view: Odd cannot be copied .*lock"):
            t.push.nel.get(-1, pid).wait().view()


def test_a_module_without_parameters(town):
    t = town(torch.nn.Tanh)
    a, b = (t.push.p_create(None, device=i, receive=RECEIVE) for i in range(2))
    for pid in (a, b):
        assert list(t.push.nel.get(-1, pid).wait().view().parameters()) == [] == t.push.p_parameters(pid)
        assert torch.equal(t.push.nel.forward(pid, X).wait(), X.tanh())


def test_views_are_only_for_reading(town):
    t = town()
    a, b = t.create(2)
    t.push.p_launch(b, "train", X, Y, 1).wait()
    module = t.push.nel.get(-1, b).wait().view()
    w = module.weight
    before = w.clone()
    with torch.no_grad():
        for write in (
            lambda: w.add_(1), lambda: w.data.zero_(), lambda: w[0].fill_(2), lambda: w.detach().mul_(3), lambda: w.__setitem__(0, 4.0),
            lambda: w.view(-1)[1:].copy_(torch.ones(2)), lambda: torch.add(w, 1, out=w.data), lambda: w.grad.zero_(), lambda: w.t().sub_(1),
            lambda: torch.nn.functional.relu(w, inplace=True), lambda: torch.nn.init.zeros_(w), lambda: w.__iadd__(1),
            lambda: w.chunk(3, 1)[0].zero_(), lambda: setattr(w, "data", torch.zeros(1, 3)), lambda: torch._foreach_add_([w], 1.0),
        ):  # fmt: skip
            with pytest.raises(stepvan.InvalidError, match="a view of another particle is only for reading: use .clone()"):
                write()
        with pytest.raises(ValueError, match="read-only"):
            w.detach().numpy()[0] = 1
        optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
        with pytest.raises(stepvan.InvalidError):
            optimizer.step()
    assert torch.equal(w, before)
    fresh = w + 1
    fresh.zero_()  # no view
    target = linear()
    target.load_state_dict(module.state_dict())
    import copy

    mine = copy.deepcopy(module)
    with torch.no_grad():
        mine.weight.zero_()
    assert torch.equal(target.weight, before) and torch.equal(w, before)
    assert torch.equal(torch.nn.utils.parameters_to_vector(module.parameters())[:3], before.flatten())
    x = X.clone().requires_grad_()
    module(x).sum().backward()
    assert torch.equal(x.grad, before.expand(4, 3))


def test_arguments_and_results_survive_the_journey(town):
    t = town()
    a, b = t.create(2)
    sent = (1, -2.5, "text", None, True, b"bytes", [X, (Y, {"k": X})], {1: 2, "x": (3,)}, {4, 5}, frozenset([6]), 2j, torch.float16,
            torch.Size([2, 3]), torch.device("cpu"), torch.nn.functional.mse_loss, torch.sin, torch.optim.Adam, halving)  # fmt: skip
    for target, got in ((b, t.push.p_launch(b, "echo", *sent).wait()), (b, t.push.p_launch(a, "relay", b, "echo", *sent).wait())):
        assert type(got) is tuple and len(got) == len(sent), target
        for mine, theirs in zip(sent[:6] + sent[7:], got[:6] + got[7:], strict=True):
            assert theirs == mine and type(theirs) is type(mine)
        assert type(got[6][1]) is tuple and torch.equal(got[6][0], X) and torch.equal(got[6][1][1]["k"], X)
    for x in (torch.zeros(0, 3), torch.tensor(7), X.t(), X[:, ::2], X.bfloat16(), torch.ones(3, dtype=torch.complex64), X.clone().requires_grad_()):
        (got,) = t.push.p_launch(b, "echo", x).wait()
        assert got.shape == x.shape and got.dtype == x.dtype and torch.equal(got, x) and not got.requires_grad
    for array in (np.arange(6).reshape(2, 3), np.arange(6)[::-2], np.float32(2.5), np.zeros((0, 2)), np.array(3)):
        (got,) = t.push.p_launch(b, "echo", array).wait()
        assert type(got) is type(array) and got.dtype == array.dtype and got.shape == array.shape and (got == array).all()
    with pytest.raises(stepvan.InvalidError, match="torch has no tensor with its elements"):
        t.push.p_launch(b, "echo", np.array(["text"]))


def test_an_argument_is_copied_when_it_is_sent(town):
    t = town()
    a, b = t.create(2)
    x = torch.zeros(1000)
    future = t.push.p_launch(b, "echo", x)
    x += 1
    assert future.wait()[0].sum() == 0


def test_what_cannot_be_sent_is_named_before_anything_is_sent(town):
    t = town()
    a, b = t.create(2)
    seen = []
    t.push.nel.register_receive(a, "count", lambda particle, *args: seen.append(args), None)

    def inner(particle):
        pass

    for wrong, text in [
        (lambda x: x, "test_particles.test_.*<lambda> cannot be sent: it is a lambda"),
        (inner, "inner cannot be sent: it is a function within a function"),
        (seen.append, "cannot be sent: it is a method of an object"),
        (object(), "<object object at .* cannot be sent: send tensors"),
        ({"deep": [threading.Lock()]}, "cannot be sent"),
        (X.to_sparse(), "only dense tensors"),
        (1 << 70, "cannot be sent"),
        ([[[]]], None),
    ]:
        for pid in (a, b):
            if text is None:
                t.push.p_launch(b, "echo", wrong).wait()
                continue
            with pytest.raises(stepvan.InvalidError, match=text) as caught:
                t.push.p_launch(pid, "count" if pid == a else "echo", wrong)
            assert f"to particle {pid}" in str(caught.value)
    endless = []
    endless.append(endless)
    with pytest.raises(stepvan.InvalidError, match="send containers that end"):
        t.push.p_launch(a, "count", endless)
    with pytest.raises(stepvan.InvalidError, match="it has 1025 tensors"):
        t.push.p_launch(a, "count", [X] * 1025)
    assert seen == []


def test_an_error_reaches_its_caller_and_ends_nothing_else(town):
    t = town()
    a, b = t.create(2)
    bad = t.push.p_launch(b, "fail", "no luck")
    good = t.push.p_launch(b, "echo", 1)
    for _ in range(2):
        with pytest.raises(stepvan.RemoteError, match=r"(?s)Traceback .*in fail.*ValueError: no luck"):
            bad.wait()
    assert good.wait() == good.wait() == (1,)
    with pytest.raises(stepvan.RemoteError, match=r"(?s)RemoteError.*ValueError: further"):
        t.push.p_launch(a, "relay", b, "fail", "further").wait()
    with pytest.raises(stepvan.RemoteError, match="the result of odd: <object"):
        if b in t.push.nel._local:
            t.push.nel.register_receive(b, "odd", lambda particle: object(), None)
        else:
            t.push.nel.register_receive(b, "odd", odd, None)
        t.push.p_launch(b, "odd").wait()
    assert t.push.p_launch(b, "echo", 2).wait() == (2,)


def odd(particle):
    return object()


def many(particle):
    return [torch.zeros(1)] * 1025


def unsaid(particle):
    raise ValueError("half a letter \udc80 and \0")


def test_a_result_that_cannot_be_sent_ends_its_call(town):
    t = town()
    for pid in t.create(2, receive={**RECEIVE, "many": many, "unsaid": unsaid}):
        with pytest.raises(stepvan.RemoteError, match="it has 1025 tensors"):
            t.push.p_launch(pid, "many").wait(30)
        with pytest.raises(stepvan.RemoteError, match=r"ValueError: half a letter \\udc80 and \\0"):
            t.push.p_launch(pid, "unsaid").wait(30)
        assert t.push.p_launch(pid, "echo", 1).wait(30) == (1,), "the device goes on"


def test_a_failure_that_is_no_text_ends_its_call(town, monkeypatch):
    t = town()
    done = stepvan._core.particle_done
    pids = t.create(2)
    for wrong in (3, "a\0b", "\udc80"):
        monkeypatch.setattr(stepvan._core, "particle_done", lambda *args, wrong=wrong: done(*args[:5], wrong))
        futures = [t.push.p_launch(pid, "echo", 1) for pid in pids]
        for future in futures:
            with pytest.raises(stepvan.RemoteError, match="failure is .*: it must be text without a 0 character"):
                future.wait(30)
    monkeypatch.undo()
    assert [t.push.p_launch(pid, "echo", 1).wait(30) for pid in pids] == [(1,), (1,)]


def test_the_unknown_is_refused_at_the_caller(town):
    t = town()
    a, b = t.create(2)
    nel = t.push.nel
    for call in (
        lambda: t.push.p_launch(7, "echo"), lambda: t.push.p_parameters(7), lambda: nel.get(a, 7), lambda: nel.step(7, None, X, Y),
        lambda: nel.register_receive(7, "m", echo, None), lambda: nel.forward("x", X), lambda: nel.zero_grad(-1),
    ):  # fmt: skip
        with pytest.raises(stepvan.InvalidError, match="particle .*: there is none"):
            call()
    for pid in (a, b):
        with pytest.raises(stepvan.InvalidError, match="nothing"):
            t.push.p_launch(pid, "nothing").wait()
    for wrong in ("", ".step", "x" * 129, 3, "a\0b"):
        with pytest.raises(stepvan.InvalidError, match="msg is "):
            t.push.p_launch(a, wrong)
    with pytest.raises(stepvan.InvalidError, match="fn is 3"):
        nel.register_receive(a, "m", 3, None)
    with pytest.raises(stepvan.InvalidError, match="pfutures has 3"):
        nel.wait([3])
    for wrong in (dict(device=2), dict(device=-1), dict(device=(9, 0)), dict(device="0"), dict(receive=3), dict(receive={"m": 3}), dict(receive={".m": echo})):
        with pytest.raises(stepvan.InvalidError):
            t.push.p_create(sgd, **wrong)
    assert t.push.particle_ids() == [a, b]


def test_a_chain_that_comes_back(town):
    """A to B to A; and several at once."""
    t = town()
    pids = t.create(3)
    launched = [t.push.p_launch(path[0], "pass_on", path[1:]) for path in ([0, 1, 0, 1], [1, 0, 1, 0], [0, 0, 0], [2, 0, 2, 1, 2], [1, 2, 0])]
    assert [future.wait(30) for future in launched] == [[0, 1, 0, 1], [1, 0, 1, 0], [0, 0, 0], [2, 0, 2, 1, 2], [1, 2, 0]]
    assert pids == [0, 1, 2]


def test_random_schedules(town):
    """Particles that wait for each other, in cycles over both nodes, with one place on each device."""
    t = town(cache_size=1)
    pids = t.create(3)
    rng = random.Random(5)
    for _ in range(100):
        paths = [[rng.choice(pids) for _ in range(rng.randrange(2, 6))] for _ in range(6)]
        launched = [t.push.p_launch(path[0], "pass_on", path[1:]) for path in paths]
        more = [t.push.p_launch(pid, "train", X, Y, 1) for pid in pids]
        assert [future.wait(30) for future in launched] == paths
        t.push.p_wait(more)


def test_operations_of_a_loop(town):
    t = town()
    a, b = t.create(2, mk_scheduler=halving)
    nel = t.push.nel
    for pid in (a, b):
        module, losses = plain(pid, 1)
        assert nel.step(pid, torch.nn.functional.mse_loss, X, Y).wait().item() == losses[0]
        assert torch.equal(nel.forward(pid, X).wait(), module(X))
        assert nel.zero_grad(pid).wait() is None and nel.scheduler_step(pid, "unused").wait() is None
        grads = [p.grad for p in nel.get(-1, pid).wait().view().parameters()]
        assert all(g is None or not g.any() for g in grads)
        if pid in nel._local:
            assert nel._local[pid].cache.optimizer(pid).param_groups[0]["lr"] == 0.05
    y = nel.forward(a, X).wait()
    assert y.grad_fn is not None, "in this process the result has its graph"
    got = nel.step(a, lambda out, label: ((out - label) ** 2).sum(), X, Y).wait()  # nothing of it travels
    assert not got.requires_grad


def let_go(particle, x, y):
    for _ in range(3):
        particle.step(torch.nn.functional.mse_loss, x, y)
    particle.send(particle.pid, "fail", "nobody asks")


def test_operations_run_although_their_futures_are_forgotten(town):
    t = town()
    for pid in t.create(2, receive={**RECEIVE, "let_go": let_go}):
        t.push.nel.step(pid, torch.nn.functional.mse_loss, X, Y)
        t.push.p_launch(pid, "train", X, Y, 1)
        t.push.p_launch(pid, "let_go", X, Y).wait()
        assert t.push.p_launch(pid, "train", X, Y, 1).wait() == [plain(pid, 6)[1][-1]]


def test_no_scheduler_and_no_optimizer(town):
    t = town()
    a, b = (t.push.p_create(None, train_key=i, device=i, receive=RECEIVE) for i in range(2))
    for pid in (a, b):
        before = t.push.p_parameters(pid)
        t.push.nel.scheduler_step(pid).wait()
        t.push.p_launch(pid, "train", X, Y, 2).wait()
        assert all(torch.equal(p, q) for p, q in zip(before, t.push.p_parameters(pid), strict=True))


def remember(particle, key, value):
    particle.state[key] = value
    return dict(particle.state)


def test_states(town):
    t = town()
    mine = {"start": 1}
    a = t.push.p_create(sgd, device=0, receive={"remember": remember}, state=mine)
    b = t.push.p_create(sgd, device=1, receive={"remember": remember})
    c = t.push.p_create(sgd, device=1, receive={"remember": remember})
    assert t.push.p_launch(a, "remember", "x", 2).wait() == {"start": 1, "x": 2} == mine
    assert t.push.p_launch(b, "remember", "x", 3).wait() == {"x": 3}
    assert t.push.p_launch(c, "remember", "y", 4).wait() == {"y": 4}, "the default is not shared"
    t.push.nel.register_receive(b, "other", remember, {"own": 5})
    assert t.push.p_launch(b, "other", "z", 6).wait() == {"own": 5, "z": 6}


def test_futures(town):
    t = town()
    a, b = t.create(2)
    one, two = t.push.p_launch(a, "echo", 1), t.push.p_launch(b, "echo", 2)
    assert one == one and one != two and one == one._fid and {one: 1}[one._fid] == 1 and one != "x" and "PFuture" in repr(one)
    values = t.push.p_wait([two, one])
    assert list(values.values()) == [(2,), (1,)] and values[one] == (1,) and values[two._fid] == (2,)
    assert one.done() and one.wait(0) == (1,) and t.push._wait(two._fid) == (2,)

    async def gather():
        return await asyncio.gather(*(t.push.p_launch(pid, "echo", i) for i, pid in enumerate([a, b, a, b])))

    assert asyncio.run(gather()) == [(0,), (1,), (2,), (3,)]
    go = threading.Event()
    t.push.nel.register_receive(a, "stop", lambda particle: go.wait(30), None)
    late = t.push.p_launch(a, "stop")
    assert not late.done()
    with pytest.raises(stepvan.TimeoutError):
        late.wait(0.05)
    go.set()
    assert late.wait() is True


def test_a_function_that_waits_for_itself_is_told(town):
    t = town()
    (a,) = t.create(1)
    box = []

    def hook(particle):
        while not box:
            time.sleep(0.001)
        return box[0].wait()

    t.push.nel.register_receive(a, "self", hook, None)
    box.append(t.push.p_launch(a, "self"))
    with pytest.raises(stepvan.RemoteError, match="InvalidError"):
        box[0].wait(30)
    assert t.push.p_launch(a, "echo", 1).wait() == (1,)


def test_a_device_continues_while_a_function_waits_or_never_ends(town):
    t = town()
    a, b = t.create(2)
    go = threading.Event()
    t.push.nel.register_receive(a, "never", lambda particle: go.wait(60), None)
    stuck = t.push.p_launch(a, "never")
    assert t.push.p_launch(b, "echo", 1).wait(30) == (1,), "the other device goes on"
    go.set()
    stuck.wait()


@pytest.mark.parametrize("error", [stepvan.OutOfMemoryError, stepvan.WouldBlockError])
def test_a_device_continues_after_calls_without_room(town, monkeypatch, error):
    t = town()
    pids = t.create(2)
    take, refused = stepvan._core.particle_next, []

    def without_room(loop, device, limit):
        if refused.count((loop, device)) < 2:
            refused.append((loop, device))
            raise error("no room")
        return take(loop, device, limit)

    monkeypatch.setattr(stepvan._core, "particle_next", without_room)
    for i in range(3):
        assert [t.push.p_launch(pid, "echo", i).wait(30) for pid in pids] == [(i,), (i,)]
    assert len(refused) == 4


def test_a_thread_that_ends_is_not_counted(town, monkeypatch):
    calls = town(devices=2).push.nel._calls
    take, before = stepvan._core.particle_next, set(calls._threads)

    def broken_next(*args):
        if threading.current_thread() in before:
            return take(*args)
        raise stepvan.InternalError("the node has ended")

    monkeypatch.setattr(stepvan._core, "particle_next", broken_next)
    started = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread, start=threading.Thread.start: (started.append(thread), start(thread)))
    calls._add_thread(1)  # a device that nothing uses, so its other thread stays as it is
    started[0].join(30)
    assert not started[0].is_alive() and calls._idle[1] == 1 and started[0] not in calls._threads


def gather(particle, *others):
    async def ask(other):
        return await particle.send(other, "echo", other)

    async def ask_all():
        return await asyncio.gather(*(ask(other) for other in others))

    return asyncio.run(ask_all())


met = threading.Event()


def later(particle):
    return met.wait(30)


def meet(particle, other):
    """One task awaits what another task lets happen."""

    async def let():
        for _ in range(3):
            await asyncio.sleep(0)
        met.set()

    async def both():
        return await asyncio.gather(particle.send(other, "later"), let())

    met.clear()
    return asyncio.run(both())[0]


def test_a_function_that_awaits_gives_its_turn_away(town):
    t = town()
    a, b = t.create(2, receive={**RECEIVE, "gather": gather, "later": later, "meet": meet})
    for pid in (a, b):
        assert t.push.p_launch(pid, "gather", a, b, pid, a).wait(30) == [(a,), (b,), (pid,), (a,)]
    for pid, other in ((a, b), (b, a)):
        assert t.push.p_launch(pid, "meet", other).wait(40) is True


def test_pinned_particles_refuse(town):
    t = town(cache_size=1)
    devices = len(t.push.nel.devices) * t.push._node.peer.size
    a = t.push.p_create(sgd, device=0, receive=RECEIVE, train_key=0)
    b = t.push.p_create(sgd, device=0, receive=RECEIVE, train_key=1)
    cache = t.push.nel.particle_caches[0]
    assert cache.try_pin(b) and devices == 2
    with pytest.raises(stepvan.RemoteError, match="BusyError: particle 0: its position on device 0 has a pinned particle"):
        t.push.p_launch(a, "train", X, Y, 1).wait()
    with pytest.raises(stepvan.RemoteError, match="BusyError"):
        t.push.p_create(sgd, device=0)
    assert t.push.nel.get(-1, a).wait().view().weight.shape == (1, 3), "a view needs no place on the device"
    cache.unpin(b)
    assert t.push.p_launch(a, "train", X, Y, 1).wait() == plain(0, 1)[1]


def test_a_module_that_cannot_be_made(town):
    t = town()
    for device in (0, 1):
        with pytest.raises(stepvan.RemoteError, match="no optimizer today"):
            t.push.p_create(broken, device=device)
    pid = t.push.p_create(sgd, receive=RECEIVE)
    assert t.push.particle_ids() == [pid] and t.push.p_launch(pid, "echo", 1).wait() == (1,)


def names(particle):
    return particle.particle_ids(), particle.other_particles()


def reach(particle, pid):
    return particle.send(pid, "echo").wait()


def test_nobody_sees_an_id_without_a_module(town):
    t = town()
    receive = {**RECEIVE, "names": names, "reach": reach}
    made = []
    for device in (0, 1, 1, 0):  # some loops hear of a failure when it happens, and others with their first particle
        for wrong in (0, 1):
            with pytest.raises(stepvan.RemoteError, match="no optimizer today"):
                t.push.p_create(broken, device=wrong)
        made.append(t.push.p_create(sgd, device=device, receive=receive))
        assert made == t.push.particle_ids() == t.push.nel.particles()
        for pid in made:
            assert t.push.p_launch(pid, "names").wait(30) == (made, [x for x in made if x != pid])
    with pytest.raises(stepvan.InvalidError, match="particle 1: there is none"):
        t.push.p_launch(1, "echo")
    for pid in made:
        with pytest.raises(stepvan.RemoteError, match="particle 1: there is none"):
            t.push.p_launch(pid, "reach", 1).wait(30)


def broken(parameters):
    raise RuntimeError("no optimizer today")


def test_saving(town, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    t = town()
    pids = t.create(3)
    t.push.save()
    files = sorted(p.name for p in (tmp_path / "particles").iterdir())
    assert len(files) == 3 and all(f.endswith(".pth") for f in files)
    for pid in pids:
        (path,) = (tmp_path / "particles").glob(f"*particle{pid}.pth")
        assert torch.equal(torch.load(path)["weight"], t.push.p_parameters(pid)[0])


@pytest.mark.parametrize("allow", [False, True])
def test_pickle(town, allow):
    t = town(allow_pickle=allow)
    a, b = t.create(2)
    value = torch.nn.MSELoss()
    for pid in (a, b):
        if allow:
            assert isinstance(t.push.p_launch(pid, "echo", value).wait()[0], torch.nn.MSELoss)
        else:
            with pytest.raises(stepvan.InvalidError, match="allow_pickle sends more"):
                t.push.p_launch(pid, "echo", value)


class Bomb:
    went_off = False

    def __reduce__(self):
        return setattr, (Bomb, "went_off", True)


def test_a_pickled_frame_is_refused_unread(town):
    t = town()
    a, b = t.create(2)
    Bomb.went_off = False
    payload = _wire.encode("x", [Bomb()], True)
    assert payload[2] == _wire.PICKLED
    for pid in (a, b):
        with pytest.raises(stepvan.NotSupportedError):
            number = stepvan._core.particle_send(t.push.nel._calls.number, 0, -1, pid, "echo", *payload)
            t.push.nel._wait(number)
    with pytest.raises(stepvan.NotSupportedError, match="it is pickled, and this loop does not allow that"):
        _wire.decode("x", payload)
    assert not Bomb.went_off
    _wire.decode("x", payload, True)
    assert Bomb.went_off


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc1", b"\xc1" + bytes(16), b"\x91\xc7", b"\xc7\x01\x63\x01", b"\xd4\x01\x05", b"\xc7\x03\x03\x92\xa1x", b"\x81\xa1a", bytes(range(256)), b"\x07"],
)
def test_foreign_bytes_do_no_harm(town, payload):
    t = town()
    a, b = t.create(2)
    for pid in (a, b):
        for name in ("echo", ".step", ".create", ".nothing", ".register", ".save"):
            number = stepvan._core.particle_send(t.push.nel._calls.number, 0, -1, pid, name, payload, [], 0)
            with pytest.raises(stepvan.RemoteError):
                if t.push.nel._wait(number) is not None:
                    raise stepvan.RemoteError("an empty list of arguments is valid")
                raise stepvan.RemoteError("so is none")
        assert t.push.p_launch(pid, "echo", 1).wait() == (1,)


@pytest.mark.timeout(600)
def test_nothing_grows(town):
    """STEPVAN_TEST_EXCHANGES is how many operations it makes."""
    rounds = max(1, int(os.environ.get("STEPVAN_TEST_EXCHANGES", "600")) // 1200)
    t = town(cache_size=1)
    pids = t.create(4)
    loop = t.push.nel._calls

    def sizes():
        gc.collect()
        return len(loop._given), len(loop._jobs), len(loop._asked), len(loop._results), len(loop._threads) <= 12, len(t.push.nel._views)

    def play():
        for i in range(100):
            pid = pids[i % 4]
            t.push.p_launch(pid, "train", X, Y, 1).wait()
            t.push.p_launch(pid, "see", pids[(i + 1) % 4]).wait()
            t.push.nel.get(-1, pid).wait().view()
        t.push.p_wait([t.push.p_launch(pid, "echo", X) for pid in pids * 50])

    play()
    before = sizes()
    for _ in range(rounds):
        play()
    assert sizes() == before and before[:4] == (0, 0, 0, 0)


def test_views_are_released(town):
    t = town()
    a, b = t.create(2)
    view = t.push.nel.get(-1, b).wait()
    again = t.push.nel.get(-1, b).wait()
    if b in t.push.nel._local:
        assert again._parts is view._parts and again.view() is not view.view(), "the same memory, shown once"
        assert stepvan._core.particle_views(t.push.nel._calls.number, b) > 0
    gone = weakref.ref(view)
    del view, again
    gc.collect()
    assert gone() is None
    if b in t.push.nel._local:
        assert stepvan._core.particle_views(t.push.nel._calls.number, b) == 0


def test_a_driver_with_queues():
    inbox, outbox = queue.Queue(), queue.Queue()
    loop = NodeEventLoop(linear, (3,), inbox, outbox, 0, 2, 4, 4)
    assert (loop.mk_module, loop.args, loop.in_queue, loop.out_queue, loop.rank, loop.devices) == (linear, (3,), inbox, outbox, 0, [0, 1])
    runner = threading.Thread(target=loop.run)
    runner.start()
    m = messages

    def tell(message, want):
        inbox.put(message)
        answer = outbox.get(timeout=30)
        assert type(answer) is want, answer
        return answer

    assert isinstance(outbox.get(timeout=30), m.NodeEvtLoopInitMSG)
    for pid in range(2):
        tell(m.ReceiveParticleInitPDMSG(pid, pid, sgd, halving, False, pid, RECEIVE, {}), m.ReceiveParticleInitAckPDMSG)
    tell(m.NELBroadcastParticlesMSG({}, {}, {0: 0, 1: 1}), m.NELBroadcastParticlesAckMSG)
    tell(m.ReceiveRegisterPDMSG(0, "extra", where, None), m.ReceiveRegisterAckPDMSG)
    done = tell(m.ReceiveFuncPDMSG((0, 5), 0, "train", [X, Y, 2]), m.ReceiveFuncAckPDMSG)
    assert done.pid_fid == (0, 5) and done.result == plain(0, 2)[1]
    params = tell(m.ReceiveParametersPDMSG((0, 6), 0), m.ReceiveParametersAckPDMSG)
    assert params.pid_fid == (0, 6) and torch.equal(params.params[0], plain(0, 2)[0].weight)
    got = tell(m.ReceiveGetMSG((1, 7), 1, 0), m.ReceiveGetAckMSG)
    assert (got.fid, got.pid) == (7, 0) and torch.equal(got.params[0], params.params[0]) and got.params_grad[0] is not None
    tell(m.ReceiveFuncMSG((1, 8), 0, "extra", []), m.ReceiveFuncAckMSG)
    assert tell(m.ReceiveFuncPDMSG((0, 9), 0, "fail", ["no luck"]), stepvan.RemoteError).pid_fid == (0, 9)
    assert tell(m.ReceiveFuncPDMSG((5, 10), 5, "fail", ["no luck"]), stepvan.InvalidError).pid_fid == (5, 10)
    assert tell(m.ReceiveParticleInitPDMSG(9, 2, sgd, None, False, 0, {}, {}), stepvan.InvalidError).pid_fid is None
    tell("nonsense", stepvan.InvalidError)
    tell(m.ReceiveParticleInitPDMSG(0, 2, broken, None, False, 0, {}, {}), stepvan.RemoteError)
    tell(m.ReceiveParticleInitPDMSG(0, 3, sgd, None, False, 0, {}, {}), m.ReceiveParticleInitAckPDMSG)
    assert loop.particles() == [0, 1, 3]
    inbox.put(m.NodeEvtLoopCleanupMSG())
    runner.join(30)
    assert not runner.is_alive()


def test_one_thread_answers_a_driver_with_queues():
    inbox, outbox, go = queue.Queue(), queue.Queue(), threading.Event()
    loop = NodeEventLoop(linear, (3,), inbox, outbox, 0, 1, 4, 4)
    m = messages
    runner = threading.Thread(target=loop.run)
    runner.start()
    assert isinstance(outbox.get(timeout=30), m.NodeEvtLoopInitMSG)
    receive = {**RECEIVE, "stay": lambda particle: go.wait(60)}
    for message in (m.ReceiveParticleInitPDMSG(0, 0, sgd, None, False, 0, receive, {}), m.ReceiveRegisterPDMSG(0, "extra", echo, None)):
        inbox.put(message)
        outbox.get(timeout=30)
    inbox.put(m.ReceiveFuncPDMSG((0, 0), 0, "stay", []))
    for fid in range(1, 300):
        inbox.put(m.ReceiveFuncPDMSG((0, fid), 0, "fail" if fid % 3 == 0 else "echo", [fid]))
    inbox.put(m.ReceiveParametersPDMSG((9, 300), 9))  # refused at once, so all before it have begun
    assert outbox.get(timeout=30).pid_fid == (9, 300)
    assert len([t for t in threading.enumerate() if t.name == "stepvan particles answers"]) == 1 and threading.active_count() < 50
    go.set()
    answers = {a.pid_fid[1]: a for a in (outbox.get(timeout=30) for _ in range(300))}
    assert sorted(answers) == list(range(300)) and answers[0].result is True
    for fid in range(1, 300):
        if fid % 3 == 0:
            assert isinstance(answers[fid], stepvan.RemoteError)
        else:
            assert answers[fid].result == (fid,)
    inbox.put(m.NodeEvtLoopCleanupMSG())
    runner.join(30)
    assert not runner.is_alive()


def test_what_a_loop_leaves_at_its_end_is_answered():
    inbox, outbox, go, inside = queue.Queue(), queue.Queue(), threading.Event(), threading.Event()
    loop = NodeEventLoop(linear, (3,), inbox, outbox, 0, 1, 4, 4)
    m = messages
    runner = threading.Thread(target=loop.run)
    runner.start()
    outbox.get(timeout=30)

    def stay(particle):
        inside.set()
        go.wait(60)

    inbox.put(m.ReceiveParticleInitPDMSG(0, 0, sgd, None, False, 0, {**RECEIVE, "stay": stay}, {}))
    outbox.get(timeout=30)
    for fid, name in enumerate(("stay", "echo", "echo")):
        inbox.put(m.ReceiveFuncPDMSG((0, fid), 0, name, []))
    assert inside.wait(30)
    inbox.put(m.NodeEvtLoopCleanupMSG())
    answers = [outbox.get(timeout=30) for _ in range(3)]
    assert {a.pid_fid[1] for a in answers} == {0, 1, 2} and all(isinstance(a, stepvan.ClosedError) for a in answers)
    go.set()
    runner.join(30)
    assert not runner.is_alive()


def test_a_loop_whose_program_is_interrupted_closes():
    class Interrupted(queue.Queue):
        def get(self):
            raise KeyboardInterrupt

    loop = NodeEventLoop(linear, (3,), Interrupted(), queue.Queue(), 0, 1, 4, 4)
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    assert loop._calls.closed and not loop._own_node.alive


def test_every_message_survives_its_journey():
    fields = {"pid_fid": (3, 4), "in_queues": None, "out_queues": [], "particle_to_device": {0: 1}, "pid": 5, "result": (X, "r"), "msg_name": "m",
              "args": [X, 1], "pid_to": 6, "msg": "m", "fid": 7, "params": [X, Y], "params_grad": [None, Y], "pid_caller": 8, "params_": X,
              "device": 0, "mk_optim": sgd, "mk_scheduler": halving, "prior": True, "train_key": None, "receive": {"echo": echo}, "state": {"s": X},
              "fn": echo}  # fmt: skip

    def same(a, b):
        if isinstance(a, torch.Tensor):
            return torch.equal(a, b)
        if isinstance(a, list | tuple):
            return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
        if isinstance(a, dict):
            return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
        return a == b

    for name in messages.__all__:
        if name == "MSG":
            continue
        kind = getattr(messages, name)
        given = {f: fields[f] for f in kind.__dataclass_fields__}
        made = _wire.decode("m", _wire.encode("m", kind(**given)))
        assert type(made) is kind and all(same(given[f], getattr(made, f)) for f in given), name
    with pytest.raises(stepvan.InvalidError, match="m: receive: .*<lambda> cannot be sent: it is a lambda"):
        _wire.encode("m", messages.ReceiveParticleInitPDMSG(0, 0, sgd, None, False, 0, {"x": lambda p: p}, {}))


def test_arguments_that_contradict():
    for wrong in (dict(multi=3), dict(multi="x"), dict(multi=Nodes(devices=1)) | dict(view_size=0), dict(cache_size=0)):
        with pytest.raises(stepvan.InvalidError):
            PusH(linear, 3, **wrong)
    for wrong in (0, [], [1, 1], [-1], "2", True):
        with pytest.raises(stepvan.InvalidError, match="devices is "):
            Nodes(devices=wrong)
    with pytest.raises(stepvan.InvalidError, match="node is 3"):
        Nodes(3)
    for queues in ((None, queue.Queue()), (queue.Queue(), 3)):
        with pytest.raises(stepvan.InvalidError, match="it must have put and get"):
            NodeEventLoop(linear, (), *queues, 0, 1, 1, 1)


def test_only_the_driver_makes_particles(cluster):
    c = cluster(0, 0, 2)
    with pytest.raises(stepvan.InvalidError, match="this process is not the driver: call serve"):
        PusH(linear, 3, multi=c.peers[1])
    with pytest.raises(stepvan.InvalidError, match="it is the driver"):
        serve(linear, 3, multi=c.peers[0])


def test_a_particle_and_its_loop_have_names(town):
    t = town()
    (a,) = t.create(1)
    seen = []
    t.push.nel.register_receive(a, "look", lambda p: seen.append((p.pid, p.device, p.particle_ids(), p.other_particles(), repr(p))), None)
    t.push.p_launch(a, "look").wait()
    assert seen == [(0, 0, [0], [], "<Particle 0 on device 0>")]
    assert repr(t.push) == "<PusH: 1 particles>" and "1 particles" in repr(t.push.nel)
    assert isinstance(t.push.nel.get(-1, a), PFuture) and repr(t.push.nel.get(-1, a).wait()) == "<ParticleView of particle 0>"
