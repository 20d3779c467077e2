"""The backends that copy batches to a device: the processor's, and a simulated device with streams."""

import inspect
import random
import threading
import typing

import pytest
import torch
from simulated_cuda import Event, OnDevice, Simulation

import stepvan
from stepvan.replay_pipelines import transfer
from stepvan.replay_pipelines.base import ReplayTickMetadata
from stepvan.replay_pipelines.transfer import _streamed, base

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
REST = {
    "metadata": None,
    "trace_recorder": None,
    "trace_cuda_events": False,
    "h2d_bytes": 0,
    "pack_layout": "packed",
    "pack_executor": "collector_thread",
}


def submit(backend, slot, dst, src, **changed):
    return backend.submit_h2d(slot=slot, dst=dst, src=src, **{**REST, **changed})


@pytest.fixture
def simulation(monkeypatch):
    return install(monkeypatch, 0)


def install(monkeypatch, seed):
    made = Simulation(seed)
    for name in ("is_available", "cudart", "Stream", "Event", "device", "stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(made, name))
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda t: any(0 <= t.data_ptr() - at < size for at, size in made.pinned.items()), raising=False)
    return made


def make_streamed(depth=2):
    return transfer.build_replay_transfer_backend(device=CUDA, ring_depth=depth)


def make_plain(depth=2):
    return transfer.build_replay_transfer_backend(device=CPU, ring_depth=depth)


@pytest.fixture(params=["torch_copy", "simulated"])
def any_backend(request, monkeypatch):
    """A backend, and how to make a tensor on its device."""
    if request.param == "torch_copy":
        return make_plain(), lambda *shape: torch.zeros(*shape)
    simulation = install(monkeypatch, 0)
    return make_streamed(), simulation.tensor


PUBLISHED = {
    "register_host_slots": ["slots"],
    "allocate_device_slots": ["count", "shape", "dtype"],
    "submit_h2d": ["slot", "dst", "src", *REST],
    "clear_ready": ["slot"],
    "ready_query": ["slot"],
    "synchronize_ready": ["slot"],
    "wait_current_stream_for_ready": ["slot"],
    "close": [],
}
"""The methods of UniLab's protocol, as its pages show them."""


@pytest.mark.parametrize(
    "kind",
    [
        transfer.ReplayTransferBackend,
        transfer.CudaLikeReplayTransferBackend,
        transfer.XpuReplayTransferBackend,
        transfer.TorchCopyReplayTransferBackend,
    ],
)
def test_signatures_are_the_published_ones(kind):
    for name, want in PUBLISHED.items():
        parameters = list(inspect.signature(getattr(kind, name)).parameters.values())[1:]
        assert [p.name for p in parameters] == want, name
        named = {p.kind for p in parameters}
        assert named <= {inspect.Parameter.KEYWORD_ONLY if len(want) > 1 else inspect.Parameter.POSITIONAL_OR_KEYWORD}
    if kind is not transfer.ReplayTransferBackend:
        assert [str(p) for p in inspect.signature(kind).parameters.values()] == ["device: 'torch.device'", "ring_depth: 'int'"]
    assert typing.get_type_hints(base.ReplayTransferBackend).keys() == {
        "device", "device_family", "h2d_submitter", "host_memory_kind",
        "host_pinned", "direct_pinned_shared", "supports_async_submit", "supports_timing_events",
    }  # fmt: skip


def attributes(backend):
    return [getattr(backend, name) for name in typing.get_type_hints(base.ReplayTransferBackend) if name != "device"]


