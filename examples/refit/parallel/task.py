"""What is trained and embedded: the published model and sentences, or a small model of random numbers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from minilm import Batch, Config, MiniLM, Tokenizer, fetch, pack, sentences
from minilm.weights import load_whole
from torch import Tensor

MAX_TOKENS = 256  # of a batch
LEAST_SENTENCES = 4
MOST_TRAINED = 32
MOST_KEPT = 8
SMALL = Config(vocabulary=101, positions=40, types=2, hidden=48, intermediate=70, heads=12, layers=2, norm_eps=1e-12)


@dataclass(frozen=True)
class Task:
    """A model, and sentences as the numbers of their tokens.

    weights: gives the parameters of the whole model.
    """

    config: Config
    sentences: list[list[int]]
    weights: Callable[[], dict[str, Tensor]]

    @property
    def batches(self) -> list[Batch]:
        """All sentences, as inference embeds them."""
        return pack(self.sentences, MAX_TOKENS)

    @property
    def trained(self) -> Batch:
        """Pairs of sentences that stand beside each other, as the trainers take them."""
        count = min(len(self.sentences), MOST_TRAINED) // 2 * 2
        chosen = self.sentences[:count]
        return pack(chosen, sum(map(len, chosen)))[0]


def kept(steps: int) -> list[int]:
    """The versions whose weights the trainers keep for the check: the last one, and others evenly before it."""
    count = min(steps, MOST_KEPT)
    return [steps * i // count for i in range(1, count + 1)]


def published(count: int, folder: Path | None = None) -> Task:
    """The published model, and the first so many of the sentences that ship with the examples."""
    files = fetch(folder)
    tokenizer = Tokenizer(files.tokenizer)
    texts = sentences()[:count]
    ids = [tokenizer.encode(s) for s in texts]
    return Task(Config.open(files.config), ids, lambda: dict(load_whole(files).named_parameters()))


def small(count: int) -> Task:
    """A model that needs no files. Each call gives the same."""
    rng = random.Random(1)
    ids = [[rng.randrange(SMALL.vocabulary) for _ in range(rng.randint(2, 20))] for _ in range(count)]
    return Task(SMALL, ids, _random_weights)


def _random_weights() -> dict[str, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return dict(MiniLM(SMALL).requires_grad_(False).named_parameters())
