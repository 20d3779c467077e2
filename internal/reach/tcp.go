package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/text"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/tcpvan"
)

// tcpVan is the base between machines: TCP.
type tcpVan struct {
	settings *config.Settings
	host     Host
	tcp      tcpvan.Options
}

func (w *tcpVan) make(p van.Placer, _ func()) (van.Van, error) {
	o := w.tcp
	o.Placer = p
	return tcpvan.New(o)
}

func (w *tcpVan) scheduler() string { return "tcp://" + w.settings.RootAddr() }

// listenScheduler listens at all addresses of the machine, since nodes of other machines may know it by any of them. It
// listens at the loopback address only where DMLC_PS_ROOT_URI is that.
func (w *tcpVan) listenScheduler(ctx context.Context, t *link.Transport) (int, error) {
	root, err := w.host.Resolve(ctx, rootURI, w.settings.RootURI)
	if err != nil {
		return 0, err
	}
	host := ""
	if root.Loopback() {
		host = root[0].String()
	} else if !w.host.Owns(root) {
		t.Log().Warn().Msgf("%s=%s is not an address of this machine, where the scheduler runs: nodes find it only if something forwards to here", rootURI, w.settings.RootURI)
	}
	bound, err := listenTCP(t, rootPort, host, w.settings.RootPort)
	if err != nil {
		return 0, err
	}
	return portOf(bound)
}

// listenData listens at the data ports, and returns the addresses that others dial.
func (w *tcpVan) listenData(ctx context.Context, t *link.Transport) ([]string, error) {
	at, err := w.host.ServerAddress(ctx, w.settings)
	if err != nil {
		return nil, err
	}
	ports := w.settings.DataPorts()
	if ports == nil {
		ports = []int{0}
	}
	var out []string
	for _, p := range ports {
		bound, err := listenTCP(t, dataPort, at.Bind, p)
		if err != nil {
			return nil, err
		}
		port, err := portOf(bound)
		if err != nil {
			return nil, err
		}
		out = append(out, tcpAddr(at.Advertised, port))
	}
	return out, nil
}

func tcpAddr(host string, port int) string {
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// listenTCP listens at one port of the setting called key.
func listenTCP(t *link.Transport, key, host string, port int) (string, error) {
	bound, err := t.Listen(tcpAddr(host, port))
	if err != nil {
		return "", PortError(key, host, port, err)
	}
	return bound[0], nil
}

// PortError says why nothing can listen at a port of the setting called key, and what to do.
func PortError(key, host string, port int, err error) error {
	reason := err.Error()
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		reason = fmt.Sprintf("another program listens at this port: stop it (ss -ltnp 'sport = :%d' shows it), or set a free port", port)
	case errors.Is(err, syscall.EACCES):
		reason = "ports below 1024 are for root: set one above"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		reason = "address " + host + " is not usable on this machine: " + reason
	}
	return &stepvan.ConfigError{Key: key, Value: strconv.Itoa(port), Reason: reason}
}

func portOf(addr string) (int, error) {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(addr, "tcp://"))
	if err != nil {
		return 0, errs.Invalid("address: no port (got %q): %v", text.Cut(addr), err)
	}
	return strconv.Atoi(port)
}
