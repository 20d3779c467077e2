"""Records what torch makes of many elements: conversions, merges and divisions, for TestTorch.

    python3 record_torch.py > torch.json

It needs torch and numpy. The record has a hash of each result. In the results each NaN has the same bits, since torch
gives others on other processors. The results of max and min have no negative zeros, for the same reason.
"""

import hashlib
import json

import numpy as np
import torch

# Of each type: that of an integer of its size, and the bits of the NaN that stands for all.
FLOATS = {
    "float64": (np.uint64, 0x7FF8 << 48),
    "float32": (np.uint32, 0x7FC0_0000),
    "float16": (np.uint16, 0x7E00),
    "bfloat16": (np.uint16, 0x7FC0),
    "float8_e4m3fn": (np.uint8, 0x7F),
    "float8_e5m2": (np.uint8, 0x7F),
}
COMPUTED = ["float64", "float32", "float16", "bfloat16"]  # torch does not add elements of 8 bits
INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]
MERGES = {
    "sum": lambda x, y: x.add_(y),
    "product": lambda x, y: x.mul_(y),
    "max": lambda x, y: x.copy_(torch.maximum(x, y)),
    "min": lambda x, y: x.copy_(torch.minimum(x, y)),
}
DIVISORS = [3, 7, 1000]
PAIRS = 1 << 18
ODD = [0x9E37_79B9_7F4A_7C15, 0xD1B5_4A32_D192_ED03]  # multiples of them visit all bits


def with_ends(high, ends, shift, kind):
    """Numbers with all of these ends below all of those beginnings."""
    return np.add.outer(high.astype(kind) << kind(shift), np.array(ends, kind)).ravel()


def elements(name):
    """Bits of elements that are converted: all of them, or the neighbours of those that round either way."""
    if name == "float64":
        high = with_ends(np.arange(1 << 16), [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], 16, np.uint32)
        with np.errstate(invalid="ignore"):
            wide = high.view(np.float32).astype(np.float64).view(np.uint64)
        return np.add.outer(wide, np.array([0, 1, (1 << 28) - 1, 1 << 28, (1 << 28) + 1], np.uint64)).ravel()
    if name == "float32":
        return with_ends(np.arange(1 << 19), [0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF], 13, np.uint32)
    kind = FLOATS[name][0]
    return np.arange(1 << np.iinfo(kind).bits).astype(kind)


def tensor(bits, name):
    signed = np.dtype(f"i{bits.itemsize}")
    return torch.from_numpy(bits.view(signed).copy()).view(getattr(torch, name))


def digest(x, name, zeros=False):
    """The hash of a result. zeros: negative zeros count as zeros."""
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    bits = x.view(integer).numpy().copy()
    if name in FLOATS:
        kind, nan = FLOATS[name]
        bits = bits.view(kind)
        bits[torch.isnan(x.double()).numpy()] = nan
        if zeros:
            bits[(x.double() == 0).numpy()] = 0
    return hashlib.sha256(bits.tobytes()).hexdigest()[:32]


def operands(name, which):
    """Bits of elements that are merged. The two lists have other orders."""
    kind = np.dtype(f"u{torch.empty(0, dtype=getattr(torch, name)).element_size()}")
    bits = np.arange(PAIRS, dtype=np.uint64) * np.uint64(ODD[which])
    bits = (bits >> np.uint64(64 - 8 * kind.itemsize)).astype(kind)
    return bits & kind.type(1) if name == "bool" else bits


def main():
    record = {"torch": torch.__version__.split("+")[0], "elements": {}, "conversions": {}, "merges": {}, "divisions": {}}
    for source in FLOATS:
        bits = elements(source)
        record["elements"][source] = hashlib.sha256(bits.tobytes()).hexdigest()[:32]
        x = tensor(bits, source)
        for to in FLOATS:
            record["conversions"][f"{source} to {to}"] = digest(x.to(getattr(torch, to)), to)
    pairs = [(x, y) for x in COMPUTED for y in COMPUTED] + [(x, x) for x in INTEGERS + ["bool"]]
    for to, source in pairs:
        for name, merge in MERGES.items():
            x, y = tensor(operands(to, 0), to), tensor(operands(source, 1), source)
            merge(x, y)
            record["merges"][f"{name} of {source} into {to}"] = digest(x, to, name in ("max", "min"))
    for name in COMPUTED:
        for by in DIVISORS:
            record["divisions"][f"{name} by {by}"] = digest(tensor(operands(name, 0), name).div_(by), name)
    print(json.dumps(record, indent=1, sort_keys=True))


main()
