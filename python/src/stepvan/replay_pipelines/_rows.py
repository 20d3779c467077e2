"""Rows, and which of them a batch has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch

from stepvan._errors import InvalidError
from stepvan.replay_pipelines._wire import SPLITMIX, TORCH

__all__ = ["Rows", "pick", "picks_code"]


class Rows:
    """What a row holds: its fields, one after the other.

    fields: the columns of each field by name. None stands for one column without a dimension of its own.
    """

    def __init__(self, fields: Mapping[str, int | None], dtype: torch.dtype) -> None:
        if not isinstance(fields, Mapping) or not fields:
            raise InvalidError(f"replay: fields: a row has no field (got {fields!r}): give the columns of each field by name")
        for name, width in fields.items():
            if width is not None and (not isinstance(width, int) or width < 1):
                raise InvalidError(f"replay: field {name!r}: not a number of columns (got {width!r}, want 1 or more, or None)")
        if not isinstance(dtype, torch.dtype):
            raise InvalidError(f"replay: dtype: not a type of elements (got {dtype!r}, want a torch.dtype)")
        self.fields, self.dtype = dict(fields), dtype
        self.width = sum(width or 1 for width in fields.values())

    def views(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """The columns of each field."""
        views, at = {}, 0
        for name, width in self.fields.items():
            views[name] = rows[:, at] if width is None else rows[:, at : at + width]
            at += width or 1
        return views

    def join(self, columns: Mapping[str, torch.Tensor | Iterable[float]]) -> torch.Tensor:
        """Rows from the columns of each field."""
        if columns.keys() != self.fields.keys():
            raise InvalidError(f"replay: rows: other fields than the buffer's (got {', '.join(columns)}, want {', '.join(self.fields)})")
        parts = {name: torch.as_tensor(column, dtype=self.dtype) for name, column in columns.items()}
        count = next(iter(parts.values())).shape[:1]
        rows = torch.empty((*count, self.width), dtype=self.dtype)
        for name, view in self.views(rows).items():
            if parts[name].shape != view.shape:
                raise InvalidError(f"replay: field {name!r}: another shape (got {list(parts[name].shape)}, want {list(view.shape)})")
            view.copy_(parts[name])
        return rows


_GOLDEN = 0x9E3779B97F4A7C15


def pick(code: int, seed: int, size: int, count: int, first: int, rows: int) -> torch.Tensor:
    """The places in a buffer of size rows from row first on, of a batch with count rows.

    TORCH: as ``torch.randint(0, size, (count,), generator=...)`` picks on the CPU. SPLITMIX: as ``replay.Pick`` in Go.
    """
    if code == TORCH:
        generator = torch.Generator()
        generator.manual_seed(seed)
        share: torch.Tensor = torch.randint(0, size, (count,), generator=generator)[first : first + rows]
        return share
    with np.errstate(over="ignore"):
        x = np.arange(first + 1, first + rows + 1, dtype=np.uint64) * np.uint64(_GOLDEN) + np.uint64(seed)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
        places = (x >> np.uint64(32)) * np.uint64(size) >> np.uint64(32)
    made: torch.Tensor = torch.from_numpy(places.astype(np.int64))
    return made


def picks_code(picks: str) -> int:
    codes = {"torch": TORCH, "splitmix": SPLITMIX}
    if picks not in codes:
        raise InvalidError(f"replay: picks: no such generator (got {picks!r}, want 'torch' or 'splitmix')")
    return codes[picks]
