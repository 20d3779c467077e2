package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/reach"
)

const rootURI, rootPort = "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT"

// checkRoot looks up the scheduler's name, and compares it with the addresses of this machine. With DMLC_LOCAL=1 no
// node uses the name.
func (d network) checkRoot(ctx context.Context) reach.Addresses {
	const name = "scheduler name"
	s := d.settings
	if s.RootURI == "" {
		return nil
	}
	root, err := d.resolve(ctx, rootURI, s.RootURI)
	if err != nil {
		if !s.Local {
			d.refused(name, err)
		}
		return nil
	}
	found, mine, public := s.RootURI, d.sys.Owns(root), d.sys.Own().Public()
	if root.String() != found {
		found += " (" + root.String() + ")"
	}
	switch {
	case !mine && s.Local:
		d.warn(name, found+" is another machine, and DMLC_LOCAL=1 means this one only", "set DMLC_PS_ROOT_URI=127.0.0.1, or unset DMLC_LOCAL")
	case !mine && s.Role == stepvan.RoleScheduler:
		d.warn(name, found+" is not an address of this machine, which is the scheduler",
			fmt.Sprintf("set DMLC_PS_ROOT_URI to one of %v everywhere, unless a service or NAT address leads here", public))
	case root.Loopback() && root.String() != s.RootURI && s.RootURI != "localhost" && !s.Local:
		d.warn(name, found+" is the loopback address, which other machines cannot reach",
			fmt.Sprintf("remove the line of %s with 127.x.x.x from /etc/hosts, or set DMLC_PS_ROOT_URI to one of %v", s.RootURI, public))
	default:
		d.ok(name, found)
	}
	return root
}

func (d network) resolve(ctx context.Context, key, host string) (reach.Addresses, error) {
	ctx, cancel := context.WithTimeout(ctx, d.reach)
	defer cancel()
	return d.sys.Resolve(ctx, key, host)
}

// checkAddress finds the address by which others reach this server or peer, as its start does, and tries its data ports
// there.
func (d network) checkAddress(ctx context.Context, root reach.Addresses) {
	const name = "address"
	s := d.settings
	if root == nil || !reach.Dialled(&s) {
		return
	}
	limited, cancel := context.WithTimeout(ctx, d.reach)
	defer cancel()
	at, err := d.sys.ServerAddress(limited, &s)
	if err != nil {
		d.refused(name, err)
		return
	}
	advertised, _ := d.resolve(ctx, "DMLC_NODE_HOST", at.Advertised) // what ServerAddress has resolved
	public := d.sys.Own().Public()
	switch {
	case d.isDown(s.Interface):
		d.warn(name, s.Interface+" is down", "ip link set "+s.Interface+" up, or set another DMLC_INTERFACE")
	case !d.sys.Owns(advertised):
		d.warn(name, at.Advertised+" is not an address of this machine, and other nodes connect to it",
			fmt.Sprintf("set DMLC_NODE_HOST to one of %v, unless a service or NAT address leads here", public))
	case advertised.Loopback() && !root.Loopback():
		d.warn(name, at.Advertised+" is the loopback, which other machines cannot reach",
			fmt.Sprintf("set DMLC_NODE_HOST to one of %v, or another DMLC_INTERFACE, or DMLC_LOCAL=1", public))
	default:
		d.ok(name, reached(s.Role)+" at "+at.Advertised)
	}
	for _, port := range s.DataPorts() {
		d.checkFree(ctx, "data port", "DMLC_PORT", at.Bind, port)
	}
}

// reached names the instances that connect to a node of the role.
func reached(r stepvan.Role) string {
	if r == stepvan.RolePeer {
		return "the other peers reach this one"
	}
	return "workers reach this server"
}

func (d network) isDown(name string) bool {
	all, _ := d.sys.Interfaces()
	return slices.ContainsFunc(all, func(f reach.Interface) bool { return f.Name == name && !f.Up })
}

