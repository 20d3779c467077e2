"""Tensors of torch in the memory of a library that stands for libcuda: test_accelerators.py runs these tests."""

import ctypes
import gc
import types

import numpy as np
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

import stepvan
from stepvan import _core

MEMORY, BYTES = 0x520000000000, 1 << 16  # of the library. The processor reaches it.


class OnDevice(torch.Tensor):
    """A tensor that says that the first device of CUDA holds it. What torch has allocated for it stays unused."""

    is_cpu = False
    device = types.SimpleNamespace(type="cuda", index=0)
    places: dict[int, int] = {}
    """Where the memory of storages is, by the addresses that torch has for them."""

    def data_ptr(self):
        offset = self.storage_offset() * self.element_size()
        start = super().data_ptr() - offset
        return self.places.get(start, start) + offset

    def untyped_storage(self):
        with torch._C.DisableTorchFunction():
            return super().untyped_storage()

    def _storage(self):
        with torch._C.DisableTorchFunction():
            return super()._storage()


def storage(tensor):
    return tensor.untyped_storage() if hasattr(torch.Tensor, "untyped_storage") else tensor._storage()


def at(place, *values):
    """A tensor of float32 with a storage of its own, so many bytes behind the beginning of the memory."""
    tensor = torch.zeros(len(values)).as_subclass(OnDevice)
    OnDevice.places[storage(tensor).data_ptr()] = MEMORY + place
    if place < BYTES:
        write(tensor, *values)
    return tensor


def write(tensor, *values):
    (ctypes.c_float * len(values)).from_address(tensor.data_ptr())[:] = values


def read(tensor):
    """The numbers that the memory has for a tensor."""
    size = tensor.numel() * tensor.element_size()
    dtype = torch.empty(0, dtype=tensor.dtype).numpy().dtype
    return np.frombuffer(ctypes.string_at(tensor.data_ptr(), size), dtype).reshape(tensor.shape).tolist()


def is_given_back(reference):
    gc.collect()
    _core.collect()
    return reference.expired()


class Stream:
    """A stream of torch. It counts how often somebody waited for it."""

    cuda_stream = 0

    def __init__(self):
        self.waits = 0

    def synchronize(self):
        self.waits += 1


@pytest.fixture
def stream(monkeypatch):
    """Has torch say that a stream is the current one of the first device."""
    made = Stream()

    def current_stream(device):
        assert device == 0
        return made

    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    return made


@pytest.fixture
def pair(cluster, stream):
    """A worker and a server, which have loaded the library."""
    c = cluster()
    made = types.SimpleNamespace(cluster=c, worker=c.workers[0].worker, server=c.servers[0].server)
    with pytest.raises(stepvan.InvalidError, match=r"got cpu:0, want cuda:0"):
        made.worker.push_pull([at(BYTES, 0)], [1], [], [])
    return made


def exchange(pair, push, answer, pull):
    """Pushes with key 1, and answers key 2. Returns the request, which is answered."""
    handle = pair.worker.push_pull([push], [1], [pull], [2])
    request = pair.server.get_batch(timeout=10)[0]
    tensors = request.tensors
    request.respond([tensors[0] if answer is None else answer]).wait(10)
    handle.wait(10)
    return request


def test_exchanges(pair):
    push, pull, answer = at(0, 1, 2, 3, 4), at(64, 0, 0, 0, 0), at(128, 5, 6, 7, 8)
    for _ in range(3):
        write(pull, 0, 0, 0, 0)
        request = exchange(pair, push, answer, pull)
        assert request.tensors[0].tolist() == [1, 2, 3, 4]
        assert read(pull) == [5, 6, 7, 8]


def test_registered_tensors(pair):
    push, pull, answer = at(0, 1, 2), at(64, 0, 0), at(128, 5, 6)
    kept = [StorageWeakRef(storage(tensor)) for tensor in (push, pull, answer)]
    registrations = [pair.worker.register(push), pair.worker.register(pull), pair.server.register(answer), pair.worker.register(push)]
    for _ in range(3):
        exchange(pair, push, answer, pull)
        assert read(pull) == [5, 6]
    del push, pull, answer
    assert not any(is_given_back(reference) for reference in kept)
    for registration in registrations:
        registration.unregister()
        registration.unregister()
    assert all(is_given_back(reference) for reference in kept)


