package shmvan

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/stepvan/stepvan/internal/errs"
)

// An address is "<host>/<path>": whose memory can be reached (this machine, this user), and the socket.
// The path is absolute, so the address reads "3f2a.../tmp/stepvan-1000/shm.77.1a2b".

// hostID tells machines and users apart: nobody maps memory across either.
var hostID = sync.OnceValue(func() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil { // a container without it still has a name
		name, _ := os.Hostname()
		boot = []byte(name)
	}
	return fmt.Sprintf("%016x", xxhash.Sum64String(fmt.Sprintf("%s %d", strings.TrimSpace(string(boot)), os.Getuid())))
})

func (v *node) join(path string) string { return v.host + path }

// split takes an address apart. An error says why the peer cannot be reached by this van.
func (v *node) split(addr string) (path string, err error) {
	host, rest, ok := strings.Cut(addr, "/")
	if !ok || len(host) != len(v.host) || strings.Trim(host, "0123456789abcdef") != "" {
		return "", errs.Invalid("shared memory address %q: it reads host/path, as Listen returned it", addr)
	}
	if host != v.host {
		return "", errElsewhere
	}
	return "/" + rest, nil
}

var errElsewhere = fmt.Errorf("other machine or user: %w", errs.ErrNotSupported)
