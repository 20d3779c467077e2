"""Parts of stepvan under the names of the packages that programs were written for."""

import importlib
import subprocess
import sys

import pytest

import stepvan
from stepvan import compat

MODULES = {
    "core": {
        "core.resharding": "stepvan.resharding",
        "core.resharding.execution": "stepvan.resharding.execution",
        "core.resharding.copy_services.base": "stepvan.resharding.copy_services.base",
    },
    "etha": {"etha.tensor_bus": "stepvan.tensor_bus", "etha.tensor_bus.commands": "stepvan.tensor_bus.commands"},
    "push": {
        **{f"push.lib.{n}": f"stepvan.particles.{n}" for n in ("context_switch", "messages", "node_event_loop", "utils", "waitable")},
        **{f"push.{n}": f"stepvan.particles.{n}" for n in ("particle", "pfuture", "push")},
    },
    "unilab": {
        "unilab.ipc.replay_pipelines": "stepvan.replay_pipelines",
        "unilab.ipc.replay_pipelines.base": "stepvan.replay_pipelines.base",
        "unilab.ipc.replay_pipelines.transfer.factory": "stepvan.replay_pipelines.transfer.factory",
    },
}


@pytest.fixture(autouse=True)
def clean():
    yield
    compat.uninstall(*MODULES)
    assert compat._finder not in sys.meta_path and not any(m.partition(".")[0] in MODULES for m in sys.modules)


@pytest.mark.parametrize("package", MODULES)
def test_a_module_is_the_same_under_both_names(package):
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(package)
    compat.install(package)
    compat.install(package)
    for name, meant in MODULES[package].items():
        found = importlib.import_module(name)
        assert found is importlib.import_module(meant) is sys.modules[name]
        assert found.__name__ == meant == found.__spec__.name, "the module keeps its own name"
        parent, _, last = name.rpartition(".")
        assert getattr(sys.modules[parent], last) is found
    assert "see stepvan.compat" in sys.modules[package].__doc__
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{package}.nothing'"):
        importlib.import_module(f"{package}.nothing")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(next(iter(MODULES[package])) + ".nothing")
    compat.uninstall(package)
    compat.uninstall(package)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(package)


def test_a_program_of_each_original(tmp_path):
    """In a process of its own, where nothing of stepvan was imported before under its own name."""
    program = """
import stepvan.compat
stepvan.compat.install("etha", "push", "unilab", "core")
import etha.tensor_bus.commands
from push.lib.messages import ReceiveFuncMSG
from push.lib.context_switch import *
import unilab.ipc.replay_pipelines.transfer as transfer
from unilab.ipc.replay_pipelines.base import ReplayTickMetadata
from core.resharding.execution import execute_reshard_plan
import core.resharding
import stepvan.tensor_bus.commands, stepvan.particles.messages
assert etha.tensor_bus.commands.InitPair is stepvan.tensor_bus.commands.InitPair
assert ReceiveFuncMSG is stepvan.particles.messages.ReceiveFuncMSG and ParticleCache.__module__ == "stepvan.particles.context_switch"
assert core.resharding.execution.execute_reshard_plan is execute_reshard_plan
print(transfer.build_replay_transfer_backend.__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "build_replay_transfer_backend\n", done.stderr


@pytest.mark.parametrize("kind", ["package", "module", "namespace", "loaded"])
def test_what_is_installed_is_not_covered(kind, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    if kind == "module":
        (tmp_path / "push.py").write_text("WHOSE = 'theirs'\n")
    else:
        (tmp_path / "push").mkdir()
        (tmp_path / "push" / "lib.py").write_text("")
    if kind in ("package", "loaded"):
        (tmp_path / "push" / "__init__.py").write_text("WHOSE = 'theirs'\n")
    importlib.invalidate_caches()
    if kind == "loaded":
        importlib.import_module("push")
        monkeypatch.syspath_prepend("")
    with pytest.raises(stepvan.InvalidError, match=rf"install: push: there is a package of that name \({tmp_path}/push"):
        compat.install("etha", "push")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("etha")  # none of the names was installed
    found = importlib.import_module("push")
    assert kind == "namespace" or found.WHOSE == "theirs"
    for name in [m for m in sys.modules if m == "push" or m.startswith("push.")]:
        del sys.modules[name]


def test_a_package_that_an_original_would_not_hide(tmp_path, monkeypatch):
    """Another name of the path is imported as ever."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "pushed").mkdir()
    (tmp_path / "pushed" / "__init__.py").write_text("x = 3\n")
    compat.install("push")
    assert importlib.import_module("pushed").x == 3
    del sys.modules["pushed"]


def test_unknown_packages_are_refused():
    for wrong in ("torch", "megatron", "", 3):
        with pytest.raises(stepvan.InvalidError, match="stepvan has no part of it: give core, etha, push, unilab"):
            compat.install("etha", wrong)
    assert compat._finder not in sys.meta_path
    compat.install()
    compat.uninstall("torch")
