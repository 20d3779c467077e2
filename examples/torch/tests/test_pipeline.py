"""The two programs on a small model, with a server that answers at once."""

from __future__ import annotations

import fake
import pytest
import torch
from afd import ConnectorConfig, StepvanAFDConnector
from minilm import Config, MiniLM, pack
from pipeline import run_attention, run_ffn

SMALL = Config(vocabulary=50, positions=16, types=2, hidden=12, intermediate=20, heads=3, layers=3, norm_eps=1e-12)


class Inline(fake.Server):
    """Answers each push as soon as it is delivered."""

    def deliver(self, request):
        super().deliver(request)
        run_ffn(self.connector, self.model)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
def test_split_equals_whole(count):
    torch.manual_seed(1)
    model = MiniLM(SMALL).eval()
    generator = torch.Generator().manual_seed(2)
    texts = [torch.randint(50, (1 + i * 5 % 8,), generator=generator).tolist() for i in range(2 * count)]
    batches = pack(texts, 9)
    cluster = fake.Cluster(1, 1)
    (server,) = cluster.servers = [Inline(cluster, 0)]
    cluster.workers = [fake.Worker(cluster, 0)]
    server.model = model.ffn
    server.connector = StepvanAFDConnector(ConnectorConfig("ffn", SMALL.hidden, 9), server.attach())
    server.connector.init_afd_connector()
    with StepvanAFDConnector(ConnectorConfig("attention", SMALL.hidden, 9), cluster.workers[0].node) as attention:
        got = run_attention(attention, model.attention, batches)
    assert got.shape == (len(texts), SMALL.hidden)
    for embedding, ids in zip(got, texts):
        torch.testing.assert_close(embedding, model(*pack([ids], 9))[0])
