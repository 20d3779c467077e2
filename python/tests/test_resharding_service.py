"""The service over peers: what is submitted, whole plans, and ranks that differ."""

import contextlib
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import resharding_world as rw
import torch
from test_peers_match import Distributed, Mesh, Partial, Replicate, Shard, _StridedShard
from test_resharding_models import PAIRS, TOKENS, check

import stepvan
from stepvan import Part
from stepvan.resharding import (
    MXFP8ReshardTransform,
    MXFP8Tensor,
    build_local_reshard_plan,
    execute_reshard_plan,
    reshard_state_dicts,
    swap_model_weights,
    version_of,
)
from stepvan.resharding.copy_services import CopyService, StepvanCopyService

S = slice


class Ranks:
    """Peers of this process, each with a thread."""

    def __init__(self, cluster, size):
        self.nodes = cluster(0, 0, size).peers
        self.size = size
        self.services = []

    def run(self, what):
        """The result or the error of each rank."""

        def one(rank):
            try:
                return what(rank, self.nodes[rank])
            except Exception as error:
                return error

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(one, range(self.size)))

    def all(self, what):
        found = self.run(what)
        for one in found:
            if isinstance(one, Exception):
                raise one
        return found

    def make(self, name="reshard", timeout=50.0):
        self.services.append([StepvanCopyService(node, name, timeout) for node in self.nodes])
        return self.services[-1]

    def close(self):
        for services in self.services:
            self.run(lambda rank, _, services=services: services[rank].close())


@pytest.fixture
def ranks(cluster):
    made = []

    def make(size):
        made.append(Ranks(cluster, size))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_what_is_submitted_moves(ranks):
    r = ranks(3)
    services = r.make()
    assert isinstance(services[0], CopyService) and not services[0].requires_process_group_barrier
    for run in range(3):

        def one(rank, _):
            service = services[rank]
            x = torch.arange(24.0).reshape(4, 6) + 100 * rank + run
            found = {other: torch.zeros(6, 4).T for other in range(3)}
            extra = torch.zeros(2, 3)
            for other in range(3):
                service.submit_send(x, other, task_id=3 * rank + other)
                service.submit_send(x[::2, ::2], other, task_id=3 * rank + other)  # a second one of the id
            for other in reversed(range(3)):
                service.submit_recv(found[other], other, task_id=3 * other + rank)
                service.submit_recv(extra if other == 1 else torch.zeros(2, 3), other, task_id=3 * other + rank)
            service.run()
            for other in range(3):
                assert torch.equal(found[other], torch.arange(24.0).reshape(4, 6) + 100 * other + run)
            assert torch.equal(extra, (torch.arange(24.0).reshape(4, 6) + 100 + run)[::2, ::2])
            service.run()  # nothing is left

        r.all(one)


def test_many_transfers(ranks):
    r = ranks(2)
    services = r.make()

    def one(rank, _):
        sent = torch.arange(2000.0).reshape(1000, 2) + rank
        got = torch.zeros(1000, 2)
        for i in range(1000):
            services[rank].submit_recv(got[i], 1 - rank, task_id=i)
            services[rank].submit_send(sent[999 - i], 1 - rank, task_id=999 - i)
        services[rank].run()
        assert torch.equal(got, torch.arange(2000.0).reshape(1000, 2) + 1 - rank)

    r.all(one)


def submit(service, sends=(), recvs=()):
    for x, rank, task in sends:
        service.submit_send(x, rank, task_id=task)
    for x, rank, task in recvs:
        service.submit_recv(x, rank, task_id=task)


