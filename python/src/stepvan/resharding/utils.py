"""What a plan of resharding consists of, and what the planner asks of a module: its tensors, their names and groups."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from stepvan import _core
from stepvan._errors import InvalidError, cut
from stepvan.resharding import _planfile, _rosters

if TYPE_CHECKING:
    from stepvan.resharding.transforms import ReshardTransform

Slices = tuple[slice, ...]


@dataclass
class ParameterMetadata:
    """What a rank tells the others about one of its tensors.

    ``resolved_name`` is the name that the tensor has at every rank. Groups list the ranks in the order of the group;
    None stands for the rank alone. ``is_buffer`` marks a persistent buffer, whose type may differ between both sides.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    element_size: int
    is_tp: bool = False
    partition_dim: int = 0
    partition_stride: int = 1
    partition_sizes: list[int] | None = None
    is_ep: bool = False
    num_experts: int | None = None
    owner_rank: int = -1
    tensor_parallel_group_ranks: list[int] | None = None
    expert_parallel_group_ranks: list[int] | None = None
    data_parallel_group_ranks: list[int] | None = None
    pipeline_parallel_group_ranks: list[int] | None = None
    resolved_name: str | None = None
    global_expert_index: int | None = None
    is_buffer: bool = False


@dataclass
class ShardingDescriptor:
    """How both sides divide a dimension of a parameter."""

    name: str
    dim: int
    src_stride: int
    dst_stride: int
    src_dim_ranks: list[int]
    dst_dim_ranks: list[int]


@dataclass
class TransferOp:
    """One box of elements that this rank sends or receives. Both sides know it by the same ``task_id``.

    ``my_slice`` says where it is in the tensor of this rank, and ``peer_slice`` where in that of the other one. A
    dimension that neither side divides has ``slice(None)``.
    """

    param_name: str
    peer_rank: int
    is_send: bool
    my_slice: Slices
    peer_slice: Slices
    task_id: int | None = None
    batch_id: int = 0


@dataclass
class TensorForm:
    """What a plan was made for: the tensor of this name had this type and shape. It travels with the type ``wire``."""

    resolved_name: str
    dtype: torch.dtype
    wire: torch.dtype
    shape: tuple[int, ...]


@dataclass
class ReshardPlan:
    """What one rank sends and receives.

    ``buffer_dtypes`` has the types in which tensors arrive, by their names here, where they differ from the
    destination's. ``rank``, ``sources`` and ``destinations`` say what the plan was made for. A plan that was put
    together by hand may lack them; then its tensors are not compared with anything.
    """

    send_ops: list[TransferOp]
    recv_ops: list[TransferOp]
    transform: ReshardTransform | None = None
    buffer_dtypes: dict[str, torch.dtype] | None = None
    num_batches: int = 1
    rank: int = -1
    sources: dict[str, TensorForm] | None = None
    destinations: dict[str, TensorForm] | None = None

    def __str__(self) -> str:
        return f"ReshardPlan(sends={len(self.send_ops)}, recvs={len(self.recv_ops)}, batches={self.num_batches})"

    def to_bytes(self) -> bytes:
        """The plan as bytes, for another process or a file. They leave the transform out."""
        return _planfile.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> ReshardPlan:
        """The plan of these bytes. The error of bytes that make no plan is a ProtocolError."""
        _core.reshard_check(bytes(data))
        return _planfile.decode(bytes(data))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan to a file, which has the whole plan or is as it was before."""
        beside = Path(f"{os.fspath(path)}.{os.getpid()}.partial")
        try:
            beside.write_bytes(self.to_bytes())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ReshardPlan:
        """Reads a plan that ``write`` has written."""
        return cls.from_bytes(Path(path).read_bytes())


# ---------------------------------------------------------------------------------------------------------- tensors


def named_persistent_buffers(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module, str, torch.Tensor]]:
    """Yields the full name, the module, the name in the module, and the tensor of each buffer of the state."""
    seen = set()
    for prefix, inner in module.named_modules():
        for name, buffer in inner._buffers.items():
            if buffer is None or name in inner._non_persistent_buffers_set or id(buffer) in seen:
                continue
            seen.add(id(buffer))
            yield f"{prefix}.{name}" if prefix else name, inner, name, buffer


def named_refit_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields what travels: the parameters, and the persistent buffers. Tied tensors come once."""
    yield from module.named_parameters()
    for name, _, _, buffer in named_persistent_buffers(module):
        yield name, buffer


