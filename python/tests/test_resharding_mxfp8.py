"""MXFP8: rounding, scales, and the transform that quantizes what arrives."""

import math
import struct
from fractions import Fraction

import pytest
import torch

import stepvan
from stepvan.resharding import MXFP8ReshardTransform, MXFP8Tensor, _mxfp8, transforms

S = slice
NAME = "decoder.layers.0.w"


def values(rows, columns, seed=0):
    random = torch.Generator().manual_seed(seed)
    scale = torch.exp2(torch.randint(-20, 20, (rows, columns // 32), generator=random).float()).repeat_interleave(32, 1)
    return (torch.randn(rows, columns, generator=random) * scale).to(torch.bfloat16)


def block(*first):
    return torch.tensor([[*first, *[0.0] * (32 - len(first))]])


def codes(tensor):
    return _mxfp8.codes(tensor.data), tensor.scale_2d()


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(codes(a), codes(b), strict=True))


# --------------------------------------------------------------------------------------------------------- elements


VECTORS = [(1.0, 119, 0x78), (1.75, 119, 0x7E), (1.7578125, 120, 0x76), (448.0, 127, 0x7E), (448.000030517578125, 128, 0x76)]
VECTORS += [(450.0, 128, 0x76), (2.0**-126, 1, None), (0.0, 0, 0)]


@pytest.mark.parametrize(
    ("largest", "scale", "code", "dtype"),
    [(*v, dtype) for v in VECTORS for dtype in (torch.float32, torch.bfloat16) if torch.tensor(v[0], dtype=dtype).item() == v[0]],
)
def test_vectors(largest, scale, code, dtype):
    data, scales = _mxfp8.quantize(block(largest).to(dtype))
    assert scales.tolist() == [[scale]]
    assert code is None or data[0, 0] == code
    assert (data[0, 1:] == 0).all()


def test_numbers_that_are_none():
    for bad in (math.nan, math.inf, -math.inf, -math.nan):
        data, scales = _mxfp8.quantize(torch.cat([block(3.0, bad), block(1.0)]))
        assert scales.tolist() == [[255], [119]]
        assert data[0, :3].tolist() == [0, 0x7F, 0] and data[1, 0] == 0x78
        found = MXFP8Tensor(data, scales).dequantize(torch.float32)
        assert found[0].isnan().all() and found[1, 0] == 1


def exact(x):
    """What an element and its scale are, by the definition, in exact numbers."""
    largest = max(abs(Fraction(float(v))) for v in x)
    if largest == 0:
        return 0, [0.0] * len(x)
    ratio = struct.unpack("<f", struct.pack("<f", float(largest) / 448))[0]
    e = max(math.frexp(ratio)[1] - (math.frexp(ratio)[0] == 0.5) + 127, 0 if ratio < 2**-127 else 1)
    grid = []
    for v in x:
        scaled = Fraction(float(v)) / Fraction(2) ** (e - 127)
        step = Fraction(2) ** max(math.frexp(abs(float(scaled)))[1] - 4, -9) if scaled else Fraction(1)
        grid.append(float(round(scaled / step) * step * Fraction(2) ** (e - 127)))  # round is to even
    return e, grid


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_is_to_the_nearest_even(dtype):
    random = torch.Generator().manual_seed(5)
    x = torch.randn(64, 32, generator=random) * torch.exp2(torch.randint(-60, 60, (64, 1), generator=random).float())
    x[::4] = (x[::4] / x[::4].abs().amax(1, keepdim=True) * 64).round() / 32  # ties
    x = x.to(dtype)
    found = MXFP8Tensor.from_bf16(x)
    _, scales = codes(found)
    got = found.dequantize(torch.float32)
    for row in range(64):
        e, grid = exact(x[row].tolist())
        assert scales[row, 0] == e
        assert got[row].tolist() == grid
    limit = torch.maximum(x.float().abs() * 2.0**-4, torch.exp2(scales.float() - 127 - 10))
    assert ((got - x.float()).abs() <= limit).all()


def test_bf16_is_exact():
    found = MXFP8Tensor.from_bf16(values(8, 64))
    assert torch.equal(found.dequantize().float(), found.dequantize(torch.float32))
    again = MXFP8Tensor.from_bf16(found.dequantize())
    assert torch.equal(again.dequantize(), found.dequantize())


@pytest.mark.parametrize(("rows", "columns"), [(1, 32), (128, 128), (130, 160), (256, 32), (5, 0), (0, 64)])
def test_scales_for_tensor_cores(rows, columns):
    x = values(rows, columns)
    matrix, listed = MXFP8Tensor.from_bf16(x), MXFP8Tensor.from_bf16(x, swizzled=True)
    assert tuple(matrix.scale.shape) == (rows, columns // 32)
    tiles = -(-rows // 128) * -(-columns // 128)
    assert tuple(listed.scale.shape) == (tiles * 512,)
    across = -(-columns // 128)
    wanted = [0] * (tiles * 512)
    for r in range(rows):
        for c in range(columns // 32):
            wanted[(r // 128 * across + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4] = int(matrix.scale_2d()[r, c])
    assert _mxfp8.codes(listed.scale).tolist() == wanted
    assert same(matrix, listed) and torch.equal(matrix.dequantize(), listed.dequantize())


def test_a_tensor_takes_other_values_where_it_is():
    for swizzled in (False, True):
        found = MXFP8Tensor.from_bf16(values(4, 64), swizzled=swizzled)
        at = found.data.data_ptr(), found.scale.data_ptr()
        found.quantize_(values(4, 64, 1))
        assert at == (found.data.data_ptr(), found.scale.data_ptr())
        assert same(found, MXFP8Tensor.from_bf16(values(4, 64, 1)))
        assert (found.size(), found.size(1), found.shape, found.dtype) == ((4, 64), 64, (4, 64), torch.bfloat16)
        with pytest.raises(stepvan.InvalidError, match="another shape"):
            found.quantize_(values(8, 32))


@pytest.mark.parametrize("bad", [torch.zeros(2, 33), torch.zeros(32), torch.zeros(2, 2, 32), torch.zeros(2, 32, dtype=torch.int32)])
def test_what_is_not_quantized(bad):
    with pytest.raises(stepvan.InvalidError, match="mxfp8: the tensor"):
        MXFP8Tensor.from_bf16(bad)


def test_tensors_that_are_none():
    data = torch.zeros(2, 64, dtype=torch.uint8)
    for scale in (torch.zeros(2, 3), torch.zeros(4), torch.zeros(2, 2, dtype=torch.int32)):
        with pytest.raises(stepvan.InvalidError, match="scale does not belong to data of shape"):
            MXFP8Tensor(data, scale.to(torch.uint8) if scale.dtype == torch.float32 else scale)
    with pytest.raises(stepvan.InvalidError, match="data is not a matrix"):
        MXFP8Tensor(data.float(), torch.zeros(2, 2, dtype=torch.uint8))
    with pytest.raises(stepvan.InvalidError, match="backend"):
        MXFP8Tensor.from_bf16(torch.zeros(1, 32), backend="flashinfer")
    with pytest.raises(stepvan.InvalidError, match="group_size"):
        MXFP8Tensor.from_bf16(torch.zeros(1, 32), 16)


# -------------------------------------------------------------------------------------------------------- transform


def receiver(shape, swizzled, **options):
    buffer = MXFP8Tensor.from_bf16(torch.full(shape, 7.0, dtype=torch.bfloat16), swizzled=swizzled)
    return MXFP8ReshardTransform({NAME}, {"layers.0.w": buffer}, "decoder.", **options), buffer


def move(transform, whole, part):
    """Sends and receives a slice."""
    sent = transform.prepare_send(NAME, part, torch.nn.Parameter(whole))
    buffers = transform.prepare_recv(NAME, part)
    assert len(sent) == len(buffers)
    for source, buffer in zip(sent, buffers, strict=True):
        assert source.dtype == buffer.dtype and source.shape == buffer.shape
        buffer.copy_(source.detach())
    transform.finalize_recv(NAME, part, buffers)
    return sent


PARTS = {
    "whole": [(S(None), S(None))],
    "2 rows": [(S(0, 4), S(None)), (S(4, 8), S(None))],
    "4 rows": [(S(n, n + 2), S(0, 128)) for n in (4, 0, 6, 2)],
    "2 columns": [(S(None), S(64, 128)), (S(None), S(0, 64))],
    "4 columns": [(S(None), S(n, n + 32)) for n in (0, 32, 64, 96)],
    "4 boxes": [(S(r, r + 4), S(c, c + 64)) for r in (0, 4) for c in (0, 64)],
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize(("swizzled", "on_send"), [(False, False), (True, False), (False, True)])
def test_slices_give_the_bits_of_the_whole(parts, swizzled, on_send):
    whole = values(8, 128)
    transform, buffer = receiver(whole.shape, swizzled, convert_on_send=on_send)
    at = buffer.data.data_ptr(), buffer.scale.data_ptr()
    assert transform.should_transform(NAME) and not transform.should_transform("w")
    for run in range(2):
        transform.begin_run()
        sent = [one for part in parts for one in move(transform, whole * (run + 1), part)]
        transform.end_run()
        wanted = MXFP8Tensor.from_bf16(whole * (run + 1), swizzled=swizzled)
        assert same(buffer, wanted) and torch.equal(_mxfp8.codes(buffer.scale), _mxfp8.codes(wanted.scale))
        travelled = sum(one.numel() * one.element_size() for one in sent)
        assert travelled == (whole.numel() * 33 // 32 if on_send else whole.numel() * 2)
    assert at == (buffer.data.data_ptr(), buffer.scale.data_ptr())


def test_lists_wait_for_all_elements():
    whole = values(8, 128)
    transform, buffer = receiver(whole.shape, True)
    before = [one.clone() for one in codes(buffer)]
    move(transform, whole, (S(0, 4), S(None)))
    with pytest.raises(stepvan.InvalidError, match="'decoder.layers.0.w': an element comes twice"):
        move(transform, whole, (S(0, 4), S(None)))  # as many elements as the whole has
    assert all(torch.equal(x, y) for x, y in zip(before, codes(buffer), strict=True))
    with pytest.raises(stepvan.InvalidError, match=r"'decoder.layers.0.w': elements have not come \(512 are missing\)"):
        transform.end_run()
    transform.begin_run()
    for part in [(S(0, 5), S(None)), (S(5, 8), S(0, 128))]:
        move(transform, whole, part)
    assert same(buffer, MXFP8Tensor.from_bf16(whole))


def test_what_the_transform_refuses():
    whole = values(8, 128)
    for on_send in (False, True):
        transform, _ = receiver(whole.shape, False, convert_on_send=on_send)
        for part in [(S(None), S(0, 16)), (S(None), S(48, 128))]:
            with pytest.raises(stepvan.InvalidError, match="a slice divides a block of 32 elements"):
                transform.prepare_recv(NAME, part)
        with pytest.raises(stepvan.InvalidError, match="a slice leaves the tensor"):
            transform.prepare_recv(NAME, (S(0, 9), S(None)))
        with pytest.raises(stepvan.InvalidError, match="number of buffers is wrong"):
            transform.finalize_recv(NAME, (S(None), S(None)), [])
        with pytest.raises(stepvan.InvalidError, match="'decoder.other': it has no persistent buffer"):
            transform.prepare_recv("decoder.other", (S(None), S(None)))
    with pytest.raises(stepvan.InvalidError, match="a slice divides a block"):
        transform.prepare_send(NAME, (S(None), S(0, 16)), whole)
    transform, _ = receiver(whole.shape, True, convert_on_send=True)
    with pytest.raises(NotImplementedError, match="scales for tensor cores"):
        transform.prepare_recv(NAME, (S(None), S(None)))
    with pytest.raises(stepvan.InvalidError, match="backend"):
        MXFP8ReshardTransform(set(), {}, backend="triton")
    with pytest.raises(NotImplementedError):
        transforms.ReshardTransform().prepare_recv(NAME, ())


def test_a_quantized_source_sends_its_values():
    whole = MXFP8Tensor.from_bf16(values(8, 128))
    transform, buffer = receiver((8, 128), False)
    (sent,) = transform.prepare_send(NAME, (S(0, 4), S(None)), whole)
    assert sent.dtype == torch.bfloat16 and torch.equal(sent, whole.dequantize()[:4])


def test_scale_slices():
    assert transforms._scale_slice_from_data_slice((S(1, 2), S(None))) == (S(1, 2), S(None))
    assert transforms._scale_slice_from_data_slice((S(None), S(32, 96))) == (S(None), S(1, 3))
    with pytest.raises(stepvan.InvalidError, match="divides a block"):
        transforms._scale_slice_from_data_slice((S(None), S(0, 64, 2)))
