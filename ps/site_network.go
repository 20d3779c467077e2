package ps

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/text"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/tcpvan"
)

// network is a site of several machines, over TCP.
type network struct {
	settings *Settings
	tcp      tcpvan.Options
}

func (w *network) van(p van.Placer, _ func()) (van.Van, error) {
	o := w.tcp
	o.Placer = p
	return tcpvan.New(o)
}

func (w *network) meeting() string { return "" }

func (w *network) scheduler() []string { return []string{"tcp://" + w.settings.RootAddr()} }

// listenScheduler listens at all addresses of the machine, for nodes of other machines may
// know it by any of them; at the loopback address only where that is what all are told.
func (w *network) listenScheduler(ctx context.Context, n *link.Transport) (int, error) {
	root, err := lookup(ctx, rootURI, w.settings.RootURI)
	if err != nil {
		return 0, err
	}
	host := ""
	if root.loopback() {
		host = root[0].String()
	} else if !root.own() {
		n.Log().Warn().Msgf("%s=%s is no address of this machine, where the scheduler runs: nodes find it only if something forwards to here", rootURI, w.settings.RootURI)
	}
	bound, err := listenTCP(n, rootPort, host, w.settings.RootPort)
	if err != nil {
		return 0, err
	}
	return portOf(bound)
}

// listenData listens at the data ports, and makes addresses that workers can dial of them.
func (w *network) listenData(ctx context.Context, n *link.Transport) ([]string, error) {
	at, err := w.choose(ctx)
	if err != nil {
		return nil, err
	}
	ports := w.settings.DataPorts()
	if ports == nil {
		ports = []int{0}
	}
	var out []string
	for _, p := range ports {
		bound, err := listenTCP(n, dataPort, at.bind, p)
		if err != nil {
			return nil, err
		}
		port, err := portOf(bound)
		if err != nil {
			return nil, err
		}
		out = append(out, tcpAddr(at.tell, port))
	}
	return out, nil
}

func tcpAddr(host string, port int) string {
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// listenTCP listens at one port; the error names the setting that the port is from.
func listenTCP(n *link.Transport, key, host string, port int) (string, error) {
	bound, err := n.Listen(tcpAddr(host, port))
	if err == nil {
		return bound[0], nil
	}
	reason := err.Error()
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		reason = "another program listens at this port: stop it, or set a free port"
	case errors.Is(err, syscall.EACCES):
		reason = "ports below 1024 are for root: set one above"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		reason = "address " + host + " is not usable on this machine: " + reason
	}
	return "", &stepvan.ConfigError{Key: key, Value: strconv.Itoa(port), Reason: reason}
}

func portOf(addr string) (int, error) {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(addr, "tcp://"))
	if err != nil {
		return 0, errs.Invalid("address %q: %v", text.Cut(addr), err)
	}
	return strconv.Atoi(port)
}
