package doctor

import (
	"context"
	"io/fs"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/reach"
	"github.com/stepvan/stepvan/internal/shm"
)

// System is how the doctor reads the machine. Tests replace its functions.
type System struct {
	Root       fs.FS // the file system, for /proc and /sys
	Lookup     func(ctx context.Context, host string) ([]string, error)
	Interfaces func() ([]Interface, error)
	Listen     func(ctx context.Context, addr string) error       // opens a TCP port and closes it
	Dial       func(ctx context.Context, addr string) error       // connects and closes
	Scheduler  func(ctx context.Context, s config.Settings) error // meets the scheduler, and leaves
	Limit      func(resource int) (soft, hard uint64, err error)
	Memory     func(size int64, huge bool) error // takes shared memory and gives it back
	CPUs       func() int                        // that this process may run on
	Directory  func() (string, error)            // of the sockets of this user; why it cannot be used
	PeerMemory func() error                      // reads memory as of another process
	// Pair connects two nodes and says what would carry their tensors, and why.
	Pair func(ctx context.Context, s config.Settings) (van, reason string, err error)
}

// Interface is a network interface of the machine.
type Interface struct {
	Name     string
	Up       bool
	Loopback bool
	Addrs    []string // without prefix length
}

// unlimited is the value of a limit that is switched off.
const unlimited = unix.RLIM_INFINITY

// ThisMachine reads the machine of this process.
func ThisMachine() *System {
	return &System{
		Root:       os.DirFS("/"),
		Lookup:     net.DefaultResolver.LookupHost,
		Interfaces: interfaces,
		Listen:     listen,
		Dial:       dial,
		Scheduler:  reach.TryScheduler,
		Limit:      limit,
		Memory:     takeMemory,
		CPUs:       runtime.NumCPU,
		Directory:  reach.SocketDir,
		PeerMemory: readMemory,
		Pair:       reach.TryPair,
	}
}

func interfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	out := make([]Interface, len(all))
	for i, n := range all {
		out[i] = Interface{Name: n.Name, Up: n.Flags&net.FlagUp != 0, Loopback: n.Flags&net.FlagLoopback != 0}
		addrs, err := n.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if ip, ok := a.(*net.IPNet); ok {
				out[i].Addrs = append(out[i].Addrs, ip.IP.String())
			}
		}
	}
	return out, nil
}

func listen(ctx context.Context, addr string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}

func dial(ctx context.Context, addr string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return c.Close()
}

func limit(resource int) (soft, hard uint64, err error) {
	var l unix.Rlimit
	err = unix.Getrlimit(resource, &l)
	return l.Cur, l.Max, err
}

func takeMemory(size int64, huge bool) error {
	m, err := shm.Create("stepvan-doctor", size, huge)
	if err != nil {
		return err
	}
	return m.Close()
}
