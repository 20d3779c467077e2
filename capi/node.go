package main

// #include "boundary.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/ps"
)

// node is a number from stepvan_start to stepvan_close.
type node struct {
	live     atomic.Pointer[ps.Node] // nil before it has started
	worker   *ps.Worker              // nil for another role; set before live
	server   *ps.Server
	peer     *peer.Peer
	rootPort atomic.Uint32

	giveUp   context.CancelFunc // ends a start
	started  chan struct{}      // closed when live or startErr is set
	startErr error

	leaving  atomic.Bool // stop was called, though its goroutine may not run yet
	stopOnce sync.Once
	leave    context.CancelFunc // ends a stop; set by stopOnce
	stopped  chan struct{}      // closed when stopErr is set
	stopErr  error

	posts    posts
	requests requests
	collect  collector
}

// noNode is the error of a number without a node.
func noNode(id cUint64) error {
	if nodes.Fate(numbers.ID(id)) == numbers.Unknown {
		return missing(&nodes, "node", "", id)
	}
	return &coded{codeClosed, fmt.Errorf("node %d was closed, or its start has failed", id)}
}

// known returns a node, which may not have started yet.
func known(id cUint64) (*node, error) {
	n, ok := nodes.Get(numbers.ID(id))
	if !ok {
		return nil, noNode(id)
	}
	return n, nil
}

// started returns a node that can work.
func started(id cUint64) (*node, error) {
	n, err := known(id)
	if err != nil {
		return nil, err
	}
	if n.live.Load() == nil {
		return nil, &coded{codeBusy, errors.New("the node has not started yet: wait with stepvan_start_wait")}
	}
	return n, nil
}

func asWorker(id cUint64) (*node, error) {
	n, err := started(id)
	if err == nil && n.worker == nil {
		return nil, invalid("this node is a %s, and only a worker pushes and pulls", n.live.Load().Role())
	}
	return n, err
}

// checkRunning refuses operations after the call of stop.
func (n *node) checkRunning() error {
	if n.leaving.Load() {
		return errStopped
	}
	return nil
}

var errStopped = &coded{codeClosed, errors.New("this node was stopped")}

func asServer(id cUint64) (*node, error) {
	n, err := started(id)
	if err == nil && n.server == nil {
		return nil, invalid("this node is a %s, and only a server answers", n.live.Load().Role())
	}
	return n, err
}

func asPeer(id cUint64) (*node, error) {
	n, err := started(id)
	if err == nil && n.peer == nil {
		return nil, invalid("this node is a %s, and only a peer talks to peers", n.live.Load().Role())
	}
	return n, err
}

func tooMany(what string) error {
	return &coded{codeWouldBlock, fmt.Errorf("too many %s are open: end some first", what)}
}

// duration is a limit of C: negative for ever.
func duration(ns cInt64) time.Duration { return time.Duration(ns) }

var errTimeout = &coded{codeTimeout, errors.New("the time limit has passed: wait again")}

// await waits until c is closed.
func await(c <-chan struct{}, limit time.Duration) error {
	select {
	case <-c:
		return nil
	default:
	}
	if limit == 0 {
		return errTimeout
	}
	var over <-chan time.Time // never, for a negative limit
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-c:
		return nil
	case <-over:
		return errTimeout
	}
}

// limited is a context for a limit of C.
func limited(limit time.Duration) (context.Context, context.CancelFunc) {
	if limit < 0 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), limit)
}

// goStart implements
//
//	int32_t stepvan_start(const stepvan_setting *settings, uint64_t count, int64_t timeout_ns, uint64_t *node,
//	    stepvan_error *error);
//
//export goStart
func goStart(settings *C.stepvan_setting, count cUint64, limit cInt64, number *cUint64, e *cError) cCode {
	return half(e, func() error {
		if number == nil {
			return isNull("node")
		}
		*number = 0
		environ, err := environment(settings, count)
		if err != nil {
			return err
		}
		n := startNode(environ)
		id := nodes.Put(n)
		if id == 0 {
			n.giveUp()
			return tooMany("nodes")
		}
		err = n.awaitStart(id, duration(limit))
		if err == nil || errors.Is(err, errTimeout) {
			*number = cUint64(id)
		}
		return err
	})
}

// goStartWait implements
//
//	int32_t stepvan_start_wait(uint64_t node, int64_t timeout_ns, stepvan_error *error);
//
//export goStartWait
func goStartWait(id cUint64, limit cInt64, e *cError) cCode {
	return onNumber(id, e, known, func(n *node) error { return n.awaitStart(numbers.ID(id), duration(limit)) })
}

// startNode begins to start a node.
func startNode(environ []string) *node {
	ctx, giveUp := context.WithCancel(context.Background())
	n := &node{giveUp: giveUp, started: make(chan struct{}), stopped: make(chan struct{})}
	go n.start(ctx, environ)
	return n
}

func (n *node) start(ctx context.Context, environ []string) {
	defer close(n.started)
	var live *ps.Node
	err := n.shielded("start", func() (err error) {
		live, err = startFrom(ctx, environ, ps.ContainPanics(), ps.OnListen(func(port int) { n.rootPort.Store(uint32(port)) }))
		return err
	})
	switch {
	case err == nil:
		n.worker, n.server, n.peer = live.Worker(), live.Server(), live.Peer()
		registering.add(live.Storages())
		n.live.Store(live)
	case errors.Is(err, context.DeadlineExceeded) && codeOf(err) == codeTimeout:
		n.startErr = &coded{codeExpired, err}
	default:
		n.startErr = err
	}
}

