"""The published parameters: reads safetensors and fills the modules."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from .attention import AttentionHalf, SelfAttention
from .config import Config
from .ffn import FeedForward, FFNSlice
from .files import Files
from .whole import MiniLM

M = TypeVar("M", bound=nn.Module)


class Checkpoint:
    """The float32 tensors of one safetensors file, read when asked for.

    The format: 8 bytes little-endian length, a JSON header with type, shape and
    byte range of every tensor, then the bytes.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            self.entries = json.loads(file.read(length))
            self.start = 8 + length

    def tensor(self, name: str) -> Tensor:
        """A copy of the tensor; KeyError for an unknown name."""
        entry = self.entries[name]
        if entry["dtype"] != "F32":
            raise ValueError(f"{self.path}: {name} is {entry['dtype']}; float32 is expected")
        low, high = entry["data_offsets"]
        with self.path.open("rb") as file:
            file.seek(self.start + low)
            raw = bytearray(file.read(high - low))
        if len(raw) != high - low:
            raise ValueError(f"{self.path} ends within {name}")
        return torch.frombuffer(raw, dtype=torch.float32).view(entry["shape"])


def load_whole(files: Files) -> MiniLM:
    """The unsplit encoder."""
    model = MiniLM(Config.open(files.config))
    source = Checkpoint(files.weights)
    fill_attention(model.attention, source)
    fill_ffn(model.ffn, source)
    return ready(model)


def load_attention(files: Files) -> AttentionHalf:
    """A worker's half."""
    model = AttentionHalf(Config.open(files.config))
    fill_attention(model, Checkpoint(files.weights))
    return ready(model)


def load_ffn(files: Files, part: int, parts: int) -> FFNSlice:
    """A server's part of every feed-forward net."""
    model = FFNSlice(Config.open(files.config), part, parts)
    fill_ffn(model, Checkpoint(files.weights))
    return ready(model)


def ready(model: M) -> M:
    return model.eval().requires_grad_(False)


def fill_attention(model: AttentionHalf, source: Checkpoint) -> None:
    e = model.embeddings
    for module, name in (
        (e.words, "word_embeddings"),
        (e.positions, "position_embeddings"),
        (e.types, "token_type_embeddings"),
        (e.norm, "LayerNorm"),
    ):
        fill(module, source, f"embeddings.{name}")
    for i, (attention, norm) in enumerate(zip(model.attention, model.norms)):
        for module, name in names_of_attention(attention):
            fill(module, source, f"encoder.layer.{i}.attention.{name}")
        fill(norm, source, f"encoder.layer.{i}.output.LayerNorm")


def names_of_attention(a: SelfAttention) -> Iterator[tuple[nn.Module, str]]:
    yield a.query, "self.query"
    yield a.key, "self.key"
    yield a.value, "self.value"
    yield a.output, "output.dense"
    yield a.norm, "output.LayerNorm"


def fill_ffn(model: FFNSlice, source: Checkpoint) -> None:
    for i, net in enumerate(model.nets):
        fill_net(net, source, f"encoder.layer.{i}")


def fill_net(net: FeedForward, source: Checkpoint, prefix: str) -> None:
    up, down = f"{prefix}.intermediate.dense", f"{prefix}.output.dense"
    copy(net.up.weight, source.tensor(f"{up}.weight")[net.cut])
    copy(net.up.bias, source.tensor(f"{up}.bias")[net.cut])
    copy(net.down.weight, source.tensor(f"{down}.weight")[:, net.cut])
    if net.down.bias is not None:
        copy(net.down.bias, source.tensor(f"{down}.bias"))


def fill(module: nn.Module, source: Checkpoint, prefix: str) -> None:
    for name, parameter in module.named_parameters():
        copy(parameter, source.tensor(f"{prefix}.{name}"))


def copy(parameter: nn.Parameter, value: Tensor) -> None:
    if parameter.shape != value.shape:
        raise ValueError(f"the file has {list(value.shape)} where {list(parameter.shape)} is needed")
    with torch.no_grad():
        parameter.copy_(value)
