package rdma

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/van"
)

const vanName = "rdma"

// rdmaVan implements van.Van.
type rdmaVan struct {
	opt     Options
	caps    van.Caps
	library *verbs.Library
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	onePath bool // connections have one rail, since keys belong to a queue pair, or since devices are iWARP

	devices    []*device
	manager    manager
	undertaker undertaker
	visitors   visitors
	members    members
	regions    regions

	armed   atomic.Bool              // the driver may sleep on FD
	noted   atomic.Pointer[endpoint] // that was noted last; the others follow by nextNoted
	polling atomic.Bool
	poller  poller
	once    sync.Once // of Close

	epollMu sync.Mutex // a leaf
	epoll   sys.Epoll
	woken   bool // the set shows a call of wake; guarded by epollMu
}

// New makes a van on the devices that the options name. Errors: stepvan.ErrInvalid for wrong options,
// stepvan.ErrNotSupported where the build, the libraries or the machine have no RDMA, and others for what the system
// lacks.
func New(o Options) (van.Van, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	v := &rdmaVan{opt: o, caps: van.Caps{
		Name: vanName, MaxMeta: int(min(o.Limits.Meta, math.MaxInt32)), MaxPayload: int64(min(o.Limits.Message, 1<<56)),
		MaxSegments: maxSegments, InMessage: inMessage, Quiet: true, OneSided: true, Offload: true, Registered: true,
	}}
	v.undertaker.v, v.visitors.v, v.manager.v, v.poller.v = v, v, v, v
	v.members.init()
	v.regions.init(v)
	v.ctx, v.cancel = context.WithCancel(context.Background())
	if err := v.open(); err != nil {
		v.release()
		return nil, &stepvan.OpError{Op: "start", Van: vanName, Err: err}
	}
	return v, nil
}

func (v *rdmaVan) open() (err error) {
	if v.library, err = process.load(); err != nil {
		return err
	}
	if v.epoll, err = sys.OpenEpoll(); err != nil {
		return err
	}
	list, err := usable(v.library, v.opt.Devices)
	if err != nil {
		return err
	}
	for i, s := range list {
		d, err := newDevice(v.library, s, i)
		if err != nil {
			releaseAll(list[i:])
			return err
		}
		v.devices = append(v.devices, d)
		s.watch(v)
		if err := v.epoll.Add(d.wake.FD(), epollIn, i); err != nil {
			releaseAll(list[i+1:])
			return err
		}
	}
	for _, d := range v.devices {
		if v.opt.Windows && !d.attributes.WindowsOfType2 {
			return fmt.Errorf("open: %s has no memory windows of type 2: leave Options.Windows unset, or name other devices: %w", d.name(), stepvan.ErrNotSupported)
		}
	}
	if n := len(v.devices); n > maxDevices && v.opt.paths() > 1 {
		return fmt.Errorf("open: %d devices (want at most %d with several paths): name those to use in Options.Devices: %w", n, maxDevices, stepvan.ErrInvalid)
	}
	v.caps.Guarded, v.onePath = v.opt.Windows, v.opt.Windows
	if err := v.checkTransport(); err != nil {
		return err
	}
	if err := v.poller.open(v.library); err != nil {
		return err
	}
	return v.manager.start()
}

// checkTransport refuses what devices of iWARP do not have: immediates, and writes whose completion says that they are
// in the memory of the peer.
func (v *rdmaVan) checkTransport() error {
	infos, err := v.library.Devices()
	for _, i := range infos {
		d := v.deviceNamed(i.Name)
		if i.Transport != verbs.IWARP || d == nil {
			continue
		}
		d.iWARP, v.onePath = true, true
		if v.opt.paths() > 1 {
			return fmt.Errorf("open: %s is iWARP, which takes one path: leave Options.Paths unset, or name other devices: %w", i.Name, stepvan.ErrNotSupported)
		}
		if v.opt.Immediate {
			return fmt.Errorf("open: %s is iWARP, which has no immediates: leave Options.Immediate unset, or name other devices: %w", i.Name, stepvan.ErrNotSupported)
		}
	}
	return err
}

// Caps implements van.Van.
func (v *rdmaVan) Caps() van.Caps { return v.caps }

// FD implements van.Van.
func (v *rdmaVan) FD() int {
	v.epollMu.Lock()
	defer v.epollMu.Unlock()
	return v.epoll.FD()
}

func (v *rdmaVan) deviceNamed(name string) *device {
	for _, d := range v.devices {
		if d.name() == name {
			return d
		}
	}
	return nil
}

// Close implements van.Van. It waits until peers have what was posted, for at most a second.
func (v *rdmaVan) Close() error {
	v.once.Do(v.close)
	return nil
}

func (v *rdmaVan) close() {
	v.cancel()
	v.members.close()
	v.manager.stopListening()
	v.visitors.stop()
	v.closeEndpoints()
	v.undertaker.finish()
	v.manager.stop()
	v.poller.lock()
	defer v.polling.Store(false)
	v.members.queues.Store(new([]*completionQueue))
	v.release()
}

// closeEndpoints closes all of them at the same time, since each may wait for a peer.
func (v *rdmaVan) closeEndpoints() {
	var closing sync.WaitGroup
	for _, r := range v.members.all(func(*rail) bool { return true }) {
		closing.Go(func() { _ = r.e.Close() })
	}
	closing.Wait()
}

// release frees what the van itself has.
func (v *rdmaVan) release() {
	v.manager.free()
	v.regions.close()
	for _, d := range v.devices {
		d.unwatch(v)
		d.close()
	}
	v.devices = nil
	v.poller.close()
	v.epollMu.Lock()
	defer v.epollMu.Unlock()
	v.epoll.Close()
}
