"""Commands of the tensor bus, and the bytes that msgspec makes of them.

It needs msgspec alone: pip install msgspec && python record_commands.py --output bus/testdata/commands.jsonl
"""

import argparse
import json
from typing import Literal

import msgspec


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


def cases():
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


def plain(value):
    """What JSON has: bytes as hexadecimal digits."""
    if isinstance(value, memoryview):
        return value.hex()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True)
    path = parser.parse_args().output
    with open(path, "w", encoding="utf-8") as out:
        print(json.dumps({"generator": "record_commands.py", "msgspec": msgspec.__version__}), file=out)
        for command in cases():
            encoded = msgspec.msgpack.encode(command)
            assert msgspec.msgpack.decode(encoded, type=Message) == command
            fields = {name: plain(getattr(command, name)) for name in command.__struct_fields__}
            case = {"class": type(command).__name__, "fields": fields, "bytes": encoded.hex()}
            if len(encoded) > 1 << 16:  # all tensors are alike
                fields["tensors"] = [fields["tensors"][0], len(command.tensors)]
                case["bytes"] = encoded[:64].hex()
                case["length"] = len(encoded)
            print(json.dumps(case, ensure_ascii=False), file=out)


if __name__ == "__main__":
    main()
