"""Micro-batches: sentences of any length behind each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Batch:
    """The token ids of several sentences, and how many each has."""

    ids: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Rows of the batch's activations."""
        return len(self.ids)

    def append(self, ids: list[int]) -> None:
        self.ids.extend(ids)
        self.lengths.append(len(ids))


def pack(sentences: Iterable[list[int]], max_tokens: int) -> list[Batch]:
    """Puts sentences into batches of at most ``max_tokens`` tokens, in order.

    A batch never splits a sentence, so each must have 1 to ``max_tokens`` tokens.
    """
    batches: list[Batch] = []
    for i, ids in enumerate(sentences):
        if not 1 <= len(ids) <= max_tokens:
            raise ValueError(f"sentence {i} has {len(ids)} tokens; a batch holds 1 to {max_tokens}")
        if not batches or batches[-1].tokens + len(ids) > max_tokens:
            batches.append(Batch())
        batches[-1].append(ids)
    return batches
