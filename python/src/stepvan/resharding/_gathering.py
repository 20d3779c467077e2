"""How ranks tell each other bytes: over a group of torch.distributed, over peers, or as the program says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stepvan._errors import InvalidError

dist: Any = torch.distributed  # some versions have no types

AllGather = Callable[[bytes], list[bytes]]


class Gathering:
    """The ranks that plan together.

    rank: the number of this one, by which services know it. size: how many ranks there are, or 0 if that is not known.
    """

    def __init__(self, rank: int, size: int, all_gather: AllGather) -> None:
        self.rank, self.size, self.all_gather = rank, size, all_gather


def gathering(group: Any = None, all_gather: AllGather | None = None, rank: int | None = None) -> Gathering:
    """The ranks of a group. A function that gathers the bytes of all ranks stands for a group, with this one's rank."""
    if all_gather is not None:
        if rank is None or group is not None:
            raise InvalidError(f"reshard: all_gather needs the rank of this process, and no group (got rank {rank} and group {group}): give rank=")
        return Gathering(rank, 0, all_gather)
    if group is not None and hasattr(group, "all_gather"):
        return _of_peers(group)
    if not dist.is_available() or (group is None and not dist.is_initialized()):
        raise InvalidError("reshard: there is no group: initialize torch.distributed, or give group=, or all_gather= with rank=")
    own = dist.group.WORLD if group is None else group
    return Gathering(own.rank(), own.size(), lambda mine: _over_torch(own, mine))


def _of_peers(group: Any) -> Gathering:
    """A group of ``node.peer``. It knows ranks by the numbers of the peers."""
    return Gathering(group.ranks[group.index], max(group.ranks) + 1, group.all_gather)


def _over_torch(group: Any, mine: bytes) -> list[bytes]:
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend(group) == "nccl" else torch.device("cpu")
    size = torch.tensor([len(mine)], dtype=torch.int64, device=device)
    sizes = [torch.zeros_like(size) for _ in range(group.size())]
    dist.all_gather(sizes, size, group=group)
    lengths = [int(one) for one in sizes]
    padded = torch.zeros(max(lengths), dtype=torch.uint8, device=device)
    padded[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8) if mine else padded[:0]
    all_padded = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(all_padded, padded, group=group)
    return [one[:length].cpu().numpy().tobytes() for one, length in zip(all_padded, lengths, strict=True)]


_FINE, _FAILED = b"\x00", b"\x01"


def gather_checked(ranks: Gathering, make: Callable[[], bytes]) -> list[bytes]:
    """Gathers what each rank makes. Where one of them fails, all of them get its error, and none waits for another."""
    error: Exception | None = None
    try:
        mine = _FINE + make()
    except Exception as failed:
        error, mine = failed, _FAILED + f"{ranks.rank}: {failed}".encode()
    gathered = ranks.all_gather(mine)
    if error is not None:
        raise error
    for one in gathered:
        if one[:1] == _FAILED:
            raise InvalidError(f"reshard: another rank cannot take part: rank {one[1:].decode(errors='replace')}")
        if one[:1] != _FINE:
            raise InvalidError(f"reshard: what a rank has sent is not its part (got {one[:8]!r}...): use the same version of stepvan at all ranks")
    return [one[1:] for one in gathered]
