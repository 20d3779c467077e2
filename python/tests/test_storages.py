"""Memory of the program that nodes register by themselves: which, when, and how long.

These tests need the library that scripts/python.sh builds into build/devices. Its nodes meet within the process. They
reach registered memory alone, through devices that count it.
"""

import array
import ctypes
import gc
import mmap
import os
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

import stepvan
from stepvan import _core

_library = ctypes.CDLL(str(Path(_core.__file__).with_name("libstepvan.so")))
if not hasattr(_library, "stepvan_test_reached"):
    if os.environ.get("STEPVAN_TEST_DEVICES") == "1":
        raise RuntimeError("this library has no devices: run scripts/python.sh test")
    pytest.skip("needs the library in build/devices", allow_module_level=True)

_library.stepvan_test_reached.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
_library.stepvan_test_reached.restype = ctypes.c_uint64

LARGE = 16384  # numbers of four bytes: 64 KiB


def reached(address, size):
    """How many devices reach the bytes, when nothing is due any more."""
    _library.stepvan_test_settle()
    return _library.stepvan_test_reached(address, size)


def place(tensor):
    if isinstance(tensor, torch.Tensor):
        return tensor.data_ptr(), tensor.numel() * tensor.element_size()
    return tensor.ctypes.data, tensor.nbytes


def is_reached(tensor):
    return reached(*place(tensor)) == 1


class Exchanges:
    """Exchanges with a server that answers with what was pushed."""

    def __init__(self, c):
        self.worker, self.server = c.workers[0].worker, c.servers[0].server

    def push(self, tensor, answer=None):
        """Pushes a tensor. The server answers with answer, else the worker pulls nothing."""
        pull = [] if answer is None else [np.empty(answer.size, answer.dtype)]
        handle = self.worker.push_pull([tensor], [1], pull, [2][: len(pull)])
        request = self.server.get_batch(timeout=10)[0]
        pushed = request.tensors[0].clone()
        request.respond([] if answer is None else [answer]).wait(10)
        handle.wait(10)
        _core.collect()
        return pushed

    def check(self, tensor, times=1):
        for _ in range(times):
            assert bytes(self.push(tensor).numpy().view(np.uint8)) == bytes(memoryview(tensor_bytes(tensor)))


def tensor_bytes(tensor):
    return np.ascontiguousarray(tensor.clone().numpy() if isinstance(tensor, torch.Tensor) else tensor).view(np.uint8).reshape(-1)


@pytest.fixture
def exchanges(cluster):
    return Exchanges(cluster())


@pytest.mark.parametrize("make", [lambda: np.arange(LARGE, dtype=np.float32), lambda: torch.arange(LARGE, dtype=torch.float32)])
def test_a_storage_is_registered_the_second_time(exchanges, make):
    tensor, other = make(), make()
    exchanges.check(tensor)
    assert not is_reached(tensor)
    exchanges.check(other)
    assert not is_reached(other)
    exchanges.check(tensor)
    assert is_reached(tensor)
    assert not is_reached(other)
    exchanges.check(tensor, 3)


def test_views_name_their_storage(exchanges):
    whole = torch.arange(4 * LARGE, dtype=torch.float32)
    exchanges.check(whole[:LARGE])
    exchanges.check(whole.view(4, LARGE)[2])
    assert is_reached(whole)
    array = np.arange(4 * LARGE, dtype=np.float32)
    exchanges.check(array[:LARGE])
    exchanges.check(array.reshape(4, LARGE)[2])
    assert is_reached(array)
    small = array[5:6]
    exchanges.check(small)
    exchanges.check(np.zeros(8), 5)  # which travels with the head


def test_arrays_over_tensors_are_of_their_storage(exchanges):
    tensor = torch.arange(LARGE, dtype=torch.float32)
    exchanges.check(tensor.numpy())
    exchanges.check(tensor.numpy())  # another array over the same memory
    assert is_reached(tensor)
    array = np.arange(LARGE, dtype=np.float32)
    exchanges.check(torch.from_numpy(array))
    exchanges.check(array)
    exchanges.check(array)
    exchanges.check(torch.from_numpy(array))
    assert is_reached(array)


