package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/config"
)

// checkPorts looks at the scheduler's port and the data ports. With DMLC_LOCAL=1
// there are Unix sockets instead.
func (d network) checkPorts(ctx context.Context) {
	s := d.settings
	if s.Local || s.RootURI == "" {
		return
	}
	switch {
	case s.Role == "":
	case s.Role == config.RoleScheduler && s.RootPort == 0:
		d.ok("root port", "a free one")
	case s.Role == config.RoleScheduler:
		d.checkFree(ctx, "root port", s.RootPort, "DMLC_PS_ROOT_PORT to another port, everywhere")
	case s.RootPort > 0:
		d.checkReach(ctx)
	}
	for _, port := range s.DataPorts() {
		d.checkFree(ctx, "data port", port, "DMLC_PORT to another port, or unset it for free ones")
	}
}

// checkFree opens the port on all addresses, and closes it again.
func (d network) checkFree(ctx context.Context, name string, port int, instead string) {
	err := d.sys.Listen(ctx, ":"+strconv.Itoa(port))
	switch {
	case err == nil:
		d.ok(name, fmt.Sprintf("%d is free", port))
	case errors.Is(err, unix.EADDRINUSE):
		d.fail(name, fmt.Sprintf("%d is taken", port), fmt.Sprintf("ss -ltnp 'sport = :%d' shows the process: stop it, or set %s", port, instead))
	case errors.Is(err, unix.EACCES):
		d.fail(name, fmt.Sprintf("%d is for privileged processes", port), "set "+instead+", 1024 or above")
	default:
		d.fail(name, fmt.Sprintf("%d cannot be opened: %v", port, err), "set "+instead)
	}
}

// meetTime is how many times o.Reach the scheduler may take to say what it is.
const meetTime = 3

// checkScheduler reports whether what listens at the root port is a scheduler.
func (d network) checkScheduler(ctx context.Context, addr string) {
	ctx, cancel := context.WithTimeout(ctx, meetTime*d.reach)
	defer cancel()
	err := d.sys.Scheduler(ctx, d.settings)
	fix := fmt.Sprintf("ss -ltnp 'sport = :%d' on that machine shows what it is: stop it, or correct DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT", d.settings.RootPort)
	switch {
	case err == nil:
		d.ok("root port", "the scheduler listens at "+addr)
	case errors.Is(err, context.DeadlineExceeded):
		d.warn("root port", fmt.Sprintf("what listens at %s has not answered as a scheduler within %v", addr, meetTime*d.reach), fix)
	default:
		d.fail("root port", fmt.Sprintf("what listens at %s is not a scheduler of this version: %v", addr, err), fix)
	}
}

// checkReach connects to the scheduler. A missing answer is not a failure: the scheduler may start later.
func (d network) checkReach(ctx context.Context) {
	addr := d.settings.RootAddr()
	limited, cancel := context.WithTimeout(ctx, d.reach)
	defer cancel()
	err := d.sys.Dial(limited, addr)
	switch {
	case err == nil:
		d.checkScheduler(ctx, addr)
	case errors.Is(err, unix.ECONNREFUSED):
		d.warn("root port", "nothing listens at "+addr, "start the scheduler there (DMLC_ROLE=scheduler), or correct DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		d.warn("root port", fmt.Sprintf("no answer from %s within %v", addr, d.reach), fmt.Sprintf("let port %d through the firewall, start the scheduler, or correct DMLC_PS_ROOT_URI", d.settings.RootPort))
	default:
		d.warn("root port", fmt.Sprintf("%s cannot be reached: %v", addr, err), "ip route get "+d.settings.RootURI+" shows the way: correct DMLC_PS_ROOT_URI or the routes")
	}
}
