"""For setup.py: builds libstepvan.so, and finds its version and the glibc that files need."""

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable
from email import message_from_string
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARCHIVED = HERE / "repository"
"""The part of the repository that a source archive contains."""
NOTE = "VERSION"
"""The file there with the version as Go spells it: nothing else there names it."""
REPOSITORY = ARCHIVED if ARCHIVED.is_dir() else HERE.parent
PROFILE = Path("cmd", "stepvan", "default.pgo")
"""What the compiler is told of the hot paths: see scripts/pgo.sh."""


def build(into: Path) -> Path:
    """Builds libstepvan.so; fast when nothing has changed."""
    if not (REPOSITORY / "capi" / "stepvan.h").is_file():
        raise SystemExit(
            f"stepvan is built from its repository, and {REPOSITORY} is not one: use a wheel, or `pip install ./python` in a clone"
        )
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise SystemExit("stepvan cannot be built for free-threaded CPython, which has no stable ABI for it: use an ordinary build")
    for tool, package in ((os.environ.get("GO", "go"), "Go, https://go.dev/dl"), (compiler(), "a C compiler, Debian's gcc and libc6-dev")):
        if shutil.which(tool) is None:
            raise SystemExit(f"stepvan cannot be built without {tool}: install {package}, or use a wheel")
    library = into / "libstepvan.so"
    environment = {**os.environ, "CGO_ENABLED": "1"}
    command = [os.environ.get("GO", "go"), "build", f"-pgo={REPOSITORY / PROFILE}", "-trimpath", "-buildmode=c-shared"]
    linker = ""
    if REPOSITORY == ARCHIVED:
        command.append("-buildvcs=false")  # a repository around it is a different one
        linker = f"-X github.com/stepvan/stepvan/internal/version.given={go_version(library)} "
    linker += f"-s -w -extldflags '-Wl,--version-script={REPOSITORY / 'capi' / 'exports.map'} -Wl,-soname,libstepvan.so'"
    subprocess.run([*command, "-ldflags", linker, "-o", str(library), "./capi"], cwd=REPOSITORY, env=environment, check=True)
    return library


def sources() -> list[Path]:
    """The files of the repository that the library is built from, for any architecture."""
    lists = ("GoFiles", "CgoFiles", "CFiles", "SFiles", "HFiles", "EmbedFiles", "IgnoredGoFiles", "IgnoredOtherFiles")
    each = "".join("{{range $.%s}}{{$.Dir}}/{{.}}\n{{end}}" % name for name in lists)
    ours = "{{with .Module}}{{if .Main}}" + each + "{{end}}{{end}}"
    command = [os.environ.get("GO", "go"), "list", "-deps", "-f", ours, "./capi"]
    environment = {**os.environ, "CGO_ENABLED": "1"}
    listed = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    found = {Path(file).relative_to(REPOSITORY) for file in listed if file and not file.endswith("_test.go")}
    return sorted(found | {PROFILE} | {Path(name) for name in ("go.mod", "go.sum", "LICENSE", "capi/exports.map", "capi/stepvan.h")})


def archive(into: Path, library: Path) -> None:
    """Copies the needed part of the repository into a source archive, with the version of the library."""
    for file in sources():
        target = into / ARCHIVED.name / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / file, target)
    (into / ARCHIVED.name / NOTE).write_text(go_version(library) + "\n")


def compiler() -> str:
    """The C compiler that Go will use."""
    return os.environ.get("CC", "gcc").split()[0]


def version_of(library: Path) -> str:
    """The version that Go has written into a library, as Python spells it. A source archive has its own."""
    if REPOSITORY == ARCHIVED:
        return message_from_string((HERE / "PKG-INFO").read_text())["Version"]
    return python_version(go_version(library))


def go_version(library: Path) -> str:
    """The version that Go has written into a library. A source archive has a file with it."""
    if REPOSITORY == ARCHIVED:
        return (ARCHIVED / NOTE).read_text().strip()
    text = subprocess.run(
        [os.environ.get("GO", "go"), "version", "-m", str(library)], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"^\s*mod\s+\S+\s+(\S+)", text, re.MULTILINE)
    return found.group(1) if found else "(devel)"


def python_version(version: str) -> str:
    """v1.2.3 becomes 1.2.3.

    A commit after it, v1.2.4-0.20260102030405-abcdef012345+dirty, becomes 1.2.4.dev20260102030405+abcdef012345.dirty.
    """
    base, _, build_part = version.removeprefix("v").partition("+")
    release, _, pre = base.partition("-")
    if not re.fullmatch(r"\d+\.\d+\.\d+", release):
        return "0.0.0.dev0"
    local = [build_part] if build_part else []
    if commit := re.fullmatch(r"(?:(?:.*\.)?0\.)?(\d{14})-([0-9a-f]{12})", pre):
        release += f".dev{commit.group(1)}"
        local.insert(0, commit.group(2))
    elif named := re.fullmatch(r"(alpha|beta|rc)\.?(\d+)", pre):
        release += named.group(1) + named.group(2)
    elif pre:
        local.insert(0, pre.replace("-", "."))
    return release + ("+" + ".".join(local) if local else "")


def glibc_need(files: Iterable[Path]) -> tuple[int, int]:
    """The newest version of the C library whose symbols the files ask for."""
    need = {(2, 17)}
    for file in files:
        need |= {(int(a), int(b)) for a, b in re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?=[.\0])", file.read_bytes())}
    return max(need)
