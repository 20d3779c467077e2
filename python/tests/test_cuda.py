"""Tensors in the memory of a real device of CUDA. ``make test-cuda`` runs these tests where there is one."""

import mmap
import os
import threading
import time

import numpy as np
import pytest
import torch

import stepvan
from stepvan.replay_pipelines.transfer import CudaLikeReplayTransferBackend

if not torch.cuda.is_available():
    if os.environ.get("STEPVAN_TEST_CUDA"):
        raise RuntimeError("torch finds no device of CUDA, and STEPVAN_TEST_CUDA wants one")
    pytest.skip("this machine has no device of CUDA", allow_module_level=True)

GPU = torch.device("cuda", 0)
LIMIT = 60


def busy(rounds=20):
    """Queues kernels to the current stream that take some milliseconds, and says nothing about when they end."""
    x = torch.rand(4096, 4096, device=GPU)
    for _ in range(rounds):
        x = x @ x
        x = x / x.norm()
    return x


def later(value, *shape):
    """A tensor that holds the value once the kernels that are queued for it have run."""
    made = torch.full(shape, -1.0, device=GPU)
    made.copy_(busy()[0, 0] * 0 + value)
    return made


@pytest.fixture(params=["shm", "tcp"])
def pair(cluster, request):
    made = cluster(STEPVAN_VAN=request.param, DMLC_LOCAL=str(int(request.param == "shm")))
    made.worker, made.server = made.workers[0].worker, made.servers[0].server
    return made


def exchange(pair, push, pull, answer):
    """One exchange. answer makes the tensors of the response out of those of the request."""
    handle = pair.worker.push_pull(push, [2 * i for i in range(len(push))], pull, [2 * i + 1 for i in range(len(pull))])
    request = pair.server.get_batch(timeout=LIMIT)[0]
    response = request.respond(answer(request.tensors))
    handle.wait(LIMIT)
    response.wait(LIMIT)


def test_an_exchange_follows_the_streams_of_both_sides(pair):
    side = torch.cuda.Stream(GPU)
    for round_ in range(5):
        pull = torch.zeros(1000, 7, device=GPU)
        with torch.cuda.stream(side if round_ % 2 else torch.cuda.current_stream(GPU)):
            push = later(round_, 300, 50)
            handle = pair.worker.push_pull([push], [1], [pull], [2])
        request = pair.server.get_batch(timeout=LIMIT)[0]
        got = torch.as_tensor(np.asarray(request.tensors[0]))
        assert (got == round_).all() and got.shape == (300, 50), "the push left before its kernels had ended"
        response = request.respond([later(10 + round_, 1000, 7)])
        handle.wait(LIMIT)
        assert (pull == 10 + round_).all().item(), "the answer left before its kernels had ended"
        response.wait(LIMIT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.int64, torch.float64])
def test_types_and_sizes(pair, dtype):
    for n in (1, 1000, 3_000_001):
        push = torch.randint(0, 100, (n,), device=GPU).to(dtype)
        host = torch.randint(0, 100, (13,), dtype=torch.int32)
        pull, pull_host = torch.zeros_like(push), torch.zeros_like(host)
        exchange(pair, [push, host], [pull, pull_host], list)
        assert torch.equal(pull, push) and torch.equal(pull_host, host)


def test_registered_tensors_and_receive_buffers(pair):
    buffer = torch.zeros(4, 1000, device=GPU)
    registration = pair.server.register_recv_buffer(buffer, [0], [0], timeout=LIMIT)
    push, pull = torch.zeros(1000, device=GPU), torch.zeros(1000, device=GPU)
    kept = [pair.worker.register(push), pair.worker.register(pull)]
    for i in range(20):
        push.fill_(i)
        handle = pair.worker.push_pull([push], [0], [pull], [1])
        request = pair.server.get_batch(timeout=LIMIT)[0]
        (got,) = request.tensors
        assert got.is_cuda and got.data_ptr() == buffer.data_ptr()
        request.respond([got * 2]).wait(LIMIT)
        handle.wait(LIMIT)
        assert (pull == 2 * i).all().item()
    for one in (*kept, registration):
        one.unregister()


def test_many_exchanges_at_once(pair):
    n, stop = 8, threading.Event()

    def serve():
        while not stop.is_set():
            try:
                for request in pair.server.get_batch(timeout=0.1):
                    x = torch.as_tensor(np.asarray(request.tensors[0])).to(GPU)
                    request.respond([x + 1])
            except stepvan.TimeoutError:
                pass

    server = threading.Thread(target=serve)
    server.start()
    try:
        for round_ in range(30):
            pushes = [torch.full((50_000,), float(round_ * n + i), device=GPU) for i in range(n)]
            pulls = [torch.zeros(50_000, device=GPU) for _ in range(n)]
            handles = [pair.worker.push_pull([pushes[i]], [2 * i], [pulls[i]], [2 * i + 1]) for i in range(n)]
            for i, handle in enumerate(handles):
                handle.wait(LIMIT)
                assert (pulls[i] == round_ * n + i + 1).all().item()
    finally:
        stop.set()
        server.join(LIMIT)