// awaitStart waits for the start, and ends the number when it has failed.
func (n *node) awaitStart(id numbers.ID, limit time.Duration) error {
	if err := await(n.started, limit); err != nil {
		return err
	}
	if n.startErr != nil {
		nodes.Take(id)
	}
	return n.startErr
}

// goStop implements
//
//	int32_t stepvan_stop(uint64_t node, int64_t timeout_ns, stepvan_error *error);
//
//export goStop
func goStop(id cUint64, limit cInt64, e *cError) cCode {
	return onNode(id, e, func(n *node) error {
		n.stop()
		if err := await(n.stopped, duration(limit)); err != nil {
			return err
		}
		return n.stopErr
	})
}

// stop begins to stop a node that has started.
func (n *node) stop() {
	n.leaving.Store(true)
	n.stopOnce.Do(func() {
		ctx, leave := context.WithCancel(context.Background())
		n.leave = leave
		go func() {
			defer close(n.stopped)
			defer leave()
			err := n.shielded("stop", func() error { return n.live.Load().Stop(ctx) })
			if codeOf(err) == codeTimeout {
				err = &coded{codeExpired, err}
			}
			n.stopErr = err
		}()
	})
}

// goClose implements
//
//	int32_t stepvan_close(uint64_t node, stepvan_error *error);
//
//export goClose
func goClose(id cUint64, e *cError) cCode {
	return onNumber(id, e, taken, func(n *node) error {
		n.giveUp()
		<-n.started
		if live := n.live.Load(); live != nil {
			n.leaving.Store(true)
			n.stopOnce.Do(func() { // no stop was begun: the others see the node die
				n.leave = func() {}
				n.stopErr = shielded("close", live.Close)
				close(n.stopped)
			})
			n.leave()
			<-n.stopped
			n.requests.releaseAll(n.server)
			leaveCollectives(n)
			registering.remove(live.Storages())
		}
		registrations.TakeIf(func(r *registration) bool { return r.node == n })
		return nil
	})
}

// taken is known, and ends the number.
func taken(id cUint64) (*node, error) {
	n, ok := nodes.Take(numbers.ID(id))
	if !ok {
		return nil, noNode(id)
	}
	return n, nil
}

// goInfo implements
//
//	int32_t stepvan_info(uint64_t node, stepvan_node_info *info, stepvan_error *error);
//
//export goInfo
func goInfo(id cUint64, info *C.stepvan_node_info, e *cError) cCode {
	return onNumber(id, e, known, func(n *node) error {
		if info == nil {
			return isNull("info")
		}
		*info = cInfo{worker_rank: -1, server_rank: -1, root_port: cUint32(n.rootPort.Load())}
		live := n.live.Load()
		if live == nil {
			return nil
		}
		info.role = roles[live.Role()]
		if n.worker != nil {
			info.worker_rank, info.servers = cInt32(n.worker.Rank()), cUint32(n.worker.Servers())
		}
		if n.server != nil {
			info.server_rank, info.workers = cInt32(n.server.Rank()), cUint32(n.server.Workers())
		}
		return nil
	})
}

var roles = map[ps.Role]cUint32{ps.RoleWorker: roleWorker, ps.RoleServer: roleServer, ps.RoleJoint: roleJoint, ps.RoleScheduler: roleScheduler, ps.RolePeer: rolePeer}

// goHealth implements
//
//	int32_t stepvan_health(uint64_t node, stepvan_error *error);
//
//export goHealth
func goHealth(id cUint64, e *cError) cCode {
	return onNode(id, e, func(n *node) error { return n.live.Load().Err() })
}

// goBarrier implements
//
//	int32_t stepvan_barrier(uint64_t node, uint32_t groups, int32_t per_instance, int64_t timeout_ns,
//	    stepvan_error *error);
//
//export goBarrier
func goBarrier(id cUint64, groups cUint32, perInstance cInt32, limit cInt64, e *cError) cCode {
	return onNode(id, e, func(n *node) error {
		g, err := groupOf(groups)
		if err == nil {
			err = n.checkRunning()
		}
		if err != nil {
			return err
		}
		ctx, cancel := limited(duration(limit))
		defer cancel()
		return n.live.Load().Barrier(ctx, g, perInstance != 0)
	})
}

// groupOf converts groups of C.
func groupOf(groups cUint32) (g ps.Group, err error) {
	if groups&^(roleWorker|roleServer|roleScheduler|rolePeer) != 0 {
		return 0, invalid("groups: some do not exist (got %#x): join STEPVAN_WORKER, STEPVAN_SERVER, STEPVAN_PEER and STEPVAN_SCHEDULER", groups)
	}
	for bit, group := range [...]ps.Group{0: ps.Workers, 1: ps.Servers, 2: ps.Scheduler, 3: ps.Peers} {
		if groups&(1<<bit) != 0 {
			g |= group
		}
	}
	return g, nil
}

// environment is the environment of the process, overruled by the settings, as NAME=value.
func environment(settings *C.stepvan_setting, count cUint64) ([]string, error) {
	if settings == nil && count > 0 || count > maxTensors {
		return nil, invalid("settings: there cannot be %d at %p (want at most %d)", count, settings, maxTensors)
	}
	environ := processEnvironment()
	for _, s := range list[cSetting](unsafe.Pointer(settings), count) {
		if s.name == nil {
			return nil, isNull("the name of a setting")
		}
		environ = append(environ, C.GoString(s.name)+"="+goString(s.value))
	}
	return environ, nil
}

// goString is a string of C, "" for NULL.
func goString(s *C.char) string {
	if s == nil {
		return ""
	}
	return C.GoString(s)
}

func processEnvironment() (environ []string) {
	for p := C.boundary_environ(); p != nil && *p != nil; p = (**C.char)(unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p))) {
		environ = append(environ, C.GoString(*p))
	}
	return environ
}
