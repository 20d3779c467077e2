"""The processes of ``stepvan bench --workload refit --peer nixl``: resharding by agents of NIXL alone.

NIXL has no layouts, so a source lists each row of each box. For each destination it has one prepared write of all rows,
with a notification. A destination tells its sources when it has all, and they begin the next run then. While a process
waits it polls, and yields its core between two looks: there are more processes than cores.
"""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from stepvan._bench.nixl_peer import PATIENCE, TRANSPORTS, load
from stepvan._bench.refit import Move, Refit, Share

_ADDRESS = 8  # bytes of a card before the metadata of the agent


class NixlRefit(Refit):
    """One process. They find each other by files in ``folder``, which all have written before the first check."""

    def __init__(self, rank: int, folder: Path, van: str, share: Share) -> None:
        os.environ["UCX_TLS"] = TRANSPORTS[van]
        nixl = load()
        self._folder = folder
        self._agent = nixl.nixl_agent(_name(rank), nixl.nixl_agent_config(enable_prog_thread=False, backends=[]))
        self._agent.create_backend("UCX", {"ucx_error_handling_mode": "none"})
        self._model = np.zeros(max(share.size // 2, 1), np.uint16)
        self._agent.register_memory([(self._model.ctypes.data, self._model.nbytes, 0, "")], "DRAM", backends=["UCX"])
        card = self._model.ctypes.data.to_bytes(_ADDRESS, "little") + self._agent.get_agent_metadata()
        (folder / _name(rank)).write_bytes(card)
        super().__init__(rank, share, self._model)
        self._transfers: list[Any] = []
        self._met, self._begun = False, False
        self._notes: Counter[str] = Counter()

    def _meet(self) -> None:
        if self._met:
            return
        self._met = True
        for peer in self.share.peers():
            card = (self._folder / _name(peer)).read_bytes()
            self._agent.add_remote_agent(card[_ADDRESS:])
            if self.share.receives:
                continue
            there = int.from_bytes(card[:_ADDRESS], "little")
            moves = [m for m in self.share.moves if m.peer == peer]
            own = self._agent.get_xfer_descs(_rows(moves, self._model.ctypes.data, mine=True), "DRAM")
            far = self._agent.get_xfer_descs(_rows(moves, there, mine=False), "DRAM")
            self._transfers.append(self._agent.initialize_xfer("WRITE", own, far, _name(peer), b"x", backends=["UCX"]))

    def run_once(self) -> None:
        self._meet()
        names = [_name(p) for p in self.share.peers()]
        if self.share.receives:
            self._await(names)
            for name in names:
                self._agent.send_notif(name, b"x")
            return
        if self._begun:
            self._await(names)  # the destinations have all of the last run
        self._begun = True
        self._finish({t: self._agent.transfer(t) for t in self._transfers})

    def _await(self, names: list[str]) -> None:
        """Waits for a notification of each."""
        since = monotonic()
        while any(self._notes[name] == 0 for name in names):
            self._look(since)
        self._notes.subtract(names)

    def _finish(self, states: dict[Any, str]) -> None:
        """Waits for the end of all transfers."""
        since = monotonic()
        while waiting := [t for t, state in states.items() if state != "DONE"]:
            if any(states[t] != "PROC" for t in waiting):
                raise RuntimeError(f"a transfer of NIXL ended as {sorted(set(states.values()))}")
            self._look(since)
            states |= {t: self._agent.check_xfer_state(t) for t in waiting}

    def _look(self, since: float) -> None:
        """Takes notifications, which also has UCX make progress. Neither reports that a process is gone."""
        for name, notes in self._agent.get_new_notifs().items():
            self._notes[name] += len(notes)
        os.sched_yield()
        if monotonic() - since > PATIENCE:
            raise TimeoutError(f"nothing has come from the others for {PATIENCE} s")

    def stop(self) -> None:
        if self._met and not self.share.receives:
            self._await([_name(p) for p in self.share.peers()])
            for transfer in self._transfers:
                self._agent.release_xfer_handle(transfer)


def _name(rank: int) -> str:
    return f"peer-{rank}"


def _rows(moves: Iterable[Move], base: int, mine: bool) -> Any:
    """Address, length and device of each row. Rows that touch on both sides are one."""
    out = []
    for m in moves:
        side, row = (m.mine if mine else m.theirs), m.extent[-1] * 2
        count = m.extent[0] if len(m.extent) > 1 else 1
        steps = [s.strides[0] * 2 for s in (m.mine, m.theirs)] if count > 1 else [row, row]
        if steps == [row, row]:
            count, row = 1, count * row
        at = base + side.at + np.arange(count, dtype=np.uint64) * np.uint64(side.strides[0] * 2)
        out.append(np.stack([at, np.full(count, row, np.uint64), np.zeros(count, np.uint64)], axis=1))
    return np.concatenate(out)
