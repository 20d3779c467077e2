#!/usr/bin/env bash
# Runs test programs in the machine of rdma-vm. test-rdma.sh has built them.
#
#   run-tests.sh FOLDER DEVICE COUNT BUILD... PACKAGE[:TESTS [FLAG...]]...
#
# COUNT is of the builds. TESTS is a pattern, without which all tests run. FLAG is one of the program.
#
# RDMA_TEST_SHORT makes the tests short. A test that skips on soft-RoCE has failed, except where a suite knows which of
# its cases a van may skip.
set -uo pipefail
folder=$1 device=$2 count=$3
shift 3
builds=("${@:1:count}")
suites=("${@:count+1}")
top=$PWD
echo 64 >/proc/sys/vm/nr_hugepages

status=0
for suite in "${suites[@]}"; do
	package=${suite%%:*} tests=(.)
	[[ $suite != *:* ]] || read -ra tests <<<"${suite#*:}"
	for build in "${builds[@]}"; do
		began=$SECONDS
		program=$folder/${package//\//_}.$build
		[[ -e $program ]] || continue
		log=$program.$device.log
		verdict=ok
		if ! (cd "$top/$package" && "$program" -test.v ${RDMA_TEST_SHORT:+-test.short} -test.timeout 900s -test.run "${tests[@]}" >"$log" 2>&1); then
			verdict=FAILED
		elif ! grep -q '^--- PASS' "$log"; then
			verdict='FAILED: no test has run'
		elif [[ $device == rxe && $build == plain ]] && grep '^ *--- SKIP' "$log" | grep -qv ' TestVan/'; then # the suite of vans knows which cases it may skip
			verdict='FAILED: tests have skipped'
		fi
		printf '%-16s %-4s %-6s %4d s  %3d tests  %s\n' "$package" "$device" "$build" $((SECONDS - began)) "$(grep -c '^--- PASS' "$log")" "$verdict"
		if [[ $verdict != ok ]]; then
			status=1
			grep -vE '^ *(=== |--- (PASS|SKIP))' "$log" | tail -n 80
		fi
	done
done
exit $status