@pytest.mark.parametrize(
    ("zero", "one", "message"),
    [
        (dict(sends=[(torch.zeros(2), 1, 5)] * 2), dict(recvs=[(torch.zeros(2), 0, 5)]), r"task 5: both sides differ \(got (2 sends at rank 0, 1 receives at rank 1|1 receives at rank 1, 2 sends at rank 0)\)"),
        (dict(sends=[(torch.zeros(2), 1, 5)]), dict(recvs=[(torch.zeros(2), 0, 6)]), r"task 5: both sides differ \(got (1 sends at rank 0, 0 receives at rank 1|0 receives at rank 1, 1 sends at rank 0)\)"),
        (dict(sends=[(torch.zeros(2), 1, 5)]), dict(sends=[(torch.zeros(2), 0, 5)]), "task 5: both sides differ"),
        (dict(sends=[(torch.zeros(2), 1, 5)]), dict(recvs=[(torch.zeros(3), 0, 5)]), r"torch.float32 x 2 at rank 0"),
        (dict(sends=[(torch.zeros(2), 1, 5)]), dict(recvs=[(torch.zeros(2, dtype=torch.int32), 0, 5)]), r"torch.int32 x 2 at rank 1"),
    ],
)  # fmt: skip
def test_sides_that_differ(ranks, zero, one, message):
    r = ranks(2)
    services = r.make()

    def run(rank, _):
        submit(services[rank], **(zero, one)[rank])
        services[rank].run()

    found = r.run(run)
    assert all(isinstance(error, stepvan.InvalidError) for error in found), found
    for error in found:
        assert re.search(message, str(error)), error


def test_what_a_service_refuses(ranks, cluster):
    r = ranks(1)
    (service,) = r.make()
    for wrong, message in [
        (dict(sends=[(torch.zeros(2), 0, None)], recvs=[(torch.zeros(2), 0, None)]), "rank 0: a send to the rank itself has no task_id"),
        (dict(sends=[(torch.zeros(2), 0, 4)]), r"rank 0: task 4 does not match \(got 1 sends to the rank itself and 0 receives\)"),
        (dict(recvs=[(torch.zeros(2), 0, 4)]), r"rank 0: task 4 does not match"),
    ]:
        submit(service, **wrong)
        with pytest.raises(stepvan.InvalidError, match=message):
            service.run()
    service.run()  # what was wrong is gone
    with pytest.raises(stepvan.InvalidError, match=r"rank is out of range \(got 1, want 0 to 0\)"):
        service.submit_send(torch.zeros(2), 1)
    with pytest.raises(stepvan.InvalidError, match="not a tensor"):
        service.submit_recv([1, 2], 0)
    submit(service, [(torch.ones(2), 0, 1)], [(torch.zeros(3), 0, 1)])
    with pytest.raises(stepvan.InvalidError, match="task 1: both sides differ"):
        service.run()
    with pytest.raises(stepvan.InvalidError, match="an earlier run has failed .*make one with another name at every rank"):
        service.run()
    with pytest.raises(stepvan.InvalidError, match="the node has no peers"):
        StepvanCopyService(cluster().workers[0])


# ------------------------------------------------------------------------------------------------------------ plans


@pytest.mark.parametrize(("src", "dst"), [PAIRS[1], PAIRS[2], PAIRS[9], PAIRS[11]], ids=lambda layout: "tp{}pp{}ep{}x{}".format(*layout))
@pytest.mark.parametrize("shared", [False, True], ids=["private", "shared"])
def test_a_model_moves(ranks, src, dst, shared):
    r = ranks(max(src.size, dst.size))
    services = r.make()
    sources = {rank: rw.model(src, rank, None) for rank in range(src.size)}
    destinations = {rank: rw.model(dst, rank, None) for rank in range(dst.size)}
    plans = {}

    def refit(rank, node):
        mine, theirs = sources.get(rank), destinations.get(rank)
        if rank not in plans:
            if shared:
                for module in (mine, theirs):
                    if module is not None:
                        stepvan.share_(module, node)
            with node.peer.group(range(r.size)) as group:
                plans[rank] = build_local_reshard_plan(mine, theirs, rw.EXPERTS, group, batch_bytes=4000)
        execute_reshard_plan(plans[rank], mine, theirs, services[rank])

    for run in range(3):
        whole = rw.weights(run)
        for rank, module in sources.items():
            module.load_state_dict(rw.model(src, rank, whole).state_dict())
        r.all(refit)
        check(dst, destinations, whole, rw.logits(src, sources, TOKENS))
        assert {version_of(module) for module in destinations.values()} == {run + 1}
    assert plans[0].num_batches > 1
    links = [link for service in services for agreed in service._agreed.values() for link in agreed.links.values()]
    assert links and all(link.plan.stats.moves == len(link.keys) and not link.single for link in links)  # nothing goes by itself
    assert not shared or all(link.plan.stats.streamed == 0 for link in links)


