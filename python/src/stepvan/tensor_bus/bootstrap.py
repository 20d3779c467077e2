"""Finds the agent of a process by the environment."""

from __future__ import annotations

import os
from typing import Any

from stepvan._errors import InvalidError, cut
from stepvan.tensor_bus.client import TensorBusClient


def bootstrap_client(**options: Any) -> TensorBusClient:
    """A client of the agent that the environment names: AGENT_RANK, or else RANK + AGENT_RANK_OFFSET (0 by default).

    options: those of TensorBusClient. InvalidError: neither AGENT_RANK nor RANK is set, or one of them is no number.
    """
    return TensorBusClient(agent_rank(), **options)


def agent_rank() -> int:
    """The rank of the agent that the environment names."""
    rank = _number("AGENT_RANK")
    if rank is not None:
        return rank
    rank = _number("RANK")
    if rank is None:
        raise InvalidError("bootstrap_client: AGENT_RANK and RANK are not set: set AGENT_RANK to the rank of the agent, or start the job with torchrun")
    return rank + (_number("AGENT_RANK_OFFSET") or 0)


def _number(name: str) -> int | None:
    text = os.environ.get(name)
    if not text:
        return None
    if not text.isdecimal():
        raise InvalidError(f"bootstrap_client: {name} is {cut(text)}: it must be a number from 0 on")
    return int(text)
