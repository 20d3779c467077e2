package doctor

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/stepvan/stepvan/config"
)

// checkInterface looks at DMLC_INTERFACE.
func (d network) checkInterface() {
	devices := d.rdmaDevices()
	if d.settings.Van == config.VanRDMA {
		d.fail("rdma", "there is no RDMA in this build, whatever devices there are", "set STEPVAN_VAN=auto, shm or tcp")
	}
	switch name := d.settings.Interface; {
	case name == "":
	case strings.EqualFold(name, "auto"):
		d.checkAutoInterface(devices)
	default:
		d.checkNamedInterface(name)
	}
}

func (d network) rdmaDevices() []string {
	entries, err := fs.ReadDir(d.sys.Root, "sys/class/infiniband")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (d network) checkAutoInterface(devices []string) {
	if len(devices) == 0 {
		d.warn("interface", "DMLC_INTERFACE=auto looks for an RDMA port, and this machine has none", "set DMLC_INTERFACE to one of "+d.candidates())
		return
	}
	d.ok("interface", "auto, of "+strings.Join(devices, ", "))
}

func (d network) checkNamedInterface(name string) {
	all, err := d.sys.Interfaces()
	if err != nil {
		return
	}
	at := slices.IndexFunc(all, func(i Interface) bool { return i.Name == name })
	switch {
	case at < 0:
		d.fail("interface", "there is no interface "+name, "set DMLC_INTERFACE to one of "+d.candidates())
	case !all[at].Up:
		d.fail("interface", name+" is down", "ip link set "+name+" up, or set DMLC_INTERFACE to one of "+d.candidates())
	case len(all[at].Addrs) == 0:
		d.fail("interface", name+" has no address", "ip addr add ADDRESS/PREFIX dev "+name+", or set DMLC_INTERFACE to one of "+d.candidates())
	case all[at].Loopback && !d.settings.Local && !loopback(d.settings.RootURI):
		d.warn("interface", name+" is the loopback, which other machines cannot reach", "set DMLC_INTERFACE to one of "+d.candidates()+", or DMLC_LOCAL=1")
	default:
		d.ok("interface", name+" ("+strings.Join(all[at].Addrs, ", ")+")")
	}
}

// candidates lists the interfaces that would do.
func (d network) candidates() string {
	all, err := d.sys.Interfaces()
	if err != nil {
		return "those of `ip addr`"
	}
	var names []string
	for _, i := range all {
		if addrs := reachable(i.Addrs); i.Up && len(addrs) > 0 {
			names = append(names, i.Name+" ("+addrs[0]+")")
		}
	}
	if len(names) == 0 {
		return "those of `ip addr`, none of which is up with an address that others can reach"
	}
	return strings.Join(names, ", ")
}