@pytest.mark.parametrize("how", ["stop", "close"])
def test_the_end_of_a_node_gives_registered_tensors_back(pair, how):
    x, y, buffer = at(0, 1), at(64, 2), at(128, 3)
    kept = [StorageWeakRef(storage(tensor)) for tensor in (x, y, buffer)]
    pair.worker.register(x)
    pair.server.register(y)
    pair.server.register_recv_buffer(buffer, [0], [1])
    del x, y, buffer
    assert not any(is_given_back(reference) for reference in kept)
    pair.cluster.stop()
    if how == "close":
        pair.cluster.close()
    assert all(is_given_back(reference) for reference in kept)


def test_a_receive_buffer(pair, stream):
    buffer, pull = at(256, *[0] * 10), at(64, 0, 0)
    kept = StorageWeakRef(storage(buffer))
    waits = stream.waits
    registration = pair.server.register_recv_buffer(buffer[2:], [0, 0], [9, 1])
    assert stream.waits == waits + 1, "work that is queued may still write to the buffer"
    seen = []
    for i in range(4):
        push = [torch.tensor([1.0 + i, 2.0]), at(0, 1 + i, 2)][i % 2]
        handle = pair.worker.push_pull([push], [1], [pull], [2])
        request = pair.server.get_batch(timeout=10)[0]
        (pushed,) = request.tensors
        assert isinstance(pushed, OnDevice)
        assert pushed.data_ptr() == request.input(0).data_ptr() == buffer.data_ptr() + (2 + 4) * 4
        assert request.input(0) is request.input(0)
        assert read(pushed) == [1 + i, 2]
        with pytest.raises(stepvan.BusyError):
            registration.unregister()
        request.respond([pushed]).wait(10)
        handle.wait(10)
        assert read(pull) == [1 + i, 2]
        seen.append(pushed)
    assert len({id(pushed) for pushed in seen}) == 4, "each request has a tensor of its own"
    registration.unregister()
    assert exchange(pair, at(0, 7, 8), None, pull).tensors[0].tolist() == [7, 8], "in memory of the host"
    del buffer, push, pushed, request
    assert not is_given_back(kept), "tensors of requests keep it"
    del seen
    assert is_given_back(kept)


@pytest.mark.parametrize("as_type, shown", [("int16", "int16"), ("uint64", None), ("complex64", "complex64"), ("bool", "bool")])
def test_pushes_of_other_types(pair, as_type, shown):
    """A type that this torch lacks becomes signed integers of its size."""
    shown = shown or ("uint64" if hasattr(torch, "uint64") else "int64")
    buffer = at(256, *[0] * 12)
    pair.server.register_recv_buffer(buffer, [0, 0, 0], [3, 4, 1])
    push = np.array([[1, 0]], as_type)
    handle = pair.worker.push_pull([push], [1], [], [])
    request = pair.server.get_batch(timeout=10)[0]
    (pushed,) = request.tensors
    assert str(pushed.dtype) == f"torch.{shown}"
    assert pushed.data_ptr() == buffer.data_ptr() + 32
    assert read(pushed) == push.tolist()
    request.respond([])
    handle.wait(10)


def test_an_empty_push(pair):
    pair.server.register_recv_buffer(at(256, 0, 0), [0], [1])
    handle = pair.worker.push_pull([torch.zeros(0, 3)], [1], [], [])
    request = pair.server.get_batch(timeout=10)[0]
    assert request.tensors[0].shape == (0, 3)
    request.respond([])
    handle.wait(10)


def test_a_buffer_that_is_refused_is_not_kept(pair):
    buffer = at(256, 0, 0)
    kept = StorageWeakRef(storage(buffer))
    for ranks, keys in ([9], [1]), ([0, 0, 0], [1, 2, 3]), ([0], [1, 2]):
        with pytest.raises(stepvan.InvalidError):
            pair.server.register_recv_buffer(buffer, ranks, keys)
    del buffer
    assert is_given_back(kept)


def test_a_buffer_whose_storage_moves(pair):
    """The push is where the storage was. So nothing shows it elsewhere."""
    buffer = at(256, 0, 0)
    pair.server.register_recv_buffer(buffer, [0], [1])
    handle = pair.worker.push_pull([torch.tensor([1.0, 2.0])], [1], [], [])
    was = OnDevice.places[storage(buffer).data_ptr()]
    storage(buffer).resize_(1 << 20)
    for _ in range(2):
        with pytest.raises(stepvan.InvalidError, match="was resized or moved after its registration"):
            pair.server.get_batch(timeout=10)
    OnDevice.places[storage(buffer).data_ptr()] = was
    request = pair.server.get_batch(timeout=10)[0]
    assert read(request.tensors[0]) == [1, 2]
    request.respond([])
    handle.wait(10)
