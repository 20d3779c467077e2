"""Records the plans that megatron-core makes of random groups and partitions, for TestMegatron.

    python3 record_megatron.py FOLDER > megatron.json

FOLDER holds an unpacked wheel of megatron-core, and torch must be installed. This uses the planner alone, so it needs
nothing else that megatron-core needs. The seed is fixed, so the same versions give the same bytes.
"""

import hashlib
import importlib
import importlib.metadata
import json
import logging
import math
import random
import sys
import types

import torch

SEED = 20
CASES = 200


def load(folder):
    """The planner and its data classes, without the packages around them, which need an accelerator."""
    for name in ["megatron", "megatron.core", "megatron.core.resharding"]:
        package = types.ModuleType(name)
        package.__path__ = [f"{folder}/{name.replace('.', '/')}"]
        sys.modules[name] = package
    logging.disable(logging.INFO)
    return [importlib.import_module("megatron.core.resharding." + name) for name in ["planner", "utils"]]


def side(rng, first, experts, tensor):
    """The ranks of one side, each with its groups: tensor parallel ranks vary fastest, then experts, then copies."""
    copies = rng.randint(1, 3)
    members = []

    def at(copy, expert, t):
        return first + (copy * experts + expert) * tensor + t

    for copy in range(copies):
        for expert in range(experts):
            for t in range(tensor):
                members.append(
                    {
                        "rank": at(copy, expert, t),
                        "tensor": [at(copy, expert, k) for k in range(tensor)],
                        "data": [at(c, e, t) for c in range(copies) for e in range(experts)],
                        "expert": [at(copy, e, t) for e in range(experts)] if experts > 1 else None,
                        "place": expert,
                    }
                )
    return members


def metadata(utils, member, local, dim, stride, sizes, divided):
    return utils.ParameterMetadata(
        name="w",
        shape=tuple(local),
        dtype=torch.float32,
        element_size=4,
        is_tp=divided,
        partition_dim=dim,
        partition_stride=stride,
        partition_sizes=sizes,
        is_ep=member["expert"] is not None,
        owner_rank=member["rank"],
        tensor_parallel_group_ranks=member["tensor"],
        expert_parallel_group_ranks=member["expert"],
        data_parallel_group_ranks=member["data"],
        resolved_name="w",
    )


def lines(ops, dim, length):
    """The pieces of a destination, joined where they touch: [source, offset there, offset here, length]."""
    out = []
    for op in ops:
        src, dst = op.peer_slice[dim], op.my_slice[dim]
        line = [op.peer_rank, src.start or 0, dst.start or 0, (dst.stop or length) - (dst.start or 0)]
        last = out[-1] if out else None
        if last and last[0] == line[0] and last[1] + last[3] == line[1] and last[2] + last[3] == line[2]:
            last[3] += line[3]
        else:
            out.append(line)
    return out


def case(rng, planner, utils):
    """One parameter: its groups on both sides, how it is divided, and the plan of each destination.

    None where megatron-core reads from a rank that has another expert: it takes a destination in the data parallel
    group of the source for a holder.
    """
    tensor = [rng.choice([1, 2, 3, 4]) for _ in range(2)]
    experts = [1, 1]
    if rng.random() < 0.5:
        experts = [rng.choice([1, 2, 4]) for _ in range(2)]
    divided = rng.random() < 0.85
    strides, blocks = [1, 1], None
    form = rng.random()
    if divided and form < 0.3:
        strides = [rng.choice([1, 2, 3]) for _ in range(2)]
    unit = math.lcm(tensor[0] * strides[0], tensor[1] * strides[1])
    if divided and form > 0.7:
        blocks = [unit * rng.randint(1, 3) for _ in range(rng.randint(1, 5))]
    total = sum(blocks) if blocks else unit * rng.randint(1, 4)
    dim = rng.randrange(2)
    sides = [side(rng, 0, experts[0], tensor[0])]
    sides.append(side(rng, 0 if rng.random() < 0.3 else len(sides[0]), experts[1], tensor[1]))
    # An expert has a name of its own, so only the ranks with it count.
    count = math.lcm(*experts)
    number = rng.randrange(count)
    rosters, record = [], {"dim": dim, "total": total, "divided": divided}
    for name, members, size, n, stride in zip(["src", "dst"], sides, tensor, experts, strides):
        holders = [m for m in members if m["place"] == number // (count // n)]
        local = [5, 5]
        local[dim] = total // size if divided else total
        sizes = [b // size for b in blocks] if blocks else None
        rosters.append({m["rank"]: metadata(utils, m, local, dim, stride, sizes, divided) for m in holders})
        record[name] = {
            "members": [[m["rank"], m["tensor"], m["data"], m["expert"]] for m in holders],
            "world": size,
            "stride": stride,
            "sizes": sizes,
        }
    plans = {}
    for rank, destination in rosters[1].items():
        plan = planner.build_plan_from_rosters({rank: {"w": destination}}, {"w": list(rosters[0].values())}, rank)
        plans[rank] = lines(plan.recv_ops, dim, destination.shape[dim])
        if any(line[0] not in rosters[0] for line in plans[rank]):
            return None
    record["plans"] = plans
    return record


def main():
    folder = sys.argv[1]
    planner, utils = load(folder)
    rng = random.Random(SEED)
    cases = []
    while len(cases) < CASES:
        one = case(rng, planner, utils)
        if one and len(json.dumps(one)) <= 900:  # small cases are as good, and there are more of them
            cases.append(one)
    versions = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions(path=[folder])}
    files = {}
    for module in [planner, utils]:
        with open(module.__file__, "rb") as f:
            files[module.__name__] = hashlib.sha256(f.read()).hexdigest()
    print(json.dumps({"versions": versions, "sha256": files, "seed": SEED})[:-1] + ', "cases": [')
    print(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
    print("]}")


if __name__ == "__main__":
    main()
