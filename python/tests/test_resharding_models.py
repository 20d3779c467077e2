"""A model that moves between parallel layouts, with a service of this process."""

import pytest
import resharding_world as rw
import torch

from stepvan.resharding import execute_reshard_plan, version_of

L = rw.Layout
PAIRS = [  # (TP, PP, EP) of both sides
    (L(2, 1, 1), L(1, 1, 1)),
    (L(2, 1, 1), L(4, 1, 1)),
    (L(1, 2, 1), L(2, 4, 1)),
    (L(2, 1, 1), L(1, 2, 1)),
    (L(1, 1, 2), L(1, 1, 4)),
    (L(1, 1, 2), L(1, 1, 1)),
    (L(1, 1, 1), L(1, 1, 2)),
    (L(4, 1, 1), L(2, 1, 2)),
    (L(4, 1, 1), L(1, 1, 4)),
    (L(2, 1, 2), L(4, 1, 1)),
    (L(1, 1, 4), L(4, 1, 1)),
    (L(2, 1, 1, 2), L(1, 1, 1, 3)),
]
TOKENS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])


def check(layout: rw.Layout, models: dict[int, rw.Tree], whole: dict[str, torch.Tensor], expected: torch.Tensor) -> None:
    """The destinations have the bytes that their layout gives them, and compute the same."""
    for rank, found in models.items():
        wanted = rw.model(layout, rank, whole).state_dict()
        state = found.state_dict()
        assert wanted.keys() == state.keys()
        for name, tensor in wanted.items():
            if state[name].dtype == tensor.dtype:
                assert torch.equal(state[name], tensor), name
            else:
                assert torch.equal(state[name], tensor.to(state[name].dtype)), name
    assert torch.allclose(rw.logits(layout, models, TOKENS), expected, atol=5e-4, rtol=0)


@pytest.mark.parametrize("apart", [False, True], ids=["collocated", "apart"])
@pytest.mark.parametrize(("src", "dst"), PAIRS, ids=lambda layout: "tp{}pp{}ep{}x{}".format(*layout))
def test_a_model_moves(src, dst, apart):
    if apart:
        dst = dst._replace(first=src.size + 1)  # one idle rank between both
    whole = rw.weights(1)
    sources = {rank: rw.model(src, rank, whole) for rank in range(src.size)}
    destinations = {rank: rw.model(dst, rank, None) for rank in range(dst.first, dst.first + dst.size)}
    expected = rw.logits(src, sources, TOKENS)
    assert rw.logits(src, {r: rw.model(src, r, rw.weights(2)) for r in sources}, TOKENS).sub(expected).abs().max() > 0.1
    world = rw.World(max(src.size, dst.first + dst.size))
    plans = rw.refit(world, sources, destinations)
    check(dst, destinations, whole, expected)
    sends = {(rank, op.peer_rank, op.task_id) for rank, plan in enumerate(plans) for op in plan.send_ops}
    recvs = {(op.peer_rank, rank, op.task_id) for rank, plan in enumerate(plans) for op in plan.recv_ops}
    assert sends == recvs and len(recvs) == sum(len(plan.recv_ops) for plan in plans)


def test_the_bias_of_a_router_is_cast():
    src, dst = L(2, 1, 1), L(1, 1, 2, first=2)
    whole = rw.weights(1)
    sources = {rank: rw.model(src, rank, whole) for rank in range(2)}
    destinations = {rank: rw.model(dst, rank, None, bias=torch.bfloat16) for rank in (2, 3)}
    plans = rw.refit(rw.World(4), sources, destinations)
    bias = "decoder.layers.0.mlp.router.expert_bias"
    assert destinations[2].get_buffer(bias).dtype == torch.bfloat16
    assert torch.equal(destinations[2].get_buffer(bias), whole[bias].to(torch.bfloat16))
    assert plans[2].buffer_dtypes == {f"decoder.layers.{i}.mlp.router.expert_bias": torch.float32 for i in range(4)}
    assert plans[0].buffer_dtypes is None


@pytest.mark.parametrize("limit", [1, 4000, 1 << 30])
def test_batches_bound_the_memory(limit):
    src, dst = L(2, 2, 1), L(1, 1, 2, first=4)
    whole = rw.weights(1)
    sources = {rank: rw.model(src, rank, whole) for rank in range(4)}
    destinations = {rank: rw.model(dst, rank, None) for rank in (4, 5)}
    services = {}
    world = rw.World(6)
    plans = rw.refit(world, sources, destinations, lambda rank: services.setdefault(rank, world.service(rank)), batch_bytes=limit)
    check(dst, destinations, whole, rw.logits(src, sources, TOKENS))
    batches = plans[0].num_batches
    assert (batches == 1) == (limit == 1 << 30)
    largest = max(tensor.numel() * 4 for tensor in whole.values())
    for rank, service in services.items():
        assert len(service.runs) == batches
        assert max(service.bytes) <= max(limit, largest)
        assert sum(recvs for _, recvs in service.runs) == len(plans[rank].recv_ops)
    for plan in plans:
        batch = {}
        for op in plan.recv_ops:
            assert batch.setdefault(op.param_name, op.batch_id) == op.batch_id


def test_versions_of_a_refit():
    src, dst = L(2), L(1, first=2)
    sources = {rank: rw.model(src, rank, rw.weights(1)) for rank in range(2)}
    target = rw.model(dst, 2, None)
    world = rw.World(3)
    seen = []

    def one(rank):
        mine, theirs = sources.get(rank), target if rank == 2 else None
        plan, service = world.plan(rank, mine, theirs, num_experts=rw.EXPERTS), world.service(rank)
        run = service.run

        def watched():
            if rank == 2:
                seen.append(version_of(target))
            run()

        service.run = watched
        for version in (None, 7, 7, None):
            execute_reshard_plan(plan, mine, theirs, service, version=version)
            if rank == 2:
                seen.append(version_of(target))
        with pytest.raises(ValueError, match=r"version falls \(got 7, want at least 8\)"):
            execute_reshard_plan(plan, mine, theirs, service, version=7)
        for wrong in (0, -1, 1.5):
            with pytest.raises(ValueError, match="version is wrong"):
                execute_reshard_plan(plan, mine, theirs, service, version=wrong)

    world.run(one)
    assert seen == [0, 1, 0, 7, 0, 7, 0, 8]
    assert version_of(target) == 8
