package launch

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
)

// Times of the end of a run.
const (
	linger    = time.Second            // what the scheduler has to end by itself when everybody else has
	sweepTime = 20 * time.Millisecond  // between looks at what the children have left behind
	reapTime  = 100 * time.Millisecond // orphans that end within it are reaped together
	stuckTime = 10 * time.Second       // after SIGKILL; only a process stuck in the kernel takes longer
	drainTime = time.Second            // for output that a process which was not found still holds open
)

// Run runs the plan and returns when all its processes have ended.
//
// The error is nil when every child has ended with status 0 (a scheduler that
// nobody needs any more may be stopped), *CommandError or joined *stepvan.ConfigError
// when nothing could be started, *Failure for the child that failed first,
// *Interrupted after a signal, *Stopped after the end of ctx, and that of the
// writer when Stdout or Stderr cannot be written. ExitCode gives each its number.
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
	if err := adoptOrphans(); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	if r.guard, err = startGuard(plan.Guard, r.descendants.id); err != nil {
		return err
	}
	defer r.guard.dismiss()
	runtime.LockOSThread() // the kernel ties the children's lives to this thread
	defer runtime.UnlockOSThread()
	r.start()
	r.supervise(ctx)
	shm.SweepSocketDir() // children that a signal has ended leave their sockets
	r.drain()
	return r.verdict()
}

// phase is how far a run has come.
type phase int

const (
	up       phase = iota // everybody may run
	stopping              // SIGTERM was sent
	killing               // SIGKILL was sent
)

// run is one call of Run; all is of its goroutine, but for printer and readers.
type run struct {
	plan        Plan
	members     []*member // in the order of their start
	printer     *printer
	readers     sync.WaitGroup // of the pipes
	exits       chan *member   // who has ended; has room for all
	descendants descendants
	guard       *guard

	phase   phase
	running int              // children
	nodes   int              // of these, workers and servers
	cause   error            // why the run was stopped
	failed  *member          // who failed first
	timer   <-chan time.Time // of the phase
	stuck   bool             // processes are left that SIGKILL does not end
	hurried bool             // a second signal came
	printed bool             // the readers have ended
}

// prepare checks the plan. Nothing is started yet.
func prepare(plan Plan, port int) (*run, error) {
	env, err := newEnvironment(&plan, port)
	if err != nil {
		return nil, err
	}
	switch {
	case plan.Grace < 0:
		return nil, errs.Invalid("Plan.Grace is %v: it must be a time above 0, or 0 for %v", plan.Grace, defaultGrace)
	case plan.Grace == 0:
		plan.Grace = defaultGrace
	}
	if plan.Scheduler == nil {
		if plan.Scheduler, err = Self("scheduler"); err != nil {
			return nil, err
		}
	}
	all := children(env.settings)
	r := &run{
		plan: plan, printer: newPrinter(&plan, all), exits: make(chan *member, len(all)),
		descendants: descendants{self: os.Getpid(), id: env.id, roots: map[int]bool{}, known: map[int]bool{}},
	}
	if err := r.add(all, env); err != nil {
		return nil, err
	}
	if plan.Opening != nil && plan.Prefix {
		r.say(plan.Opening(env.settings))
	}
	return r, nil
}

// add makes the members. Each role's program is looked for once.
func (r *run) add(all []Child, env *environment) error {
	paths := map[config.Role]string{}
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
		r.members = append(r.members, &member{child: c, index: i, path: paths[c.Role], args: r.plan.command(c.Role), env: variables})
	}
	return nil
}

// start starts everybody, or stops those that run when one cannot be started.
func (r *run) start() {
	for _, m := range r.members {
		if err := m.start(&r.plan, r.printer, &r.readers); err != nil {
			r.stop(err)
			return
		}
		r.descendants.roots[m.child.PID] = true
		r.guard.tell(strconv.Itoa(m.child.PID))
		r.running++
		if m.child.Role != config.RoleScheduler {
			r.nodes++
		}
		go func() {
			_ = m.cmd.Wait() // the state tells more than the error
			r.exits <- m
		}()
		if r.plan.Started != nil {
			r.plan.Started(m.child)
		}
	}
}

