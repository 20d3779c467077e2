package doctor

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/reach"
)

// wantsShm reports whether nodes with these settings share memory where they can.
func (d *doctor) wantsShm() bool {
	return d.settings.Carries(config.VanShm)
}

// checkSharing checks what nodes of this machine need to share memory, and which van they would
// use.
func (d sharing) checkSharing(ctx context.Context) {
	if d.wantsShm() {
		d.checkDirectory()
		d.checkPeerMemory()
		d.checkRings()
	}
	d.checkPair(ctx)
}

// checkDirectory checks the folder in which nodes of this user find each other.
func (d sharing) checkDirectory() {
	dir, err := d.sys.Directory()
	if err != nil {
		fix := "let " + dir + " belong to this user alone (chmod 700), remove it, or set TMPDIR to another directory, the same for all nodes"
		if !filepath.IsAbs(dir) {
			fix = "export TMPDIR=/tmp, or another absolute path, the same for all nodes"
		}
		d.add("private directory", d.sharingStatus(), err.Error(), fix)
		return
	}
	d.ok("private directory", dir+", for this user alone")
}

// sharingStatus is the status when memory cannot be shared. Nodes then use another van, unless
// STEPVAN_VAN demands shm.
func (d *doctor) sharingStatus() Status {
	if d.settings.Van == config.VanShm {
		return Fail
	}
	return Warn
}

// checkPeerMemory looks for process_vm_readv between processes of one user. The call saves a copy
// of tensors outside stepvan's memory.
func (d sharing) checkPeerMemory() {
	const (
		name  = "peer memory"
		cost  = ", so tensors that are not in stepvan's memory are copied twice"
		yama  = "proc/sys/kernel/yama/ptrace_scope"
		allow = "let process_vm_readv through the seccomp profile of the container (docker: --cap-add SYS_PTRACE, or --security-opt seccomp=PROFILE)"
	)
	if !d.settings.PeerMemory {
		d.ok(name, "is not read (STEPVAN_PEER_MEMORY=0)"+cost)
		return
	}
	err := d.sys.PeerMemory()
	scope, known := d.number(yama)
	switch {
	case err != nil:
		d.add(name, OK, "cannot be read ("+err.Error()+")"+cost, allow)
	case known && scope > 0:
		d.add(name, OK, "may be read by parents only (ptrace_scope)"+cost, "sysctl -w kernel.yama.ptrace_scope=0")
	default:
		d.ok(name, "may be read (process_vm_readv)")
	}
}

// checkRings compares the memory of connections with peers on this machine with the free memory.
func (d sharing) checkRings() {
	each := reach.SideBytes(&d.settings)
	peers := d.settings.Peers() - 1 // the scheduler carries no tensors
	switch d.settings.Role {
	case stepvan.RoleScheduler:
		return
	case stepvan.RoleJoint:
		peers--
	}
	have, where := d.memory()
	if peers <= 0 || have == 0 {
		return
	}
	need := each * config.Bytes(peers)
	found := fmt.Sprintf("%v for up to %d peers on this machine, %v each", need, peers, each)
	if need > have/2 {
		d.warn("ring memory", fmt.Sprintf("%s, of %v %s", found, rounded(have), where), "raise the memory limit of the container (docker: --memory; Kubernetes: limits.memory), or set STEPVAN_VAN=tcp")
		return
	}
	d.ok("ring memory", found)
}

// checkPair connects two nodes for a moment. It reports which van would carry tensors between them.
func (d sharing) checkPair(ctx context.Context) {
	s := d.settings
	if s.Van == config.VanRDMA || s.Van == config.VanMem {
		return // nothing to choose
	}
	ctx, cancel := context.WithTimeout(ctx, pairTime*d.reach)
	defer cancel()
	van, reason, err := d.sys.Pair(ctx, s)
	if err != nil {
		d.fail("van", "two nodes of this machine cannot connect: "+err.Error(), "set STEPVAN_VAN=auto, or fix the findings above")
		return
	}
	found := van + " between nodes of this machine (" + reason + ")"
	if !s.Local {
		found += withOthers[s.Van]
	}
	if s.Van == config.VanAuto && van != string(config.VanShm) {
		d.warn("van", found, "fix the findings above: shared memory is several times as fast; STEPVAN_VAN=tcp accepts this van and ends the warning")
		return
	}
	d.ok("van", found)
}

// withOthers says what carries tensors between machines.
var withOthers = map[config.Van]string{
	config.VanAuto:    "; with others rdma where both have a device, else tcp",
	config.VanTCP:     ", and with others",
	config.VanShmRDMA: ", rdma with others",
}

// pairTime is how many times o.Reach two nodes may take to connect.
const pairTime = 5
