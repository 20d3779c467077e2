"""Plans of resharding: names, slices, sources, files, and what is refused."""

import json
import random
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import resharding_world as rw
import torch

import stepvan
from stepvan.resharding import (
    ParameterMetadata,
    ReshardPlan,
    TransferOp,
    build_centralized_reshard_plan,
    build_local_reshard_plan,
    build_plan_from_rosters,
    index_metadata_rosters,
    make_roster,
    plan_rosters,
    utils,
)

NAMES = json.loads((Path(__file__).parents[2] / "reshard" / "testdata" / "names.json").read_text())


def meta(name="w", shape=(4, 2), rank=0, dtype=torch.float32, tp=None, dp=None, **more):
    """A parameter of a rank, which a tensor parallel group divides if there is one."""
    return ParameterMetadata(
        name,
        tuple(shape),
        dtype,
        4,
        owner_rank=rank,
        resolved_name=more.pop("resolved_name", name),
        is_tp=more.pop("is_tp", tp is not None),
        tensor_parallel_group_ranks=tp,
        data_parallel_group_ranks=dp,
        **more,
    )


def pairs_of(shape, src, dst, dim=0, strides=(1, 1), sizes=(None, None)):
    """One parameter whose sources are the first ranks, and whose destinations are the next."""
    found = []
    for side, ranks in enumerate((range(src), range(src, src + dst))):
        for rank in ranks:
            local = list(shape)
            local[dim] //= len(ranks)
            one = meta("w", local, rank, tp=list(ranks), partition_dim=dim, partition_stride=strides[side], partition_sizes=sizes[side])
            found.append(([], [one]) if side else ([one], []))
    return found


def plans_of(pairs, ranks=None):
    rosters = index_metadata_rosters(pairs)
    return [build_plan_from_rosters(*rosters, rank) for rank in (range(len(pairs)) if ranks is None else ranks)]


# ------------------------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize("case", NAMES["cases"], ids=lambda case: f"{case['name']}-{case.get('place', 0)}")
def test_names(case):
    layers = {at: f"{at.rpartition('.')[0]}.{number - 1}" for at, number in NAMES["layers"].items() if at.rpartition(".")[2].isdigit()}
    one = meta(case["name"], is_ep="experts" in case, num_experts=case.get("experts"), rank=case.get("place", 0))
    one.expert_parallel_group_ranks = list(range(case.get("ep", 1)))
    if "error" in case:
        with pytest.raises(stepvan.InvalidError, match="expert"):
            utils.assign_resolved_name_inplace(one, layer_module_prefix_map=layers)
        return
    utils.assign_resolved_name_inplace(one, layer_module_prefix_map=layers)
    assert (one.resolved_name, one.global_expert_index) == (case["resolved"], case.get("number"))


def test_what_a_module_tells():
    found = rw.model(rw.Layout(tp=2, pp=2, ep=2), 7, None)
    metas = {one.name: one for one in utils.module_metadata(found, 107, rw.EXPERTS, 100)}
    fc1 = metas["decoder.layers.1.mlp.experts.linear_fc1.weight1"]
    assert (fc1.resolved_name, fc1.global_expert_index) == ("decoder.layers.3.mlp.experts.linear_fc1.weight3", 3)
    assert (fc1.is_ep, fc1.is_tp, fc1.partition_dim, fc1.partition_stride, fc1.shape) == (True, True, 0, 2, (rw.FFN, rw.HIDDEN))
    assert (fc1.tensor_parallel_group_ranks, fc1.expert_parallel_group_ranks) == ([106, 107], [105, 107])
    bias = metas["decoder.layers.0.mlp.router.expert_bias"]
    assert (bias.is_buffer, bias.is_tp, bias.is_ep, bias.data_parallel_group_ranks) == (True, False, False, [105, 107])
    with pytest.raises(stepvan.InvalidError, match=r"rank 7 is not in its expert parallel group \(got \[105, 107\]\)"):
        utils.module_metadata(found, 7, rw.EXPERTS, 100)
    del found.pg_collection
    with pytest.raises(stepvan.InvalidError, match="Tree: it has no pg_collection: set one with the groups"):
        utils.module_metadata(found, 7)


