package ps

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/link"
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
	if err := makePrivate(socketDir()); err != nil {
		return nil, err
	}
	o := m.tcp
	o.Placer = p
	return tcpvan.New(o)
}

func socketDir() string { return filepath.Join(os.TempDir(), fmt.Sprintf("stepvan-%d", os.Getuid())) }

func schedulerSocket(port int) string {
	return filepath.Join(socketDir(), strconv.Itoa(port)+".scheduler")
}

func (m *machine) scheduler() []string { return []string{"unix://" + schedulerSocket(m.port)} }

// anyPort is how often a free port is looked for.
const anyPort = 100

func (m *machine) listenScheduler(_ context.Context, n *link.Node) (int, error) {
	sweep(socketDir())
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
	return 0, &errs.ConfigError{Key: rootPort, Value: strconv.Itoa(m.port), Reason: reason}
}

func (m *machine) listenData(_ context.Context, n *link.Node) ([]string, error) {
	name := fmt.Sprintf("%d.%d.%08x", m.port, os.Getpid(), rand.Uint32())
	return n.Listen("unix://" + filepath.Join(socketDir(), name))
}

// makePrivate makes dir, or checks that nobody else can enter it.
func makePrivate(dir string) error {
	if err := os.Mkdir(dir, 0o700); err == nil || !errors.Is(err, os.ErrExist) {
		return local(dir, err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return local(dir, err)
	}
	st, _ := fi.Sys().(*syscall.Stat_t)
	if !fi.IsDir() || fi.Mode().Perm()&0o077 != 0 || st == nil || int(st.Uid) != os.Getuid() {
		return local(dir, errors.New("others than this user can enter it: remove it, or set TMPDIR to another directory"))
	}
	return nil
}

func local(dir string, err error) error {
	if err == nil {
		return nil
	}
	return &errs.ConfigError{Key: "DMLC_LOCAL", Value: "1", Reason: fmt.Sprintf("the directory of the Unix sockets, %s, cannot be used: %v", dir, err)}
}

// staleAfter keeps sweep from files of nodes that are about to listen.
const staleAfter = time.Minute

// sweep removes the sockets that killed processes have left behind.
func sweep(dir string) {
	entries, _ := os.ReadDir(dir) // what cannot be read stays
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || fi.Mode()&os.ModeSocket == 0 || time.Since(fi.ModTime()) < staleAfter {
			continue
		}
		path := filepath.Join(dir, e.Name())
		c, err := net.Dial("unix", path)
		if err == nil {
			_ = c.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
}
