"""The versions of the weights that a module has."""

from __future__ import annotations

import torch

from stepvan._errors import InvalidError

_ATTRIBUTE = "_stepvan_versions"  # (the version that is whole or 0, the highest that was begun)


def _of(module: torch.nn.Module | None) -> tuple[int, int]:
    found: tuple[int, int] = (0, 0) if module is None else module.__dict__.get(_ATTRIBUTE, (0, 0))
    return found


def version_of(module: torch.nn.Module) -> int:
    """The version of the weights that a module has received. It is 0 while they are written, and after a failure."""
    return _of(module)[0]


class Versions:
    """The versions of one run: that of the source, and that of the destination.

    offered: the version of this run, or 0 at a rank that only receives and takes what comes.
    """

    def __init__(self, src: torch.nn.Module | None, dst: torch.nn.Module | None, version: int | None) -> None:
        self._modules = [module for module in (src, dst) if module is not None]
        self._dst = dst
        self._last = max((_of(module)[1] for module in self._modules), default=0)
        if version is not None and (not isinstance(version, int) or version < 1):
            raise InvalidError(f"reshard: version is wrong (got {version!r}, want 1 or more): count the steps of the trainer")
        if version is not None and version < self._last:
            raise InvalidError(f"reshard: version falls (got {version}, want at least {self._last}): give the version of these weights")
        self.offered = version or (self._last + 1 if src is not None else 0)
        self._run = self.offered or self._last + 1
        self._whole = _of(dst)[0]

    def begin(self, atomic: bool) -> None:
        """The first byte may come."""
        for module in self._modules:
            whole = _of(module)[0] if atomic or module is not self._dst else 0
            module.__dict__[_ATTRIBUTE] = (whole, max(_of(module)[1], self.offered))

    def end(self, landed: int) -> None:
        """All is in place. landed: the version that came with the elements, or 0 if nothing says so."""
        run = self._run if self.offered else max(landed, 0) or self._run
        for module in self._modules:
            whole = run if module is self._dst else _of(module)[0]
            module.__dict__[_ATTRIBUTE] = (whole, max(run, _of(module)[1]))
