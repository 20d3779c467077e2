"""Records what distribute_tensor and full_tensor make of random tensors between processes that use gloo.

Each case is a tensor on a mesh of up to 16 ranks, and the same tensor on another mesh. Only the first rank of a mesh
has the tensor, so all others have received what they have. Ranks of a mesh that are not in ascending order are left
out, because torch's process groups sort them: distribute_tensor then gives rank i the part of another.
"""

import datetime
import faulthandler
import json
import math
import os
import random
import tempfile

import layouts
import recording
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

WORLD = 16
BATCH = 10  # cases of which the same processes take care
MESHES = 5  # of a batch: it takes long to make them
MOST = 600  # elements of a tensor
PARTIAL, STRIDED = ["R", "S", "P", "P"], ["R", "S", "S", "SS", "SS"]
LIMIT = datetime.timedelta(seconds=120)  # of one batch


def random_mesh(rng):
    """Extents, and ascending ranks whose dimensions may be transposed: every line of the mesh ascends."""
    while True:
        mesh = [rng.choice([1, 2, 2, 2, 3, 4]) for _ in range(rng.randint(1, 4))]
        if math.prod(mesh) <= WORLD:
            break
    ranks = torch.tensor(sorted(rng.sample(range(WORLD), math.prod(mesh))))
    order = rng.sample(range(len(mesh)), len(mesh))
    back = sorted(range(len(mesh)), key=order.__getitem__)
    ranks = ranks.reshape([mesh[d] for d in order]).permute(back)
    return mesh, ranks.reshape(-1).tolist()


def random_case(rng, meshes):
    """A tensor with two layouts: each has mesh, ranks, placements, and their texts."""
    shape = layouts.random_shape(rng, MOST)
    sides = []
    for kinds in [rng.choice([STRIDED, STRIDED, PARTIAL]), layouts.PLAIN]:
        mesh, ranks = rng.choice(meshes)
        pairs = [layouts.random_placement(rng, len(shape), kinds) for _ in mesh]
        sides.append((mesh, ranks, [p for p, _ in pairs], [text for _, text in pairs]))
    return shape, sides


def expected(shape, sides):
    """What DTensor computes without processes: the line of the case. None where versions of torch differ.

    torch 2.9 reduces the outermost dimension first, but the innermost where another dimension shards. So reductions
    must commute. torch 2.15 refuses others.
    """
    ops = {p.reduce_op for p in sides[0][2] if p.is_partial()}
    if ops and layouts.strided(sides[0][2]) or len(ops) > 1 and ops != {"sum", "avg"}:
        return None
    line = {"shape": shape}
    for name, (mesh, ranks, placements, texts) in zip(["from", "to"], sides):
        parts = layouts.split(layouts.numbered(shape), mesh, placements, padding=True)
        if parts is None:
            return None
        line[name] = layouts.side(mesh, ranks, texts, [layouts.describe(part, shape) for part in parts])
    return line


def member(mesh, placements):
    """The number of this rank among those whose partial values are reduced together, in the order of the mesh."""
    number = 0
    for at, count, placement in zip(mesh.get_coordinate(), mesh.shape, placements):
        if placement.is_partial():
            number = number * count + at
    return number


def values(ids, number, ops):
    """What a member has of a partial tensor. The result of every reduction is a whole number."""
    scale = 144 if "avg" in ops else 1
    return (scale * (1 + (7 * number + 3 * ids + number * ids) % 5)).double()


def reduced(mesh, placements, ids, shape):
    """The whole of a partial tensor, as full_tensor reduces it."""
    ops = {p.reduce_op for p in placements if p.is_partial()}
    local = values(ids, member(mesh, placements), ops)
    stride = layouts.numbered(shape).stride()
    whole = DTensor.from_local(local, mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride)
    whole = whole.full_tensor()
    assert torch.equal(whole, whole.round())
    return whole.long().reshape(-1).tolist()


def distributed(mesh, placements, whole, rank):
    """The tensor on a mesh. Ranks other than the first begin with zeros."""
    first = int(mesh.mesh.reshape(-1)[0])
    return distribute_tensor(whole if rank == first else torch.zeros_like(whole), mesh, placements)


