package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/cmd/stepvan/internal/rdma"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/reach"
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/rdma/device"
)

// checkDevices looks at the RDMA devices. A machine without them is fine, unless the settings demand RDMA.
func (d devices) checkDevices() {
	const name = "RDMA"
	s := &d.settings
	switch {
	case s.Role == stepvan.RoleScheduler:
		return
	case !reach.MayUseRDMA(s) && s.Local:
		d.ok(name, "not used (DMLC_LOCAL=1)")
		return
	case !reach.MayUseRDMA(s):
		d.ok(name, fmt.Sprintf("not used (STEPVAN_VAN=%s)", s.Van))
		return
	}
	library := d.sys.Library()
	inv, err := d.sys.Inventory(library)
	if err != nil {
		d.problem(name, err.Error(), "let this process read /sys and list network interfaces")
		return
	}
	if none := inv.WhyNone(); none != "" && !reach.DemandsRDMA(s) {
		d.ok(name, "no device: "+none)
		return
	} else if none != "" {
		demand := assignment(s.Written(d.sys.Settings, "STEPVAN_VAN"))
		d.problem(name, demand+" demands it, and there is no device: "+none, "set STEPVAN_VAN=auto, or give this machine or container a device")
		return
	}
	selection, err := reach.Devices(s, inv, d.sys.Settings)
	if err != nil {
		d.contradiction(name, err)
		return
	}
	d.checkPorts(inv, selection)
	closed := d.checkFiles(inv, selection)
	d.checkLibrary(library, without(selection.Devices(), closed))
	for _, c := range selection.Choices {
		d.checkPath(inv, c)
		d.checkGroup(c.Device)
	}
	d.checkPinning(len(selection.Choices) > 0)
}

// problem is a failure where the settings demand RDMA for all tensors. Elsewhere some take another way.
func (d devices) problem(name, found, fix string) {
	status := Warn
	if d.settings.Van == config.VanRDMA {
		status = Fail
	}
	d.add(name, status, found, fix)
}

// contradiction reports settings that name what the machine does not have.
func (d devices) contradiction(name string, err error) {
	var c *stepvan.ConfigError
	if !errors.As(err, &c) {
		d.problem(name, err.Error(), "stepvan devices lists the devices")
		return
	}
	d.problem(name, assignment(c.Key, c.Value)+", and RDMA cannot be used so", c.Key+": "+c.Reason)
}

// checkPorts tells which ports are used. Ports that nobody has left out are findings only where none is left, or where
// a list names them: machines have ports without a cable.
func (d devices) checkPorts(inv *device.Inventory, s *device.Selection) {
	const name = "RDMA"
	if len(s.Choices) > 0 {
		d.ok(name, reach.DevicesInUse(s))
	}
	for _, k := range s.Skipped {
		switch {
		case k.Asked:
		case len(s.Choices) == 0:
			d.problem(name, k.Fact(), k.Todo)
		case d.settings.RDMADevices != "":
			d.warn(name, k.Fact(), k.Todo)
		default:
			d.add(name, OK, k.Fact(), k.Todo)
		}
	}
	for _, note := range s.Notes {
		found, todo, _ := strings.Cut(note, ": ")
		d.warn(name, found, cmp.Or(todo, "stepvan devices lists the devices"))
	}
	for _, one := range inv.Devices {
		if len(one.Problems) > 0 {
			d.warn(name, one.Name+": "+strings.Join(one.Problems, "; "), "report it with the output of stepvan devices --json, and the version of the kernel")
		}
	}
	if len(s.Choices) == 0 && len(s.Skipped) == 0 {
		d.problem(name, "the devices of this machine have no ports", "look at the messages of the driver (dmesg)")
	}
}

const providers = "install the providers of libibverbs (on Debian: apt-get install libibverbs1 librdmacm1 ibverbs-providers), in the image of the container, too"

func without(all, some []string) []string {
	return slices.DeleteFunc(all, func(name string) bool { return slices.Contains(some, name) })
}

