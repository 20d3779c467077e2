package doctor

import (
	"context"
	"errors"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
)

// Status says how bad a finding is.
type Status int

// The statuses, worse ones greater.
const (
	OK   Status = iota
	Warn        // it may work, or be slow
	Fail        // the node will not start, or not work
)

// String is the word that Print writes.
func (s Status) String() string { return [...]string{"ok", "warn", "fail"}[s] }

// Check is the result for one subject.
type Check struct {
	Name   string // the subject: "root port"
	Status Status
	Found  string // what Run found
	Fix    string // the command to run or the variable to set; "" when there is nothing to do
}

// Options are what Run needs besides the settings. The zero value checks this machine, and takes
// the settings as correct.
type Options struct {
	Mistakes error            // of config.FromEnv and reach.Check
	Warnings []config.Warning // of config.FromEnv and reach.Check
	System   *System          // nil: this machine
	Reach    time.Duration    // limit for the lookup of a name and for the scheduler's port; 0: one second
}

// Run checks settings and machine. It returns within a few times o.Reach, or when ctx ends.
func Run(ctx context.Context, s config.Settings, o Options) []Check {
	d := &doctor{settings: s, sys: o.System, reach: o.Reach}
	if d.sys == nil {
		d.sys = ThisMachine()
	}
	if d.reach <= 0 {
		d.reach = time.Second
	}
	onNetwork, onHost, onSharing, onDevices := network{d}, host{d}, sharing{d}, devices{d}
	d.checkSettings(o.Mistakes, o.Warnings)
	d.checkHeartbeats()
	root := onNetwork.checkRoot(ctx)
	onNetwork.checkAddress(ctx, root)
	onNetwork.checkRootPort(ctx, root)
	onHost.checkLimits()
	onHost.checkCores()
	onSharing.checkMemory()
	onSharing.checkSharing(ctx)
	onNetwork.checkSockets()
	onDevices.checkDevices()
	onHost.checkClock()
	return d.checks
}

// Worst returns the worst status of all checks.
func Worst(checks []Check) Status {
	worst := OK
	for _, c := range checks {
		worst = max(worst, c.Status)
	}
	return worst
}

// The checks of names, addresses, ports and sockets, of limits, cores and clock, of memory that processes share, and
// of RDMA devices.
type (
	network struct{ *doctor }
	host    struct{ *doctor }
	sharing struct{ *doctor }
	devices struct{ *doctor }
)

// doctor is one run: its settings, its machine and its results.
type doctor struct {
	settings config.Settings
	sys      *System
	reach    time.Duration
	checks   []Check
}

func (d *doctor) add(name string, status Status, found, fix string) {
	d.checks = append(d.checks, Check{Name: name, Status: status, Found: found, Fix: fix})
}

func (d *doctor) ok(name, found string)        { d.add(name, OK, found, "") }
func (d *doctor) warn(name, found, fix string) { d.add(name, Warn, found, fix) }
func (d *doctor) fail(name, found, fix string) { d.add(name, Fail, found, fix) }

// refused reports the error of a check that a start makes, too.
func (d *doctor) refused(name string, err error) {
	var c *stepvan.ConfigError
	if !errors.As(err, &c) {
		d.fail(name, err.Error(), "stepvan env shows the settings")
		return
	}
	d.fail(name, assignment(c.Key, c.Value), c.Key+": "+c.Reason)
}
