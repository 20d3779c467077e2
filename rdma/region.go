package rdma

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/van"
)

// region is memory that is registered with every device of the van.
type region struct {
	mem      []byte // keeps memory of Go's heap where it is
	extent   extent
	keys     []*verbs.MR  // by device.index
	writable bool         // by devices
	count    int          // registrations; guarded by regions.mu
	users    atomic.Int64 // the registrations together, and each grant and operation
}

// extent is a range of addresses.
type extent struct{ start, end uintptr }

func extentOf(b []byte) extent {
	start := addressOf(b)
	return extent{start, start + uintptr(len(b))}
}

// take adds a user, unless the last one has gone.
func (r *region) take() bool {
	for {
		n := r.users.Load()
		if n == 0 {
			return false
		}
		if r.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// drop removes a user, and reports whether it was the last.
func (r *region) drop() bool { return r.users.Add(-1) == 0 }

// close unregisters the memory. It may take long.
func (r *region) close() {
	for _, mr := range r.keys {
		_ = mr.Close()
	}
}

// Close is close, for the undertaker.
func (r *region) Close() error {
	r.close()
	return nil
}

// regions are the memory that is registered. Send and Grant look it up without a lock.
type regions struct {
	v      *rdmaVan
	mu     sync.Mutex
	closed bool
	exact  map[extent]*region
	table  atomic.Pointer[regionTable]
	ending sync.WaitGroup // calls of deregister that free a region; Add under mu, and not once closed
}

// regionTable is in order of the start of the regions, which may overlap.
type regionTable struct {
	list []*region
	ends []uintptr // ends[i] is the largest end of list[:i+1]
}

var _ van.AcceleratorRegistrar = (*rdmaVan)(nil)

// Register implements van.Registrar.
func (v *rdmaVan) Register(mem []byte) error { return v.regions.register(mem, registerPages) }

// RegisterAccelerator implements van.AcceleratorRegistrar. Without a dma-buf it needs a kernel module that knows the
// addresses of the accelerator, such as nvidia_peermem.
func (v *rdmaVan) RegisterAccelerator(mem []byte, fd int, offset int64) error {
	if fd < 0 {
		return v.regions.register(mem, registerPeer)
	}
	return v.regions.register(mem, func(d *device, x extent, access verbs.Access) (*verbs.MR, error) {
		return d.pd.RegisterDMABuf(fd, uint64(offset), uint64(x.end-x.start), x.start, access)
	})
}

// registerWith registers memory with a device.
type registerWith func(d *device, x extent, access verbs.Access) (*verbs.MR, error)

// registerPages has the kernel pin the memory that is mapped at the addresses.
func registerPages(d *device, x extent, access verbs.Access) (*verbs.MR, error) {
	return d.pd.Register(x.start, uint64(x.end-x.start), access)
}

// registerPeer is registerPages for memory of an accelerator, which can always be written. The kernel would pin for
// reading what no processor may touch.
func registerPeer(d *device, x extent, access verbs.Access) (*verbs.MR, error) {
	if access&verbs.LocalWrite == 0 {
		return nil, errNoPeer
	}
	return registerPages(d, x, access)
}

var errNoPeer = fmt.Errorf("the kernel knows no memory of an accelerator there: load a module that does, such as nvidia_peermem: %w", stepvan.ErrNotSupported)

// Deregister implements van.Registrar.
func (v *rdmaVan) Deregister(mem []byte) error { return v.regions.deregister(mem) }

func (s *regions) init(v *rdmaVan) {
	s.v, s.exact = v, map[extent]*region{}
	s.table.Store(new(regionTable))
}

func (s *regions) register(mem []byte, with registerWith) error {
	if len(mem) == 0 {
		return errs.Invalid("register: memory: it is empty: give at least a byte")
	}
	if found, err := s.again(extentOf(mem)); found || err != nil {
		return err
	}
	if !s.v.members.beginCall() {
		return stepvan.ErrClosed
	}
	defer s.v.members.calls.Done()
	r, err := s.v.newRegion(mem, with)
	if err != nil {
		return &stepvan.OpError{Op: "register", Van: vanName, Err: err}
	}
	if !s.add(r) {
		r.close() // another goroutine was faster
	}
	return nil
}

// again counts a further registration of the same memory.
func (s *regions) again(x extent) (found bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, stepvan.ErrClosed
	}
	if r := s.exact[x]; r != nil {
		r.count++
		return true, nil
	}
	return false, nil
}

// newRegion registers memory with all devices: for reading alone where that is all that the memory allows.
func (v *rdmaVan) newRegion(mem []byte, with registerWith) (r *region, err error) {
	r = &region{mem: mem, extent: extentOf(mem), writable: true, count: 1}
	r.users.Store(1)
	for _, d := range v.devices {
		access := verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead
		if v.opt.Windows {
			access |= verbs.BindWindows
		}
		var mr *verbs.MR
		if r.writable {
			mr, err = with(d, r.extent, access)
		}
		if mr == nil && (err == nil || isUnreachable(err)) {
			r.writable = false
			mr, err = with(d, r.extent, verbs.RemoteRead)
		}
		if err != nil {
			r.close()
			if isUnreachable(err) {
				err = fmt.Errorf("%w: %w", stepvan.ErrNotSupported, err)
			}
			return nil, err
		}
		r.keys = append(r.keys, mr)
	}
	return r, nil
}

// isUnreachable finds errors that are about the memory, and not about what the system lacks.
func isUnreachable(err error) bool {
	return errors.Is(err, syscall.EFAULT) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES)
}

