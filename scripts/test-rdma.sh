#!/usr/bin/env bash
# Runs the tests that need RDMA devices, in machines with software RDMA (scripts/rdma-vm). The test programs are built
# here. Each part's time is shown. A test that skips on soft-RoCE has failed.
#
#   scripts/test-rdma.sh [short]    short: on soft-RoCE only, without the detectors; exit status 77 without a machine
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
packages=(internal/verbs)
to=$PWD/build/rdma

if [[ ${1:-} == short ]]; then
	scripts/rdma-vm -- true || {
		[[ $? -eq 125 ]] || exit 1
		echo "SKIPPED: there is no machine with software RDMA, for the reason above"
		exit 77
	}
fi

scripts/need.sh gcc=gcc,libc6-dev file:/usr/include/infiniband/verbs.h=libibverbs-dev file:/usr/include/rdma/rdma_cma.h=librdmacm-dev
rm -rf "$to"
mkdir -p "$to"

# build NAME FLAG...: the test programs of all packages.
build() {
	local name=$1 package
	shift
	for package in "${packages[@]}"; do
		CGO_ENABLED=1 go test -vet=off -c "$@" -o "$to/${package//\//_}.$name" "./$package"
	done
}

# in_machine DEVICE NAME...: runs the programs of these builds, one after another, in one machine.
in_machine() {
	local device=$1
	shift
	STEPVAN_TEST_REQUIRE_RDMA=1 GORACE=atexit_sleep_ms=0 scripts/rdma-vm --device "$device" --limit 600 --dir "$to" -- \
		scripts/rdma/run-tests.sh "$to" "$device" "$@" "${packages[@]}"
}

began=$SECONDS
builds=(plain)
build plain
if [[ ${1:-} != short ]]; then
	build race -race
	build asan -asan
	builds+=(race asan)
fi
echo "built in $((SECONDS - began)) s"

status=0
in_machine rxe "${#builds[@]}" "${builds[@]}" || status=1
if [[ ${1:-} != short ]]; then
	in_machine siw 1 plain || status=1
fi
exit $status