def test_experts_without_marks_are_divided_by_their_group():
    weight = torch.nn.Parameter(torch.zeros(4, 2))
    weight.allreduce = False
    groups = SimpleNamespace(tp=[0], expt_tp=[0, 1], ep=[0, 2], dp=[0, 2], pp=None)
    one = utils.extract_param_metadata(weight, "experts.weight0", 2, groups, num_experts=4)
    assert (one.is_tp, one.tensor_parallel_group_ranks, one.resolved_name) == (True, [0, 1], "experts.weight2")
    groups.expt_tp = None
    assert not utils.extract_param_metadata(weight, "experts.weight0", 2, groups, num_experts=4).is_tp
    weight.partition_dim = "rows"
    with pytest.raises(stepvan.InvalidError, match="partition_dim is wrong"):
        utils.extract_param_metadata(weight, "experts.weight0", 2, groups, num_experts=4)


def test_buffers_that_are_not_state_stay():
    found = torch.nn.Module()
    found.register_buffer("kept", torch.zeros(1))
    found.register_buffer("lost", torch.zeros(1), persistent=False)
    found.register_buffer("none", None)
    assert list(utils.get_refit_tensor_dict(found)) == ["kept"]


# ----------------------------------------------------------------------------------------------------------- slices


@pytest.mark.parametrize(
    ("shape", "src", "dst", "rank", "strides", "sizes", "wanted"),
    [
        ((12, 2), 2, 3, 1, (1, 1), (None, None), [(0, 4, 0, 2), (1, 0, 2, 2)]),
        ((128, 2), 4, 2, 1, (1, 1), (None, None), [(2, 0, 0, 32), (3, 0, 32, 32)]),
        ((16, 2), 2, 1, 0, (2, 1), (None, None), [(0, 0, 0, 4), (1, 0, 4, 4), (0, 4, 8, 4), (1, 4, 12, 4)]),
        ((96, 2), 2, 1, 0, (1, 1), ([32, 16], [64, 32]), [(0, 0, 0, 32), (1, 0, 32, 32), (0, 32, 64, 16), (1, 32, 80, 16)]),
        ((96, 2), 2, 1, 0, (1, 1), ([32, 16], None), [(0, 0, 0, 32), (1, 0, 32, 32), (0, 32, 64, 16), (1, 32, 80, 16)]),
    ],
)
@pytest.mark.parametrize("dim", [0, 1])
def test_vectors(shape, src, dst, rank, strides, sizes, wanted, dim):
    plan = plans_of(pairs_of(shape if dim == 0 else shape[::-1], src, dst, dim, strides, sizes))[src + rank]
    got = []
    for op in plan.recv_ops:
        mine, theirs = op.my_slice[dim], op.peer_slice[dim]
        assert (op.param_name, op.is_send, op.my_slice[1 - dim], op.peer_slice[1 - dim]) == ("w", False, slice(None), slice(None))
        assert mine.stop - mine.start == theirs.stop - theirs.start
        got.append((op.peer_rank, theirs.start, mine.start, mine.stop - mine.start))
    assert got == wanted


BLOCKS = [8, 8, 4, 4, 2]  # z, x, B, C, dt of a Mamba layer, at one of two ranks


