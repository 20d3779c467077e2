"""Boxes of elements that slices name, and whether they cover a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stepvan._errors import InvalidError

Box = tuple[tuple[int, int], ...]  # start and stop in each dimension


def box_of(what: str, slices: Sequence[slice], shape: Sequence[int]) -> Box:
    """The box of slices of a tensor. It refuses slices that leave the tensor, which torch would cut off."""
    if not isinstance(slices, tuple) or len(slices) != len(shape):
        raise InvalidError(f"reshard: {what}: its slices do not fit (got {slices} for shape {tuple(shape)}): give a tuple with a slice for each dimension")
    box = []
    for one, extent in zip(slices, shape, strict=True):
        start = 0 if one.start is None else one.start
        stop = extent if one.stop is None else one.stop
        if one.step not in (None, 1) or not 0 <= start <= stop <= extent:
            raise InvalidError(f"reshard: {what}: a slice leaves the tensor (got {one}, want a range within 0 to {extent}): make the plan anew at every rank")
        box.append((start, stop))
    return tuple(box)


def volume(box: Box) -> int:
    """How many elements a box has."""
    return math.prod(stop - start for start, stop in box)


def meet(a: Box, b: Box) -> bool:
    """Whether two boxes share an element."""
    return all(x[0] < y[1] and y[0] < x[1] for x, y in zip(a, b, strict=True)) and volume(a) > 0 and volume(b) > 0


class Coverage:
    """Which elements of a tensor have been written. Each is written once."""

    def __init__(self, what: str, shape: Sequence[int]) -> None:
        self._what, self._shape = what, tuple(shape)
        self._boxes: list[Box] = []
        self._left = math.prod(self._shape)

    def add(self, slices: Sequence[slice]) -> None:
        """Adds a box. It refuses one with an element that was written before."""
        box = box_of(self._what, slices, self._shape)
        for other in self._boxes:
            if meet(box, other):
                raise InvalidError(f"reshard: {self._what}: an element comes twice (got {box} and {other}): send each element once")
        self._boxes.append(box)
        self._left -= volume(box)

    @property
    def left(self) -> int:
        """How many elements are missing."""
        return self._left
