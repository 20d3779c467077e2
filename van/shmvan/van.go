package shmvan

import (
	"context"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/van"
)

const name = "shm"

// shmVan implements van.Van.
type shmVan struct {
	opt    Options
	caps   van.Caps
	host   host
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // goroutines that accept

	page   sleepPage
	hello  hello
	kernel kernelEvents

	eps          atomic.Pointer[[]*endpoint] // replaced whole, under mu
	polling      atomic.Bool
	pollerEnded  atomic.Bool // Close has ended the endpoints, and nothing is polled any more
	stopWatching func()      // of Options.Files

	// The poller's.
	polls     uint64
	kernelDue bool
	withInput []*endpoint // whose socket has something
	turn      int         // endpoint that the poller visits first
	moved     bool        // the last Poll has moved something

	mu        sync.Mutex
	closed    bool
	listeners map[*listener]struct{}
}

// New makes a van. Close ends it.
func New(o Options) (van.Van, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	v := &shmVan{
		opt: o, host: host(hostOf(os.Getuid())), listeners: map[*listener]struct{}{},
		kernel: kernelEvents{endpoints: map[int32]*endpoint{}},
		hello:  hello{Pid: uint32(unix.Getpid()), Ring: uint64(o.RingBytes), Slots: uint32(o.slots())},
		caps: van.Caps{
			Name: name, MaxMeta: o.maxMeta(), MaxPayload: maxPayload, MaxSegments: maxSegments,
			OneSided: !o.TwoSided, Views: !o.TwoSided, Quiet: true, Sound: true, InMessage: inMessage,
		},
	}
	v.eps.Store(new([]*endpoint))
	v.ctx, v.cancel = context.WithCancel(context.Background())
	if v.kernel.epoll, err = sys.OpenEpoll(); err == nil {
		err = v.page.open(&v.hello, &v.opt)
	}
	if err != nil {
		v.release()
		return nil, &stepvan.OpError{Op: "start", Van: name, Err: err}
	}
	if o.Files != nil {
		v.stopWatching = o.Files.Watch(v.fileDropped)
	}
	return v, nil
}

// Caps implements van.Van.
func (v *shmVan) Caps() van.Caps { return v.caps }

// FD implements van.Van.
func (v *shmVan) FD() int { return v.kernel.epoll.FD() }

// wakePoller has a poller that sleeps look again. Concurrent.
func (v *shmVan) wakePoller() {
	if v.page.armed.Load() {
		v.mu.Lock()
		v.kernel.epoll.Wake()
		v.mu.Unlock()
	}
}

// add makes an endpoint known to the poller. If the van is closed, it ends the endpoint.
func (v *shmVan) add(e *endpoint) error {
	if err := v.addLocked(e); err != nil {
		e.discard()
		return err
	}
	v.wakePoller()
	return nil
}

func (v *shmVan) addLocked(e *endpoint) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return stepvan.ErrClosed
	}
	if err := v.kernel.watch(e); err != nil {
		return err
	}
	list := append(slices.Clone(*v.eps.Load()), e)
	v.eps.Store(&list)
	return nil
}

// remove takes e from the poller.
func (v *shmVan) remove(e *endpoint) {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(*v.eps.Load()), func(x *endpoint) bool { return x == e })
	v.eps.Store(&list)
}

// unwatch forgets a descriptor that is about to be closed: its number may name something else soon.
func (v *shmVan) unwatch(fd int, e *endpoint) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kernel.endpoints[int32(fd)] == e {
		delete(v.kernel.endpoints, int32(fd))
	}
}

// fileDropped tells all peers that have a file to unmap it. Concurrent.
func (v *shmVan) fileDropped(file uint64) {
	for _, e := range *v.eps.Load() {
		e.sender.stopSharing(file)
	}
}

// Close implements van.Van.
func (v *shmVan) Close() error {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return nil
	}
	v.closed = true
	listeners := v.listeners
	v.listeners = nil
	v.mu.Unlock()
	v.cancel()
	for l := range listeners {
		l.close()
	}
	v.work.Wait()
	if v.stopWatching != nil {
		v.stopWatching()
	}
	for _, e := range *v.eps.Load() {
		_ = e.Close()
	}
	for !v.polling.CompareAndSwap(false, true) {
		runtime.Gosched()
	}
	v.pollerEnded.Store(true)
	for _, e := range *v.eps.Load() {
		e.closeWithVan()
	}
	v.release()
	v.polling.Store(false)
	return nil
}

// release closes what the van itself has open.
func (v *shmVan) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.kernel.epoll.Close()
	v.page.close()
}
