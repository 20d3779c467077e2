#!/usr/bin/env python3
"""Makes embeddings.json and embeddings.f32 with the published implementation.

  python3 make_fixture.py MODEL_DIR   # holds config.json, model.safetensors, tokenizer.json

The program takes every eighth sentence of sentences.txt, one at a time. It runs the
tokenizers library and the BertModel of transformers on torch, in float32 on one CPU
thread. Mean pooling over the tokens and division by the length follow, as the model's
card prescribes. The file embeddings.f32 holds the vectors one after the other,
little-endian. The file embeddings.json holds their sentences, token ids and this origin.
"""
import json
import sys
from pathlib import Path

import numpy
import safetensors
import tokenizers
import torch
import transformers
from transformers import BertModel

HERE = Path(__file__).parent
STRIDE = 8


def sentences():
    lines = (HERE / "sentences.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def embed(model, ids):
    batch = torch.tensor([ids])
    with torch.no_grad():
        states = model(input_ids=batch, attention_mask=torch.ones_like(batch)).last_hidden_state
    return torch.nn.functional.normalize(states.mean(dim=1), p=2, dim=1)[0].numpy()


def main():
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    model = BertModel.from_pretrained(folder, local_files_only=True).eval()
    chosen = [{"text": s, "ids": tokenizer.encode(s).ids} for s in sentences()[::STRIDE]]
    vectors = numpy.stack([embed(model, c["ids"]) for c in chosen])
    vectors.astype("<f4").tofile(HERE / "embeddings.f32")
    libraries = [torch, transformers, tokenizers, safetensors, numpy]
    origin = ", ".join(f"{m.__name__} {m.__version__}" for m in libraries)
    rows = ",\n".join(json.dumps(c) for c in chosen)
    head = json.dumps({"origin": origin, "model": "all-MiniLM-L6-v2", "width": vectors.shape[1]})
    (HERE / "embeddings.json").write_text(head[:-1] + ',\n"sentences": [\n' + rows + "\n]}\n")


main()
