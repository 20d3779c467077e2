"""Nodes in one process without stepvan: what the connector calls, and nothing more.

Everything happens when it is called: a push is in the server's queue, and in its
registered buffer, when ``push_pull`` returns. What stepvan refuses is an assertion.
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import torch


class Cluster:
    def __init__(self, workers: int, servers: int) -> None:
        self.servers = [Server(self, rank) for rank in range(servers)]
        self.workers = [Worker(self, rank) for rank in range(workers)]


class Node:
    stopped = False

    def __init__(self, peers: int, rank: int) -> None:
        self.peers = [SimpleNamespace(rank=i) for i in range(peers)]
        self.worker_rank = self.server_rank = rank

    def empty(self, shape, dtype):
        return torch.full(shape, 77, dtype=dtype)

    def stop(self):
        self.stopped = True


class Worker:
    def __init__(self, cluster: Cluster, rank: int) -> None:
        self.cluster, self.rank, self.unanswered = cluster, rank, set()
        self.node = Node(len(cluster.servers), rank)
        self.node.worker, self.node.server = self, None

    def push_pull(self, push, push_keys, pull, pull_keys, *, label, variable=False):
        assert len(push) == len(push_keys) and len(pull) == len(pull_keys) == len(self.cluster.servers)
        keys = [*push_keys, *pull_keys]
        assert len(set(keys)) == len(keys) and not self.unanswered & set(keys)
        self.unanswered |= set(keys)
        handle = Handle(self, keys, pull)
        for i, (server, result) in enumerate(zip(self.cluster.servers, pull)):
            server.deliver(Request(self.rank, push, list(push_keys), i, variable, handle))
        return handle


class Handle:
    lost: Exception | None = None

    def __init__(self, worker: Worker, keys: list[int], results: list[torch.Tensor]) -> None:
        self.worker, self.keys, self.results = worker, keys, results
        self.lengths_of = [None] * len(results)

    def answered(self, i, nbytes):
        self.lengths_of[i] = nbytes
        if self.done():
            self.worker.unanswered -= set(self.keys)

    def lose(self, error):
        """What a lost server does to an exchange."""
        self.lost = error
        self.worker.unanswered -= set(self.keys)

    def done(self):
        return self.lost is not None or None not in self.lengths_of

    def lengths(self):
        return self.lengths_of

    def wait(self, timeout):
        if not self.done():
            raise TimeoutError(f"not within {timeout} s")
        if self.lost:
            raise self.lost


class Request:
    def __init__(self, worker, tensors, keys, i, variable, handle) -> None:
        self.worker, self.tensors, self.keys = worker, tensors, keys
        self.i, self.variable, self.handle = i, variable, handle
        self.failures = []  # what the next responds raise

    @property
    def result(self):
        return self.handle.results[self.i]

    @property
    def pulls(self):
        r = self.result
        return [SimpleNamespace(shape=tuple(r.shape), dtype=r.dtype, nbytes=size(r), variable=self.variable)]

    def out(self, i):
        assert i == 0
        return self.result

    def respond(self, tensors=None):
        if self.failures:
            raise self.failures.pop(0)
        (answer,) = [self.result] if tensors is None else tensors
        assert size(answer) == size(self.result) or self.variable and size(answer) < size(self.result)
        self.result.view(-1).view(torch.uint8)[: size(answer)] = answer.reshape(-1).view(torch.uint8)
        self.handle.answered(self.i, size(answer))
        self.handle = None


def size(tensor):
    return tensor.numel() * tensor.element_size()


class Server:
    def __init__(self, cluster: Cluster, rank: int) -> None:
        self.queue, self.chunks = deque(), {}
        self.node = Node(0, rank)
        self.node.worker, self.node.server, self.cluster = None, self, cluster

    def attach(self):
        """Before the connector is made: the workers are known."""
        self.node.peers = [SimpleNamespace(rank=w.rank) for w in self.cluster.workers]
        return self.node

    def register_recv_buffer(self, tensor, ranks, keys):
        assert len(ranks) == len(keys)
        self.chunks = {pair: chunk[0] for pair, chunk in zip(zip(ranks, keys), tensor.chunk(len(keys)))}
        assert len(self.chunks) == len(keys)
        return SimpleNamespace(unregister=self.chunks.clear)

    def deliver(self, request: Request):
        tensors = []
        for tensor, key in zip(request.tensors, request.keys):
            chunk = self.chunks.get((request.worker, key))
            fits = chunk is not None and (tensor.dtype, tensor.shape[1:]) == (chunk.dtype, chunk.shape[1:])
            tensors.append(chunk[: len(tensor)].copy_(tensor) if fits else tensor.clone())
        request.tensors = tensors
        self.queue.append(request)

    def get_batch(self, timeout):
        if not self.queue:
            raise TimeoutError(f"nothing within {timeout} s")
        batch = sorted(self.queue, key=lambda r: r.worker)
        self.queue.clear()
        return batch

    def __iter__(self):
        while self.queue:
            yield self.get_batch(None)
