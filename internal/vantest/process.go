package vantest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// childArg is the first argument of a test binary that runs as a peer.
const childArg = "vantest.peer"

// factories are what TestMain has given to Main, by name.
var factories = map[string]Factory{}

// Main is the TestMain of a van. It runs the tests and reports goroutines that
// they left behind. In a re-executed binary it plays the peer instead. It returns the exit code.
// Main makes a directory for the temporary files of the tests and the peers, and removes it at the end: peers
// that are killed leave their sockets.
//
//	func TestMain(m *testing.M) { os.Exit(vantest.Main(m, factory)) }
func Main(m *testing.M, list ...Factory) int {
	for _, f := range list {
		factories[f.Name] = f
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
	s    *side // the connection to it
	cmd  *exec.Cmd
	done chan error // how it ended: nil for a clean exit
}

// startPeer executes the test binary again as a peer that plays a role, and connects to it.
func (t *trial) startPeer(role string) (*side, *process) {
	exe, err := os.Executable()
	t.must(err, "find the test binary")
	c := &process{cmd: exec.Command(exe, childArg, t.f.Name, role), done: make(chan error, 1)}
	c.cmd.Stderr = os.Stderr
	// The peer's life ends with this pipe, however this process ends.
	stdin, err := c.cmd.StdinPipe()
	t.must(err, "pipe to the peer")
	out, err := c.cmd.StdoutPipe()
	t.must(err, "pipe from the peer")
	t.must(c.cmd.Start(), "start the peer")
	t.atEnd = append(t.atEnd, func() { _ = stdin.Close(); _ = c.cmd.Process.Kill() })
	lines := json.NewDecoder(out)
	var r report
	if err := lines.Decode(&r); err != nil || r.Addr == "" {
		_ = c.cmd.Process.Kill()
		t.fail(t.clause, "the peer process did not start: %v %s", err, r.Error)
	}
	t.spawn(func() {
		var last report
		_ = lines.Decode(&last)
		err := c.cmd.Wait()
		if last.Error != "" {
			err = errors.New(last.Error)
		}
		c.done <- err
	})
	n := t.node(16)
	ep, err := n.van.Dial(t.ctx, r.Addr)
	t.must(err, "dial the peer process")
	c.s = n.adopt(ep)
	c.s.out.salt, c.s.in.salt = 2, 3
	return c.s, c
}

func (c *process) signal(sig syscall.Signal) {
	c.s.t.must(c.cmd.Process.Signal(sig), sig.String())
}

// ended waits until the process has ended, and returns how it ended.
func (c *process) ended() (err error) {
	c.s.t.call("the end of the peer process", func() { err = <-c.done })
	return err
}

// echoed reports whether as many messages came back as were sent.
func (c *process) echoed() bool { return c.s.count().delivered == c.s.count().sent }

// leave closes the connection, and waits until the peer has ended by itself, without complaint.
func (c *process) leave() {
	c.s.t.until("completions", c.s.idle)
	mayFail(c.s)
	c.s.close()
	c.s.t.must(c.ended(), "the peer process says")
}

// kill kills the peer, and waits for its one EventLost. The books check what comes before and after.
func (c *process) kill() {
	s, t := c.s, c.s.t
	mayFail(s)
	c.signal(syscall.SIGKILL)
	t.want(c.ended() != nil, "the peer process ended by itself before it was killed") // all is well with "signal: killed"
	t.until("EventLost of a killed peer", s.isLost)
	t.want(s.idle(), "EventLost came before the completions")
	t.want(s.offer(shape{size: 1}) != nil, "Send to a lost peer was accepted")
	t.quiet()
}

// roles are what a peer process can play. They end when the parent's side is lost.
var roles = map[string]func(*trial, *side){
	// Sends every message back: as large, with as much meta.
	"echo": func(t *trial, s *side) {
		mayFail(s)
		var todo []shape
		s.in.peek = func(a *arrival) {
			todo = append(todo, shape{size: int(a.Header.Payload), meta: len(a.Meta), segments: 1 + int(a.sequence)%3})
		}
		s.in.parts = 3
		t.until("the parent to leave", func() bool {
			for len(todo) > 0 && s.offer(todo[0]) == nil {
				todo = todo[1:]
			}
			return s.isLost()
		})
	},
	// Sends for ever.
	"flood": func(t *trial, s *side) {
		mayFail(s)
		t.until("the parent to leave", func() bool {
			// What Send completes by itself wakes nobody: as long as nothing is refused there is no reason to sleep.
			for n := 1; !s.isLost() && t.ctx.Err() == nil; n++ {
				if s.offer(shape{size: t.rng.IntN(20 * kib), meta: t.rng.IntN(100), segments: 2}) != nil {
					break
				}
				if n%10 == 0 {
					t.poll(true)
				}
			}
			return s.isLost()
		})
	},
	// Takes one message and then reads nothing any more.
	"stall": func(t *trial, s *side) {
		mayFail(s)
		t.until("a first message", func() bool { return s.count().delivered > 0 })
		pause(s.n)
		<-t.ctx.Done()
	},
	// Sends a number of messages, waits for their completions, and closes.
	"leave": func(t *trial, s *side) {
		for range lastMessages {
			s.send(shape{size: t.rng.IntN(10 * kib), meta: 20})
		}
		t.until("completions", s.idle)
		s.close()
	},
}

const lastMessages = 200 // of a peer that leaves

// playPeer is the main function of a peer process.
func playPeer(factory, role string) int {
	say := json.NewEncoder(os.Stdout)
	if err := play(factory, role, say); err != nil {
		_ = say.Encode(report{Error: err.Error()})
		return 1
	}
	return 0
}

func play(factory, role string, say *json.Encoder) error {
	f, ok := factories[factory]
	if !ok || roles[role] == nil {
		return fmt.Errorf("no factory %q or role %q", factory, role)
	}
	if err := f.check(); err != nil {
		return err
	}
	go dieWithParent()
	found := runCase(f, Clause{}, testCase{name: role, run: func(t *trial) {
		n := t.node(16)
		t.must(say.Encode(report{Addr: n.listen()}), "report the address")
		s := n.accept("the parent")
		s.out.salt, s.in.salt = 3, 2
		roles[role](t, s)
	}})
	if found == nil {
		return nil // a nil *Failure is not a nil error
	}
	return found
}

// dieWithParent ends this process when the parent closes its end of the pipe, or dies.
func dieWithParent() {
	var b [1]byte
	_, _ = os.Stdin.Read(b[:])
	os.Exit(3)
}