def test_answers_and_pulls_are_registered(exchanges):
    answer = np.arange(LARGE, dtype=np.float32)
    pull = np.zeros(LARGE, np.float32)
    for _ in range(3):
        handle = exchanges.worker.push_pull([], [], [pull], [2])
        exchanges.server.get_batch(timeout=10)[0].respond([answer]).wait(10)
        handle.wait(10)
        assert np.array_equal(answer, pull)
        pull[:] = 0
    assert is_reached(answer)
    assert is_reached(pull)
    rows = torch.arange(LARGE, dtype=torch.float32).reshape(2, -1)
    for _ in range(3):
        handle = exchanges.worker.push_pull([], [], [pull], [2])
        exchanges.server.respond_vec(rows, [2], exchanges.server.get_batch(timeout=10)).wait(10)
        handle.wait(10)
    assert np.array_equal(rows.reshape(-1).numpy(), pull)
    assert is_reached(rows)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_memory_that_goes_is_given_up_before(exchanges, kind):
    tensor = np.arange(LARGE, dtype=np.float32) if kind == "numpy" else torch.arange(LARGE, dtype=torch.float32)
    exchanges.check(tensor, 2)
    at = place(tensor)
    assert reached(*at) == 1
    view = tensor[10:20]
    del tensor
    gc.collect()
    assert reached(*at) == 1, "a view keeps the storage"
    del view
    gc.collect()
    if kind == "torch" and torch.__version__ < "2.1":
        exchanges.check(np.zeros(LARGE, np.float32))  # its storages tell nobody: the next operation asks
    assert reached(*at) == 0


class Buffer:
    """Memory at one address, again and again."""

    def __init__(self):
        self.memory = bytearray(8 * LARGE)

    def array(self, count=LARGE):
        return np.frombuffer(self.memory, np.float32, count)


def test_another_storage_at_the_same_address(exchanges):
    buffer = Buffer()
    for round in range(3):
        array = buffer.array(LARGE + round)
        at = place(array)
        exchanges.check(array)
        assert reached(*at) == 0, "it begins from nothing"
        exchanges.check(array)
        assert reached(*at) == 1
        del array
        gc.collect()
        assert reached(*at) == 0


def test_storages_of_torch_at_the_same_address(exchanges):
    buffer = Buffer()
    seen = []
    for value in range(4):
        buffer.array()[:] = value
        tensor = torch.frombuffer(buffer.memory, dtype=torch.float32, count=LARGE)
        seen.append(tensor.data_ptr())
        exchanges.check(tensor)
        assert not is_reached(tensor)
        exchanges.check(tensor)
        assert is_reached(tensor)
        del tensor
        gc.collect()
    assert len(set(seen)) == 1


def test_a_storage_that_moves_is_another(exchanges):
    tensor = torch.arange(LARGE, dtype=torch.float32)
    exchanges.check(tensor, 2)
    old = place(tensor)
    tensor.resize_(64 * LARGE).fill_(7)
    assert place(tensor) != old
    exchanges.check(tensor)
    assert not is_reached(tensor)
    exchanges.check(tensor)
    assert is_reached(tensor)
    array = np.arange(LARGE, dtype=np.float32)
    exchanges.check(array, 2)
    with pytest.raises(ValueError, match="cannot resize"):  # numpy refuses that by itself
        array.resize(64 * LARGE, refcheck=False)


def test_memory_of_other_kinds(exchanges):
    numbers = array.array("f", range(LARGE))  # has the buffer protocol
    for _ in range(3):
        exchanges.push(numbers)
    assert reached(numbers.buffer_info()[0], 4 * LARGE) == 1
    constant = np.frombuffer(bytes(4 * LARGE), np.float32)  # read-only
    exchanges.check(constant, 3)
    columns = np.zeros((64, 512), np.float32).T
    exchanges.check(columns.T, 3)
    exchanges.check(np.zeros(0, np.float32), 3)


class Lent:
    """An object with __dlpack__ over memory that it may free."""

    def __init__(self):
        self.tensor = torch.arange(LARGE, dtype=torch.float32)

    def __dlpack__(self, **options):
        return torch.utils.dlpack.to_dlpack(self.tensor)


def test_an_object_with_dlpack_is_known_by_itself(exchanges):
    lent = Lent()
    exchanges.push(lent)
    assert not is_reached(lent.tensor)
    exchanges.push(lent)
    assert is_reached(lent.tensor)
    at = place(lent.tensor)
    del lent
    gc.collect()
    assert reached(*at) == 0


def test_objects_that_show_the_same_memory(exchanges):
    """One of them gives way to the other within an exchange, or dies before it begins: the memory stays."""
    first, second = Lent(), Lent()
    second.tensor = first.tensor
    for _ in range(3):
        handle = exchanges.worker.push_pull([first, second], [1, 2], [], [])
        request = exchanges.server.get_batch(timeout=10)[0]
        assert all(torch.equal(pushed, first.tensor) for pushed in request.tensors)
        request.respond([])
        handle.wait(10)
    want = first.tensor.clone()
    del first, second
    for _ in range(3):
        handle = exchanges.worker.push_pull((Lent() for _ in range(2)), [1, 2], [], [])
        request = exchanges.server.get_batch(timeout=10)[0]
        assert all(torch.equal(pushed, want) for pushed in request.tensors)
        request.respond([Lent() for _ in range(0)])
        handle.wait(10)


