#!/bin/bash
# The second program in the machine of rdma-vm: makes network and devices, runs the command, and ends the machine.
#
#   guest.sh SHARED    the directory through which rdma-vm talks with the machine
device='' shared='' host='' dir='' directory='' command=()
# shellcheck source=/dev/null
. "$1/settings"
export PATH=$PATH:/usr/sbin:/sbin
mtu=9000 # a port has the largest MTU of RDMA that fits: 4096

# Both addresses of the cable are this machine's own. So the kernel would take the short way through lo, where no device
# listens. The rules look for the addresses as sources first, and send what begins here (iif lo) over the cable.
cable() {
	local i
	for i in all default; do
		echo 1 >/proc/sys/net/ipv4/conf/$i/accept_local
		echo 0 >/proc/sys/net/ipv4/conf/$i/rp_filter
	done
	ip -batch - <<-END
		link add h0 mtu $mtu address 02:00:00:77:00:01 type veth peer name h1 mtu $mtu address 02:00:00:77:00:02
		link set h0 up
		link set h1 up
		addr add 10.77.0.1/24 dev h0
		addr add 10.77.0.2/24 dev h1
		neigh add 10.77.0.2 lladdr 02:00:00:77:00:02 dev h0 nud permanent
		neigh add 10.77.0.1 lladdr 02:00:00:77:00:01 dev h1 nud permanent
		route add 10.77.0.2 dev h0 src 10.77.0.1 table 100
		route add 10.77.0.1 dev h1 src 10.77.0.2 table 100
		rule add pref 1 from 10.77.0.1 to 10.77.0.1 lookup local
		rule add pref 2 from 10.77.0.2 to 10.77.0.2 lookup local
		rule add pref 3 iif lo to 10.77.0.0/24 lookup 100
		rule add pref 9 lookup local
		rule del pref 0
	END
	rdma link add "${device}0" type "$device" netdev h0
	rdma link add "${device}1" type "$device" netdev h1
	export RDMAVM_DEV0=${device}0 RDMAVM_DEV1=${device}1 RDMAVM_IP0=10.77.0.1 RDMAVM_IP1=10.77.0.2
}

# The network card is the other machine's neighbour.
network() {
	local other=$((3 - host))
	ip -batch - <<-END
		link set eth0 name h0
		link set h0 mtu $mtu up
		addr add 10.77.1.$host/24 dev h0
		neigh add 10.77.1.$other lladdr 02:00:00:77:01:0$other dev h0 nud permanent
	END
	rdma link add "${device}0" type "$device" netdev h0
	export RDMAVM_HOST=$host RDMAVM_DEV0=${device}0 RDMAVM_IP0=10.77.1.$host RDMAVM_IP1=10.77.1.$other
}

echo rdma-vm >/proc/sys/kernel/hostname
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
# A burst of many queue pairs overflows the usual 1000. When soft-RoCE loses a part of an answer to a read, it may shut
# the queue pair.
echo 20000 >/proc/sys/net/core/netdev_max_backlog
ip link set lo up
if [[ -n $host ]]; then network; else cable; fi
ulimit -l unlimited
ulimit -n 65536
cd "$directory" || exit
: >"$shared/up"
"${command[@]}" </dev/null >>"$shared/out" 2>>"$shared/err"
echo $? >"$shared/status.part"

cd / || exit
if [[ -n $dir ]]; then
	sync
	umount "$dir" || umount -l "$dir"
fi
mv "$shared/status.part" "$shared/status"
echo b >/proc/sysrq-trigger
sleep 60
