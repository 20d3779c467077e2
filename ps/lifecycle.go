package ps

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// nodeState says how far a node has come towards its end.
type nodeState int32

const (
	nodeWorking  nodeState = iota
	nodeStopping           // Stop or Close was called, or the start failed
	nodeStopped            // everything is closed
)

// lifecycle is the state of a node, and why it can work no more. It takes no lock that a panic could leave locked.
type lifecycle struct {
	state  atomic.Int32                          // a nodeState; it only grows
	broken atomic.Pointer[stepvan.InternalError] // the panic that has ended the node

	failed  signal // by a panic, or because the cluster no longer works: the cause
	ended   signal // the node can work no more: Done
	stopped signal // Stop and Close return
	closed  signal // after a panic: everything is closed
}

// signal is an event that happens once.
type signal struct {
	context.Context
	set context.CancelCauseFunc
}

func newSignal() signal {
	ctx, set := context.WithCancelCause(context.Background())
	return signal{ctx, set}
}

func newLifecycle() *lifecycle {
	return &lifecycle{failed: newSignal(), ended: newSignal(), stopped: newSignal(), closed: newSignal()}
}

// beginStop reports whether the caller is the first to end the node.
func (l *lifecycle) beginStop() bool {
	return l.state.CompareAndSwap(int32(nodeWorking), int32(nodeStopping))
}

// finishStop ends the calls that wait for the first Stop.
func (l *lifecycle) finishStop() {
	l.state.Store(int32(nodeStopped))
	l.stopped.set(nil)
	l.ended.set(nil)
}

// breakDown reports whether e is the first panic. Then it is what the node's operations return.
func (l *lifecycle) breakDown(e *stepvan.InternalError) bool {
	first := l.broken.CompareAndSwap(nil, e)
	if first {
		l.failed.set(e)
	}
	return first
}

// stopping reports whether the program has ended the node.
func (l *lifecycle) stopping() bool { return nodeState(l.state.Load()) >= nodeStopping }

// serving reports whether a server may still answer: until Stop returns, it waits for others.
func (l *lifecycle) serving() bool { return nodeState(l.state.Load()) < nodeStopped }

// err is why the node can work no more: a panic, else the first cause.
func (l *lifecycle) err() error {
	if e := l.broken.Load(); e != nil {
		return e
	}
	if l.failed.Err() == nil {
		return nil
	}
	return context.Cause(l.failed)
}

// failure is the error of an operation when the node can work no more. Its peer is the one that was lost.
func (l *lifecycle) failure(op string) error {
	if cause := l.err(); cause != nil {
		return errs.Ended(op, cause)
	}
	return nil
}

// usable refuses operations after Stop, and after a loss that ended the cluster.
func (l *lifecycle) usable(op string) error {
	if l.stopping() {
		return stoppedError(op)
	}
	return l.failure(op)
}

func stoppedError(op string) error {
	return &stepvan.OpError{Op: op, Err: fmt.Errorf("this node was stopped: %w", stepvan.ErrClosed)}
}
