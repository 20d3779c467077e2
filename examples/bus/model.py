"""A small model, its layout in both jobs, and its weights after each step."""

from __future__ import annotations

from typing import Any

import torch

FSDP, TP = 2, 2  # the mesh of training
SERVERS = 2  # the mesh of inference
Placements = tuple[Any, ...]

# name: shape, placements in training over (FSDP, TP), placements in inference over (SERVERS,). FSDP2 over tensor
# parallelism shards the rows of a column-parallel weight twice: first by TP, then by FSDP.
LAYOUT: dict[str, tuple[tuple[int, int], Placements, Placements]] = {
    "up": ((768, 256), (("strided shard", 0, TP), ("shard", 0)), (("shard", 0),)),
    "down": ((256, 768), (("shard", 0), ("shard", 1)), (("shard", 1),)),
    "norm": ((256, 1), (("shard", 0), "replicate"), ("replicate",)),
}


def weights(version: int) -> dict[str, torch.Tensor]:
    """The whole weights after so many steps: each adds the gradients of its number."""
    whole = {name: torch.zeros(shape) for name, (shape, _, _) in LAYOUT.items()}
    for step in range(1, version + 1):
        for name, gradient in gradients(step).items():
            whole[name] -= 0.1 * gradient
    return whole


def gradients(step: int) -> dict[str, torch.Tensor]:
    """The whole gradients of a step."""
    random = torch.Generator().manual_seed(step)
    return {name: torch.randn(shape, generator=random) for name, (shape, _, _) in LAYOUT.items()}


def trained(whole: dict[str, torch.Tensor], rank: int) -> dict[str, torch.Tensor]:
    """The part of a trainer."""
    fsdp, tp = divmod(rank, TP)
    return {
        "up": whole["up"].chunk(TP, 0)[tp].chunk(FSDP, 0)[fsdp],
        "down": whole["down"].chunk(TP, 1)[tp].chunk(FSDP, 0)[fsdp],
        "norm": whole["norm"].chunk(FSDP, 0)[fsdp],
    }


def served(whole: dict[str, torch.Tensor], rank: int) -> dict[str, torch.Tensor]:
    """The part of a process that serves."""
    return {"up": whole["up"].chunk(SERVERS, 0)[rank], "down": whole["down"].chunk(SERVERS, 1)[rank], "norm": whole["norm"]}
