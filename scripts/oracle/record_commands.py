"""Records the bytes that msgspec makes of commands of the tensor bus, for TestCommandsAreThoseOfMsgspec.

The first cases are the borders of what a command may hold. Random ones follow. It needs msgspec alone.
"""

import random
from typing import Literal

import msgspec
import recording


class BaseCommand(msgspec.Struct, tag=True, kw_only=True):
    timestamp: float | None = None
    semaphore_name: str | None = None


class InitPair(BaseCommand, kw_only=True):
    pair_name: str
    local_name: str
    expected_world_size: int
    remote_name: str
    mesh_shape_payload: memoryview | None = None
    placements_payload: memoryview | None = None


class RegisterTensors(BaseCommand, kw_only=True):
    batch_id: str
    tensors: list[tuple[str, memoryview]]
    bucket_size: int | None = None


class Transfer(BaseCommand, kw_only=True):
    batch_id: str
    transfer_type: Literal["send", "recv"]


class QueryStatus(BaseCommand, kw_only=True):
    batch_id: str
    state_name: str = "status"


class CleanupBatch(BaseCommand, kw_only=True):
    batch_id: str


Message = InitPair | RegisterTensors | Transfer | QueryStatus | CleanupBatch


def payload(value):
    return memoryview(msgspec.msgpack.encode(value))


def handle(memory, offset, dtype, shape, strides):
    return payload([memory, offset, dtype, shape, strides])


def borders():
    mesh = payload([2, 4])
    placements = payload([["S", 0], ["R"]])
    every = payload([["SS", 1, 2], ["S", 7], ["R"], ["P", "sum"], ["P", "avg"], ["P", "max"], ["P", "min"], ["P", "product"]])
    yield InitPair(pair_name="p", local_name="a", expected_world_size=1, remote_name="b")
    yield InitPair(
        timestamp=1.5,
        semaphore_name="init-1",
        pair_name="weights",
        local_name="training",
        expected_world_size=8,
        remote_name="inference",
        mesh_shape_payload=mesh,
        placements_payload=placements,
    )
    yield InitPair(
        pair_name="x" * 64,
        local_name="größe",
        expected_world_size=1,
        remote_name="東京",
        mesh_shape_payload=payload([1] * 8),
        placements_payload=every,
    )
    yield InitPair(pair_name="p", local_name="a", expected_world_size=200, remote_name="b")
    yield InitPair(pair_name="p", local_name="a", expected_world_size=65536, remote_name="b")
    one = ("p", handle(1, 0, "float32", [64, 64], [64, 1]))
    large = ("q", handle(1 << 40, 1 << 33, "bfloat16", [128, 300, 70000], [1 << 33, 70000, 1]))
    scalar = ("p", handle(127, 128, "float8_e4m3fn", [], []))
    yield RegisterTensors(batch_id="step", tensors=[one])
    yield RegisterTensors(timestamp=1764288000.25, semaphore_name="s" * 40, batch_id="b" * 128, tensors=[one, large, scalar], bucket_size=262144)
    yield RegisterTensors(batch_id="many", tensors=[one] * 20, bucket_size=1)
    yield RegisterTensors(batch_id="more", tensors=[one] * 70000)
    yield Transfer(batch_id="step", transfer_type="send")
    yield Transfer(timestamp=2.0, semaphore_name="t", batch_id="step", transfer_type="recv")
    yield QueryStatus(batch_id="step")
    yield QueryStatus(batch_id="step", state_name="transfer_signal", semaphore_name="q" * 256)
    yield CleanupBatch(batch_id="step")
    yield CleanupBatch(timestamp=1e11, semaphore_name="c", batch_id="step")


DTYPES = ["bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "float8_e4m3fn"]
PLACEMENTS = [["R"], ["S", 0], ["S", 3], ["SS", 1, 2], ["P", "sum"], ["P", "max"]]
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-_.äß東"


def text(rng, most):
    return "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, most)))


def some_tensor(rng):
    rank = rng.randint(0, 4)
    shape = [rng.randint(1, 1 << rng.randint(1, 10)) for _ in range(rank)]
    strides = [1] * rank
    for d in reversed(range(rank - 1)):
        strides[d] = strides[d + 1] * shape[d + 1]
    return text(rng, 12), handle(rng.randrange(1 << 40), 8 * rng.randrange(1 << 30), rng.choice(DTYPES), shape, strides)


def some_pair(rng):
    mesh = [rng.randint(1, 8) for _ in range(rng.randint(1, 4))]
    size = 1
    for n in mesh:
        size *= n
    names = text(rng, 15), text(rng, 15)
    return {
        "pair_name": text(rng, 20),
        "local_name": "a" + names[0],
        "expected_world_size": size,
        "remote_name": "b" + names[1],
        "mesh_shape_payload": payload(mesh),
        "placements_payload": payload([rng.choice(PLACEMENTS) for _ in mesh]),
    }


def some(rng):
    """A random command."""
    base = {
        "timestamp": rng.choice([None, float(rng.randint(1, 10)), rng.uniform(1, 2e9)]),
        "semaphore_name": rng.choice([None, text(rng, 40)]),
    }
    kind = rng.choice([InitPair, RegisterTensors, Transfer, QueryStatus, CleanupBatch])
    if kind is InitPair:
        return InitPair(**base, **some_pair(rng))
    base["batch_id"] = text(rng, 40)
    if kind is RegisterTensors:
        tensors = [some_tensor(rng) for _ in range(rng.randint(1, 20))]
        return RegisterTensors(**base, tensors=tensors, bucket_size=rng.choice([None, rng.randint(1, 1 << 40)]))
    if kind is Transfer:
        return Transfer(**base, transfer_type=rng.choice(["send", "recv"]))
    if kind is QueryStatus:
        return QueryStatus(**base, state_name=rng.choice(["status", "transfer_signal"]))
    return CleanupBatch(**base)


def plain(value):
    """What JSON has: bytes as hexadecimal digits."""
    if isinstance(value, memoryview):
        return value.hex()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def case(command):
    encoded = msgspec.msgpack.encode(command)
    assert msgspec.msgpack.decode(encoded, type=Message) == command
    fields = {name: plain(getattr(command, name)) for name in command.__struct_fields__}
    made = {"class": type(command).__name__, "fields": fields, "bytes": encoded.hex()}
    if len(encoded) > 1 << 16:  # all tensors are alike
        fields["tensors"] = [fields["tensors"][0], len(command.tensors)]
        made["bytes"] = encoded[:64].hex()
        made["length"] = len(encoded)
    return made


def main():
    options = recording.arguments(__doc__, seed=21, cases=60, most=4000)
    rng = random.Random(options.seed)
    cases = [case(c) for c in borders()]
    while options.cases > 0:
        made = case(some(rng))
        if len(made["bytes"]) <= 2 * options.bytes:
            cases.append(made)
            options.cases -= 1
    recording.write(options, ["msgspec"], cases, msgspec=msgspec.__version__)


if __name__ == "__main__":
    main()
