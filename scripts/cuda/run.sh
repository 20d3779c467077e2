#!/usr/bin/env bash
# Tests or measures the installed package on a device of CUDA.
#
#   scripts/cuda/run.sh test|bench
#
# PYTHON is an interpreter with torch for CUDA, pytest and stepvan. The wheel of `make wheel` needs Python 3.11.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}

if ! "$python" -c 'import stepvan, torch; assert torch.cuda.is_available()' 2>/dev/null; then
	echo "$python needs stepvan, torch for CUDA and a device: install python/dist/*.whl (make wheel), or set PYTHON" >&2
	exit 1
fi
case ${1:-} in
test) cd python/tests && STEPVAN_TEST_CUDA=1 "$python" -m pytest -q -p no:cacheprovider -o addopts= test_cuda.py ;;
bench) "$python" scripts/cuda/measure.py ;;
*)
	sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
