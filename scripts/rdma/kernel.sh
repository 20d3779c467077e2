#!/usr/bin/env bash
# Prints the folder with the kernel that rdma-vm boots: the one of the distribution, unpacked into .cache and not
# installed. There are image, the kernel itself, and lib/modules.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=$PATH:/usr/sbin:/sbin
folder=$PWD/.cache/rdma-vm/kernel

mkdir -p .cache/rdma-vm
exec 9>.cache/rdma-vm/lock
flock 9 # two machines may start at a time
if [[ -e $folder/image ]]; then
	echo "$folder"
	exit
fi

package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image-/ { print $2; exit }')
if [[ -z $package ]]; then
	echo "the package lists name no linux-image-amd64: run apt-get update" >&2
	exit 1
fi
echo "fetching $package" >&2
part=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$part"' EXIT
if ! (cd "$part" && apt-get download -qq "$package" && dpkg -x ./*.deb . && rm ./*.deb) >"$part/log" 2>&1; then
	cat "$part/log" >&2
	echo "cannot fetch $package: run apt-get update" >&2
	exit 1
fi
depmod -b "$part" "$(ls "$part/lib/modules")"

# Within the image is the kernel as an ELF file, packed. Unpacked it saves the emulated processor seconds.
packed=$(echo "$part"/boot/vmlinuz-*)
offset=$(LC_ALL=C grep -aboP -m1 '\xfd7zXZ\x00' "$packed" | head -n 1 | cut -d: -f1) || offset=''
if [[ -n $offset ]]; then
	tail -c "+$((offset + 1))" "$packed" | xz -dcq >"$part/image" 2>/dev/null || true # other bytes follow
fi
if [[ $(head -c 4 "$part/image" 2>/dev/null | tail -c 3) != ELF ]]; then
	cp "$packed" "$part/image"
fi
rm -rf "${part:?}/usr" "$part/log"
trap - EXIT
mv -T "$part" "$folder"
echo "$folder"
