"""A trainer: it trains its part of the model, and gives every version to inference."""

from __future__ import annotations

import time
from pathlib import Path

import stepvan
import torch
from parallel import Part, Sums, Task, kept, run, training_layout
from parallel.task import MAX_TOKENS
from refit import TRAINERS, plan_of, tell
from torch import Tensor
from torch.nn import functional as F

LEARNING_RATE = 2e-5
TEMPERATURE = 0.05
TIMEOUT = 120  # seconds for a refit, in which inference ends the batch that it has begun


def train(node: stepvan.Node, task: Task, steps: int, output: Path) -> None:
    """Trains for so many steps. The weights after step n are version n. Both trainers compute the same loss."""
    layout, rank = training_layout(task.config), node.peer.rank
    name = f"trainer {rank}"
    part = stepvan.share_(Part(layout, rank).fill(task.weights()), node)
    batch = task.trained
    sums = Sums(node, TRAINERS, max(batch.tokens, MAX_TOKENS), task.config.hidden)
    embeddings = {}
    tell(name, f"has {layout.tell(rank)}, and trains with {len(batch.lengths)} sentences")
    with plan_of(node, part) as plan:
        optimizer = torch.optim.Adam(part.parameters(), lr=LEARNING_RATE)
        refit = None
        for version in range(1, steps + 1):
            began = time.monotonic()
            embedded = run(part, batch, sums.differentiable, sums.enter)
            embeddings[version - 1] = embedded.detach()
            loss = contrast(embedded)
            optimizer.zero_grad()
            loss.backward()
            computed = time.monotonic()
            if refit is not None:  # inference may read the weights until it ends
                refit.wait(TIMEOUT)
            waited = time.monotonic() - computed
            optimizer.step()
            refit = plan.run(version)
            if rank == TRAINERS[0]:
                told = f"step {version}: loss {loss.item():.4f}, {time.monotonic() - began:.2f} s"
                after = f", {1e3 * waited:.1f} ms of it waiting for the refit to version {version - 1}"
                tell(name, told + after * (version > 1))
            if version in kept(steps):
                torch.save(dict(part.named_parameters()), output / f"trainer-{rank}-version-{version}.pt")
        refit.wait(TIMEOUT)
        with torch.no_grad():
            embeddings[steps] = torch.cat([run(part, b, sums.add) for b in task.batches])
        torch.save(embeddings, output / f"trainer-{rank}-embeddings.pt")


def contrast(embeddings: Tensor) -> Tensor:
    """How badly the first sentences of the pairs find their second ones (InfoNCE, van den Oord et al. 2018, eq. 4)."""
    similar = embeddings[0::2] @ embeddings[1::2].T / TEMPERATURE
    return F.cross_entropy(similar, torch.arange(len(similar)))
