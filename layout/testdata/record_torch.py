"""Records how torch.distributed.tensor lays random tensors out, for TestTorch.

    python3 record_torch.py > torch.json

It needs torch and nothing else. The seed is fixed, so the same version of torch gives the same bytes.
"""

import hashlib
import json
import random

import torch
from torch.distributed.tensor import Replicate, Shard, _utils, placement_types
from torch.distributed.tensor.placement_types import _StridedShard

SEED = 19
CASES = 300
RANKS = 3  # of each case, chosen at random


def split(whole, mesh, placements, coordinate):
    """The part of a rank: the placements apply from left to right."""
    part = whole
    for count, placement, i in zip(mesh, placements, coordinate):
        if isinstance(placement, Shard):
            part = placement._split_tensor(part, count, with_padding=False)[0][i]
    return part


def even(shape, mesh, placements):
    """Whether StridedShard gives every rank of the mesh equal pieces."""
    for coordinate in torch.cartesian_prod(*[torch.arange(n) for n in mesh]).reshape(-1, len(mesh)).tolist():
        part = torch.empty(shape)
        for count, placement, i in zip(mesh, placements, coordinate):
            if isinstance(placement, _StridedShard) and part.size(placement.dim) % (count * placement.split_factor):
                return False
            if isinstance(placement, Shard):
                part = placement._split_tensor(part, count, with_padding=False)[0][i]
    return True


def spans(indices):
    """Runs of indices that follow each other: [start, stop]."""
    runs = []
    for i in indices:
        if runs and runs[-1][1] == i:
            runs[-1][1] += 1
        else:
            runs.append([i, i + 1])
    return runs


def rank(shape, mesh, placements, coordinate):
    """What torch says of one rank: the runs of each dimension, local shape and offset in the whole."""
    whole = torch.arange(torch.Size(shape).numel()).reshape(shape)
    part = split(whole, mesh, placements, coordinate)
    lists = []
    for dim, n in enumerate(shape):
        line = torch.arange(n).reshape([n if d == dim else 1 for d in range(len(shape))])
        line = line.expand(shape).contiguous()
        line = split(line, mesh, placements, coordinate)
        if line.numel():
            lists.append(line.movedim(dim, 0).reshape(line.size(dim), -1)[:, 0].tolist())
        else:
            lists.append([])
    if part.numel():
        # The part is the product of the lists of its dimensions.
        grid = whole
        for dim, indices in enumerate(lists):
            grid = grid.index_select(dim, torch.tensor(indices))
        assert torch.equal(part, grid)
    record = {"at": coordinate, "local": list(part.shape)}
    if part.numel():
        record["spans"] = [spans(indices) for indices in lists]
    strided = any(isinstance(p, _StridedShard) for p in placements)
    if part.numel() and not strided:
        local, offset = _utils._compute_local_shape_and_global_offset(shape, mesh, coordinate, placements)
        assert list(local) == list(part.shape)
        record["offset"] = list(offset)
    return record


def placement(rng, dims):
    kind = rng.choice(["R", "S", "S", "SS"])
    if kind == "R":
        return Replicate(), ["R"]
    dim = rng.randrange(dims)
    if kind == "S":
        return Shard(dim), ["S", dim]
    factor = rng.choice([1, 2, 2, 3, 4])
    return _StridedShard(dim, split_factor=factor), ["SS", dim, factor]


def main():
    rng = random.Random(SEED)
    cases = []
    while len(cases) < CASES:
        mesh = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
        if rng.random() < 0.5:
            shape = [rng.randint(1, 13) for _ in range(rng.randint(1, 3))]
        else:
            shape = [rng.choice([4, 8, 12, 16, 24, 48]) for _ in range(rng.randint(1, 3))]
        pairs = [placement(rng, len(shape)) for _ in mesh]
        placements = [p for p, _ in pairs]
        case = {"mesh": mesh, "shape": shape, "placements": [text for _, text in pairs]}
        if even(shape, mesh, placements):
            coordinates = [[rng.randrange(n) for n in mesh] for _ in range(RANKS)]
            case["ranks"] = [rank(shape, mesh, placements, c) for c in coordinates]
        elif rng.random() < 0.9:
            continue  # a few of them are enough: the planner refuses them
        cases.append(case)
    files = {}
    for module in [placement_types, _utils]:
        with open(module.__file__, "rb") as f:
            files[module.__name__] = hashlib.sha256(f.read()).hexdigest()
    print(json.dumps({"torch": torch.__version__, "sha256": files, "seed": SEED})[:-1] + ', "cases": [')
    print(",\n".join(json.dumps(case, separators=(",", ":")) for case in cases))
    print("]}")


if __name__ == "__main__":
    main()
