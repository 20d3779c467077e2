"""What setup.py needs to know of Go: builds libstepvan.so, tells its version, and which glibc files need."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


def build(into: Path) -> Path:
    """Builds libstepvan.so, which takes a moment when nothing has changed."""
    if not (REPOSITORY / "capi" / "stepvan.h").is_file():
        raise SystemExit(
            f"stepvan is built from its repository, and {REPOSITORY} is none: use a wheel, or `pip install ./python` in a clone"
        )
    for tool, package in ((os.environ.get("GO", "go"), "Go, https://go.dev/dl"), (compiler(), "a C compiler, Debian's gcc and libc6-dev")):
        if shutil.which(tool) is None:
            raise SystemExit(f"stepvan cannot be built without {tool}: install {package}, or use a wheel")
    library = into / "libstepvan.so"
    environment = {**os.environ, "CGO_ENABLED": "1"}
    command = [os.environ.get("GO", "go"), "build", "-trimpath", "-buildmode=c-shared"]
    linker = f"-s -w -extldflags '-Wl,--version-script={REPOSITORY / 'capi' / 'exports.map'} -Wl,-soname,libstepvan.so'"
    subprocess.run([*command, "-ldflags", linker, "-o", str(library), "./capi"], cwd=REPOSITORY, env=environment, check=True)
    return library


def compiler() -> str:
    """The C compiler that Go will use."""
    return os.environ.get("CC", "gcc").split()[0]


def version_of(library: Path) -> str:
    """The version that Go has written into a library, as Python spells it."""
    text = subprocess.run(
        [os.environ.get("GO", "go"), "version", "-m", str(library)], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"^\s*mod\s+\S+\s+(\S+)", text, re.MULTILINE)
    return python_version(found.group(1) if found else "(devel)")


def python_version(version: str) -> str:
    """v1.2.3 is 1.2.3; a commit after it, v1.2.4-0.20260102030405-abcdef012345+dirty, is 1.2.4.dev20260102030405+abcdef012345.dirty."""
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