// checkRootPort tries the scheduler's port: the scheduler listens there, and all others connect to it. With
// DMLC_LOCAL=1 there are Unix sockets instead.
func (d network) checkRootPort(ctx context.Context, root reach.Addresses) {
	s := d.settings
	switch {
	case s.Local || root == nil || s.Role == "":
	case s.Role == stepvan.RoleScheduler && s.RootPort == 0:
		d.ok("root port", "a free one")
	case s.Role == stepvan.RoleScheduler:
		bind := ""
		if root.Loopback() {
			bind = root[0].String()
		}
		d.checkFree(ctx, "root port", rootPort, bind, s.RootPort)
	case s.RootPort > 0:
		d.checkConnect(ctx)
	}
}

// checkFree opens the port, and closes it again.
func (d network) checkFree(ctx context.Context, name, key, host string, port int) {
	if err := d.sys.Listen(ctx, net.JoinHostPort(host, strconv.Itoa(port))); err != nil {
		d.refused(name, reach.PortError(key, host, port, err))
		return
	}
	d.ok(name, fmt.Sprintf("%d is free", port))
}

// checkConnect connects to the scheduler. A missing answer is not a failure: the scheduler may start later.
func (d network) checkConnect(ctx context.Context) {
	const name = "root port"
	addr := d.settings.RootAddr()
	limited, cancel := context.WithTimeout(ctx, d.reach)
	defer cancel()
	err := d.sys.Dial(limited, addr)
	switch {
	case err == nil:
		d.checkScheduler(ctx, addr)
	case errors.Is(err, unix.ECONNREFUSED):
		d.warn(name, "nothing listens at "+addr, "start the scheduler there (DMLC_ROLE=scheduler), or correct DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		d.warn(name, fmt.Sprintf("no answer from %s within %v", addr, d.reach), fmt.Sprintf("let port %d through the firewall, start the scheduler, or correct DMLC_PS_ROOT_URI", d.settings.RootPort))
	default:
		d.warn(name, fmt.Sprintf("%s cannot be reached: %v", addr, err), "ip route get "+d.settings.RootURI+" shows the way: correct DMLC_PS_ROOT_URI or the routes")
	}
}

// meetTime is how many times o.Reach the scheduler may take to say what it is.
const meetTime = 3

// checkScheduler reports whether what listens at the root port is a scheduler.
func (d network) checkScheduler(ctx context.Context, addr string) {
	const name = "root port"
	ctx, cancel := context.WithTimeout(ctx, meetTime*d.reach)
	defer cancel()
	err := d.sys.Scheduler(ctx, d.settings)
	fix := fmt.Sprintf("ss -ltnp 'sport = :%d' on that machine shows what it is: stop it, or correct DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT", d.settings.RootPort)
	switch {
	case err == nil:
		d.ok(name, "the scheduler listens at "+addr)
	case errors.Is(err, context.DeadlineExceeded):
		d.warn(name, fmt.Sprintf("what listens at %s has not answered as a scheduler within %v", addr, meetTime*d.reach), fix)
	default:
		d.fail(name, fmt.Sprintf("what listens at %s is not a scheduler of this version: %v", addr, err), fix)
	}
}

// socketBytes is the size that a socket buffer should have: a message of 1.75 MiB and the next one.
const socketBytes = 4 << 20

// checkSockets checks the largest socket buffers that a process may have.
func (d network) checkSockets() {
	s := d.settings
	if s.Van != config.VanTCP && s.Van != config.VanAuto || s.Local {
		return
	}
	var small, fix []string
	for _, key := range []string{"rmem_max", "wmem_max"} {
		if n, ok := d.number("proc/sys/net/core/" + key); ok && n < socketBytes {
			small = append(small, fmt.Sprintf("net.core.%s is %v", key, config.Bytes(n)))
			fix = append(fix, fmt.Sprintf("net.core.%s=%d", key, socketBytes))
		}
	}
	if len(small) == 0 {
		d.ok("socket buffers", fmt.Sprintf("up to %v or more are allowed", config.Bytes(socketBytes)))
		return
	}
	d.warn("socket buffers", strings.Join(small, ", ")+": large messages take more rounds", "sysctl -w "+strings.Join(fix, " ")+" (in /etc/sysctl.d to keep it)")
}
