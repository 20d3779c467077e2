package staging

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/tensor"
)

// Move is one copy between a tensor of an accelerator and as many bytes of the host. The caller holds both.
type Move struct {
	Tensor tensor.Tensor
	Host   []byte
}

// Stats count what a Stager has copied.
type Stats struct {
	BytesOut, BytesIn int64 // out of accelerators, and into them
}

// Stager copies for one instance. Any goroutine may call its methods.
type Stager struct {
	memory  *tensor.Allocator
	log     zerolog.Logger
	out, in atomic.Int64

	mu sync.Mutex
	// +checklocks:mu
	copiers map[tensor.Device]*copier
	// +checklocks:mu
	pins map[tensor.DeviceKind]*registry.Registry
}

// copier has the streams for one device.
type copier struct {
	driver  device.Driver
	pins    *registry.Registry
	out, in device.Stream
	said    sync.Once // that it copies
}

// New makes a Stager that takes memory of the host from an allocator.
func New(memory *tensor.Allocator, log zerolog.Logger) *Stager {
	return &Stager{
		memory: memory, log: log, copiers: map[tensor.Device]*copier{}, pins: map[tensor.DeviceKind]*registry.Registry{},
	}
}

// Stats returns the counts of this moment.
func (s *Stager) Stats() Stats { return Stats{BytesOut: s.out.Load(), BytesIn: s.in.Load()} }

// copier returns the copier for d. The first call makes it.
func (s *Stager) copier(d tensor.Device) (*copier, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.copiers[d]; c != nil {
		return c, nil
	}
	driver, err := device.Find(d.Kind)
	if err != nil {
		return nil, err
	}
	c := &copier{driver: driver, pins: s.pinner(d.Kind, driver)}
	if c.out, err = driver.NewStream(d); err != nil {
		return nil, err
	}
	if c.in, err = driver.NewStream(d); err != nil {
		return nil, errors.Join(err, driver.CloseStream(c.out))
	}
	s.copiers[d] = c
	return c, nil
}

// pinner returns the registry of the memory that the driver has pinned.
// +checklocks:s.mu
func (s *Stager) pinner(kind tensor.DeviceKind, driver device.Driver) *registry.Registry {
	if s.pins[kind] == nil {
		s.pins[kind] = registry.New([]registry.Device{pins{driver}}, s.log)
		s.pins[kind].Watch(s.memory)
	}
	return s.pins[kind]
}

// pins has a driver register memory by pinning it.
type pins struct{ driver device.Driver }

func (p pins) Register(mem []byte) error   { return p.driver.Pin(mem) }
func (p pins) Deregister(mem []byte) error { return p.driver.Unpin(mem) }

// forget drops a copier after a failure, which its streams may never get over.
func (s *Stager) forget(d tensor.Device, c *copier) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.copiers[d] == c {
		delete(s.copiers, d)
		_ = c.close() // the failure is known
	}
}

func (c *copier) close() error {
	return errors.Join(c.driver.CloseStream(c.out), c.driver.CloseStream(c.in))
}

// Memory takes n bytes of pooled memory, pinned for d, which the caller puts back to the allocator. While the pool is
// full it waits, and calls giveUp between its attempts. Memory that cannot be pinned is used all the same.
func (s *Stager) Memory(d tensor.Device, n int, giveUp func() error) (*tensor.Region, error) {
	c, err := s.copier(d)
	if err != nil {
		return nil, err
	}
	r, err := s.take(n, giveUp)
	if err != nil {
		return nil, err
	}
	t, err := tensor.FromRegion(r, 0, tensor.Uint8, tensor.ShapeOf(int64(n)))
	if err != nil {
		s.memory.Put(r)
		return nil, err
	}
	c.pins.Prepare(&t)
	return r, nil
}

// poolPause is the time between two attempts to take memory.
const poolPause = 100 * time.Microsecond

