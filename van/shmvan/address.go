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

// hostOf is the first part of the addresses of a user's processes on this machine.
func hostOf(user int) string { return machineID() + "." + strconv.Itoa(user) }

func (v *shmVan) join(path string) string { return v.host + path }

// split takes an address apart. An error says why the peer cannot be reached by this van.
func (v *shmVan) split(addr string) (path string, err error) {
	host, rest, ok := strings.Cut(addr, "/")
	machine, user, ok2 := strings.Cut(host, ".")
	if _, err := strconv.ParseUint(user, 10, 32); !ok || !ok2 || err != nil || len(machine) != len(machineID()) || strings.Trim(machine, "0123456789abcdef") != "" {
		return "", errs.Invalid("shared memory address %q: it reads machine.user/path, as Listen returned it", text.Cut(addr))
	}
	switch {
	case machine != machineID():
		return "", errOtherMachine
	case host != v.host:
		return "", errOtherUser
	}
	return "/" + rest, nil
}

var (
	errOtherMachine = fmt.Errorf("other machine: %w", stepvan.ErrNotSupported)
	errOtherUser    = fmt.Errorf("other user: %w", stepvan.ErrNotSupported)
)
