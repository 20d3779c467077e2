package device

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/stepvan/stepvan/rdma/device/devicelist"
)

// Request says what a node wants. Without fields, and with AnyGID, it asks for all ports that work.
type Request struct {
	Devices     devicelist.List
	GIDIndex    int          // of every port; AnyGID for the best one
	Interface   string       // "" or Auto: any
	Accelerator *Accelerator // nil: devices are as near as each other
}

// AnyGID and Auto leave a choice to the package.
const (
	AnyGID = -1
	Auto   = "auto"
)

// Choice is a port that a node uses.
type Choice struct {
	Device    string     `json:"device"`
	Port      int        `json:"port"`
	GIDIndex  int        `json:"gid_index"`
	GID       netip.Addr `json:"gid"`
	Source    netip.Addr `json:"source"` // of its connections; with its interface as zone, for an address of the link
	Interface string     `json:"interface"`
	Nearness  Proximity  `json:"nearness"` // to the accelerator of the request
}

// String reads "mlx5_0 port 1, GID 3 (10.0.0.7 of eth0)".
func (c Choice) String() string {
	return fmt.Sprintf("%s port %d, GID %d (%v of %s)", c.Device, c.Port, c.GIDIndex, c.Source.WithZone(""), c.Interface)
}

// Skipped is a port that a node does not use.
type Skipped struct {
	Device string `json:"device"`
	Port   int    `json:"port"`
	Why    string `json:"why"`
	Todo   string `json:"todo"`  // what makes the port usable
	Asked  bool   `json:"asked"` // the request leaves it out: nothing to warn of
}

// String reads "mlx5_1 port 1 is not used: it is down (state DOWN, Polling): ...".
func (s Skipped) String() string {
	return s.Fact() + ": " + s.Todo
}

// Fact is String without what to do.
func (s Skipped) Fact() string {
	return fmt.Sprintf("%s port %d is not used: %s", s.Device, s.Port, s.Why)
}

// obstacle is why a port cannot be used, and what to do about it. Without an obstacle both are empty.
type obstacle struct{ why, todo string }

// Selection is what a node uses, the best port first, and what it does not.
type Selection struct {
	Choices []Choice  `json:"choices"`
	Skipped []Skipped `json:"skipped"`
	Notes   []string  `json:"notes,omitempty"` // about the request, which holds nevertheless
}

// Why says in one line why there is no choice, or "" where there is one.
func (s *Selection) Why(inv *Inventory) string {
	if len(s.Choices) > 0 {
		return ""
	}
	if why := inv.WhyNone(); why != "" {
		return why
	}
	return cmp.Or(strings.Join(s.Remarks(), "; "), "no port is left of the devices of this machine")
}

// Devices lists the devices that a node uses, each once, the best first.
func (s *Selection) Devices() (names []string) {
	for _, c := range s.Choices {
		if !slices.Contains(names, c.Device) {
			names = append(names, c.Device)
		}
	}
	return names
}

// Remarks are lines for a log: one for each port that is skipped though the request allows it, and the notes.
func (s *Selection) Remarks() (lines []string) {
	for _, k := range s.Skipped {
		if !k.Asked {
			lines = append(lines, k.String())
		}
	}
	return append(lines, s.Notes...)
}

// Part names a part of a request.
type Part string

// The parts of a request that may contradict the machine.
const (
	PartDevices   Part = "devices"
	PartGIDIndex  Part = "GID index"
	PartInterface Part = "interface"
)

// RequestError says that the machine has nothing of what a part of the request names. The text is for the user of that
// part, and says what to set.
type RequestError struct {
	Part   Part
	Reason string
}

// Error names the part.
func (e *RequestError) Error() string {
	return "choose RDMA devices: " + string(e.Part) + ": " + e.Reason
}

