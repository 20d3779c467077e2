"""The commands of the tensor bus. Their bytes are MessagePack, and the same in Go."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from stepvan._errors import InvalidError, ProtocolError, cut


class BaseCommand(msgspec.Struct, tag=True, kw_only=True, forbid_unknown_fields=True):
    """What all commands have.

    timestamp: when the client has sent it, in seconds since 1970.
    semaphore_name: names the completion, which comes once; unique among the commands that have not completed.
    """

    timestamp: float | None = None
    semaphore_name: str | None = None


class InitPair(BaseCommand, kw_only=True):
    """Opens a pair: the two sides between which tensors move. Each rank of both sides sends one.

    local_name, remote_name: the names of this side and of the other one.
    expected_world_size: how many ranks the local side has.
    mesh_shape_payload, placements_payload: the layout of the local side, see ``payloads``. Without both, rank i of one
        side has the same tensors as rank i of the other.
    """

    pair_name: str
    local_name: str
    expected_world_size: int
    remote_name: str
    mesh_shape_payload: memoryview | None = None
    placements_payload: memoryview | None = None


class RegisterTensors(BaseCommand, kw_only=True):
    """Makes a batch of tensors ready. All ranks of the pairs that it names send one.

    tensors: the name of a pair, and the handle of a tensor that moves over it.
    bucket_size: up to how many bytes small moves travel together.
    """

    batch_id: str
    tensors: list[tuple[str, memoryview]]
    bucket_size: int | None = None


class Transfer(BaseCommand, kw_only=True):
    """Asks for the next round of a batch in one direction."""

    batch_id: str
    transfer_type: Literal["send", "recv"]


class QueryStatus(BaseCommand, kw_only=True):
    """Asks for the state of a batch, or with "transfer_signal" whether the other side has begun to send."""

    batch_id: str
    state_name: str = "status"


class CleanupBatch(BaseCommand, kw_only=True):
    """Ends a batch."""

    batch_id: str


Message = InitPair | RegisterTensors | Transfer | QueryStatus | CleanupBatch

MAX_COMMAND = 16 << 20
"""The most bytes of an encoded command."""

_encoder = msgspec.msgpack.Encoder()
_decoder: Any = msgspec.msgpack.Decoder(Message)


def encode(command: Message) -> bytes:
    """The bytes of a command. InvalidError: they are more than MAX_COMMAND, or a value has another type."""
    try:
        data = _encoder.encode(command)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidError(f"{type(command).__name__}: it cannot be encoded: {error}") from None
    if len(data) > MAX_COMMAND:
        raise InvalidError(
            f"{type(command).__name__}: too long (got {len(data)}, want at most {MAX_COMMAND} bytes): register fewer tensors at once"
        )
    return data


def decode(data: Any) -> Message:
    """Reads the bytes of a command, and trusts nothing of them. Payloads are views of ``data``.

    ProtocolError: the bytes do not make a command. Nothing of them is ever executed.
    """
    try:
        size = memoryview(data).nbytes
    except TypeError:
        raise InvalidError(f"decode: data is {cut(data)}: it must be bytes") from None
    if size > MAX_COMMAND:
        raise ProtocolError(f"command: too long (got {size}, want at most {MAX_COMMAND} bytes)")
    try:
        command: Message = _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError(f"command: its bytes do not make one ({error}): send what encode returns") from None
    return command
