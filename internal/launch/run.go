package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/sys"
)

// Times of the end of a run.
const (
	schedulerGrace = time.Second            // for the scheduler to end, after all others have
	sweepTime      = 20 * time.Millisecond  // between two lists of the processes
	reapTime       = 100 * time.Millisecond // orphans that end within it are reaped together
	stuckTime      = 10 * time.Second       // after SIGKILL; only a process stuck in the kernel takes longer
	drainTime      = time.Second            // for output that an unknown process holds open
)

// Run runs the plan and returns when all its processes have ended.
//
// The error is nil when every child ended with status 0. A scheduler that no child needs any more
// may have been stopped. Otherwise the error is one of these:
//
//   - *CommandError, or joined *stepvan.ConfigError: nothing was started
//   - *Failure of the child that failed first
//   - *Interrupted after a signal
//   - *Stopped after the end of ctx
//   - the error of a write to Stdout or Stderr
//
// ExitCode gives each its number.
func Run(ctx context.Context, plan Plan) error {
	if ctx.Err() != nil {
		return &Stopped{Err: context.Cause(ctx)}
	}
	port, err := reserve()
	if err != nil {
		return err
	}
	defer port.close()
	r, err := prepare(plan, port.port)
	if err != nil {
		return err
	}
	if err := sys.AdoptOrphans(); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	if r.guard, err = startGuard(plan.Guard, r.descendants.id); err != nil {
		return err
	}
	defer r.guard.stop()
	runtime.LockOSThread() // the kernel ties the children's lives to this thread
	defer runtime.UnlockOSThread()
	orphans := make(chan os.Signal, 1)
	signal.Notify(orphans, unix.SIGCHLD) // before the first child, whose orphans may be there when start returns
	defer signal.Stop(orphans)
	r.start()
	r.supervise(ctx, orphans)
	shm.SweepSocketDir() // killed children leave their sockets behind
	r.drain()
	return r.err()
}

// phase is the progress of a run.
type phase int

const (
	normal   phase = iota // the children run
	stopping              // SIGTERM was sent
	killing               // SIGKILL was sent
)

// run is one call of Run. Only its goroutine uses it, except printer and readers.
type run struct {
	plan        Plan
	processes   []*childProcess // in the order of their start
	printer     *printer
	readers     sync.WaitGroup     // of the pipes
	exits       chan *childProcess // children that ended; has room for all
	descendants descendants
	guard       *guard

	phase        phase
	running      int              // children
	cause        error            // why the run was stopped
	failed       *childProcess    // the first that failed
	timer        <-chan time.Time // of the phase
	stuck        bool             // processes are left that SIGKILL does not end
	secondSignal bool             // a second signal came
	printed      bool             // the readers have ended
}

// prepare checks the plan, and starts nothing.
func prepare(plan Plan, port int) (*run, error) {
	env, err := newEnvironment(&plan, port)
	if err != nil {
		return nil, err
	}
	switch {
	case plan.Grace < 0:
		return nil, errs.Invalid("Plan.Grace: too short (got %v, want above 0, or 0 for %v)", plan.Grace, defaultGrace)
	case plan.Grace == 0:
		plan.Grace = defaultGrace
	}
	if plan.Scheduler == nil {
		if plan.Scheduler, err = plan.Self.Command("scheduler"); err != nil {
			return nil, err
		}
	}
	all := children(env.settings)
	r := &run{
		plan: plan, printer: newPrinter(&plan, all), exits: make(chan *childProcess, len(all)),
		descendants: descendants{self: os.Getpid(), id: env.id, roots: map[int]bool{}, known: map[int]bool{}},
	}
	if err := r.add(all, env); err != nil {
		return nil, err
	}
	if plan.Opening != nil && plan.Prefix {
		r.printLine(plan.Opening(env.settings))
	}
	return r, nil
}

// add makes the processes. It looks for the program of each role once.
func (r *run) add(all []Child, env *environment) error {
	paths := map[stepvan.Role]string{}
	for i, c := range all {
		if paths[c.Role] == "" {
			path, err := resolve(c.Role, r.plan.command(c.Role), r.plan.Dir)
			if err != nil {
				return err
			}
			paths[c.Role] = path
		}
		variables, err := env.of(c)
		if err != nil {
			return err
		}
		cmd := &exec.Cmd{
			Path: paths[c.Role], Args: r.plan.command(c.Role), Env: variables, Dir: r.plan.Dir,
			SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
		}
		r.processes = append(r.processes, &childProcess{child: c, index: i, cmd: cmd})
	}
	return nil
}

// start starts all children. When one does not start, it stops the others.
func (r *run) start() {
	for _, c := range r.processes {
		if err := c.start(&r.plan, r.printer, &r.readers); err != nil {
			r.stop(err)
			return
		}
		r.descendants.roots[c.child.PID] = true
		r.guard.send(strconv.Itoa(c.child.PID))
		r.running++
		go func() {
			_ = c.cmd.Wait() // ProcessState says more than the error
			r.exits <- c
		}()
		if r.plan.Started != nil {
			r.plan.Started(c.child)
		}
	}
}

