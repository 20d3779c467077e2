#!/usr/bin/env bash
# Fails with a clear message unless there is a Go that can build the module.
set -euo pipefail
cd "$(dirname "$0")/.."

want=$(awk '$1 == "go" {print $2}' go.mod)
if ! command -v go >/dev/null; then
	echo "no go command: install Go $want or later, see https://go.dev/dl, and put it into PATH" >&2
	exit 1
fi
have=$(go env GOVERSION 2>&1) || {
	echo "the go command cannot build this module, which needs Go $want or later: $have" >&2
	exit 1
}
have=${have#go}
oldest=$(printf '%s\n%s\n' "$want" "${have%% *}" | sort -V | head -n 1)
if [[ $oldest != "$want" ]]; then
	echo "Go $have is too old: this module needs $want or later, see https://go.dev/dl" >&2
	exit 1
fi
echo "Go $have"
