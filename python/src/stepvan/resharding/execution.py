"""Runs a plan: submits its operations to a service, and takes what arrives to where it belongs."""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from stepvan._errors import InvalidError, cut
from stepvan.resharding import _dtypes
from stepvan.resharding._boxes import Coverage, box_of, volume
from stepvan.resharding._versions import Versions, version_of
from stepvan.resharding.transforms import ReshardTransform, is_quantized, sendable
from stepvan.resharding.utils import ReshardPlan, Slices, TensorForm, TransferOp, get_refit_tensor_dict

__all__ = ["Transfer", "execute_reshard_plan", "logger", "version_of"]

logger = logging.getLogger(__name__)

distributed: Any = torch.distributed  # some versions have no types

Submit = Callable[[torch.Tensor, TransferOp, bool], None]
"""Submits a tensor for an operation. The flag says whether it is memory of the model, which stays where it is."""


@dataclass
class _Writeback:
    """What to do with what has arrived.

    kind is 'direct' (it has landed in place), 'copy' (``recv_buffer`` goes into a slice of ``dst_param``) or 'transform'
    (``recv_bufs`` go to the transform). A 'copy' onto a parameter in MXFP8 goes to its accumulator.
    """

    kind: str
    recv_buffer: torch.Tensor | None = None
    dst_param: torch.Tensor | None = None
    dst_slice: Slices | None = None
    param_name: str | None = None
    recv_bufs: list[torch.Tensor] | None = None


Accumulators = dict[int, tuple[Any, torch.Tensor, list[Slices]]]


def _get_mxfp8_accumulator(pending: Accumulators, dst_param: Any) -> tuple[torch.Tensor, list[Slices]]:
    """The buffer in BF16 that collects a quantized parameter, and the slices that are in it.

    There is one for each parameter, made when it is needed first. Its elements are not initialized: slices cover all.
    """
    if id(dst_param) not in pending:
        buffer = torch.empty(tuple(dst_param.shape), dtype=torch.bfloat16, device=dst_param.device)
        pending[id(dst_param)] = (dst_param, buffer, [])
    _, buffer, slices = pending[id(dst_param)]
    return buffer, slices


_checked: dict[int, tuple[weakref.ref[ReshardPlan], tuple[Any, ...]]] = {}  # by the id of a plan: what it was found to fit


