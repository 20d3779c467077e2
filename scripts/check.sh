#!/usr/bin/env bash
# Runs the steps of make check, all of them even where one fails, and tells at
# the end what failed and how long each took.
#
#   scripts/check.sh [STEP...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Tests wait more than they compute, so there are more packages at a time than cores; the longest begin first.
together=(-p 4 -timeout "${TEST_TIMEOUT:-10m}" ./internal/stress ./ps ./...)

# The profile is for what is built for programs, which names it. With it the go command would compile most packages
# once more for each step below.
export GOFLAGS="${GOFLAGS:-} -pgo=off"

steps=(
	commits modules format vet build build-arm64 staticcheck golangci-lint locks shellcheck
	docs layering style test race capi compat python fuzz
)

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

step_staticcheck() {
	local tool
	tool=$(scripts/tool.sh staticcheck)
	"$tool" ./...
}

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
	"$tool" .ci/run scripts/*.sh
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
step_test() { go test "${together[@]}"; }

step_race() {
	scripts/need.sh gcc=gcc,libc6-dev
	CGO_ENABLED=1 go test -race "${together[@]}"
}

step_capi() { scripts/capi.sh; }

step_compat() { scripts/compat.sh; }

step_python() { scripts/python.sh; }

step_fuzz() { scripts/fuzz.sh; }

run() {
	local started=$SECONDS verdict=ok status=0
	printf '\n== %s\n' "$1"
	# A process of its own: within a condition the shell would ignore the errors of a function.
	scripts/check.sh --inside "$1" || status=$?
	case $status in
	0) ;;
	77)
		verdict="SKIPPED, see above"
		skipped+=("$1")
		;;
	*)
		verdict=FAILED
		failed+=("$1")
		;;
	esac
	report+=("$(printf '%-14s %5d s  %s' "$1" $((SECONDS - started)) "$verdict")")
}

if [[ ${1:-} == --inside ]]; then
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
if [[ $# -gt 0 ]]; then
	steps=("$@")
fi
report=()
failed=()
skipped=()
for step in "${steps[@]}"; do
	run "$step"
done

printf '\n== result\n'
printf '%s\n' "${report[@]}" "$(printf '%-14s %5d s' total "$SECONDS")"
if [[ ${#failed[@]} -gt 0 ]]; then
	echo "FAILED: ${failed[*]}"
	exit 1
fi
if [[ ${#skipped[@]} -gt 0 ]]; then
	echo "NOT TESTED HERE: ${skipped[*]}; everything else passed"
	exit
fi
echo "all passed"
