package shmvan

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// An address is "<machine>.<user>/<path>": whose memory can be reached, and the socket. Nobody maps memory of another
// machine or user. The path is absolute, so the address reads "3f2a....1000/tmp/stepvan-1000/shm.77.1a2b".

// machineID tells machines apart. Containers have that of their machine.
var machineID = sync.OnceValue(func() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil { // a container without it still has a name
		name, _ := os.Hostname()
		boot = []byte(name)
	}
	return fmt.Sprintf("%016x", xxhash.Sum64String(strings.TrimSpace(string(boot))))
})

// hostOf is the host of a user on this machine.
func hostOf(user int) string { return machineID() + "." + strconv.Itoa(user) }

// host is the first part of the addresses of one user's processes on one machine.
type host string

func (h host) address(path string) string { return string(h) + path }

// path takes an address apart. An error says why this van cannot reach the peer.
func (h host) path(addr string) (path string, err error) {
	peer, rest, ok := strings.Cut(addr, "/")
	machine, user, ok2 := strings.Cut(peer, ".")
	if _, err := strconv.ParseUint(user, 10, 32); !ok || !ok2 || err != nil || len(machine) != len(machineID()) || strings.Trim(machine, "0123456789abcdef") != "" {
		return "", errs.Invalid("shared memory address %q: it reads machine.user/path, as Listen returned it", text.Cut(addr))
	}
	switch {
	case machine != machineID():
		return "", errOtherMachine
	case peer != string(h):
		return "", errOtherUser
	}
	return "/" + rest, nil
}

var (
	errOtherMachine = fmt.Errorf("other machine: %w", stepvan.ErrNotSupported)
	errOtherUser    = fmt.Errorf("other user: %w", stepvan.ErrNotSupported)
)
