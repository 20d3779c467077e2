"""The FFN side of the connector."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .config import ConnectorConfig
from .errors import BadRequestError
from .incoming import header, refuse
from .keys import HIDDEN, push_key
from .metadata import AFDConnectorMetadata

Received = tuple[Tensor, AFDConnectorMetadata]


class FFNSide:
    """Receives activations in place and answers into the workers' memory. For one thread."""

    def __init__(self, node: Any, config: ConnectorConfig) -> None:
        self.node, self.config = node, config
        self.pending: deque[Received | BadRequestError] = deque()
        ranks, keys = [], []
        for peer in node.peers:
            for stage in range(config.num_stages):
                ranks.append(peer.rank)
                keys.append(push_key(HIDDEN, stage, peer.rank))
        buffer = node.empty((len(keys), config.max_num_tokens, config.hidden_size), config.dtype)
        self.registration = node.server.register_recv_buffer(buffer, ranks, keys)

    def receive(self, timeout: float | None) -> Received:
        end = None if timeout is None else time.monotonic() + timeout
        while not self.pending:
            self.take(self.node.server.get_batch(timeout=None if end is None else max(end - time.monotonic(), 0)))
        return self.next()

    def received(self) -> Iterator[Received]:
        while self.pending:
            yield self.next()
        for batch in self.node.server:
            self.take(batch)
            while self.pending:
                yield self.next()

    def next(self) -> Received:
        first = self.pending.popleft()
        if isinstance(first, BadRequestError):
            raise first
        return first

    def take(self, batch: list[Any]) -> None:
        """Makes one tensor of the rows of all requests for a layer and stage, by worker. Refuses bad requests."""
        groups: dict[tuple[int, int], list[tuple[Any, list[int]]]] = {}
        refusals = []
        for request in batch:
            try:
                layer, stage, seq_lens = header(request, self.config)
            except ValueError as why:
                refusals.append(refuse(request, str(why)))
            else:
                groups.setdefault((layer, stage), []).append((request, seq_lens))
        self.pending.extend(self.merge(layer, stage, members) for (layer, stage), members in groups.items())
        self.pending.extend(error for error in refusals if error)

    def merge(self, layer: int, stage: int, members: list[tuple[Any, list[int]]]) -> Received:
        requests = [request for request, _ in members]
        parts = [request.tensors[0] for request in requests]
        hidden = parts[0] if len(parts) == 1 else torch.cat(parts)
        seq_lens = [n for _, lengths in members for n in lengths]
        metadata = AFDConnectorMetadata.create_ffn_metadata(layer, stage, seq_lens, hidden.dtype, hidden.device)
        metadata.worker_tokens = [len(part) for part in parts]
        metadata.recv_handle_list = requests
        return hidden, metadata

    def output(self, metadata: AFDConnectorMetadata) -> Tensor:
        requests = self.unanswered(metadata)
        if len(requests) == 1:
            return requests[0].out(0)
        return torch.empty(metadata.total_tokens, self.config.hidden_size, dtype=self.config.dtype)

    def send(self, ffn_output: Tensor, metadata: AFDConnectorMetadata) -> None:
        requests = self.unanswered(metadata)
        want = (metadata.total_tokens, self.config.hidden_size)
        if tuple(ffn_output.shape) != want or ffn_output.dtype != self.config.dtype:
            raise ValueError(
                f"ffn_output is {ffn_output.dtype} {list(ffn_output.shape)}; "
                f"{self.config.dtype} {list(want)} is asked for"
            )
        failure = None
        for i, part in enumerate(ffn_output.split(metadata.worker_tokens)):
            try:
                self.answer(requests, i, part)
            except Exception as error:  # of one worker: the others get theirs
                failure = failure or error
        if failure:
            raise failure
        metadata.recv_handle_list = None

    @staticmethod
    def answer(requests: list[Any], i: int, part: Tensor) -> None:
        """Answers request ``i``, unless it was; with an exception it is still to be answered."""
        request = requests[i]
        if request is None:
            return
        out = request.out(0)
        if out.data_ptr() != part.data_ptr():
            out.copy_(part)
        request.respond()
        requests[i] = None

    @staticmethod
    def unanswered(metadata: AFDConnectorMetadata) -> list[Any]:
        if metadata.recv_handle_list is None:
            raise RuntimeError("this exchange was answered already, or its metadata is not of recv_attn_output")
        return metadata.recv_handle_list

    def close(self) -> None:
        self.registration.unregister()
