"""Ranks of a job as threads of this process, for the tests of resharding: how they gather, copy, and share a model."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from stepvan.resharding import build_local_reshard_plan, execute_reshard_plan

PATIENCE = 50.0  # seconds


class World:
    """So many ranks, each a thread."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size, timeout=PATIENCE)
        self._gathered: dict[int, bytes] = {}
        self.posted: dict[tuple[int, int, Any, int], torch.Tensor] = {}
        self.lock = threading.Lock()

    def run(self, what: Callable[[int], Any]) -> list[Any]:
        """What each rank returns. When one fails, the others are told, and its error is raised."""

        def one(rank: int) -> Any:
            try:
                return what(rank)
            except BaseException:
                self._barrier.abort()
                raise

        with ThreadPoolExecutor(self.size) as pool:
            futures = [pool.submit(one, rank) for rank in range(self.size)]
        errors = [future.exception() for future in futures]
        for error in errors:
            if error is not None and not isinstance(error, threading.BrokenBarrierError):
                raise error
        return [future.result() for future in futures]

    def wait(self) -> None:
        self._barrier.wait()

    def all_gather(self, rank: int) -> Callable[[bytes], list[bytes]]:
        def gather(mine: bytes) -> list[bytes]:
            self._gathered[rank] = mine
            self.wait()
            found = [self._gathered[other] for other in range(self.size)]
            self.wait()
            return found

        return gather

    def service(self, rank: int) -> "Service":
        return Service(self, rank)

    def plan(self, rank: int, src: Any, dst: Any, **options: Any) -> Any:
        return build_local_reshard_plan(src, dst, rank=rank, all_gather=self.all_gather(rank), **options)


class Service:
    """A service with the three methods that every service has, and nothing else."""

    def __init__(self, world: World, rank: int) -> None:
        self._world, self._rank = world, rank
        self._recvs: list[tuple[torch.Tensor, int, Any]] = []
        self._sends: list[tuple[torch.Tensor, int, Any]] = []
        self.runs: list[tuple[int, int]] = []  # sends and receives of each run
        self.bytes: list[int] = []  # that each run received

    def submit_send(self, tensor: torch.Tensor, dest_rank: int, task_id: Any = None) -> None:
        assert tensor.is_contiguous() and not tensor.requires_grad
        self._sends.append((tensor, dest_rank, task_id))

    def submit_recv(self, tensor: torch.Tensor, src_rank: int, task_id: Any = None) -> None:
        assert tensor.is_contiguous() and not tensor.requires_grad
        self._recvs.append((tensor, src_rank, task_id))

    def run(self) -> None:
        sends, recvs = self._sends, self._recvs
        self._sends, self._recvs = [], []
        self.runs.append((len(sends), len(recvs)))
        self.bytes.append(sum(tensor.numel() * tensor.element_size() for tensor, _, _ in recvs))
        posted, counts = self._world.posted, {}
        with self._world.lock:
            for tensor, rank, task in sends:
                place = counts[rank, task] = counts.get((rank, task), -1) + 1
                posted[self._rank, rank, task, place] = tensor
        self._world.wait()
        counts = {}
        for tensor, rank, task in recvs:
            place = counts[rank, task] = counts.get((rank, task), -1) + 1
            source = posted[rank, self._rank, task, place]
            assert source.dtype == tensor.dtype and source.shape == tensor.shape
            tensor.copy_(source)
        self._world.wait()
        with self._world.lock:
            for key in [key for key in posted if key[0] == self._rank]:
                del posted[key]


# ------------------------------------------------------------------------------------------------------------ models


