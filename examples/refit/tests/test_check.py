"""What the check accepts, and what it does not, with the results of a run that never was."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from check import Different, check
from parallel import Part, inference_layout, run_together, small, training_layout

TASK, STEPS = small(30), 3
TRAINING, INFERENCE = training_layout(TASK.config), inference_layout(TASK.config)


def state_of(layout, rank, whole):
    return dict(Part(layout, rank).requires_grad_(False).fill(whole).named_parameters())


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def results():
    """The files that the processes of a run write, by name."""
    files, embeddings, served = {}, {}, []
    whole = TASK.weights()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for version in range(1, STEPS + 1):
            whole = {name: w + 0.01 * torch.randn(w.shape, generator=generator) for name, w in whole.items()}
            for rank in range(2):
                files[f"trainer-{rank}-version-{version}"] = state_of(TRAINING, rank, whole)
            parts = [Part(TRAINING, rank).fill(whole) for rank in range(2)]
            embeddings[version] = torch.cat([run_together(parts, batch) for batch in TASK.batches])
            parts = [Part(INFERENCE, rank).fill(whole) for rank in range(3)]
            for number, batch in enumerate(TASK.batches):
                served.append((version, number, run_together(parts, batch)))
        files["trainer-0-embeddings"] = embeddings
        for rank in range(3):
            files[f"inference-{rank}"] = {"weights": state_of(INFERENCE, rank, whole), "served": served}
    return files


@pytest.fixture
def checked(results, tmp_path):
    """Writes the files, some of them changed, and checks them."""

    def run(**changed):
        for name, content in results.items():
            torch.save(changed.get(name.replace("-", "_"), content), tmp_path / f"{name}.pt")
        return list(check(tmp_path, TASK, STEPS))

    return run


def clones(state):
    return {name: tensor.clone() for name, tensor in state.items()}


def test_all_is_as_it_must_be(checked):
    weights, bits, layouts = checked()
    assert "The 37 parameters" in weights and "after step 3, bit for bit" in weights
    assert f"The {STEPS * len(TASK.batches)} batches" in bits and "with 3 versions" in bits
    assert "limit 5e-04" in layouts


@pytest.mark.parametrize("name", ["attention.embeddings.words.weight", "ffn.nets.1.down.weight"])
def test_one_bit_of_the_weights(checked, results, name):
    weights = clones(results["inference-1"]["weights"])
    weights[name].view(torch.int32)[-1, -1] ^= 1
    with pytest.raises(Different, match=f"{name}: 1 of .* differ from the trainers' version 3"):
        checked(inference_1={**results["inference-1"], "weights": weights})


def test_a_copy_that_differs(checked, results):
    weights = clones(results["inference-2"]["weights"])
    weights["attention.norms.0.weight"].view(torch.int32)[5] ^= 1
    with pytest.raises(Different, match="attention.norms.0.weight is not the same"):
        checked(inference_2={**results["inference-2"], "weights": weights})


def everywhere(results, served):
    return {f"inference_{r}": {**results[f"inference-{r}"], "served": served} for r in range(3)}


def test_embeddings_of_another_version(checked, results):
    served = list(results["inference-0"]["served"])
    version, batch, _ = served[0]
    later = next(result for v, b, result in served if v == version + 1 and b == batch)
    served[0] = (version, batch, later)
    with pytest.raises(Different, match=f"batch {batch} with version 1 is .* from what one process computes"):
        checked(**everywhere(results, served))


def test_one_bit_of_an_embedding(checked, results):
    served = [(version, batch, result.clone()) for version, batch, result in results["inference-0"]["served"]]
    served[-1][2].view(torch.int32)[0, 0] ^= 1
    with pytest.raises(Different, match="with version 3 is .* from what one process computes"):
        checked(**everywhere(results, served))


@pytest.mark.parametrize("version", [0, STEPS + 1])
def test_a_version_that_was_never_offered(checked, results, version):
    served = results["inference-0"]["served"]
    with pytest.raises(Different, match=f"version {version} was served"):
        checked(**everywhere(results, [*served, (version, *served[0][1:])]))


def test_a_batch_that_the_last_version_did_not_embed(checked, results):
    with pytest.raises(Different, match="were not embedded with version 3"):
        checked(**everywhere(results, results["inference-0"]["served"][:-1]))


def test_processes_that_disagree(checked, results):
    served = results["inference-0"]["served"]
    with pytest.raises(Different, match="inference 0 and inference 2 have served different versions"):
        checked(inference_2={**results["inference-2"], "served": served[1:]})
    with pytest.raises(Different, match="inference 0 and inference 1 differ in batch 0 with version 1"):
        checked(inference_1={**results["inference-1"], "served": [(*served[0][:2], served[0][2] + 1), *served[1:]]})


@pytest.mark.parametrize("by", [1e-3, float("nan")])
def test_the_trainers_layout_gives_something_else(checked, results, by):
    embeddings = clones(results["trainer-0-embeddings"])
    embeddings[2][1, 7] += by
    with pytest.raises(Different, match="with version 2 is .* from the trainers' "):
        checked(trainer_0_embeddings=embeddings)
