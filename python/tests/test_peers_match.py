"""Plans of tensors with names, and parts of tensors."""

import time

import numpy as np
import pytest
import torch

import stepvan
from stepvan import Part, _plan


class Mesh:
    """What stepvan asks of a DeviceMesh."""

    def __init__(self, *sizes, at):
        self.mesh = torch.arange(int(np.prod(sizes))).reshape(sizes)
        self.at = at

    def get_coordinate(self):
        return self.at


class Shard:
    def __init__(self, dim):
        self.dim = dim

    def is_partial(self):
        return False

    is_replicate = is_partial


class _StridedShard(Shard):
    def __init__(self, dim, split_factor):
        self.dim, self.split_factor = dim, split_factor


class Replicate(Shard):
    def __init__(self):
        pass

    def is_replicate(self):
        return True


class Partial(Shard):
    def __init__(self):
        pass

    def is_partial(self):
        return True


class Distributed:
    """What stepvan asks of a DTensor."""

    def __init__(self, local, mesh, placements, shape):
        self._local_tensor, self.device_mesh, self.placements, self.shape = local, mesh, tuple(placements), torch.Size(shape)


@pytest.fixture
def peers(cluster):
    c = cluster(0, 0, 3)
    return c, [node.peer for node in c.peers]


def together(c, peers, states, name="weights"):
    """A plan of all peers. states has (send, recv) of each."""
    return list(c.pool.map(lambda p, s: p.match(name, *s, timeout=20), peers, states))


def run(plans, version=1):
    for handle in [plan.run(version) for plan in plans]:
        handle.wait(20)
    for plan in plans:
        plan.close(20)


def test_state_dicts_of_different_layouts(peers):
    c, peers = peers
    w, b = torch.randn(7, 12), torch.randn(5)
    halves = [w[:4].clone(), w[4:].clone()]
    got, whole = torch.zeros(3, 7).T, torch.zeros(7, 12)
    states = [
        ({"w": (halves[0], Part.shard((7, 12), 0, 0, 2)), "b": b, "unused": torch.zeros(2)}, None),
        ({"w": (halves[1], Part.shard(w.shape, 0, 1, 2))}, {"w": whole, "b": (into := torch.zeros(5))}),
        (None, {"w": (got, Part.spans((7, 12), [(0, 7)], [(4, 7)]))}),
    ]
    plans = together(c, peers, states)
    run(plans)
    assert torch.equal(got, w[:, 4:7]) and torch.equal(whole, w) and torch.equal(into, b)


def test_distributed_tensors(peers):
    c, peers = peers
    w, o = torch.randn(8, 6), torch.randn(3, 3)
    mesh = [Mesh(2, at=(0,)), Mesh(2, at=(1,)), Mesh(2, at=None)]
    parts = [Distributed(w[:4].clone(), mesh[0], [Shard(0)], w.shape), Distributed(w[4:].clone(), mesh[1], [Shard(-2)], w.shape)]
    fused = [Distributed(o, m, [Replicate()], o.shape) for m in mesh[:2]]
    got, mine = torch.zeros(8, 6), torch.zeros(3, 3)
    states = [({"w": parts[i], "o": fused[i]}, {}) for i in range(2)]
    nowhere = Distributed(torch.zeros(0), mesh[2], [Shard(0)], w.shape)
    run(together(c, peers, [*states, ({"w": nowhere}, {"w": got, "o": mine})]))
    assert torch.equal(got, w) and torch.equal(mine, o)
    with pytest.raises(stepvan.InvalidError, match="w: the placement .* have|w: the placement .*added up"):
        peers[0].match("weights", {"w": Distributed(w, mesh[0], [Partial()], w.shape)})


def test_parts():
    part = Part.mesh((8, 6), (2, 2), ["replicate", ("shard", 1)], 3)
    assert (part.shape, part.local) == ((8, 6), (8, 3)) and part == Part.spans((8, 6), [(0, 8)], [(3, 6)]) != Part.shard((8, 6), 0, 0, 2)
    assert len({part, Part.mesh((8, 6), (2,), [Shard(1)], 1)}) == 1 and repr(part) == "<stepvan.Part: [8, 3] of [8, 6]>"
    strided = Part.mesh((8,), (2, 2), [("strided shard", 0, 2), ("shard", 0)], 2)
    assert strided == Part.mesh((8,), (2, 2), [_StridedShard(0, 2), Shard(0)], 2) == Part.spans((8,), [(2, 4)])
    assert Part.partition((8, 3), 0, 1, 2, stride=2) == Part.spans((8, 3), [(2, 4), (6, 8)], [(0, 3)])
    assert Part.partition((8,), 0, 0, 2, sizes=[2, 2]) == Part.spans((8,), [(0, 2), (4, 6)])
    assert Part.shard((5,), 0, 3, 4).local == (0,)
    for make, message in (
        (lambda: Part.shard((8, 6), 2, 0, 2), "dimension|dim"),
        (lambda: Part.shard((8, 6), 0, 2, 2), "got 2"),
        (lambda: Part.shard((8, "6"), 0, 0, 2), "shape is '6'"),
        (lambda: Part.shard((-1,), 0, 0, 2), "shape is -1|-1"),
        (lambda: Part.shard((1,) * 9, 0, 0, 2), "9 dimensions"),
        (lambda: Part.mesh((8,), (2,), ["sharded"], 0), "placements has 'sharded'"),
        (lambda: Part.mesh((8,), (2,), [("shard",)], 0), "placements has"),
        (lambda: Part.mesh((8,), (2,), [], 0), "placements has 0 placements for a mesh of 1"),
        (lambda: Part.mesh((8,), (2,), [Partial()], 0), "still to be added up"),
        (lambda: Part.spans((8,)), "spans of 0 dimensions for a shape of 1"),
        (lambda: Part.spans((8,), [(0, 9)]), "9"),
        (lambda: Part.spans((8,), [(0,)]), "must be .start, stop."),
        (lambda: Part.spans((8,), 5), r"lists\[0\] is 5"),
        (lambda: Part.partition((8,), 0, 2, 2), "got 2"),
        (lambda: Part.partition((8,), 0, 0, 2, sizes=[3, 2]), "partition_sizes"),
    ):
        with pytest.raises(stepvan.InvalidError, match=message):
            make()