// add makes a region known. false: the memory is registered already, or the van closed, so r is not needed.
func (s *regions) add(r *region) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.exact[r.extent]; other != nil {
		other.count++
		return false
	}
	s.exact[r.extent] = r
	s.publish()
	return true
}

func (s *regions) deregister(mem []byte) error {
	r, err := s.remove(extentOf(mem))
	if r == nil {
		return err
	}
	defer s.ending.Done()
	if r.drop() {
		r.close()
	}
	return nil
}

// remove ends a registration, and returns the region if it was the last of this memory. Then it has added to ending.
func (s *regions) remove(x extent) (*region, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.exact[x]
	switch {
	case s.closed:
		return nil, nil
	case r == nil:
		return nil, errs.Invalid("deregister: memory: these %d bytes are not registered: give what was registered", x.end-x.start)
	}
	if r.count--; r.count > 0 {
		return nil, nil
	}
	delete(s.exact, x)
	s.publish()
	s.ending.Add(1)
	return r, nil
}

// publish makes the table that find looks at. mu is held.
func (s *regions) publish() {
	t := &regionTable{list: make([]*region, 0, len(s.exact)), ends: make([]uintptr, 0, len(s.exact))}
	for _, r := range s.exact {
		t.list = append(t.list, r)
	}
	slices.SortFunc(t.list, func(a, b *region) int { return cmp.Compare(a.extent.start, b.extent.start) })
	end := uintptr(0)
	for _, r := range t.list {
		end = max(end, r.extent.end)
		t.ends = append(t.ends, end)
	}
	s.table.Store(t)
}

// find returns a region that holds all of b, with one user more, or nil. Budget: no lock, no allocation.
func (s *regions) find(b []byte) *region {
	t, x := s.table.Load(), extentOf(b)
	i := sort.Search(len(t.list), func(i int) bool { return t.list[i].extent.start > x.start }) - 1
	for ; i >= 0 && t.ends[i] >= x.end; i-- {
		if r := t.list[i]; r.extent.end >= x.end && r.take() {
			return r
		}
	}
	return nil
}

// release ends the use of a region by a grant or an operation. The last one leaves it to the undertaker, since it takes
// long.
func (s *regions) release(r *region) {
	if r != nil && r.drop() {
		s.v.undertaker.free(r)
	}
}

// close unregisters everything. Nothing uses it any more. It waits for calls that unregister something, since a
// protection domain stays as long as it has a memory region.
func (s *regions) close() {
	s.refuse()
	s.ending.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.exact {
		r.close()
	}
	s.exact = nil
	s.table.Store(new(regionTable))
}

// refuse lets nobody register or unregister any more.
func (s *regions) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}