func (s *Stager) take(n int, giveUp func() error) (*tensor.Region, error) {
	if limit := s.memory.Limit(); limit > 0 && int64(n) > limit {
		return nil, errs.Invalid("its copy needs more pooled memory than there is (got %d bytes, want at most %d): raise STEPVAN_POOL_BYTES, or split the exchange", n, limit)
	}
	for {
		r, err := s.memory.Get(n)
		if !errors.Is(err, stepvan.ErrWouldBlock) {
			return r, err
		}
		if err := giveUp(); err != nil {
			return nil, err
		}
		time.Sleep(poolPause)
	}
}

// Put gives back memory that Memory has returned.
func (s *Stager) Put(r *tensor.Region) { s.memory.Put(r) }

// Out copies out of d, and returns when the copies are over.
func (s *Stager) Out(d tensor.Device, moves []Move) error {
	e, err := s.begin(d, moves, &s.out, func(c *copier, m *Move) error {
		return c.driver.ToHost(c.out, m.Host, m.Tensor.Address())
	}, func(c *copier) device.Stream { return c.out })
	if err != nil {
		return err
	}
	return e.Await()
}

// BeginIn queues copies into d. The caller calls Await of the copies once.
func (s *Stager) BeginIn(d tensor.Device, moves []Move) (*Copies, error) {
	return s.begin(d, moves, &s.in, func(c *copier, m *Move) error {
		return c.driver.FromHost(c.in, m.Tensor.Address(), m.Host)
	}, func(c *copier) device.Stream { return c.in })
}

// begin queues copies to a stream. After an error none of them uses memory.
func (s *Stager) begin(d tensor.Device, moves []Move, count *atomic.Int64, queue func(*copier, *Move) error, on func(*copier) device.Stream) (*Copies, error) {
	c, err := s.copier(d)
	if err != nil {
		return nil, err
	}
	c.said.Do(func() {
		s.log.Info().Stringer("device", d).Msg("tensors of the device travel by copies through pinned memory of the host, unless they are registered, and an RDMA device reaches them")
	})
	var bytes int64
	for i := range moves {
		if len(moves[i].Host) == 0 {
			continue
		}
		if err = queue(c, &moves[i]); err != nil {
			break
		}
		bytes += int64(len(moves[i].Host))
	}
	event, recordErr := c.driver.Record(on(c))
	if recordErr != nil {
		s.forget(d, c)
		return nil, errors.Join(err, recordErr)
	}
	copies := &Copies{s: s, d: d, c: c, event: event}
	if err != nil {
		_ = copies.Await()
		return nil, err
	}
	count.Add(bytes)
	return copies, nil
}

// Copies are copies that are queued to a stream of a device.
type Copies struct {
	s *Stager
	d tensor.Device
	c *copier

	mu sync.Mutex
	// +checklocks:mu
	event device.Event // nil when the copies are over
}

// Await waits until the copies are over, and returns the first error. It has no limit: until then the device uses the
// memory.
func (c *Copies) Await() error {
	c.mu.Lock()
	e := c.event
	c.mu.Unlock()
	err := device.Await(e, nil)
	c.mu.Lock()
	c.event = nil
	c.mu.Unlock()
	e.Close()
	if err != nil {
		c.s.forget(c.d, c.c)
	}
	return err
}

// Follow has work that is queued to a stream from here on wait for the copies. It reports false when they are over, and
// the caller is to look at their outcome.
func (c *Copies) Follow(s device.Stream) (waits bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.event == nil {
		return false, nil
	}
	if s.Device.Kind != c.d.Kind {
		return false, errs.Invalid("stream %#x: it is of another kind of device (got %s, want %s): give a stream of %s", s.Handle, s.Device, c.d, c.d.Kind)
	}
	return true, c.c.driver.Follow(s, c.event)
}

// Flush has work of d see what other devices have written to its memory.
func Flush(d tensor.Device) error {
	driver, err := device.Find(d.Kind)
	if err != nil {
		return err
	}
	return driver.Flush(d)
}

// Close gives up the streams and what is pinned. No copy is queued any more.
func (s *Stager) Close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d, c := range s.copiers {
		err = errors.Join(err, c.close())
		delete(s.copiers, d)
	}
	for kind, r := range s.pins {
		err = errors.Join(err, r.Close())
		delete(s.pins, kind)
	}
	if err != nil {
		return fmt.Errorf("close: copies to and from accelerators: %w", err)
	}
	return nil
}
