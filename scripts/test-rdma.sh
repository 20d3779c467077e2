#!/usr/bin/env bash
# Runs the tests that need RDMA devices, in machines with software RDMA (scripts/rdma-vm). The test programs are built
# here. Each part's time is shown. A test that skips on soft-RoCE has failed.
#
#   scripts/test-rdma.sh [PART...]    devices, iwarp, nodes, programs, hosts: all by default, see docs/rdma.md
#   scripts/test-rdma.sh short        on soft-RoCE only, without the detectors; exit status 77 without a machine
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
devices=(internal/verbs rdma/device rdma)
deaths='^TestKilledPeersStress$' a_death="$deaths/rdma/^server,_at_full_speed"
others='^(TestInterruptedLaunchStress|TestRegionsComeAndGoSoak|TestAnOutageStress|TestMixedSizesStress)$'
nodes=(worker server examples/afd:EachVan "internal/stress:$deaths|$others -mixed.time=5m")
to=$PWD/build/rdma
parts=(devices iwarp nodes programs hosts)
if [[ $# -gt 0 ]]; then
	parts=("$@")
fi

short=''
if [[ ${parts[*]} == short ]]; then
	short=yes
	scripts/rdma-vm -- true || {
		[[ $? -eq 125 ]] || exit 1
		echo "SKIPPED: there is no machine with software RDMA, for the reason above"
		exit 77
	}
fi

scripts/need.sh gcc=gcc,libc6-dev file:/usr/include/infiniband/verbs.h=libibverbs-dev file:/usr/include/rdma/rdma_cma.h=librdmacm-dev
rm -rf "$to"
mkdir -p "$to"

# build NAME FLAGS PACKAGE[:TESTS]...: the test programs of packages.
build() {
	local name=$1 flags=$2 began=$SECONDS package
	shift 2
	for package in "${@%%:*}"; do
		# shellcheck disable=SC2086 # there may be no flag
		CGO_ENABLED=1 go test -vet=off -c $flags -o "$to/${package//\//_}.$name" "./$package" || return 1
	done
	echo "built in $((SECONDS - began)) s: $name"
}

# in_machine DEVICE BUILDS PACKAGE[:TESTS]...: runs the programs of these builds, one after another, in one machine.
in_machine() {
	local device=$1 builds
	read -ra builds <<<"$2"
	shift 2
	STEPVAN_TEST_REQUIRE_RDMA=1 RDMA_TEST_SHORT=$short GORACE=atexit_sleep_ms=0 scripts/rdma-vm --device "$device" --limit 1500 --dir "$to" -- \
		scripts/rdma/run-tests.sh "$to" "$device" "${#builds[@]}" "${builds[@]}" "$@"
}

# in_two_machines PACKAGE TEST VARIABLE: runs a test on two hosts, which find a folder for files in VARIABLE. The first
# one makes a file "listening". The second makes a file "exchanged"; then the first ends, and the second must notice.
in_two_machines() {
	local package=$1 test=$2 variable=$3 began=$SECONDS hosts=$to/hosts/$2 first second verdict=ok
	mkdir -p "$hosts"
	local command=(env -C "$PWD/$package" STEPVAN_TEST_REQUIRE_RDMA=1 "$variable=$hosts" "$to/${package//\//_}.plain" "-test.run=^$test\$" -test.v -test.timeout 100s)
	scripts/rdma-vm --join "$hosts/net" --host 1 --dir "$hosts" --limit 180 -- "${command[@]}" >"$hosts/1.log" 2>&1 &
	first=$!
	# shellcheck disable=SC2016 # the shell in the machine expands it
	scripts/rdma-vm --join "$hosts/net" --host 2 --dir "$hosts" --limit 180 -- \
		bash -c 'until [[ -e $0 ]]; do sleep 0.1; done; exec "$@"' "$hosts/listening" "${command[@]}" >"$hosts/2.log" 2>&1 &
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

part_short() {
	build plain '' "${devices[@]}" internal/stress || return 1
	in_machine rxe plain "${devices[@]}" "internal/stress:$a_death"
}

# The address sanitizer is for what has C code.
part_devices() {
	build plain '' "${devices[@]}" && build race -race "${devices[@]}" && build asan -asan internal/verbs || return 1
	in_machine rxe "plain race asan" "${devices[@]}"
}

part_iwarp() {
	build plain '' "${devices[@]}" || return 1
	in_machine siw plain "${devices[@]}"
}

# The real model is fetched here, since the machine has no network.
part_nodes() {
	build plain '' "${nodes[@]}" || return 1
	export STEPVAN_TEST_REQUIRE_MODEL=1
	env -C examples/afd "$to/examples_afd.plain" -test.run TestRealTokenizerEqualsReference || return 1
	in_machine rxe plain "${nodes[@]}"
}

part_programs() {
	make -s build installed-wheel && CGO_ENABLED=1 go build -o "$to/hello" ./examples/hello || return 1
	scripts/rdma-vm --limit 900 --memory 3072 -- scripts/rdma/programs.sh "$PWD/bin/stepvan" "$PWD/.cache/venv/bin/python" "$to/hello"
}

part_hosts() {
	local status=0
	build plain '' internal/verbs internal/stress || return 1
	in_two_machines internal/verbs TestTwoMachines VERBS_TEST_HOSTS || status=1
	in_two_machines internal/stress TestTwoHosts STRESS_TEST_HOSTS || status=1
	return "$status"
}

# run_part NAME runs a part, and shows its time.
run_part() {
	local began=$SECONDS status=0
	case $1 in
	short) part_short || status=1 ;;
	devices) part_devices || status=1 ;;
	iwarp) part_iwarp || status=1 ;;
	nodes) part_nodes || status=1 ;;
	programs) part_programs || status=1 ;;
	hosts) part_hosts || status=1 ;;
	*)
		echo "test-rdma: there is no part $1: name some of those in the head of scripts/test-rdma.sh" >&2
		return 2
		;;
	esac
	echo "part $1: $((SECONDS - began)) s"
	return "$status"
}

status=0
for part in "${parts[@]}"; do
	run_part "$part" || status=$?
done
exit "$status"