// checkLibrary looks for libibverbs, librdmacm, and a provider for each device that can be opened.
func (d devices) checkLibrary(l *rdma.Library, open []string) {
	const name = "RDMA library"
	var missing *verbs.LibraryError
	switch {
	case errors.Is(l.Err, verbs.ErrNotInBuild):
		d.problem(name, "this stepvan was built without cgo, and has no RDMA", "build it with CGO_ENABLED=1 and a C compiler")
		return
	case errors.As(l.Err, &missing):
		d.problem(name, missing.Reason, providers)
		return
	case l.Err != nil:
		d.problem(name, l.Err.Error(), providers)
		return
	}
	if bare := without(open, l.Providers); len(bare) > 0 {
		d.problem(name, "libibverbs has no provider for "+strings.Join(bare, ", "), providers)
		return
	}
	if l.ForkSafe {
		d.ok(name, "libibverbs and librdmacm work; the kernel copies registered memory for a fork")
		return
	}
	d.add(name, OK, "libibverbs and librdmacm work; a fork does not get registered memory", "Linux 5.12 or later, for programs that fork and do not exec at once")
}

// checkFiles opens the files by which programs reach the devices in use, and closes them again. It returns the devices
// whose files cannot be opened, of which libibverbs says nothing.
func (d devices) checkFiles(inv *device.Inventory, s *device.Selection) (closed []string) {
	const (
		name    = "RDMA files"
		missing = "let the container have it (docker: --device=/dev/infiniband; Kubernetes: a device plugin for RDMA), or on the host: modprobe %s"
		denied  = "let this user open it for reading and writing (a rule of udev: MODE=\"0666\"; in a container also its device rules)"
	)
	try := func(file, module string) bool {
		err := d.sys.OpenFile(file)
		switch {
		case err == nil:
		case errors.Is(err, fs.ErrNotExist):
			d.problem(name, "there is no "+file, fmt.Sprintf(missing, module))
		default:
			d.problem(name, fmt.Sprintf("%s cannot be opened: %v", file, reason(err)), denied)
		}
		return err == nil
	}
	fine := try("/dev/infiniband/rdma_cm", "rdma_ucm")
	used := s.Devices()
	for _, one := range inv.Devices {
		if slices.Contains(used, one.Name) && !try("/dev/infiniband/"+one.Uverbs, "ib_uverbs") {
			closed = append(closed, one.Name)
		}
	}
	if fine && len(closed) == 0 {
		d.ok(name, "rdma_cm and uverbs can be opened below /dev/infiniband")
	}
	return closed
}

// reason is an error of a file without its path.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// bestMTU is the largest MTU of RDMA. With 1024, as many headers travel as with 1500 bytes of Ethernet.
const bestMTU = 4096

// checkPath looks at what makes a port slow: small packets, and writes that the bus must keep in order.
func (d devices) checkPath(inv *device.Inventory, c device.Choice) {
	at, ok := inv.PortOf(c)
	if !ok {
		return
	}
	if at.Port.MTU > 0 && at.Port.MTU < bestMTU {
		d.smallMTU(at.Port, c)
	}
	if on, known := inv.RelaxedOrdering(at.Device.PCI); known && !on {
		d.warn("RDMA ordering", c.Device+": PCI Express keeps its writes in order (relaxed ordering is off), which can halve its bandwidth",
			fmt.Sprintf("setpci -s %s CAP_EXP+8.w=10:10 until the next boot, and PCI relaxed ordering in the firmware settings of the machine and the card", at.Device.PCI))
	}
}

func (d devices) smallMTU(p *device.Port, c device.Choice) {
	fix := fmt.Sprintf("ip link set %s mtu 9000, at the peers and in the switches too (4200 is enough)", c.Interface)
	if p.LinkLayer == device.LinkInfiniBand {
		fix = "raise the MTU of the partition in the subnet manager (partitions.conf: mtu=5)"
	}
	d.warn("RDMA MTU", fmt.Sprintf("%s port %d sends packets of %d bytes (want %d)", c.Device, c.Port, p.MTU, bestMTU), fix)
}
