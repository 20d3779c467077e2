"""Transforms: what is sent in place of a slice, and what is done with what arrives. MXFP8 is one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from stepvan._errors import InvalidError
from stepvan.resharding import _mxfp8
from stepvan.resharding._boxes import Coverage, box_of
from stepvan.resharding.utils import Slices


class ReshardTransform:
    """Replaces slice and copy for some parameters.

    ``prepare_send`` of the source and ``prepare_recv`` of the destination give the same number of tensors for a slice.
    """

    def should_transform(self, param_name: str) -> bool:
        """Whether this parameter goes through the transform."""
        return False

    def prepare_send(self, param_name: str, src_slice: Slices, src_param: torch.Tensor) -> list[torch.Tensor]:
        """The tensors to send for a slice of a parameter."""
        raise NotImplementedError

    def prepare_recv(self, param_name: str, dst_slice: Slices) -> list[torch.Tensor]:
        """The tensors to receive into, for a slice of a parameter."""
        raise NotImplementedError

    def finalize_recv(self, param_name: str, dst_slice: Slices, recv_buffers: list[torch.Tensor]) -> None:
        """Takes what has arrived to where it belongs."""
        raise NotImplementedError

    def begin_run(self) -> None:
        """Called before each run of a plan: forgets what an earlier run has left behind, which may have failed."""

    def end_run(self) -> None:
        """Called after each run whose elements have all come. It raises an error where a parameter is incomplete."""


class MXFP8Tensor:
    """A matrix in MXFP8.

    data: [M, K] of float8_e4m3fn, K a multiple of 32. scale: a power of two for each 32 elements of a row, as
    float8_e8m0fnu or its codes in uint8. It has the shape [M, K/32], or is the list that tensor cores read, in tiles of
    128 rows and 4 columns. Where torch has no such types, both are codes in uint8.
    """

    def __init__(self, data: torch.Tensor, scale: torch.Tensor, backend: str | None = None) -> None:
        shape = tuple(data.shape)
        if data.dim() != 2 or shape[1] % _mxfp8.BLOCK or data.element_size() != 1:
            raise InvalidError(f"mxfp8: data is not a matrix of codes in blocks (got {data.dtype} of shape {shape}, want [M, K], K a multiple of {_mxfp8.BLOCK})")
        allowed = (shape[0], shape[1] // _mxfp8.BLOCK), (_mxfp8.swizzled_size(*shape),)
        if scale.element_size() != 1 or tuple(scale.shape) not in allowed:
            raise InvalidError(f"mxfp8: scale does not belong to data of shape {shape} (got {scale.dtype} of shape {tuple(scale.shape)}, want shape {allowed[0]} or {allowed[1]})")
        self.data, self.scale, self.backend = data, scale, backend

    @classmethod
    def from_bf16(cls, x: torch.Tensor, group_size: int = _mxfp8.BLOCK, backend: str | None = None, *, swizzled: bool = False) -> MXFP8Tensor:
        """Quantizes a matrix. swizzled: whether scale is the list for tensor cores."""
        _check_backend(backend)
        if group_size != _mxfp8.BLOCK:
            raise InvalidError(f"mxfp8: group_size is not that of MXFP8 (got {group_size}, want {_mxfp8.BLOCK})")
        data, scale = _mxfp8.quantize(x)
        scale = _mxfp8.swizzle(scale) if swizzled else scale
        return cls(_typed(data, _mxfp8.ELEMENT), _typed(scale, _mxfp8.SCALE), backend)

    @property
    def shape(self) -> torch.Size:
        shape: torch.Size = self.data.shape
        return shape

    @property
    def device(self) -> torch.device:
        device: torch.device = self.data.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The type of its values."""
        return torch.bfloat16

    def size(self, idx: int | None = None) -> Any:
        """The shape of data, or its extent in one dimension."""
        return self.data.shape if idx is None else self.data.shape[idx]

    def scale_2d(self) -> torch.Tensor:
        """The codes of the scales as a matrix [M, K/32], without what fills up the list."""
        return _mxfp8.codes(self.scale) if self.scale.dim() == 2 else _mxfp8.unswizzle(self.scale, *self.data.shape)

    def dequantize(self, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """The values."""
        return _mxfp8.dequantize(self.data, self.scale_2d(), dtype)

    def quantize_(self, x: torch.Tensor) -> MXFP8Tensor:
        """Takes other values. data and scale keep their addresses."""
        if tuple(x.shape) != tuple(self.data.shape):
            raise InvalidError(f"mxfp8: the values have another shape (got {tuple(x.shape)}, want {tuple(self.data.shape)})")
        data, scale = _mxfp8.quantize(x)
        _mxfp8.codes(self.data).copy_(data)
        _mxfp8.codes(self.scale).copy_(scale if self.scale.dim() == 2 else _mxfp8.swizzle(scale))
        return self


def _typed(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x if x.dtype == dtype else x.view(dtype)


def _check_backend(backend: str | None) -> None:
    if backend not in (None, "torch"):
        raise InvalidError(f"mxfp8: this backend is not there (got {backend!r}, want None or 'torch')")


def is_quantized(param: Any) -> bool:
    """Whether a parameter has its values in another form: it has ``dequantize`` and ``quantize_``."""
    return callable(getattr(param, "quantize_", None)) and callable(getattr(param, "dequantize", None))


def sendable(param: Any) -> torch.Tensor:
    """The elements of a parameter as they travel: those of a quantized one in BF16."""
    if is_quantized(param):
        values: torch.Tensor = param.dequantize().detach().to(torch.bfloat16)
        return values
    plain: torch.Tensor = param.detach()
    return plain


def _scale_slice_from_data_slice(data_slice: Slices, block_size: int = _mxfp8.BLOCK) -> Slices:
    """The slice of the scales of a slice of the elements. K is the last dimension."""
    last = data_slice[-1]
    if last.step not in (None, 1) or any(at is not None and at % block_size for at in (last.start, last.stop)):
        raise InvalidError(f"mxfp8: a slice divides a block of {block_size} elements (got {last} along K): divide K at multiples of {block_size}")
    return (*data_slice[:-1], slice(*(at if at is None else at // block_size for at in (last.start, last.stop))))


class MXFP8ReshardTransform(ReshardTransform):
    """Writes what arrives into persistent MXFP8Tensors, whose memory keeps its addresses.

    Without ``convert_on_send`` the source sends BF16, and needs no transform. The destination quantizes each slice at
    once, if scales are a matrix. If they are a list for tensor cores, it collects the matrix in BF16, and quantizes it
    when each element has come exactly once. With ``convert_on_send`` both sides have the transform. The source
    quantizes, and data and scale travel: about half the bytes.

    convertible_params: names of the parameters. persistent_buffers: MXFP8Tensors, by name without buffer_key_prefix.
    """

    def __init__(
        self,
        convertible_params: Collection[str],
        persistent_buffers: Mapping[str, Any],
        buffer_key_prefix: str = "",
        convert_on_send: bool = False,
        backend: str | None = None,
    ) -> None:
        _check_backend(backend)
        self.convertible_params = set(convertible_params)
        self.persistent_buffers = persistent_buffers
        self.buffer_key_prefix = buffer_key_prefix
        self.convert_on_send = convert_on_send
        self.backend = backend
        self._collected: dict[str, torch.Tensor] = {}  # of scales that are lists: the matrix in BF16, by parameter
        self._covered: dict[str, Coverage] = {}

    def should_transform(self, param_name: str) -> bool:
        return param_name in self.convertible_params

    def begin_run(self) -> None:
        self._collected.clear()
        self._covered.clear()

    def end_run(self) -> None:
        for name, covered in self._covered.items():
            self.begin_run()
            raise InvalidError(f"mxfp8: parameter {name!r}: elements have not come ({covered.left} are missing): plan all of its slices")

    def prepare_send(self, param_name: str, src_slice: Slices, src_param: torch.Tensor) -> list[torch.Tensor]:
        values = sendable(src_param)
        if not self.convert_on_send:
            return [values[src_slice]]
        _scale_slice_from_data_slice(_positions(param_name, src_slice, values))
        quantized = MXFP8Tensor.from_bf16(values[src_slice].to(torch.bfloat16), backend=self.backend)
        return [quantized.data, _mxfp8.codes(quantized.scale)]

    def prepare_recv(self, param_name: str, dst_slice: Slices) -> list[torch.Tensor]:
        buffer = self._buffer(param_name)
        part = _positions(param_name, dst_slice, buffer.data)
        is_list = buffer.scale.dim() == 1
        if self.convert_on_send and is_list:
            raise NotImplementedError(
                f"mxfp8: parameter {param_name!r}: convert_on_send cannot write scales for tensor cores, since these are not a matrix: "
                "leave it out, and the destination quantizes"
            )
        if not is_list or self.convert_on_send:
            scale_part = _scale_slice_from_data_slice(part)
        if self.convert_on_send:
            scale = _mxfp8.codes(buffer.scale)[scale_part]
            return [torch.empty(one.shape, dtype=one.dtype, device=one.device) for one in (buffer.data[part], scale)]
        if is_list:
            view = self._collect(param_name, buffer)[part]
            if view.is_contiguous():
                return [view]
        return [torch.empty(buffer.data[part].shape, dtype=torch.bfloat16, device=buffer.data.device)]

    def finalize_recv(self, param_name: str, dst_slice: Slices, recv_buffers: list[torch.Tensor]) -> None:
        buffer = self._buffer(param_name)
        part = _positions(param_name, dst_slice, buffer.data)
        wanted = 2 if self.convert_on_send else 1
        if len(recv_buffers) != wanted:
            raise InvalidError(f"mxfp8: parameter {param_name!r}: the number of buffers is wrong (got {len(recv_buffers)}, want {wanted})")
        if self.convert_on_send:
            self._write(buffer, part, *recv_buffers)
        elif buffer.scale.dim() == 1:
            self._finish_list(param_name, buffer, part, recv_buffers[0])
        else:
            self._write(buffer, part, *_mxfp8.quantize(recv_buffers[0]))

    def _buffer(self, param_name: str) -> Any:
        key = param_name.removeprefix(self.buffer_key_prefix)
        if key not in self.persistent_buffers:
            raise InvalidError(f"mxfp8: parameter {param_name!r}: it has no persistent buffer (got none under {key!r}): give one, or leave it out of convertible_params")
        return self.persistent_buffers[key]

    @staticmethod
    def _write(buffer: Any, part: Slices, data: torch.Tensor, scale: torch.Tensor) -> None:
        scale_part = _scale_slice_from_data_slice(part)
        _mxfp8.codes(buffer.data)[part].copy_(_mxfp8.codes(data))
        _mxfp8.codes(buffer.scale)[scale_part].copy_(_mxfp8.codes(scale))

    def _collect(self, param_name: str, buffer: Any) -> torch.Tensor:
        if param_name not in self._collected:
            self._collected[param_name] = torch.empty(buffer.data.shape, dtype=torch.bfloat16, device=buffer.data.device)
        return self._collected[param_name]

    def _finish_list(self, param_name: str, buffer: Any, part: Slices, values: torch.Tensor) -> None:
        whole = self._collect(param_name, buffer)
        covered = self._covered.setdefault(param_name, Coverage(f"parameter {param_name!r}", whole.shape))
        covered.add(part)
        if values.data_ptr() != whole[part].data_ptr():
            whole[part].copy_(values)
        if covered.left == 0:
            data, scale = _mxfp8.quantize(whole)
            _mxfp8.codes(buffer.data).copy_(data)
            _mxfp8.codes(buffer.scale).copy_(_mxfp8.swizzle(scale))
            del self._collected[param_name], self._covered[param_name]


def _positions(param_name: str, slices: Slices, of: torch.Tensor) -> Slices:
    """The same slices with their starts and stops."""
    return tuple(slice(start, stop) for start, stop in box_of(f"parameter {param_name!r}", slices, of.shape))
