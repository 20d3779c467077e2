package server

import (
	"time"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/tensor"
)

// Over a van that shares memory, one copy brings a response into the pull tensors of its worker. Either the server
// lends its tensors and the worker fetches them, or the server aims the response. Then the link writes the payload into
// the pull tensors, within the call and under no lock.
//
// A van with a device copies nothing. The server aims every response that it can, and the device writes it into the
// pull tensors.

// Copying says which side copies the responses of Respond and RespondVec.
type Copying uint8

// The values of Options.Copying.
const (
	CopyAuto     Copying = iota // as Options.Caches and the state of the server suggest
	CopyByServer                // the server, wherever it reaches all pull tensors that it must send
	CopyByWorker                // the worker
)

// Caches are the sizes of the caches of one core, in bytes. 0: not known.
type Caches struct {
	Second int64 // its own second-level cache
	Last   int64 // the cache that the cores share
}

// Files knows the memory files of this process, which workers can map. [*tensor.Allocator] implements it.
type Files interface {
	// Locate finds the file that holds all of b, without allocating.
	Locate(b []byte) (tensor.Place, bool)
	registry.Arenas
}

// copying decides which side copies a response.
type copying struct {
	by       Copying
	caches   Caches
	files    Files
	registry *registry.Registry
	check    bool // Options.CheckBorrowed: only tensors that stay borrowed until Done can be checked
}

// transfer is how the answers of a message get to the worker, unless they are there.
type transfer uint8

const (
	transferLent   transfer = iota // in the message: the van or the worker takes them from the program's tensors
	transferAimed                  // the link, or a device of the van, writes them into the pull tensors
	transferCopied                 // the call writes them into the pull tensors, or copies them to pooled memory
)

const (
	// largestGain is the largest response that one side copies faster than the other. The copies of larger ones wait
	// for memory, whichever side makes them.
	largestGain = 4 << 20
	// smallestSaved and largestSaved limit the responses for which a Respond takes pooled memory. Smaller ones gain
	// nothing, and the copies of larger ones wait for memory.
	smallestSaved, largestSaved = 128 << 10, 4 << 20
	// shortWait is how soon a request comes when it was waiting for the server: it takes so long to receive it.
	shortWait = 5 * time.Microsecond
)

// choose returns the transfer of m, the response to r of a call. ended is when the call before ended.
func (x *copying) choose(m *message, r *requestSlot, ended int64) transfer {
	switch caps := r.session.Caps(); {
	case caps.Offload && m.aimWhole(r, x.sources(caps)):
		return transferAimed
	case caps.Offload || !caps.OneSided || x.by == CopyByWorker:
		return transferLent
	}
	bytes, reached := m.unsent(r)
	foreign := bytes > link.LockedBytes && m.isForeign(x.files)
	switch {
	case bytes == 0:
		return transferLent
	case reached && (x.by == CopyByServer || foreign || x.isBetterByServer(r, bytes, ended)):
		return transferAimed
	case reached || !foreign || bytes < smallestSaved || bytes > largestSaved || x.check:
		return transferLent
	}
	return transferCopied
}

// sources returns the registry of what a van can write from, or nil where it can write from all memory.
func (x *copying) sources(caps *link.Caps) *registry.Registry {
	if caps.Registered {
		return x.registry
	}
	return nil
}

// aimWhole reports whether a device can write the answers of m where the pulls say, out of memory of sources, or of any
// memory if that is nil. Answers that it cannot write travel with the head, if they are few bytes together.
func (m *message) aimWhole(r *requestSlot, sources *registry.Registry) bool {
	some, along := false, r.session.Caps().InMessage
	for i := range m.answers {
		a := &m.answers[i]
		n := int64(a.tensor.Len())
		if a.inPlace || n == 0 {
			continue
		}
		a.along = r.meta.Pulls[i].Region == 0 || sources != nil && !sources.Covers(a.tensor.Addresses())
		if !a.along {
			some = true
		} else if along -= n; along < 0 || !a.tensor.Device().IsHost() {
			return false
		}
	}
	return some
}

// unsent returns how many bytes of the answers are not in the worker's memory, and whether the worker has said where
// they all go.
func (m *message) unsent(r *requestSlot) (bytes int64, reached bool) {
	reached = true
	for i := range m.answers {
		if a := &m.answers[i]; !a.inPlace && a.tensor.Len() > 0 {
			bytes += int64(a.tensor.Len())
			reached = reached && r.meta.Pulls[i].Region != 0
		}
	}
	return bytes, reached
}

// isForeign reports whether the worker cannot map one of the answers. It would fetch them with process_vm_readv, at a
// quarter of the speed.
func (m *message) isForeign(files Files) bool {
	for i := range m.answers {
		if a := &m.answers[i]; !a.inPlace && a.tensor.Len() > 0 {
			if _, ok := files.Locate(a.tensor.Bytes()); !ok {
				return true
			}
		}
	}
	return false
}

// isBetterByServer reports whether a response of so many bytes takes less time if the server copies it from memory that
// the worker can map.
//
//   - A server that others wait for has no time for it: several workers, or one with several requests in flight.
//   - The server must wait for each line of the pull tensors that is in the worker's own cache. So it copies only after
//     pushes that have filled that cache with something else.
//   - It gains in two cases. The worker's copy of the pushes may fit in its own cache, but not with a copy of the
//     response. Or the response is so small that the server's cache would keep the chunks, and the next pushes would
//     wait for their lines.
//   - It gains nothing above largestGain.
//
// docs/performance.md has the measurements.
func (x *copying) isBetterByServer(r *requestSlot, bytes int64, ended int64) bool {
	own, last := x.caches.Second, x.caches.Last
	switch {
	case bytes <= link.LockedBytes || bytes > largestGain:
		return false
	case !r.alone || r.received-ended < int64(shortWait):
		return false
	case last > 0 && 2*(r.pushedBytes+bytes) > last:
		return false
	}
	return r.touched >= own/8*7 && (r.touched < own || 2*bytes <= own)
}
