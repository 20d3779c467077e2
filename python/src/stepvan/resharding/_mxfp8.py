"""MXFP8 by operations of torch, bit for bit as package mx of the library has it."""

from __future__ import annotations

import torch

from stepvan._errors import InvalidError

BLOCK = 32  # elements that share a scale
LARGEST = 448  # the largest value of an element

_INFINITY = 0x7F80_0000
_LEAST_NORMAL = (127 - 6) << 23  # 2**-6, below which elements lie as far apart as above it
_NAN, _NAN_SCALE = 0x7F, 255

ELEMENT = getattr(torch, "float8_e4m3fn", torch.uint8)
"""The type of elements. A torch without it has their codes as uint8."""

SCALE = getattr(torch, "float8_e8m0fnu", torch.uint8)
"""The type of scales, in the same way."""

_TILE_ROWS, _TILE_COLUMNS, _GROUP_ROWS = 128, 4, 32


def codes(x: torch.Tensor) -> torch.Tensor:
    """The same memory as bytes."""
    return x if x.dtype == torch.uint8 else x.view(torch.uint8)


def check_matrix(x: torch.Tensor) -> None:
    """Refuses what cannot be quantized."""
    if x.dim() != 2 or x.shape[1] % BLOCK != 0:
        raise InvalidError(f"mxfp8: the tensor does not divide into blocks (got shape {tuple(x.shape)}, want [M, K] with K a multiple of {BLOCK}): pad its rows")
    if not x.is_floating_point():
        raise InvalidError(f"mxfp8: the tensor has no floating-point numbers (got {x.dtype}): give bfloat16 or float32")


def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes of the elements of a matrix, and its scales [M, K/32]. Both are uint8."""
    check_matrix(x)
    rows, columns = x.shape
    blocks = x.detach().to(torch.float32).reshape(rows, columns // BLOCK, BLOCK)
    bits = blocks.view(torch.int32)
    magnitude = bits & 0x7FFF_FFFF
    largest = magnitude.amax(-1) if columns else magnitude.new_zeros(rows, 0)
    finite = largest < _INFINITY
    ratio = torch.where(finite, largest, torch.zeros_like(largest)).view(torch.float32) / LARGEST
    scale = (ratio.view(torch.int32) + 0x7F_FFFF) >> 23  # the exponent of the next power of two
    factor = ((254 - scale) << 23).view(torch.float32)  # 2**(127 - scale)
    elements = _encode(torch.where(finite.unsqueeze(-1), blocks, torch.zeros_like(blocks)) * factor.unsqueeze(-1))
    bad = torch.where(magnitude >= _INFINITY, torch.full_like(magnitude, _NAN), torch.zeros_like(magnitude))
    elements = torch.where(finite.unsqueeze(-1), elements, bad)
    scale = torch.where(finite, scale, torch.full_like(scale, _NAN_SCALE))
    return elements.to(torch.uint8).reshape(rows, columns), scale.to(torch.uint8)


def _encode(x: torch.Tensor) -> torch.Tensor:
    """The codes of numbers of at most 448, rounded to the nearest, ties to even."""
    bits = x.view(torch.int32)
    sign = (bits >> 24) & 0x80
    magnitude = bits & 0x7FFF_FFFF
    # The sum rounds to multiples of the least element, and has their number in its lowest bits.
    small = (x.abs() + float(1 << 14)).view(torch.int32) & 0xFF
    normal = ((magnitude + 0x7_FFFF + ((magnitude >> 20) & 1)) >> 20) - ((127 - 7) << 3)
    encoded: torch.Tensor = sign | torch.where(magnitude < _LEAST_NORMAL, small, normal)
    return encoded


def _element_values() -> torch.Tensor:
    values = []
    for code in range(256):
        exponent, fraction = code >> 3 & 15, code & 7
        value = fraction * 2.0**-9 if exponent == 0 else (8 + fraction) * 2.0 ** (exponent - 10)
        values.append(float("nan") if code & 127 == 127 else -value if code & 128 else value)
    return torch.tensor(values, dtype=torch.float32)


_ELEMENT_VALUES = _element_values()
_SCALE_VALUES = torch.tensor([2.0 ** (e - 127) for e in range(255)] + [float("nan")], dtype=torch.float32)


def dequantize(elements: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The values of a matrix of codes with scales [M, K/32]."""
    rows, columns = elements.shape
    values = _ELEMENT_VALUES.to(elements.device)[codes(elements).long()].reshape(rows, columns // BLOCK, BLOCK)
    factors = _SCALE_VALUES.to(elements.device)[codes(scale).long()]
    product: torch.Tensor = (values * factors.unsqueeze(-1)).reshape(rows, columns).to(dtype)
    return product


def _tiles(rows: int, columns: int) -> tuple[int, int]:
    return -(-rows // _TILE_ROWS), -(-(columns // BLOCK) // _TILE_COLUMNS)


def swizzled_size(rows: int, columns: int) -> int:
    """How long the list of scales is that tensor cores read, of a matrix with so many rows and columns."""
    down, across = _tiles(rows, columns)
    return down * across * _TILE_ROWS * _TILE_COLUMNS


def swizzle(scale: torch.Tensor) -> torch.Tensor:
    """Scales [M, K/32] as tensor cores read them: a list of tiles, filled up with zeros."""
    rows, blocks = scale.shape
    down, across = _tiles(rows, blocks * BLOCK)
    padded = codes(scale).new_zeros(down * _TILE_ROWS, across * _TILE_COLUMNS)
    padded[:rows, :blocks] = codes(scale)
    tiles = padded.reshape(down, _TILE_ROWS // _GROUP_ROWS, _GROUP_ROWS, across, _TILE_COLUMNS)
    listed: torch.Tensor = tiles.permute(0, 3, 2, 1, 4).reshape(-1)
    return listed


def unswizzle(scale: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """The scales [M, K/32] of such a list."""
    down, across = _tiles(rows, columns)
    tiles = codes(scale).reshape(down, across, _GROUP_ROWS, _TILE_ROWS // _GROUP_ROWS, _TILE_COLUMNS)
    padded = tiles.permute(0, 3, 2, 1, 4).reshape(down * _TILE_ROWS, across * _TILE_COLUMNS)
    scales: torch.Tensor = padded[:rows, : columns // BLOCK]
    return scales
