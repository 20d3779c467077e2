#!/usr/bin/env bash
# Makes sure that commands exist, modules of the distribution's Python, and files, from
# its packages where this user may install them.
#
#   scripts/need.sh COMMAND[=PACKAGE[,PACKAGE]]... python:MODULE=PACKAGE... file:PATH=PACKAGE...
set -euo pipefail

as_root() {
	if [[ $EUID -eq 0 ]]; then
		"$@"
	else
		sudo -n "$@"
	fi
}

may_install() {
	command -v apt-get >/dev/null && { [[ $EUID -eq 0 ]] || sudo -n true 2>/dev/null; }
}

have() {
	case $1 in
	python:*) /usr/bin/python3 -c "import ${1#python:}" 2>/dev/null ;;
	file:*) [[ -e ${1#file:} ]] ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

missing=()
packages=()
for want in "$@"; do
	name=${want%%=*}
	have "$name" && continue
	missing+=("$name")
	IFS=, read -ra of <<<"${want#*=}"
	packages+=("${of[@]}")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

if ! may_install; then
	echo "missing: ${missing[*]}. Install them (on Debian: apt-get install ${packages[*]}) and try again." >&2
	exit 1
fi
exec 9<"${BASH_SOURCE[0]}"
flock 9 # steps of make check that run beside each other may both install
echo "installing ${packages[*]} for ${missing[*]}"
as_root apt-get update -qq
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -o DPkg::Lock::Timeout=600 -qq -y --no-install-recommends "${packages[@]}" >/dev/null
for name in "${missing[@]}"; do
	have "$name" || {
		echo "still missing after installing ${packages[*]}: $name" >&2
		exit 1
	}
done
