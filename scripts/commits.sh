#!/usr/bin/env bash
# Checks the subjects of the commits since a base: at most 72 characters, one
# thought (no semicolon), no full stop.
#
#   scripts/commits.sh [BASE]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

base=${1:-45c1aba}
if ! git rev-parse --quiet --verify "$base^{commit}" >/dev/null 2>&1 || ! git merge-base --is-ancestor "$base" HEAD; then
	echo "this clone does not reach commit $base, from which on subjects are checked: fetch the whole history, or name another base"
	exit 77
fi
failed=0
while read -r hash subject; do
	wrong=
	if ((${#subject} > 72)); then
		wrong="has ${#subject} characters (want at most 72)"
	elif [[ $subject == *\;* ]]; then
		wrong="has a semicolon: one thought a commit"
	elif [[ $subject == *. ]]; then
		wrong="ends with a full stop"
	fi
	if [[ -n $wrong ]]; then
		echo "commit $hash: \"$subject\" $wrong"
		failed=1
	fi
done < <(git log --no-merges --format='%h %s' "$base..HEAD")
exit $failed
