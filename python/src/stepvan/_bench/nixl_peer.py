"""The programs of ``stepvan bench --peer nixl``: a worker and a server that exchange with agents of NIXL alone.

NIXL is imported only for a measurement. Each way is a write into the memory of the other and its notification, prepared
once; both sides poll. There is no progress thread, which would take a core from them. Error handling of UCX is off
because it keeps UCX from using shared memory.
"""

import importlib
import os
import signal
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from stepvan._bench.spec import Meter, Spec, answer_to, check_answer, pattern
from stepvan._bench.work import Asker, Words

# UCX_TLS for each van: what UCX may use.
TRANSPORTS = {"shm": "shm,self", "tcp": "tcp", "rdma": "rc"}

# Seconds: between two checks that exchanges make progress, and for the end of the process.
PATIENCE = 60

INSTALL = "pip install --no-deps nixl-cu12==1.5.1 nixl==1.5.1 numpy"


def load() -> Any:
    """NIXL's module for Python. Without it this process ends, and says how to install it."""
    try:
        return importlib.import_module("nixl._api")
    except ImportError as error:
        raise SystemExit(f"{sys.executable}: --peer nixl needs NIXL: {INSTALL} ({error})") from None


class NixlPeer:
    """One agent, memory for both ways, and the transfer to the other. One thread.

    The two find each other by files in ``folder``: the server has written its own before the worker is prepared, the worker its own
    before the server is told of the first exchange.
    """

    def __init__(self, role: str, folder: Path, spec: Spec) -> None:
        os.environ["UCX_TLS"] = TRANSPORTS[spec.van]
        nixl = load()
        self._spec, self._works = spec, role == "worker"
        self._other, self._folder = "server" if self._works else "worker", folder
        self._agent = nixl.nixl_agent(role, nixl.nixl_agent_config(enable_prog_thread=False, backends=[]))
        self._agent.create_backend("UCX", {"ucx_error_handling_mode": "none"})
        self._memory = np.zeros(spec.push + spec.pull, np.uint8)
        self._pushed, self._pulled = self._memory[: spec.push], self._memory[spec.push :]
        self._agent.register_memory([(self._memory.ctypes.data, self._memory.nbytes, 0, "")], "DRAM", backends=["UCX"])
        card = self._memory.ctypes.data.to_bytes(8, "little") + self._agent.get_agent_metadata()
        (folder / role).write_bytes(card)
        self._transfer: Any = None
        if self._works:
            self._connect()
        self._asker = Asker(spec.work, self._pushed, [self._pulled]) if spec.work else None
        self.times = array("q")
        self._seed = 0
        self._done, self._seen = 0, -1

    def _connect(self) -> None:
        card = (self._folder / self._other).read_bytes()
        self._agent.add_remote_agent(card[8:])
        here, there = self._memory.ctypes.data, int.from_bytes(card[:8], "little")
        push, pull = self._spec.push, self._spec.pull
        if self._works:
            source, destination, size = here, there, push
        else:
            source, destination, size = here if self._spec.returns_pushes else here + push, there + push, pull
        own = self._agent.get_xfer_descs([(source, size, 0)], "DRAM")
        far = self._agent.get_xfer_descs([(destination, size, 0)], "DRAM")
        self._transfer = self._agent.initialize_xfer("WRITE", own, far, self._other, b"x", backends=["UCX"])

    def measure(self, count: int) -> dict[str, Any]:
        """Exchanges ``count`` times. The worker keeps how long each took in ``times``."""
        with self._watched():
            meter = Meter()
            if self._works:
                self._exchange(count, self._asker)
            else:
                self._serve(count, self._working_answer() if self._spec.work else None)
            return meter.read()

    def check(self, count: int) -> None:
        """Exchanges bytes of its own, and checks the answer."""
        with self._watched():
            if not self._works:
                return self._serve(count, None if self._spec.returns_pushes else self._answer)
            for _ in range(count):
                self._seed = (self._seed + 1) & 0xFF
                self._pushed[:] = pattern(self._seed, self._spec.push)
                self._pulled[:] = 0
                self._exchange(1, None)
                check_answer(self._pulled, self._pushed, self._spec, 0)

    def stop(self) -> None:
        """Leaves the other. Python code cannot end a wait within UCX, so a timer ends the process."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        self._agent.release_xfer_handle(self._transfer)
        self._agent.remove_remote_agent(self._other)

    def _answer(self) -> None:
        self._pulled[:] = answer_to(self._pushed, self._spec.pull, self._spec.mark(0))

    def _working_answer(self) -> Callable[[], None]:
        work = self._spec.work
        pushed, pulled = (Words(memory, work.fresh) for memory in (self._pushed, self._pulled))
        return lambda: work.answer(pushed, pulled)

    def _exchange(self, count: int, asker: Asker | None) -> None:
        """With an asker also its work. The times are without that for which the server computes."""
        transfer, state_of, notified, handle, other = self._calls()
        self.times = times = array("q", bytes(8 * count))
        thinks = asker.draw(count) if asker else None
        now = perf_counter_ns
        for self._done in range(count):
            began = now()
            if asker and thinks:
                asker.write(thinks[self._done])
            state = transfer(handle)
            while state == "PROC":
                state = state_of(handle)
            if state != "DONE":
                raise RuntimeError(f"a transfer of NIXL ended as {state}")
            while not notified().get(other):
                pass
            if asker and thinks:
                asker.read()
                began += thinks[self._done]
            times[self._done] = now() - began

    def _serve(self, count: int, answer: Callable[[], None] | None) -> None:
        transfer, state_of, notified, handle, other = self._calls()
        for self._done in range(count):
            while not notified().get(other):
                pass
            if answer:
                answer()
            state = transfer(handle)
            while state == "PROC":
                state = state_of(handle)
            if state != "DONE":
                raise RuntimeError(f"a transfer of NIXL ended as {state}")

    def _calls(self) -> tuple[Any, ...]:
        """The function that a loop calls, and its arguments."""
        if self._transfer is None:
            self._connect()
        return self._agent.transfer, self._agent.check_xfer_state, self._agent.get_new_notifs, self._transfer, self._other

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Ends the loops when no exchange has ended for long: neither NIXL nor UCX reports that the other is gone."""
        self._seen = -1
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE, PATIENCE)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _look(self, *_: Any) -> None:
        if self._done == self._seen:
            raise TimeoutError(f"no exchange with the {self._other} has ended for {PATIENCE} s")
        self._seen = self._done
