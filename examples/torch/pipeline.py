"""The programs of the two sides: attention with several micro-batches in flight, and FFN."""

from __future__ import annotations

from collections import deque

import torch
from afd import AFDConnectorMetadata, StepvanAFDConnector
from minilm import AttentionHalf, Batch, FFNSlice
from torch import Tensor


class MicroBatch:
    """A batch on its way through the layers, in one stage of the connector."""

    def __init__(self, index: int, batch: Batch, stage: int, x: Tensor) -> None:
        self.index, self.batch, self.stage, self.x = index, batch, stage, x
        self.layer = 0
        self.attended = x


def run_attention(connector: StepvanAFDConnector, model: AttentionHalf, batches: list[Batch]) -> Tensor:
    """The embeddings of all sentences, ``[sentences, hidden]``, in order.

    While one micro-batch is at the servers the attention of the others is computed.
    """
    waiting = deque(enumerate(batches))
    flying: deque[MicroBatch] = deque()
    results: dict[int, Tensor] = {}

    def begin(stage: int) -> None:
        if waiting:
            index, batch = waiting.popleft()
            attend(MicroBatch(index, batch, stage, model.embed(batch)))

    def attend(m: MicroBatch) -> None:
        out = connector.attn_output_buffer(m.stage, m.batch.tokens)
        m.attended = out.copy_(model.attend(m.layer, m.x, m.batch))
        metadata = AFDConnectorMetadata.create_attention_metadata(m.layer, m.stage, m.batch.lengths, out.dtype)
        connector.send_attn_output(out, metadata)
        flying.append(m)

    for stage in range(connector.config.num_stages):
        begin(stage)
    while flying:
        m = flying.popleft()
        m.x = model.finish(m.layer, m.attended, connector.recv_ffn_output())
        m.layer += 1
        if m.layer < model.layers:
            attend(m)
        else:
            results[m.index] = model.pool(m.x, m.batch)
            begin(m.stage)
    return torch.cat([results[i] for i in range(len(batches))]) if batches else torch.empty(0, model.config.hidden)


def run_ffn(connector: StepvanAFDConnector, model: FFNSlice) -> int:
    """Answers until all workers have left; how many exchanges it were."""
    answered = 0
    for hidden, metadata in connector.received():
        out = model(metadata.layer_idx, hidden, connector.ffn_output_buffer(metadata))
        connector.send_ffn_output(out, metadata)
        answered += 1
    return answered