def pair(r, **destination):
    """A source at rank 0 and a destination at rank 1, and what runs their refit."""
    whole = rw.weights(1)
    layouts = rw.Layout(), rw.Layout(first=1)
    modules = rw.model(layouts[0], 0, whole), rw.model(layouts[1], 1, None, **destination)
    plans = {}

    def refit(rank, node, service, **options):
        mine, theirs = (modules[0], None) if rank == 0 else (None, modules[1])
        if rank not in plans:
            with node.peer.group(range(2)) as group:
                plans[rank] = build_local_reshard_plan(mine, theirs, rw.EXPERTS, group)
        execute_reshard_plan(plans[rank], mine, theirs, service, **options)

    return modules, layouts, whole, refit


def test_versions_travel(ranks):
    r = ranks(2)
    services = r.make()
    modules, _, _, refit = pair(r)
    for version in (5, 5, 9):
        r.all(lambda rank, node, version=version: refit(rank, node, services[rank], version=version if rank == 0 else None))
        assert version_of(modules[1]) == version
    other = r.make("atomic")
    for version in (12, 13):  # whose tensors do not stay where they are
        r.all(lambda rank, node, version=version: refit(rank, node, other[rank], version=version if rank == 0 else None, atomic=rank == 1))
        assert version_of(modules[1]) == version
    found = r.run(lambda rank, node: refit(rank, node, services[rank], version=14 + rank))
    assert all(isinstance(error, stepvan.Error) for error in found)
    assert version_of(modules[1]) == 0


def test_casts_and_atomic_destinations(ranks):
    r = ranks(2)
    services = r.make()
    modules, layouts, whole, refit = pair(r, bias=torch.bfloat16)
    for run in range(4):
        whole = rw.weights(run)
        modules[0].load_state_dict(rw.model(layouts[0], 0, whole).state_dict())
        before = {name: tensor.data_ptr() for name, tensor in modules[1].named_parameters()}
        r.all(lambda rank, node, run=run: refit(rank, node, services[rank], atomic=rank == 1 and run < 3))
        check(layouts[1], {1: modules[1]}, whole, rw.logits(layouts[1], {1: modules[1]}, TOKENS))
        moved = [name for name, tensor in modules[1].named_parameters() if tensor.data_ptr() != before[name]]
        assert bool(moved) == (run < 3)
        if run == 2:  # the elements go elsewhere from now on
            for service in services:
                service.forget()


SPECIALS = [0.0, -0.0, float("inf"), -float("inf"), 1e-45, 3.4e38, 1.00390625, 1.01171875, -1.00390625, 65504.0, 1e-8, 448.0]


