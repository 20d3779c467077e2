"""The commands of the tensor bus: their fields, their bytes, and bytes that make no command."""

import inspect
import json
import pickle
import struct
import subprocess
import sys
import typing
from pathlib import Path

import msgspec
import pytest

import stepvan
from stepvan.tensor_bus import BatchHandler, TensorBusClient, commands, payloads
from stepvan.tensor_bus.commands import BaseCommand, CleanupBatch, InitPair, Message, QueryStatus, RegisterTensors, Transfer, decode, encode

RECORDED = Path(__file__).parents[2] / "bus" / "testdata" / "commands.jsonl"
NONE = msgspec.NODEFAULT

BASE = {"timestamp": (float | None, None), "semaphore_name": (str | None, None)}
FIELDS = {
    BaseCommand: {},
    InitPair: {
        "pair_name": (str, NONE),
        "local_name": (str, NONE),
        "expected_world_size": (int, NONE),
        "remote_name": (str, NONE),
        "mesh_shape_payload": (memoryview | None, None),
        "placements_payload": (memoryview | None, None),
    },
    RegisterTensors: {"batch_id": (str, NONE), "tensors": (list[tuple[str, memoryview]], NONE), "bucket_size": (int | None, None)},
    Transfer: {"batch_id": (str, NONE), "transfer_type": (typing.Literal["send", "recv"], NONE)},
    QueryStatus: {"batch_id": (str, NONE), "state_name": (str, "status")},
    CleanupBatch: {"batch_id": (str, NONE)},
}


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_fields(kind):
    assert issubclass(kind, msgspec.Struct) and issubclass(kind, BaseCommand)
    hints = typing.get_type_hints(kind)
    have = {f.name: (hints[f.name], f.default) for f in msgspec.structs.fields(kind)}
    assert have == {**BASE, **FIELDS[kind]} and list(have) == [*BASE, *FIELDS[kind]]
    config = kind.__struct_config__
    assert (config.tag, config.tag_field, config.array_like) == (kind.__name__, "type", False)
    with pytest.raises(TypeError):
        kind("by position")


def test_the_union():
    assert set(typing.get_args(Message)) == set(FIELDS) - {BaseCommand}


SIGNATURES = {
    TensorBusClient.init_pair: [
        "pair_name", "local_name", "remote_name", "expected_world_size", "device_mesh=None", "placements=None", "blocking=True", "timeout=30.0",
    ],
    TensorBusClient.register_tensors: ["batch_id", "tensors", "bucket_size=None", "timeout=30.0", "role=None"],
    TensorBusClient.query_transfer_signal: ["batch_id", "role=None"],
    TensorBusClient.close: ["timeout=30.0"],
    BatchHandler.transfer: ["transfer_type", "blocking=False", "timeout=30.0"],
    BatchHandler.query_transfer_signal: [],
    BatchHandler.close: ["timeout=30.0"],
}  # fmt: skip


@pytest.mark.parametrize("method", SIGNATURES, ids=lambda method: method.__qualname__)
def test_signatures(method):
    parameters = list(inspect.signature(method).parameters.values())[1:]
    assert [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters] == SIGNATURES[method]
    parameters = inspect.signature(TensorBusClient).parameters
    assert next(iter(parameters)) == "agent_rank" and parameters["connection_timeout"].default == 30.0


def recordings():
    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    assert len(lines) > 15 and lines[0]["msgspec"]
    return lines[1:]


def payload(text):
    return None if text is None else memoryview(bytes.fromhex(text))


def of(recorded):
    fields = dict(recorded["fields"])
    for name in "mesh_shape_payload", "placements_payload":
        if name in fields:
            fields[name] = payload(fields[name])
    if "tensors" in fields:
        tensors = fields["tensors"]
        if "length" in recorded:
            tensors = [tensors[0]] * tensors[1]
        fields["tensors"] = [(pair, payload(handle)) for pair, handle in tensors]
    return getattr(commands, recorded["class"])(**fields)


def test_the_bytes_are_those_that_were_recorded():
    kinds = set()
    for recorded in recordings():
        command = of(recorded)
        kinds.add(type(command))
        data = encode(command)
        want = bytes.fromhex(recorded["bytes"])
        assert data[: len(want)] == want and len(data) == recorded.get("length", len(want))
        assert decode(data) == command
    assert kinds == set(typing.get_args(Message))


def test_defaults_may_be_left_out():
    assert decode(msgspec.msgpack.encode({"type": "QueryStatus", "batch_id": "b"})) == QueryStatus(batch_id="b")


GOOD = encode(Transfer(batch_id="b", transfer_type="send", timestamp=1.5))