class Layout(NamedTuple):
    """A parallel layout on the ranks from ``first`` on."""

    tp: int = 1
    pp: int = 1
    ep: int = 1
    copies: int = 1
    first: int = 0

    @property
    def size(self) -> int:
        return self.tp * self.pp * self.ep * self.copies

    def place(self, rank: int) -> tuple[int, int, int, int]:
        """The stage, the copy, and the places in the expert and in the tensor parallel group."""
        at = rank - self.first
        return at // (self.tp * self.ep * self.copies), at // (self.tp * self.ep) % self.copies, at // self.tp % self.ep, at % self.tp

    def rank(self, p: int, c: int, e: int, t: int) -> int:
        return self.first + ((p * self.copies + c) * self.ep + e) * self.tp + t

    def groups(self, rank: int) -> Any:
        p, c, e, t = self.place(rank)
        return SimpleNamespace(
            tp=[self.rank(p, c, e, i) for i in range(self.tp)],
            dp=[self.rank(p, i, j, t) for i in range(self.copies) for j in range(self.ep)],
            ep=[self.rank(p, c, i, t) for i in range(self.ep)],
            pp=[self.rank(i, c, e, t) for i in range(self.pp)],
        )


LAYERS, HIDDEN, HEADS, FFN, VOCABULARY, EXPERTS = 4, 16, 4, 8, 24, 4


