package reach

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/tcpvan"
)

// unixVan is the base on one machine: Unix sockets in a directory that only its user can
// enter. The scheduler's port is part of the name of its socket, so clusters are told apart
// as on a network.
type unixVan struct {
	port int
	tcp  tcpvan.Options
}

// make also checks the directory: instances trust what they find in it.
func (u *unixVan) make(p van.Placer, _ func()) (van.Van, error) {
	if _, err := SocketDir(); err != nil {
		return nil, &stepvan.ConfigError{Key: "DMLC_LOCAL", Value: "1", Reason: "the directory of the Unix sockets cannot be used: " + err.Error()}
	}
	o := u.tcp
	o.Placer = p
	return tcpvan.New(o)
}

func schedulerSocket(port int) string {
	return filepath.Join(shm.SocketDir(), strconv.Itoa(port)+".scheduler")
}

func (u *unixVan) scheduler() string { return "unix://" + schedulerSocket(u.port) }

// anyPort is how often a free port is looked for.
const anyPort = 100

func (u *unixVan) listenScheduler(_ context.Context, t *link.Transport) (int, error) {
	port, tries := u.port, 1
	if port == 0 {
		tries = anyPort
	}
	var err error
	for range tries {
		if u.port == 0 {
			port = 1 + rand.IntN(1<<16-1)
		}
		if _, err = listenInSocketDir(t, "unix://"+schedulerSocket(port)); err == nil {
			return port, nil
		}
	}
	reason := err.Error()
	if errors.Is(err, syscall.EADDRINUSE) {
		reason = "another scheduler of this machine listens at " + schedulerSocket(port) + ": stop it, or set another port"
	}
	return 0, &stepvan.ConfigError{Key: rootPort, Value: strconv.Itoa(u.port), Reason: reason}
}

func (u *unixVan) listenData(_ context.Context, t *link.Transport) ([]string, error) {
	return listenUnix(t, u.port)
}

// listenUnix listens for instances of this machine. The directory is private.
func listenUnix(t *link.Transport, port int) ([]string, error) {
	name := fmt.Sprintf("%d.%d.%016x", port, os.Getpid(), rand.Uint64())
	return listenInSocketDir(t, "unix://"+filepath.Join(shm.SocketDir(), name))
}