// Choose finds the ports that a node uses. The error is a RequestError. Where the
// request contradicts nothing there may be no choice and no error: then Why tells the reason.
func (inv *Inventory) Choose(r Request) (*Selection, error) {
	if r.Interface == Auto {
		r.Interface = ""
	}
	c := chooser{inventory: inv, request: r, hardware: inv.hasHardware()}
	if err := c.checkInterface(); err != nil {
		return nil, err
	}
	for p := range inv.every {
		c.consider(p)
	}
	if err := c.checkDevices(); err != nil {
		return nil, err
	}
	if err := c.checkGID(); err != nil {
		return nil, err
	}
	return c.selection(), nil
}

// hasHardware reports whether a device of the machine has reliable connections without software.
func (inv *Inventory) hasHardware() bool {
	return slices.ContainsFunc(inv.Devices, func(d Device) bool { return !d.Software && d.Transport != Other })
}

// chooser is one run of Choose.
type chooser struct {
	inventory *Inventory
	request   Request
	hardware  bool // the machine has some
	of        []PortRef
	notes     []string
	chosen    []candidate
	skipped   []Skipped
	noIndex   bool // a port was skipped because it lacks the GID of the request
}

type candidate struct {
	Choice
	ref      PortRef
	distance Distance
}

// checkInterface finds the ports of the interface. Where a list names devices, the interface need not have one.
func (c *chooser) checkInterface() error {
	name := c.request.Interface
	if name == "" || len(c.inventory.Devices) == 0 {
		return nil
	}
	if _, ok := c.inventory.Interface(name); !ok {
		return &RequestError{PartInterface, name + " is not a network interface of this machine: " + c.otherInterfaces()}
	}
	c.of = c.inventory.PortsOf(name)
	listed := slices.ContainsFunc(c.of, func(p PortRef) bool { return c.request.Devices.Allows(p.Device.Name, p.Port.Number) })
	switch {
	case listed:
	case !c.request.Devices.Empty():
		c.notes = append(c.notes, fmt.Sprintf("the interface %s has no device in the list of devices, so each device uses an address of its own", name))
		c.of, c.request.Interface = nil, ""
	default:
		return &RequestError{PartInterface, name + " has no RDMA device: " + c.otherInterfaces()}
	}
	return nil
}

