"""Plans as bytes. Package reshard of the library writes and reads the same, and has the encoding."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from stepvan._errors import InvalidError
from stepvan.resharding import _dtypes
from stepvan.resharding._rosters import _shape, _Varints

if TYPE_CHECKING:
    from stepvan.resharding.utils import ReshardPlan, Slices, TensorForm, TransferOp

_MAGIC = b"stvplan\x01"
_HEAD = struct.Struct("<8s5Q")
_OP = struct.Struct("<QIIIBBxx")


class _Reader:
    """Reads numbers from bytes that the library has checked."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def text(self) -> str:
        size = self.number()
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def form(self) -> tuple[str, TensorForm]:
        from stepvan.resharding.utils import TensorForm

        name = self.text()
        resolved = self.text() or name
        dtype, wire = self.byte(), self.byte()
        shape = tuple(self.number() for _ in range(self.byte()))
        return name, TensorForm(resolved, _dtypes.dtype(dtype), _dtypes.dtype(wire), shape)


def decode(data: bytes) -> ReshardPlan:
    """The plan of bytes that the library has written or checked."""
    from stepvan.resharding.utils import ReshardPlan

    _, rank, batches, sends, recvs, size = _HEAD.unpack_from(data)
    reader = _Reader(data, _HEAD.size)
    counts = reader.number(), reader.number()
    sources, destinations = ([reader.form() for _ in range(count)] for count in counts)
    at = _HEAD.size + size
    at += -at % 8
    send_ops, at = _read_ops(data, at, sends, sources, True)
    recv_ops, at = _read_ops(data, at, recvs, destinations, False)
    casts = {name: form.wire for name, form in destinations if form.wire != form.dtype}
    return ReshardPlan(
        send_ops, recv_ops, buffer_dtypes=casts or None, num_batches=batches, rank=rank, sources=dict(sources), destinations=dict(destinations)
    )


def _read_ops(data: bytes, at: int, count: int, forms: Sequence[tuple[str, TensorForm]], is_send: bool) -> tuple[list[TransferOp], int]:
    from stepvan.resharding.utils import TransferOp

    heads = list(_OP.iter_unpack(data[at : at + count * _OP.size]))
    at += count * _OP.size
    ops = []
    for task, peer, tensor, batch, dims, whole in heads:
        numbers = struct.unpack_from(f"<{3 * dims}Q", data, at)
        at += 24 * dims
        mine, theirs, extent = numbers[:dims], numbers[dims : 2 * dims], numbers[2 * dims :]
        ops.append(TransferOp(forms[tensor][0], peer, is_send, _slices(mine, extent, whole), _slices(theirs, extent, whole), task, batch))
    return ops, at


def _slices(starts: Sequence[int], extents: Sequence[int], whole: int) -> Slices:
    return tuple(
        slice(None) if whole >> d & 1 else slice(start, start + extent) for d, (start, extent) in enumerate(zip(starts, extents, strict=True))
    )


def encode(plan: ReshardPlan) -> bytes:
    """The bytes of a plan, which has the forms of its tensors."""
    if plan.sources is None or plan.destinations is None or plan.rank < 0:
        raise InvalidError("reshard: the plan does not say what it was made for, which a file needs: set rank, sources and destinations, or let the planner make it")
    sides = [(plan.sources, plan.send_ops), (plan.destinations, plan.recv_ops)]
    tensors = _Varints()
    tensors.add_all(len(forms) for forms, _ in sides)
    for forms, _ in sides:
        for name, form in forms.items():
            _append_form(tensors, name, form)
    b = bytearray(_HEAD.pack(_MAGIC, plan.rank, plan.num_batches, len(plan.send_ops), len(plan.recv_ops), len(tensors)))
    b += tensors
    b += bytes(-len(b) % 8)
    for forms, ops in sides:
        heads, boxes = bytearray(), bytearray()
        numbers = {name: i for i, name in enumerate(forms)}
        for op in ops:
            if op.param_name not in forms or op.task_id is None:
                raise InvalidError(f"reshard: parameter {op.param_name!r}: an operation lacks its form or its task_id: let the planner make the plan")
            shape = forms[op.param_name].shape
            box, whole = _box(op, shape)
            heads += _OP.pack(op.task_id, op.peer_rank, numbers[op.param_name], op.batch_id, len(shape), whole)
            boxes += struct.pack(f"<{len(box)}Q", *box)
        b += heads + boxes
    return bytes(b + struct.pack("<I", zlib.crc32(b)))


def _append_form(to: _Varints, name: str, form: TensorForm) -> None:
    for text in (name, "" if form.resolved_name == name else form.resolved_name):
        to.add(len(text.encode()))
        to += text.encode()
    to += bytes([_dtypes.code(name, form.dtype), _dtypes.code(name, form.wire)]) + _shape(form.shape)


def _box(op: TransferOp, shape: Sequence[int]) -> tuple[list[int], int]:
    """The offsets here, those there, the extents; and the bits of the dimensions that are whole."""
    mine, theirs, extent, whole = [], [], [], 0
    for d, (here, there) in enumerate(_pairs(op, shape)):
        start, stop, step = here.indices(shape[d])
        if step != 1 or stop < start:
            raise InvalidError(f"reshard: parameter {op.param_name!r}: a slice is not a range of its tensor (got {here}): use steps of 1")
        if here == there == slice(None):
            whole |= 1 << d
        mine.append(start)
        theirs.append(there.start or 0)
        extent.append(stop - start)
    return mine + theirs + extent, whole


def _pairs(op: TransferOp, shape: Sequence[int]) -> Iterable[tuple[slice, slice]]:
    if not len(op.my_slice) == len(op.peer_slice) == len(shape):
        raise InvalidError(
            f"reshard: parameter {op.param_name!r}: an operation has another number of dimensions (got {len(op.my_slice)} and "
            f"{len(op.peer_slice)}, want {len(shape)}): give a slice for each"
        )
    return zip(op.my_slice, op.peer_slice, strict=True)
