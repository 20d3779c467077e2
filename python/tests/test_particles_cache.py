"""The caches of particles, on the processor and on a simulated device."""

import errno
import resource
import threading

import pytest
import simulated_device
import torch

import stepvan
from stepvan.particles import context_switch
from stepvan.particles.context_switch import ParticleCache, ParticleCacheLRU


class Net(torch.nn.Module):
    """It has a tied parameter, a view of a buffer, and a buffer that training changes."""

    def __init__(self, width=4):
        super().__init__()
        self.first = torch.nn.Linear(width, width)
        self.norm = torch.nn.BatchNorm1d(width)
        self.last = torch.nn.Linear(width, width, bias=False)
        self.last.weight = self.first.weight
        self.register_buffer("seen", torch.zeros(4))
        self.register_buffer("counts", self.seen[:2])

    def forward(self, x):
        self.counts += 1
        return self.last(torch.tanh(self.norm(self.first(x))))


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.05)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def halving(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)


@pytest.fixture(params=["cpu", "simulated"])
def device(request, monkeypatch):
    if request.param == "simulated":
        simulated_device.install(monkeypatch)
    return request.param


def cache_of(size, mk=Net, args=(4,)):
    return ParticleCache(mk, args, size, 0, threading.Lock())


def lru_of(size, mk=Net, args=(4,)):
    return ParticleCacheLRU(mk, args, size, 0)


def train(cache, read, particles, rounds):
    """Particles take turns, so that a small cache swaps them at each step. A step adds to the gradients before it."""
    torch.manual_seed(7)
    batches = torch.randn(rounds, 5, 4)
    losses = []
    for batch in batches:
        for pid in range(particles):
            module = read(pid)
            loss = (module(batch) ** 2).mean() + sum((p.grad**2).sum() for p in module.parameters() if p.grad is not None)
            loss.backward()  # which adds to the gradients
            cache.optimizer(pid).step()
            if cache.scheduler(pid) is not None:
                cache.scheduler(pid).step()
            losses.append(loss.item())
    return losses, [{k: v.clone() for k, v in read(pid).state_dict().items()} for pid in range(particles)]


@pytest.mark.parametrize("optimizer", [adam, momentum])
def test_training_with_a_cache_of_one_equals_one_of_all(device, optimizer):
    found = []
    for size in (1, 2, 3):
        cache = cache_of(size)
        for pid in range(3):
            cache.create(pid, optimizer, halving, train_key=pid)
        losses, states = train(cache, cache.try_read, 3, 6)
        grads = [[p.grad.clone() for p in cache.try_read(pid).parameters()] for pid in range(3)]
        rates = [cache.scheduler(pid).get_last_lr() for pid in range(3)]
        found.append((losses, states, grads, rates))
    for other in found[1:]:
        assert other[0] == found[0][0] and other[3] == found[0][3]
        for a, b in zip(found[0][1], other[1], strict=True):
            assert all(torch.equal(a[k], b[k]) for k in a)
        assert all(torch.equal(a, b) for x, y in zip(found[0][2], other[2], strict=True) for a, b in zip(x, y, strict=True))


def test_least_recently_used_trains_alike(device):
    found = []
    for size in (1, 3):
        cache = lru_of(size)
        torch.manual_seed(3)
        for pid in range(3):
            cache.create(pid, adam)
        losses, states = train(cache, cache.read, 3, 6)
        found.append((losses, states))
    assert found[0][0] == found[1][0]
    assert all(torch.equal(a[k], b[k]) for a, b in zip(found[0][1], found[1][1], strict=True) for k in a)


def test_ties_and_views_outlive_an_eviction(device):
    cache = cache_of(1)
    module = cache.create(0, None)
    cache.create(1, None)
    assert cache.try_read(0) is module
    assert module.first.weight is module.last.weight and module.counts.data_ptr() == module.seen.data_ptr()
    module(torch.ones(3, 4))
    assert module.seen.tolist() == [1, 1, 0, 0]