def exact(mesh, placements, tensor, whole):
    """Holds full_tensor against the whole. Returns 1 where torch is wrong, which only StridedShard may cause."""
    if torch.equal(tensor.full_tensor(), whole):
        return 0
    assert layouts.strided(placements), f"full_tensor of {placements} on {mesh} is not the whole"
    return 1


def play(rank, meshes, case):
    """What this rank has of one case."""
    shape, sides = case
    whole, result, tensors = layouts.numbered(shape), {"wrong": 0}, []
    for name, (_, ranks, placements, _) in zip(["from", "to"], sides):
        if rank not in ranks:
            continue
        mesh, partial = meshes[name], any(p.is_partial() for p in placements)
        plain = [Replicate() if p.is_partial() else p for p in placements]
        tensor = distributed(mesh, plain, whole, rank)
        result[name] = layouts.describe(tensor.to_local(), shape)
        if partial:
            result["reduced"] = reduced(mesh, placements, tensor.to_local(), shape)
        else:
            result["wrong"] += exact(mesh, placements, tensor, whole)
        tensors.append((mesh, plain, tensor))
    if len(tensors) == 2 and tensors[0][0] is tensors[1][0] and not any(layouts.strided(t[1]) for t in tensors):
        moved = tensors[0][2].redistribute(tensors[1][0], tensors[1][1])
        assert torch.equal(moved.to_local(), tensors[1][2].to_local()), "redistribute differs from distribute_tensor"
    return result


def process(rank, folder, cases):
    """One rank. It takes part in making every mesh, since that is collective, and writes what it has."""
    faulthandler.dump_traceback_later(LIMIT.total_seconds(), exit=True)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD, timeout=LIMIT)
    made, results = {}, []
    for case in cases:
        meshes = {}
        for name, (mesh, ranks, _, _) in zip(["from", "to"], case[1]):
            key = recording.compact([mesh, ranks])
            if key not in made:
                made[key] = DeviceMesh("cpu", torch.tensor(ranks).reshape(mesh))
            meshes[name] = made[key]
        results.append(play(rank, meshes, case))
    with open(f"{folder}/{rank}.json", "w") as f:
        json.dump(results, f)
    dist.barrier()
    dist.destroy_process_group()


def run(cases):
    """What all ranks have of each case. Every batch has processes of its own, since each group has threads that run."""
    results = []
    for i in range(0, len(cases), BATCH):
        with tempfile.TemporaryDirectory() as folder:
            batch = cases[i : i + BATCH]
            mp.start_processes(process, args=(folder, batch), nprocs=WORLD, start_method="fork")
            by_rank = []
            for rank in range(WORLD):
                with open(os.path.join(folder, f"{rank}.json")) as f:
                    by_rank.append(json.load(f))
            results += zip(*by_rank)
    return results


def complete(line, results):
    """Holds what the ranks have against the line of the case, and adds what was reduced."""
    for name in ["from", "to"]:
        side = line[name]
        for rank, of in zip(side.get("ranks", range(len(side["of"]))), side["of"]):
            assert results[rank][name] == side["parts"][of], f"rank {rank} has something else than DTensor computes"
    wholes = [r["reduced"] for r in results if "reduced" in r]
    if wholes:
        assert all(whole == wholes[0] for whole in wholes)
        line["reduced"] = wholes[0]


def main():
    options = recording.arguments(__doc__, seed=21, cases=100, most=2500)
    torch.set_num_threads(1)
    rng = random.Random(options.seed)
    cases, lines, meshes = [], [], []
    while len(cases) < options.cases:
        if len(cases) % BATCH == 0:
            meshes = [random_mesh(rng) for _ in range(MESHES)]
        case = random_case(rng, meshes)
        line = expected(*case)
        if line and len(recording.compact(line)) + 4 * math.prod(case[0]) <= options.bytes:
            cases.append(case)
            lines.append(line)
    results = run(cases)
    for line, ranks in zip(lines, results):
        complete(line, ranks)
    wrong = sum(any(r["wrong"] for r in ranks) for ranks in results)
    recording.write(options, ["torch"], lines, full_tensor_wrong=wrong)


if __name__ == "__main__":
    main()