def test_an_operation_in_flight_keeps_the_storage(exchanges):
    tensor = np.arange(LARGE, dtype=np.float32)
    at, want = place(tensor), tensor.copy()
    exchanges.check(tensor, 2)
    handle = exchanges.worker.push_pull([tensor], [1], [], [])
    del tensor
    gc.collect()
    assert reached(*at) == 1
    request = exchanges.server.get_batch(timeout=10)[0]
    assert np.array_equal(request.tensors[0].numpy(), want)
    request.respond([])
    handle.wait(10)
    del request
    _core.collect()
    gc.collect()
    assert reached(*at) == 0


def test_what_was_used_longest_ago_makes_room(cluster):
    exchanges = Exchanges(cluster(STEPVAN_REGISTER_BYTES="1MiB"))
    arrays = [np.full(120_000, i, np.float32) for i in range(3)]  # two of them fit
    for array in arrays:
        exchanges.check(array, 2)
    assert [is_reached(array) for array in arrays] == [False, True, True]
    large = np.zeros(300_000, np.float32)
    exchanges.check(large, 3)
    assert not is_reached(large)
    handle = exchanges.worker.push_pull([arrays[1]], [7], [], [])  # in flight, and named longest ago
    request = exchanges.server.get_batch(timeout=10)[0]
    exchanges.check(arrays[2])
    exchanges.check(arrays[0], 2)
    assert [is_reached(array) for array in arrays] == [True, True, False]
    request.respond([])
    handle.wait(10)


def test_only_the_program_registers(cluster):
    exchanges = Exchanges(cluster(STEPVAN_REGISTER="explicit"))
    array, answer = np.arange(LARGE, dtype=np.float32), np.arange(LARGE, dtype=np.float32)
    exchanges.check(array, 3)
    assert not is_reached(array)
    with exchanges.worker.register(array), exchanges.server.register(answer):
        assert is_reached(array)
        assert is_reached(answer)
        exchanges.check(array)
        exchanges.push(array, answer)
    assert not is_reached(array)


def test_registered_and_used_again(exchanges):
    """A registration of the program, and one of the node, each end by themselves."""
    array = np.arange(LARGE, dtype=np.float32)
    registration = exchanges.worker.register(array)
    exchanges.check(array, 3)
    registration.unregister()
    exchanges.check(array, 2)
    assert is_reached(array)
    with exchanges.worker.register(array[:100]):
        exchanges.check(array)
    at = place(array)
    del array, registration
    gc.collect()
    assert reached(*at) == 0


def test_threads_use_and_free_storages(cluster):
    """Each thread pushes arrays of its own, which it frees at once or uses again."""
    c = cluster(workers=1)
    worker, errors = c.workers[0].worker, []
    c.serve(lambda request: [request.tensors[0]])

    def use(key):
        try:
            for i in range(60):
                array = np.full(LARGE + i, i, np.float32)
                for _ in range(i % 4):
                    pull = np.zeros_like(array)
                    worker.push_pull([array], [key], [pull], [key + 100]).wait(10)
                    assert np.array_equal(array, pull)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=use, args=(key,)) for key in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert errors == []


def test_storages_outlive_their_node(cluster):
    array = np.arange(LARGE, dtype=np.float32)
    for _ in range(2):
        c = cluster()
        Exchanges(c).check(array, 3)
        assert is_reached(array)
        c.stop()
        c.close()
        assert not is_reached(array)


def test_storages_are_not_kept(exchanges):
    """Neither the table nor its weak references keep what they name."""
    array = np.arange(LARGE, dtype=np.float32)
    exchanges.check(array, 3)
    seen = weakref.ref(array)
    del array
    _core.collect()
    assert seen() is None


def sparse():
    """The end of memory above 4 GiB, of which nothing else is there."""
    no_reserve = 0x4000  # MAP_NORESERVE of Linux, which mmap has from Python 3.12 on
    memory = mmap.mmap(-1, (4 << 30) + 8 * LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    return np.frombuffer(memory, np.float32)[-LARGE:]


def mapped(tmp_path, **options):
    path = tmp_path / "file"
    path.write_bytes(np.arange(LARGE, dtype=np.float32).tobytes())
    with path.open("r+b") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, **options), np.float32)


