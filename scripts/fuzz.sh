#!/usr/bin/env bash
# Fuzzes every target of the module, as many at a time as there are cores, and each with
# one process that tries inputs. Each package is built once, for all of its targets. Only
# the coverage of this module guides the search: the go command would measure all packages,
# and compile them anew for that.
#
#   scripts/fuzz.sh [SECONDS]
#
# SECONDS (2) are for each target. A failing input is kept in the package's testdata/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."

targets() {
	find . -path ./.cache -prune -o -name '*_test.go' -print0 |
		xargs -0 grep -H -o -E '^func Fuzz[A-Za-z0-9_]*' |
		sed -E 's|^(.*)/[^/]*:func (.*)$|\1 \2|' | sort -u
}

# binary PACKAGE: where its tests are built.
binary() {
	local name=${1#./}
	echo "$tmp/${name//\//_}.test"
}

# fuzz PACKAGE TARGET
fuzz() {
	local out status=0 ran
	# The folder of the go command, which keeps there what it has found before.
	out=$(cd "$1" && "$(binary "$1")" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "${seconds}s" -test.parallel 1 -test.fuzzcachedir "$found/$module/$1" 2>&1) || status=$?
	ran=$(grep -o 'execs: [0-9]*' <<<"$out" | tail -n 1) || ran='execs: 0'
	# The go command may report the end of the time as a failure of the target. That
	# is not one, as long as the target ran at all.
	if [[ $out == *"context deadline exceeded"* && $out != *"Failing input"* && $ran != 'execs: 0' ]]; then
		status=0
	fi
	if [[ $status -ne 0 ]]; then
		printf 'FAILED %s %s\n%s\n' "$1" "$2" "$out"
		return 1
	fi
	printf 'ok   %-28s %-20s %s\n' "$1" "$2" "$ran"
}

mapfile -t all < <(targets)
if [[ ${#all[@]} -eq 0 ]]; then
	echo "no fuzz target found" >&2
	exit 1
fi
seconds=${1:-2}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
found=$(go env GOCACHE)/fuzz
module=$(go list -m)

failed=0
running=0
# next waits until less than the given number of targets run.
next() {
	while [[ $running -ge $1 && $running -gt 0 ]]; do
		wait -n || failed=1
		running=$((running - 1))
	done
}

cores=$(nproc)
for target in "${all[@]}"; do
	read -r package name <<<"$target"
	program=$(binary "$package")
	if [[ ! -e $program ]] && ! go test -c -vet=off -gcflags "$module/...=-d=libfuzzer" -o "$program" "$package"; then
		failed=1
		continue
	fi
	next "$cores"
	fuzz "$package" "$name" &
	running=$((running + 1))
done
next 1
exit "$failed"
