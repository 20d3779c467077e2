"""Attention or FFN of a toy model over the connector, as DMLC_ROLE says; started by test_processes.py.

Every worker sends micro-batches of random lengths for several layers, with several
stages in flight. It checks each answer: server s gives (s + 1) * (x + layer).
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from afd import AFDConnectorMetadata, ConnectorConfig, StepvanAFDConnector

HIDDEN, TOKENS, STAGES, LAYERS, ROUNDS = 48, 40, 3, 4, 25


def main() -> None:
    policy = os.environ["STEPVAN_BATCH"]
    role = {"worker": "attention", "server": "ffn"}[os.environ["DMLC_ROLE"]]
    config = ConnectorConfig(role, HIDDEN, TOKENS, torch.bfloat16, num_stages=STAGES, max_num_seqs=4)
    with StepvanAFDConnector(config) as connector:
        if role == "ffn":
            ffn(connector, int(os.environ["DMLC_NUM_WORKER"]) if policy == "lockstep" else None)
        else:
            attention(connector, random.Random(connector.node.worker_rank))


def ffn(connector: StepvanAFDConnector, workers: int | None) -> None:
    rows = 0
    for x, metadata in connector.received():
        if workers:
            assert len(metadata.worker_tokens) == workers, metadata
        out = connector.ffn_output_buffer(metadata)
        torch.mul(x + metadata.layer_idx, connector.node.server_rank + 1, out=out)
        connector.send_ffn_output(out, metadata)
        rows += metadata.total_tokens
    print(f"answered {rows} rows")


def attention(connector: StepvanAFDConnector, rng: random.Random) -> None:
    factor = sum(s + 1 for s in range(int(os.environ["DMLC_NUM_SERVER"])))
    rows = 0
    for _ in range(ROUNDS):
        for layer in range(LAYERS):
            flying = []
            for stage in range(STAGES):
                lengths = [rng.randint(1, 10) for _ in range(rng.randint(1, 4))]
                x = torch.randint(-8, 9, (sum(lengths), HIDDEN)).to(torch.bfloat16)  # exact in bfloat16
                metadata = AFDConnectorMetadata.create_attention_metadata(layer, stage, lengths, x.dtype)
                flying.append((connector.send_attn_output(x, metadata), x))
            for sent, x in flying:
                got = connector.recv_ffn_output(sent, timeout_ms=30000)
                assert torch.equal(got, factor * (x + layer)), f"layer {layer}: {got} for {x}"
                rows += len(x)
    print(f"checked {rows} rows")


main()
