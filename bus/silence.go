package bus

import (
	"fmt"
	"time"

	"github.com/tinylib/msgp/msgp"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/sys"
)

const (
	// defaultSilence is how long an agent may be silent while a command waits.
	defaultSilence = 5 * time.Second
	// silenceLooks is how often the client looks in that time. It counts looks and no time, so that a client that was
	// stopped itself does not blame its agent.
	silenceLooks = 8
)

// watch ends the client when its agent is silent while something waits for it. Commands may wait for others as long as
// they like. So the client asks for the state of a batch, which an agent answers at once, whatever it is.
func (r *remote) watch(silence time.Duration) {
	looks := time.NewTicker(max(silence/silenceLooks, 1))
	defer looks.Stop()
	last, quiet := r.heard.Load(), 0
	for {
		select {
		case <-looks.C:
		case <-r.over:
			return
		}
		if heard := r.heard.Load(); heard != last || !r.waits() {
			last, quiet = heard, 0
			continue
		}
		quiet++
		switch quiet {
		case 1:
			r.askForLife()
		case silenceLooks:
			r.end(r.silent(silence))
			_ = r.conn.Close()
			return
		}
	}
}

// waits reports whether something waits for the agent.
func (r *remote) waits() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)+len(r.calls) > 0
}

// askForLife sends a command that an agent answers at once. Nobody waits for its completion.
func (r *remote) askForLife() {
	b, err := Encode(&QueryStatus{BaseCommand: BaseCommand{Semaphore: signOfLife}, BatchID: signOfLife, StateName: StateStatus})
	if err != nil {
		return // not reached: it is a right command
	}
	r.w.send(commandFrame(signOfLife, "", 0, b))
}

const signOfLife = "a sign of life"

// commandFrame is a command on its way to the agent.
func commandFrame(name, role string, patience time.Duration, b []byte) frame {
	f := msgp.AppendString(msgp.AppendString(beginFrame(frameCommand, 4), name), role)
	f = msgp.AppendUint64(f, uint64(max(patience, 0)))
	return frame{msgp.AppendBytes(f, b), -1}
}

// silent is the error of an agent that does not answer.
func (r *remote) silent(silence time.Duration) error {
	who := "it"
	_ = sys.Control(r.conn, func(fd int) {
		if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			who = fmt.Sprintf("process %d", cred.Pid)
		}
	})
	return &stepvan.OpError{Op: "tensor bus", Peer: "agent at " + r.path, Err: fmt.Errorf(
		"it has been silent for %v, as if it were stopped: have %s continue (signal CONT) or start another agent, and dial again: %w", silence, who, stepvan.ErrPeerLost)}
}
