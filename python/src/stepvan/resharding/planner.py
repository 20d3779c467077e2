"""Plans of resharding: each rank makes its own from what all ranks tell, or a controller makes those of all ranks."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from stepvan import _core
from stepvan._errors import InvalidError
from stepvan.resharding import _planfile, _rosters
from stepvan.resharding._gathering import AllGather, Gathering, gather_checked, gathering
from stepvan.resharding.utils import ParameterMetadata, ReshardPlan, module_metadata

logger = logging.getLogger(__name__)

_OPTIONS = struct.Struct("<Q?")  # what all ranks must plan with: bytes of a batch, and whether types may differ

Roster = tuple[list[ParameterMetadata], list[ParameterMetadata]]


def make_roster(
    src_module: torch.nn.Module | None,
    dst_module: torch.nn.Module | None,
    rank: int,
    num_experts: int | None = None,
    src_rank_offset: int = 0,
    dst_rank_offset: int = 0,
) -> bytes:
    """What a rank tells the planner: the tensors of the module that it sends, and of the one that it receives into."""
    lists: dict[tuple[int, ...], list[int]] = {}
    sides = [
        [_rosters.of_metadata(meta) for meta in module_metadata(module, rank, num_experts, offset, lists)]
        for module, offset in ((src_module, src_rank_offset), (dst_module, dst_rank_offset))
    ]
    return _rosters.encode(rank, *sides)


def plan_rosters(
    rosters: Iterable[bytes], ranks: Iterable[int], *, world: int = 0, batch_bytes: int = 0, cast: bool = False
) -> list[bytes]:
    """Plans for some ranks from the rosters of all ranks, as a controller does. It needs no group and no module.

    The results are for ``ReshardPlan.from_bytes`` at each rank. world: how many ranks there are, or 0. batch_bytes:
    how many bytes a rank sends, and how many it receives, in one batch; 0 puts all into one. cast: whether types of
    parameters may differ, as those of persistent buffers may.
    """
    return _core.reshard_plan(list(rosters), world, batch_bytes, cast, list(ranks))


def index_metadata_rosters(
    gathered_pairs: Sequence[Roster],
) -> tuple[dict[int, dict[str, ParameterMetadata]], dict[str, list[ParameterMetadata]]]:
    """Sorts what ranks tell: destinations by rank and resolved name, sources by resolved name.

    The pair at index i is that of rank i: its sources, and its destinations.
    """
    destinations: dict[int, dict[str, ParameterMetadata]] = {}
    sources: dict[str, list[ParameterMetadata]] = {}
    for rank, (src, dst) in enumerate(gathered_pairs):
        wanted = destinations.setdefault(rank, {})
        for meta in dst:
            if _resolved(meta) in wanted:
                raise InvalidError(f"reshard: rank {rank} has parameter {_resolved(meta)!r} twice: give each tensor a name of its own")
            wanted[_resolved(meta)] = meta
        for meta in src:
            sources.setdefault(_resolved(meta), []).append(meta)
    return destinations, sources


def _resolved(meta: ParameterMetadata) -> str:
    return meta.name if meta.resolved_name is None else meta.resolved_name


def build_plan_from_rosters(
    dst_param_metadata_by_rank: dict[int, dict[str, ParameterMetadata]],
    src_param_metadata: dict[str, list[ParameterMetadata]],
    my_global_rank: int,
    *,
    batch_bytes: int = 0,
    cast: bool = False,
) -> ReshardPlan:
    """The plan of one rank from what all ranks tell. The order of the sources of a name has no meaning."""
    sources: dict[int, list[ParameterMetadata]] = {}
    for metas in src_param_metadata.values():
        for meta in metas:
            sources.setdefault(meta.owner_rank, []).append(meta)
    rosters = [
        _rosters.encode(
            rank,
            [_rosters.of_metadata(meta) for meta in sources.get(rank, ())],
            [_rosters.of_metadata(meta) for meta in dst_param_metadata_by_rank.get(rank, {}).values()],
        )
        for rank in sorted(sources.keys() | dst_param_metadata_by_rank.keys())
    ]
    return _planfile.decode(plan_rosters(rosters, [my_global_rank], batch_bytes=batch_bytes, cast=cast)[0])


def _gather_rosters(ranks: Gathering, roster: Any, batch_bytes: int, cast: bool) -> list[bytes]:
    """The rosters of all ranks, which plan with the same options."""
    own = _OPTIONS.pack(batch_bytes, cast)
    gathered = gather_checked(ranks, lambda: own + roster())
    for one in gathered:
        if one[: _OPTIONS.size] != own:
            theirs = _OPTIONS.unpack(one[: _OPTIONS.size])
            raise InvalidError(
                f"reshard: ranks plan in different ways (got batch_bytes={batch_bytes} and cast={cast} here, and {theirs[0]} and "
                f"{theirs[1]} at another): give the same at all ranks"
            )
    return [one[_OPTIONS.size :] for one in gathered]


def build_local_reshard_plan(
    src_module: torch.nn.Module | None,
    dst_module: torch.nn.Module | None,
    num_experts: int | None = None,
    group: Any = None,
    src_rank_offset: int = 0,
    dst_rank_offset: int = 0,
    *,
    batch_bytes: int = 0,
    cast: bool = False,
    all_gather: AllGather | None = None,
    rank: int | None = None,
) -> ReshardPlan:
    """Makes the plan of this rank. All ranks call it at the same time: they tell each other what they have.

    A module is None at a rank that only receives, or only sends; both are None at an idle rank. group is one of
    torch.distributed or of ``node.peer``. all_gather stands for a group: it takes bytes, and returns those of all
    ranks; rank is then the number of this one. The other options are those of ``plan_rosters``.
    """
    ranks = gathering(group, all_gather, rank)
    rosters = _gather_rosters(
        ranks, lambda: make_roster(src_module, dst_module, ranks.rank, num_experts, src_rank_offset, dst_rank_offset), batch_bytes, cast
    )
    return _own_plan(ranks, plan_rosters(rosters, [ranks.rank], world=ranks.size, batch_bytes=batch_bytes, cast=cast)[0])


def _own_plan(ranks: Gathering, data: bytes) -> ReshardPlan:
    plan = _planfile.decode(data)
    logger.info("reshard: rank %d has planned %d sends and %d receives", ranks.rank, len(plan.send_ops), len(plan.recv_ops))
    return plan


def build_centralized_reshard_plan(
    src_module: torch.nn.Module | None,
    dst_module: torch.nn.Module | None,
    num_experts: int | None = None,
    group: Any = None,
    src_rank_offset: int = 0,
    dst_rank_offset: int = 0,
    *,
    batch_bytes: int = 0,
    cast: bool = False,
    all_gather: AllGather | None = None,
    rank: int | None = None,
) -> ReshardPlan:
    """The same as ``build_local_reshard_plan``, but one rank makes the plans of all, and sends each its own.

    It is the first of the group that plans. So the others need no time for it.
    """
    ranks = gathering(group, all_gather, rank)
    rosters = _gather_rosters(
        ranks, lambda: make_roster(src_module, dst_module, ranks.rank, num_experts, src_rank_offset, dst_rank_offset), batch_bytes, cast
    )
    members = [_rank_of(roster) for roster in rosters]

    def plans() -> bytes:
        if ranks.rank != members[0]:
            return b""
        made = plan_rosters(rosters, members, world=ranks.size, batch_bytes=batch_bytes, cast=cast)
        return b"".join(struct.pack("<Q", len(one)) + one for one in made)

    blob = gather_checked(ranks, plans)[0]
    at = 0
    for member in members:
        (size,) = struct.unpack_from("<Q", blob, at)
        at += 8 + size
        if member == ranks.rank:
            data = blob[at - size : at]
            _core.reshard_check(data)
            return _own_plan(ranks, data)
    raise InvalidError(f"reshard: this rank is not one of those that plan (got {ranks.rank}, want one of {members}): give the rank of this process")


def _rank_of(roster: bytes) -> int:
    """The rank that has written a roster."""
    return _planfile._Reader(roster, 2).number()
