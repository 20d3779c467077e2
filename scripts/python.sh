#!/usr/bin/env bash
# Builds the Python wheel, and tests it beside Debian's torch.
#
#   scripts/python.sh wheel|test|examples|asan
#
# Step wheel builds the wheel and installs it. Step test tests what is installed, and checks
# its types. Step examples tests the examples with it. Step asan tests the extension under
# sanitizers. PYTEST_WORKERS is how many tests run at a time.
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

case ${1:-} in
wheel)
	scripts/need.sh gcc=gcc,libc6-dev make readelf=binutils /usr/bin/python3=python3 /usr/bin/python3-config=python3-dev \
		python:ensurepip=python3-venv python:torch=python3-torch,libopenblas0-pthread python:numpy=python3-numpy
	make -s installed-wheel
	;;
test)
	installed
	wheels=("$PWD"/python/dist/*.whl)
	cd python
	"$python" -m mypy --strict src
	STEPVAN_WHEEL=${wheels[0]} "$python" -m pytest -n "$workers" --dist worksteal -m "not serial"
	"$python" -m pytest -m serial
	;;
examples)
	installed
	"$python" -m pytest -q -p no:cacheprovider -n "$workers" --dist worksteal --durations=5 examples/stepmesh examples/torch
	;;
asan) scripts/python-asan.sh short ;;
*)
	sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
