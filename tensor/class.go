package tensor

import (
	"math/bits"
	"sync"
)

const (
	granule     = 64 // bytes: a cache line, the alignment of every region
	classCount  = 4 + 4*(maxClassLog-8)
	maxClassLog = 40 // log2 of the largest pooled size
	noClass     = -1
)

// classOf returns the pool class for n bytes and the size of its regions. The
// size is at least n. Beyond the first four classes it is at most 25% more,
// because each power of two has four classes. Sizes past the last class get noClass.
func classOf(n int64) (class int, size int64) {
	if n <= 4*granule {
		c := (max(n, 1) - 1) / granule
		return int(c), (c + 1) * granule
	}
	if n > 1<<maxClassLog {
		return noClass, n
	}
	log := bits.Len64(uint64(n-1)) - 1
	step := int64(1) << (log - 2)
	quarter := (n - 1 - 1<<log) / step
	return 4 + (log-8)*4 + int(quarter), 1<<log + (quarter+1)*step
}

// class holds the idle regions of one size. The one used last is handed out
// first: its memory is likeliest in the cache.
type class struct {
	mu     sync.Mutex
	idle   []*Region
	closed bool
	gets   uint64
	hits   uint64
}

// pop returns an idle region or nil; false when the allocator is closed.
func (c *class) pop() (*Region, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false
	}
	c.gets++
	last := len(c.idle) - 1
	if last < 0 {
		return nil, true
	}
	c.hits++
	r := c.idle[last]
	c.idle[last] = nil
	c.idle = c.idle[:last]
	return r, true
}

// push keeps r; false when the allocator is closed.
func (c *class) push(r *Region) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.idle = append(c.idle, r)
	return true
}

// drain takes all idle regions out, for good when closing.
func (c *class) drain(closing bool) []*Region {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = c.closed || closing
	idle := c.idle
	c.idle = nil
	return idle
}
