"""Pushes that are shown where they are: in the worker's memory, and in pooled memory."""

import gc
import threading
import weakref

import pytest
import torch

import stepvan
from stepvan import _core, _frameworks

LARGE = 4096  # floats: above STEPVAN_IN_PLACE_BYTES, and above what is copied out of pooled memory


class Torch:
    """torch, which does something each time before it makes the tensor of a copy."""

    def __init__(self):
        self.learnt = False
        self.before = lambda: None
        self.made = 0

    def __getattr__(self, name):
        return getattr(torch, name)

    def empty(self, *args, **kwargs):
        if self.learnt:
            self.made += 1
            self.before()
        return torch.empty(*args, **kwargs)


@pytest.fixture
def copies():
    _frameworks.discover(False)
    watched = Torch()
    _frameworks._use_torch(watched)
    watched.learnt = True
    yield watched
    _frameworks._use_torch(torch)


class Exchange:
    """A push of which the worker has left all that is large in its memory, at the server."""

    def __init__(self, c, *more, value=3.0):
        node = c.workers[0]
        self.x, self.y = node.zeros(LARGE, "float32").fill_(value), torch.zeros(2)
        pushes = [self.x, *more]
        self.handle = node.worker.push_pull(pushes, list(range(1, len(pushes) + 1)), [self.y], [9])
        self.server = c.servers[0].server

    def request(self):
        [request] = self.server.get_batch(timeout=10)
        return request

    def answer(self, request):
        request.respond([torch.ones(2)])
        self.handle.wait(10)


@pytest.fixture
def shared(cluster):
    return cluster(STEPVAN_VAN="shm")


def test_tensors_are_copied_when_they_are_looked_at(shared, copies):
    e = Exchange(shared)
    request = e.request()
    assert (request.worker, request.keys, request.pull_count, request.pulls[0].nbytes) == (0, [1], 1, 8)
    assert repr(request) == "Request(worker=0, keys=[1], pulls=1)"
    assert request.input(0).eq(3).all() and request.out(0).shape == (2,)
    assert copies.made == 0
    e.x.fill_(4)  # which a program must not do
    [tensor] = tensors = request.tensors
    assert tensor.eq(4).all() and copies.made == 1
    assert request.tensors is tensors and request.tensors[0] is tensor and copies.made == 1
    tensor.fill_(5)
    assert e.x.eq(4).all() and request.input(0).eq(4).all()
    e.answer(request)
    e.x.fill_(6)
    assert request.tensors is tensors and tensor.eq(5).all()


def test_tensors_that_nobody_looked_at_before_the_respond(shared):
    e = Exchange(shared)
    request = e.request()
    repr(request), request.keys, request.pulls, request.input(0)
    e.answer(request)
    for _ in range(2):
        with pytest.raises(stepvan.StaleError, match="^tensors: the request was answered.* look at tensors before the respond"):
            request.tensors  # noqa: B018


def test_tensors_that_are_not_in_the_memory_of_the_worker(cluster):
    for van in ["tcp", "shm"]:
        e = Exchange(cluster(STEPVAN_VAN=van, STEPVAN_IN_PLACE_BYTES="0"))
        request = e.request()
        e.answer(request)
        assert request.tensors[0].eq(3).all()


def test_only_what_was_left_is_copied(shared, copies):
    buffer = torch.zeros(LARGE)
    shared.servers[0].server.register_recv_buffer(buffer, [0], [3])
    copies.made = 0
    e = Exchange(shared, torch.tensor([7.0]), torch.full((LARGE,), 8.0), shared.workers[0].zeros(LARGE, "float32").fill_(9))
    request = e.request()
    assert copies.made == 1, "the small one"
    left, small, chunk, last = tensors = request.tensors
    assert copies.made == 3
    assert [t[-1].item() for t in tensors] == [3, 7, 8, 9]
    assert chunk.data_ptr() == buffer.data_ptr()
    for t in (left, small, last):
        t.fill_(0)
    assert request.input(0).eq(3).all() and request.input(3).eq(9).all()
    e.answer(request)


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_copy_that_fails_is_tried_again(shared, copies, error):
    e = Exchange(shared, shared.workers[0].zeros(LARGE, "float32"))
    request = e.request()

    def fail():
        if copies.made == 2:
            raise error("once")

    copies.before = fail
    with pytest.raises(error, match="once"):
        request.tensors  # noqa: B018
    assert [t[0].item() for t in request.tensors] == [3, 0]
    e.answer(request)


