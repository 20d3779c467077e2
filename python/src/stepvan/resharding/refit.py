"""Refits: weights of one model into another, and state dictionaries of any layouts."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from stepvan._errors import InvalidError, cut
from stepvan._part import Part, Parts
from stepvan.resharding import _dtypes, _planfile, _rosters
from stepvan.resharding._gathering import gather_checked, gathering
from stepvan.resharding.copy_services.stepvan import StepvanCopyService
from stepvan.resharding.execution import Transfer, execute_reshard_plan
from stepvan.resharding.planner import build_local_reshard_plan, plan_rosters
from stepvan.resharding.transforms import ReshardTransform
from stepvan.resharding.utils import ReshardPlan


# ----------------------------------------------------------------------------------------------------------- models


class _Core(NamedTuple):
    """The modules of a rank within what wraps them, and how many experts the model has."""

    src: torch.nn.Module | None
    dst: torch.nn.Module | None
    experts: int | None


def _unwrap(what: str, model: Any) -> torch.nn.Module | None:
    """The module with the parameters: of a list the first, within wrappers such as DistributedDataParallel."""
    if isinstance(model, list | tuple):
        if len(model) != 1:
            raise InvalidError(f"refit: {what}: it has several parts (got {len(model)}, want 1): refit each part by itself")
        model = model[0]
    if model is None:
        return None
    while isinstance(model, torch.nn.Module) and getattr(model, "pg_collection", None) is None and isinstance(getattr(model, "module", None), torch.nn.Module):
        model = model.module
    if not isinstance(model, torch.nn.Module):
        raise InvalidError(f"refit: {what}: it is not a module of torch (got {cut(model)}): give a module, or None")
    return model


def _core(src_model: Any, target_model: Any) -> _Core:
    src, dst = _unwrap("src_model", src_model), _unwrap("target_model", target_model)
    experts = None
    for model in (src, dst):
        if model is not None and experts is None:
            experts = getattr(getattr(model, "config", None), "num_moe_experts", None)
    groups = getattr(src, "pg_collection", None)
    megatron = sys.modules.get("megatron.core.parallel_state")
    if megatron is not None and groups is not None and not isinstance(groups, dict) and getattr(groups, "dp", None) is None:
        groups.dp = megatron.get_data_parallel_group()
    return _Core(src, dst, experts)


class _Cached(NamedTuple):
    """A plan, and the modules that it was made for."""

    modules: tuple[weakref.ref[torch.nn.Module] | None, weakref.ref[torch.nn.Module] | None]
    plan: ReshardPlan


_plans: dict[tuple[Any, ...], _Cached] = {}
_lock = threading.Lock()


def clear_plan_cache() -> None:
    """Forgets the plans of earlier refits. All ranks do it, since a plan is made by all of them."""
    with _lock:
        _plans.clear()


def _plan(core: _Core, group: Any, offsets: tuple[int, int], pool: int, batch_bytes: int, cast: bool) -> ReshardPlan:
    """The plan of this rank. At its first use all ranks make it."""
    modules = (core.src, core.dst)
    # A pool is part of the key: a rank that only sends would else take the plan of the first pool for all.
    key = (*map(id, modules), id(group), *offsets, pool, batch_bytes, cast)
    with _lock:
        found = _plans.get(key)
        if found is not None and all((ref and ref()) is module for ref, module in zip(found.modules, modules, strict=True)):
            return found.plan
    plan = build_local_reshard_plan(*modules, core.experts, group, *offsets, batch_bytes=batch_bytes, cast=cast)
    src, dst = (None if module is None else weakref.ref(module) for module in modules)
    with _lock:
        _plans[key] = _Cached((src, dst), plan)
    return plan


def prepare_swap_model_weights(
    src_model: Any,
    target_model: Any,
    group: Any = None,
    src_rank_offset: int = 0,
    dst_rank_offset: int = 0,
    *,
    num_dst_pools: int = 1,
    dst_pool_index: int = 0,
    batch_bytes: int = 0,
    cast: bool = False,
) -> None:
    """Makes the plans that ``swap_model_weights`` uses, while nothing waits for it. All ranks call it alike."""
    _check_pools(num_dst_pools, dst_pool_index)
    for pool in range(num_dst_pools):
        core = _core(src_model, target_model if pool == dst_pool_index else None)
        _plan(core, group, (src_rank_offset, dst_rank_offset), pool, batch_bytes, cast)


def _check_pools(count: int, index: int) -> None:
    if count < 1 or not 0 <= index < count:
        raise InvalidError(f"refit: dst_pool_index is not one of the pools (got {index} of {count}): count pools from 0")


def swap_model_weights(
    src_model: Any,
    target_model: Any,
    refit_method: Any,
    group: Any = None,
    src_rank_offset: int = 0,
    dst_rank_offset: int = 0,
    transform: ReshardTransform | None = None,
    num_dst_pools: int = 1,
    dst_pool_index: int = 0,
    *,
    batch_bytes: int = 0,
    cast: bool = False,
    version: int | None = None,
    atomic: bool = False,
) -> None:
    """Brings the weights of src_model into target_model. All ranks call it alike.

    refit_method is a service: any object with ``submit_send``, ``submit_recv`` and ``run``. A rank has None for a model
    that it does not have. Offsets are added to the ranks of each side's groups. There may be several pools of
    destinations, which get the weights one after the other; this rank receives as a part of pool dst_pool_index. The
    other arguments are those of the planner and of ``execute_reshard_plan``.
    """
    _check_pools(num_dst_pools, dst_pool_index)
    if isinstance(refit_method, str):
        raise InvalidError(f"refit: refit_method: names of services are not known (got {refit_method!r}): give a service, such as StepvanCopyService(node)")
    for pool in range(num_dst_pools):
        reshard_model_weights(
            src_model,
            target_model if pool == dst_pool_index else None,
            refit_method,
            group,
            src_rank_offset,
            dst_rank_offset,
            transform,
            pool,
            batch_bytes=batch_bytes,
            cast=cast,
            version=version,
            atomic=atomic,
        )


def reshard_model_weights(
    src_model: Any,
    target_model: Any,
    service: Any,
    group: Any = None,
    src_rank_offset: int = 0,
    dst_rank_offset: int = 0,
    transform: ReshardTransform | None = None,
    pool_index: int = 0,
    *,
    batch_bytes: int = 0,
    cast: bool = False,
    version: int | None = None,
    atomic: bool = False,
) -> None:
    """Brings the weights into one pool of destinations: see ``swap_model_weights``."""
    core = _core(src_model, target_model)
    plan = _plan(core, group, (src_rank_offset, dst_rank_offset), pool_index, batch_bytes, cast)
    execute_reshard_plan(plan, core.src, core.dst, service, group, transform, version=version, atomic=atomic)


# ------------------------------------------------------------------------------------------------ state dictionaries


def _entry(name: str, value: Any, parts: Parts) -> tuple[_rosters.Entry, torch.Tensor] | None:
    """A tensor in a roster, and what this rank has of it. None: this rank has nothing of it."""
    part: bytes | None = None
    if isinstance(value, tuple):
        if len(value) != 2 or not isinstance(value[0], torch.Tensor) or not isinstance(value[1], Part):
            raise InvalidError(f"refit: tensor {name!r}: it has no part (got {cut(value)}): give a pair of a tensor and a stepvan.Part")
        value, part = value[0], value[1]._encoded
    elif hasattr(value, "placements") and hasattr(value, "_local_tensor"):  # a DTensor
        part = parts.of(name, value)
        value = value._local_tensor
        if part is None:
            return None
    if not isinstance(value, torch.Tensor):
        raise InvalidError(f"refit: tensor {name!r}: it is not a tensor of torch (got {cut(value)}): give a tensor, a DTensor, or a tensor with its Part")
    return _rosters.of_part(name, _dtypes.code(name, value.dtype), tuple(value.shape), part), value


class StatePlan:
    """A refit between state dictionaries, which runs as often as wanted. ``reshard_state_dicts`` makes it.

    version: of the destination. It is 0 while tensors are written, and after a failure.
    """

    def __init__(self, plan: ReshardPlan, service: StepvanCopyService, src: dict[str, torch.Tensor], dst: dict[str, torch.Tensor]) -> None:
        self.plan, self.version = plan, 0
        self._service, self._src, self._dst = service, src, dst
        self._last = 0

    def run(self, version: int | None = None) -> None:
        """Copies what the sources have into the destinations. All ranks call it alike. Versions never fall."""
        if version is not None and (not isinstance(version, int) or version < max(self._last, 1)):
            raise InvalidError(f"refit: version falls (got {version!r}, want at least {max(self._last, 1)}): give that of the source's weights")
        run = version or (self._last + 1 if self._src else 0)
        transfer = Transfer(self.plan, self._src, self._dst, strides=True)
        transfer.check()
        self.version = 0
        with torch.no_grad():
            landed = self._service.run_transfer(transfer, run)
            transfer.finish_all()
        self.version = self._last = run or landed or self._last + 1

    def close(self) -> None:
        """Ends the plan. No other rank uses the memory of tensors when it returns."""
        self._service.close()


def reshard_state_dicts(
    node: Any,
    src: Mapping[str, Any] | None,
    dst: Mapping[str, Any] | None,
    *,
    name: str = "state",
    group: Any = None,
    batch_bytes: int = 0,
    cast: bool = False,
    version: int | None = None,
    timeout: float | None = 600.0,
) -> StatePlan:
    """Copies tensors of src into those of dst that have the same names, whatever part each rank has of them.

    All ranks call it: those of ``group``, which is one of ``node.peer``; by default all peers. A value is a tensor that the
    rank has as a whole, a DTensor, or a pair of a tensor and its ``stepvan.Part``. src or dst is None at a rank without one. The
    result runs the same again. name tells refits apart that are in use at the same time.
    """
    tensors: list[dict[str, torch.Tensor]] = [{}, {}]
    parts = Parts()

    def roster() -> bytes:
        sides: list[list[_rosters.Entry]] = [[], []]
        for side, values in enumerate((src, dst)):
            for key, value in (values or {}).items():
                if (found := _entry(key, value, parts)) is not None:
                    sides[side].append(found[0])
                    tensors[side][key] = found[1]
        return _rosters.encode(node.peer.rank, *sides)

    rosters = _gather_of_peers(node, group, f"reshard state {name}", roster)
    plan = _planfile.decode(plan_rosters(rosters, [node.peer.rank], world=node.peer.size, batch_bytes=batch_bytes, cast=cast)[0])
    made = StatePlan(plan, StepvanCopyService(node, f"state {name}", timeout), *tensors)
    made.run(version)
    return made


def _gather_of_peers(node: Any, group: Any, name: str, roster: Callable[[], bytes]) -> list[bytes]:
    """What the peers of a group have, or all peers."""
    if group is not None:
        return gather_checked(gathering(group), roster)
    with node.peer.group(range(node.peer.size), name) as own:
        return gather_checked(gathering(own), roster)
