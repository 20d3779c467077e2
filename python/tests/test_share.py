"""share_: parameters in shared memory, with their ties, their views and their optimizers."""

import copy
import gc
import os
import re
import threading

import numpy as np
import pytest
import torch

import stepvan
from stepvan import _core, _share


@pytest.fixture
def node(cluster):
    return cluster().workers[0]


def is_shared(tensor):
    """Whether all of a tensor lies in memory of share_."""
    span = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()))
    return _core.in_own_file(tensor.data_ptr(), span * tensor.element_size())


def files():
    """How many memory files of workers this process has mapped."""
    gc.collect()
    _core.collect()
    with open("/proc/self/maps") as maps:
        return len({line.split()[4] for line in maps if "memfd:stepvan:stepvan worker" in line})


class Model(torch.nn.Module):
    """Tied embeddings, a fused projection with named parts, buffers that training changes, and one of each kind."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(7, 8)
        self.qkv = torch.nn.Linear(8, 24)
        self.norm = torch.nn.BatchNorm1d(8)
        self.out = torch.nn.Linear(8, 7, bias=False)
        self.out.weight = self.embedding.weight
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("q", self.qkv.weight.detach()[:8], persistent=False)
        self.register_buffer("columns", self.qkv.weight.detach().t()[2:5], persistent=False)

    def forward(self, x):
        self.steps += 1
        q, k, v = self.qkv(self.embedding(x)).chunk(3, -1)
        return self.out(self.norm(torch.relu(q) * k + v + self.q.sum() / 100))


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW, foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "LBFGS": lambda p: torch.optim.LBFGS(p, max_iter=3),
}


class Training:
    """A model that trains on numbers that depend on the step alone."""

    def __init__(self, optimizer):
        torch.manual_seed(1)
        self.model = Model()
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.step = 0

    def run(self, steps):
        for _ in range(steps):
            self.step += 1
            x = (torch.arange(5) * self.step) % 7

            def loss():
                self.optimizer.zero_grad(set_to_none=False)
                value = torch.nn.functional.cross_entropy(self.model(x), (x + 1) % 7)
                value.backward()
                return value

            self.optimizer.step(loss)

    def tensors(self):
        """All that it has: what share_ moves, and what it leaves alone."""
        moved = [*self.model.parameters(), *self.model.buffers()]
        left = [p.grad for p in self.model.parameters() if p.grad is not None]
        left += [v for state in self.optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
        return moved, left


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("before", [0, 3])
def test_training_goes_on_bit_for_bit(node, optimizer, before):
    shared, twin = Training(optimizer), Training(optimizer)
    shared.run(before)
    twin.run(before)
    names = [id(t) for t in shared.tensors()[0]]
    pointers = [t.data_ptr() for t in shared.tensors()[1]]
    assert stepvan.share_(shared.model, node) is shared.model
    assert [id(t) for t in shared.tensors()[0]] == names, "the same objects"
    assert [t.data_ptr() for t in shared.tensors()[1]] == pointers, "gradients and state stay where they are"
    for step in range(4):
        (moved, left), (twin_moved, twin_left) = shared.tensors(), twin.tensors()
        assert all(map(torch.equal, moved + left, twin_moved + twin_left)), step
        assert all(map(is_shared, moved))
        assert not any(_core.in_own_file(t.data_ptr(), 1) for t in left)
        assert len(left) == len(twin_left) > 0 or step + before == 0
        shared.run(1)
        twin.run(1)
    model = shared.model
    assert model.out.weight is model.embedding.weight
    assert model.q.data_ptr() == model.qkv.weight.data_ptr() and torch.equal(model.q, model.qkv.weight[:8])
    assert torch.equal(model.columns, model.qkv.weight.t()[2:5])


def test_again_moves_only_what_is_new(node):
    model = Model()
    stepvan.share_(model, node)
    pointers = [t.data_ptr() for t in [*model.parameters(), *model.buffers()]]
    count = files()
    for what in model, model.state_dict(), list(model.parameters()), model.qkv.weight:
        assert stepvan.share_(what, node) is what
    model.more = torch.nn.Linear(3, 3)
    assert files() == count
    stepvan.share_(model, node)
    assert files() == count + 1
    others = [t for name, t in model.named_parameters() if not name.startswith("more")]
    assert [t.data_ptr() for t in [*others, *model.buffers()]] == pointers
    assert is_shared(model.more.weight) and is_shared(model.more.bias)


def test_what_is_given(node):
    for make in [
        lambda t: {"a": t, "extra": b"1", "none": None},
        lambda t: [t, t],
        lambda t: (torch.nn.Linear(2, 2).weight, t),
        lambda t: t,
    ]:
        t = torch.arange(6.0).reshape(2, 3)
        stepvan.share_(make(t), node)
        assert is_shared(t) and t.tolist() == [[0, 1, 2], [3, 4, 5]]
    stepvan.share_({"empty": torch.zeros(0, 3), "b": torch.zeros(1)}, node)
    stepvan.share_(torch.zeros(0), node)
    for wrong in 5, {}, [], {"state": {0: {"exp_avg": torch.zeros(1)}}}, np.zeros(3), torch.nn.ReLU(), None, "w":
        with pytest.raises(stepvan.InvalidError, match="^share_: .* has no tensors of torch: give a module"):
            stepvan.share_(wrong, node)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24).reshape(2, 3, 4).transpose(0, 2), torch.arange(10.0)[3:7], torch.ones(3, 1).expand(3, 5), torch.tensor(7), torch.ones(3, dtype=torch.bool),
        torch.arange(12.0).to(torch.bfloat16)[1::3], torch.randn(2, 2, dtype=torch.complex64), torch.zeros(1, 2, 3, 4).to(memory_format=torch.channels_last),
        torch.from_numpy(np.arange(5.0))[1:], torch.frombuffer(bytearray(range(24)), dtype=torch.int32, offset=4), torch.ones(3, 3, requires_grad=True) * 2,
        torch.arange(4.0).to(torch.float16).requires_grad_(), torch.empty(100, 100).normal_(),
    ],
)  # fmt: skip
def test_tensors_of_every_kind(node, tensor):
    want, shape, stride, offset = tensor.clone(), tensor.shape, tensor.stride(), tensor.data_ptr() % 64
    stepvan.share_(tensor, node)
    assert is_shared(tensor)
    assert torch.equal(tensor, want)
    assert (tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad) == (shape, stride, want.dtype, want.requires_grad)
    assert tensor.data_ptr() % 64 == offset, "it is aligned as it was"


def test_views_that_were_not_given_move_along(node):
    model = torch.nn.Linear(4, 4)
    before = model.state_dict()
    row, turned, bits = model.weight.detach()[1], model.weight.data.t(), model.weight.data.view(torch.int32)
    stepvan.share_(model, node)
    with torch.no_grad():
        model.weight.copy_(torch.arange(16.0).reshape(4, 4))
    assert torch.equal(before["weight"], model.weight) and torch.equal(turned, model.weight.t())
    assert row.tolist() == [4, 5, 6, 7] and torch.equal(bits.view(torch.float32), model.weight)
    row.zero_()
    assert model.weight[1].tolist() == [0, 0, 0, 0]
    copied = copy.deepcopy(model)
    assert torch.equal(copied.weight, model.weight) and not is_shared(copied.weight)


def test_state_dicts_take_their_module_along(node):
    model = torch.nn.Linear(4, 4)
    stepvan.share_(model.state_dict(), node)
    assert is_shared(model.weight) and is_shared(model.bias)


def test_a_flat_buffer_that_its_owner_keeps(node):
    """As Megatron and optimizers with flat memory have it: parameters are parts of one tensor."""
    flat = torch.arange(64.0)
    parts = [torch.nn.Parameter(flat[i : i + 12].view(3, 4)) for i in (0, 16, 32)]
    stepvan.share_(parts, node)
    flat.mul_(2)
    assert [p[0, 0].item() for p in parts] == [0, 32, 64]
    assert is_shared(flat) and parts[2].data_ptr() == flat.data_ptr() + 128


def test_what_lies_between_stays_private(node):
    """Parameters and state in one storage, which nothing shows as a whole."""
    flat = torch.arange(1, 65, dtype=torch.float32)
    first, state, last = flat[:16].view(4, 4).data, flat[16:48].data, flat[48:].data
    del flat
    stepvan.share_({"first": first, "last": last}, node)
    assert is_shared(first) and is_shared(last) and not _core.in_own_file(state.data_ptr(), 1)
    assert last.data_ptr() - first.data_ptr() == 192, "they stay parts of one block"
    between = torch.as_strided(first, (32,), (1,), 16)
    assert between.tolist() == [0] * 32
    assert state.tolist() == list(range(17, 49)) and last.tolist() == list(range(49, 65))


def test_views_of_a_whole_move_as_a_whole(node):
    """Torch keeps the tensor that views were made of. It must show the same as they do."""
    flat = torch.arange(8.0)
    weight, state = flat[:4], flat[4:]
    stepvan.share_(weight, node)
    flat.mul_(2)
    assert weight.tolist() == [0, 2, 4, 6] and state.tolist() == [8, 10, 12, 14]
    assert is_shared(flat) and is_shared(state)


def test_memory_that_two_storages_show(node):
    array = np.arange(32.0)
    whole, part = torch.from_numpy(array), torch.from_numpy(array[8:])
    stepvan.share_(part, node)
    whole.mul_(2)
    assert part[0] == 16 and is_shared(whole)
    assert array[8] == 8, "an array of numpy keeps the old memory"


class Wrapper:
    """As a DTensor or a quantised tensor has its parts."""

    @staticmethod
    def make(*parts):
        kind = type("Wrapped", (torch.Tensor,), {"__tensor_flatten__": lambda self: (list(self.parts), None)})
        wrapped = torch.zeros(1).as_subclass(kind)
        wrapped.parts = [f"part{i}" for i in range(len(parts))]
        for name, part in zip(wrapped.parts, parts):
            setattr(wrapped, name, part)
        return wrapped


def test_wrappers_count_as_their_parts(node):
    a, b, c = torch.ones(3), torch.arange(4), torch.zeros(2, device="meta")
    stepvan.share_({"w": Wrapper.make(a, Wrapper.make(b))}, node)
    assert is_shared(a) and is_shared(b)
    with pytest.raises(stepvan.InvalidError, match=r"^share_: w\.part1\.part0: it is on device meta"):
        stepvan.share_({"w": Wrapper.make(a, Wrapper.make(c))}, node)
    local = type("DTensor", (torch.Tensor,), {})
    old = torch.zeros(1).as_subclass(local)
    old._local_tensor = torch.ones(5)
    stepvan.share_(old, node)
    assert is_shared(old._local_tensor) and not is_shared(old)


def lazy():
    return torch.nn.LazyLinear(3)


REFUSED = {
    "on device meta": lambda: torch.zeros(3, device="meta"),
    "only dense tensors": lambda: torch.eye(3).to_sparse(),
    "it is quantized": lambda: torch.quantize_per_tensor(torch.zeros(4), 1.0, 0, torch.qint8),
    "negated lazily": lambda: torch.zeros(3, dtype=torch.complex64).conj().imag,
    "has no shape yet": lambda: lazy().weight,
    "torch shares its memory": lambda: torch.zeros(3).share_memory_(),
    "between two elements": lambda: torch.frombuffer(bytearray(9), dtype=torch.int32, offset=1),
    "has no memory": lambda: freed(torch.zeros(3)),
}


def freed(tensor):
    (tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor._storage()).resize_(0)
    return tensor


@pytest.mark.parametrize("match", REFUSED)
def test_what_is_refused(node, match):
    good = torch.ones(4)
    at = good.data_ptr()
    with pytest.raises(stepvan.InvalidError, match=rf"^share_: layer\.w: .*{match}"):
        stepvan.share_({"good": good, "layer.w": REFUSED[match]()}, node)
    assert good.data_ptr() == at, "nothing has moved"


def test_nodes(node, monkeypatch):
    from stepvan import _default

    monkeypatch.setattr(_default, "_node", None)
    with pytest.raises(stepvan.InvalidError, match="2 nodes"):
        stepvan.share_(torch.zeros(1))
    monkeypatch.setattr(_default, "_node", node)
    t = torch.zeros(1)
    stepvan.share_(t)
    assert is_shared(t)


def test_closed_nodes(cluster):
    c = cluster()
    node, t = c.workers[0], torch.arange(3.0)
    stepvan.share_(t, node)
    c.stop()
    c.close()
    with pytest.raises(stepvan.ClosedError, match="share_: this node was closed"):
        stepvan.share_(torch.zeros(1), node)
    assert t.add_(1).tolist() == [1, 2, 3], "the memory outlives the node"


def test_an_error_in_the_middle_changes_nothing(node, monkeypatch):
    tensors = [torch.full((10,), float(i)) for i in range(4)]
    with torch.inference_mode():
        tensors.append(torch.ones(10))
    before = [t.data_ptr() for t in tensors]
    show, calls = _share._show, []

    def fail(*arguments):
        show(*arguments)
        calls.append(arguments)
        if len(calls) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(_share, "_show", fail)
    count = files()
    with pytest.raises(KeyboardInterrupt):
        stepvan.share_(tensors, node)
    assert [t.data_ptr() for t in tensors] == before and tensors[4].is_inference()
    calls.clear()
    assert files() == count
    monkeypatch.undo()
    stepvan.share_(tensors, node)
    assert [t.tolist() for t in tensors] == [[i] * 10 for i in range(4)] + [[1] * 10]


def test_no_memory(node):
    t = torch.arange(3.0)
    at = t.data_ptr()
    with pytest.raises(stepvan.OutOfMemoryError):
        _share._move(torch, [_share._Block([_share._Place("w", t, at, at + 12)], at, 1 << 45)], _share.files_of(node.number))
    assert t.data_ptr() == at


def test_large_models_get_several_files(node, monkeypatch):
    monkeypatch.setattr(_share, "_LEAST_FILE", 4096)
    monkeypatch.setattr(_share, "_FILES", 4)
    tensors = [torch.full((512,), i) for i in range(20)] + [torch.full((3000,), 20)]
    before = files()
    stepvan.share_(tensors, node)
    assert 4 <= files() - before <= 6
    assert all(is_shared(t) and t.eq(i).all() for i, t in enumerate(tensors))


def test_the_files_hold_nothing_else(node):
    """Memory of the node comes from other files, before and after, and so does a second call's."""
    node.empty(10, torch.float32)
    first, second = torch.zeros(10), torch.zeros(10)
    stepvan.share_(first, node)
    stepvan.share_(second, node)
    other = node.empty(10, torch.float32)
    pages = [t.data_ptr() // 4096 for t in (first, second, other)]
    maps = open("/proc/self/maps").read()
    inodes = set()
    for page in pages:
        for line in maps.splitlines():
            start, end = (int(n, 16) for n in re.match(r"(\w+)-(\w+) ", line).groups())
            if start <= page * 4096 < end:
                inodes.add(line.split()[4])
    assert len(inodes) == 3


def test_memory_goes_with_the_last_tensor(node):
    before = files()
    model = Model()
    stepvan.share_(model, node)
    part = model.qkv.weight.detach()[3]
    assert files() > before
    del model
    assert files() > before and part.sum() == part.sum()
    del part
    assert files() == before


def test_moved_tensors_are_found(node):
    model = torch.nn.Linear(4, 4)
    stepvan.share_(model, node)
    v = _core.make_views([(name, p, None) for name, p in model.named_parameters()], False)
    assert [row[-1] for row in v.list()] == [True, True]
    v.check()
    model.double()
    with pytest.raises(stepvan.InvalidError, match="^weight: "):
        v.check()
    stepvan.share_(model, node)
    assert is_shared(model.weight)


def test_shared_parameters_are_pushed_and_pulled(cluster):
    c = cluster()
    node = c.workers[0]
    c.serve(lambda request: [request.tensors[0] * 2])
    model = torch.nn.Linear(64, 64)
    stepvan.share_(model, node)
    want = model.weight.detach() * 2
    node.worker.push_pull([model.weight], [1], [model.weight.detach()], [1]).wait(10)
    assert torch.equal(model.weight, want)


def test_modes_of_the_program(node):
    model = torch.nn.Linear(3, 3)
    with torch.inference_mode(), torch.no_grad():
        stepvan.share_(model, node)
    assert not model.weight.is_inference()
    model(torch.ones(1, 3)).sum().backward()
    assert model.weight.grad is not None
    with torch.inference_mode():
        made = torch.zeros(3)
    stepvan.share_(made, node)
    assert made.is_inference() and is_shared(made)
    with torch.inference_mode():
        made.add_(1)
    assert made.tolist() == [1, 1, 1]


def test_threads_share_at_once(node):
    tensors = [[torch.full((50,), float(i * 10 + j)) for j in range(10)] for i in range(4)]
    threads = [threading.Thread(target=stepvan.share_, args=(some, node)) for some in tensors]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive()
    for i, some in enumerate(tensors):
        assert all(is_shared(t) and t.eq(i * 10 + j).all() for j, t in enumerate(some))


def test_forked_children_keep_their_parameters(node):
    t = torch.arange(4.0)
    stepvan.share_(t, node)
    child = os.fork()
    if child == 0:
        os._exit(0 if t.tolist() == [0, 1, 2, 3] else 1)
    assert os.waitpid(child, 0)[1] == 0