@pytest.mark.parametrize(("source", "destination"), [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32), (torch.float64, torch.float16)])
@pytest.mark.parametrize("shared", ["both", "source", "destination", "neither"])
def test_casts_on_the_way(ranks, source, destination, shared):
    """Elements are converted while they are copied: no buffer, and the bits of Tensor.to. Some stay at their rank."""
    r = ranks(2)
    whole = torch.randn(6, 8, generator=torch.Generator().manual_seed(3)).to(source)
    whole.view(-1)[: len(SPECIALS)] = torch.tensor(SPECIALS, dtype=torch.float64).to(source)

    def tensor(rank, side, shape, dtype):
        return r.nodes[rank].empty(shape, dtype) if shared in ("both", side) else torch.empty(shape, dtype=dtype)

    def one(rank, node):
        sides = {}
        if rank == 0:
            sides["src"] = tensor(0, "source", (6, 8), source)
        sides["dst"] = tensor(rank, "destination", (6, 3), destination)
        src = {"decoder.w": (sides["src"], Part.spans((6, 8), [(0, 6)], [(0, 8)]))} if rank == 0 else None
        dst = {"decoder.w": (sides["dst"], Part.spans((6, 8), [(0, 6)], [(2 + rank, 5 + rank)]))}
        if rank == 0:
            sides["src"].copy_(whole)
        with contextlib.closing(reshard_state_dicts(node, src, dst, cast=True, name="cast")) as refit:
            for run in range(2):
                wanted = (whole if run == 0 else -whole)[:, 2 + rank : 5 + rank].to(destination)
                if run:
                    if rank == 0:
                        sides["src"].copy_(-whole)
                    refit.run()
                assert torch.equal(sides["dst"].view(torch.uint8), wanted.contiguous().view(torch.uint8))
            (agreed,) = refit._service._agreed.values()
            assert all(not link.single for link in agreed.links.values()) and agreed.standing is not None
            stats = [link.plan.stats for link in agreed.links.values()]
            assert sum(s.sent + s.received for s in stats) == 18 * min(torch.finfo(source).bits, torch.finfo(destination).bits) // 8

    r.all(one)
    mismatch = r.run(lambda rank, node: reshard_state_dicts(node, {"decoder.w": whole} if rank == 0 else None, {"decoder.w": whole.to(destination)} if rank else None))
    for error in mismatch:
        assert isinstance(error, stepvan.InvalidError)
        got, wanted = (str(dtype).removeprefix("torch.") for dtype in (source, destination))
        assert f"type mismatch (got {got} at the source, {wanted} at the destination)" in str(error) and '"decoder.w"' in str(error)


def test_memory_that_moved(ranks):
    r = ranks(2)
    services = r.make(timeout=2.0)
    modules, _, whole, refit = pair(r)
    r.all(lambda rank, node: refit(rank, node, services[rank]))
    weight = modules[1].get_parameter("decoder.layers.2.linear_proj.weight")
    weight.data = weight.data.clone()
    found = r.run(lambda rank, node: refit(rank, node, services[rank]))
    assert "'decoder.layers.2.linear_proj.weight': its memory is not where it was" in str(found[1])
    assert isinstance(found[0], stepvan.Error)
    assert version_of(modules[1]) == 0
    r.close()
    again = r.make("again")
    r.all(lambda rank, node: refit(rank, node, again[rank]))
    assert torch.equal(weight, whole["decoder.layers.2.linear_proj.weight"])
    for service in again:
        service.forget()
    weight.data = weight.data.clone()
    r.all(lambda rank, node: refit(rank, node, again[rank]))


