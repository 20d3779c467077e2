"""The sentences that ship with the Go example."""

from __future__ import annotations

from pathlib import Path

SHIPPED = Path(__file__).parents[2] / "afd" / "testdata" / "sentences.txt"


def sentences(path: str | Path = SHIPPED) -> list[str]:
    """One sentence a line; empty lines and those that begin with # are left out."""
    lines = (line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def share(items: list, rank: int, workers: int) -> list:
    """The part of a worker: all workers' together are all items, in order of rank, as even as they go."""
    return items[len(items) * rank // workers : len(items) * (rank + 1) // workers]
