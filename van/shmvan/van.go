package shmvan

import (
	"context"
	crand "crypto/rand"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/van"
)

const name = "shm"

// shmVan implements van.Van.
type shmVan struct {
	opt    Options
	caps   van.Caps
	host   string
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // goroutines that accept

	page   *shm.Memory // this van's words for its peers
	asleep *atomic.Uint64
	hello  hello

	eps     atomic.Pointer[[]*endpoint] // replaced whole, under mu
	polling atomic.Bool
	armed   atomic.Bool
	fresh   atomic.Int32 // endpoints to announce
	retired atomic.Bool  // Close has been through with the endpoints
	forgets func()       // stops watching Options.Files

	poll poller

	mu        sync.Mutex
	closed    bool
	newcomers []*endpoint
	listeners map[*listener]struct{}
	set       pollSet
}

// poller is the state of Poll and Arm, which have one caller at a time.
type poller struct {
	passes    uint64
	kernelDue bool
	inputs    []*endpoint // whose socket has something
	turn      int         // the endpoint that the next Poll visits first
	sleeps    uint64      // number of the last sleep
	hold      [][]byte    // memory for the Placer's answer
	moved     bool        // the last Poll has moved something
}

// pollSet is the epoll set of a van. Guarded by shmVan.mu.
type pollSet struct {
	epfd, evfd int                 // -1 once closed
	sources    map[int32]*endpoint // by descriptor
}

// New makes a van. Close ends it.
func New(o Options) (van.Van, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	v := &shmVan{
		opt: o, host: hostOf(os.Getuid()), set: pollSet{epfd: -1, evfd: -1, sources: map[int32]*endpoint{}},
		listeners: map[*listener]struct{}{},
		caps: van.Caps{
			Name: name, MaxMeta: o.maxMeta(), MaxPayload: maxPayload, MaxSegments: maxSegments, OneSided: !o.TwoSided, Quiet: true, Sound: true, InMessage: inMessage,
		},
	}
	v.eps.Store(new([]*endpoint))
	v.ctx, v.cancel = context.WithCancel(context.Background())
	if err := v.open(); err != nil {
		v.release()
		return nil, &stepvan.OpError{Op: "start", Van: name, Err: err}
	}
	if o.Files != nil {
		v.forgets = o.Files.Watch(v.fileGoes)
	}
	return v, nil
}

func (v *shmVan) open() (err error) {
	if v.page, err = shm.Publish("stepvan:van", pageBytes); err != nil {
		return err
	}
	page := v.page.Bytes()
	v.asleep = shm.Word64(page, offAsleep)
	nonce := page[offNonce : offNonce+len(v.hello.nonce)]
	_, _ = crand.Read(nonce) // never fails
	copy(v.hello.nonce[:], nonce)
	v.hello.pid, v.hello.ring = uint32(unix.Getpid()), uint64(v.opt.RingBytes)
	v.hello.slots = uint32(v.opt.slots())
	if !v.opt.NoForeign {
		v.hello.at = uint64(uintptr(unsafe.Pointer(&nonce[0])))
	}
	if v.set.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if v.set.evfd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	return v.set.watch(v.set.evfd, unix.EPOLLIN|edge)
}

// edge has each edge of a descriptor told once, so nothing needs to be read.
const edge = unix.EPOLLET & (1<<32 - 1)

// watch adds a descriptor to the epoll set.
func (s *pollSet) watch(fd int, events uint32) error {
	return unix.EpollCtl(s.epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// change sets what of a descriptor in the epoll set is told. Only Poll calls it.
func (s *pollSet) change(how, fd int, events uint32) {
	_ = unix.EpollCtl(s.epfd, how, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// Caps implements van.Van.
func (v *shmVan) Caps() van.Caps { return v.caps }

// FD implements van.Van.
func (v *shmVan) FD() int { return v.set.epfd }

// signal wakes whoever sleeps on FD. Concurrent.
func (v *shmVan) signal() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.set.evfd >= 0 {
		_, _ = unix.Write(v.set.evfd, one[:])
	}
}

// wake has a sleeping poller look again. Concurrent.
func (v *shmVan) wake() {
	if v.armed.Load() {
		v.signal()
	}
}

var one = [8]byte{1}

// add makes an endpoint known to the poller, or gives it up when the van is closed.
func (v *shmVan) add(e *endpoint, accepted bool) error {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		e.discard()
		return stepvan.ErrClosed
	}
	err := v.set.watch(e.sock, unix.EPOLLIN|unix.EPOLLRDHUP)
	if err == nil && e.peer.pidfd >= 0 {
		err = v.set.watch(e.peer.pidfd, unix.EPOLLIN|edge)
	}
	if err != nil {
		v.mu.Unlock()
		e.discard()
		return err
	}
	v.set.sources[int32(e.sock)] = e
	if e.peer.pidfd >= 0 {
		v.set.sources[int32(e.peer.pidfd)] = e
	}
	if accepted {
		v.newcomers = append(v.newcomers, e)
		v.fresh.Store(int32(len(v.newcomers)))
	} else {
		v.enlist(e)
	}
	v.mu.Unlock()
	v.wake()
	return nil
}

// enlist gives e to the poller. mu is held.
func (v *shmVan) enlist(e *endpoint) {
	old := *v.eps.Load()
	list := append(append(make([]*endpoint, 0, len(old)+1), old...), e)
	v.eps.Store(&list)
}

// remove takes e from the poller.
func (v *shmVan) remove(e *endpoint) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var list []*endpoint
	for _, x := range *v.eps.Load() {
		if x != e {
			list = append(list, x)
		}
	}
	v.eps.Store(&list)
}

// unwatch forgets a descriptor that is about to be closed: its number may name something else soon.
func (v *shmVan) unwatch(fd int, e *endpoint) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.set.sources[int32(fd)] == e {
		delete(v.set.sources, int32(fd))
	}
}

func (v *shmVan) isClosed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closed
}

// fileGoes tells all peers that have a file to let go of it. Concurrent.
func (v *shmVan) fileGoes(file uint64) {
	for _, e := range *v.eps.Load() {
		e.tx.forgetFile(file)
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
	fresh := v.newcomers
	v.newcomers = nil
	v.fresh.Store(0)
	listeners := v.listeners
	v.listeners = nil
	v.mu.Unlock()
	v.cancel()
	for l := range listeners {
		l.close()
	}
	v.work.Wait()
	if v.forgets != nil {
		v.forgets()
	}
	for _, e := range fresh {
		e.discard()
	}
	for _, e := range *v.eps.Load() {
		_ = e.Close()
	}
	for !v.polling.CompareAndSwap(false, true) {
		runtime.Gosched()
	}
	v.retired.Store(true)
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
	for _, fd := range []*int{&v.set.epfd, &v.set.evfd} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
	if v.page != nil {
		v.asleep = new(atomic.Uint64)
		_ = v.page.Close()
	}
}