class Evil:
    def __reduce__(self):
        return pytest.fail, ("it was executed",)


def test_bytes_that_make_no_command():
    body = {"type": "Transfer", "batch_id": "b", "transfer_type": "send"}
    bad = [
        b"",
        GOOD[:20],
        GOOD[:-1],
        GOOD + b"x",
        GOOD.replace(b"Transfer", b"Reboot!!"),
        pickle.dumps(Evil()),
        msgspec.msgpack.encode({**body, "batch_id": pickle.dumps(Evil())}),
        msgspec.msgpack.encode({**body, "transfer_type": "both"}),
        msgspec.msgpack.encode({**body, "extra": 1}),
        msgspec.msgpack.encode({"type": "Transfer", "batch_id": "b"}),
        msgspec.msgpack.encode([body]),
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
    ]
    for data in bad:
        with pytest.raises(stepvan.ProtocolError, match="^command: its bytes do not make one"):
            decode(data)
    with pytest.raises(stepvan.ProtocolError, match="too long .got 104857600, want at most 16777216 bytes"):
        decode(bytes(100 << 20))
    with pytest.raises(stepvan.InvalidError, match="it must be bytes"):
        decode("text")


def test_commands_that_cannot_be_encoded():
    handle = payloads.tensor_handle(1, 0, "float32", [2], [1])
    with pytest.raises(stepvan.InvalidError, match="RegisterTensors: too long .*: register fewer tensors at once"):
        encode(RegisterTensors(batch_id="b", tensors=[("p" * 64, handle)] * 300_000))
    with pytest.raises(stepvan.InvalidError, match="cannot be encoded"):
        encode(CleanupBatch(batch_id=Evil()))
    with pytest.raises(stepvan.InvalidError, match="cannot be encoded"):
        encode(CleanupBatch(batch_id="b", timestamp=1 << 70))


def test_payloads():
    assert payloads.read("mesh", payloads.mesh_shape_payload((2, 4))) == [2, 4] == payloads.read("mesh", payloads.mesh_shape_payload([2, 4]))
    words = ["replicate", ("shard", 1), ("partial", "avg"), ["strided shard", 0, 2]]
    assert payloads.read("placements", payloads.placements_payload(words)) == [["R"], ["S", 1], ["P", "avg"], ["SS", 0, 2]]
    for mesh in (), 0, (0,), (2, -1), "ab", ("2",), None:
        with pytest.raises(stepvan.InvalidError, match="^device_mesh is"):
            payloads.mesh_shape_payload(mesh)
    for placement in "shard", ("shard", -1), ("partial", "mean"), ("partial",), ("strided shard", 0, 0), 3, None:
        with pytest.raises(stepvan.InvalidError, match="^placements has"):
            payloads.placements_payload([placement])
    for placements in "replicate", 3:
        with pytest.raises(stepvan.InvalidError, match="^placements is"):
            payloads.placements_payload(placements)
    with pytest.raises(stepvan.InvalidError, match="too long .got 1.., want at most 128 bytes"):
        payloads.tensor_handle(1 << 60, 1 << 60, "float32", [1 << 60] * 8, [1 << 60] * 8)
    with pytest.raises(stepvan.ProtocolError, match="^handle: its bytes do not make one"):
        payloads.read("handle", pickle.dumps(1))


class FakePlacement:
    def __init__(self, kind, **fields):
        self.kind = kind
        vars(self).update(fields)

    def is_partial(self):
        return self.kind == "partial"

    def is_replicate(self):
        return self.kind == "replicate"


class Shard(FakePlacement):
    pass


class _StridedShard(FakePlacement):
    pass


def test_placements_of_torch():
    """Those of torch itself are in the tests of docs/oracles.md: Debian's torch has none."""
    some = [FakePlacement("replicate"), FakePlacement("partial", reduce_op="avg"), Shard("shard", dim=1), _StridedShard("s", dim=0, split_factor=2)]
    assert payloads.read("placements", payloads.placements_payload(some)) == [["R"], ["P", "avg"], ["S", 1], ["SS", 0, 2]]
    with pytest.raises(stepvan.InvalidError, match="^placements has"):
        payloads.placements_payload([FakePlacement("ragged")])


def test_without_msgspec():
    code = "import sys; sys.modules['msgspec'] = None\nimport stepvan\ntry:\n import stepvan.tensor_bus\nexcept ImportError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "stepvan.tensor_bus needs msgspec: pip install 'stepvan[bus]', or pip install msgspec\n", done.stderr


def test_a_long_frame_is_refused():
    from stepvan.tensor_bus import _session

    assert struct.calcsize("iII") == 12 and _session._MAX_FRAME < 100 << 20
