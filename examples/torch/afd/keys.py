"""Keys of the connector's tensors; opaque to stepvan.

Bits 0-7 are the tensor, bits 8-15 the stage, and bits 16-47 the worker's rank. Bit 48
marks a pull. Bits 49-63 of a pull are the server that answers it, because a request
has each key only once. The layer is not in the key: the buffers of a stage serve
all layers in turn.
"""

from __future__ import annotations

HIDDEN, HEADER = 0, 1
MAX_STAGES = 1 << 8


def push_key(tensor: int, stage: int, rank: int) -> int:
    return tensor | stage << 8 | rank << 16


def pull_key(stage: int, rank: int, server: int) -> int:
    return push_key(HIDDEN, stage, rank) | 1 << 48 | server << 49
