"""Random layouts of tensors on meshes, and what torch.distributed.tensor makes of them."""

import math

import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

PLAIN = ["R", "R", "S", "S", "SS"]
OPS = ["sum", "avg", "max", "min", "product"]


def random_shape(rng, most):
    """1 to 4 dimensions with at most so many elements. Some lengths divide by many numbers, some by few, some are 0."""
    while True:
        dims = []
        for _ in range(rng.randint(1, 4)):
            lengths = [rng.randint(1, 13), rng.choice([4, 6, 8, 12]), rng.choice([16, 24, 36, 48])]
            dims.append(rng.randint(0, 2) if rng.random() < 0.05 else rng.choice(lengths))
        if math.prod(dims) <= most:
            return dims


def random_placement(rng, dims, kinds):
    """A placement, and its text in the recording."""
    kind = rng.choice(kinds)
    dim = rng.randrange(dims)
    if kind == "R":
        return Replicate(), ["R"]
    if kind == "S":
        return Shard(dim), ["S", dim]
    if kind == "SS":
        factor = rng.randint(1, 4)
        return _StridedShard(dim, split_factor=factor), ["SS", dim, factor]
    op = rng.choice(OPS)
    return Partial(op), ["P", op]


def cuts(placement):
    return isinstance(placement, (Shard, _StridedShard))


def strided(placements):
    return any(isinstance(p, _StridedShard) for p in placements)


def split(whole, mesh, placements, padding=False):
    """The parts of all ranks in the order of the mesh, by DTensor's own function: placements apply from left to right.

    None where StridedShard does not give every rank equal pieces. Versions of torch differ on that. With padding also
    None where torch cannot pad the parts for its collectives, because they are empty in another dimension.
    """
    parts = [whole]
    for count, placement in zip(mesh, placements):
        after = []
        for part in parts:
            if not cuts(placement):
                after += [part] * count
                continue
            if isinstance(placement, _StridedShard) and part.size(placement.dim) % (count * placement.split_factor):
                return None
            try:
                placement._split_tensor(part, count, with_padding=padding)
            except RuntimeError:
                return None
            after += placement._split_tensor(part, count, with_padding=False)[0]
        parts = after
    return parts


def runs(indices):
    """Runs of indices that follow each other: [start, stop]."""
    out = []
    for i in indices:
        if out and out[-1][1] == i:
            out[-1][1] += 1
        else:
            out.append([i, i + 1])
    return out


def numbered(shape):
    """A tensor whose elements are their own numbers."""
    return torch.arange(math.prod(shape)).reshape(shape)


def describe(part, shape):
    """A part of numbered(shape): its shape, and the runs of indices that it has of each dimension."""
    record = {"local": list(part.shape)}
    if part.numel() == 0:
        return record
    grid, lists = numbered(shape), []
    for d, n in enumerate(shape):
        line = part.movedim(d, 0).reshape(part.size(d), -1)[:, 0] // math.prod(shape[d + 1 :]) % n
        grid = grid.index_select(d, line)
        lists.append(runs(line.tolist()))
    assert torch.equal(part, grid), "a part is not the product of the lists of its dimensions"
    return record | {"spans": lists}


def side(mesh, ranks, texts, parts):
    """One side of a case. Parts that are equal are there once; of has the number of each rank's."""
    record = {"mesh": mesh, "placements": texts, "parts": [], "of": []}
    if ranks != list(range(len(ranks))):
        record["ranks"] = ranks
    for part in parts:
        if part not in record["parts"]:
            record["parts"].append(part)
        record["of"].append(record["parts"].index(part))
    return record
