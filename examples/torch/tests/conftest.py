"""Makes the example's packages importable, and finds the real model once."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).parents[1]
sys.path.insert(0, str(EXAMPLE))
AFD = EXAMPLE.parent / "afd"


@pytest.fixture(scope="session", autouse=True)
def no_gradients():
    torch.set_num_threads(1)
    with torch.no_grad():
        yield


@pytest.fixture(scope="session")
def files():
    """The real model's files. Without them the test is skipped, or fails where STEPVAN_TEST_REQUIRE_MODEL=1."""
    import minilm

    try:
        return minilm.fetch(os.environ.get("STEPVAN_TEST_MODEL_DIR"))
    except minilm.ModelUnavailable as error:
        if os.environ.get("STEPVAN_TEST_REQUIRE_MODEL") == "1":
            pytest.fail(f"STEPVAN_TEST_REQUIRE_MODEL=1, but: {error}")
        pytest.skip(f"NOT TESTED AGAINST THE REAL MODEL (STEPVAN_TEST_REQUIRE_MODEL=1 makes this a failure): {error}")


@pytest.fixture(scope="session")
def reference():
    """Sentences, token ids and embeddings that transformers on torch gave (examples/afd/testdata)."""
    raw = json.loads((AFD / "testdata" / "embeddings.json").read_text())
    vectors = torch.frombuffer(bytearray((AFD / "testdata" / "embeddings.f32").read_bytes()), dtype=torch.float32)
    raw["embeddings"] = vectors.view(len(raw["sentences"]), raw["width"])
    return raw