def test_a_respond_while_a_copy_is_made(shared, copies):
    e = Exchange(shared)
    request = e.request()
    copies.before = lambda: e.answer(request)
    with pytest.raises(stepvan.StaleError, match="before the respond"):
        request.tensors  # noqa: B018


@pytest.mark.parametrize("plain", [False, True])
def test_a_close_while_a_batch_is_shown(shared, copies, plain):
    """As of another thread, while the tensor of a copy is made: what was received is gone then, and is not read."""
    e = Exchange(shared, *(torch.full((100,), float(i)) for i in range(3)))
    number, seen = shared.servers[0].number, []

    def close():
        copies.before = lambda: seen.append(copies.made)
        shared.close()

    copies.before = close
    with pytest.raises(stepvan.ClosedError):
        _core.get_batch(number, 0, 10.0, None if plain else e.server)
    assert (copies.made, seen) == (1, [])
    with pytest.raises(stepvan.ClosedError):
        e.server.get_batch(timeout=0)


def test_a_respond_while_a_view_is_made(shared, copies):
    e = Exchange(shared)
    request = e.request()

    class Once(Torch):
        # Later versions make the view in C.
        Tensor = type("Tensor", (torch.Tensor,), {"__dlpack_c_exchange_api__": None})

        def frombuffer(self, *args, **kwargs):
            if self.learnt:
                self.before()
            return torch.frombuffer(*args, **kwargs)

    watched = Once()
    _frameworks._use_torch(watched)
    watched.learnt, watched.before = True, lambda: e.answer(request)
    assert request.input(0).shape == (LARGE,)
    watched.learnt = False
    with pytest.raises(stepvan.StaleError):
        request.input(0)


@pytest.mark.parametrize("answers", [False, True])
def test_who_looks_first_decides(shared, copies, answers):
    """Another thread reads while a copy is made, and perhaps answers: there is one list, with one copy."""
    e = Exchange(shared)
    request = e.request()
    seen = []

    def look():
        copies.before = lambda: None
        seen.extend([request.tensors, request.tensors[0]])
        if answers:
            e.answer(request)

    copies.before = look
    tensors = request.tensors
    assert tensors is seen[0] and tensors[0] is seen[1] and tensors[0].eq(3).all()
    if not answers:
        e.answer(request)


def test_many_threads_look(shared):
    e = Exchange(shared, *(shared.workers[0].zeros(256 * 1024, "float32").fill_(i) for i in range(4)))
    request = e.request()
    seen, begin = [], threading.Barrier(4)

    def look():
        begin.wait(10)
        seen.append((request.tensors, *request.tensors))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(20)
    assert len({tuple(map(id, row)) for row in seen}) == 1 and len(seen) == 4
    assert [t[-1].item() for t in request.tensors] == [3, 0, 1, 2, 3]
    e.answer(request)


def test_batches_that_are_given_again(cluster, copies):
    c = cluster(workers=2, STEPVAN_VAN="shm")
    pushes = [node.zeros(LARGE, "float32").fill_(i) for i, node in enumerate(c.workers)]
    handles = [n.worker.push_pull([x, torch.tensor([7.0])], [1, 2], [torch.zeros(1)], [9]) for n, x in zip(c.workers, pushes)]

    def fail():
        if copies.made == 2:
            raise MemoryError("once")

    copies.before = fail
    with pytest.raises(MemoryError):
        c.servers[0].server.get_batch("lockstep", timeout=10)
    batch = c.servers[0].server.get_batch("lockstep", timeout=0)
    for rank, request in enumerate(batch):
        assert request.tensors[0].eq(rank).all() and request.tensors[1] == 7
        request.respond([torch.ones(1)])
    for handle in handles:
        handle.wait(10)


def test_tuples_have_their_copies(shared):
    e = Exchange(shared)
    [(handler, tensors, keys)], _ = _core.get_batch(shared.servers[0].number, 0, 10, None)
    e.server.respond([torch.ones(2)], handler)
    e.handle.wait(10)
    e.x.fill_(4)
    assert tensors[0].eq(3).all() and keys == [1]