def weights(seed: int = 0) -> dict[str, torch.Tensor]:
    """The weights of a whole model: attention, and experts that a router with a bias chooses."""
    random = torch.Generator().manual_seed(seed)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random) * 0.3

    found = {"embedding.word_embeddings.weight": some(VOCABULARY, HIDDEN), "final_layernorm.weight": 1 + some(HIDDEN)}
    found["output_layer.weight"] = some(VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        at = f"decoder.layers.{layer}."
        found[at + "norm.weight"] = 1 + some(HIDDEN)
        found[at + "linear_qkv.weight"] = some(3 * HIDDEN, HIDDEN)
        found[at + "linear_proj.weight"] = some(HIDDEN, HIDDEN)
        found[at + "mlp.router.weight"] = some(EXPERTS, HIDDEN)
        found[at + "mlp.router.expert_bias"] = some(EXPERTS)
        for expert in range(EXPERTS):
            found[at + f"mlp.experts.linear_fc1.weight{expert}"] = some(2 * FFN, HIDDEN)
            found[at + f"mlp.experts.linear_fc2.weight{expert}"] = some(HIDDEN, FFN)
    return found


class Tree(torch.nn.Module):
    """A module whose tensors have the names that they are given."""

    def put(self, name: str, tensor: torch.Tensor, buffer: bool = False, **attributes: Any) -> None:
        at: torch.nn.Module = self
        *path, last = name.split(".")
        for part in path:
            if part not in at._modules:
                at.add_module(part, Tree())
            at = at._modules[part]
        if buffer:
            at.register_buffer(last, tensor)
            return
        at.register_parameter(last, torch.nn.Parameter(tensor))
        for key, value in attributes.items():
            setattr(at._parameters[last], key, value)


def model(layout: Layout, rank: int, whole: dict[str, torch.Tensor] | None, bias: torch.dtype = torch.float32) -> Tree:
    """What a rank has of a model, with the weights of a whole one, or with NaN."""
    p, _, e, t = layout.place(rank)
    found = Tree()
    found.pg_collection = layout.groups(rank)
    found.config = SimpleNamespace(num_moe_experts=EXPERTS)
    share = EXPERTS // layout.ep

    def put(name: str, local: str, cut: Callable[[torch.Tensor], torch.Tensor], **attributes: Any) -> None:
        tensor = cut(weights()[name] if whole is None else whole[name]).clone()
        dtype = bias if name.endswith("expert_bias") else torch.float32
        found.put(local, (tensor if whole is not None else torch.full_like(tensor, float("nan"))).to(dtype), name.endswith("expert_bias"), **attributes)

    def rows(x: torch.Tensor) -> torch.Tensor:
        return x.chunk(layout.tp, 0)[t]

    def columns(x: torch.Tensor) -> torch.Tensor:
        return x.chunk(layout.tp, 1)[t]

    def gated(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([half.chunk(layout.tp, 0)[t] for half in x.chunk(2, 0)])

    def same(x: torch.Tensor) -> torch.Tensor:
        return x

    tp = {"tensor_model_parallel": True, "partition_dim": 0, "partition_stride": 1}
    expert = {"allreduce": layout.ep == 1}
    if p == 0:
        put("embedding.word_embeddings.weight", "embedding.word_embeddings.weight", rows, **tp)
    for local, layer in enumerate(range(p * LAYERS // layout.pp, (p + 1) * LAYERS // layout.pp)):
        at, here = f"decoder.layers.{layer}.", f"decoder.layers.{local}."
        put(at + "norm.weight", here + "norm.weight", same)
        found.get_submodule(here.rstrip(".")).layer_number = layer + 1
        put(at + "linear_qkv.weight", here + "linear_qkv.weight", rows, **tp)
        put(at + "linear_proj.weight", here + "linear_proj.weight", columns, **{**tp, "partition_dim": 1})
        put(at + "mlp.router.weight", here + "mlp.router.weight", same)
        put(at + "mlp.router.expert_bias", here + "mlp.router.expert_bias", same)
        for k in range(share):
            put(at + f"mlp.experts.linear_fc1.weight{e * share + k}", here + f"mlp.experts.linear_fc1.weight{k}", gated, **{**tp, "partition_stride": 2}, **expert)
            put(at + f"mlp.experts.linear_fc2.weight{e * share + k}", here + f"mlp.experts.linear_fc2.weight{k}", columns, **{**tp, "partition_dim": 1}, **expert)
    if p == layout.pp - 1:
        put("final_layernorm.weight", "final_layernorm.weight", same)
        put("output_layer.weight", "output_layer.weight", rows, **tp)
    return found


def logits(layout: Layout, models: dict[int, Tree], tokens: torch.Tensor) -> torch.Tensor:
    """What the ranks compute together: columns of matrices are put side by side, and rows are summed."""
    with torch.no_grad():

        def of(name: str, p: int, e: int, t: int) -> torch.Tensor:
            return models[layout.rank(p, 0, e, t)].get_parameter(name)

        everyone = range(layout.tp)
        x = torch.cat([of("embedding.word_embeddings.weight", 0, 0, t) for t in everyone])[tokens]
        for p in range(layout.pp):
            for local in range(LAYERS // layout.pp):
                at = f"decoder.layers.{local}."
                h = F.layer_norm(x, (HIDDEN,), of(at + "norm.weight", p, 0, 0))
                attended = torch.zeros_like(x)
                for t in everyone:
                    qkv = (h @ of(at + "linear_qkv.weight", p, 0, t).T).unflatten(-1, (HEADS // layout.tp, 3, HIDDEN // HEADS))
                    q, k, v = (qkv[:, :, i].transpose(0, 1) for i in range(3))
                    heads = torch.softmax(q @ k.transpose(1, 2) / 2, -1) @ v
                    attended += heads.transpose(0, 1).flatten(1) @ of(at + "linear_proj.weight", p, 0, t).T
                x = x + attended
                first = models[layout.rank(p, 0, 0, 0)]
                gate = torch.softmax(x @ of(at + "mlp.router.weight", p, 0, 0).T + first.get_buffer(at + "mlp.router.expert_bias").float(), -1)
                mixed = torch.zeros_like(x)
                for expert in range(EXPERTS):
                    e, k = divmod(expert, EXPERTS // layout.ep)
                    for t in everyone:
                        g, u = (x @ of(at + f"mlp.experts.linear_fc1.weight{k}", p, e, t).T).chunk(2, -1)
                        mixed += gate[:, expert : expert + 1] * ((F.silu(g) * u) @ of(at + f"mlp.experts.linear_fc2.weight{k}", p, e, t).T)
                x = x + mixed
        x = F.layer_norm(x, (HIDDEN,), of("final_layernorm.weight", layout.pp - 1, 0, 0))
        return x @ torch.cat([of("output_layer.weight", layout.pp - 1, 0, t) for t in everyone]).T


def refit(world: World, sources: dict[int, Any], destinations: dict[int, Any], service: Callable[[int], Any] | None = None, **options: Any) -> list[Any]:
    """Plans and executes at all ranks, and returns their plans."""

    def one(rank: int) -> Any:
        src, dst = sources.get(rank), destinations.get(rank)
        plan = world.plan(rank, src, dst, num_experts=EXPERTS, **options)
        execute_reshard_plan(plan, src, dst, (service or world.service)(rank))
        return plan

    return world.run(one)
