"""The feed-forward nets, whole or cut along the intermediate dimension."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .config import Config


class FeedForward(nn.Module):
    """down(gelu(up(x))) for ``[tokens, hidden]``, without residual and norm.

    ``part`` of ``parts`` holds rows of ``up`` and the same columns of ``down``. Part 0
    has the bias of ``down``, so that the answers of the parts add up to the whole.
    """

    def __init__(self, config: Config, part: int = 0, parts: int = 1) -> None:
        super().__init__()
        if not 0 <= part < parts <= config.intermediate:
            raise ValueError(f"part {part} of {parts} of {config.intermediate} intermediate values")
        low = config.intermediate * part // parts
        high = config.intermediate * (part + 1) // parts
        self.cut = slice(low, high)
        self.up = nn.Linear(config.hidden, high - low)
        self.down = nn.Linear(high - low, config.hidden, bias=part == 0)

    def forward(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Written to ``out`` where it is given, and returned."""
        x = nn.functional.gelu(self.up(x))
        if out is None:
            return self.down(x)
        if self.down.bias is None:
            return torch.mm(x, self.down.weight.t(), out=out)
        return torch.addmm(self.down.bias, x, self.down.weight.t(), out=out)


class FFNSlice(nn.Module):
    """What a server holds: one part of the feed-forward net of every layer."""

    def __init__(self, config: Config, part: int = 0, parts: int = 1) -> None:
        super().__init__()
        self.config = config
        self.nets = nn.ModuleList(FeedForward(config, part, parts) for _ in range(config.layers))

    def forward(self, layer: int, x: Tensor, out: Tensor | None = None) -> Tensor:
        """This part's summand of the layer's output, ``[tokens, hidden]``, in ``out`` where it is given."""
        return self.nets[layer](x, out)
