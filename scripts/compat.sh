#!/usr/bin/env bash
# Tests the headers for programs of StepMesh in C++. The script builds a worker and a
# server that use them in StepMesh's manner, and runs them as clusters of processes. Both
# run under the address and undefined behaviour sanitizers.
#
# They need libtorch: Debian's, which is installed where this user may, or the one that
# TORCH names (the folder with include and lib). Without it the step is skipped, with exit
# status 77; STEPVAN_TEST_REQUIRE_TORCH=1 makes that a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
	printf '\n*** SKIPPED: the C++ headers for programs of StepMesh were NOT tested: %s.\n' "$1" >&2
	printf '*** Install libtorch (on Debian: apt-get install libtorch-dev), or set TORCH to its folder.\n\n' >&2
	[[ ${STEPVAN_TEST_REQUIRE_TORCH:-} != 1 ]] || exit 1
	exit 77
}

scripts/need.sh gcc=gcc,libc6-dev g++=g++ make
torch=${TORCH:-/usr}
if [[ -z ${TORCH:-} ]]; then
	scripts/need.sh file:/usr/include/torch/csrc/api/include/torch/version.h=libtorch-dev,libopenblas0-pthread || skip "there is no libtorch, and it cannot be installed"
fi
[[ -e $torch/include/torch/csrc/api/include/torch/version.h ]] || skip "$torch has no include/torch"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
sanitize=("-fsanitize=address,undefined" -fno-sanitize-recover)
compile=(-std=c++17 -Wall -Wextra -Wpedantic -Werror -g1 "${sanitize[@]}" -I capi/compat -I capi
	-isystem "$torch/include/torch/csrc/api/include")
[[ $torch == /usr ]] || compile+=(-isystem "$torch/include")
link=("${sanitize[@]}" -L "$tmp" -L "$torch/lib" -lstepvan -ltorch -ltorch_cpu -lc10 -lpthread "-Wl,-rpath,$tmp,-rpath,$torch/lib")

echo "== the program and the library"
started=()
for source in capi/compat/testdata/*.cc; do
	g++ "${compile[@]}" -c "$source" -o "$tmp/$(basename "$source").o" &
	started+=($!)
done
make -s capi CAPI_DIR="$tmp" CAPI_FLAGS=-asan
for pid in "${started[@]}"; do
	wait "$pid"
done
g++ "$tmp"/*.o "${link[@]}" -o "$tmp/patterns"

cluster() {
	echo "== $*"
	timeout 120 "$tmp/patterns" launch "$@" --scheduler-command "$tmp/patterns" -- "$tmp/patterns"
}

export STEPVAN_LOG_LEVEL=warn
cluster -n 1w1s --van shm
cluster -n 2w2s --van tcp
cluster -n 1w1s --group-size 2 --van shm
