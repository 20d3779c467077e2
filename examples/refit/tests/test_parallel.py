"""The divided model against the whole one, and the moves between two layouts, in one process."""

from __future__ import annotations

import random
import sys
import threading
from functools import reduce
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from parallel import (
    LEADER,
    Layout,
    Part,
    Sums,
    inference_layout,
    kept,
    run,
    run_together,
    shapes,
    small,
    training_layout,
    whole_state,
)
from parallel.task import SMALL

from minilm import MiniLM

TASK = small(12)


def some_layout(rng):
    """Random proportions for 1 to 4 ranks, such that each has a head, a column and a word."""
    ranks = rng.randint(1, 4)
    return Layout(SMALL, *(tuple(rng.randint(2, 9) for _ in range(ranks)) for _ in range(3)))


def whole_model():
    model = MiniLM(SMALL)
    model.load_state_dict(TASK.weights())
    return model


@pytest.mark.parametrize("seed", range(10))
def test_parts_embed_as_the_whole(seed):
    layout = some_layout(random.Random(seed))
    parts = [Part(layout, rank).fill(TASK.weights()) for rank in range(layout.ranks)]
    for batch in TASK.batches:
        with torch.no_grad():
            torch.testing.assert_close(run_together(parts, batch), whole_model()(batch))


def test_a_part_without_weights_embeds_nothing():
    with torch.no_grad():
        assert run_together([Part(Layout(SMALL, (1,), (1,), (1,)), 0)], TASK.batches[0]).isnan().all()


@pytest.mark.parametrize("seed", range(20))
def test_each_element_has_one_rank(seed):
    layout = some_layout(random.Random(seed))
    whole = {name: torch.arange(shape.numel()).view(shape) for name, shape in shapes(SMALL).items()}
    ranges = [{n: layout.range_of(n, t.shape, rank) for n, t in whole.items()} for rank in range(layout.ranks)]
    parts = [{n: r.of(whole[n]) for n, r in state.items()} for state in ranges]
    assembled = whole_state(layout, parts)
    assert all(torch.equal(assembled[name], tensor) for name, tensor in whole.items())
    for state, part in zip(ranges, parts, strict=True):
        for name, tensor in whole.items():
            spans = [slice(*span) for (span,) in state[name].spans(tensor.shape)]
            assert torch.equal(tensor[tuple(spans)], part[name])


def test_the_leader_has_weights_of_both_trainers():
    """It looks for offers, so both trainers must have begun what it is offered."""
    first, end = inference_layout(SMALL).heads_of(LEADER)
    middle, _ = training_layout(SMALL).heads_of(1)
    assert first < middle < end


def test_what_all_have_must_be_equal():
    layout = training_layout(SMALL)
    states = [dict(Part(layout, rank).fill(TASK.weights()).named_parameters()) for rank in range(2)]
    with torch.no_grad():
        states[1]["attention.norms.1.bias"][3] += 1
    with pytest.raises(ValueError, match=r"attention.norms.1.bias is not the same at the ranks 0 and 1"):
        whole_state(layout, states)


class Threads(Sums):
    """Sums between threads instead of peers."""

    def __init__(self, rank, summands, barrier):
        self.rank, self.shared, self.barrier = rank, summands, barrier

    def add(self, mine):
        self.shared[self.rank] = mine
        self.barrier.wait(20)
        total = reduce(torch.add, self.shared)
        self.barrier.wait(20)
        return total


@pytest.mark.parametrize("layout", [training_layout(SMALL), inference_layout(SMALL)], ids=["training", "inference"])
def test_gradients_are_those_of_the_whole(layout):
    batch = TASK.trained
    parts = [Part(layout, rank).fill(TASK.weights()) for rank in range(layout.ranks)]
    factors = torch.randn(len(batch.lengths), SMALL.hidden, generator=torch.Generator().manual_seed(1))
    summands, barrier = [None] * layout.ranks, threading.Barrier(layout.ranks)

    def train(part):
        sums = Threads(part.rank, summands, barrier)
        with torch.enable_grad():  # other tests of the process may have switched gradients off
            (run(part, batch, sums.differentiable, sums.enter) * factors).sum().backward()

    threads = [threading.Thread(target=train, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = whole_model()
    with torch.enable_grad():
        (whole(batch) * factors).sum().backward()
    for name, parameter in whole.named_parameters():
        for part in parts:
            got = dict(part.named_parameters())[name].grad
            want = layout.range_of(name, parameter.shape, part.rank).of(parameter.grad)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}")
    # The gradients of what all ranks have are equal bit for bit, so that their copies stay equal.
    whole_state(layout, [{n: p.grad for n, p in part.named_parameters()} for part in parts])


@pytest.mark.parametrize("steps", [1, 2, 7, 8, 9, 100])
def test_kept_versions(steps):
    versions = kept(steps)
    assert versions[-1] == steps
    assert len(set(versions)) == len(versions) == min(steps, 8)
    assert set(versions) <= set(range(1, steps + 1))


def test_a_small_task_is_always_the_same():
    assert small(12).sentences == TASK.sentences
    assert all(torch.equal(one, other) for one, other in zip(small(12).weights().values(), TASK.weights().values()))
    lengths = [len(ids) for ids in TASK.sentences]
    assert [n for batch in TASK.batches for n in batch.lengths] == lengths
    assert len(small(13).trained.lengths) == 12
