"""The torch modules against the published model, and the two halves against the whole."""

from __future__ import annotations

import json
import re

import pytest
import torch
from conftest import AFD
from minilm import Batch, Config, MiniLM, Tokenizer, pack, sentences, share
from minilm.ffn import FeedForward, FFNSlice
from minilm.files import FOLDER, REQUIREMENT, SUMS
from minilm.weights import load_attention, load_ffn, load_whole

SMALL = Config(vocabulary=50, positions=16, types=2, hidden=12, intermediate=20, heads=3, layers=2, norm_eps=1e-12)


def test_embeddings_equal_those_of_transformers(files, reference):
    model = load_whole(files)
    batches = pack((s["ids"] for s in reference["sentences"]), 256)
    got = torch.cat([model(b) for b in batches])
    want = reference["embeddings"]
    assert got.shape == want.shape
    cosine = torch.cosine_similarity(got.double(), want.double())
    difference = (got - want).abs().max().item()
    print(f"least cosine {cosine.min():.9f}, largest difference {difference:.2g}")
    assert cosine.min() >= 0.9999999
    assert difference < 1e-6


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_halves_equal_the_whole(files, parts):
    model, attention = load_whole(files), load_attention(files)
    slices = [load_ffn(files, part, parts) for part in range(parts)]
    tokenizer = Tokenizer(files.tokenizer)
    (batch,) = pack((tokenizer.encode(s) for s in sentences()[:6]), 256)
    x = attention.embed(batch)
    for layer in range(attention.layers):
        attended = attention.attend(layer, x, batch)
        x = attention.finish(layer, attended, sum(s(layer, attended) for s in slices))
    assert (attention.pool(x, batch) - model(batch)).abs().max() < 1e-6


def test_a_sentence_does_not_see_its_neighbours():
    torch.manual_seed(1)
    model = MiniLM(SMALL).eval()
    alone = Batch([5, 6, 7], [3])
    together = Batch([9, 8, 5, 6, 7, 3], [2, 3, 1])
    torch.testing.assert_close(model(together)[1], model(alone)[0])


@pytest.mark.parametrize("parts", [1, 2, 3, 20])
def test_parts_of_a_net_add_up(parts):
    torch.manual_seed(1)
    whole, x = FeedForward(SMALL), torch.randn(5, SMALL.hidden)
    total = torch.zeros(5, SMALL.hidden)
    for part in range(parts):
        net = FeedForward(SMALL, part, parts)
        net.up.weight.copy_(whole.up.weight[net.cut])
        net.up.bias.copy_(whole.up.bias[net.cut])
        net.down.weight.copy_(whole.down.weight[:, net.cut])
        if part == 0:
            net.down.bias.copy_(whole.down.bias)
        out = torch.empty(5, SMALL.hidden)
        assert net(x, out) is out
        assert torch.equal(net(x), out)
        total += out
    torch.testing.assert_close(total, whole(x))


@pytest.mark.parametrize(("part", "parts"), [(-1, 2), (2, 2), (0, 21), (0, 0)])
def test_impossible_parts(part, parts):
    with pytest.raises(ValueError, match="part"):
        FFNSlice(SMALL, part, parts)


def test_tokenizer_equals_reference(files, reference):
    tokenizer = Tokenizer(files.tokenizer)
    cases = json.loads((AFD / "tokenizer" / "testdata" / "cases.json").read_text())
    assert len(cases) > 20
    for case in cases:
        assert tokenizer.encode(case["text"]) == case["full"], case["text"]
    for sentence in reference["sentences"]:
        assert tokenizer.encode(sentence["text"]) == sentence["ids"], sentence["text"]


def test_pack():
    assert pack([[1, 2], [3], [4, 5, 6], [7]], 3) == [Batch([1, 2, 3], [2, 1]), Batch([4, 5, 6], [3]), Batch([7], [1])]
    assert pack([], 3) == []
    for bad in ([], [1, 2, 3, 4]):
        with pytest.raises(ValueError, match="sentence 1"):
            pack([[1], bad], 3)


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_shares_are_everything_in_order(workers):
    items = list(range(17))
    assert [i for rank in range(workers) for i in share(items, rank, workers)] == items


def test_the_model_is_that_of_the_go_example():
    release = (AFD / "modelfiles" / "release.go").read_text()
    quoted = "".join(re.findall(r'"([^"]*)"', release))
    for want in (REQUIREMENT, FOLDER, *SUMS, *SUMS.values()):
        assert want in quoted
