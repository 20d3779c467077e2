package ps

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

// machine is a site of one machine: Unix sockets in a directory that only its user can
// enter. The scheduler's port is part of the name of its socket, so clusters are told apart
// as on a network.
type machine struct {
	port int
	tcp  tcpvan.Options
}

// van also sees to the directory: who dials trusts what is in it.
func (m *machine) van(p van.Placer, _ func()) (van.Van, error) {
	if _, err := PrivateDir(); err != nil {
		return nil, &stepvan.ConfigError{Key: "DMLC_LOCAL", Value: "1", Reason: "the directory of the Unix sockets cannot be used: " + err.Error()}
	}
	o := m.tcp
	o.Placer = p
	return tcpvan.New(o)
}

func schedulerSocket(port int) string {
	return filepath.Join(shm.SocketDir(), strconv.Itoa(port)+".scheduler")
}

func (m *machine) meeting() string {
	return "with DMLC_LOCAL=1 nodes meet in " + shm.SocketDir() + ", the directory of one user: start all nodes as the same user and with the same TMPDIR, or unset DMLC_LOCAL"
}

func (m *machine) scheduler() []string { return []string{"unix://" + schedulerSocket(m.port)} }

// anyPort is how often a free port is looked for.
const anyPort = 100

func (m *machine) listenScheduler(_ context.Context, n *link.Transport) (int, error) {
	shm.Sweep(shm.SocketDir())
	defer shm.HoldSweep(shm.SocketDir())()
	port, tries := m.port, 1
	if port == 0 {
		tries = anyPort
	}
	var err error
	for range tries {
		if m.port == 0 {
			port = 1 + rand.IntN(1<<16-1)
		}
		if _, err = n.Listen("unix://" + schedulerSocket(port)); err == nil {
			return port, nil
		}
	}
	reason := err.Error()
	if errors.Is(err, syscall.EADDRINUSE) {
		reason = "another scheduler of this machine listens at " + schedulerSocket(port) + ": stop it, or set another port"
	}
	return 0, &stepvan.ConfigError{Key: rootPort, Value: strconv.Itoa(m.port), Reason: reason}
}

func (m *machine) listenData(_ context.Context, n *link.Transport) ([]string, error) {
	return listenUnix(n, m.port)
}

// listenUnix listens for workers of this machine. The directory is private.
func listenUnix(n *link.Transport, port int) ([]string, error) {
	shm.Sweep(shm.SocketDir())
	defer shm.HoldSweep(shm.SocketDir())()
	name := fmt.Sprintf("%d.%d.%016x", port, os.Getpid(), rand.Uint64())
	return n.Listen("unix://" + filepath.Join(shm.SocketDir(), name))
}
