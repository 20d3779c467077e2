#!/usr/bin/env bash
# Runs test programs in the machine of rdma-vm. test-rdma.sh has built them.
#
#   run-tests.sh FOLDER DEVICE COUNT BUILD... PACKAGE...    COUNT: of the builds
set -uo pipefail
folder=$1 device=$2 count=$3
shift 3
builds=("${@:1:count}")
packages=("${@:count+1}")
top=$PWD
echo 64 >/proc/sys/vm/nr_hugepages

status=0
for package in "${packages[@]}"; do
	for build in "${builds[@]}"; do
		began=$SECONDS
		program=$folder/${package//\//_}.$build
		log=$program.$device.log
		verdict=ok
		if ! (cd "$top/$package" && "$program" -test.v -test.timeout 240s >"$log" 2>&1); then
			verdict=FAILED
		elif [[ $device == rxe && $build == plain ]] && grep -q '^ *--- SKIP' "$log"; then
			verdict='FAILED: tests have skipped'
		fi
		printf '%-16s %-4s %-6s %4d s  %3d tests  %s\n' "$package" "$device" "$build" $((SECONDS - began)) "$(grep -c '^--- PASS' "$log")" "$verdict"
		if [[ $verdict != ok ]]; then
			status=1
			grep -vE '^(=== |--- PASS)' "$log" | tail -n 80
		fi
	done
done
exit $status
