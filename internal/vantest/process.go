package vantest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// childArg is the first argument of a test binary that runs as a peer.
const childArg = "vantest.peer"

var families = map[string]Factory{}

func served(name string) bool { _, ok := families[name]; return ok }

// Main is the TestMain of a van. It runs the tests and reports goroutines that
// they left behind. In a re-executed binary it plays the peer instead. It returns the exit code.
// Main makes a directory for the temporary files of the tests and the peers, and removes it at the end: peers
// that are killed leave their sockets.
//
//	func TestMain(m *testing.M) { os.Exit(vantest.Main(m, factory)) }
func Main(m *testing.M, factories ...Factory) int {
	for _, f := range factories {
		families[f.Name] = f
	}
	if len(os.Args) == 4 && os.Args[1] == childArg {
		return playPeer(os.Args[2], os.Args[3])
	}
	clean, err := ownTemporary()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vantest:", err)
		return 1
	}
	defer clean()
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "vantest: clause 6: goroutines are left after Close:", err)
		return 1
	}
	return code
}

// ownTemporary makes a directory for the temporary files of this process and of those that it starts. clean removes the
// directory with all that is in it. Its name is short, as paths of sockets have to be.
func ownTemporary() (clean func(), err error) {
	dir, err := os.MkdirTemp("", "vt")
	if err != nil {
		return nil, err
	}
	return func() { _ = os.RemoveAll(dir) }, os.Setenv("TMPDIR", dir)
}

// report is what a peer process says, one JSON object a line.
type report struct {
	Addr  string `json:",omitempty"` // where it listens
	Error string `json:",omitempty"` // what the van did wrong, seen from there
}

// process is a re-executed peer.
type process struct {
	p    *probe
	cmd  *exec.Cmd
	addr string
	done chan error // its verdict, nil for a clean exit
}

// startPeer executes the test binary again as a peer that plays a role, and waits until it listens.
func (p *probe) startPeer(role string) *process {
	exe, err := os.Executable()
	p.must(err, "find the test binary")
	c := &process{p: p, cmd: exec.Command(exe, childArg, p.f.Name, role), done: make(chan error, 1)}
	c.cmd.Stderr = os.Stderr
	// The peer's life ends with this pipe, however this process ends.
	stdin, err := c.cmd.StdinPipe()
	p.must(err, "pipe to the peer")
	out, err := c.cmd.StdoutPipe()
	p.must(err, "pipe from the peer")
	p.must(c.cmd.Start(), "start the peer")
	p.atEnd = append(p.atEnd, func() { _ = stdin.Close(); _ = c.cmd.Process.Kill() })
	lines := json.NewDecoder(bufio.NewReader(out))
	var r report
	if err := lines.Decode(&r); err != nil || r.Addr == "" {
		_ = c.cmd.Process.Kill()
		p.fail(p.clause, "the peer process did not start: %v %s", err, r.Error)
	}
	c.addr = r.Addr
	p.spawn(func() {
		var last report
		_ = lines.Decode(&last)
		err := c.cmd.Wait()
		if last.Error != "" {
			err = fmt.Errorf("%s", last.Error)
		}
		c.done <- err
	})
	return c
}

// dialPeer connects n with a peer process.
func (n *node) dialPeer(c *process) *side {
	ep, err := n.van.Dial(n.p.ctx, c.addr)
	n.p.must(err, "dial the peer process")
	s := n.adopt(ep)
	s.out, s.in = 2, 3
	return s
}

func (c *process) signal(sig syscall.Signal) {
	c.p.must(c.cmd.Process.Signal(sig), sig.String())
}

// exits waits until the peer has ended by itself, without complaint.
func (c *process) exits() {
	var err error
	c.p.until("the end of the peer process", func() bool {
		select {
		case err = <-c.done:
			return true
		default:
			return false
		}
	})
	c.p.must(err, "the peer process says")
}

// killed waits until a killed peer is gone.
func (c *process) killed() {
	c.signal(syscall.SIGKILL)
	var status error // "signal: killed", if all is well
	c.p.until("the end of the killed process", func() bool {
		select {
		case status = <-c.done:
			return true
		default:
			return false
		}
	})
	c.p.want(status != nil, "the peer process ended by itself before it was killed")
}

// playPeer is the main function of a peer process.
func playPeer(factory, role string) int {
	f, ok := families[factory]
	play := roles[role]
	say := json.NewEncoder(os.Stdout)
	if !ok || play == nil {
		_ = say.Encode(report{Error: fmt.Sprintf("no factory %q or role %q", factory, role)})
		return 2
	}
	if err := f.check(); err != nil {
		_ = say.Encode(report{Error: err.Error()})
		return 2
	}
	go dieWithParent()
	c := Clause{Number: 0, Name: role}
	found := runCase(f, c, testCase{name: role, run: func(p *probe) {
		n := p.node(16)
		p.must(say.Encode(report{Addr: n.listen()}), "report the address")
		var s *side
		p.until("a connection from the parent", func() bool { s = n.claim(); return s != nil })
		s.out, s.in = 3, 2
		play(p, s)
	}})
	if found != nil {
		_ = say.Encode(report{Error: found.Error()})
		return 1
	}
	return 0
}

// dieWithParent ends this process when the parent closes its end of the pipe, or dies.
func dieWithParent() {
	var b [1]byte
	_, _ = os.Stdin.Read(b[:])
	os.Exit(3)
}
