"""Records the plans that megatron-core makes of random rosters, for TestMegatron.

Each case is a model on two sets of ranks, each with its own tensor, expert, pipeline and data parallel groups. All that
knows Megatron's rules is megatron-core's: names of layers and experts, attributes, rosters and plans. Only what asks
torch.distributed for a group's ranks is replaced, since a group here is a list of ranks.
"""

import logging
import math
import random
import types
import warnings

import recording
import torch
import torch.distributed

warnings.simplefilter("ignore")  # megatron-core names what is not installed: Apex and Transformer Engine

from megatron.core.resharding import planner  # noqa: E402

RANKS = 12  # at most, of one side


class Side:
    """The groups of one side. Tensor parallel ranks vary fastest, then data parallel or pipeline ranks."""

    def __init__(self, rng, first):
        while True:
            self.tensor, self.data, self.pipeline = (rng.choice([1, 1, 2, 2, 3, 4]) for _ in range(3))
            if self.tensor * self.data * self.pipeline <= RANKS:
                break
        self.first, self.outer = first, rng.random() < 0.5
        stage = self.tensor * self.data
        pairs = [(e, t) for e in range(1, stage + 1) for t in range(1, stage + 1) if stage % (e * t) == 0]
        self.expert, self.expert_tensor = rng.choice([p for p in pairs if p[0] <= 4])

    def size(self):
        return self.tensor * self.data * self.pipeline

    def rank(self, p, d, t):
        grid = d * self.pipeline + p if self.outer else p * self.data + d
        return self.first + grid * self.tensor + t

    def stage(self, p):
        """The ranks of a stage. Those of experts divide them in another way: expert tensor parallel ranks first."""
        return [self.rank(p, d, t) for d in range(self.data) for t in range(self.tensor)]

    def groups(self, p, d, t):
        """As pg_collection has them."""
        stage, at = self.stage(p), d * self.tensor + t
        inner = self.expert_tensor
        expert, copy = at // inner % self.expert, at // (inner * self.expert)
        base = copy * inner * self.expert
        return types.SimpleNamespace(
            tp=[self.rank(p, d, k) for k in range(self.tensor)],
            dp=[self.rank(p, k, t) for k in range(self.data)],
            pp=[self.rank(k, d, t) for k in range(self.pipeline)],
            ep=[stage[base + k * inner + at % inner] for k in range(self.expert)],
            expt_tp=[stage[base + expert * inner + k] for k in range(inner)],
        )


class Model:
    """What both sides have: for each parameter how long it is and how it may be divided."""

    def __init__(self, rng, src, dst):
        self.sides = [src, dst]
        self.layers = rng.randint(max(src.pipeline, dst.pipeline), 4)
        self.experts = math.lcm(src.expert, dst.expert) * rng.randint(1, 2) if rng.random() < 0.6 else 0
        self.strides = {side: rng.choice([1, 1, 2, 3]) for side in self.sides}
        self.marked = rng.random() < 0.5  # whether the weights of experts say that they are tensor parallel
        self.tied = src.pipeline == 1 and rng.random() < 0.3
        self.vocabulary = self.length(rng, [src.tensor, dst.tensor])
        self.column = self.length(rng, [side.tensor * self.strides[side] for side in self.sides])
        self.row = self.length(rng, [src.tensor, dst.tensor])
        self.blocks = [self.length(rng, [src.tensor, dst.tensor]) for _ in range(rng.randint(1, 5))]
        self.wide = self.length(rng, [src.expert_tensor, dst.expert_tensor])
        self.fused = rng.random() < 0.5 and src.expert == dst.expert > 1
        self.cuts = {side: self.cut(rng, side.pipeline) for side in self.sides}

    @staticmethod
    def length(rng, parts):
        return math.lcm(*parts) * rng.randint(1, 3)

    def cut(self, rng, stages):
        """Which layers each stage has: at least one."""
        ends = sorted(rng.sample(range(1, self.layers), stages - 1))
        return list(zip([0, *ends], [*ends, self.layers]))


def parameter(shape, **attributes):
    p = torch.nn.Parameter(torch.empty(shape, device="meta"), requires_grad=False)
    for name, value in attributes.items():
        setattr(p, name, value)
    return p


