#!/usr/bin/env bash
# Builds the Python wheel, installs it beside Debian's torch and tests it, and the
# examples that use it; then the extension under sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh gcc=gcc,libc6-dev make readelf=binutils /usr/bin/python3=python3 /usr/bin/python3-config=python3-dev \
	python:ensurepip=python3-venv python:torch=python3-torch,libopenblas0-pthread python:numpy=python3-numpy
make -s pytest pyexamples
scripts/python-asan.sh short
