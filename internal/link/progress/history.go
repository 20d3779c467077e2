package progress

import (
	"slices"
	"sort"
	"sync"
	"time"
)

// Kind tells waits apart whose length follows different patterns. The engine learns how long the waits of each kind
// last.
type Kind uint8

// Kinds. The zero Kind is for rare waits, of which there is nothing to learn.
const (
	Rare    Kind = iota
	Answer       // for the answer to a request
	Request      // for the next request
	kinds
)

// history holds the lengths of the last waits of one kind. Waits that end while the waiter spins anyway are not in it.
type history struct {
	mu     sync.Mutex
	recent [historyLength]uint32 // a ring in order of time, ns
	sorted [historyLength]uint32 // the same lengths, the shortest first
	count  int                   // lengths in both
	next   int                   // the place in recent that the next length takes
}

const (
	historyLength = 128
	// longestNoted stands for all longer waits, ns.
	longestNoted = int64(1<<32 - 1)
	// shortestWindow and windowShare bound the window: the time in which enough waits must have ended for polling to be
	// worth its processor time. A window is the given share of the wait so far.
	shortestWindow = int64(100 * time.Microsecond)
	windowShare    = 8
	// pollsPerWake is how long waiters may poll for each sleep with its wake-up that they avoid by that: 16 windows of
	// 100 us.
	pollsPerWake = 16 * shortestWindow
	// fewest is how many earlier waits must have ended in a window, so that chance is unlikely.
	fewest = 4
	// mostShare: all but such a share of the waits are most of them.
	mostShare = 8
	// graceShare: after a window a waiter polls on for this share of a window, but no longer than longestGrace.
	graceShare   = 2
	longestGrace = int64(time.Millisecond)
)

// note adds the length of a wait that has ended. Budget: below 100 ns, for waits above 30 us.
func (h *history) note(length int64) {
	n := uint32(min(length, longestNoted))
	h.mu.Lock()
	defer h.mu.Unlock()
	end := h.count
	if h.count == historyLength {
		h.remove(h.recent[h.next])
		end--
	} else {
		h.count++
	}
	at, _ := slices.BinarySearch(h.sorted[:end], n)
	copy(h.sorted[at+1:end+1], h.sorted[at:end])
	h.sorted[at] = n
	h.recent[h.next] = n
	h.next = (h.next + 1) % historyLength
}

// remove takes one length out of sorted, which is full.
func (h *history) remove(n uint32) {
	at, _ := slices.BinarySearch(h.sorted[:], n)
	copy(h.sorted[at:], h.sorted[at+1:])
}

// forecast is what earlier waits say about a wait that has lasted for some time.
type forecast struct {
	// pollUntil is the length of the wait up to which polling is worth its processor time. 0: polling is not worth it.
	pollUntil int64
	// endsAt is, without pollUntil, the length of the wait from which polling is worth it again. 0: it never is.
	endsAt int64
}

// usual is the length that most of the last waits did not exceed. It is longestNoted while there are too few waits.
func (h *history) usual() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count < 2*fewest {
		return longestNoted
	}
	return int64(h.sorted[h.count-1-h.count/mostShare])
}

// window is the time in which waits must end for polling to pay, when they last so long.
func window(length int64) int64 { return max(shortestWindow, length/windowShare) }

// needed is how many of so many waits must end within a window at this length.
func (h *history) needed(waits int, length int64) int {
	least := min(fewest, 1+h.count/4)
	return max(least, int(int64(waits)*window(length)/pollsPerWake))
}

// forecast is for a wait that has lasted so long. A wait that would sleep for less than leastSleep polls instead.
func (h *history) forecast(lasted, leastSleep int64) forecast {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count == 0 {
		return forecast{}
	}
	s := h.sorted[:h.count]
	i := sort.Search(len(s), func(i int) bool { return int64(s[i]) > lasted })
	if grace := min(window(lasted)/graceShare, longestGrace); i > 0 && lasted < int64(s[i-1])+grace && h.clustered(i-1) {
		return forecast{pollUntil: int64(s[i-1]) + grace}
	}
	for j := i; j < len(s); j++ {
		first := int64(s[j])
		last := j + h.needed(len(s)-j, first) - 1
		if last >= len(s) {
			return forecast{}
		}
		switch {
		case int64(s[last])-first > window(first):
		case first-lasted < leastSleep:
			return forecast{pollUntil: int64(s[last]) + 1}
		default:
			return forecast{endsAt: first}
		}
	}
	return forecast{}
}

// clustered reports whether enough waits ended in the window that ends with the i-th length. h.mu is held.
func (h *history) clustered(i int) bool {
	last := int64(h.sorted[i])
	first := i - h.needed(h.count-i, last) + 1
	return first >= 0 && last-int64(h.sorted[first]) <= window(last)
}
