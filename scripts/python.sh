#!/usr/bin/env bash
# Builds the Python wheel, and tests it beside Debian's torch.
#
#   scripts/python.sh wheel|test|examples|asan
#
# Step wheel builds the wheel and installs it. Step test tests what is installed, and checks
# its types. Then it builds a second library, whose nodes have devices, into build/devices, and
# tests the memory that nodes register by themselves. Step examples tests the examples with it.
# Step asan tests the extension under sanitizers. PYTEST_WORKERS is how many tests run at a time.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$PWD/.cache/venv/bin/python
workers=${PYTEST_WORKERS:-3}

installed() {
	if ! (cd / && "$python" -c 'import stepvan'); then
		echo "package stepvan is not installed in .cache/venv: run scripts/python.sh wheel" >&2
		exit 1
	fi
}

# devices: tests the memory that nodes register by themselves, with a library whose nodes have devices.
devices() {
	local to=$PWD/build/devices
	rm -rf "$to"
	mkdir -p "$to"
	cp -r "$(cd / && "$python" -c 'import os, stepvan; print(os.path.dirname(stepvan.__file__))')" "$to"
	make -s capi CAPI_DIR="$to/stepvan" CAPI_FLAGS=-tags=stepvan_devices
	(cd python && PYTHONPATH=$to STEPVAN_TEST_DEVICES=1 "$python" -m pytest -q tests/test_storages.py)
}

# fast_blas: Debian's default BLAS multiplies matrices thirty times slower than OpenBLAS, and the examples compute a
# model with it.
fast_blas() {
	local libraries
	libraries=/usr/lib/$(uname -m)-linux-gnu
	if [[ $(readlink -f "$libraries/libblas.so.3") == */blas/libblas.so.3* ]]; then
		scripts/need.sh "file:$libraries/openblas-pthread/libblas.so.3=libopenblas0-pthread" ||
			echo "the step examples will take a minute longer"
	fi
}

case ${1:-} in
wheel)
	scripts/need.sh gcc=gcc,libc6-dev make readelf=binutils /usr/bin/python3=python3 /usr/bin/python3-config=python3-dev \
		python:ensurepip=python3-venv python:torch=python3-torch,libopenblas0-pthread python:numpy=python3-numpy
	fast_blas
	make -s installed-wheel
	;;
test)
	installed
	wheels=("$PWD"/python/dist/*.whl)
	cd python
	"$python" -m mypy --strict src
	STEPVAN_WHEEL=${wheels[0]} "$python" -m pytest -n "$workers" --dist worksteal -m "not serial"
	"$python" -m pytest -m serial
	cd ..
	devices
	;;
examples)
	installed
	"$python" -m pytest -q -p no:cacheprovider -n "$workers" --dist worksteal --durations=5 \
		examples/stepmesh examples/torch examples/refit examples/bus examples/replay examples/particles
	;;
asan) scripts/python-asan.sh short ;;
*)
	sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