// supervise returns when no process of the run is left. orphans tells of processes that have ended.
func (r *run) supervise(ctx context.Context, orphans <-chan os.Signal) {
	sweep := time.NewTicker(sweepTime)
	defer sweep.Stop()
	var reap <-chan time.Time
	done := ctx.Done()
	for !r.finished() {
		var sweeps <-chan time.Time
		if r.phase == killing || r.running == 0 {
			sweeps = sweep.C
		}
		select {
		case c := <-r.exits:
			r.handleExit(c)
		case <-orphans:
			reap = time.After(reapTime)
		case <-reap:
			r.descendants.survivors()
		case s := <-r.plan.Signals:
			r.handleSignal(s)
		case err := <-r.printer.broken:
			r.stop(err)
		case <-done:
			done = nil
			r.stop(&Stopped{Running: r.runningChildren(), Err: context.Cause(ctx)})
		case <-r.timer:
			r.handleTimeout()
		case <-sweeps:
			r.killAgain()
		}
	}
}

// finished reports whether the run has ended. When only other processes than children are left, it
// stops them.
func (r *run) finished() bool {
	if r.running > 0 && !r.stuck {
		return false
	}
	if r.stuck || len(r.descendants.survivors()) == 0 {
		return true
	}
	r.stop(nil)
	return false
}

func (r *run) runningChildren() []Child {
	var out []Child
	for _, c := range r.processes {
		if c.child.PID != 0 && !c.ended {
			out = append(out, c.child)
		}
	}
	return out
}

// handleExit records the end of a child. The first child that fails ends the run.
func (r *run) handleExit(c *childProcess) {
	c.ended = true
	r.running--
	if r.phase != normal {
		return
	}
	if f := c.failure(); f != nil {
		r.failed = c
		r.stop(f)
	} else if scheduler := r.processes[0]; r.running == 1 && !scheduler.ended {
		r.timer = time.After(schedulerGrace)
	}
}

// handleSignal handles a signal to this process. The second signal, or the first while the children
// are ending, kills at once.
func (r *run) handleSignal(s os.Signal) {
	number, _ := s.(unix.Signal)
	if r.phase == normal {
		r.stop(&Interrupted{Signal: number})
		return
	}
	if r.cause == nil {
		r.cause = &Interrupted{Signal: number}
	}
	r.secondSignal = true
	r.kill()
}

// stop asks all children to end, once. Run returns cause.
func (r *run) stop(cause error) {
	if r.phase != normal {
		return
	}
	r.phase, r.cause = stopping, cause
	r.announce()
	r.send(unix.SIGTERM)
	r.send(unix.SIGCONT) // a suspended process must continue before it can end
	r.timer = time.After(r.plan.Grace)
}

// kill sends SIGKILL to all processes of the run.
func (r *run) kill() {
	if r.phase == killing {
		return
	}
	r.phase = killing
	r.send(unix.SIGKILL)
	r.timer = time.After(stuckTime)
}

func (r *run) handleTimeout() {
	switch r.phase {
	case normal: // all but the scheduler have ended with success
		r.stop(nil)
	case stopping:
		r.kill()
	case killing:
		r.stuck = true
	}
}

// killAgain kills processes that started while kill looked for them.
func (r *run) killAgain() {
	if r.phase == killing {
		r.send(unix.SIGKILL)
	}
}

// send sends a signal to the children's process groups, and to the other processes of the run.
func (r *run) send(s unix.Signal) {
	groups := map[int]bool{}
	for _, c := range r.runningChildren() {
		groups[c.PID] = true
		_ = unix.Kill(-c.PID, s)
	}
	for _, p := range r.descendants.survivors() {
		if !groups[p.group] {
			_ = unix.Kill(p.pid, s)
		}
	}
}

// announce prints why the run stops. It does not wait for the reader of the output.
func (r *run) announce() {
	if r.cause == nil || !r.plan.Prefix {
		return
	}
	text := r.cause.Error()
	if f, ok := r.cause.(*Failure); ok { //nolint:errorlint // as stop got it
		text = f.short()
	}
	r.printLine(text + "; stopping the others")
}

// printLine prints a line of Run itself.
func (r *run) printLine(text string) {
	lines := r.printer.stream(launcher, len(r.processes), nil).feed([]byte(text + "\n"))
	r.readers.Go(func() { r.printer.write(r.plan.Stderr, lines) })
}

// drain waits until all output is printed. A signal ends the wait, because the reader of the output
// may have stopped reading. After a second signal drain waits no longer than drainTime.
func (r *run) drain() {
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		r.readers.Wait()
	}()
	held := time.AfterFunc(drainTime, func() {
		for _, c := range r.processes {
			for _, f := range c.pipes {
				_ = f.SetReadDeadline(time.Now()) // ends reads, not prints
			}
		}
	})
	defer held.Stop()
	var late <-chan time.Time
	if r.secondSignal {
		late = time.After(drainTime)
	}
	select {
	case <-printed:
		r.printed = true
		for _, c := range r.processes {
			c.close()
		}
	case <-r.plan.Signals:
	case <-late:
	}
}