KINDS = {
    "heap": lambda _: np.zeros(LARGE, np.float32),
    "bytes": lambda _: np.frombuffer(bytes(4 * LARGE), np.float32),
    "a file": lambda path: mapped(path),
    "a private copy of a file": lambda path: mapped(path, flags=mmap.MAP_PRIVATE),
    "a file, only for reading": lambda path: mapped(path, access=mmap.ACCESS_READ),
    "above 4 GiB": lambda _: sparse(),
    "stepvan": lambda _: None,
}


@pytest.mark.parametrize("how", ["auto", "explicit"])
@pytest.mark.parametrize("kind", KINDS)
def test_memory_of_each_kind(cluster, tmp_path, kind, how):
    """Pushes, answers and pulls in memory of each kind: the bytes are right, or an error says what is wrong."""
    exchanges = Exchanges(cluster(STEPVAN_REGISTER=how, STEPVAN_REGISTER_BYTES="8GiB"))
    worker, server = exchanges.worker, exchanges.server
    tensor = KINDS[kind](tmp_path)
    if tensor is None:
        tensor = server._node.empty(LARGE, np.float32)
    held = [side.register(tensor) for side in (worker, server, worker) if how == "explicit"]
    for i in range(4):
        if tensor.flags.writeable:
            tensor[:] = i
        exchanges.check(tensor)
        pull = np.zeros(LARGE, np.float32)
        handle = worker.push_pull([], [], [pull], [2])
        server.get_batch(timeout=10)[0].respond([tensor]).wait(10)
        handle.wait(10)
        assert np.array_equal(pull, tensor)
    if tensor.flags.writeable:
        want = np.arange(LARGE, dtype=np.float32)
        for _ in range(3):
            tensor[:] = 0
            handle = worker.push_pull([], [], [tensor], [2])
            server.get_batch(timeout=10)[0].respond([want]).wait(10)
            handle.wait(10)
            assert np.array_equal(want, tensor)
    else:
        with pytest.raises(stepvan.InvalidError, match=r"pull\[0\]: it is read-only"):
            worker.push_pull([], [], [tensor], [2])
        with pytest.raises(stepvan.InvalidError, match="read-only"):
            server.register_recv_buffer(tensor, [0], [9])
    assert reached(*place(tensor)) >= 1
    for registration in held:
        registration.unregister()
    if held and kind != "stepvan":
        assert reached(*place(tensor)) == 0


def test_nothing_is_registered_of_no_bytes(exchanges):
    empty = np.zeros(0, np.float32)
    with exchanges.worker.register(empty), exchanges.server.register(empty):
        exchanges.check(empty, 3)


def test_registrations_that_overlap(cluster):
    exchanges = Exchanges(cluster(STEPVAN_REGISTER="explicit"))
    whole = np.arange(2 * LARGE, dtype=np.float32)
    parts = [whole[:LARGE], whole[LARGE // 2 : -LARGE // 2], whole[LARGE:]]
    held = [exchanges.worker.register(part) for part in parts]
    for part in parts:
        exchanges.check(part)
        assert is_reached(part)
    assert not is_reached(whole)
    exchanges.check(whole)
    for registration, left in zip(held, ([1, 2], [2], []), strict=True):
        registration.unregister()
        assert [i for i in range(3) if is_reached(parts[i])] == left
        for part in parts:
            exchanges.check(part)


def test_unregistered_in_flight(exchanges):
    """What an exchange needs stays registered until it has ended."""
    push, answer = np.arange(LARGE, dtype=np.float32), np.arange(LARGE, dtype=np.float32) * 2
    for _ in range(3):
        pull = np.zeros(LARGE, np.float32)
        held = [exchanges.worker.register(tensor) for tensor in (push, pull)]
        held.append(exchanges.server.register(answer))
        handle = exchanges.worker.push_pull([push], [1], [pull], [2])
        for registration in held[:2]:
            registration.unregister()
        request = exchanges.server.get_batch(timeout=10)[0]
        assert np.array_equal(request.tensors[0].numpy(), push)
        response = request.respond([answer])
        held[2].unregister()
        response.wait(10)
        handle.wait(10)
        assert np.array_equal(pull, answer)


def test_a_mapping_in_use_cannot_be_unmapped(exchanges):
    memory = mmap.mmap(-1, 4 * LARGE)
    array = np.frombuffer(memory, np.float32)
    exchanges.check(array, 3)
    with pytest.raises(BufferError):
        memory.close()
    at = place(array)
    del array
    gc.collect()
    assert reached(*at) == 0
    memory.close()