def test_memory_of_torch_is_given_back(pair):
    torch.cuda.synchronize()
    exchange(pair, [torch.ones(1000, device=GPU)], [torch.zeros(1000, device=GPU)], list)
    before = torch.cuda.memory_allocated(GPU)
    for _ in range(20):
        exchange(pair, [torch.ones(1000, device=GPU)], [torch.zeros(1000, device=GPU)], list)
    stepvan._core.collect()
    assert torch.cuda.memory_allocated(GPU) == before


def make(depth=2):
    return CudaLikeReplayTransferBackend(device=GPU, ring_depth=depth)


def submit(backend, slot, dst, src):
    rest = {"metadata": None, "trace_recorder": None, "trace_cuda_events": False, "h2d_bytes": 0}
    return backend.submit_h2d(slot=slot, dst=dst, src=src, pack_layout="", pack_executor="", **rest)


def test_batches_reach_the_device_while_it_computes():
    backend, rows, width = make(), 8192, 500
    host = [torch.zeros(rows, width).share_memory_() for _ in range(2)]
    backend.register_host_slots(host)
    assert all(slot.is_pinned() for slot in host) and backend.host_pinned
    slots = backend.allocate_device_slots(count=2, shape=(rows, width), dtype=torch.float32)
    sums, learner = torch.zeros(100, device=GPU, dtype=torch.float64), torch.cuda.Stream(GPU)
    for tick in range(100):
        at = tick % 2
        backend.synchronize_ready(at)  # the copy before has read the slot of the host
        host[at].fill_(tick)
        submit(backend, at, slots[at], host[at])
        with torch.cuda.stream(learner):
            backend.wait_current_stream_for_ready(at)
            busy(1)  # so that kernels still wait for the slot when the copy after the next is submitted
            sums[tick] = slots[at].double().sum()
    backend.close()
    learner.synchronize()
    assert sums.tolist() == [float(tick * rows * width) for tick in range(100)]
    assert not any(slot.is_pinned() for slot in host) and not backend.host_pinned


def test_the_submission_returns_before_the_copy_ends():
    backend, n = make(1), 256 << 20
    host = torch.ones(n, dtype=torch.uint8).share_memory_()
    backend.register_host_slots([host])
    (slot,) = backend.allocate_device_slots(count=1, shape=(n, 1), dtype=torch.uint8)
    submit(backend, 0, slot, host)
    backend.synchronize_ready(0)
    seconds = submit(backend, 0, slot, host)
    early = backend.ready_query(0)
    began = time.perf_counter()
    backend.synchronize_ready(0)
    assert not early and time.perf_counter() - began > seconds, "256 MiB cannot be copied within the call"
    assert slot.min().item() == 1
    backend.close()


def test_a_failed_registration_gives_back_and_leaves_no_error():
    backend = make()
    good = torch.zeros(1 << 20)
    closed = torch.frombuffer(mmap.mmap(-1, 1 << 20, prot=0), dtype=torch.uint8)  # nobody can read or write it
    for _ in range(2):
        with pytest.raises(RuntimeError, match="host slot 1: the driver does not register"):
            backend.register_host_slots([good, closed])
        assert not good.is_pinned() and not backend.host_pinned
        assert torch.ones(4, device=GPU).sum().item() == 4, "the error of the driver must not meet the next kernel"
    backend.register_host_slots([good])
    for again in (good, good[1 << 19 :], good[: 1 << 19]):
        with pytest.raises(stepvan.InvalidError, match="host slot 0: its memory is registered already"):
            backend.register_host_slots([again])
    assert good.is_pinned()
    backend.close()


def test_a_slot_that_torch_has_pinned_is_used_as_it_is():
    backend, host = make(1), torch.ones(1000).pin_memory()
    backend.register_host_slots([host])
    (slot,) = backend.allocate_device_slots(count=1, shape=(1000, 1), dtype=torch.float32)
    submit(backend, 0, slot, host)
    backend.close()
    assert slot.sum().item() == 1000 and host.is_pinned()


def test_a_trace_gets_the_times_of_the_device():
    class Recorder:
        def add_cuda_pending_span(self, name, **rest):
            self.name, self.rest = name, rest

    backend, recorder, host = make(1), Recorder(), torch.ones(1 << 20)
    (slot,) = backend.allocate_device_slots(count=1, shape=(1 << 20, 1), dtype=torch.float32)
    told = {"metadata": None, "trace_recorder": recorder, "trace_cuda_events": True, "h2d_bytes": 4 << 20}
    backend.submit_h2d(slot=0, dst=slot, src=host, pack_layout="packed", pack_executor="x", **told)
    backend.synchronize_ready(0)
    assert recorder.name == "gpu/replay_pipeline_batch_h2d"
    assert recorder.rest["start_event"].elapsed_time(recorder.rest["end_event"]) > 0
    backend.close()
