package ps

import (
	"context"
	"fmt"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/version"
)

// A mistake of this library shows as a panic. It ends the node: nobody drives it any more, all waits return an
// InternalError, and the connections break, so that the others see a death. The option ContainPanics decides whether
// the panic also ends the process. A lock that the panic has left locked would keep calls waiting for ever. So the
// process ends where closing the node hangs, with the report as its last words.

const (
	// stuckLooks and stuckLook are how often, and how far apart, endIfStuck looks for progress. It counts looks and not
	// time, since a process may be stopped for a while.
	stuckLooks = 100
	stuckLook  = 50 * time.Millisecond
	// logTime is how long the log may take to write the report.
	logTime = time.Second
)

// Panicked ends the node after a program has recovered a panic of one of its methods. The program calls it in the
// deferred function that recovers, so that the report has the stack of the panic. value is what recover returned, and
// op names the method. Panicked returns the [stepvan.InternalError] that all operations return from then on. After a
// panic in a method that waits, or on a goroutine of the node, the node has ended already. Then Panicked returns the
// same error.
func (n *Node) Panicked(value any, op string) error {
	return n.breakDown(value, n.String(), op, "")
}

// panicked is progress.Options.Panicked.
func (m *member) panicked(value any, driving bool) (contain bool, cause error) {
	op, peer := "wait", ""
	if driving {
		op, peer = m.position()
	}
	cause = m.node.breakDown(value, m.id.String(), op, peer)
	return m.node.contains(), cause
}

// recover is postoffice.Options.Recover.
func (m *member) recover() {
	if value := recover(); value != nil {
		_ = m.node.breakDown(value, m.id.String(), "keep in touch with the cluster", "")
		if !m.node.contains() {
			panic(value)
		}
	}
}

// contained is f whose panic ends the node, and then is its error.
func (n *Node) contained(f func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		defer func() {
			if value := recover(); value != nil {
				err = n.breakDown(value, n.String(), "start, stop or barrier", "")
				if !n.contains() {
					panic(value)
				}
			}
		}()
		return f(ctx)
	}
}

// atOnce is how many tasks run at a time, such as connections that are made.
const atOnce = 32

// inParallel runs tasks of this node, atOnce at a time, and waits for all. The first error ends the context of the
// others and is the one that it returns.
func (n *Node) inParallel(ctx context.Context, tasks ...func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, f := range tasks {
		g.Go(func() error { return n.contained(f)(ctx) })
	}
	return g.Wait()
}

// contains reports whether a panic ends here. If not, it writes the report before the panic ends the process.
func (n *Node) contains() bool {
	if n.options.contain {
		return true
	}
	fmt.Fprintln(os.Stderr, n.life.broken.Load().Error())
	return false
}

// position is what the driver was doing. It must not panic.
func (m *member) position() (op, peer string) {
	op = "poll"
	defer func() { _ = recover() }()
	if m.link == nil {
		return op, ""
	}
	return m.link.Position()
}

// breakDown ends the node because of a panic, once, and returns what all waits return then. It does not wait for
// anybody. It is called by the goroutine that panics, while its stack is there.
func (n *Node) breakDown(value any, who, op, peer string) error {
	e := &stepvan.InternalError{
		Version: version.Text(), Node: who, Peer: peer, Op: op,
		Panic: fmt.Sprint(value), Where: panicSite(), Stack: string(debug.Stack()),
	}
	if !n.life.breakDown(e) {
		return n.life.broken.Load()
	}
	for _, m := range n.members {
		if m.link != nil {
			m.link.Engine().Fail(e)
		}
	}
	go n.closeBroken(e)
	return e
}

// closeBroken closes what is left of the node, or ends the process.
func (n *Node) closeBroken(e *stepvan.InternalError) {
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		n.log.Error().Str("role", string(n.Role())).Msg(e.Report())
	}()
	select {
	case <-logged:
	case <-time.After(logTime):
	}
	var steps atomic.Int64
	go endIfStuck(e, &steps)
	tolerant := func(f func()) {
		defer func() { _ = recover() }() // what panicked once may do so again
		f()
	}
	step := func(f func()) {
		tolerant(f)
		steps.Add(1)
	}
	for _, m := range n.members {
		m.failParts(e, step)
	}
	steps.Store(allLocksFree) // every lock was free; what follows may take its time
	tolerant(n.close)
	n.life.closed.set(nil)
	n.life.ended.set(nil)
}

// failParts has the operations of a member fail, and breaks its connections. The calls into its parts also show whether
// their locks are free.
func (m *member) failParts(e *stepvan.InternalError, step func(func())) {
	if m.worker != nil {
		step(func() { m.worker.Fail(e) })
	}
	if m.server != nil {
		step(func() { m.server.Fail(e) })
	}
	if m.peer != nil {
		step(func() { m.peer.Fail(e) })
	}
	if m.cluster != nil {
		step(func() { m.cluster.Break(e) })
	}
	if m.link != nil {
		step(func() { m.link.Break(e) })
	}
}

// allLocksFree says that all locks were free.
const allLocksFree = -1

// endIfStuck ends the process when closing the node makes no progress: the panic has left a lock locked.
func endIfStuck(e *stepvan.InternalError, steps *atomic.Int64) {
	for was, looks := int64(0), 0; looks < stuckLooks; looks++ {
		time.Sleep(stuckLook)
		switch now := steps.Load(); now {
		case allLocksFree:
			return
		case was:
		default:
			was, looks = now, 0
		}
	}
	panic("stepvan: the node cannot be closed, since the panic has left a lock locked: the process ends\n" + e.Report())
}

// panicSite is the function that panicked, with file and line. It takes the first frame below the panic that does not
// belong to the runtime.
func panicSite() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for below := false; ; {
		f, more := frames.Next()
		if below && !strings.HasPrefix(f.Function, "runtime.") {
			return fmt.Sprintf("%s (%s:%d)", path.Base(f.Function), path.Base(f.File), f.Line)
		}
		below = below || f.Function == "runtime.gopanic"
		if !more {
			return ""
		}
	}
}
