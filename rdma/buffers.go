package rdma

import "math/bits"

// maxBuffers is how many there can be.
const maxBuffers = 64

// buffers are those in which slots are composed. A buffer whose bytes the device copies when it is posted is free again
// at that moment, others when their request is complete. Guarded by endpoint.mu.
type buffers struct {
	n        int
	free     uint64   // bit i: buffer i is free
	inline   uint64   // free when the chain is posted
	held     uint64   // free when their holder says so
	until    []uint32 // request that uses the buffer
	unmarked int      // buffers in use that no signaled request frees
}

func (b *buffers) init(n int) {
	b.n, b.free, b.until = n, 1<<uint(n)-1, make([]uint32, n)
}

// take returns a free buffer, or -1.
func (b *buffers) take() int {
	if b.free == 0 {
		return -1
	}
	i := bits.TrailingZeros64(b.free)
	b.free &^= 1 << uint(i)
	return i
}

// use says which request uses a buffer that was taken, and whether that one is signaled.
func (b *buffers) use(i int, request uint32, signaled bool) {
	b.until[i] = request
	if b.unmarked++; signaled {
		b.unmarked = 0
	}
}

// mustSignal reports whether the next request with a buffer must be signaled, so that buffers become free again.
func (b *buffers) mustSignal() bool { return b.unmarked+1 >= (b.n+1)/2 }

// retire frees the buffers of requests up to and with one.
func (b *buffers) retire(request uint32) {
	busy := ^(b.free | b.inline | b.held) & (1<<uint(b.n) - 1)
	for ; busy != 0; busy &= busy - 1 {
		if i := bits.TrailingZeros64(busy); int32(request-b.until[i]) >= 0 {
			b.free |= 1 << uint(i)
		}
	}
}

// hold keeps a buffer that was taken, until release.
func (b *buffers) hold(i int) { b.held |= 1 << uint(i) }

// keep holds a buffer of a request, inline or not, until drop.
func (b *buffers) keep(i int, inline bool, retired uint32) {
	if b.hold(i); inline {
		b.until[i] = retired
	}
}

// ownBuffers are left to records where messages keep their buffers.
const ownBuffers = 2

// few reports whether no more than those are free.
func (b *buffers) few() bool { return bits.OnesCount64(b.free) <= ownBuffers }

// drop ends keep. The buffer is free once its request is complete.
func (b *buffers) drop(i int, retired uint32) {
	if b.held &^= 1 << uint(i); int32(retired-b.until[i]) >= 0 {
		b.free |= 1 << uint(i)
	}
}

// release frees a buffer that was held.
func (b *buffers) release(i int) {
	b.held &^= 1 << uint(i)
	b.free |= 1 << uint(i)
}

// posted frees the buffers that the device has copied.
func (b *buffers) posted() { b.free, b.inline = b.free|b.inline&^b.held, 0 }