def test_cycles_are_collected(shared):
    e = Exchange(shared)
    request = e.request()
    request.tensors.append(request)
    alive = weakref.ref(request.tensors[0])
    e.answer(request)
    del request
    gc.collect()
    assert alive() is None


def test_after_stop_and_close(shared):
    e = Exchange(shared)
    request = e.request()
    shared.stop()
    assert request.input(0).eq(3).all()
    shared.close()
    with pytest.raises(stepvan.ClosedError, match="^tensors: this node was closed"):
        request.tensors  # noqa: B018


class Pooled:
    """Pushes that arrive in pooled memory."""

    def __init__(self, c):
        self.worker, self.server = c.workers[0].worker, c.servers[0].server

    def take(self, *pushes):
        """The tensors of a request, which is answered; and the addresses of what was received."""
        handle = self.worker.push_pull(list(pushes), list(range(1, len(pushes) + 1)), [torch.zeros(1)], [9])
        [request] = self.server.get_batch(timeout=10)
        tensors, received = list(request.tensors), [request.input(i).data_ptr() for i in range(len(pushes))]
        request.respond([torch.zeros(1)])
        handle.wait(10)
        return tensors, received


@pytest.fixture
def pooled(cluster):
    gc.collect()
    return Pooled(cluster(STEPVAN_VAN="tcp"))


def test_pooled_memory_is_shown_where_it_is(pooled, copies):
    seen = []
    for i in range(10):
        [tensor], received = pooled.take(torch.full((LARGE,), float(i)))
        assert [tensor.data_ptr()] == received
        seen.append(tensor)
    assert copies.made == 0
    assert len({t.data_ptr() for t in seen}) == 10, "no push gets memory that is seen"
    for i, tensor in enumerate(seen):
        assert tensor.shape == (LARGE,) and tensor.eq(i).all()
        tensor.fill_(100 + i)
    pooled.take(torch.full((LARGE,), -1.0))
    assert [t.eq(100 + i).all().item() for i, t in enumerate(seen)] == [True] * 10


def test_pooled_memory_is_given_back(pooled):
    [tensor], [address] = pooled.take(torch.zeros(LARGE))
    part = tensor[10:20]
    del tensor
    assert pooled.take(torch.ones(LARGE))[1] != [address] and part.eq(0).all(), "a part keeps it"
    del part
    gc.collect()
    assert address in {pooled.take(torch.ones(LARGE))[1][0] for _ in range(2)}


def test_pooled_memory_of_several_pushes(pooled, copies):
    (first, small, last), received = pooled.take(torch.full((LARGE,), 1.0), torch.full((2048,), 2.0), torch.full((LARGE,), 3.0))
    assert (first.data_ptr(), last.data_ptr()) == (received[0], received[2]) and copies.made == 1, "8 KiB are copied"
    del first
    pooled.take(torch.full((LARGE,), -1.0), torch.full((2048,), -1.0), torch.full((LARGE,), -1.0))
    assert small.eq(2).all() and last.eq(3).all()


def test_pooled_memory_outlives_the_node(cluster):
    c = cluster(STEPVAN_VAN="tcp")
    [tensor], received = Pooled(c).take(torch.full((LARGE,), 5.0))
    assert [tensor.data_ptr()] == received
    c.stop()
    c.close()
    assert tensor.eq(5).all()
    assert tensor.fill_(6).eq(6).all()


def test_so_much_of_the_pool_is_kept(pooled, copies):
    """What a program keeps leaves room in the pool: from 64 MiB on it gets copies."""
    x, seen = torch.zeros(4 << 20), []
    for i in range(5):  # of 16 MiB
        x.fill_(i)
        [tensor], received = pooled.take(x)
        seen.append(tensor)
        assert ([tensor.data_ptr()] == received) == (i < 4)
    assert copies.made == 1
    assert all(t.eq(i).all() for i, t in enumerate(seen))
    del seen, tensor
    gc.collect()
    [tensor], received = pooled.take(x)
    assert [tensor.data_ptr()] == received and copies.made == 1
