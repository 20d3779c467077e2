"""The model of one rank, and a forward pass in which the sums come from outside."""

from __future__ import annotations

from collections.abc import Callable, Generator

import torch
from minilm import Batch, MiniLM
from minilm.attention import SelfAttention
from torch import Tensor
from torch.nn import functional as F

from .layout import Layout
from .sums import in_order

Sum = Callable[[Tensor], Tensor]
"""Gives the sum of a tensor of this rank and those of the other ranks."""


class Part(MiniLM):
    """What one rank has of the encoder. Its parameters have the names of the whole, and begin as nan."""

    def __init__(self, layout: Layout, rank: int) -> None:
        super().__init__(layout.config)
        self.layout, self.rank = layout, rank
        self.first_word = layout.words_of(rank)[0]
        for name, parameter in self.named_parameters():
            mine = layout.range_of(name, parameter.shape, rank).of(parameter.data)
            parameter.data = torch.full_like(mine, torch.nan, memory_format=torch.contiguous_format)
        first, end = layout.heads_of(rank)
        for attention in self.attention.attention:
            attention.heads = end - first

    def fill(self, whole: dict[str, Tensor]) -> Part:
        """Copies this rank's elements of the whole model's parameters."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(self.layout.range_of(name, whole[name].shape, self.rank).of(whole[name]))
        return self

    def forward(self, batch: Batch, enter: Sum = lambda x: x) -> Generator[Tensor, Tensor, Tensor]:
        """Yields what this rank adds to each sum, is sent the sum, and returns the embeddings.

        enter: is called with the input of each divided layer, which all ranks have. In training it sums the gradients.
        """
        e = self.attention.embeddings
        positions = torch.cat([torch.arange(n) for n in batch.lengths])
        words = yield self.words(batch)
        x = e.norm(words + e.types.weight[0] + e.positions(positions))
        for attention, net, norm in zip(self.attention.attention, self.ffn.nets, self.attention.norms, strict=True):
            total = yield self.attend(attention, enter(x), batch.lengths)
            x = attention.norm(total + attention.output.bias + x)
            total = yield F.linear(F.gelu(net.up(enter(x))), net.down.weight)
            x = norm(total + net.down.bias + x)
        return self.attention.pool(x, batch)

    def words(self, batch: Batch) -> Tensor:
        """The embeddings of the words that this rank has, and zeros for the others."""
        weight = self.attention.embeddings.words.weight
        ids = torch.tensor(batch.ids) - self.first_word
        mine = (ids >= 0) & (ids < len(weight))
        return F.embedding(ids.where(mine, torch.tensor(0)), weight).where(mine[:, None], torch.tensor(0.0))

    @staticmethod
    def attend(attention: SelfAttention, x: Tensor, lengths: list[int]) -> Tensor:
        """The heads of this rank, without the bias of the output, which is added to the sum."""
        parts = zip(*(m(x).split(lengths) for m in (attention.query, attention.key, attention.value)), strict=True)
        context = torch.cat([attention.sentence(q, k, v) for q, k, v in parts])
        return F.linear(context, attention.output.weight)


def run(part: Part, batch: Batch, add: Sum, enter: Sum = lambda x: x) -> Tensor:
    """The embeddings of a batch, ``[sentences, hidden]``. All ranks call it together, and all get the same."""
    passing = part(batch, enter)
    try:
        summand = next(passing)
        while True:
            summand = passing.send(add(summand))
    except StopIteration as end:
        return end.value


def run_together(parts: list[Part], batch: Batch) -> Tensor:
    """What ``run`` gives between processes, computed in this one: each part computes what its process computes."""
    passing = [part(batch) for part in parts]
    summands = [next(p) for p in passing]
    while True:
        total = in_order(summands)
        try:
            summands = [p.send(total) for p in passing]
        except StopIteration as end:  # all parts end at the same time
            return end.value
