"""Batches that have arrived, but cannot be shown, are not lost."""

import pytest
import torch

import stepvan
from stepvan import _frameworks


class Failing:
    """torch, where making a tensor fails once, at the given time."""

    def __init__(self, error, at=0):
        self.error = error
        self.at = at
        self.made = -1  # one is made when it is learnt

    def __getattr__(self, name):
        return getattr(torch, name)

    def empty(self, *args, **kwargs):
        self.made += 1
        if self.made == self.at + 1:
            raise self.error
        return torch.empty(*args, **kwargs)


@pytest.fixture
def fails():
    def use(error, at=0):
        _frameworks._use_torch(Failing(error, at))

    yield use
    _frameworks._use_torch(torch)


def push(c, worker, value, key=1):
    y = torch.zeros(2)
    return c.workers[worker].worker.push_pull([torch.full((2,), value)], [key], [y], [2]), y


def answer(batch, handles):
    for request in batch:
        request.respond([request.tensors[0] * 2])
    for handle, _ in handles:
        handle.wait(10)


@pytest.mark.parametrize("error", [ImportError, MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("at", [0, 1])
def test_a_batch_that_cannot_be_shown_is_given_again(cluster, fails, error, at):
    c = cluster(workers=2)
    server = c.servers[0].server
    handles = [push(c, 0, 3.0), push(c, 1, 4.0)]
    fails(error("once"), at)
    with pytest.raises(error, match="once"):
        server.get_batch("lockstep", timeout=10)
    batch = server.get_batch(5, timeout=0)  # its policy is that of who took it
    assert [(r.worker, r.keys, r.tensors[0].tolist()) for r in batch] == [(0, [1], [3, 3]), (1, [1], [4, 4])]
    answer(batch, handles)
    assert [y.tolist() for _, y in handles] == [[6, 6], [8, 8]]
    with pytest.raises(stepvan.TimeoutError):
        server.get_batch("any", timeout=0)


def test_batches_are_given_in_their_order(cluster, fails):
    c = cluster()
    server = c.servers[0].server
    handles = [push(c, 0, 3.0), push(c, 0, 4.0, key=7)]
    fails(MemoryError("once"))
    with pytest.raises(MemoryError):
        server.get_batch(timeout=10)
    for want in [1, 7]:
        (request,) = server.get_batch(timeout=10)
        assert request.keys == [want]
        request.respond([request.tensors[0]])
    for handle, _ in handles:
        handle.wait(10)


def test_they_end_with_their_node(cluster, fails):
    c = cluster()
    push(c, 0, 3.0)
    fails(MemoryError("once"))
    with pytest.raises(MemoryError):
        c.servers[0].server.get_batch(timeout=10)
    c.close()
    with pytest.raises(stepvan.ClosedError):
        c.servers[0].server.get_batch(timeout=10)


def test_another_node_has_its_own(cluster, fails):
    c = cluster(servers=2)
    handle = c.workers[0].worker.push_pull([torch.ones(2)], [1], [torch.zeros(2), torch.zeros(2)], [2, 2])
    fails(MemoryError("once"))
    with pytest.raises(MemoryError):
        c.servers[0].server.get_batch(timeout=10)
    for server in (1, 0):
        (request,) = c.servers[server].server.get_batch(timeout=10)
        request.respond([torch.ones(2)])
        with pytest.raises(stepvan.TimeoutError):
            c.servers[server].server.get_batch(timeout=0)
    handle.wait(10)
