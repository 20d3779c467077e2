"""The attention side: everything of the encoder but its feed-forward nets."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .batch import Batch
from .config import Config


class Embeddings(nn.Module):
    """Word, position and type embeddings, summed and normalised."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.hidden)
        self.positions = nn.Embedding(config.positions, config.hidden)
        self.types = nn.Embedding(config.types, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, eps=config.norm_eps)

    def forward(self, batch: Batch) -> Tensor:
        """``[tokens, hidden]``; every sentence begins at position 0, all tokens have type 0."""
        positions = torch.cat([torch.arange(n) for n in batch.lengths])
        x = self.words(torch.tensor(batch.ids)) + self.types.weight[0]
        return self.norm(x + self.positions(positions))


class SelfAttention(nn.Module):
    """Multi-head self-attention within each sentence, with its residual and layer norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.head_size = config.heads, config.head_size
        self.query = nn.Linear(config.hidden, config.hidden)
        self.key = nn.Linear(config.hidden, config.hidden)
        self.value = nn.Linear(config.hidden, config.hidden)
        self.output = nn.Linear(config.hidden, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, eps=config.norm_eps)

    def forward(self, x: Tensor, lengths: list[int]) -> Tensor:
        """``x`` and the result are ``[tokens, hidden]``; ``lengths`` are the sentences' tokens."""
        parts = zip(*(m(x).split(lengths) for m in (self.query, self.key, self.value)))
        context = torch.cat([self.sentence(q, k, v) for q, k, v in parts])
        return self.norm(self.output(context) + x)

    def sentence(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """softmax(q k' / sqrt(head size)) v for every head of one sentence (Vaswani et al. 2017, eq. 1)."""
        q, k, v = (t.view(-1, self.heads, self.head_size).transpose(0, 1) for t in (q, k, v))
        weights = torch.softmax(q @ k.transpose(1, 2) / self.head_size**0.5, dim=-1)
        return (weights @ v).transpose(0, 1).flatten(1)


class AttentionHalf(nn.Module):
    """What a worker holds. For layer i of ``layers``: ``attend``, the net elsewhere, ``finish``."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.attention = nn.ModuleList(SelfAttention(config) for _ in range(config.layers))
        self.norms = nn.ModuleList(nn.LayerNorm(config.hidden, eps=config.norm_eps) for _ in range(config.layers))

    @property
    def layers(self) -> int:
        return self.config.layers

    def embed(self, batch: Batch) -> Tensor:
        """The first activations of a batch."""
        return self.embeddings(batch)

    def attend(self, layer: int, x: Tensor, batch: Batch) -> Tensor:
        """The input of the layer's feed-forward net."""
        return self.attention[layer](x, batch.lengths)

    def finish(self, layer: int, attended: Tensor, ffn_output: Tensor) -> Tensor:
        """The layer's activations: the net's output added to its input, and normalised."""
        return self.norms[layer](ffn_output + attended)

    @staticmethod
    def pool(x: Tensor, batch: Batch) -> Tensor:
        """``[sentences, hidden]``: the mean over each sentence's tokens, scaled to length 1."""
        means = torch.stack([part.mean(dim=0) for part in x.split(batch.lengths)])
        return nn.functional.normalize(means, dim=1)
