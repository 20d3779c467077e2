#!/usr/bin/env bash
# Fuzzes every target of the module, one after the other.
#
#   scripts/fuzz.sh [SECONDS]
#
# SECONDS are for each target. Without them the targets share two minutes, two
# to four seconds each. A failing input is kept in the package's testdata/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."

targets() {
	find . -path ./.cache -prune -o -name '*_test.go' -print0 |
		xargs -0 grep -H -o -E '^func Fuzz[A-Za-z0-9_]*' |
		sed -E 's|^(.*)/[^/]*:func (.*)$|\1 \2|' | sort -u
}

# fuzz PACKAGE TARGET
fuzz() {
	local out status=0 ran
	out=$(go test -run '^$' -fuzz "^$2\$" -fuzztime "${seconds}s" "$1" 2>&1) || status=$?
	ran=$(grep -o 'execs: [0-9]*' <<<"$out" | tail -n 1) || ran='execs: 0'
	# The go command may report the end of the time as a failure of the target. That
	# is not one, as long as the target ran at all.
	if [[ $out == *"context deadline exceeded"* && $out != *"Failing input"* && $ran != 'execs: 0' ]]; then
		status=0
	fi
	if [[ $status -ne 0 ]]; then
		printf '%s\n' "$out"
		return 1
	fi
	printf 'ok   %-28s %-20s %s\n' "$1" "$2" "$ran"
}

mapfile -t all < <(targets)
if [[ ${#all[@]} -eq 0 ]]; then
	echo "no fuzz target found" >&2
	exit 1
fi
seconds=${1:-$((120 / ${#all[@]}))}
if [[ -z ${1:-} ]]; then
	seconds=$((seconds < 2 ? 2 : seconds > 4 ? 4 : seconds))
fi

failed=0
for target in "${all[@]}"; do
	read -r package name <<<"$target"
	fuzz "$package" "$name" || failed=1
done
exit "$failed"