// otherInterfaces tells which interfaces have a device.
func (c *chooser) otherInterfaces() string {
	var names []string
	for p := range c.inventory.every {
		for _, name := range p.Port.Interfaces {
			if _, ok := c.inventory.Interface(name); ok && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return "no interface of this machine has an RDMA device: unset it"
	}
	return "set one of " + strings.Join(names[:min(len(names), 16)], ", ") + ", or auto"
}

// consider takes a port, or skips it.
func (c *chooser) consider(p PortRef) {
	if why := c.leftOut(p); why != "" {
		c.skipped = append(c.skipped, Skipped{p.Device.Name, p.Port.Number, why, "change the setting to use it", true})
		return
	}
	o := unusable(p)
	var choice Choice
	if o == (obstacle{}) {
		choice, o = c.address(p)
	}
	if o != (obstacle{}) {
		c.skipped = append(c.skipped, Skipped{p.Device.Name, p.Port.Number, o.why, o.todo, false})
		return
	}
	one := candidate{Choice: choice, ref: p}
	if a := c.request.Accelerator; a != nil {
		one.distance = a.Distance(p.Device)
		one.Nearness = one.distance.Proximity
	}
	c.chosen = append(c.chosen, one)
}

// leftOut says which part of the request leaves a port out. With a list, the interface only says which port comes
// first.
func (c *chooser) leftOut(p PortRef) string {
	l := c.request.Devices
	switch {
	case !l.Allows(p.Device.Name, p.Port.Number):
		return "the list of devices leaves it out"
	case !l.Empty() && !l.Exclude:
	case c.request.Interface != "" && !slices.Contains(c.of, p):
		return "it does not belong to the interface " + c.request.Interface
	case c.request.Interface == "" && p.Device.Software && c.hardware:
		return "it is software, and the machine has hardware"
	}
	return ""
}

// unusable says why no request can use a port as it is.
func unusable(p PortRef) obstacle {
	d := p.Device
	switch {
	case d.Transport == Other:
		return obstacle{fmt.Sprintf("it has no reliable connections (node type %q)", cmp.Or(d.NodeType, "unknown")), "use a device of InfiniBand, RoCE or iWARP"}
	case !p.Port.Active:
		return inactive(p)
	case d.Uverbs == "":
		return obstacle{"programs cannot open the device", "modprobe ib_uverbs"}
	}
	return obstacle{}
}

// inactive says what the state of a port is, and what to do about it.
func inactive(p PortRef) obstacle {
	state, physical := cmp.Or(p.Port.State, "unknown"), cmp.Or(p.Port.Physical, "unknown")
	todo := "check the cable, and the port of the switch"
	switch {
	case p.Port.Physical == "Disabled" && len(p.Port.Interfaces) > 0:
		todo = "ip link set " + p.Port.Interfaces[0] + " up"
	case p.Port.LinkLayer == LinkInfiniBand && p.Port.Physical == "LinkUp":
		todo = "start a subnet manager (opensm)"
	}
	return obstacle{fmt.Sprintf("it is not active (state %s, physical state %s)", state, physical), todo}
}

// checkDevices refuses a list that allows no device of the machine, and notes entries that name none.
func (c *chooser) checkDevices() error {
	l, have := c.request.Devices, c.inventory.Devices
	if l.Empty() || len(have) == 0 {
		return nil
	}
	allowed := false
	for p := range c.inventory.every {
		allowed = allowed || l.Allows(p.Device.Name, p.Port.Number)
	}
	names := make([]string, len(have))
	for i := range have {
		names[i] = have[i].Name
	}
	if !allowed {
		return &RequestError{PartDevices, fmt.Sprintf("allows no port of this machine (got %s, have %s): set the names of some, or unset it", l.Describe(), strings.Join(names[:min(len(names), 16)], ", "))}
	}
	for _, e := range l.Entries {
		one := devicelist.List{Exact: l.Exact, Entries: []devicelist.Entry{e}}
		if !slices.ContainsFunc(slices.Collect(c.inventory.every), func(p PortRef) bool { return one.Allows(p.Device.Name, p.Port.Number) }) {
			c.notes = append(c.notes, fmt.Sprintf("the list of devices names %v, which the machine does not have", e))
		}
	}
	return nil
}

// checkGID refuses a GID index that no port has.
func (c *chooser) checkGID() error {
	if !c.noIndex || len(c.chosen) > 0 {
		return nil
	}
	var parts []string
	for _, s := range c.skipped {
		if !s.Asked {
			parts = append(parts, s.String())
		}
	}
	return &RequestError{PartGIDIndex, "no port has a GID that fits at this index: " + strings.Join(parts[:min(len(parts), 4)], "; ")}
}

// selection sorts what was chosen: the port of the interface, then near ones, then in the order of the list, then fast
// ones.
func (c *chooser) selection() *Selection {
	slices.SortStableFunc(c.chosen, func(a, b candidate) int {
		return cmp.Or(
			truth(slices.Contains(c.of, b.ref))-truth(slices.Contains(c.of, a.ref)),
			a.distance.compare(b.distance),
			c.place(a.ref)-c.place(b.ref),
			cmp.Compare(b.ref.Port.Rate, a.ref.Port.Rate),
		)
	})
	s := &Selection{Choices: []Choice{}, Skipped: append([]Skipped{}, c.skipped...), Notes: c.notes}
	for i := range c.chosen {
		choice := c.chosen[i].Choice
		s.Choices = append(s.Choices, choice)
		if c.request.GIDIndex == AnyGID && choice.Source.IsLinkLocalUnicast() {
			s.Notes = append(s.Notes, fmt.Sprintf("%s port %d has only a link-local address, which leads to peers on the same network segment: ip addr add ADDRESS/PREFIX dev %s", choice.Device, choice.Port, choice.Interface))
		}
	}
	return s
}

func (c *chooser) place(p PortRef) int {
	if c.request.Devices.Exclude {
		return 0
	}
	return c.request.Devices.Place(p.Device.Name, p.Port.Number)
}
