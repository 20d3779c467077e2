#!/bin/busybox sh
# The first program in the machine of rdma-vm: loads the modules, and makes the root file system. That is the one of
# the host, with memory above it that takes what is written. guest.sh does the rest.
mkdir() { /bin/busybox mkdir "$@"; }
mount() { /bin/busybox mount "$@" || echo "rdma-vm: failed: mount $*"; }
host_folder() { mount -t 9p -o "trans=virtio,version=9p2000.L,msize=507904,$3" "$1" "$2"; }

modules='' modules_of_kernel='' shared='' dir=''
# shellcheck source=/dev/null
. /settings
mkdir /proc /lower /upper /new
mount -t proc proc /proc
for m in $modules; do
	/bin/busybox insmod "/modules/$m" || echo "rdma-vm: failed: insmod $m"
done

host_folder root /lower ro,cache=loose
mount -t tmpfs -o size=75% upper /upper
mkdir -p /upper/files/usr/lib/modules /upper/work
/bin/busybox ln -s "$modules_of_kernel" /upper/files/usr/lib/modules/
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /new
mount -t proc proc /new/proc
mount -t sysfs sys /new/sys
mount -t devtmpfs dev /new/dev
mount -t tmpfs run /new/run
mkdir /new/dev/shm /new/dev/pts
mount -t tmpfs shm /new/dev/shm
mount -t devpts pts /new/dev/pts
host_folder shared "/new$shared" cache=none
[ -z "$dir" ] || host_folder dir "/new$dir" cache=mmap
exec /bin/busybox switch_root /new /bin/bash "$shared/guest.sh" "$shared"