def test_a_copy_costs_the_bytes_of_what_changes_place(monkeypatch):
    """64 particles in a cache of 4: the counter of the device, against the bytes of modules and optimizers."""
    simulated_device.install(monkeypatch)
    cache = cache_of(4)
    for pid in range(64):
        cache.create(pid, momentum)
    module = cache.try_read(0)
    own = sum(t.numel() * t.element_size() for t in [*module.parameters(), *module.buffers()]) - module.counts.numel() * 4
    before = cache.moved_bytes
    for pid in [*range(1, 64), *range(64), 63]:  # each read but the last one swaps two particles
        cache.try_read(pid)
    assert cache.moved_bytes - before == 2 * 127 * own
    for pid in range(64):
        module = cache.try_read(pid)
        module(torch.ones(3, 4)).sum().backward()
        cache.optimizer(pid).step()
    trained = own + 2 * sum(p.numel() * 4 for p in module.parameters())  # with gradients and momentum
    before = cache.moved_bytes
    for pid in range(4):
        cache.try_read(pid)
    assert cache.moved_bytes - before == 8 * trained
    assert cache._mover.resident_bytes() == 4 * trained


def test_a_thousand_evictions_leave_nothing_behind(monkeypatch):
    simulated_device.install(monkeypatch)
    cache = cache_of(2)
    for pid in range(4):
        cache.create(pid, momentum)
    sizes = set()
    for i in range(1000):
        module = cache.try_read(i % 4)
        module(torch.ones(3, 4)).sum().backward()
        cache.optimizer(i % 4).step()
        if i > 8:
            sizes.add((cache._mover.resident_bytes(), len(cache._mover.inside)))
    assert len(sizes) == 1


def test_a_device_without_room_changes_nothing(monkeypatch):
    simulated_device.install(monkeypatch)
    cache = cache_of(1)
    first = cache.create(0, None)
    cache.create(1, None)
    cache._mover.full = True
    before = [p.clone() for p in first.parameters()]
    with pytest.raises(RuntimeError, match="out of memory"):
        cache.try_read(0)
    assert all(torch.equal(a, b) for a, b in zip(before, first.parameters(), strict=True))
    cache._mover.full = False
    assert cache.try_read(0) is first and cache.try_read(1) is not None


def test_positions_follow_the_order_of_creation(device):
    cache = cache_of(2)
    for pid in (7, 3, 9, 1):
        cache.create(pid, None)
    resident = lambda: [pid for pid in cache.particles() if cache.try_pin(pid) and cache.unpin(pid) is None]  # noqa: E731
    assert cache.particles() == [7, 3, 9, 1] and resident() == [9, 1]
    cache.try_read(7)
    assert resident() == [7, 1]
    cache.try_read(3)
    assert resident() == [7, 3]
    cache.try_read(1)
    assert resident() == [7, 1]
    assert all(cache.contains(pid) for pid in (7, 3, 9, 1)) and not cache.contains(0)


def test_pinned_particles_stay(device):
    cache = cache_of(1)
    cache.create(0, None)
    assert cache.try_read(0, pin=True, msg="get") is not None and cache.try_pin(0)
    with pytest.raises(stepvan.BusyError, match="particle 1: its position on device 0 has particle 0, which is pinned"):
        cache.create(1, None)
    assert not cache.contains(1)
    cache.unpin(0)
    with pytest.raises(stepvan.BusyError):
        cache.create(1, None)
    cache.unpin(0)
    cache.create(1, None)
    assert cache.try_pin(1) and not cache.try_pin(0)
    assert cache.try_read(0) is None and cache.try_read(0, pin=True) is None
    cache.unpin(1)
    assert cache.try_read(0) is not None
    with pytest.raises(stepvan.InvalidError, match="particle 0: it is not pinned"):
        cache.unpin(0)


def test_release_joins_without_the_lock():
    cache = cache_of(1)
    cache.create(0, None)
    cache.try_read(0, pin=True)
    inside = threading.Event()

    def work():
        assert inside.wait(30)
        assert cache.contains(0)  # which needs the lock

    thread = threading.Thread(target=work)
    thread.start()
    threading.Timer(0, inside.set).start()
    cache.release(0, thread)
    assert not thread.is_alive()
    cache.create(1, None)  # 0 is not pinned any more


