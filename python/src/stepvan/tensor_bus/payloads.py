"""What commands carry as MessagePack of their own: meshes, placements, and handles of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from stepvan._errors import InvalidError, ProtocolError, cut

MAX_HANDLE = 128
"""The most bytes of a handle."""

_encode = msgspec.msgpack.encode
_operations = ("sum", "avg", "max", "min", "product")


def mesh_shape_payload(mesh: Any) -> memoryview:
    """The payload of a mesh: a DeviceMesh of torch, or its shape, such as (2, 4)."""
    return memoryview(_encode(list(mesh_shape(mesh))))


def mesh_shape(mesh: Any) -> tuple[int, ...]:
    """The shape of a mesh: a DeviceMesh of torch, or a list of numbers."""
    inner = getattr(mesh, "mesh", mesh)
    shape = tuple(getattr(inner, "shape", inner) if inner is not mesh else (mesh if isinstance(mesh, Iterable) else (mesh,)))
    if not shape or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in shape):
        raise InvalidError(f"device_mesh is {cut(mesh)}: it must be a DeviceMesh of torch, or its shape, such as (2, 4)")
    return shape


def placements_payload(placements: Iterable[Any]) -> memoryview:
    """The payload of placements.

    Each is one of torch (Shard, Replicate, Partial, _StridedShard), or "replicate", ("shard", dim), ("partial", operation)
    or ("strided shard", dim, factor). An operation is "sum", "avg", "max", "min" or "product".
    """
    if isinstance(placements, str) or not isinstance(placements, Iterable):
        raise InvalidError(f"placements is {cut(placements)}: it must be a list of placements, one of each dimension of the mesh")
    return memoryview(_encode([_placement(p) for p in placements]))


def _placement(p: Any) -> list[Any]:
    words = _words_of_torch(p) if hasattr(p, "is_partial") else [p] if isinstance(p, str) else list(p) if isinstance(p, Sequence) else []
    match words:
        case ["replicate"]:
            return ["R"]
        case ["shard", int(dim)] if dim >= 0:
            return ["S", dim]
        case ["strided shard", int(dim), int(factor)] if dim >= 0 and factor >= 1:
            return ["SS", dim, factor]
        case ["partial", str(operation)] if operation in _operations:
            return ["P", operation]
    raise InvalidError(
        f"placements has {cut(p)}: it must be 'replicate', ('shard', dim), ('partial', operation), ('strided shard', dim, factor), "
        f"or one of torch; dim is not negative, and operation one of {', '.join(_operations)}"
    )


def _words_of_torch(p: Any) -> list[Any]:
    if p.is_replicate():
        return ["replicate"]
    if p.is_partial():
        return ["partial", str(getattr(p, "reduce_op", "sum")).rpartition(".")[2].lower()]
    factor = getattr(p, "split_factor", None)
    if type(p).__name__ not in ("Shard", "_StridedShard"):
        return []
    return ["shard", p.dim] if factor is None else ["strided shard", p.dim, factor]


def tensor_handle(memory: int, offset: int, dtype: str, shape: Sequence[int], strides: Sequence[int]) -> memoryview:
    """The handle of a tensor in memory that the agent reaches.

    memory: the number of the memory at the agent. offset: of the first element, in bytes. strides: in elements.
    """
    handle = _encode([memory, offset, dtype, list(shape), list(strides)])
    if len(handle) > MAX_HANDLE:
        raise InvalidError(
            f"tensor handle: too long (got {len(handle)}, want at most {MAX_HANDLE} bytes): give a view with fewer dimensions or smaller strides"
        )
    return memoryview(handle)


def read(what: str, payload: Any) -> Any:
    """Reads a payload, and trusts nothing of it: a mesh, placements or a handle."""
    try:
        return msgspec.msgpack.decode(payload, type=list[Any])
    except (msgspec.MsgspecError, TypeError, RecursionError) as error:
        raise ProtocolError(f"{what}: its bytes do not make one: {error}") from None
