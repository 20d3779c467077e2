"""Writes recordings: a line of JSON that says what has made the recording, and then a line for each case."""

import argparse
import importlib.metadata
import json
import os
import sys


def arguments(doc, seed, cases, most):
    """What every generator is told. The recordings that are committed have the defaults."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--output", required=True, help="the file to write")
    parser.add_argument("--seed", type=int, default=seed)
    parser.add_argument("--cases", type=int, default=cases)
    parser.add_argument("--bytes", type=int, default=most, help="cases that take more are left out")
    return parser.parse_args()


def wheel(package):
    """Version and hash of the wheel that pip has installed in this environment, as its report says."""
    with open(os.path.join(sys.prefix, "wheels.json")) as f:
        report = json.load(f)
    for entry in report["install"]:
        if entry["metadata"]["name"].lower().replace("_", "-") == package:
            version = entry["metadata"]["version"]
            if importlib.metadata.version(package) != version:
                raise SystemExit(f"{package} is not the version that wheels.json names (want {version}): run make oracle")
            return {"version": version, "sha256": entry["download_info"]["archive_info"]["hashes"]["sha256"]}
    raise SystemExit(f"wheels.json does not name {package}: run make oracle, which makes the environment")


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def write(options, packages, cases, **notes):
    """Writes one line for each case. notes are numbers about all of them."""
    generator = os.path.basename(sys.argv[0])
    head = {"generator": generator, "seed": options.seed, "cases": len(cases), "bytes": options.bytes}
    head["wheels"] = {package: wheel(package) for package in packages}
    part = options.output + ".part"
    with open(part, "w") as f:
        for line in [head | notes, *cases]:
            f.write(compact(line) + "\n")
    os.replace(part, options.output)