@pytest.mark.parametrize(
    ("src", "dst", "sizes"),
    [(2, 1, None), (1, 2, None), (2, 4, None), (2, 2, None), (4, 2, None), (3, 2, None), (2, 4, (BLOCKS, [n // 2 for n in BLOCKS]))],
)
def test_each_element_comes_once(src, dst, sizes):
    length = 24 if sizes is None else 2 * sum(BLOCKS)
    plans = plans_of(pairs_of((length, 2), src, dst, sizes=sizes or (None, None)))
    sends = sorted((rank, op.peer_rank, op.task_id) for rank, plan in enumerate(plans) for op in plan.send_ops)
    recvs = sorted((op.peer_rank, rank, op.task_id) for rank, plan in enumerate(plans) for op in plan.recv_ops)
    assert sends == recvs and recvs

    def part(number, world, blocks):
        if blocks is None:
            return torch.arange(length).chunk(world)[number]
        return torch.cat([block.chunk(world)[number] for block in torch.arange(length).split([n * world for n in blocks])])

    for number in range(dst):
        count = torch.zeros(length // dst, dtype=torch.int64)
        values = torch.full((length // dst,), -1)
        for op in plans[src + number].recv_ops:
            count[op.my_slice[0]] += 1
            values[op.my_slice[0]] = part(op.peer_rank, src, sizes and sizes[0])[op.peer_slice[0]]
        assert (count == 1).all()
        assert torch.equal(values, part(number, dst, sizes and sizes[1]))


def test_sources_are_chosen_by_groups():
    tensor, data = [[0, 1], [2, 3], [4, 5], [6, 7]], [[0, 2, 4, 6], [1, 3, 5, 7]]
    metas = [meta(rank=r, tp=tensor[r // 2], dp=data[r % 2], is_tp=False) for r in range(8)]
    for rank in range(8):
        assert utils.select_src_metadata_balanced(metas, meta(rank=8 + rank), 8 + rank).owner_rank == rank
        assert utils.select_src_metadata_balanced(metas, meta(rank=rank), rank).owner_rank == rank  # itself
    experts = [meta("weight0", rank=r, is_ep=True, expert_parallel_group_ranks=[0, 1], num_experts=4, dp=[0, 1]) for r in range(2)]
    wanted = meta("weight0", rank=5, is_ep=True, expert_parallel_group_ranks=[4, 5], num_experts=4, dp=[4, 5])
    assert utils.select_src_metadata_balanced(experts, wanted, 5).owner_rank == 1
    with pytest.raises(ValueError, match="expert"):
        utils.select_src_metadata_balanced(experts[:1], wanted, 5)
    with pytest.raises(ValueError, match="no source to choose from"):
        utils.select_src_metadata_balanced([], wanted, 5)


def test_a_destination_more_changes_nothing_for_the_others():
    layout = rw.Layout(tp=2, first=4)
    sources = [([one for one in utils.module_metadata(rw.model(rw.Layout(tp=2), r, None), r, rw.EXPERTS)], []) for r in range(2)]
    idle = [([], [])] * 2
    wants = [([], utils.module_metadata(rw.model(layout, r, None), r, rw.EXPERTS)) for r in (4, 5)]
    low, high = (([], utils.module_metadata(rw.model(rw.Layout(first=r), r, None), r, rw.EXPERTS)) for r in (2, 6))
    before, after = plans_of(sources + idle + wants), plans_of([*sources, low, idle[0], *wants, high])
    assert before[4] == after[4] and before[5] == after[5] and before[4].recv_ops
    for rank in range(2):
        assert before[rank].send_ops == [op for op in after[rank].send_ops if op.peer_rank in (4, 5)]
        assert len(after[rank].send_ops) > len(before[rank].send_ops)


def test_a_tied_output_comes_from_the_embedding():
    name = "embedding.word_embeddings.weight"
    src = [meta(name, (4, 2), rank, tp=[0, 1]) for rank in range(2)]
    dst = [meta(one, (8, 2), 2, tp=[2]) for one in (name, "output_layer.weight")]
    plans = plans_of([([src[0]], []), ([src[1]], []), ([], dst)])
    assert [(op.param_name, op.peer_rank) for op in plans[2].recv_ops] == [(name, 0), (name, 1), ("output_layer.weight", 0), ("output_layer.weight", 1)]
    assert [op.param_name for op in plans[0].send_ops] == [name, name]
    with pytest.raises(stepvan.InvalidError, match=r'no rank has parameter "head.weight", which rank 2 wants'):
        plans_of([([src[0]], []), ([src[1]], []), ([], [meta("head.weight", (8, 2), 2)])])


def test_ranks_with_nothing_to_do():
    plans = plans_of([*pairs_of((4, 2), 1, 1), ([], [])])
    assert [(len(plan.send_ops), len(plan.recv_ops)) for plan in plans] == [(1, 0), (0, 1), (0, 0)]
    assert plans_of([([], [])] * 2) == [ReshardPlan([], [], rank=rank, sources={}, destinations={}) for rank in range(2)]
    assert plans_of([], [5])[0].rank == 5
    assert str(plans[0]) == "ReshardPlan(sends=1, recvs=0, batches=1)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(shape=(5, 2)), r"size mismatch \(got 2 x .*4x2.*1 x .*5x2|size mismatch"),
        (dict(dtype=torch.bfloat16), r"type mismatch \(got float32 at the source, bfloat16 at the destination\).*\"w\" for rank 2"),
        (dict(tp=[3], is_tp=True), "rank 2 is not in|not in its"),
        (dict(tp=[2, 2], is_tp=True), "twice"),
        (dict(partition_dim=7, tp=[2, 3], is_tp=True), "dimension|partition_dim"),
    ],
)
def test_what_is_refused(change, message):
    pairs = pairs_of((8, 2), 2, 1)
    pairs[2] = ([], [meta(**{"shape": (8, 2), "rank": 2, **change})])
    for rank in range(3):  # every rank gets the same error
        with pytest.raises(stepvan.InvalidError, match=message):
            plans_of(pairs, [rank])


def test_types_that_differ_need_leave():
    pairs = pairs_of((8, 2), 2, 1)
    pairs[2] = ([], [meta(shape=(8, 2), rank=2, dtype=torch.bfloat16)])
    plan = build_plan_from_rosters(*index_metadata_rosters(pairs), 2, cast=True)
    assert plan.buffer_dtypes == {"w": torch.float32}
    with pytest.raises(stepvan.InvalidError, match="its type cannot travel"):
        plans_of([([meta(dtype=torch.qint8)], [])])
    with pytest.raises(stepvan.InvalidError, match="rank 1 has parameter 'w' twice"):
        index_metadata_rosters([([], []), ([], [meta(), meta()])])
    with pytest.raises(stepvan.InvalidError, match="twice"):
        plans_of([([meta(), meta()], [])])
    with pytest.raises(stepvan.InvalidError, match="too many dimensions"):
        plans_of([([meta(shape=(1,) * 9)], [])])


# ------------------------------------------------------------------------------------------------------ bytes, files


def some_plans():
    src, dst = rw.Layout(tp=2, ep=2), rw.Layout(pp=2, first=4)
    rosters = [make_roster(rw.model(src, r, None), None, r, rw.EXPERTS) for r in range(4)]
    rosters += [make_roster(None, rw.model(dst, r, None, bias=torch.bfloat16), r, rw.EXPERTS) for r in (4, 5)]
    random.Random(3).shuffle(rosters)
    return plan_rosters(rosters, range(6), world=6, batch_bytes=2000)


def test_a_plan_goes_to_a_file_and_back(tmp_path):
    for rank, data in enumerate(some_plans()):
        plan = ReshardPlan.from_bytes(data)
        assert plan.rank == rank and plan.num_batches > 3
        assert plan.to_bytes() == data
        plan.write(tmp_path / "plan")
        again = ReshardPlan.read(tmp_path / "plan")
        assert again == plan and again.to_bytes() == data
    assert again.buffer_dtypes and [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_damaged_plans_are_refused(tmp_path):
    data = some_plans()[4]
    dice = random.Random(1)
    for _ in range(200):
        damaged = bytearray(data)
        damaged[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        with pytest.raises(stepvan.ProtocolError):
            ReshardPlan.from_bytes(bytes(damaged))
    for cut in [b"", data[:-1], data + b"\0", data[: len(data) // 2], b"\x80\x04N."]:
        (tmp_path / "plan").write_bytes(cut)
        with pytest.raises(stepvan.ProtocolError):
            ReshardPlan.read(tmp_path / "plan")


def test_plans_made_by_hand_say_what_a_file_needs():
    op = TransferOp("w", 1, True, (slice(0, 2),), (slice(2, 4),), 7)
    with pytest.raises(stepvan.InvalidError, match="does not say what it was made for"):
        ReshardPlan([op], []).to_bytes()
    form = utils.TensorForm("w", torch.float32, torch.float32, (4,))
    plan = ReshardPlan([op], [], rank=0, sources={"w": form}, destinations={})
    assert ReshardPlan.from_bytes(plan.to_bytes()) == plan
    for wrong, message in [
        (dict(param_name="v"), "'v': an operation lacks its form"),
        (dict(task_id=None), "lacks its form or its task_id"),
        (dict(my_slice=(slice(0, 4, 2),)), "steps of 1"),
        (dict(my_slice=()), "another number of dimensions"),
    ]:
        with pytest.raises(stepvan.InvalidError, match=message):
            ReshardPlan([TransferOp(**{**vars(op), **wrong})], [], rank=0, sources={"w": form}, destinations={}).to_bytes()


# ------------------------------------------------------------------------------------------------------- all together


def test_a_controller_plans_the_same():
    src, dst = rw.Layout(tp=2), rw.Layout(ep=2, first=2)
    world = rw.World(4)

    def one(rank, build):
        mine = rw.model(src, rank, None) if rank < 2 else None
        theirs = rw.model(dst, rank, None) if rank >= 2 else None
        return build(mine, theirs, rw.EXPERTS, rank=rank, all_gather=world.all_gather(rank), batch_bytes=3000)

    local = world.run(lambda rank: one(rank, build_local_reshard_plan))
    central = world.run(lambda rank: one(rank, build_centralized_reshard_plan))
    assert local == central and all(plan.send_ops or plan.recv_ops for plan in local)


@pytest.mark.parametrize("build", [build_local_reshard_plan, build_centralized_reshard_plan])
def test_all_ranks_get_the_error_of_one(build):
    world = rw.World(3)
    barrier_errors = []

    def attempt(rank, module, **options):
        with pytest.raises(stepvan.InvalidError) as caught:
            build(module, None, None, rank=rank, all_gather=world.all_gather(rank), **options)
        barrier_errors.append(str(caught.value))

    good = rw.model(rw.Layout(tp=3), 0, None)
    world.run(lambda rank: attempt(rank, torch.nn.Linear(2, 2) if rank == 1 else None))
    assert len(barrier_errors) == 3 and all("Linear: it has no pg_collection" in error for error in barrier_errors)
    assert sum("another rank cannot take part: rank 1: " in error for error in barrier_errors) == 2
    barrier_errors.clear()
    world.run(lambda rank: attempt(rank, None, batch_bytes=rank % 2))
    assert len(barrier_errors) == 3 and all("ranks plan in different ways (got batch_bytes=" in error for error in barrier_errors)
    barrier_errors.clear()
    world.run(lambda rank: attempt(rank, good if rank == 2 else None))
    assert len(barrier_errors) == 3  # rank 2 sends what belongs to rank 0


def test_groups_that_are_not_there():
    with pytest.raises(stepvan.InvalidError, match="there is no group: initialize torch.distributed"):
        build_local_reshard_plan(None, None)
    with pytest.raises(stepvan.InvalidError, match="all_gather needs the rank of this process"):
        build_local_reshard_plan(None, None, all_gather=lambda mine: [mine])
    with pytest.raises(stepvan.InvalidError, match="what a rank has sent is not its part"):
        build_local_reshard_plan(None, None, rank=0, all_gather=lambda mine: [mine, b"\x80\x04N."])
    with pytest.raises(stepvan.ProtocolError):
        build_local_reshard_plan(None, None, rank=0, all_gather=lambda mine: [mine, mine[:10] + b"garbage"])


@pytest.mark.parametrize("seed", range(20))
def test_random_models_move(seed):
    dice = random.Random(seed)

    def layout(first):
        found = rw.Layout(dice.choice([1, 2, 4]), dice.choice([1, 2]), dice.choice([1, 2, 4]), dice.choice([1, 2]), first)
        return found if found.size <= 8 else found._replace(copies=1, pp=1, ep=dice.choice([1, 2]))

    src, whole = layout(0), rw.weights(seed)
    dst = layout(dice.randrange(src.size + 1))
    sources = {rank: rw.model(src, rank, whole) for rank in range(src.size)}
    destinations = {rank: rw.model(dst, rank, None) for rank in range(dst.first, dst.first + dst.size)}
    lock, posted = threading.Lock(), {}
    rosters = [make_roster(sources.get(r), destinations.get(r), r, rw.EXPERTS) for r in range(max(src.size, dst.first + dst.size))]
    plans = [ReshardPlan.from_bytes(data) for data in plan_rosters(rosters, range(len(rosters)))]
    with torch.no_grad(), lock:
        for rank, plan in enumerate(plans):
            for op in plan.send_ops:
                posted[op.task_id] = (rank, op.peer_rank, utils.get_refit_tensor_dict(sources[rank])[op.param_name][op.my_slice])
        for rank, plan in enumerate(plans):
            for op in plan.recv_ops:
                sender, receiver, elements = posted.pop(op.task_id)
                assert (sender, receiver) == (op.peer_rank, rank)
                utils.get_refit_tensor_dict(destinations[rank])[op.param_name][op.my_slice] = elements
    assert not posted
    for rank, found in destinations.items():
        for name, tensor in rw.model(dst, rank, whole).state_dict().items():
            assert torch.equal(found.state_dict()[name], tensor), name
