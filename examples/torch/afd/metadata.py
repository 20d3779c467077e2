"""What an exchange is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

CPU = torch.device("cpu")


@dataclass
class AFDConnectorMetadata:
    """Describes the rows of one exchange's tensor.

    ``layer_idx``: layer of the model. ``stage_idx``: micro-batch, which has a buffer
    and one exchange in flight of its own. ``seq_lens``: tokens of each sequence; the
    tensor has their sum as rows, in this order. An FFN server merges the same stage of
    several workers. Then ``seq_lens`` lists the sequences of the first worker, then of
    the second, and so on. ``worker_tokens`` lists the rows of each worker.
    """

    layer_idx: int
    stage_idx: int
    seq_lens: list[int]
    dtype: torch.dtype
    device: torch.device = CPU
    worker_tokens: list[int] = field(default_factory=list)
    #: The requests to answer, by worker; None for an answered one. recv_attn_output fills the list,
    #: send_ffn_output uses it up.
    recv_handle_list: list[Any] | None = None
    request_id: str | None = None

    def __post_init__(self) -> None:
        if not self.seq_lens:
            raise ValueError("seq_lens is empty: an exchange has at least one sequence")
        if min(self.seq_lens) <= 0:
            raise ValueError(f"seq_lens {self.seq_lens}: every sequence has at least one token")

    @property
    def total_tokens(self) -> int:
        return sum(self.seq_lens)

    @property
    def num_sequences(self) -> int:
        return len(self.seq_lens)

    @property
    def is_single_sequence(self) -> bool:
        return len(self.seq_lens) == 1

    @property
    def is_multi_sequence(self) -> bool:
        return len(self.seq_lens) > 1

    @classmethod
    def create_attention_metadata(
        cls,
        layer_idx: int,
        stage_idx: int,
        seq_len: int | Sequence[int],
        dtype: torch.dtype,
        device: torch.device = CPU,
        request_id: str | None = None,
    ) -> AFDConnectorMetadata:
        """Of a worker's exchange; ``seq_len`` is one length, or those of several sequences."""
        lengths = [seq_len] if isinstance(seq_len, int) else list(seq_len)
        return cls(layer_idx, stage_idx, lengths, dtype, device, [sum(lengths)], None, request_id)

    @classmethod
    def create_ffn_metadata(
        cls,
        layer_idx: int,
        stage_idx: int,
        seq_lens: Sequence[int],
        dtype: torch.dtype,
        device: torch.device = CPU,
        request_id: str | None = None,
    ) -> AFDConnectorMetadata:
        """Of what a server has received."""
        return cls(layer_idx, stage_idx, list(seq_lens), dtype, device, [], None, request_id)

    def get_split_indices(self) -> list[int]:
        """The row at which each sequence but the first begins, as ``torch.tensor_split`` takes them."""
        return [sum(self.seq_lens[:i]) for i in range(1, len(self.seq_lens))]

    def validate_tensor_shape(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of this shape has the rows that the metadata says."""
        return len(shape) >= 1 and shape[0] == self.total_tokens
