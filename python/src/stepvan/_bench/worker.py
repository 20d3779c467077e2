"""The program of a worker."""

from array import array
from time import perf_counter_ns, sleep
from typing import Any

import numpy as np

import stepvan
from stepvan._bench.spec import Meter, Spec, check_answer, pattern, pull_key, push_key
from stepvan._bench.work import Asker

# Seconds that a worker of workload idle lets pass as one of its exchanges.
IDLE_SECONDS = 1


class Slot:
    """The memory of one exchange at a time: a push to each server and a pull from each."""

    def __init__(self, worker: "Worker", number: int, push: int, pull: int) -> None:
        rank = worker.node.worker_rank
        self.push = [worker.tensor(push)] if push > 0 else []
        self.push_keys = [push_key(rank, number)] if push > 0 else []
        self.pull = [worker.tensor(pull) for _ in worker.servers]
        self.pull_keys = [pull_key(rank, number) for _ in worker.servers]


class Worker:
    """Pushes and waits, again and again. One thread."""

    def __init__(self, node: stepvan.Node, spec: Spec, dtype: Any) -> None:
        assert node.worker is not None
        self.node, self.spec, self._dtype = node, spec, dtype
        self.servers = [peer.rank for peer in node.peers]
        self._push_pull = node.worker.push_pull
        self._register = node.worker.register
        self._kept: list[stepvan.Registration] = []
        self._slots = [Slot(self, i, spec.push, spec.pull) for i in range(spec.inflight)]
        self._end = Slot(self, spec.end_slot, 0, 1)
        self._askers = [Asker(spec.work, s.push[0], s.pull) for s in self._slots] if spec.work else []
        self.times = array("q")
        self._seed = 0

    def tensor(self, size: int) -> Any:
        """Bytes in shared memory, registered."""
        tensor = self.node.zeros(size, self._dtype)
        self._kept.append(self._register(tensor))
        return tensor

    def measure(self, count: int) -> dict[str, Any]:
        """Exchanges ``count`` times, and keeps how long each took in ``times``."""
        self.times = array("q", bytes(8 * count))
        meter = Meter()
        if self.spec.workload == "batch":
            self._feed(count)
        elif self.spec.workload == "idle":
            self._idle(count)
        elif self._askers:
            self._working(count)
        elif len(self._slots) == 1:
            self._one_by_one(count)
        else:
            self._several(count)
        reply = meter.read()
        self._finish_round()
        return reply

    def check(self, count: int) -> None:
        """Exchanges bytes of its own ``count`` times per slot, and checks the answers."""
        for _ in range(count):
            for slot in self._slots:
                self._check(slot)
        self._finish_round()

    def stop(self) -> None:
        """Stops the node."""
        self.node.stop()

    def _one_by_one(self, count: int) -> None:
        push_pull, times, now, slot = self._push_pull, self.times, perf_counter_ns, self._slots[0]
        push, push_keys, pull, pull_keys = slot.push, slot.push_keys, slot.pull, slot.pull_keys
        for i in range(count):
            began = now()
            push_pull(push, push_keys, pull, pull_keys).wait()
            times[i] = now() - began

    def _working(self, count: int) -> None:
        """One by one, with the work of a program. The times are without that for which the server computes."""
        push_pull, times, now, slot, asker = self._push_pull, self.times, perf_counter_ns, self._slots[0], self._askers[0]
        push, push_keys, pull, pull_keys = slot.push, slot.push_keys, slot.pull, slot.pull_keys
        for i, think in enumerate(asker.draw(count)):
            began = now()
            asker.write(think)
            push_pull(push, push_keys, pull, pull_keys).wait()
            asker.read()
            times[i] = now() - began - think

    def _idle(self, count: int) -> None:
        for i in range(count):
            began = perf_counter_ns()
            sleep(IDLE_SECONDS)
            self.times[i] = perf_counter_ns() - began

    def _several(self, count: int) -> None:
        slots, times, now = self._slots, self.times, perf_counter_ns
        flight: list[tuple[int, stepvan.Handle]] = [(0, None)] * len(slots)  # type: ignore[list-item]
        begun = 0
        for done in range(count):
            while begun < count and begun - done < len(slots):
                i = begun % len(slots)
                slot, began = slots[i], now()
                try:
                    flight[i] = began, self._push_pull(slot.push, slot.push_keys, slot.pull, slot.pull_keys)
                except stepvan.WouldBlockError:
                    if begun == done:
                        raise
                    break  # an exchange in flight will make room
                begun += 1
            began, handle = flight[done % len(slots)]
            handle.wait()
            times[done] = now() - began

    def _feed(self, count: int) -> None:
        """Sends the requests of up to ``inflight`` batches before each barrier."""
        for first in range(0, count, len(self._slots)):
            slots = self._slots[: count - first]
            handles = [self._push_pull(s.push, s.push_keys, s.pull, s.pull_keys) for s in slots]
            self.node.barrier()  # all have pushed
            self.node.barrier()  # all are answered
            for handle in handles:
                handle.wait()

    def _finish_round(self) -> None:
        """Tells the servers that the round has ended."""
        end = self._end
        self._push_pull(end.push, end.push_keys, end.pull, end.pull_keys).wait()

    def _check(self, slot: Slot) -> None:
        self._seed = (self._seed + 1) & 0xFF
        pushed = np.asarray(slot.push[0])
        pushed[:] = pattern(self._seed, self.spec.push)
        pulled = [np.asarray(tensor) for tensor in slot.pull]
        for answer in pulled:
            answer[:] = 0
        self._push_pull(slot.push, slot.push_keys, slot.pull, slot.pull_keys).wait()
        for server, answer in zip(self.servers, pulled, strict=True):
            check_answer(answer, pushed, self.spec, server)
