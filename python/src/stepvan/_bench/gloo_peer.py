"""The processes of ``stepvan bench --peer gloo``: resharding by torch.distributed, as Megatron-core does it.

A source makes each box contiguous and sends it. A destination receives each box into a buffer of its own, and then writes
it back into the parameter. All of a run goes through one ``batch_isend_irecv``. There is no barrier after it.
"""

import importlib
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from stepvan._bench.refit import Move, Refit, Share

# Seconds that a process waits for another one.
PATIENCE = 60


def load() -> Any:
    """Torch with gloo. Without it this process ends, and says what is missing."""
    try:
        torch = importlib.import_module("torch")
        distributed = importlib.import_module("torch.distributed")
    except ImportError as error:
        raise SystemExit(f"{sys.executable}: --peer gloo needs torch: pip install torch ({error})") from None
    if not distributed.is_available() or not distributed.is_gloo_available():
        raise SystemExit(f"{sys.executable}: --peer gloo needs a torch with gloo (got {torch.__version__}): pip install torch")
    return torch


class GlooPeer(Refit):
    """One process."""

    def __init__(self, rank: int, world: int, folder: Path, share: Share) -> None:
        self._torch = torch = load()
        torch.set_num_threads(1)  # as torchrun has it
        self._world, self._folder, self._ready = world, folder, False
        self._model = torch.zeros(max(share.size // 2, 1), dtype=torch.bfloat16)
        super().__init__(rank, share, self._model.view(torch.int16).numpy().view("uint16"))
        self._views = [self._box(m) for m in share.moves]

    def _box(self, move: Move) -> Any:
        return self._model.as_strided(move.extent, move.mine.strides, move.mine.at // 2)

    def _meet(self) -> None:
        if self._ready:
            return
        self._ready = True
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        store = f"file://{self._folder / 'gloo'}"
        self._torch.distributed.init_process_group(
            "gloo", init_method=store, rank=self.rank, world_size=self._world, timeout=timedelta(seconds=PATIENCE)
        )

    def run_once(self) -> None:
        self._meet()
        d = self._torch.distributed
        work, back = [], []
        for move, view in zip(self.share.moves, self._views, strict=True):
            if self.share.receives:
                buffer = self._torch.empty(move.extent, dtype=view.dtype)
                work.append(d.P2POp(d.irecv, buffer, move.peer))
                back.append((view, buffer))
            else:
                work.append(d.P2POp(d.isend, view.contiguous(), move.peer))
        if work:
            for request in d.batch_isend_irecv(work):
                request.wait()
        for view, buffer in back:
            view.copy_(buffer)

    def stop(self) -> None:
        if self._ready:
            self._torch.distributed.destroy_process_group()
