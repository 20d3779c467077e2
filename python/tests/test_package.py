"""What is installed."""

import importlib.metadata
import inspect
import os
import pickle
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import stepvan
from stepvan import _core

sys.path.insert(0, str(Path(__file__).parent.parent))
from build_library import glibc_need, python_version  # noqa: E402


@pytest.mark.parametrize(
    ("go", "python"),
    [
        ("v1.2.3", "1.2.3"),
        ("v1.2.3-rc.1", "1.2.3rc1"),
        ("v0.0.0-20261121173539-e41edcbce30a", "0.0.0.dev20261121173539+e41edcbce30a"),
        ("v1.2.4-0.20261121173539-e41edcbce30a+dirty", "1.2.4.dev20261121173539+e41edcbce30a.dirty"),
        ("v1.2.3+dirty", "1.2.3+dirty"),
        ("(devel)", "0.0.0.dev0"),
    ],
)
def test_versions(go, python):
    assert python_version(go) == python


def test_the_version_is_that_of_the_package_and_of_go():
    assert stepvan.__version__ == python_version(_core.version()).split("+")[0] or "+" in stepvan.__version__
    try:
        installed = importlib.metadata.version("stepvan")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("not installed, but on the path")
    assert stepvan.__version__ == installed


def test_everything_is_documented():
    for name in stepvan.__all__:
        thing = getattr(stepvan, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                    assert inspect.getdoc(value), f"{name}.{member}"


@pytest.mark.parametrize("kind", [stepvan.Node, stepvan.Peer, stepvan.Pull, stepvan.Trace])
def test_attributes_are_told_of_where_help_shows_them(kind):
    names = [name for name in inspect.get_annotations(kind) if not name.startswith("_")]
    assert names and not [name for name in names if not re.search(rf"\b{name}\b", kind.__doc__)]


def test_a_traceback_names_errors_as_programs_do():
    for name in stepvan.__all__:
        thing = getattr(stepvan, name)
        if name.endswith("Error"):
            assert traceback.format_exception_only(thing("text")) == [f"stepvan.{name}: text\n"]
            assert type(pickle.loads(pickle.dumps(thing("text")))) is thing


def test_types_of_the_extension_are_declared():
    stub = (Path(stepvan.__file__).parent / "_core.pyi").read_text()
    declared = set(re.findall(r"^(?:def|class) (\w+)", stub, re.MULTILINE))
    assert declared == {name for name in dir(_core) if not name.startswith("__")}
    assert (Path(stepvan.__file__).parent / "py.typed").exists()


def test_the_extension_keeps_to_the_limited_api():
    assert _core.__file__.endswith("_core.abi3.so")
    needed = subprocess.run(["readelf", "-d", _core.__file__], capture_output=True, text=True, check=True).stdout
    assert "libpython" not in needed
    assert "libstepvan.so" not in needed, "the library would be loaded at import"
    assert (Path(_core.__file__).parent / "libstepvan.so").exists()
    assert glibc_need(Path(_core.__file__).parent.glob("*.so")) >= (2, 17)


def test_a_second_interpreter_is_refused():
    code = """
try:
    import _interpreters as interpreters
except ImportError:  # before CPython 3.13
    import _xxsubinterpreters as interpreters
import stepvan
i = interpreters.create()
try:
    told = interpreters.run_string(i, "import stepvan")
except Exception as error:
    told = error
print("subinterpreters" in str(told), told)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout.startswith("True "), done.stdout + done.stderr


def test_the_wheel_in_a_clean_environment(tmp_path):
    wheel = os.environ.get("STEPVAN_WHEEL")
    if wheel is None:
        pytest.skip("STEPVAN_WHEEL names no wheel: make pytest builds one")
    assert re.fullmatch(r"stepvan-.*-cp311-abi3-manylinux_\d+_\d+_\w+\.whl", Path(wheel).name)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=60)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel]
    subprocess.run(install, check=True, timeout=120, env={"PATH": "/usr/bin:/bin"})
    (licence,) = (tmp_path / "venv").glob("lib/python*/site-packages/stepvan-*.dist-info/licenses/LICENSE")
    assert "Apache License" in licence.read_text() and not licence.is_symlink()
    program = tmp_path / "program.py"
    text = """
import stepvan, numpy as np
with stepvan.Node() as node:
    if node.role == "worker":
        x, y = np.arange(1000.0), np.zeros(1000)
        node.worker.push_pull([x], [1], [y], [2]).wait(20)
        print("equal", (y == x * 2).all())
    elif node.role == "server":
        for batch in node.server:
            for request in batch:
                request.respond([request.tensors[0] * 2])
"""
    program.write_text(text)
    command = [tmp_path / "venv" / "bin" / "stepvan", "launch", "-n", "1w1s", "--", python, program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0 and "equal True" in done.stdout + done.stderr, done.stdout + done.stderr
