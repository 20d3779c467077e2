"""A device with streams that works later: nothing that is queued happens before a test says so.

It stands for torch.cuda, and keeps tensors in memory of the host. A stream does its work in order. The test decides
which stream continues, so seeds give the orders that a real device could take.
"""

import collections
import contextlib
import random
import threading

import torch


class OnDevice(torch.Tensor):
    """A tensor that says that the device holds it. A copy to it is queued to the current stream."""

    device = torch.device("cuda", 0)
    is_cpu = False
    simulation: "Simulation"

    def copy_(self, src, non_blocking=False):
        target = self.as_subclass(torch.Tensor)
        self.simulation.current().queue(lambda: target.copy_(src))
        return self

    def now(self):
        """What the memory holds, as a kernel would see it."""
        return self.as_subclass(torch.Tensor)


class Event:
    def __init__(self, enable_timing=False):
        self.timed, self.recorded, self.over = enable_timing, 0, 0

    def record(self, stream):
        self.recorded += 1
        number = self.recorded
        stream.queue(lambda: self.reach(number))

    def reach(self, number):
        self.over = max(self.over, number)

    def query(self):
        return self.over >= self.recorded


class Stream:
    def __init__(self, simulation):
        self.simulation, self.work = simulation, collections.deque()
        simulation.streams.append(self)

    def queue(self, work, ready=lambda: True):
        self.work.append((ready, work))

    def wait_event(self, event):
        number = event.recorded
        self.queue(lambda: None, lambda: event.over >= number)

    def wait_stream(self, other):
        self.wait_event(other.record_event())

    def record_event(self):
        event = Event()
        event.record(self)
        return event

    def synchronize(self):
        while self.work:
            self.simulation.step()


class Simulation:
    """What the backends use of torch.cuda, and ``step``, which does one piece of queued work."""

    class Error(int):
        pass

    def __init__(self, seed=0):
        self.rng = random.Random(seed)
        self.streams = []
        self.default = Stream(self)
        self.entered = threading.local()
        self.pinned, self.refuses = {}, set()
        self.Event = Event
        OnDevice.simulation = self

    def is_available(self):
        return True

    def cudart(self):
        return self

    def Stream(self, device=None):  # noqa: N802
        return Stream(self)

    def device(self, device):
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.entered.stream = self.current(), stream
        try:
            yield
        finally:
            self.entered.stream = before

    def current(self):
        return getattr(self.entered, "stream", self.default)

    def current_stream(self, device=None):
        return self.current()

    def step(self):
        """Does the first work of some stream that can continue. Returns whether there was one."""
        able = [s for s in self.streams if s.work and s.work[0][0]()]
        if not able:
            assert not any(s.work for s in self.streams), "the streams wait for each other"
            return False
        self.rng.choice(able).work.popleft()[1]()
        return True

    def cudaHostRegister(self, address, size, flags):  # noqa: N802
        if address in self.pinned or address in self.refuses:
            return self.Error(712)
        self.pinned[address] = size
        return self.Error(0)

    def cudaHostUnregister(self, address):  # noqa: N802
        return self.Error(0 if self.pinned.pop(address, None) else 713)

    def tensor(self, *shape):
        return torch.zeros(shape).as_subclass(OnDevice)
