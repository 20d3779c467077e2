#!/usr/bin/env bash
# Runs the tests that need RDMA devices, in machines with software RDMA (scripts/rdma-vm). The test programs are built
# here. Each part's time is shown. A test that skips on soft-RoCE has failed.
#
#   scripts/test-rdma.sh [short]    short: on soft-RoCE only, without the detectors; exit status 77 without a machine
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
packages=(internal/verbs rdma/device)
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

# in_two_machines PACKAGE TEST: runs a test on two hosts. The first one ends when the second has made a file
# "exchanged", and the second one must notice.
in_two_machines() {
	local package=$1 test=$2 began=$SECONDS hosts=$to/hosts first second verdict=ok
	mkdir -p "$hosts"
	local command=(env -C "$PWD/$package" VERBS_TEST_HOSTS="$hosts" "$to/${package//\//_}.plain" "-test.run=^$test\$" -test.v -test.timeout 100s)
	scripts/rdma-vm --join "$hosts/net" --host 1 --dir "$hosts" --limit 120 -- "${command[@]}" >"$hosts/1.log" 2>&1 &
	first=$!
	until [[ -e $hosts/listening ]] || ! kill -0 "$first" 2>/dev/null; do sleep 0.1; done
	scripts/rdma-vm --join "$hosts/net" --host 2 --dir "$hosts" --limit 120 -- "${command[@]}" >"$hosts/2.log" 2>&1 &
	second=$!
	until [[ -e $hosts/exchanged ]] || ! kill -0 "$second" 2>/dev/null; do sleep 0.1; done
	kill -TERM "$first" || true
	if ! wait "$second"; then
		verdict=FAILED
		cat "$hosts/1.log" "$hosts/2.log"
	fi
	wait "$first" || true
	printf '%-16s %-4s %-6s %4d s  %s: %s\n' "$package" rxe hosts $((SECONDS - began)) "$verdict" "$(grep -o 'noticed .*' "$hosts/2.log" || true)"
	[[ $verdict == ok ]]
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
	in_two_machines internal/verbs TestTwoMachines || status=1
fi
exit $status
