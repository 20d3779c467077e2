"""The sizes of a BERT encoder, from its config.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Config:
    """Sizes of the encoder; all counts are positive."""

    vocabulary: int
    positions: int
    types: int
    hidden: int
    intermediate: int
    heads: int
    layers: int
    norm_eps: float

    def __post_init__(self) -> None:
        if self.hidden % self.heads:
            raise ValueError(f"hidden size {self.hidden} is not a multiple of {self.heads} heads")

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    @classmethod
    def open(cls, path: str | Path) -> Config:
        """Reads config.json as transformers writes it; ValueError for another kind of model."""
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
        if raw.get("hidden_act") != "gelu" or raw.get("position_embedding_type", "absolute") != "absolute":
            raise ValueError(f"{path}: only BERT with gelu and absolute positions is supported")
        return cls(
            vocabulary=raw["vocab_size"],
            positions=raw["max_position_embeddings"],
            types=raw["type_vocab_size"],
            hidden=raw["hidden_size"],
            intermediate=raw["intermediate_size"],
            heads=raw["num_attention_heads"],
            layers=raw["num_hidden_layers"],
            norm_eps=raw["layer_norm_eps"],
        )
