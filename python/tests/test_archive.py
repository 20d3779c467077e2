"""The source archive."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(FOLDER))
import build_library  # noqa: E402

needs_go = pytest.mark.skipif(shutil.which(os.environ.get("GO", "go")) is None, reason="there is no Go here")


@needs_go
def test_sources_are_those_of_all_architectures_without_tests():
    names = [str(path) for path in build_library.sources()]
    assert {"go.mod", "capi/stepvan.h", "capi/exports.map", "trace/ticks_amd64.s", "trace/ticks_arm64.s"} <= set(names)
    assert not [name for name in names if name.endswith("_test.go") or name.startswith("python/")]


def license_of(wheel):
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
        return files.read(name)


@needs_go
@pytest.mark.serial
@pytest.mark.timeout(240)
def test_an_archive_builds_without_the_repository(tmp_path):
    def run(*command, cwd):
        done = subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    built = {FOLDER.parent / name for name in (".git", ".cache", "build", "bin")} | {FOLDER / name for name in ("build", "dist")}
    shutil.copytree(FOLDER.parent, tmp_path / "clone", ignore=lambda at, names: {n for n in names if Path(at) / n in built})
    run("setup.py", "-q", "sdist", "-d", str(tmp_path), cwd=tmp_path / "clone" / "python")
    shutil.rmtree(tmp_path / "clone")
    (archive,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path)
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    note = unpacked / build_library.ARCHIVED.name / build_library.NOTE
    assert note.read_text() == "(devel)\n"  # the clone has no history
    note.write_text("v1.2.3-test\n")
    run("setup.py", "-q", "bdist_wheel", "-d", str(tmp_path), cwd=unpacked)
    (wheel,) = tmp_path.glob("*.whl")
    licence = (unpacked / "LICENSE").read_bytes()
    assert licence == license_of(wheel) and b"Apache License" in licence
    assert wheel.name.split("-")[:2] == archive.name.removesuffix(".tar.gz").split("-")
    with zipfile.ZipFile(wheel) as files:
        library = files.extract("stepvan/libstepvan.so", tmp_path)
    asks = "import ctypes, sys; f = ctypes.CDLL(sys.argv[1]).stepvan_version; f.restype = ctypes.c_char_p; print(f().decode())"
    assert run("-c", asks, library, cwd=tmp_path) == "v1.2.3-test\n"


@pytest.mark.parametrize(
    ("setting", "free_threaded", "says"),
    [("nowhere", 0, "use a wheel, or `pip install ./python` in a clone"), (None, 1, "use an ordinary build")],
)
def test_one_line_says_why_it_cannot_be_built(monkeypatch, tmp_path, setting, free_threaded, says):
    if setting:
        monkeypatch.setattr(build_library, "REPOSITORY", tmp_path / setting)
    monkeypatch.setattr(build_library.sysconfig, "get_config_var", {"Py_GIL_DISABLED": free_threaded}.get)
    with pytest.raises(SystemExit) as told:
        build_library.build(tmp_path)
    assert says in str(told.value) and "\n" not in str(told.value)