// supervise returns when no process of the run is left.
func (r *run) supervise(ctx context.Context) {
	orphans := make(chan os.Signal, 1)
	signal.Notify(orphans, unix.SIGCHLD)
	defer signal.Stop(orphans)
	sweep := time.NewTicker(sweepTime)
	defer sweep.Stop()
	var reap <-chan time.Time
	done := ctx.Done()
	for !r.over() {
		var sweeps <-chan time.Time
		if r.phase == killing || r.running == 0 {
			sweeps = sweep.C
		}
		select {
		case m := <-r.exits:
			r.exited(m)
		case <-orphans:
			reap = time.After(reapTime)
		case <-reap:
			r.descendants.survivors()
		case s := <-r.plan.Signals:
			r.signalled(s)
		case err := <-r.printer.broken:
			r.stop(err)
		case <-done:
			done = nil
			r.stop(&Stopped{Running: r.alive(), Err: context.Cause(ctx)})
		case <-r.timer:
			r.expired()
		case <-sweeps:
			r.swept()
		}
	}
}

// over tells whether the run has ended. When only what the children have left
// behind is there, it is told to end.
func (r *run) over() bool {
	if r.running > 0 && !r.stuck {
		return false
	}
	if r.stuck || len(r.descendants.survivors()) == 0 {
		return true
	}
	r.stop(nil)
	return false
}

func (r *run) alive() []Child {
	var out []Child
	for _, m := range r.members {
		if m.child.PID != 0 && !m.ended {
			out = append(out, m.child)
		}
	}
	return out
}

// exited notes the end of a child. The first that fails ends the run.
func (r *run) exited(m *member) {
	m.ended = true
	r.running--
	if m.child.Role != config.RoleScheduler {
		r.nodes--
	}
	if r.phase != up {
		return
	}
	if f := m.failure(); f != nil {
		r.failed = m
		r.stop(f)
	} else if r.nodes == 0 && r.running > 0 {
		r.timer = time.After(linger)
	}
}

// signalled handles a signal to this process: the second one, or the first while
// the children are ending, spares no time.
func (r *run) signalled(s os.Signal) {
	number, _ := s.(unix.Signal)
	if r.phase == up {
		r.stop(&Interrupted{Signal: number})
		return
	}
	if r.cause == nil {
		r.cause = &Interrupted{Signal: number}
	}
	r.hurried = true
	r.kill()
}

// stop asks everybody to end, once. cause is what Run is to return.
func (r *run) stop(cause error) {
	if r.phase != up {
		return
	}
	r.phase, r.cause = stopping, cause
	r.announce()
	r.send(unix.SIGTERM)
	r.send(unix.SIGCONT) // who is suspended ends only when it goes on
	r.timer = time.After(r.plan.Grace)
}

// kill ends everybody.
func (r *run) kill() {
	if r.phase == killing {
		return
	}
	r.phase = killing
	r.send(unix.SIGKILL)
	r.timer = time.After(stuckTime)
}

func (r *run) expired() {
	switch r.phase {
	case up: // everybody but the scheduler has ended well
		r.stop(nil)
	case stopping:
		r.kill()
	case killing:
		r.stuck = true
	}
}

// swept looks for those who were started while the others were killed.
func (r *run) swept() {
	if r.phase == killing {
		r.send(unix.SIGKILL)
	}
}

// send sends a signal to the children's process groups, and to whatever else
// belongs to the run.
func (r *run) send(s unix.Signal) {
	groups := map[int]bool{}
	for _, c := range r.alive() {
		groups[c.PID] = true
		_ = unix.Kill(-c.PID, s)
	}
	for _, p := range r.descendants.survivors() {
		if !groups[p.group] {
			_ = unix.Kill(p.pid, s)
		}
	}
}

// announce says why the run is being stopped, without waiting for who reads it.
func (r *run) announce() {
	if r.cause == nil || !r.plan.Prefix {
		return
	}
	text := r.cause.Error()
	if f, ok := r.cause.(*Failure); ok { //nolint:errorlint // as stop got it
		text = f.short()
	}
	r.say(text + "; stopping everybody")
}

// say prints a line of Run's own.
func (r *run) say(text string) {
	lines := r.printer.stream(launcher, len(r.members), nil).feed([]byte(text + "\n"))
	r.readers.Go(func() { r.printer.write(r.plan.Stderr, lines) })
}

// drain waits until all output is printed. A signal ends that too, as who reads
// it may have stopped to; after a second one it waits no longer than drainTime.
func (r *run) drain() {
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		r.readers.Wait()
	}()
	held := time.AfterFunc(drainTime, func() {
		for _, m := range r.members {
			for _, f := range m.pipes {
				_ = f.SetReadDeadline(time.Now()) // who is not reading, but printing, goes on
			}
		}
	})
	defer held.Stop()
	var late <-chan time.Time
	if r.hurried {
		late = time.After(drainTime)
	}
	select {
	case <-printed:
		r.printed = true
		for _, m := range r.members {
			m.close()
		}
	case <-r.plan.Signals:
	case <-late:
	}
}
