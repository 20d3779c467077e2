"""Batches that are packed while the learner reads the one before."""

import gc
import inspect
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import textwrap
import time
import weakref

import pytest
import torch
from conftest import environment
from test_replay_transfer import CUDA, Recorder, install

import stepvan
from stepvan._frameworks import CODES
from stepvan.replay_pipelines import _wire, double_buffer, transfer
from stepvan.replay_pipelines._rows import pick
from stepvan.replay_pipelines._wire import Ask, Head, Note
from stepvan.replay_pipelines.double_buffer import DoubleBufferReplayPipeline, ReplayBuffer, ReplayCollector
from stepvan.replay_pipelines.transfer import _streamed

FIELDS = {"obs": 5, "action": 2, "reward": None}


def numbered(first, count):
    """Rows that all differ, from number first on."""
    return (torch.arange(first, first + count, dtype=torch.float32) * 100)[:, None] + torch.arange(8.0)


def filled(rows, capacity=64):
    buffer = ReplayBuffer(FIELDS, capacity)
    for i in range(rows):
        buffer.add(numbered(i, 1))
    return buffer


def picked(seed, count, rows, capacity=64):
    """The batch that ``torch.randint`` picks from rows 0 to rows-1, of which a buffer keeps some."""
    held = min(rows, capacity)
    places = torch.randint(0, held, (count,), generator=torch.Generator().manual_seed(seed))
    return torch.cat([numbered(last, 1) for last in ((rows - 1 - p) // capacity * capacity + p for p in places.tolist())])


def joined(batch):
    return torch.cat([batch["obs"], batch["action"], batch["reward"][:, None]], 1)


def local(buffer, count=32, **options):
    return DoubleBufferReplayPipeline(device="cpu", sample_count=count, buffer=buffer, base_seed=1000, **options)


@pytest.fixture
def trio(cluster):
    return cluster(0, 0, 3).peers


def remote(nodes, ranks=(1, 2), count=32, **options):
    return DoubleBufferReplayPipeline(
        device="cpu", sample_count=count, fields=FIELDS, node=nodes[0], collectors=ranks, base_seed=1000, **options
    )


PUBLISHED = {
    "start_prepare": "(self, tick_id: 'int', sample_count: 'int', min_snapshot_ptr: 'int | None' = None) -> 'bool'",
    "batch_ready": "(self, tick_id: 'int', sample_count: 'int') -> 'bool'",
    "wait_until_ready": "(self, tick_id: 'int', sample_count: 'int', timeout: 'float | None' = None) -> 'bool'",
    "sample_large_batch": "(self, tick_id: 'int', sample_count: 'int') -> 'dict[str, torch.Tensor]'",
    "after_tick": "(self) -> 'None'",
    "close": "(self, timeout: 'float | None' = None) -> 'None'",
}
"""The methods of a pipeline: those of UniLab's pages, with a timeout of their own where they wait."""


def test_signatures_are_the_recorded_ones():
    for name, want in PUBLISHED.items():
        assert str(inspect.signature(getattr(DoubleBufferReplayPipeline, name))) == want
    keyword = {p.kind for p in list(inspect.signature(DoubleBufferReplayPipeline).parameters.values())}
    assert keyword == {inspect.Parameter.KEYWORD_ONLY}
    assert set(double_buffer.__all__) == {"DoubleBufferReplayPipeline", "ReplayBuffer", "ReplayCollector"}


@pytest.mark.parametrize(("rows", "capacity"), [(50, 64), (150, 64), (64, 64), (1, 1)])
def test_a_batch_has_the_rows_that_torch_picks(rows, capacity):
    with local(filled(rows, capacity)) as pipeline:
        for tick in (3, 4, 5, 3):
            batch = pipeline.sample_large_batch(tick, 32)
            assert [list(v.shape) for v in batch.values()] == [[32, 5], [32, 2], [32]]
            assert torch.equal(joined(batch), picked(1000 + tick, 32, rows, capacity))
            meta = pipeline.metadata
            assert (meta.tick_id, meta.snapshot_ptr, meta.snapshot_size, meta.sample_seed) == (tick, rows, min(rows, capacity), 1000 + tick)
            pipeline.after_tick()


@pytest.mark.parametrize("depth", [2, 3])
def test_the_hot_batch_stays_while_the_next_is_packed(depth):
    with local(filled(50), ring_depth=depth) as pipeline:
        for tick in range(6):
            batch = pipeline.sample_large_batch(tick, 32)
            assert pipeline.start_prepare(tick + 1, 32)
            assert pipeline.wait_until_ready(tick + 1, 32, 30) and pipeline.state == "ready"
            assert torch.equal(joined(batch), picked(1000 + tick, 32, 50))
            assert pipeline.sample_large_batch(tick, 32)["obs"].data_ptr() == batch["obs"].data_ptr()
            pipeline.after_tick()
            assert pipeline.batch_ready(tick + 1, 32)


def test_what_a_pipeline_refuses():
    buffer = ReplayBuffer(FIELDS, 64)
    pipeline = local(buffer)
    size = r"sample_count: not the pipeline's \(got 31, want 32\)"
    for call in (pipeline.start_prepare, pipeline.batch_ready, pipeline.wait_until_ready, pipeline.sample_large_batch):
        with pytest.raises(stepvan.InvalidError, match=size):
            call(1, 31)
    pipeline.after_tick()
    assert pipeline.state == "idle" and not pipeline.batch_ready(5, 32)
    assert pipeline.start_prepare(5, 32) and not pipeline.start_prepare(5, 32)
    assert pipeline.state == "requested" and not pipeline.batch_ready(5, 32)
    with pytest.raises(stepvan.InvalidError, match="tick 6: the batch of tick 5 was not taken"):
        pipeline.start_prepare(6, 32)
    for call in (pipeline.wait_until_ready, pipeline.sample_large_batch):
        with pytest.raises(stepvan.InvalidError, match="tick 6: another batch is prepared .that of tick 5"):
            call(6, 32)
    with pytest.raises(TimeoutError, match="tick 5: rows are missing"):
        pipeline.wait_until_ready(5, 32, 0.01)
    buffer.add(numbered(0, 10))
    pipeline.sample_large_batch(5, 32)
    with pytest.raises(stepvan.InvalidError, match="tick 6: the learner holds the batch of tick 5"):
        pipeline.sample_large_batch(6, 32)
    assert not pipeline.batch_ready(6, 32) and pipeline.wait_until_ready(5, 32, 30)
    pipeline.close()
    pipeline.close()
    for call in (pipeline.start_prepare, pipeline.batch_ready, pipeline.wait_until_ready, pipeline.sample_large_batch):
        with pytest.raises(stepvan.ClosedError):
            call(6, 32)
    pipeline.after_tick()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sample_count": 0}, "sample_count: not a number of rows"),
        ({"ring_depth": 1}, "ring_depth: too few slots"),
        ({"buffer": None}, "give one of the two"),
        ({"collectors": [1]}, "give one of the two"),
        ({"picks": "numpy"}, "picks: no such generator"),
        ({"buffer": None, "collectors": [1]}, "fields: a row has no field"),
        ({"buffer": None, "collectors": [1], "fields": {"x": 0}}, "field 'x': not a number of columns"),
    ],
)
def test_pipelines_that_cannot_be_made(options, text):
    with pytest.raises(stepvan.InvalidError, match=text):
        DoubleBufferReplayPipeline(**{"device": "cpu", "sample_count": 4, "buffer": filled(1), **options})


def test_a_buffer_takes_whole_rows():
    buffer = ReplayBuffer(FIELDS, 5)
    at = 0
    for count in (0, 2, 2, 3, 5, 1):
        rows = numbered(at, count)
        buffer.add({"obs": rows[:, :5], "action": rows[:, 5:7], "reward": rows[:, 7]} if count % 2 else rows)
        at += count
        assert (buffer.written, buffer.held) == (at, min(at, 5))
        for n in range(max(at - 5, 0), at):
            assert torch.equal(buffer._memory[n % 5], numbered(n, 1)[0])
    for wrong, text in [
        (numbered(0, 6), "at most 5 rows of 8 torch.float32"),
        (torch.zeros(1, 7), "do not fit"),
        (torch.zeros(1, 8, dtype=torch.float64), "do not fit"),
        ({"obs": [[0.0] * 5]}, "other fields than the buffer's"),
        ({"obs": torch.zeros(1, 4), "action": torch.zeros(1, 2), "reward": torch.zeros(1)}, "field 'obs': another shape"),
    ]:
        with pytest.raises(stepvan.InvalidError, match=text):
            buffer.add(wrong)
    assert buffer.written == at


def test_a_batch_waits_for_rows_and_rows_wait_for_a_batch():
    buffer = filled(3, 4)
    with local(buffer) as pipeline:
        pipeline.start_prepare(1, 32, min_snapshot_ptr=5)
        assert not pipeline.batch_ready(1, 32)
        buffer.add(numbered(3, 3))  # one add that is pending: the batch has all of it
        assert torch.equal(joined(pipeline.sample_large_batch(1, 32)), picked(1001, 32, 6, 4))
    with buffer.snapshot(0, lambda: False) as held:
        with pytest.raises(TimeoutError, match="try again"):
            buffer.add(numbered(6, 1), timeout=0.01)
        assert held.written == buffer.written == 6
    buffer.add(numbered(6, 1), timeout=0)


def test_the_error_of_the_packing_thread_surfaces(monkeypatch):
    buffer = filled(50)
    with local(buffer) as pipeline:
        broken = RuntimeError("the buffer is gone")

        def fail(*_, **__):
            raise broken

        with monkeypatch.context() as patch:
            patch.setattr(double_buffer.ReplayBuffer, "snapshot", fail)
            pipeline.start_prepare(1, 32)
            for call in (pipeline.wait_until_ready, pipeline.batch_ready, pipeline.sample_large_batch):
                with pytest.raises(RuntimeError) as caught:
                    call(1, 32)
                assert caught.value is broken and pipeline.state == "failed"
        assert pipeline.start_prepare(1, 32)
        assert torch.equal(joined(pipeline.sample_large_batch(1, 32)), picked(1001, 32, 50))
        pipeline.after_tick()
        with monkeypatch.context() as patch:
            patch.setattr(pipeline._backend, "submit_h2d", fail)
            pipeline.start_prepare(2, 32)
            while pipeline.state == "requested":
                time.sleep(0.001)
            with pytest.raises(RuntimeError) as caught:  # nobody has got it
                pipeline.start_prepare(2, 32)
            assert caught.value is broken
        assert pipeline.start_prepare(2, 32)
        assert torch.equal(joined(pipeline.sample_large_batch(2, 32)), picked(1002, 32, 50))


@pytest.mark.parametrize("begin", range(0, 10_000, 2500))
def test_no_batch_is_ready_early_in_any_order_of_the_device(begin, monkeypatch):
    """Kernels of a learner read each batch on its stream. The rows are copied when the device likes."""
    simulation = install(monkeypatch, begin)
    monkeypatch.setattr(_streamed, "_SPIN", -1)
    monkeypatch.setattr(double_buffer, "_SPIN", -1)
    monkeypatch.setattr(double_buffer.time, "sleep", lambda _: simulation.step())
    monkeypatch.setattr(double_buffer, "Local", AtOnce)
    monkeypatch.setattr(
        transfer.CudaLikeReplayTransferBackend, "allocate_device_slots", lambda self, *, count, shape, dtype: [simulation.tensor(*shape) for _ in range(count)]
    )
    buffer = filled(20)
    for seed in range(begin, begin + 2500):
        simulation.__init__(seed)
        play(simulation, buffer, random.Random(seed))


class AtOnce:
    """Packs rows of a buffer within ``begin``."""

    def __init__(self, sink, buffer, count, depth, picks):
        self.sink, self.buffer = sink, buffer
        self.slots = [torch.zeros(count, 8) for _ in range(depth)]

    def begin(self, request):
        self.slots[request.slot].copy_(expected(request.seed))
        self.sink.packed(request, 20, 20)

    def close(self, timeout):
        pass


_expected = {}


def expected(seed):
    if seed not in _expected:
        _expected[seed] = picked(seed, 2, 20)
    return _expected[seed]


def play(simulation, buffer, rng, ticks=3):
    pipeline = DoubleBufferReplayPipeline(device=CUDA, sample_count=2, buffer=buffer, base_seed=7, ring_depth=rng.choice((2, 3)))
    learner = rng.choice((simulation.default, simulation.Stream()))
    seen = []

    def steps():
        for _ in range(rng.randrange(5)):
            simulation.step()

    pipeline.start_prepare(0, 2)
    for tick in range(ticks):
        steps()
        with simulation.stream(learner):
            if rng.randrange(2) and pipeline.batch_ready(tick, 2):
                assert torch.equal(pipeline._slots[(pipeline._hot + 1) % len(pipeline._slots)].now(), expected(7 + tick)), "ready is seen early"
            batch = pipeline.sample_large_batch(tick, 2)
            base = pipeline._slots[pipeline._hot]
            ahead = rng.randrange(2)
            if ahead and tick + 1 < ticks:
                pipeline.start_prepare(tick + 1, 2)
            for _ in range(rng.randrange(1, 3)):
                learner.queue(lambda tick=tick, base=base: seen.append((tick, base.now().clone())))
            steps()
            pipeline.after_tick()
            if not ahead and tick + 1 < ticks:
                pipeline.start_prepare(tick + 1, 2)
        assert set(batch) == set(FIELDS)
    pipeline.close()
    while simulation.step():
        pass
    assert {tick for tick, _ in seen} == set(range(ticks))
    assert all(torch.equal(read, expected(7 + tick)) for tick, read in seen), "a kernel reads another batch"


def test_a_trace_has_a_span_for_each_copy(monkeypatch):
    simulation, recorder = install(monkeypatch, 0), Recorder()
    monkeypatch.setattr(double_buffer.time, "sleep", lambda _: simulation.step())
    monkeypatch.setattr(double_buffer, "Local", AtOnce)
    monkeypatch.setattr(
        transfer.CudaLikeReplayTransferBackend, "allocate_device_slots", lambda self, *, count, shape, dtype: [simulation.tensor(*shape) for _ in range(count)]
    )
    pipeline = DoubleBufferReplayPipeline(device=CUDA, sample_count=2, buffer=filled(20), trace_recorder=recorder)
    assert len(simulation.pinned) == 2
    pipeline.sample_large_batch(9, 2)
    (name, span), = recorder.spans
    assert name == "gpu/replay_pipeline_batch_h2d"
    assert span["args"] | {"tick_id": 9, "sample_seed": 9, "pack_executor": "packing_thread", "h2d_bytes": 64, "batch_gpu_slot": 1} == span["args"]
    pipeline.close()
    assert not simulation.pinned
    monkeypatch.setattr(simulation, "cudaHostRegister", lambda *_: simulation.Error(2))
    with pytest.raises(RuntimeError, match="host slot 0: the driver does not register"):
        DoubleBufferReplayPipeline(device=CUDA, sample_count=2, buffer=filled(20))
    assert not simulation.pinned


@pytest.mark.parametrize("ranks", [(0,), (1,), (2, 0, 1)])
def test_collectors_give_the_batch_of_a_local_buffer(trio, ranks):
    with local(filled(150)) as pipeline:
        want = [joined(pipeline.sample_large_batch(tick, 32)).clone() for tick in range(4) for _ in [pipeline.after_tick()]]
    pipeline = remote(trio, ranks)
    collectors = [ReplayCollector(filled(150), node=trio[rank], learner=0) for rank in ranks]
    for tick in range(4):
        assert torch.equal(joined(pipeline.sample_large_batch(tick, 32)), want[tick])
        assert pipeline.metadata.snapshot_ptr == 150 * len(ranks)
        assert pipeline.start_prepare(tick + 1, 32)
        pipeline.wait_until_ready(tick + 1, 32, 30)
        pipeline.after_tick()
    pipeline.close(30)
    for collector in collectors:
        collector.wait(30)  # it was told
        assert collector.done


def test_large_batches_come_in_pieces(trio):
    count = 100_001
    pipeline = remote(trio, (1, 2), count)
    collectors = [ReplayCollector(filled(50), node=trio[rank], learner=0) for rank in (1, 2)]
    places = torch.randint(0, 50, (count,), generator=torch.Generator().manual_seed(1001))
    assert torch.equal(joined(pipeline.sample_large_batch(1, count)), numbered(0, 50)[places])
    for collector in collectors:
        collector.close(30)
    pipeline.close(30)


class Puppet:
    """A collector whose answers the test chooses."""

    def __init__(self, node):
        self.peer = node.peer
        self.box = self.peer.listen("replay/replay/collector")

    def ask(self):
        while True:
            body = self.box.get(30).body
            head = Head.parse(body)
            if head.kind == _wire.ASK:
                return Ask.parse(head, body)

    def put(self, ask, value, first, rows, note):
        self.peer.put(torch.full((rows, ask.width), value), ask.token, at=(first, 0), note=note).wait(30)

    @staticmethod
    def note(ask, **changes):
        made = Note(ask.head._replace(kind=_wire.NOTE, picks=0, dtype=0), ask.slot, ask.first, ask.rows, 9, 9)
        head = {k: v for k, v in changes.items() if k in Head._fields}
        rest = {k: v for k, v in changes.items() if k in Note._fields}
        return made._replace(head=made.head._replace(**head), **rest)


WRONG = {
    "there is no such slot": lambda a: Puppet.note(a, slot=2).pack(),
    "which is hot": lambda a: Puppet.note(a, slot=1 - a.slot).pack(),
    "it packed tick": lambda a: Puppet.note(a, tick=99).pack(),
    "it was asked for 16 from row 16 on": lambda a: Puppet.note(a, first=0, rows=32).pack(),
    "wrote 0 rows": lambda a: Puppet.note(a, rows=0).pack(),
    "wrote 18446744073709551615 rows": lambda a: Puppet.note(a, rows=2**64 - 1).pack(),
    "a note has another length": lambda a: Puppet.note(a).pack()[:50],
    "another version": lambda a: Puppet.note(a).pack().replace(b"\1\4", b"\7\4", 1),
    "kind 77 is not expected": lambda a: Puppet.note(a, kind=77).pack(),
    "not a message of a ring": lambda a: b"tick",
}


def test_what_a_collector_may_not_say(trio):
    with remote(trio) as pipeline, ReplayCollector(filled(50), node=trio[1], learner=0):
        liar = Puppet(trio[2])
        tick = 0

        def good():
            nonlocal tick
            tick += 1
            assert pipeline.start_prepare(tick, 32)
            ask = liar.ask()
            liar.put(ask, 7.0, ask.first, ask.rows, Puppet.note(ask).pack())
            batch = joined(pipeline.sample_large_batch(tick, 32))
            assert torch.equal(batch, torch.cat([picked(1000 + tick, 32, 50)[:16], torch.full((16, 8), 7.0)]))
            pipeline.after_tick()

        good()
        for text, note in WRONG.items():
            tick += 1
            pipeline.start_prepare(tick, 32)
            ask = liar.ask()
            liar.put(ask, -1.0, ask.first, 1, note(ask))
            with pytest.raises(stepvan.RemoteError, match=text) as caught:
                pipeline.wait_until_ready(tick, 32, 30)
            assert caught.value.subject == "peer 2"
            good()
        tick += 1
        pipeline.start_prepare(tick, 32)
        late = liar.ask()
        liar.peer.mail(0, "replay/replay/ring", late.head.refusal("no rows today"))
        with pytest.raises(stepvan.RemoteError, match="peer 2: no rows today"):
            pipeline.wait_until_ready(tick, 32, 30)
        assert pipeline.start_prepare(tick, 32)
        ask = liar.ask()
        with pytest.raises((stepvan.StaleError, stepvan.RemoteError)):  # rows of an attempt that was given up do no harm
            while True:
                liar.put(late, -1.0, late.first, late.rows, Puppet.note(late).pack())
        liar.put(ask, 7.0, ask.first, 8, Puppet.note(ask, rows=8).pack())
        assert not pipeline.batch_ready(tick, 32)
        liar.put(ask, 7.0, ask.first + 8, 8, Puppet.note(ask, first=ask.first + 8, rows=8).pack())
        assert torch.equal(joined(pipeline.sample_large_batch(tick, 32))[16:], torch.full((16, 8), 7.0))


def test_a_collector_refuses_other_rows(trio):
    with remote(trio, (1,)) as pipeline, ReplayCollector(ReplayBuffer({"x": 3}, 4, torch.float64), node=trio[1], learner=0):
        with pytest.raises(stepvan.RemoteError, match="the rows differ .got 8 columns of float32, want 3 of float64"):
            pipeline.sample_large_batch(1, 32)
    with pytest.raises(stepvan.InvalidError, match="no such peer"):
        ReplayCollector(filled(1), node=trio[1], learner=3)
    with pytest.raises(stepvan.InvalidError, match="collectors: wrong ranks"):
        remote(trio, (1, 3))


def test_slots_of_refused_batches_are_let_go(trio):
    with remote(trio, (1,)) as pipeline, ReplayCollector(ReplayBuffer({"x": 3}, 4, torch.float64), node=trio[1], learner=0):
        seen = []
        for tick in range(1, 21):
            pipeline.start_prepare(tick, 32)
            with pytest.raises(stepvan.RemoteError, match="the rows differ"):
                pipeline.sample_large_batch(tick, 32)
            seen += [weakref.ref(slot) for slot in pipeline._source.slots]
        until = time.monotonic() + 30
        while pipeline._source._old and time.monotonic() < until:
            time.sleep(0.001)
        gc.collect()
        assert pipeline._source._old == [] == pipeline._kept
        assert len({id(slot()) for slot in seen if slot() is not None}) <= len(pipeline._source.slots)


def test_a_collector_leaves_and_another_packs(trio):
    with remote(trio) as pipeline:
        first, second = (ReplayCollector(filled(50), node=trio[rank], learner=0) for rank in (1, 2))
        pipeline.start_prepare(1, 32, min_snapshot_ptr=51)
        first.close(30)
        second._buffer.add(numbered(50, 1))
        assert torch.equal(joined(pipeline.sample_large_batch(1, 32)), picked(1001, 32, 51))
        assert pipeline.lost == [1]
        pipeline.after_tick()
        with ReplayCollector(filled(51), node=trio[1], learner=0):
            while pipeline.lost:
                time.sleep(0.001)
            assert torch.equal(joined(pipeline.sample_large_batch(2, 32)), picked(1002, 32, 51))
            assert pipeline.metadata.snapshot_size == 102
        second.close(30)


COLLECT = """
    import os, sys, torch, stepvan
    from stepvan.replay_pipelines.double_buffer import ReplayBuffer, ReplayCollector
    node = stepvan.Node({"DMLC_ROLE": "peer"})
    buffer = ReplayBuffer({"obs": 5, "action": 2, "reward": None}, 64)
    buffer.add((torch.arange(50.0) * 100)[:, None] + torch.arange(8.0))
    collector = ReplayCollector(buffer, node=node, learner=0)
    print(node.peer.rank, flush=True)
    collector.wait()
    print("ended", flush=True)
    node.stop()
"""


def test_a_killed_process_is_named_and_others_pack_its_rows():
    settings = environment(0, 0, 3)
    scheduler = subprocess.Popen(
        [sys.executable, "-c", "import stepvan; stepvan.Node({'DMLC_ROLE': 'scheduler'}).stop()"], env={**os.environ, **settings}
    )
    program = [sys.executable, "-c", textwrap.dedent(COLLECT)]
    env = {**os.environ, **settings}
    children = [subprocess.Popen(program, env={**env, "STEPVAN_NODE_RANK": str(rank)}, stdout=subprocess.PIPE, text=True) for rank in (1, 2)]
    node = stepvan.Node({"DMLC_ROLE": "peer", "STEPVAN_NODE_RANK": "0", **settings})
    try:
        ranks = [int(child.stdout.readline()) for child in children]
        pipeline = DoubleBufferReplayPipeline(device="cpu", sample_count=32, fields=FIELDS, node=node, collectors=[1, 2], base_seed=1000)
        assert torch.equal(joined(pipeline.sample_large_batch(1, 32)), picked(1001, 32, 50))
        pipeline.after_tick()
        pipeline.start_prepare(2, 32, min_snapshot_ptr=51)  # it waits for rows that never come
        children[0].kill()
        began = time.monotonic()
        while pipeline.lost != [ranks[0]]:
            assert time.monotonic() - began < 30
            time.sleep(0.01)
        children[1].kill()
        with pytest.raises(stepvan.PeerLostError, match="no collector is left") as caught:
            pipeline.sample_large_batch(2, 32)
        assert all(f"peer {rank}" in caught.value.subject for rank in ranks)
        pipeline.close(30)
    finally:
        for child in [*children, scheduler]:
            child.kill()
            child.wait()
        node.close()


VECTORS = pathlib.Path(__file__).parents[2] / "replay" / "testdata" / "messages.json"


@pytest.mark.serial
def test_messages_are_those_of_go():
    vectors = json.loads(VECTORS.read_text())
    assert CODES["float32"] == vectors["messages"][0]["fields"]["dtype"]
    for vector in vectors["messages"]:
        body, fields = bytes.fromhex(vector["bytes"]), vector["fields"]
        head = Head.parse(body)
        assert head.pack() == body[: len(head.pack())]
        if "count" in fields:
            fields["total"] = fields.pop("count")
        assert {name: getattr(head, name) for name in Head._fields if name in fields} == {k: v for k, v in fields.items() if k in Head._fields}
        assert head.kind == getattr(_wire, vector["kind"].upper())
        if vector["kind"] in ("ask", "note"):
            kind = Ask if vector["kind"] == "ask" else Note
            message = kind.parse(head, body)
            assert message.pack() == body
            assert {name: getattr(message, name) for name in kind._fields if name in fields} == {k: v for k, v in fields.items() if k in kind._fields}
        elif vector["kind"] == "refusal":
            assert Head.reason(body) == vector["text"] and head.refusal(vector["text"]) == body
        else:
            assert head.pack() == body
    for seed, size, *want in vectors["picks"].values():
        assert pick(_wire.SPLITMIX, seed, size, 20, 0, 20).tolist() == want
        assert pick(_wire.SPLITMIX, seed, size, 20, 5, 3).tolist() == want[5:8]


def test_any_bytes_are_parsed_or_refused():
    rng = random.Random(3)
    whole = Ask(Head(_wire.ASK, 1, 2, 3, 1, 3), 4, 5, 0, 8, 100, 0, 100, bytes(32)).pack()
    for _ in range(3000):
        body = bytearray(whole[: rng.choice((len(whole), rng.randrange(len(whole) + 1)))])
        for _ in range(rng.randrange(4)):
            if body:
                body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            ask = Ask.parse(Head.parse(bytes(body)), bytes(body))
        except stepvan.ProtocolError:
            continue
        assert ask.pack() == bytes(body) and 0 < ask.rows <= ask.total - ask.first
    assert struct.calcsize("<IBBBBQQQQQIIQQQ32s") == len(whole)


def test_picks_of_a_share_are_those_of_the_batch():
    for code in (_wire.TORCH, _wire.SPLITMIX):
        whole = pick(code, 5, 1000, 100, 0, 100)
        assert torch.equal(torch.cat([pick(code, 5, 1000, 100, at, 25) for at in range(0, 100, 25)]), whole)
        assert 0 <= int(whole.min()) and int(whole.max()) < 1000