def test_states_that_do_not_fit(peers):
    c, peers = peers

    def errors(*states):
        futures = [c.pool.submit(p.match, "weights", *s, 20) for p, s in zip(peers, states)]
        return [f.exception(30) for f in futures]

    for recv, text in (
        ({"w": torch.zeros(3, 5)}, "w"),
        ({"w": torch.zeros(3, 4, dtype=torch.int32)}, "w"),
        ({"v": torch.zeros(3, 4)}, "v"),
        ({"w": (torch.zeros(2, 4), Part.shard((3, 4), 0, 1, 2))}, "w: the view does not have the shape of its part"),
    ):
        found = errors(({"w": torch.zeros(3, 4)}, None), (None, recv), (None, None))
        assert any(isinstance(e, stepvan.InvalidError) for e in found) and text in str(found[1]), found
        assert all(isinstance(e, stepvan.InvalidError | stepvan.RemoteError) for e in found), found
    run(together(c, peers, [({"w": torch.ones(3, 4)}, None), (None, {"w": (y := torch.zeros(3, 4))}), (None, None)], "others"))
    assert y.eq(1).all()


def test_a_destination_that_overlaps_itself(peers):
    c, peers = peers
    states = ({"w": torch.zeros(3, 4)}, None), (None, {"w": torch.zeros(3, 1).expand(3, 4)})
    futures = [c.pool.submit(p.match, "twice", *s, 20, ranks=[0, 1]) for p, s in zip(peers, states)]
    for future, kind in zip(futures, (stepvan.RemoteError, stepvan.InvalidError)):
        with pytest.raises(kind, match="several elements in one place"):
            future.result(30)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (5, "send is 5: it must be a dict of tensors"),
        ({"w": 5}, "w: 5 is not a tensor"),
        ({"w": (torch.zeros(1), 5)}, r"send\['w'\] is .*: it must be a tensor, or a tensor and its stepvan.Part"),
        ({7: torch.zeros(1)}, "the name of a tensor is 7"),
    ],
)
def test_wrong_states(peers, state, message):
    with pytest.raises(stepvan.InvalidError, match=message):
        peers[1][0].match("weights", state, timeout=20)


def test_a_peer_that_does_not_take_part(peers):
    c, peers = peers
    futures = [c.pool.submit(p.match, "weights", {"w": torch.zeros(1)}, None, 0.3) for p in peers[:2]]
    for future in futures:
        assert isinstance(future.exception(30), stepvan.ExpiredError | stepvan.RemoteError)
    run(list(c.pool.map(lambda p, s: p.match("pair", *s, timeout=20, ranks=[0, 2]), peers[::2], [({"w": torch.ones(1)},), (None, {"w": torch.zeros(1)})])))


def test_conversions_and_merges(peers):
    c, peers = peers
    x, y = torch.arange(4.0), torch.zeros(4, dtype=torch.bfloat16)
    total = torch.zeros(4)
    plans = list(
        c.pool.map(
            lambda p, s: p.plan("weights", *s, timeout=20),
            peers,
            [
                ([stepvan.Move(1, 1, x, wire=torch.bfloat16), (2, 2, x)], []),
                ([(3, 2, x + 1)], [stepvan.Move(1, 0, y, wire="bfloat16")]),
                ([], [stepvan.Move(2, 0, total, merge="sum"), stepvan.Move(3, 1, total, merge="sum")]),
            ],
        )
    )
    assert plans[2].stats.merged == 2
    run(plans)
    assert y.float().eq(x).all() and total.eq(2 * x + 1).all()
    with pytest.raises(stepvan.InvalidError, match=r"recvs\[0\].merge is 'add'"):
        peers[0].plan("w", recvs=[stepvan.Move(1, 1, y, merge="add")])
    with pytest.raises(stepvan.InvalidError, match="dtype"):
        peers[0].plan("w", recvs=[stepvan.Move(1, 1, y, wire="bfloat")])


def test_the_cost_of_a_description():
    state = {f"layer.{i}.weight": torch.zeros(3, 4) for i in range(2000)}
    mesh = Mesh(2, at=(0,))
    split = {name: Distributed(t, mesh, [Shard(0)], (6, 4)) for name, t in state.items()}
    for kind in (state, split):
        times = []
        for _ in range(5):
            start = time.perf_counter()
            _plan._named("send", kind, _plan.Parts())
            times.append(time.perf_counter() - start)
        print(f"{min(times) / 2000 * 1e6:.2f} us a tensor")  # budget: 3