@pytest.mark.parametrize(("swizzled", "on_send"), [(False, False), (True, False), (False, True)])
def test_mxfp8_destinations(ranks, swizzled, on_send):
    r = ranks(3)
    services = r.make()
    name = "w"
    whole = torch.randn(8, 128, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)

    def module(rank, rows):
        found = rw.Tree()
        found.put(name, rows.clone(), tensor_model_parallel=True, partition_dim=0)
        found.pg_collection = rw.SimpleNamespace(tp=[0, 1] if rank < 2 else [2], dp=[rank])
        return found

    buffer = MXFP8Tensor.from_bf16(torch.zeros(8, 128), swizzled=swizzled)
    transform = MXFP8ReshardTransform([name], {name: buffer}, convert_on_send=on_send)
    sources = [module(rank, whole[4 * rank : 4 * rank + 4]) for rank in range(2)]
    target = module(2, torch.zeros(8, 128, dtype=torch.bfloat16))
    plans = {}

    def refit(rank, node):
        mine, theirs = (sources[rank], None) if rank < 2 else (None, target)
        if rank not in plans:
            with node.peer.group(range(3)) as group:
                plans[rank] = build_local_reshard_plan(mine, theirs, None, group)
        execute_reshard_plan(plans[rank], mine, theirs, services[rank], transform=transform if rank == 2 or on_send else None)

    for run in range(2):
        for rank in range(2):
            sources[rank].w.data.copy_(whole[4 * rank : 4 * rank + 4] * (run + 1))
        r.all(refit)
        wanted = MXFP8Tensor.from_bf16(whole * (run + 1), swizzled=swizzled)
        assert torch.equal(buffer.data.view(torch.uint8), wanted.data.view(torch.uint8))
        assert torch.equal(buffer.scale.view(torch.uint8), wanted.scale.view(torch.uint8))
    if on_send:  # one side has no transform
        broken = r.make("broken")
        services[:] = broken
        sources[0].w.data = sources[0].w.data.clone()
        on_send = False
        found = r.run(refit)
        assert all(isinstance(error, stepvan.InvalidError) for error in found), found
        assert "parameter 'w' (task " in str(found[2]) and "both sides differ" in str(found[2])


def test_two_pools(ranks):
    r = ranks(3)
    services = r.make()
    whole = rw.weights(3)
    source = rw.model(rw.Layout(), 0, whole)
    targets = {rank: rw.model(rw.Layout(first=rank), rank, None) for rank in (1, 2)}
    groups = {}

    def swap(rank, node):
        group = groups.setdefault(rank, node.peer.group(range(3)))
        swap_model_weights(source if rank == 0 else None, targets.get(rank), services[rank], group, num_dst_pools=2, dst_pool_index=max(rank - 1, 0))

    for run in range(3):
        source.load_state_dict(rw.model(rw.Layout(), 0, rw.weights(run)).state_dict())
        r.all(swap)
        for rank, target in targets.items():
            check(rw.Layout(first=rank), {rank: target}, rw.weights(run), rw.logits(rw.Layout(), {0: source}, TOKENS))
    with pytest.raises(stepvan.InvalidError, match="not one of the pools"):
        swap_model_weights(None, None, services[0], num_dst_pools=2, dst_pool_index=2)
    with pytest.raises(stepvan.InvalidError, match="names of services are not known"):
        swap_model_weights(None, None, "nccl")


# ------------------------------------------------------------------------------------------------ state dictionaries


def test_state_dictionaries_move(ranks):
    r = ranks(3)
    whole = torch.arange(60.0).reshape(6, 10)

    def one(rank, node):
        if rank < 2:  # columns 0 to 4 and 8 to 9, and the others
            spans = [[(0, 5, 0), (8, 10, 5)], [(5, 8, 0)]][rank]
            mine = torch.cat([whole[:, a:b] for a, b, _ in spans], 1)
            src, dst = {"w": (mine, Part.spans((6, 10), [(0, 6)], spans)), "b": torch.full((3,), 2.0)}, None
        else:
            src, dst = None, {"w": (torch.zeros(2, 10), Part.spans((6, 10), [(3, 5)], [(0, 10)])), "b": torch.zeros(3)}
        plan = reshard_state_dicts(node, src, dst, version=4 if rank < 2 else None)
        if rank < 2:
            src["w"][0].mul_(2)
        else:
            assert torch.equal(dst["w"][0], whole[3:5]) and dst["b"].tolist() == [2, 2, 2] and plan.version == 4
        return src, dst, plan

    found = r.all(one)
    r.all(lambda rank, _: found[rank][2].run())
    assert torch.equal(found[2][1]["w"][0], 2 * whole[3:5]) and found[2][2].version == 5
    with pytest.raises(stepvan.InvalidError, match="version falls"):
        found[0][2].run(3)
    r.all(lambda rank, _: found[rank][2].close())


