"""Which elements of each parameter a rank has."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from minilm import Config, MiniLM
from torch import Tensor


class Range(NamedTuple):
    """The elements from ``start`` to ``stop`` of one dimension, and all of the other dimensions."""

    dim: int
    start: int
    stop: int

    def of(self, tensor: Tensor) -> Tensor:
        """A view of these elements."""
        return tensor.narrow(self.dim, self.start, self.stop - self.start)

    def spans(self, shape: torch.Size) -> list[list[tuple[int, int]]]:
        """For each dimension of the whole, the ranges that these elements have of it."""
        return [[(self.start, self.stop) if dim == self.dim else (0, size)] for dim, size in enumerate(shape)]


# The parameters that are divided, by the ends of their names: along which dimension, and as what.
DIVIDED = {
    "words.weight": (0, "words"),
    "query.weight": (0, "heads"),
    "query.bias": (0, "heads"),
    "key.weight": (0, "heads"),
    "key.bias": (0, "heads"),
    "value.weight": (0, "heads"),
    "value.bias": (0, "heads"),
    "output.weight": (1, "heads"),
    "up.weight": (0, "columns"),
    "up.bias": (0, "columns"),
    "down.weight": (1, "columns"),
}


@dataclass(frozen=True)
class Layout:
    """In which proportions the ranks divide heads, columns of the feed-forward nets, and words.

    Every rank has the other parameters whole.
    """

    config: Config
    heads: tuple[int, ...]
    columns: tuple[int, ...]
    words: tuple[int, ...]

    @property
    def ranks(self) -> int:
        return len(self.heads)

    def heads_of(self, rank: int) -> tuple[int, int]:
        """The first head of a rank, and the first that it does not have."""
        return share(self.config.heads, self.heads, rank)

    def columns_of(self, rank: int) -> tuple[int, int]:
        return share(self.config.intermediate, self.columns, rank)

    def words_of(self, rank: int) -> tuple[int, int]:
        return share(self.config.vocabulary, self.words, rank)

    def range_of(self, name: str, shape: torch.Size, rank: int) -> Range:
        """What a rank has of the parameter, which has this shape as a whole."""
        divided = division(name)
        if divided is None:
            return Range(0, 0, shape[0])
        dim, unit = divided
        if unit == "words":
            return Range(dim, *self.words_of(rank))
        if unit == "columns":
            return Range(dim, *self.columns_of(rank))
        return Range(dim, *(head * self.config.head_size for head in self.heads_of(rank)))

    def assemble(self, name: str, parts: list[Tensor]) -> Tensor:
        """The whole parameter from those of all ranks. ValueError where ranks differ in what each has whole."""
        divided = division(name)
        if divided is not None:
            return torch.cat(parts, dim=divided[0])
        for rank, part in enumerate(parts):
            if not torch.equal(part, parts[0]):
                raise ValueError(f"{name} is not the same at the ranks 0 and {rank}")
        return parts[0]

    def tell(self, rank: int) -> str:
        """What a rank has, in words. Counts begin with 1."""
        heads, columns, words = self.heads_of(rank), self.columns_of(rank), self.words_of(rank)
        return ", ".join(
            f"{what} {start + 1} to {stop}"
            for what, (start, stop) in (("heads", heads), ("columns", columns), ("words", words))
        )


LEADER = 1
"""The rank of the inference layout that has heads of both trainers, so what it is offered both have begun."""


def training_layout(config: Config) -> Layout:
    """Two equal parts."""
    return Layout(config, (1, 1), (1, 1), (1, 1))


def inference_layout(config: Config) -> Layout:
    """Three parts, and none of them equals another or begins where a part of the trainers begins."""
    return Layout(config, (5, 4, 3), (7, 6, 4), (3, 4, 5))


def division(name: str) -> tuple[int, str] | None:
    """Along which dimension the parameter is divided, and as what; None for one that every rank has whole."""
    return DIVIDED.get(".".join(name.split(".")[-2:]))


def share(count: int, proportions: tuple[int, ...], rank: int) -> tuple[int, int]:
    """The start and the end of a rank's share of ``count`` things."""
    ends = [count * x // sum(proportions) for x in accumulate(proportions, initial=0)]
    return ends[rank], ends[rank + 1]


def shapes(config: Config) -> dict[str, torch.Size]:
    """The shapes of the whole model's parameters."""
    return {name: p.shape for name, p in MiniLM(config).named_parameters()}


def whole_state(layout: Layout, states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The parameters of the whole model, from those of all ranks."""
    return {name: layout.assemble(name, [state[name] for state in states]) for name in states[0]}
