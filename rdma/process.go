package rdma

import (
	"fmt"
	"slices"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/verbs"
)

// process is what all vans of a process share: the libraries, and the open devices.
var process shared

// shared hands out devices. librdmacm opens each device once for a process, so its asynchronous events have one reader.
type shared struct {
	mu      sync.Mutex
	library *verbs.Library
	devices map[string]*sharedDevice
}

// sharedDevice is an open device with the reader of its asynchronous events.
type sharedDevice struct {
	device     *verbs.Device
	attributes verbs.DeviceAttributes
	maxMessage uint32 // bytes of one request
	users      int    // guarded by shared.mu
	events     *watcher
	reading    sync.WaitGroup

	mu       sync.Mutex
	watching map[eventSink]struct{}
}

// eventSink hears of asynchronous events.
type eventSink interface {
	onDeviceEvent(of *sharedDevice, e verbs.Event)
}

// load returns the libraries, which stay loaded.
func (s *shared) load() (*verbs.Library, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.library != nil {
		return s.library, nil
	}
	l, err := verbs.Load(loadOptions)
	if err == nil {
		s.library = l
	}
	return l, err
}

// loadOptions of the libraries. Tests trace what is left open.
var loadOptions verbs.Options

// open returns a device, which the caller releases.
func (s *shared) open(l *verbs.Library, name string) (*sharedDevice, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[name]
	if d == nil {
		var err error
		if d, err = newSharedDevice(l, name); err != nil {
			return nil, err
		}
		if s.devices == nil {
			s.devices = map[string]*sharedDevice{}
		}
		s.devices[name] = d
	}
	d.users++
	return d, nil
}

// release closes the device when nobody uses it any more.
func (s *shared) release(d *sharedDevice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.users--; d.users > 0 {
		return
	}
	delete(s.devices, d.name())
	d.events.close()
	d.reading.Wait()
	_ = d.device.Close()
}

func newSharedDevice(l *verbs.Library, name string) (*sharedDevice, error) {
	device, err := l.Open(name)
	if err != nil {
		return nil, err
	}
	d := &sharedDevice{device: device, watching: map[eventSink]struct{}{}}
	if d.attributes, err = device.Query(); err == nil {
		d.maxMessage, err = d.messageLimit()
	}
	if err == nil {
		d.events, err = newWatcher(device.EventFD())
	}
	if err != nil {
		_ = device.Close()
		return nil, err
	}
	d.reading.Go(d.readEvents)
	return d, nil
}

// name is the name of the device: "mlx5_0".
func (d *sharedDevice) name() string { return d.device.Name() }

// messageLimit is how much one request can carry, through the first active port.
func (d *sharedDevice) messageLimit() (uint32, error) {
	for port := 1; port <= d.attributes.Ports; port++ {
		a, err := d.device.Port(port)
		if err != nil {
			return 0, err
		}
		if a.State == verbs.PortActive {
			return max(a.MaxMessage, 4096) &^ 4095, nil
		}
	}
	return 0, fmt.Errorf("open: %s: no port is active: check the link (rdma link): %w", d.name(), stepvan.ErrNotSupported)
}

// readEvents passes asynchronous events on, until the device is released. A device that no longer has any is gone.
func (d *sharedDevice) readEvents() {
	_ = d.events.wait(func() bool {
		for {
			e, ok, err := d.device.Event()
			if err != nil {
				e.Kind = verbs.EventDeviceFatal
			} else if !ok {
				return false
			}
			if d.tell(e); err != nil {
				return true
			}
		}
	})
}

func (d *sharedDevice) tell(e verbs.Event) {
	for _, w := range d.watchers() {
		w.onDeviceEvent(d, e)
	}
}

func (d *sharedDevice) watchers() (all []eventSink) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for w := range d.watching {
		all = append(all, w)
	}
	return all
}

func (d *sharedDevice) watch(w eventSink) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watching[w] = struct{}{}
}

func (d *sharedDevice) unwatch(w eventSink) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.watching, w)
}

// usable lists the devices that a van may use: those named, or all that have an active port.
func usable(l *verbs.Library, named []string) (devices []*sharedDevice, err error) {
	names := named
	if len(names) == 0 {
		infos, err := l.Devices()
		if err != nil {
			return nil, err
		}
		for _, i := range infos {
			names = append(names, i.Name)
		}
	}
	var why error
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		d, err := process.open(l, name)
		switch {
		case err == nil:
			devices = append(devices, d)
		case len(named) > 0:
			releaseAll(devices)
			return nil, err
		default:
			why = err
		}
	}
	switch {
	case len(devices) > 0:
		return devices, nil
	case why != nil:
		return nil, why
	}
	return nil, fmt.Errorf("open: this machine has no RDMA device that libibverbs knows: %w", stepvan.ErrNotSupported)
}

func releaseAll(devices []*sharedDevice) {
	for _, d := range devices {
		process.release(d)
	}
}