def get_refit_tensor_dict(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The tensors that travel, by name."""
    return dict(named_refit_tensors(module))


# ------------------------------------------------------------------------------------------------------------ names

_EXPERT = re.compile(r"(weight|bias)(\d+)", re.ASCII)
_NUMBER = re.compile(r"\d+", re.ASCII)


def _expert_at(parts: Sequence[str], i: int) -> tuple[str, int] | None:
    """What part i of a name has before the number of an expert, and the number."""
    if found := _EXPERT.fullmatch(parts[i]):
        return found[1], int(found[2])
    if i > 0 and parts[i - 1] == "local_experts" and _NUMBER.fullmatch(parts[i]):
        return "", int(parts[i])
    return None


def _detect_expert_index_from_param_name(param_name: str) -> int | None:
    """The number of the expert that a parameter belongs to, as its rank counts; None if it belongs to no single one."""
    parts = param_name.split(".")
    return next((found[1] for i in range(len(parts)) if (found := _expert_at(parts, i))), None)


def _build_layer_module_prefix_map(module: torch.nn.Module) -> dict[str, str]:
    """The names of the modules of layers, and those that they have in a model without pipeline stages.

    ``layer_number`` of such a module counts all layers of the model from 1. Names count from 0.
    """
    found = {}
    for name, inner in module.named_modules():
        number = getattr(inner, "layer_number", None)
        path, _, last = name.rpartition(".")
        if isinstance(number, int) and _NUMBER.fullmatch(last):
            found[name] = f"{path}.{number - 1}" if path else str(number - 1)
    return found


def _resolve_global_layer_number_in_name(name: str, layer_module_prefix_map: Mapping[str, str]) -> str:
    """The name with the number that the innermost layer has in the whole model."""
    end = len(name)
    while layer_module_prefix_map and end > 0:
        if (whole := layer_module_prefix_map.get(name[:end])) is not None:
            return whole + name[end:]
        end = name.rfind(".", 0, end)
    return name


def assign_ep_resolved_name_inplace(meta: ParameterMetadata, *, base_name: str | None = None) -> None:
    """Counts the expert in a name over all ranks of the expert parallel group, and sets ``global_expert_index``."""
    base = meta.name if base_name is None else base_name
    meta.resolved_name, meta.global_expert_index = base, None
    if not meta.is_ep:
        return
    parts = base.split(".")
    for i in range(len(parts)):
        if found := _expert_at(parts, i):
            stem, local = found
            meta.global_expert_index = _global_expert(meta, local)
            parts[i] = f"{stem}{meta.global_expert_index}"
            meta.resolved_name = ".".join(parts)
            return


def _global_expert(meta: ParameterMetadata, local: int) -> int:
    group = meta.expert_parallel_group_ranks
    if not group or meta.owner_rank not in group:
        raise InvalidError(
            f"reshard: parameter {meta.name!r}: rank {meta.owner_rank} is not in its expert parallel group (got {group}): "
            "check pg_collection.ep and the rank offset"
        )
    share, left = divmod(meta.num_experts or 0, len(group))
    if left or local >= share:
        raise InvalidError(
            f"reshard: parameter {meta.name!r}: its rank cannot have expert {local} (got {meta.num_experts} experts for "
            f"{len(group)} ranks): check num_experts and the expert parallel group"
        )
    return group.index(meta.owner_rank) * share + local


def assign_resolved_name_inplace(
    meta: ParameterMetadata, *, layer_module_prefix_map: Mapping[str, str] | None = None, base_name: str | None = None
) -> None:
    """Sets the name under which the planner finds the same tensor at other ranks."""
    name = meta.name if base_name is None else base_name
    assign_ep_resolved_name_inplace(meta, base_name=_resolve_global_layer_number_in_name(name, layer_module_prefix_map or {}))


# ----------------------------------------------------------------------------------------------------------- groups


def group_ranks(group: Any) -> list[int]:
    """The ranks of a group: of torch.distributed, of peers, or a list of ranks."""
    if isinstance(group, list | tuple | range):
        return [int(rank) for rank in group]
    ranks = getattr(group, "ranks", None)
    if ranks is not None and not callable(ranks):
        return [int(rank) for rank in ranks]
    return [int(rank) for rank in torch.distributed.get_process_group_ranks(group)]


class _Groups:
    """The groups of a module's ``pg_collection``, as lists of ranks that parameters share."""

    def __init__(self, collection: Any, offset: int, lists: dict[tuple[int, ...], list[int]] | None) -> None:
        self._collection, self._offset = collection, offset
        self._lists = {} if lists is None else lists
        self._found: dict[str, list[int] | None] = {}

    def get(self, name: str) -> list[int] | None:
        if name not in self._found:
            group = getattr(self._collection, name, None)
            self._found[name] = None if group is None else self._shared(tuple(rank + self._offset for rank in group_ranks(group)))
        return self._found[name]

    def _shared(self, ranks: tuple[int, ...]) -> list[int]:
        return self._lists.setdefault(ranks, list(ranks))


def extract_param_metadata(
    param: torch.Tensor,
    param_name: str,
    owner_rank: int,
    pg_collection: Any,
    num_experts: int | None = None,
    layer_module_prefix_map: Mapping[str, str] | None = None,
    rank_offset: int = 0,
    _rank_list_cache: dict[tuple[int, ...], list[int]] | None = None,
    *,
    is_buffer: bool = False,
) -> ParameterMetadata:
    """Reads the attributes that Megatron-core gives a parameter, and the groups of its rank.

    ``pg_collection`` has groups of torch.distributed or lists of ranks: ``tp``, ``dp``, ``ep``, ``pp``, and ``expt_tp``
    for experts. ``rank_offset`` is added to their ranks.
    """
    return _metadata(param, param_name, owner_rank, _Groups(pg_collection, rank_offset, _rank_list_cache), num_experts, layer_module_prefix_map, is_buffer)


def _metadata(
    param: torch.Tensor,
    name: str,
    rank: int,
    groups: _Groups,
    experts: int | None,
    layers: Mapping[str, str] | None,
    is_buffer: bool,
) -> ParameterMetadata:
    is_tp = bool(getattr(param, "tensor_model_parallel", False))
    is_ep = not getattr(param, "allreduce", True)
    tensor = groups.get("tp")
    if is_ep or experts is not None and _detect_expert_index_from_param_name(name) is not None:
        own = groups.get("expt_tp")
        tensor = tensor if own is None else own
        # Where experts have groups of their own, their layers do not mark what these groups divide.
        is_tp = is_tp or tensor is not None and len(tensor) > 1
    sizes = getattr(param, "partition_sizes", None)
    meta = ParameterMetadata(
        name=name,
        shape=tuple(param.shape),
        dtype=param.dtype,
        element_size=param.element_size(),
        is_tp=is_tp,
        partition_dim=_whole(name, param, "partition_dim", 0),
        partition_stride=_whole(name, param, "partition_stride", 1),
        partition_sizes=None if sizes is None else [int(size) for size in sizes],
        is_ep=is_ep,
        num_experts=experts,
        owner_rank=rank,
        tensor_parallel_group_ranks=tensor,
        expert_parallel_group_ranks=groups.get("ep") if is_ep else None,
        data_parallel_group_ranks=groups.get("dp"),
        pipeline_parallel_group_ranks=groups.get("pp"),
        is_buffer=is_buffer,
    )
    assign_resolved_name_inplace(meta, layer_module_prefix_map=layers)
    return meta


def _whole(name: str, param: torch.Tensor, attribute: str, least: int) -> int:
    """An attribute that is a whole number. Megatron-core has -1 for a parameter that nothing divides."""
    value = getattr(param, attribute, least)
    if not isinstance(value, int) or value < -1:
        raise InvalidError(f"reshard: parameter {name!r}: {attribute} is wrong (got {cut(value)}, want {least} or more): set it as Megatron-core does")
    return max(value, least)


def module_metadata(
    module: torch.nn.Module | None,
    owner_rank: int,
    num_experts: int | None = None,
    rank_offset: int = 0,
    rank_lists: dict[tuple[int, ...], list[int]] | None = None,
) -> list[ParameterMetadata]:
    """What a rank tells the others about a module. Without one it is an empty list."""
    if module is None:
        return []
    collection = getattr(module, "pg_collection", None)
    if collection is None:
        raise InvalidError(
            f"reshard: {type(module).__name__}: it has no pg_collection: set one with the groups tp, dp, ep and pp of this rank, "
            "as lists of ranks or as groups of torch.distributed"
        )
    layers = _build_layer_module_prefix_map(module)
    groups = _Groups(collection, rank_offset, rank_lists)
    buffers = {name for name, _, _, _ in named_persistent_buffers(module)}
    return [
        _metadata(tensor, name, owner_rank, groups, num_experts, layers, name in buffers)
        for name, tensor in named_refit_tensors(module)
    ]


def select_src_metadata_balanced(
    src_meta_list: list[ParameterMetadata], dst_metadata: ParameterMetadata, dst_rank: int
) -> ParameterMetadata:
    """The source that a destination reads from: the planner's rule for one parameter."""
    if not src_meta_list:
        raise InvalidError(f"reshard: parameter {dst_metadata.name!r}: there is no source to choose from: give at least one")
    sources = [_rosters.encode(meta.owner_rank, [_rosters.of_metadata(meta)], []) for meta in src_meta_list]
    chosen = _core.reshard_source(sources, _rosters.encode(dst_rank, [], [_rosters.of_metadata(dst_metadata)]))
    return next(meta for meta in src_meta_list if meta.owner_rank == chosen)