def test_seeds_and_priors():
    class Prior(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.trainable = torch.nn.Linear(3, 2)
            self.fixed = torch.nn.Linear(3, 2)

        def init_weights(self, module):
            if isinstance(module, torch.nn.Linear):
                torch.nn.init.normal_(module.weight)
                torch.nn.init.zeros_(module.bias)

    class Whole(torch.nn.Linear):
        def init_weights(self):
            torch.nn.init.ones_(self.weight)

    cache = cache_of(4, Prior, ())
    module = cache.create(0, adam, None, True, 5)
    torch.manual_seed(5)
    want = Prior()
    want.trainable.apply(want.init_weights)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), want.parameters(), strict=True))
    (group,) = cache.optimizer(0).param_groups
    assert list(map(id, group["params"])) == list(map(id, module.trainable.parameters()))
    plain = cache.create(1, adam, train_key=5)
    assert torch.equal(plain.fixed.weight, want.fixed.weight) and not torch.equal(plain.trainable.weight, want.trainable.weight)
    assert len(cache.optimizer(1).param_groups[0]["params"]) == 4 and cache.scheduler(1) is None
    whole = cache_of(1, Whole, (2, 2)).create(0, None, prior=True)
    assert torch.equal(whole.weight, torch.ones(2, 2))
    with pytest.raises(stepvan.InvalidError, match="prior: Net has no init_weights"):
        cache_of(1).create(0, None, prior=True)


def test_what_is_unknown_or_there_is_refused():
    cache, lru = cache_of(2), lru_of(2)
    cache.create(0, None)
    lru.create(0, None)
    for call in (cache.try_read, cache.try_pin, cache.unpin, cache.save_to_disk, cache.optimizer, cache.scheduler, lru.read, lru.try_pin, lru.unpin):
        with pytest.raises(stepvan.InvalidError, match="particle 5: it is not known on device 0: create it before"):
            call(5)
    with pytest.raises(stepvan.InvalidError, match="particle 5: it is not known"):
        lru.write(5, Net())
    for c in (cache, lru):
        with pytest.raises(stepvan.InvalidError, match="particle 0: it exists on device 0"):
            c.create(0, None)
        for pid in (-1, "0", True, None):
            with pytest.raises(stepvan.InvalidError, match="pid is .*: it must be a number from 0 on"):
                c.create(pid, None)
        with pytest.raises(stepvan.InvalidError, match="mk_optim is 3: it must be a function"):
            c.create(1, 3)
        assert not c.contains(1)
        c.create(1, None)  # the position is free
    with pytest.raises(stepvan.InvalidError, match="mk_scheduler: there is no optimizer"):
        cache.create(2, None, halving)
    with pytest.raises(stepvan.InvalidError, match="train_key is 'a'"):
        cache.create(2, None, train_key="a")
    with pytest.raises(stepvan.InvalidError, match="mk_module has returned 4: it must return a torch.nn.Module"):
        cache_of(1, int, (4,)).create(0, None)
    for wrong, text in [
        (lambda: cache_of(0), "cache_size is 0"),
        (lambda: cache_of(True), "cache_size is True"),
        (lambda: cache_of(1, 3), "mk_module is 3"),
        (lambda: ParticleCache(Net, (), 1, -1, threading.Lock()), "device is -1"),
        (lambda: ParticleCache(Net, (), 1, "nowhere", threading.Lock()), "device is 'nowhere'"),
        (lambda: ParticleCache(Net, (), 1, 0, None), "lock is None"),
    ]:
        with pytest.raises(stepvan.InvalidError, match=text):
            wrong()


def test_attributes():
    lock = threading.RLock()
    cache, lru = ParticleCache(Net, [4], 3, 0, lock), ParticleCacheLRU(Net, [4], 3, 0)
    for c in (cache, lru):
        assert (c.mk_module, c.args, c.cache_size, c.device) == (Net, [4], 3, 0)
    assert cache.lock is lock
    with lock:  # which its owner may hold
        cache.create(0, None)


