"""A connector that evaluates each line of its input as an expression, and prints the result.

python3 peer.py [NAME=VALUE of ConnectorConfig...]; started by test_deaths.py.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from afd import AFDConnectorMetadata, ConnectorConfig, StepvanAFDConnector

MS = 20000
ROLE = {"worker": "attention", "server": "ffn"}[os.environ["DMLC_ROLE"]]
options = {"hidden_size": 4, "max_num_tokens": 8, **{k: int(v) for k, v in (a.split("=") for a in sys.argv[1:])}}
connector = StepvanAFDConnector(ConnectorConfig(ROLE, **options))
received = []


def send(value, stage=0, layer=0, rows=2):
    """Sends rows of one value."""
    metadata = AFDConnectorMetadata.create_attention_metadata(layer, stage, rows, torch.float32)
    connector.send_attn_output(torch.full((rows, connector.config.hidden_size), float(value)), metadata)


def recv():
    """The value of all elements of an answer."""
    (value,) = set(connector.recv_ffn_output(timeout_ms=MS).flatten().tolist())
    return value


def take():
    """Receives: the first value of each worker's rows."""
    received.append(connector.recv_attn_output(timeout_ms=MS))
    hidden, metadata = received[-1]
    return [part[0, 0].item() for part in hidden.split(metadata.worker_tokens)]


def answer():
    """Answers what was taken last, with the tenfold."""
    hidden, metadata = received.pop()
    connector.send_ffn_output(hidden * 10, metadata)


connector.init_afd_connector()
print(connector.node, flush=True)
for line in sys.stdin:
    try:
        said = repr(eval(line))
    except Exception as error:
        said = f"{type(error).__name__} about {getattr(error, 'subject', '')!r}: {error}"
    print(said.replace("\n", " "), flush=True)
