"""Requests that an FFN server gets, from workers that may run with another configuration, or another program."""

from __future__ import annotations

import logging
from typing import Any

import torch

from .config import ConnectorConfig
from .errors import BadRequestError
from .keys import HIDDEN, push_key

log = logging.getLogger(__name__)


def header(request: Any, config: ConnectorConfig) -> tuple[int, int, list[int]]:
    """Layer, stage and sequence lengths of a request; ValueError with the reason why it cannot be computed."""
    stage = request.keys[0] >> 8 & 0xFF if request.keys else 0
    header = request.tensors[1] if len(request.tensors) == 2 else None
    ours = header is not None and request.keys[0] == push_key(HIDDEN, stage, request.worker)
    if not ours or header.dtype != torch.int64 or header.dim() != 1 or len(header) < 2:
        raise ValueError(f"worker {request.worker} does not use this connector: keys {request.keys}")
    hidden = request.tensors[0]
    layer, *seq_lens = header.tolist()
    fits = hidden.dtype == config.dtype and tuple(hidden.shape) == (sum(seq_lens), config.hidden_size)
    if not fits or min(seq_lens) <= 0 or layer < 0:
        raise ValueError(
            f"worker {request.worker} sent {hidden.dtype} {list(hidden.shape)} "
            f"for layer {layer} and sequences {seq_lens}; "
            f"this connector takes {config.dtype} of {config.hidden_size}"
        )
    pulls = request.pulls
    if len(pulls) != 1 or pulls[0].dtype != hidden.dtype or tuple(pulls[0].shape) != tuple(hidden.shape):
        asked = [f"{pull.dtype} {list(pull.shape)}" for pull in pulls]
        raise ValueError(f"worker {request.worker} asks for {asked}; the answer is {hidden.dtype} {list(hidden.shape)}")
    return layer, stage, seq_lens


def refuse(request: Any, why: str) -> BadRequestError | None:
    """Answers a request with the reason why it is not computed; None when that went.

    The bytes of the answer are the reason, at least one fewer than the worker asked for.
    A result is always whole, so the worker can tell them apart.
    """
    pulls = request.pulls
    if not all(pull.variable for pull in pulls):
        return BadRequestError(f"{why}; it cannot be told so, because its pulls have a fixed length", request)
    try:
        request.respond([reason(why, pull.nbytes - 1) for pull in pulls])
    except Exception as error:  # nothing was sent then: the program may try again
        refusal = BadRequestError(f"{why}; it could not be told so: {error}", request)
        refusal.__cause__ = error
        return refusal
    log.warning("refused a request: %s", why)
    return None


def reason(why: str, most: int) -> torch.Tensor:
    text = why.encode()[: max(most, 0)]
    return torch.tensor(list(text), dtype=torch.uint8)