def test_the_least_recently_used_leaves(device):
    lru = lru_of(2)
    for pid in range(3):
        lru.create(pid, None)
    assert lru.particles() == [1, 2] and not lru.contains(0)
    lru.read(1)
    assert lru.particles() == [2, 1]
    lru.read(0)
    assert lru.particles() == [1, 0]
    assert lru.try_pin(1) and not lru.try_pin(2)
    lru.read(2)
    assert lru.particles() == [1, 2], "0 leaves, since 1 is pinned"
    assert lru.try_pin(2)
    with pytest.raises(stepvan.BusyError, match="particle 0: all 2 particles on device 0 are pinned"):
        lru.read(0)
    with pytest.raises(stepvan.BusyError, match="particle 3: all 2 particles"):
        lru.create(3, None)
    with pytest.raises(stepvan.BusyError):
        lru.write(0, Net())
    lru.unpin(1)
    lru.create(3, None)
    assert lru.particles() == [2, 3]


def test_another_module_is_written(device):
    lru = lru_of(1)
    old = lru.create(0, momentum)
    old(torch.ones(3, 4)).sum().backward()
    lru.optimizer(0).step()
    kept = [lru.optimizer(0).state[p]["momentum_buffer"].clone() for p in old.parameters()]
    lru.create(1, None)
    module = Net()
    lru.write(0, module)
    assert lru.read(0) is module and lru.particles() == [0]
    optimizer = lru.optimizer(0)
    assert list(map(id, optimizer.param_groups[0]["params"])) == list(map(id, module.parameters()))
    assert all(torch.equal(optimizer.state[p]["momentum_buffer"], k) for p, k in zip(module.parameters(), kept, strict=True))
    before = [p.clone() for p in module.parameters()]
    (module(torch.randn(9, 4)) ** 3).sum().backward()
    optimizer.step()
    assert not any(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    with pytest.raises(stepvan.InvalidError, match="module: other parameters"):
        lru.write(0, Net(5))
    with pytest.raises(stepvan.InvalidError, match="module is 3"):
        lru.write(0, 3)


def test_particles_are_saved(device, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = cache_of(1)
    for pid in range(2):
        cache.create(pid, None)
        cache.save_to_disk(pid)
    cache.save_to_disk(0, tmp_path / "deep" / "folder")
    assert sorted(p.name for p in (tmp_path / "particles").iterdir()) == ["device0_particle0.pth", "device0_particle1.pth"]
    for path in (tmp_path / "particles", tmp_path / "deep" / "folder"):
        state = torch.load(path / "device0_particle0.pth")
        want = cache.try_read(0).state_dict()
        assert list(state) == list(want) and all(torch.equal(state[k], want[k]) for k in want)
        assert all(v.device.type == "cpu" for v in state.values())


def test_saving_where_there_is_no_room_keeps_the_old_file(tmp_path):
    cache = cache_of(1, Net, (64,))
    cache.create(0, None)
    cache.save_to_disk(0, tmp_path)
    (file,) = tmp_path.iterdir()
    before = file.read_bytes()
    torch.nn.init.zeros_(cache.try_read(0).first.weight)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"save: particle 0: .*device0_particle0.pth cannot be written \(File too large\)") as caught:
            cache.save_to_disk(0, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == [file] and file.read_bytes() == before
    (tmp_path / "in the way").write_text("")
    with pytest.raises(OSError, match="cannot be written"):
        cache.save_to_disk(0, tmp_path / "in the way")


def test_any_thread_may_use_a_cache(monkeypatch):
    simulated_device.install(monkeypatch)
    cache = cache_of(2)
    for pid in range(4):
        cache.create(pid, momentum)
    failures = []

    def use(pid):
        try:
            for _ in range(50):
                module = None
                while module is None:
                    module = cache.try_read(pid, pin=True)
                module(torch.ones(3, 4)).sum().backward()
                cache.optimizer(pid).step()
                assert all(torch.isfinite(p).all() for p in module.parameters())
                cache.unpin(pid)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(pid,)) for pid in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == [] and not any(t.is_alive() for t in threads)


def test_files_are_written_beside(tmp_path, monkeypatch):
    """A program that reads the file while it is written gets the old one."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    seen = []
    monkeypatch.setattr(context_switch.os, "fsync", lambda _: seen.append(path.read_bytes()))
    context_switch.write_file(path, b"new", "particle 0")
    assert seen == [b"old"] and path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]
