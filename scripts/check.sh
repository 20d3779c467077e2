#!/usr/bin/env bash
# Runs the steps of make check, all of them even where one fails, and tells at
# the end what failed and how long each took. Without arguments two steps run at
# a time, since most tests wait more than they compute. Each step writes to
# .cache/check/STEP.log, and the end of what a failed one wrote is shown again.
#
#   scripts/check.sh [STEP...]
#
# CHECK_LIMIT is how many seconds all of it may take: then what still runs is
# ended, and has failed. With steps as arguments it does not count.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
logs=.cache/check

# The profile is for what is built for programs, which names it. With it the go command would compile most packages
# once more for each step below.
export GOFLAGS="${GOFLAGS:-} -pgo=off"

# At first steps that take seconds, and what compiles for all others. Then two lanes, each of which
# takes what is left when it has done its own.
first=(commits modules format shellcheck docs layering style vet)
lane1=(test race)
lane2=(golangci-lint locks build build-arm64 wheel python examples asan)
left=(compat capi fuzz rdma)
steps=("${first[@]}" "${lane1[@]}" "${lane2[@]}" "${left[@]}")

# tested ARGUMENT...: tests all packages but those whose tests have a step of their own, and read only the source. Some
# packages are tested at a time, since their tests wait; the longest begin first. The step vet has looked at all.
tested() {
	local all packages
	all=$(go list ./...)
	mapfile -t packages < <(grep -vE '/internal/(style|layering|stress)$|/stepvan/ps$' <<<"$all")
	go test -vet=off -p 3 -timeout "${TEST_TIMEOUT:-5m}" "$@" ./internal/stress ./ps "${packages[@]}"
}

step_commits() { scripts/commits.sh; }

step_modules() {
	go mod verify
	go mod tidy -diff || {
		echo "go.mod or go.sum is not tidy: run go mod tidy"
		return 1
	}
}

step_format() {
	local wrong
	wrong=$(find . -path ./.cache -prune -o -name '*.go' -print0 | xargs -0 gofmt -s -l)
	[[ -z $wrong ]] || {
		printf 'run gofmt -s -w on:\n%s\n' "$wrong"
		return 1
	}
}

step_vet() { go vet ./...; }

step_build() { CGO_ENABLED=0 go build ./...; }

step_build-arm64() { CGO_ENABLED=0 GOARCH=arm64 go build ./...; }

step_golangci-lint() {
	local tool
	tool=$(scripts/tool.sh golangci-lint)
	"$tool" run ./...
}

# No function releases a lock that it did not take, and what a lock guards is used under it.
step_locks() {
	local tool
	tool=$(scripts/tool.sh checklocks)
	go vet -vettool="$tool" ./internal/link ./server ./worker
}