def test_distributed_tensors_move(ranks):
    r = ranks(4)
    whole = torch.arange(48.0).reshape(8, 6)

    def one(rank, node):
        place = divmod(rank, 2)
        mesh, line = Mesh(2, 2, at=place), Mesh(4, at=(rank,))
        # As FSDP2 over TP has it: the second dimension of the mesh cuts first.
        strided = whole.chunk(2, 0)[place[1]].chunk(2, 0)[place[0]].clone()
        columns = torch.zeros(8, 2 if rank < 3 else 0)
        src = {
            "w": Distributed(strided, mesh, [_StridedShard(0, 2), Shard(0)], (8, 6)),
            "v": Distributed(whole.chunk(2, 1)[place[1]].clone(), mesh, [Replicate(), Shard(1)], (8, 6)),
        }
        dst = {"w": Distributed(columns, line, [Shard(1)], (8, 6)), "v": torch.zeros(8, 6)}
        if rank == 3:  # outside of its mesh
            src["u"] = Distributed(torch.zeros(0), Mesh(3, at=None), [Shard(0)], (6,))
        with contextlib.closing(reshard_state_dicts(node, src, dst)):
            assert torch.equal(dst["v"], whole)
            assert torch.equal(columns, whole[:, 2 * rank : 2 * rank + 2])

    r.all(one)
    for placement in (Partial(), Shard(7)):
        with pytest.raises(stepvan.InvalidError):
            reshard_state_dicts(r.nodes[0], {"w": Distributed(torch.zeros(2), Mesh(2, at=(0,)), [placement], (4,))}, None, group=Alone())


class Alone:
    """A group of one peer."""

    ranks, index = (0,), 0

    def all_gather(self, mine):
        return [mine]


def test_state_dictionaries_that_do_not_fit(ranks):
    r = ranks(2)
    for src, dst, message in [
        ({"w": torch.zeros(2)}, {"w": torch.zeros(3)}, "size mismatch"),
        ({"w": torch.zeros(2)}, {"v": torch.zeros(2)}, 'no rank has parameter "v"'),
        ({"w": torch.zeros(2)}, {"w": torch.zeros(2, dtype=torch.float64)}, "type mismatch"),
        ({"w": [1, 2]}, {"w": torch.zeros(2)}, "'w': it is not a tensor"),
        ({"w": (torch.zeros(2), 3)}, {"w": torch.zeros(2)}, "'w': it has no part"),
        ({"w": (torch.zeros(2), Part.spans((4,), [(0, 3)]))}, {"w": torch.zeros(4)}, "part"),
        ({"w": (torch.zeros(2), Part.spans((4,), [(0, 2)]))}, {"w": torch.zeros(4)}, "missing|no rank"),
    ]:
        found = r.run(lambda rank, node, sides=(src, dst): reshard_state_dicts(node, sides[0] if rank == 0 else None, sides[1] if rank == 1 else None))
        assert all(isinstance(error, stepvan.Error) and re.search(message, str(error)) for error in found), found


def test_a_rank_that_does_not_come(ranks):
    r = ranks(2)
    services = r.make(timeout=0.3)
    submit(services[0], [(torch.zeros(2), 1, 1)])
    with pytest.raises(stepvan.TimeoutError, match="rank 1 has not taken part in time"):
        services[0].run()
    with pytest.raises(stepvan.InvalidError, match="an earlier run has failed"):
        services[0].run()


def test_a_rank_that_dies(cluster):
    c = cluster(0, 0, 2)
    services = [StepvanCopyService(node, timeout=50.0) for node in c.peers]
    modules, _, _, refit = pair(None)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda rank: refit(rank, c.peers[rank], services[rank]), range(2)))
        assert version_of(modules[1]) == 1
        waiting = pool.submit(refit, 1, c.peers[1], services[1])
        c.peers[0].close()
        with pytest.raises(stepvan.PeerLostError, match="peer 0"):
            waiting.result(20)
    assert version_of(modules[1]) == 0
    with contextlib.suppress(stepvan.Error):
        services[1].close()
    c.close()