def divided(shape, dim, world, stride=1, sizes=None, mark=True):
    """The part of a parameter that world ranks divide."""
    shape = list(shape)
    shape[dim] //= world
    attributes = {"tensor_model_parallel": True, "partition_dim": dim, "partition_stride": stride} if mark else {}
    if sizes:
        attributes["partition_sizes"] = [size // world for size in sizes]
    return parameter(shape, **attributes)


def put(module, name, value):
    """Puts a parameter at a path below the module."""
    *path, last = name.split(".")
    for step in path:
        if step not in module._modules:
            module.add_module(step, torch.nn.Module())
        module = module._modules[step]
    module.register_parameter(last, value)
    return module


def put_experts(layer, model, side):
    """Weights of the experts of one rank, one by one or all in one tensor.

    A bias that is not divided is there only without expert tensor parallelism. Else megatron-core refuses it, because
    it takes every parameter of an expert to be divided.
    """
    world, local = side.expert_tensor, model.experts // side.expert
    for k in range(local):
        put(layer, f"mlp.experts.linear_fc1.weight{k}", divided([model.wide, 3], 0, world, mark=model.marked))
        if all(s.expert_tensor == 1 for s in model.sides):
            put(layer, f"mlp.experts.linear_fc2.bias{k}", parameter([4]))
    if model.fused:
        put(layer, "mlp.experts.fused", divided([local, model.wide, 2], 1, world))
    for p in layer.mlp.experts.parameters():
        p.allreduce = side.expert == 1
    put(layer, "mlp.router.weight", parameter([model.experts, 3]))
    layer.mlp.router.register_buffer("expert_bias", torch.empty(model.experts, device="meta"))


def build(model, side, p, d, t):
    """The model of one rank."""
    module, world = torch.nn.Module(), side.tensor
    module.pg_collection = side.groups(p, d, t)
    if p == 0:
        put(module, "embedding.word_embeddings.weight", divided([model.vocabulary, 4], 0, world))
    first, last = model.cuts[side][p]
    for k in range(first, last):
        layer = put(module, f"decoder.layers.{k - first}.norm.weight", parameter([5]))
        layer = module.decoder.layers._modules[str(k - first)]
        layer.layer_number = k + 1
        put(layer, "linear_fc1.weight", divided([model.column, 3], 0, world, model.strides[side]))
        put(layer, "linear_fc2.weight", divided([3, model.row], 1, world))
        put(layer, "mixer.in_proj.weight", divided([sum(model.blocks), 2], 0, world, 1, model.blocks))
        if model.experts:
            put_experts(layer, model, side)
    if p == side.pipeline - 1 and not (model.tied and side.pipeline == 1):
        put(module, "output_layer.weight", divided([model.vocabulary, 4], 0, world))
    return module


def roster(model, side):
    """The metadata of each rank of a side, as megatron-core gathers it."""
    found = {}
    for p in range(side.pipeline):
        for d in range(side.data):
            for t in range(side.tensor):
                rank, module = side.rank(p, d, t), build(model, side, p, d, t)
                found[rank] = planner._extract_module_metadata(module, rank, model.experts or None, 0, {})
    return found


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


def described(metadata, groups):
    """The holders of a parameter on one side: groups has their members, which many parameters share."""
    m = metadata[0]
    members = []
    for x in metadata:
        assert (x.shape, x.is_tp, x.partition_dim, x.partition_sizes) == (m.shape, m.is_tp, m.partition_dim, m.partition_sizes)
        ep = x.expert_parallel_group_ranks
        members.append([x.owner_rank, x.tensor_parallel_group_ranks, x.data_parallel_group_ranks, ep])
    if members not in groups:
        groups.append(members)
    record = {"members": groups.index(members), "local": list(m.shape)}
    if m.is_tp:
        record |= {"dim": m.partition_dim, "stride": m.partition_stride, "sizes": m.partition_sizes}
    return record


def same(whole, alone):
    """Holds the plan of a whole roster against that of one rank alone: they differ in the numbers of tasks only."""
    strip = [[(o.param_name, o.peer_rank, o.my_slice, o.peer_slice) for o in plan.recv_ops] for plan in (whole, alone)]
    assert strip[0] == strip[1]


def case(rng):
    """One roster, and the number of parameters that are left out.

    Left out is a parameter for which a destination reads from a rank that lacks it: megatron-core takes a destination
    in the data parallel group of the source for a holder.
    """
    src = Side(rng, 0)
    dst = Side(rng, rng.choice([0, src.size(), src.size(), src.size() + 3]))
    model = Model(rng, src, dst)
    sides = [roster(model, src), roster(model, dst)]
    ranks = range(max(dst.first + dst.size(), src.size()))
    targets, sources = planner.index_metadata_rosters([[side.get(r, []) for side in sides] for r in ranks])
    plans = {rank: planner.build_plan_from_rosters({rank: targets[rank]}, sources, rank) for rank in sides[1]}
    one = rng.choice(sorted(sides[1]))
    same(planner.build_plan_from_rosters(targets, sources, one), plans[one])
    ops = {}
    for rank, plan in plans.items():
        names = {m.name: name for name, m in targets[rank].items()}
        for op in plan.recv_ops:
            ops.setdefault(names[op.param_name], {}).setdefault(rank, []).append(op)
    record, left = {"groups": [], "parameters": []}, 0
    for name, by_rank in ops.items():
        held = sources.get(name) or sources["embedding.word_embeddings.weight"]
        owners = {m.owner_rank for m in held}
        if any(op.peer_rank not in owners for found in by_rank.values() for op in found):
            left += 1
            continue
        holders = [targets[rank][name] for rank in sorted(by_rank)]
        dim = next((m.partition_dim for m in [holders[0], held[0]] if m.is_tp), 0)
        plan = {rank: lines(by_rank[rank], dim, targets[rank][name].shape[dim]) for rank in sorted(by_rank)}
        entry = {"name": name, "src": described(held, record["groups"]), "dst": described(holders, record["groups"])}
        record["parameters"].append(entry | {"plans": plan})
    return record, left


def main():
    options = recording.arguments(__doc__, seed=20, cases=80, most=5000)
    logging.disable(logging.INFO)
    torch.distributed.get_process_group_ranks = lambda group: group
    rng = random.Random(options.seed)
    cases, left = [], 0
    while len(cases) < options.cases:
        record, without = case(rng)
        if record["parameters"] and len(recording.compact(record)) <= options.bytes:
            cases.append(record)
            left += without
    recording.write(options, ["megatron-core", "torch"], cases, left_out=left)


if __name__ == "__main__":
    main()