def test_attributes(simulation):
    cpu, meta = make_plain(), transfer.build_replay_transfer_backend(device=torch.device("meta"), ring_depth=1)
    assert attributes(cpu) == ["cpu", "torch_copy", "pageable_shared", False, False, False, False]
    assert meta.device_family == "meta" and meta.device == torch.device("meta")
    gpu = make_streamed()
    assert attributes(gpu) == ["cuda", "torch_copy_stream", "registered_pinned_shared", False, False, True, True]
    gpu.register_host_slots([torch.zeros(4)])
    assert (gpu.host_pinned, gpu.direct_pinned_shared) == (True, True)
    xpu = transfer.XpuReplayTransferBackend
    assert [getattr(xpu, n) for n in typing.get_type_hints(base.ReplayTransferBackend) if n != "device"] == [
        "xpu", "torch_xpu_copy_stream", "pageable_shared", False, False, True, False,
    ]  # fmt: skip


def test_rocm_is_named(simulation, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.1", raising=False)
    assert make_streamed().device_family == "rocm"


def test_xpu_copies_on_a_stream(monkeypatch):
    simulation = Simulation()
    monkeypatch.setattr(torch, "xpu", simulation, raising=False)
    monkeypatch.setattr(OnDevice, "device", torch.device("xpu", 0))
    backend = transfer.build_replay_transfer_backend(device=torch.device("xpu", 0), ring_depth=2)
    dst = simulation.tensor(4)
    submit(backend, 0, dst, torch.ones(4))
    assert not backend.ready_query(0)
    while simulation.step():
        pass
    assert backend.ready_query(0) and dst.now().tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("kind", ["CudaLikeReplayTransferBackend", "XpuReplayTransferBackend"])
def test_a_missing_driver_is_named(kind):
    if torch.cuda.is_available():
        pytest.skip("this machine has a device of CUDA")
    name = "XPU" if kind.startswith("Xpu") else "CUDA"
    with pytest.raises(RuntimeError, match=f"finds no device.*install torch for {name}"):
        getattr(transfer, kind)(device=torch.device(name.lower()), ring_depth=2)


def test_wrong_arguments_are_refused(any_backend):
    backend, tensor = any_backend
    dst, src = tensor(4, 2), torch.zeros(4, 2)
    for slot in (-1, 2):
        for call in (
            backend.clear_ready,
            backend.ready_query,
            backend.synchronize_ready,
            backend.wait_current_stream_for_ready,
            lambda s: submit(backend, s, dst, src),
        ):
            with pytest.raises(stepvan.InvalidError, match=rf"slot {slot}: there is no such slot \(want 0 to 1\)"):
                call(slot)
    for wrong, text in [
        (torch.zeros(4, 1), r"got 4 elements of torch.float32, want 8 of torch.float32"),
        (torch.zeros(4, 2, dtype=torch.float16), r"got 8 elements of torch.float16, want 8"),
        (torch.zeros(4, 4)[:, ::2], "src has gaps: make it contiguous"),
    ]:
        with pytest.raises(stepvan.InvalidError, match=text):
            submit(backend, 0, dst, wrong)
    with pytest.raises(stepvan.InvalidError, match="dst has gaps"):
        submit(backend, 0, tensor(4, 4)[:, ::2], src)
    with pytest.raises(stepvan.InvalidError, match="want"):
        submit(backend, 0, torch.zeros(4, 2, device="meta"), src)
    with pytest.raises(stepvan.InvalidError, match=r"src is not in memory of the host \(got meta"):
        submit(backend, 0, dst, torch.zeros(4, 2, device="meta"))
    assert not backend.ready_query(0)
    with pytest.raises(stepvan.InvalidError, match="ring_depth: not a number of slots"):
        type(backend)(device=backend.device, ring_depth=0)
    with pytest.raises(stepvan.InvalidError, match="want a torch.device"):
        transfer.build_replay_transfer_backend(device="cpu", ring_depth=2)


def test_a_slot_takes_another_shape_of_as_many_elements(any_backend):
    backend, tensor = any_backend
    dst = tensor(4, 2)
    submit(backend, 1, dst, torch.arange(8.0))
    backend.close()
    assert torch.Tensor.tolist(dst.as_subclass(torch.Tensor)) == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_nothing_is_ready_before_a_copy(any_backend):
    backend, tensor = any_backend
    for slot in (0, 1):
        assert not backend.ready_query(slot)
        backend.synchronize_ready(slot)
        backend.wait_current_stream_for_ready(slot)
    assert submit(backend, 0, tensor(3), torch.ones(3)) >= 0
    backend.synchronize_ready(1)
    assert not backend.ready_query(1)
    backend.clear_ready(0)
    assert not backend.ready_query(0)
    backend.synchronize_ready(0)


def test_a_closed_backend_refuses_copies(any_backend):
    backend, tensor = any_backend
    backend.register_host_slots([torch.zeros(3)])
    backend.close()
    backend.close()
    with pytest.raises(stepvan.ClosedError, match="slot 0: the backend is closed"):
        submit(backend, 0, tensor(3), torch.ones(3))
    assert not backend.host_pinned and not backend.direct_pinned_shared


def test_a_waiter_sees_the_end_and_the_failure_of_a_copy(monkeypatch):
    backend, dst = make_plain(), torch.zeros(4)
    for fails in (False, True):
        inside, go_on = threading.Event(), threading.Event()

        class Slow(torch.Tensor):
            def copy_(self, src):
                inside.set()
                assert go_on.wait(30)
                if fails:
                    raise RuntimeError("the device is gone")
                return self

        submitter = threading.Thread(target=lambda: _ignore(lambda: submit(backend, 0, dst.as_subclass(Slow), torch.ones(4))))
        submitter.start()
        assert inside.wait(30)
        assert not backend.ready_query(0)
        failures = []
        waiter = threading.Thread(target=lambda: _ignore(lambda: backend.synchronize_ready(0), failures))
        waiter.start()
        go_on.set()
        waiter.join(30)
        submitter.join(30)
        assert not waiter.is_alive() and len(failures) == fails
        assert backend.ready_query(0) != fails
    with pytest.raises(stepvan.Error, match="slot 0: its copy has failed: submit it again"):
        backend.synchronize_ready(0)
    submit(backend, 0, dst, torch.ones(4))
    assert backend.ready_query(0)


def _ignore(call, failures=None):
    try:
        call()
    except (RuntimeError, stepvan.Error) as error:
        if failures is not None:
            failures.append(error)


def test_a_copy_that_was_cleared_is_not_ready_when_it_ends():
    backend = make_plain()

    class Cleared(torch.Tensor):
        def copy_(self, src):
            backend.clear_ready(0)
            return self

    submit(backend, 0, torch.zeros(4).as_subclass(Cleared), torch.ones(4))
    assert not backend.ready_query(0)
    backend.synchronize_ready(0)


def test_registered_slots_are_given_back(simulation):
    a, b, c, pinned = (torch.zeros(4) for _ in range(4))
    backend = make_streamed()
    backend.register_host_slots([a])
    assert simulation.pinned == {a.data_ptr(): 16}
    simulation.refuses.add(c.data_ptr())
    with pytest.raises(RuntimeError, match=r"host slot 1: the driver does not register 16 bytes \(712\)"):
        backend.register_host_slots([b, c])
    assert simulation.pinned == {a.data_ptr(): 16}, "what was registered before the failure is given back, and no more"
    with pytest.raises(stepvan.InvalidError, match="host slot 1: its memory is registered already"):
        backend.register_host_slots([b, b])
    for again in (a, a[2:], a[:2]):
        with pytest.raises(stepvan.InvalidError, match="host slot 0: its memory is registered already"):
            backend.register_host_slots([again])
    with pytest.raises(stepvan.InvalidError, match="host slot 0: not contiguous memory of the host"):
        backend.register_host_slots([torch.zeros(4, 4)[:, ::2]])
    simulation.pinned[pinned.data_ptr()] = 16
    backend.register_host_slots([pinned])
    submit(backend, 0, simulation.tensor(4), a)
    backend.close()
    assert simulation.pinned == {pinned.data_ptr(): 16}, "what another one has pinned stays pinned"
    assert not any(s.work for s in simulation.streams), "close waits for the copies"
    with pytest.raises(stepvan.ClosedError):
        backend.register_host_slots([b])


class Recorder:
    def __init__(self):
        self.spans = []

    def add_cuda_pending_span(self, name, **rest):
        self.spans.append((name, rest))


def test_spans_of_a_trace(simulation, monkeypatch):
    backend, dst, src, recorder = make_streamed(), simulation.tensor(4), torch.zeros(4), Recorder()
    submit(backend, 0, dst, src, trace_recorder=recorder)
    submit(backend, 0, dst, src, trace_cuda_events=True)
    assert recorder.spans == []
    told = {"trace_recorder": recorder, "trace_cuda_events": True, "h2d_bytes": 16}
    submit(backend, 1, dst, src, metadata=ReplayTickMetadata(3, 5, 7, 9, 4, 1, 1), **told)
    submit(backend, 0, dst, src, **told)
    (name, first), (_, second) = recorder.spans
    assert name == "gpu/replay_pipeline_batch_h2d" and first["category"] == "gpu" and first["cpu_begin_ns"] > 0
    assert isinstance(first["start_event"], Event) and first["start_event"].timed and first["end_event"].timed
    common = {
        "h2d_bytes": 16,
        "pinned_memory": False,
        "pack_layout": "packed",
        "pack_executor": "collector_thread",
        "h2d_submitter": "torch_copy_stream",
        "direct_pinned_shared": False,
    }
    assert second["args"] == {"slot": 0, **common}
    assert first["args"] == {
        "slot": 1, **common, "tick_id": 3, "snapshot_ptr": 5, "snapshot_size": 7, "sample_seed": 9, "sample_count": 4,
        "batch_host_slot": 1, "batch_gpu_slot": 1,
    }  # fmt: skip
    plain = make_plain()
    submit(plain, 0, torch.zeros(4), src, **told)
    assert len(recorder.spans) == 2


@pytest.mark.parametrize("begin", range(0, 10_000, 1000))
def test_any_order_of_the_device_gives_each_batch_whole(begin, monkeypatch):
    """A learner reads each batch by kernels on its stream. The collector fills slots of the host that were copied."""
    simulation = install(monkeypatch, begin)
    monkeypatch.setattr(_streamed, "_SPIN", -1)
    for seed in range(begin, begin + 1000):
        simulation.__init__(seed)
        monkeypatch.setattr(_streamed.time, "sleep", lambda _: simulation.step())
        play(simulation, random.Random(seed))


def play(simulation, rng, ticks=5):
    depth = rng.choice((1, 2, 3))
    backend = make_streamed(depth)
    host, slots = [torch.zeros(2) for _ in range(depth)], [simulation.tensor(2) for _ in range(depth)]
    learner = rng.choice((simulation.default, simulation.Stream()))
    seen = []

    def steps():
        for _ in range(rng.randrange(6)):
            simulation.step()

    def fill(tick):
        at = tick % depth
        if rng.randrange(2):
            backend.synchronize_ready(at)
        while not backend.ready_query(at) and tick > depth:
            simulation.step()
        host[at].fill_(tick)
        submit(backend, at, slots[at], host[at])
        for _ in range(2):
            if backend.ready_query(at):
                assert slots[at].now().tolist() == [tick, tick], "ready is seen early"
            steps()

    def learn(tick):
        at = tick % depth
        with simulation.stream(learner):
            backend.wait_current_stream_for_ready(at)
            steps()
            for _ in range(rng.randrange(1, 4)):
                learner.queue(lambda: seen.append((tick, slots[at].now().tolist())))
            steps()

    ahead = rng.randrange(depth)  # how many batches are submitted before the learner gets to them
    for tick in range(1, ticks + ahead + 1):
        if tick <= ticks:
            fill(tick)
        if tick > ahead:
            learn(tick - ahead)
    backend.close()
    while simulation.step():
        pass
    assert all(read == [tick, tick] for tick, read in seen), f"a kernel reads a wrong batch: {seen}"
    assert {tick for tick, _ in seen} == set(range(1, ticks + 1))
