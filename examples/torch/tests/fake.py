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

    def push_pull(self, push, push_keys, pull, pull_keys, *, label):
        assert len(push) == len(push_keys) and len(pull) == len(pull_keys) == len(self.cluster.servers)
        keys = [*push_keys, *pull_keys]
        assert len(set(keys)) == len(keys) and not self.unanswered & set(keys)
        self.unanswered |= set(keys)
        handle = Handle(self, keys, len(pull))
        for server, result in zip(self.cluster.servers, pull):
            server.deliver(Request(self.rank, push, list(push_keys), result, handle))
        return handle


class Handle:
    def __init__(self, worker: Worker, keys: list[int], open_answers: int) -> None:
        self.worker, self.keys, self.open_answers = worker, keys, open_answers

    def answered(self):
        self.open_answers -= 1
        if self.done():
            self.worker.unanswered -= set(self.keys)

    def done(self):
        return self.open_answers == 0

    def wait(self, timeout):
        if not self.done():
            raise TimeoutError(f"not within {timeout} s")


class Request:
    def __init__(self, worker, tensors, keys, result, handle) -> None:
        self.worker, self.tensors, self.keys = worker, tensors, keys
        self.result, self.handle = result, handle

    def out(self, i):
        assert i == 0
        return self.result

    def respond(self):
        self.handle.answered()
        self.result = self.handle = None


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
            tensors.append(tensor.clone() if chunk is None else chunk[: len(tensor)].copy_(tensor))
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