class Transfer:
    """One run of a plan at this rank. ``check`` comes first, then ``submit`` and ``finish`` for each batch.

    src_params, dst_params: the tensors that the operations name. skip: whether operations on tensors that are not there
    are passed over. strides: whether the service takes tensors with any strides. spare: where elements land in place of
    dst_params, by name; then writebacks wait for ``finish_all``.
    """

    def __init__(
        self,
        plan: ReshardPlan,
        src_params: dict[str, torch.Tensor],
        dst_params: dict[str, torch.Tensor],
        transform: ReshardTransform | None = None,
        *,
        skip: bool = False,
        strides: bool = False,
        spare: dict[str, torch.Tensor] | None = None,
    ) -> None:
        self.plan = plan
        self.landed_version = 0  # that a service has found with the elements
        self.converts = False  # whether the service converts elements into the type of their destination
        self.stays = False  # whether all that was submitted at last is memory of the model
        self.sources, self._destinations = src_params, dst_params
        self.transform = plan.transform if transform is None else transform
        self._skip, self._strides, self._spare = skip, strides, spare
        self._writebacks: list[_Writeback] = []
        self._accumulators: Accumulators = {}

    @functools.cached_property
    def _sends(self) -> list[TransferOp]:
        return [op for op in self.plan.send_ops if self._here(op, self.sources)]

    @functools.cached_property
    def _recvs(self) -> list[TransferOp]:
        return [op for op in self.plan.recv_ops if self._here(op, self._destinations)]

    @functools.cached_property
    def standing(self) -> tuple[Any, ...] | None:
        """What is equal for two runs of a plan that move the same memory in the same way. None: that is not known.

        Then a run need not look at each operation. It takes a microsecond for each tensor.
        """
        if self.transform is not None or self._spare is not None or self._skip:
            return None
        ops = (id(self.plan.send_ops), len(self.plan.send_ops), id(self.plan.recv_ops), len(self.plan.recv_ops), self.plan.num_batches)
        tensors = [(name, id(x), x.data_ptr(), x.shape, x.stride()) for side in (self.sources, self._destinations) for name, x in side.items()]
        return (*ops, len(self.sources), self._strides, tensors)

    def _here(self, op: TransferOp, params: dict[str, torch.Tensor]) -> bool:
        """Whether the operation takes part. A transform has its own destinations."""
        return not self._skip or op.param_name in params or not op.is_send and self.transforms(op.param_name)

    def transforms(self, name: str) -> bool:
        """Whether the transform takes care of a parameter."""
        return self.transform is not None and self.transform.should_transform(name)

    @property
    def places(self) -> dict[str, torch.Tensor]:
        """Where elements land, by the names of the parameters."""
        return self._destinations if self._spare is None else {**self._destinations, **self._spare}

    # ------------------------------------------------------------------------------------------------------- checks

    def check(self) -> None:
        """Refuses a plan that does not fit the tensors, before anything is sent."""
        known = _checked.get(id(self.plan))
        if known is not None and known[0]() is self.plan and known[1] == self.standing:
            return
        self._check()
        if self.standing is not None:
            plan = id(self.plan)
            _checked[plan] = (weakref.ref(self.plan, lambda _: _checked.pop(plan, None)), self.standing)

    def _check(self) -> None:
        if self.plan.num_batches < 1:
            raise InvalidError(f"reshard: the plan has no batch (got num_batches={self.plan.num_batches}, want 1 or more)")
        for ops, params, forms in ((self._sends, self.sources, self.plan.sources), (self._recvs, self._destinations, self.plan.destinations)):
            checked: set[str] = set()
            for op in ops:
                if not 0 <= op.batch_id < self.plan.num_batches:
                    raise InvalidError(f"reshard: parameter {op.param_name!r}: its batch is not there (got {op.batch_id} of {self.plan.num_batches})")
                param = params.get(op.param_name)
                if param is None:
                    self._check_absent(op)
                    continue
                if op.param_name not in checked:
                    checked.add(op.param_name)
                    self._check_form(op, param, None if forms is None else forms.get(op.param_name))
                box_of(f"parameter {op.param_name!r}", op.my_slice, param.shape)
        self._check_destinations()

    def _check_absent(self, op: TransferOp) -> None:
        if op.is_send or not self.transforms(op.param_name):
            raise InvalidError(
                f"reshard: parameter {op.param_name!r}: the plan {'sends' if op.is_send else 'receives'} it, and the "
                f"{'source' if op.is_send else 'destination'} does not have it: give the module that the plan was made for, or missing='skip'"
            )

    def _check_form(self, op: TransferOp, param: Any, form: TensorForm | None) -> None:
        if form is not None and (tuple(param.shape) != form.shape or param.dtype != form.dtype):
            raise InvalidError(
                f"reshard: parameter {op.param_name!r}: it is not what the plan was made for (got {param.dtype}{list(param.shape)}, "
                f"want {form.dtype}{list(form.shape)}): make a new plan at every rank"
            )

    def _check_destinations(self) -> None:
        """Refuses two operations on one element, and a quantized parameter that they leave incomplete."""
        slices: dict[str, list[TransferOp]] = {}
        for op in self._recvs:
            if not self.transforms(op.param_name):
                slices.setdefault(op.param_name, []).append(op)
        for name, ops in slices.items():
            param = self._destinations[name]
            quantized = is_quantized(param)
            if len(ops) == 1 and not quantized:
                continue
            covered = Coverage(f"parameter {name!r}", param.shape)
            for op in ops:
                covered.add(op.my_slice)
            if quantized and covered.left:
                raise InvalidError(f"reshard: parameter {name!r}: it is quantized, and the plan does not bring all of it ({covered.left} elements are missing)")
            if quantized and len({op.batch_id for op in ops}) > 1:
                raise InvalidError(f"reshard: parameter {name!r}: it is quantized, and its slices are in several batches: put them into one")

    # ------------------------------------------------------------------------------------------------------- batches

    def submit(self, batch: int | None, send: Submit, recv: Submit) -> None:
        """Submits the operations of a batch, or of all batches."""
        chosen = [[op for op in ops if batch is None or op.batch_id == batch] for ops in (self._sends, self._recvs)]
        recvs = list(self._prepare_recvs(chosen[1]))
        sends = list(self._prepare_sends(chosen[0]))
        self._check_counts(sends, recvs)
        self.stays = all(stays for _, _, stays in (*sends, *recvs))
        for tensor, op, stays in recvs:
            recv(tensor, op, stays)
        for tensor, op, stays in sends:
            send(tensor, op, stays)

    def _prepare_sends(self, ops: Iterable[TransferOp]) -> Iterator[tuple[torch.Tensor, TransferOp, bool]]:
        ready: dict[str, torch.Tensor] = {}  # quantized sources are dequantized once
        for op in ops:
            param = self.sources[op.param_name]
            if self.transform is not None and self.transforms(op.param_name):
                for tensor in self.transform.prepare_send(op.param_name, op.my_slice, param):
                    yield self._contiguous(tensor), op, False
                continue
            if op.param_name not in ready:
                ready[op.param_name] = sendable(param)
            yield self._contiguous(ready[op.param_name][op.my_slice]), op, not is_quantized(param)

    def _contiguous(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach()
        return tensor if self._strides else tensor.contiguous()

    def _prepare_recvs(self, ops: Iterable[TransferOp]) -> Iterator[tuple[torch.Tensor, TransferOp, bool]]:
        for op in ops:
            if self.transform is not None and self.transforms(op.param_name):
                buffers = list(self.transform.prepare_recv(op.param_name, op.my_slice))
                self._writebacks.append(_Writeback("transform", param_name=op.param_name, dst_slice=op.my_slice, recv_bufs=buffers))
                for buffer in buffers:
                    yield buffer, op, False
                continue
            yield self._landing(op)

    def _landing(self, op: TransferOp) -> tuple[torch.Tensor, TransferOp, bool]:
        """Where the elements of an operation land. What is to follow is noted."""
        param: Any = self._destinations[op.param_name]
        quantized = is_quantized(param)
        if quantized:
            place, slices = _get_mxfp8_accumulator(self._accumulators, param)
            slices.append(op.my_slice)
        else:
            spare = self._spare is not None
            place = self._spare[op.param_name] if self._spare is not None else param.detach()
        wire = self.wire(op, place)
        view = place[op.my_slice]
        fits = wire == place.dtype or self.converts and not quantized and view.device.type == "cpu" and _dtypes.converts(wire, place.dtype)
        if fits and (self._strides or view.is_contiguous()):
            self._writebacks.append(_Writeback("direct", param_name=op.param_name))
            return view, op, not quantized and not spare
        buffer = torch.empty(view.shape, dtype=wire, device=view.device)
        self._writebacks.append(_Writeback("copy", recv_buffer=buffer, dst_param=param, dst_slice=op.my_slice, param_name=op.param_name))
        return buffer, op, False

    def wire(self, op: TransferOp, place: torch.Tensor) -> torch.dtype:
        """The type that a parameter has at its source."""
        wire = (self.plan.buffer_dtypes or {}).get(op.param_name)
        return place.dtype if wire is None else wire

    def _check_counts(self, sends: list[tuple[torch.Tensor, TransferOp, bool]], recvs: list[tuple[torch.Tensor, TransferOp, bool]]) -> None:
        """Compares both sides of what stays at this rank."""
        if self.transform is None:
            return
        sends, recvs = ([one for one in ops if one[1].peer_rank == self.plan.rank] for ops in (sends, recvs))
        counts: dict[tuple[int, int | None], int] = {}
        names: dict[tuple[int, int | None], str] = {}
        for ops, sign in ((sends, 1), (recvs, -1)):
            for _, op, _ in ops:
                key = (op.batch_id, op.task_id)
                counts[key] = counts.get(key, 0) + sign
                names[key] = op.param_name
        for (_, task), more in counts.items():
            if more and task is not None:
                raise InvalidError(
                    f"reshard: parameter {names[_, task]!r}: the transform sends and receives other numbers of tensors (got {abs(more)} "
                    f"more {'sends' if more > 0 else 'receives'}): prepare_send and prepare_recv must agree"
                )

    def finish(self) -> None:
        """Takes what has arrived since ``submit`` to where it belongs. With spare memory that waits."""
        if self._spare is None:
            self._write_back()

    def _write_back(self) -> None:
        writebacks, self._writebacks = self._writebacks, []
        writebacks.reverse()
        while writebacks:  # each buffer is free as soon as it was copied
            one = writebacks.pop()
            if one.kind == "copy":
                assert one.dst_slice is not None and one.recv_buffer is not None and one.param_name is not None
                self._place(one)[one.dst_slice].copy_(one.recv_buffer)
            elif one.kind == "transform":
                assert one.dst_slice is not None and one.recv_bufs is not None and one.param_name is not None and self.transform is not None
                self.transform.finalize_recv(one.param_name, one.dst_slice, one.recv_bufs)
        while self._accumulators:
            _, (param, buffer, _) = self._accumulators.popitem()
            param.quantize_(buffer)

    def _place(self, one: _Writeback) -> torch.Tensor:
        if is_quantized(one.dst_param):
            return _get_mxfp8_accumulator(self._accumulators, one.dst_param)[0]
        if self._spare is not None and one.param_name is not None:
            return self._spare[one.param_name]
        assert one.dst_param is not None
        return one.dst_param.detach()

    def finish_all(self) -> None:
        """Ends a run whose batches have all come."""
        self._write_back()
        if self.transform is not None and hasattr(self.transform, "end_run"):
            self.transform.end_run()

    def begin(self) -> None:
        """Begins a run."""
        if self.transform is not None and hasattr(self.transform, "begin_run"):
            self.transform.begin_run()


def _run_batches(transfer: Transfer, service: Any, group: Any) -> None:
    """Runs a plan by the three methods that every service has."""
    if callable(getattr(service, "set_plan", None)):
        service.set_plan(transfer.plan, transfer.transform)

    def send(tensor: torch.Tensor, op: TransferOp, _: bool) -> None:
        service.submit_send(tensor, op.peer_rank, task_id=op.task_id)

    def recv(tensor: torch.Tensor, op: TransferOp, _: bool) -> None:
        service.submit_recv(tensor, op.peer_rank, task_id=op.task_id)

    batches: Iterable[int | None] = range(transfer.plan.num_batches)
    if not getattr(service, "supports_incremental_runs", True):
        batches = [None]
    for batch in batches:
        transfer.submit(batch, send, recv)
        service.run()
        if getattr(service, "requires_process_group_barrier", True):
            _barrier(group)
        transfer.finish()


def _barrier(group: Any) -> None:
    if group is not None and not hasattr(group, "size") and hasattr(group, "barrier"):
        group.barrier()  # of peers
    elif group is not None or distributed.is_available() and distributed.is_initialized():
        distributed.barrier(group=group)


def _check_service(service: Any) -> None:
    for method in ("submit_send", "submit_recv", "run"):
        if not callable(getattr(service, method, None)):
            raise InvalidError(f"reshard: service: it has no method {method} (got {cut(service)}): give an object with submit_send, submit_recv and run")


def _check_module(what: str, module: Any) -> None:
    if module is not None and not isinstance(module, torch.nn.Module):
        raise InvalidError(f"reshard: {what}: it is not a module of torch (got {cut(module)}): give a module, or None")


def execute_reshard_plan(
    plan: ReshardPlan,
    src_module: torch.nn.Module | None,
    dst_module: torch.nn.Module | None,
    service: Any,
    group: Any = None,
    transform: ReshardTransform | None = None,
    *,
    missing: str = "error",
    version: int | None = None,
    atomic: bool = False,
) -> None:
    """Moves the elements of a plan: out of src_module, into dst_module. All ranks of the plan call it.

    A rank without a source has None as src_module, one without a destination None as dst_module, and an idle rank
    both. service is any object with ``submit_send``, ``submit_recv`` and ``run`` (``copy_services.base`` says what else
    it may have). group is for the barrier of a service that needs one. transform replaces that of the plan.

    missing="skip" passes over operations on tensors that are not there; else they are an error.

    version is the number of these weights, which never falls; None counts on. ``version_of(dst_module)`` is 0 from the
    first byte of the run until all is in place, and then the version. With atomic, the elements land in a second copy of
    the destination, which is swapped in when it is whole. Until then the module has its weights and its version, also
    when the run fails. Parameters get other addresses, and buffers of a transform or of quantized parameters are
    written at the end.
    """
    _check_service(service)
    _check_module("src_module", src_module)
    _check_module("dst_module", dst_module)
    if missing not in ("error", "skip"):
        raise InvalidError(f"reshard: missing is wrong (got {missing!r}, want 'error' or 'skip')")
    sources = {} if src_module is None else get_refit_tensor_dict(src_module)
    destinations = {} if dst_module is None else get_refit_tensor_dict(dst_module)
    versions = Versions(src_module, dst_module, version)
    strides = bool(getattr(service, "accepts_strides", False))
    spare = _spare_of(plan, dst_module, destinations, transform) if atomic and dst_module is not None else None
    transfer = Transfer(plan, sources, destinations, transform, skip=missing == "skip", strides=strides, spare=spare)
    transfer.check()
    versions.begin(atomic)
    logger.info("reshard: %d sends and %d receives in %d batches", len(plan.send_ops), len(plan.recv_ops), plan.num_batches)
    with torch.no_grad():
        transfer.begin()
        if not _run_whole(transfer, service, versions):
            _run_batches(transfer, service, group)
        transfer.finish_all()
        if spare is not None and dst_module is not None:
            _swap(spare, destinations, dst_module)
    if dst_module is not None:
        _refresh(dst_module)
    versions.end(transfer.landed_version)


def _run_whole(transfer: Transfer, service: Any, versions: Versions) -> bool:
    """Lets a service run the plan as a whole, if it can."""
    run = getattr(service, "run_transfer", None)
    if callable(run):
        transfer.landed_version = int(run(transfer, versions.offered))
        return True
    run = getattr(service, "execute_plan", None)
    return callable(run) and bool(run(transfer.plan, transfer.sources, transfer.places, transfer.transform))


def _refresh(module: torch.nn.Module) -> None:
    """Lets modules compute anew what they keep beside their weights."""
    for inner in module.modules():
        refresh = getattr(inner, "refresh_cache", None)
        if callable(refresh):
            refresh()


_SPARE = "_stepvan_spare"


def _spare_of(
    plan: ReshardPlan, module: torch.nn.Module, destinations: dict[str, torch.Tensor], transform: ReshardTransform | None
) -> dict[str, torch.Tensor]:
    """The second copy of what a plan writes. It begins with the elements that the plan does not bring."""
    transform = plan.transform if transform is None else transform
    kept: dict[str, torch.Tensor] = module.__dict__.setdefault(_SPARE, {})
    brought: dict[str, int] = {}
    for op in plan.recv_ops:
        param = destinations.get(op.param_name)
        if param is not None and not is_quantized(param) and not (transform is not None and transform.should_transform(op.param_name)):
            elements = volume(box_of(f"parameter {op.param_name!r}", op.my_slice, param.shape))
            brought[op.param_name] = brought.get(op.param_name, 0) + elements
    used = {}
    for name, elements in brought.items():
        param, spare = destinations[name].detach(), kept.get(name)
        if spare is None or (spare.shape, spare.dtype, spare.device) != (param.shape, param.dtype, param.device):
            spare = torch.empty_like(param)
        if elements < param.numel():
            spare.copy_(param)
        kept[name] = used[name] = spare
    return used


def _swap(spare: dict[str, torch.Tensor], destinations: dict[str, torch.Tensor], module: torch.nn.Module) -> None:
    """Exchanges both copies."""
    kept: dict[str, torch.Tensor] = module.__dict__[_SPARE]
    for name, tensor in spare.items():
        kept[name] = destinations[name].data
        destinations[name].data = tensor
