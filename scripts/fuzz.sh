#!/usr/bin/env bash
# Fuzzes every target of the module, one after the other. Each package is built once, for
# all of its targets.
#
#   scripts/fuzz.sh [SECONDS]
#
# SECONDS are for each target. Without them the targets share a minute, two to
# four seconds each. A failing input is kept in the package's testdata/fuzz.
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
	out=$(cd "$1" && "$(binary "$1")" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "${seconds}s" -test.fuzzcachedir "$found/$module/$1" 2>&1) || status=$?
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
seconds=${1:-$((60 / ${#all[@]}))}
if [[ -z ${1:-} ]]; then
	seconds=$((seconds < 2 ? 2 : seconds > 4 ? 4 : seconds))
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
found=$(go env GOCACHE)/fuzz
module=$(go list -m)

failed=0
for target in "${all[@]}"; do
	read -r package name <<<"$target"
	program=$(binary "$package")
	if [[ ! -e $program ]] && ! go test -c -fuzz . -o "$program" "$package"; then
		failed=1
		continue
	fi
	fuzz "$package" "$name" || failed=1
done
exit "$failed"
