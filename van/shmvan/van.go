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

// node is one van. It implements van.Van.
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

	epfd, evfd int

	eps           atomic.Pointer[[]*endpoint] // replaced whole, under mu
	polling       atomic.Bool
	armed         atomic.Bool
	acceptedCount atomic.Int32 // endpoints to announce
	retired       atomic.Bool  // Close has been through with the endpoints
	stopWatching  func()       // stops watching Options.Files

	// The poller's.
	polls     uint64
	kernelDue bool
	withInput []*endpoint // whose socket has something
	turn      int         // endpoint that is looked at first
	sleeps    uint64      // number of the last sleep
	hold      [][]byte
	moved     bool // the last Poll has moved something

	mu        sync.Mutex
	closed    bool
	accepted  []*endpoint
	listeners map[*listener]struct{}
	sources   map[int32]*endpoint // by descriptor in the epoll set
}

// New makes a van. Close ends it.
func New(o Options) (van.Van, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	v := &shmVan{
		opt: o, host: hostOf(os.Getuid()), epfd: -1, evfd: -1,
		listeners: map[*listener]struct{}{}, sources: map[int32]*endpoint{},
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
		v.stopWatching = o.Files.Watch(v.fileDropped)
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
	if v.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if v.evfd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	return v.watch(v.evfd, unix.EPOLLIN|edge)
}

// edge has each edge of a descriptor told once, so nothing needs to be read.
const edge = unix.EPOLLET & (1<<32 - 1)

// watch adds a descriptor to the epoll set.
func (v *shmVan) watch(fd int, events uint32) error {
	return unix.EpollCtl(v.epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// attend changes what of a descriptor in the epoll set is told. Poller only.
func (v *shmVan) change(how, fd int, events uint32) {
	_ = unix.EpollCtl(v.epfd, how, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// Caps implements van.Van.
func (v *shmVan) Caps() van.Caps { return v.caps }

// FD implements van.Van.
func (v *shmVan) FD() int { return v.epfd }

// ring wakes whoever sleeps on FD. Concurrent.
func (v *shmVan) ring() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.evfd >= 0 {
		_, _ = unix.Write(v.evfd, one[:])
	}
}

// stir has a sleeping poller look again. Concurrent.
func (v *shmVan) wakePoller() {
	if v.armed.Load() {
		v.ring()
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
	err := v.watch(e.sock, unix.EPOLLIN|unix.EPOLLRDHUP)
	if err == nil && e.peer.pidfd >= 0 {
		err = v.watch(e.peer.pidfd, unix.EPOLLIN|edge)
	}
	if err != nil {
		v.mu.Unlock()
		e.discard()
		return err
	}
	v.sources[int32(e.sock)] = e
	if e.peer.pidfd >= 0 {
		v.sources[int32(e.peer.pidfd)] = e
	}
	if accepted {
		v.accepted = append(v.accepted, e)
		v.acceptedCount.Store(int32(len(v.accepted)))
	} else {
		v.appendEndpoint(e)
	}
	v.mu.Unlock()
	v.wakePoller()
	return nil
}

// enlist gives e to the poller. mu is held.
func (v *shmVan) appendEndpoint(e *endpoint) {
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
	if v.sources[int32(fd)] == e {
		delete(v.sources, int32(fd))
	}
}

func (v *shmVan) isClosed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closed
}

// fileGoes tells all peers that have a file to let go of it. Concurrent.
func (v *shmVan) fileDropped(file uint64) {
	for _, e := range *v.eps.Load() {
		e.stopSharing(file)
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
	acceptedCount := v.accepted
	v.accepted = nil
	v.acceptedCount.Store(0)
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
	for _, e := range acceptedCount {
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
	for _, fd := range []*int{&v.epfd, &v.evfd} {
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
