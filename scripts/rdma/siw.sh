#!/usr/bin/env bash
# Builds soft-iWARP, which kernels of Debian leave out, for the kernel that rdma-vm boots. Sources and headers of that
# kernel come from the distribution's packages (150 MB). They are not installed.
#
#   scripts/rdma/siw.sh KERNEL    the folder that kernel.sh has printed
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PATH=$PATH:/usr/sbin:/sbin
kernel=$1
release=$(ls "$kernel/lib/modules")
module=$kernel/lib/modules/$release/extra/siw.ko
stamp=$kernel/siw.$(sha256sum "${BASH_SOURCE[0]}" | cut -c1-12)

exec 9>"$kernel.siw"
flock 9
if [[ -e $module && -e $stamp ]]; then
	exit
fi

series=$(cut -d. -f1,2 <<<"$release")
compiler=gcc-$(LC_ALL=C grep -aoP 'Linux version .*?gcc-\K[0-9]+' "$kernel/image" | sort -u | tail -n 1)
"$here/need.sh" "$compiler" make strip=binutils xz=xz-utils
version=$(apt-cache show "linux-headers-$release" | awk '/^Version:/ { print $2; exit }')
part=$(mktemp -d "$kernel.siw.XXXXXX")
trap 'rm -rf "$part"' EXIT
cd "$part"
echo "fetching the source of $release, and building soft-iWARP"
for package in "linux-headers-$release" "linux-headers-${release%-amd64}-common" "linux-kbuild-$series" "linux-source-$series"; do
	if ! apt-get download -qq "$package=$version" >log 2>&1; then
		cat log
		echo "cannot fetch $package=$version: run apt-get update, and remove $kernel if the kernel of the distribution has changed"
		exit 1
	fi
done
for package in linux-headers*.deb linux-kbuild*.deb; do
	dpkg -x "$package" headers
done
dpkg --fsys-tarfile linux-source*.deb | tar -xO "./usr/src/linux-source-$series.tar.xz" |
	tar -xJ --strip-components=4 "linux-source-$series/drivers/infiniband/sw/siw"
# The side that accepts says so to the peer before it reads the socket. What the peer sends meanwhile would wait for
# what it sends next.
sed -i 's|siw_qp_socket_assoc(cep, qp);|do { struct sock *sk = cep->sock->sk; & lock_sock(sk); local_bh_disable(); sk->sk_data_ready(sk); local_bh_enable(); release_sock(sk); } while (0);|' siw/siw_cm.c
grep -q 'sk_data_ready(sk); local' siw/siw_cm.c || { echo "the source of soft-iWARP has changed: look at what $0 does to siw_cm.c"; exit 1; }
sed -i "s|/usr/src/|$part/headers/usr/src/|" "headers/usr/src/linux-headers-$release/Makefile"
make -s -C "headers/usr/src/linux-headers-$release" "M=$part/siw" CONFIG_RDMA_SIW=m modules
mkdir -p "$(dirname "$module")"
strip -g -o "$module" siw/siw.ko
depmod -b "$kernel" "$release"
touch "$stamp"
