"""The unsplit encoder: what a split one must equal."""

from __future__ import annotations

from torch import Tensor, nn

from .attention import AttentionHalf
from .batch import Batch
from .config import Config
from .ffn import FFNSlice


class MiniLM(nn.Module):
    """The encoder in one process."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = AttentionHalf(config)
        self.ffn = FFNSlice(config)

    def forward(self, batch: Batch) -> Tensor:
        """``[sentences, hidden]``: an embedding of length 1 for each sentence of the batch."""
        x = self.attention.embed(batch)
        for layer in range(self.attention.layers):
            attended = self.attention.attend(layer, x, batch)
            x = self.attention.finish(layer, attended, self.ffn(layer, attended))
        return self.attention.pool(x, batch)
