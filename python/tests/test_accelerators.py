"""Tensors of torch that say that an accelerator holds them. No test here has one."""

import os
import pathlib
import shutil
import subprocess
import sys
import types

import pytest
import torch

import stepvan


class Elsewhere(torch.Tensor):
    """A tensor that says that the second device of CUDA holds it."""

    is_cpu = False
    device = types.SimpleNamespace(type="cuda", index=1)


@pytest.fixture
def worker(cluster):
    return cluster().workers[0].worker


@pytest.fixture
def asked(monkeypatch):
    """Has torch say that a stream is the current one. Returns the devices that it was asked about."""
    devices = []

    def current_stream(device):
        devices.append(device)
        return types.SimpleNamespace(cuda_stream=0, synchronize=lambda: None)

    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    return devices


def elsewhere():
    return torch.zeros(4).as_subclass(Elsewhere)


def test_no_driver_is_not_supported(worker, asked):
    """The machine of the tests has no libcuda, and the error says so."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a device of CUDA")
    for push, pull in ([elsewhere()], []), ([], [elsewhere()]):
        with pytest.raises(stepvan.NotSupportedError, match="cuda:1 holds it: cuda: ") as info:
            worker.push_pull(push, list(range(len(push))), pull, list(range(len(pull))))
        assert "libcuda.so.1" in str(info.value)
    assert asked == [1, 1]


def test_the_stream_cannot_be_read(worker, monkeypatch):
    def current_stream(device):
        raise RuntimeError("no stream")

    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    with pytest.raises(RuntimeError, match="no stream"):
        worker.push_pull([elsewhere()], [1], [], [])


def test_no_driver_registers_it(cluster, asked):
    if torch.cuda.is_available():
        pytest.skip("this machine has a device of CUDA")
    c = cluster()
    for register in c.workers[0].worker.register, c.servers[0].server.register:
        with pytest.raises(stepvan.NotSupportedError, match="cuda:1 holds it: cuda: "):
            register(elsewhere())
    with pytest.raises(stepvan.NotSupportedError, match="cuda:1 holds it: cuda: "):
        c.servers[0].server.register_recv_buffer(elsewhere(), [0], [1])


FAKE = pathlib.Path(__file__).parents[2] / "device/cuda/testdata/fake.c"


def test_with_a_library_that_stands_for_libcuda(tmp_path):
    """Runs cuda_tensors.py in a process of its own."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-std=gnu11", "-shared", "-fPIC", "-o", library, FAKE], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "cuda_tensors.py"]
    subprocess.run(command, env=environment, cwd=pathlib.Path(__file__).parent, check=True)
