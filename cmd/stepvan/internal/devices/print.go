package devices

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/stepvan/stepvan/rdma/device"
)

// JSON writes the report as one object.
func JSON(w io.Writer, r *Report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// Parts are what Print writes beside the rest.
type Parts struct {
	GIDs     bool // the GID tables
	Counters bool // what the ports have counted of trouble
}

// Print writes the report for people: a table of the ports, what is not used and why, and accelerators with their
// nearest devices. The error comes from w.
func Print(w io.Writer, r *Report, parts Parts) error {
	var b strings.Builder
	if len(r.Devices) == 0 {
		fmt.Fprintf(&b, "No RDMA device: %s.\n", r.WhyNone())
		_, err := io.WriteString(w, b.String())
		return err
	}
	r.ports(&b)
	if parts.GIDs {
		r.tables(&b)
	}
	if parts.Counters {
		r.counters(&b)
	}
	r.accelerators(&b)
	r.notes(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// table writes rows in columns, the first row as their heading.
func table(b *strings.Builder, rows [][]string) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // a Builder takes everything
}

func (r *Report) ports(b *strings.Builder) {
	rows := [][]string{{"DEVICE", "PORT", "STATE", "LINK", "RATE", "MTU", "PCI", "NUMA", "DRIVER", "INTERFACES", "USE"}}
	for i := range r.Devices {
		d := &r.Devices[i]
		for j := range d.Ports {
			p := &d.Ports[j]
			rows = append(rows, []string{
				d.Name, strconv.Itoa(p.Number), state(p), link(d, p), rate(p), mtu(p), place(d), numa(d.NUMA),
				cmp.Or(d.Driver, "-"), interfaces(p), r.use(d, p),
			})
		}
		if len(d.Ports) == 0 {
			rows = append(rows, []string{d.Name, "-", "-", "-", "-", "-", place(d), numa(d.NUMA), cmp.Or(d.Driver, "-"), "-", "no"})
		}
	}
	table(b, rows)
}

// state is the word of the kernel, with that of the cable where the port does not work.
func state(p *device.Port) string {
	if p.Active {
		return "active"
	}
	return fmt.Sprintf("%s (%s)", cmp.Or(strings.ToLower(p.State), "unknown"), cmp.Or(p.Physical, "unknown"))
}

func link(d *device.Device, p *device.Port) string {
	switch {
	case d.Transport == device.IWARP:
		return "iWARP"
	case d.Transport == device.Other:
		return string(device.Other)
	case p.LinkLayer == device.LinkEthernet:
		return "RoCE"
	}
	return cmp.Or(string(p.LinkLayer), "-")
}

func rate(p *device.Port) string {
	if p.Rate == 0 {
		return "-"
	}
	return strings.TrimSpace(strconv.FormatFloat(p.Rate, 'f', -1, 64) + "G " + p.Lanes)
}

func mtu(p *device.Port) string {
	if p.MTU == 0 {
		return "-"
	}
	return strconv.Itoa(p.MTU)
}

func place(d *device.Device) string {
	switch {
	case d.Software:
		return "software"
	case d.Virtual:
		return d.PCI + " (VF)"
	}
	return cmp.Or(d.PCI, "-")
}

func numa(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// mostInterfaces is how many interfaces the table lists of a port.
const mostInterfaces = 3

func interfaces(p *device.Port) string {
	if more := len(p.Interfaces) - mostInterfaces; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(p.Interfaces[:mostInterfaces], ","), more)
	}
	return cmp.Or(strings.Join(p.Interfaces, ","), "-")
}

// use says what a node does with a port.
func (r *Report) use(d *device.Device, p *device.Port) string {
	c := r.choice(d.Name, p.Number)
	if c == nil {
		return "no"
	}
	return fmt.Sprintf("GID %d, %v", c.GIDIndex, c.Source.WithZone(""))
}

func (r *Report) tables(b *strings.Builder) {
	rows := [][]string{{"DEVICE", "PORT", "GID", "ADDRESS", "TYPE", "INTERFACE"}}
	for _, d := range r.Devices {
		for _, p := range d.Ports {
			for _, g := range p.GIDs {
				rows = append(rows, []string{d.Name, strconv.Itoa(p.Number), strconv.Itoa(g.Index), g.String(), cmp.Or(string(g.Type), "unknown"), cmp.Or(g.Interface, "-")})
			}
		}
	}
	b.WriteByte('\n')
	table(b, rows)
}

// counters lists what has gone wrong at the ports, and which ports have seen nothing of that.
func (r *Report) counters(b *strings.Builder) {
	rows := [][]string{{"DEVICE", "PORT", "COUNTER", "VALUE"}}
	for _, p := range r.Counters {
		port, list := strconv.Itoa(p.Port), p.Trouble()
		for _, c := range list {
			rows = append(rows, []string{p.Device, port, c.Name, strconv.FormatUint(c.Value, 10)})
		}
		if len(list) == 0 {
			rows = append(rows, []string{p.Device, port, "no retries, losses or congestion", "-"})
		}
	}
	b.WriteByte('\n')
	table(b, rows)
}

func (r *Report) accelerators(b *strings.Builder) {
	if len(r.Accelerators) == 0 {
		return
	}
	rows := [][]string{{"ACCELERATOR", "VENDOR", "NUMA", "NEAREST DEVICE"}}
	for _, a := range r.Accelerators {
		near := "-"
		if a.Device != "" {
			near = fmt.Sprintf("%s (%v)", a.Device, a.Nearness)
		}
		rows = append(rows, []string{a.PCI, a.Vendor, numa(a.NUMA), near})
	}
	b.WriteByte('\n')
	table(b, rows)
}

// notes tells what is wrong, and why ports are not used.
func (r *Report) notes(b *strings.Builder) {
	var lines []string
	for _, s := range r.Selection.Skipped {
		if s.Asked {
			lines = append(lines, s.Fact())
			continue
		}
		lines = append(lines, s.String())
	}
	lines = append(lines, r.Selection.Notes...)
	for _, d := range r.Devices {
		if r.Library == "" && !slices.Contains(r.Providers, d.Name) {
			lines = append(lines, d.Name+": libibverbs does not list it, since its device file or its provider is missing: stepvan doctor says which")
		}
		for _, p := range d.Problems {
			lines = append(lines, d.Name+": "+p)
		}
	}
	if r.Library != "" {
		lines = append(lines, "the devices cannot be used: "+r.Library)
	}
	if len(lines) > 0 {
		b.WriteString("\n" + strings.Join(lines, "\n") + "\n")
	}
}