step_shellcheck() {
	local tool
	tool=$(scripts/tool.sh shellcheck)
	"$tool" .ci/run scripts/*.sh scripts/rdma-vm scripts/rdma/*.sh
}

step_docs() {
	diff -u docs/settings.md <(go run ./config/gen -o /dev/stdout) || {
		echo "docs/settings.md is not what the table of settings says: run make docs"
		return 1
	}
}

# The go command's cache does not know that the test looks at all packages.
step_layering() { go test -count=1 ./internal/layering; }

# Sizes, words, and what ARCHITECTURE.md names.
step_style() { go test -count=1 ./internal/style; }

# Budgets (allocations) are asserted without the race detector, which has its own.
step_test() { tested; }

# Each process would sleep for a second at its end, for goroutines that still run.
step_race() {
	scripts/need.sh gcc=gcc,libc6-dev
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 tested -race
}

step_capi() { scripts/capi.sh; }

step_compat() { scripts/compat.sh; }

step_wheel() { scripts/python.sh wheel; }

step_python() { scripts/python.sh test; }

step_examples() { scripts/python.sh examples; }

step_asan() { scripts/python.sh asan; }

step_fuzz() { scripts/fuzz.sh 1; }

step_rdma() { scripts/test-rdma.sh short; }

# run STEP [SHOW]: with SHOW the step's output is shown at once. Writes the step's line of the table to
# .cache/check/STEP.result.
run() {
	local step=$1 status=0 verdict=ok began=$SECONDS limit=0 log=$logs/$1.log TIMEFORMAT='%U %S' # limit 0: none
	if [[ -n ${CHECK_LIMIT:-} ]]; then
		limit=$((CHECK_LIMIT > SECONDS ? CHECK_LIMIT - SECONDS : 1))
	fi
	# A process of its own: within a condition the shell would ignore the errors of a function.
	if [[ -n ${2:-} ]]; then
		printf '\n== %s\n' "$step"
		{ time scripts/check.sh --inside "$step" 2>&1 | tee "$log"; } 2>"$logs/$step.cpu" || status=$?
	else
		# At SIGQUIT go test shows what its tests are doing.
		{
			time timeout --signal=QUIT --kill-after=20 "$limit" scripts/check.sh --inside "$step" >"$log" 2>&1 </dev/null
		} 2>"$logs/$step.cpu" || status=$?
	fi
	rm -f "$logs/$step.group"
	case $status in
	0) ;;
	77) verdict=SKIPPED ;;
	*)
		verdict=FAILED
		if [[ $limit -gt 0 && $((SECONDS - began)) -ge $limit ]]; then
			verdict="FAILED: not done within CHECK_LIMIT=$CHECK_LIMIT s"
		fi
		;;
	esac
	awk -v step="$step" -v wall=$((SECONDS - began)) -v verdict="$verdict" \
		'END { printf "%-14s %5d s  %5d s of CPU  %s\n", step, wall, $1 + $2, verdict }' "$logs/$step.cpu" >"$logs/$step.result"
	if [[ -z ${2:-} ]]; then
		cat "$logs/$step.result"
	fi
}

# lane STEP...: runs them, and then what no lane has taken of those that are left.
lane() {
	local step
	for step in "$@"; do
		run "$step"
	done
	for step in "${left[@]}"; do
		if mkdir "$logs/$step.taken" 2>/dev/null; then
			run "$step"
		fi
	done
}

# names LOG: of the tests that failed.
names() {
	awk '
		/^ *--- FAIL: / || /^FAIL\t/ || /^(FAILED|ERROR) / || /^panic: / || /^fatal error: / || /^WARNING: DATA RACE/ { print }
		/^\trunning tests:/ { running = 1; next }
		running && /^\t\t/ { print "still running:" $0; next }
		{ running = 0 }
	' "$1" | cut -c1-300 | awk '!seen[$0]++ && ++shown <= 40'
}

# explain STEP: what failed, where the output first says so, and the end of the output. Packages that passed
# are left out.
explain() {
	local log=$logs/$1.log
	printf '\n== FAILED: %s, whose output is in %s\n' "$1" "$log"
	names "$log"
	cut -c1-500 "$log" | awk -v context=60 '
		/^(ok  |\?   )\t/ { next }
		{ line[++n] = $0 }
		!first && (/^ *--- FAIL: / || /^panic: / || /^fatal error: / || /^WARNING: DATA RACE/ || /^=+ FAILURES =+$/) { first = n }
		END {
			last = n - context + 1
			if (first && first < last) {
				print "-- from the first failure on:"
				for (i = first; i < first + context && i < last; i++) print line[i]
			}
			print "-- the end:"
			for (i = last < 1 ? 1 : last; i <= n; i++) print line[i]
		}'
}

# interrupted ends the lanes and what still runs: each step has a process group of its own.
interrupted() {
	local group lanes
	mapfile -t lanes < <(jobs -p)
	kill "${lanes[@]}" 2>/dev/null || true
	for group in "$logs"/*.group; do
		kill -TERM -- "-$(<"$group")" 2>/dev/null || true
	done
	exit 130
}

if [[ ${1:-} == --inside ]]; then
	ps -o pgid= $$ | tr -d ' ' >"$logs/$2.group"
	"step_$2"
	exit
fi
for step in "$@"; do
	if [[ $(type -t "step_$step") != function ]]; then
		echo "no step $step; there are: ${steps[*]}" >&2
		exit 2
	fi
done
scripts/go.sh
rm -rf "$logs"
mkdir -p "$logs"
if [[ $# -gt 0 ]]; then
	steps=("$@")
	for step in "${steps[@]}"; do
		run "$step" show
	done
else
	trap interrupted INT TERM
	for step in "${first[@]}"; do
		run "$step" &
		wait "$!" || true # a trap ends wait, and would have to await a command
	done
	lane "${lane1[@]}" &
	lane "${lane2[@]}" &
	wait
fi

for step in "${steps[@]}"; do
	[[ -e $logs/$step.result ]] || printf '%-14s FAILED: it did not run to its end\n' "$step" | tee -a "$logs/$step.log" >"$logs/$step.result"
done
mapfile -t failed < <(cd "$logs" && grep -l FAILED ./*.result | sed 's|^./||; s|.result$||')
mapfile -t skipped < <(cd "$logs" && grep -l SKIPPED ./*.result | sed 's|^./||; s|.result$||')
if [[ $# -eq 0 ]]; then
	for step in "${skipped[@]}"; do
		printf '\n== SKIPPED: %s\n' "$step"
		tail -n 20 "$logs/$step.log"
	done
fi
for step in "${failed[@]}"; do
	explain "$step"
done

printf '\n== result\n'
for step in "${steps[@]}"; do
	cat "$logs/$step.result"
done
printf '%-14s %5d s\n' total "$SECONDS"
if [[ ${#failed[@]} -gt 0 ]]; then
	echo "FAILED: ${failed[*]}"
	exit 1
fi
if [[ ${#skipped[@]} -gt 0 ]]; then
	echo "NOT TESTED HERE: ${skipped[*]}; everything else passed"
	exit
fi
echo "all passed"
