"""The FFN side of the connector."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .config import ConnectorConfig
from .keys import HIDDEN, push_key
from .metadata import AFDConnectorMetadata

Received = tuple[Tensor, AFDConnectorMetadata]


class FFNSide:
    """Receives activations in place and answers into the workers' memory. For one thread."""

    def __init__(self, node: Any, config: ConnectorConfig) -> None:
        self.node, self.config = node, config
        self.pending: deque[Received] = deque()
        ranks, keys = [], []
        for peer in node.peers:
            for stage in range(config.num_stages):
                ranks.append(peer.rank)
                keys.append(push_key(HIDDEN, stage, peer.rank))
        buffer = node.empty((len(keys), config.max_num_tokens, config.hidden_size), config.dtype)
        self.registration = node.server.register_recv_buffer(buffer, ranks, keys)

    def receive(self, timeout: float | None) -> Received:
        if not self.pending:
            self.pending.extend(self.merged(self.node.server.get_batch(timeout=timeout)))
        return self.pending.popleft()

    def received(self) -> Iterator[Received]:
        while self.pending:
            yield self.pending.popleft()
        for batch in self.node.server:
            self.pending.extend(self.merged(batch))
            while self.pending:
                yield self.pending.popleft()

    def merged(self, batch: list[Any]) -> list[Received]:
        """One tensor for each layer and stage: the rows of all requests for it, by worker."""
        groups: dict[tuple[int, int], list[tuple[Any, list[int]]]] = {}
        for request in batch:
            layer, seq_lens = self.header(request)
            stage = request.keys[0] >> 8 & 0xFF
            groups.setdefault((layer, stage), []).append((request, seq_lens))
        return [self.merge(layer, stage, members) for (layer, stage), members in groups.items()]

    def merge(self, layer: int, stage: int, members: list[tuple[Any, list[int]]]) -> Received:
        requests = [request for request, _ in members]
        parts = [request.tensors[0] for request in requests]
        hidden = parts[0] if len(parts) == 1 else torch.cat(parts)
        seq_lens = [n for _, lengths in members for n in lengths]
        metadata = AFDConnectorMetadata.create_ffn_metadata(layer, stage, seq_lens, hidden.dtype, hidden.device)
        metadata.worker_tokens = [len(part) for part in parts]
        metadata.recv_handle_list = requests
        return hidden, metadata

    def header(self, request: Any) -> tuple[int, list[int]]:
        """Layer and sequence lengths of a request; a worker may run with another configuration."""
        if len(request.tensors) != 2 or request.tensors[1].dtype != torch.int64:
            raise ValueError(f"worker {request.worker} does not use this connector: keys {request.keys}")
        hidden, header = request.tensors
        layer, *seq_lens = header.tolist()
        if hidden.dtype != self.config.dtype or tuple(hidden.shape) != (sum(seq_lens), self.config.hidden_size):
            raise ValueError(
                f"worker {request.worker} sent {hidden.dtype} {list(hidden.shape)} for sequences {seq_lens}; "
                f"this connector takes {self.config.dtype} of {self.config.hidden_size}"
            )
        return layer, seq_lens

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
        metadata.recv_handle_list = None
        for request, part in zip(requests, ffn_output.split(metadata.worker_tokens)):
            out = request.out(0)
            if out.data_ptr() != part.data_ptr():
                out.copy_(part)
            request.respond()

    @staticmethod
    def unanswered(metadata: AFDConnectorMetadata) -> list[Any]:
        if metadata.recv_handle_list is None:
            raise RuntimeError("this exchange was answered already, or its metadata is not of recv_attn_output")
        return metadata.recv_handle_list

    def close(self) -> None:
        self.registration.unregister()
