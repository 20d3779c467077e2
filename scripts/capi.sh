#!/usr/bin/env bash
# Builds libstepvan.so, and checks it against stepvan.h. The library exports what
# the header declares. Header and example compile as C and as C++. Programs in C
# exchange tensors over shared memory and TCP, each in a process of its own. A C
# program tries every function with wrong arguments. The script builds library and
# programs twice: as they are, and with the address sanitizer. The page docs/c.md
# shows the example as it is. The command lines of the page compile and run it with
# what make install has installed.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh gcc=gcc,libc6-dev cc=gcc g++=g++ make nm=binutils pkg-config
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
warnings=(-Wall -Wextra -Wpedantic -Werror -g)

declared() {
	sed -e ':a' -e 's|/\*.*\*/||; /\/\*/{N; s/\n/ /; ba}' capi/stepvan.h | grep -oE '\bstepvan_[a-z_]+\(' | tr -d '(' | sort -u
}

shown() { nm -D --defined-only "$tmp/plain/libstepvan.so" | awk '$2 != "A" {print $3}' | sed 's/@.*//' | sort -u; }

# shown_in PAGE LANGUAGE: the code of that language on a page.
shown_in() { sed -n "/^\`\`\`$2\$/,/^\`\`\`\$/{/^\`\`\`/d; p}" "$1"; }

# compile DIR: the programs, as C and as C++, with the library in DIR.
compile() {
	local dir=$1
	shift
	local link=(-I "$dir" -L "$dir" -lstepvan -lpthread "-Wl,-rpath,$dir" "$@")
	local program
	for program in examples/c/*.c capi/testdata/contract.c; do
		local name
		name=$(basename "$program" .c)
		gcc -std=gnu11 "${warnings[@]}" "$program" "${link[@]}" -o "$dir/$name"
		g++ -std=gnu++11 "${warnings[@]}" -x c++ "$program" "${link[@]}" -o "$dir/$name++"
	done
}

cluster() {
	local program=$1 van=$2
	shift 2
	# The command line of the library, whose scheduler is that program again.
	timeout 60 "$tmp/plain/contract" launch -n 1w1s --van "$van" "$@" -- "$program"
}

echo "== the library, as it is and with the address sanitizer"
make -s capi CAPI_DIR="$tmp/plain"
make -s capi CAPI_DIR="$tmp/asan" CAPI_FLAGS=-asan

echo "== what it shows is what the header declares"
diff <(declared) <(shown) || {
	echo "< is declared in capi/stepvan.h only, > is shown by libstepvan.so only"
	exit 1
}

[[ $(shown | wc -l) -gt 30 ]] || {
	echo "the library shows next to nothing"
	exit 1
}

echo "== C and C++"
compile "$tmp/plain"
compile "$tmp/asan" -fsanitize=address,undefined -fno-sanitize-recover

echo "== the contract"
for program in plain/contract plain/contract++ asan/contract; do
	timeout 60 "$tmp/$program"
done

echo "== processes"
cluster "$tmp/plain/exchange" shm
cluster "$tmp/plain/exchange++" tcp --scheduler-command "$tmp/plain/exchange++"
cluster "$tmp/asan/exchange" shm
cluster "$tmp/asan/owners" shm
cluster "$tmp/asan/owners" tcp --scheduler-command "$tmp/plain/owners"
cluster "$tmp/plain/owners++" shm

echo "== what is installed, and the page"
diff examples/c/owners.c <(shown_in docs/c.md c) || {
	echo "< is examples/c/owners.c, > the program on docs/c.md: copy it there"
	exit 1
}
make -s install CAPI_DIR="$tmp/plain" PREFIX="$tmp/home/stepvan"
cp examples/c/owners.c "$tmp/home"
shown_in docs/c.md sh | grep -A2 '^export PKG_CONFIG_PATH=' >"$tmp/home/page.sh"
(cd "$tmp/home" && HOME=$tmp/home timeout 60 bash -euxo pipefail page.sh)
headers=$(PKG_CONFIG_PATH=$tmp/home/stepvan/lib/pkgconfig pkg-config --variable=compatdir stepvan)
for header in ps/ps.h ps/af_tensor_app.h dmlc/logging.h; do
	cmp "capi/compat/$header" "$headers/$header"
done
make -s install CAPI_DIR="$tmp/plain" DESTDIR="$tmp/package" PREFIX=/usr
[[ $(pkg-config --variable=prefix "$tmp/package/usr/lib/pkgconfig/stepvan.pc") == /usr && -x $tmp/package/usr/bin/stepvan ]]
