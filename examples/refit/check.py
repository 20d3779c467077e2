"""Compares what trainers and inference processes have written: weights, and the embeddings of each version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from parallel import Layout, Part, Task, inference_layout, kept, run_together, training_layout, whole_state
from torch import Tensor

LIMIT = 5e-4  # between two layouts, which add in different orders

State = dict[str, Tensor]
Served = list[tuple[int, int, Tensor]]


class Different(Exception):
    """What was compared is not what it must be."""


def check(output: Path, task: Task, steps: int) -> Iterator[str]:
    """Yields a line for each thing that is as it must be; else Different."""
    with torch.no_grad():
        inference = [torch.load(path) for path in sorted(output.glob("inference-*.pt"))]
        served: Served = inference[0]["served"]
        refitted = whole(inference_layout(task.config), [i["weights"] for i in inference])
        yield weights(refitted, trained(output, task, steps), steps)
        for index, other in enumerate(inference[1:], 1):
            same(served, other["served"], f"inference 0 and inference {index}")
        yield bits(output, task, steps, served)
        yield layouts(served, torch.load(output / "trainer-0-embeddings.pt"), task, steps)


def trained(output: Path, task: Task, version: int) -> State:
    """The whole model of a version, as the trainers have it."""
    layout = training_layout(task.config)
    return whole(layout, [torch.load(output / f"trainer-{r}-version-{version}.pt") for r in range(layout.ranks)])


def whole(layout: Layout, states: list[State]) -> State:
    try:
        return whole_state(layout, states)
    except ValueError as error:
        raise Different(str(error)) from None


def weights(refitted: State, original: State, version: int) -> str:
    """Whether inference has the trainers' weights."""
    for name, tensor in original.items():
        if not equal(refitted[name], tensor):
            wrong = (bits_of(refitted[name]) != bits_of(tensor)).sum().item()
            raise Different(f"{name}: {wrong} of {tensor.numel()} elements differ from the trainers' version {version}")
    return f"The {len(original)} parameters that inference has are the trainers' after step {version}, bit for bit."


def same(one: Served, other: Served, who: str) -> None:
    """Whether two inference processes have served the same."""
    if [served[:2] for served in one] != [served[:2] for served in other]:
        raise Different(f"{who} have served different versions")
    for (version, batch, mine), (_, _, yours) in zip(one, other, strict=True):
        if not equal(mine, yours):
            raise Different(f"{who} differ in batch {batch} with version {version}")


def bits(output: Path, task: Task, steps: int, served: Served) -> str:
    """Whether each batch that was served is what one process computes in the same layout with that version."""
    layout, batches = inference_layout(task.config), task.batches
    if missing := set(range(len(batches))) - {batch for version, batch, _ in served if version == steps}:
        raise Different(f"batches {sorted(missing)} were not embedded with version {steps}")
    for version in (versions := {version for version, _, _ in served}):
        if not 1 <= version <= steps:
            raise Different(f"version {version} was served, and the trainers made 1 to {steps}")
    checked = sorted(versions.intersection(kept(steps)))
    for version in checked:
        state = trained(output, task, version)
        parts = [Part(layout, rank).requires_grad_(False).fill(state) for rank in range(layout.ranks)]
        known: dict[int, Tensor] = {}
        for v, batch, result in served:
            if v != version:
                continue
            if batch not in known:
                known[batch] = run_together(parts, batches[batch])
            if not equal(result, known[batch]):
                far = (result - known[batch]).abs().max().item()
                raise Different(f"batch {batch} with version {version} is {far:.2g} from what one process computes")
    count = sum(version in checked for version, _, _ in served)
    what = f"{count} of the {len(served)} batches" if count < len(served) else f"The {count} batches"
    return f"{what} that were served, with {len(checked)} versions, have the bits of one process in the same layout."


def layouts(served: Served, embeddings: dict[int, Tensor], task: Task, steps: int) -> str:
    """How far the embeddings are from those that the trainers compute in their layout with the same version."""
    farthest = 0.0
    starts = [0]
    for batch in task.batches:
        starts.append(starts[-1] + len(batch.lengths))
    for version, batch, result in served:
        theirs = embeddings[version][starts[batch] : starts[batch + 1]]
        far = (result[: len(theirs)] - theirs).abs().max().item() if len(theirs) else 0.0
        if not far <= LIMIT:
            raise Different(f"batch {batch} with version {version} is {far:.2g} from the trainers' (limit {LIMIT:.0e})")
        farthest = max(farthest, far)
    return f"The trainers' layout gives the same embeddings up to {farthest:.1g} (limit {LIMIT:.0e})."


def equal(one: Tensor, other: Tensor) -> bool:
    """Whether all bits are the same; -0 and 0 are not, and nan is what it is."""
    return one.shape == other.shape and torch.equal(bits_of(one), bits_of(other))


def bits_of(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.int32)
