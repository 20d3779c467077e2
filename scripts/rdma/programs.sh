#!/usr/bin/env bash
# Runs programs over TCP, shared memory and RDMA by changing one setting, in the machine of rdma-vm, and compares what
# they print. test-rdma.sh has built them.
#
#   programs.sh STEPVAN PYTHON HELLO    the command, a Python with stepvan and torch, the program of examples/hello
set -uo pipefail
stepvan=$1 python=$2 hello=$3
folder=$(mktemp -d)
export PYTHONDONTWRITEBYTECODE=1 PS_HEARTBEAT_TIMEOUT=10 # emulated processors start slowly

status=0
# compare NAME PROGRAM...: one worker and one server run the program over each van.
compare() {
	local name=$1 van began=$SECONDS verdict=ok
	shift
	for van in tcp shm rdma; do
		if ! STEPVAN_VAN=$van "$stepvan" launch -n 1w1s -- "$@" 2>"$folder/$van.err" | sort >"$folder/$van.out"; then
			verdict="FAILED over $van"
		elif ! grep -q "server 0: $van " "$folder/$van.err"; then
			verdict="FAILED: its tensors did not go over $van"
		elif [[ ! -s $folder/$van.out ]] || ! diff "$folder/tcp.out" "$folder/$van.out"; then
			verdict="FAILED: it prints something else over $van"
		fi
		if [[ $verdict != ok ]]; then
			status=1
			tail -n 40 "$folder/$van.err" "$folder/$van.out"
			break
		fi
	done
	printf '%-16s %-4s %-6s %4d s  tcp, shm and rdma  %s\n' "$name" rxe program $((SECONDS - began)) "$verdict"
}

compare hello "$hello"
compare hello.py "$python" examples/hello/hello.py
compare several_tensors "$python" examples/stepmesh/several_tensors.py
exit $status
