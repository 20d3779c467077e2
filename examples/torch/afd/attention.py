"""The attention side of the connector."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from .config import ConnectorConfig
from .errors import RefusedError
from .keys import HEADER, HIDDEN, pull_key, push_key
from .metadata import AFDConnectorMetadata


class Stage:
    """The buffers of one stage, in memory that the servers can reach without a copy."""

    def __init__(self, node: Any, config: ConnectorConfig, index: int, servers: int) -> None:
        shape = (config.max_num_tokens, config.hidden_size)
        self.hidden = node.empty(shape, config.dtype)
        self.header = node.empty((1 + config.max_num_seqs,), torch.int64)
        self.results = [node.empty(shape, config.dtype) for _ in range(servers)]
        rank = node.worker_rank
        self.push_keys = [push_key(HIDDEN, index, rank), push_key(HEADER, index, rank)]
        self.pull_keys = [pull_key(index, rank, server) for server in range(servers)]
        self.sent: Sent | None = None


class Sent:
    """An exchange in flight: what ``send_attn_output`` returns and ``recv_ffn_output`` takes."""

    def __init__(self, handle: Any, stage: Stage, metadata: AFDConnectorMetadata) -> None:
        self.handle, self.stage, self.metadata = handle, stage, metadata

    def done(self) -> bool:
        """Whether ``recv_ffn_output`` would return at once."""
        return self.handle.done()


class AttentionSide:
    """Sends activations to all servers of the worker and adds what they answer. For one thread."""

    def __init__(self, node: Any, config: ConnectorConfig) -> None:
        self.node, self.config = node, config
        self.ranks = [peer.rank for peer in node.peers]
        self.stages = [Stage(node, config, i, len(self.ranks)) for i in range(config.num_stages)]
        self.order: deque[Sent] = deque()

    def send(self, hidden_states: Tensor, metadata: AFDConnectorMetadata) -> Sent:
        self.check(hidden_states, metadata)
        stage = self.stages[metadata.stage_idx]
        rows = metadata.total_tokens
        push = [stage.hidden[:rows], stage.header[: 1 + metadata.num_sequences]]
        if hidden_states.data_ptr() != stage.hidden.data_ptr():
            push[0].copy_(hidden_states)
        push[1].copy_(torch.tensor([metadata.layer_idx, *metadata.seq_lens]))
        pull = [result[:rows] for result in stage.results]
        handle = self.node.worker.push_pull(
            push, stage.push_keys, pull, stage.pull_keys, variable=True, label=f"layer {metadata.layer_idx}"
        )
        stage.sent = Sent(handle, stage, metadata)
        self.order.append(stage.sent)
        return stage.sent

    def check(self, hidden_states: Tensor, metadata: AFDConnectorMetadata) -> None:
        c = self.config
        if not 0 <= metadata.stage_idx < c.num_stages:
            raise ValueError(f"stage {metadata.stage_idx}: the connector has {c.num_stages}")
        if metadata.total_tokens > c.max_num_tokens or metadata.num_sequences > c.max_num_seqs:
            raise ValueError(
                f"{metadata.num_sequences} sequences of {metadata.total_tokens} tokens: "
                f"the connector takes {c.max_num_seqs} of {c.max_num_tokens}"
            )
        want = (metadata.total_tokens, c.hidden_size)
        if tuple(hidden_states.shape) != want or hidden_states.dtype != c.dtype:
            raise ValueError(
                f"hidden_states is {hidden_states.dtype} {list(hidden_states.shape)}; "
                f"the metadata and the connector say {c.dtype} {list(want)}"
            )
        if self.stages[metadata.stage_idx].sent:
            raise RuntimeError(f"stage {metadata.stage_idx} is in flight: call recv_ffn_output first")

    def receive(self, sent: Sent | None, timeout: float | None) -> Tensor:
        if sent is None:
            if not self.order:
                raise RuntimeError("nothing is in flight: call send_attn_output first")
            sent = self.order[0]
        if sent.stage.sent is not sent:
            raise RuntimeError("this exchange was received already")
        try:
            sent.handle.wait(timeout)
        except TimeoutError:
            raise  # the exchange stays in flight
        except Exception:
            self.ended(sent)  # with a server that is lost: the stage is free
            raise
        self.ended(sent)
        first, *others = self.results(sent)
        for other in others:
            first += other
        return first

    def ended(self, sent: Sent) -> None:
        self.order.remove(sent)
        sent.stage.sent = None

    def results(self, sent: Sent) -> list[Tensor]:
        """The answers of all servers. One that is not whole is the reason why that server has refused."""
        results = [result[: sent.metadata.total_tokens] for result in sent.stage.results]
        for server, (result, got) in enumerate(zip(results, sent.handle.lengths())):
            if got < result.numel() * result.element_size():
                why = bytes(result.reshape(-1).view(torch.uint8)[:got].tolist()).decode(errors="replace")
                raise RefusedError(f"server {self.ranks[server]} has refused stage {sent.metadata.stage_idx}: {why}")
        return results

    def buffer(self, stage_idx: int, rows: int) -> Tensor:
        return self.stages[stage_idx].hidden[:rows]

    def close(self) -> None:
        self.stages.clear()
