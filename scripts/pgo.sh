#!/usr/bin/env bash
# Writes cmd/stepvan/default.pgo, the profile with which the go command builds bin/stepvan,
# and make capi and the wheel libstepvan.so. The profile has two parts. One is of the
# processes of stepvan bench, of both roles over shared memory and TCP. The other is of the
# benchmark of one thread, which never waits. Run it on a machine without other work.
#
#   scripts/pgo.sh [SECONDS]
#
# SECONDS (20) are for each part. The limit of the bench takes half of them.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-20}
out=cmd/stepvan/default.pgo
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# Without paths of this machine, and without the profile that this one replaces.
go build -pgo=off -trimpath -o "$tmp/stepvan" ./cmd/stepvan
go test -c -trimpath -o "$tmp/worker.test" ./worker

for workload in echo afd; do
	for van in shm tcp; do
		"$tmp/stepvan" bench --workload "$workload" --van "$van" --duration "${seconds}s" --profile "$tmp/$workload-$van" >/dev/null
	done
done
"$tmp/worker.test" -test.run '^$' -test.bench 'Budget/.*/whole' -test.benchtime "${seconds}s" -test.cpuprofile "$tmp/budget.pprof" >/dev/null

go tool pprof -proto -output "$tmp/merged" "$tmp/stepvan" "$tmp"/*/*.pprof "$tmp/budget.pprof" 2>/dev/null
# A name of the same length leaves the format as it is.
gunzip -c "$tmp/merged" | LC_ALL=C sed "s|$tmp|${tmp//?/-}|g" | gzip -9n >"$tmp/default.pgo"
go tool pprof -top -nodecount 1 "$tmp/default.pgo" >/dev/null 2>&1 || {
	echo "go tool pprof cannot read what was written" >&2
	exit 1
}
if gunzip -c "$tmp/default.pgo" | grep -q -F -e "$tmp" -e "$PWD" -e "$HOME/"; then
	echo "the profile has a path of this machine: find out why before you commit it" >&2
	exit 1
fi
mv "$tmp/default.pgo" "$out"
ls -l "$out"
