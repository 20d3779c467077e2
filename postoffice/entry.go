package postoffice

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stepvan/stepvan/internal/text"
)

// Limits of the board.
const (
	MaxKey   = 256     // bytes of a key
	MaxValue = 4 << 10 // bytes of a value

	maxOwnEntries = 1 << 10 // of one node
	maxOwnBytes   = 1 << 20 // of keys and values of one node
	maxEntries    = 1 << 16
	maxEntryBytes = 64 << 20 // of all keys and values
	maxWatches    = 64       // of one node at a time
)

// Entry is an entry of the board. Its readers share Value and must not change it.
type Entry struct {
	Key   string `json:"key"`
	Value []byte `json:"value,omitempty"`
	// Order numbers the entries in the order in which the scheduler has made them. A value that replaces another one
	// has the number of the first.
	Order uint64 `json:"order"`
	Owner Peer   `json:"owner"` // ID, role, rank, host and process of the node that has posted it
}

// check refuses an entry that no scheduler makes.
func (e *Entry) check() error {
	e.Owner.Host = text.Line(e.Owner.Host, maxHost)
	if roleNumber(e.Owner.Role) == 0 {
		return fmt.Errorf("unknown role %.32q", string(e.Owner.Role))
	}
	if e.Order == 0 {
		return fmt.Errorf("order of an entry: wrong (got 0, want at least 1)")
	}
	return cmp.Or(checkKey(e.Key), checkValue(e.Value), inRange("id", int(e.Owner.ID), 1, math.MaxUint32), inRange("rank", int(e.Owner.Rank), 0, maxRank))
}

// bytes is what the entry counts against the limits.
func (e *Entry) bytes() int { return len(e.Key) + len(e.Value) }

// checkKey refuses keys that are not text, or too long.
func checkKey(key string) error {
	if key == "" {
		return fmt.Errorf("key: it is empty (want 1 to %d bytes of text)", MaxKey)
	}
	return checkPrefix("key", key)
}

func checkPrefix(what, s string) error {
	if len(s) > MaxKey || text.Line(s, MaxKey) != s {
		return fmt.Errorf("%s: not printable text (got %d bytes, %.64q, want at most %d)", what, len(s), s, MaxKey)
	}
	return nil
}

func checkValue(value []byte) error {
	if len(value) > MaxValue {
		return fmt.Errorf("value: too long (got %d bytes, want at most %d)", len(value), MaxValue)
	}
	return nil
}

// postBody asks for an entry.
type postBody struct {
	Key   string `json:"key"`
	Value []byte `json:"value,omitempty"`
}

func (b *postBody) check() error { return cmp.Or(checkKey(b.Key), checkValue(b.Value)) }

type removeBody struct {
	Key  string  `json:"key"`
	Only *[]byte `json:"only,omitempty"` // remove only an entry of this value
}

func (b *removeBody) check() error {
	if b.Only == nil {
		return checkKey(b.Key)
	}
	return cmp.Or(checkKey(b.Key), checkValue(*b.Only))
}

type watchBody struct {
	Prefix string `json:"prefix"`
}

func (b *watchBody) check() error { return checkPrefix("prefix", b.Prefix) }

// boardBody is a piece of what has changed for a watch since the piece before.
type boardBody struct {
	Reset   bool     `json:"reset,omitempty"` // the watcher forgets all entries first
	Removed []string `json:"removed,omitempty"`
	Entries []Entry  `json:"entries,omitempty"` // new ones, and those with a new value
	More    bool     `json:"more,omitempty"`    // the state is whole only with the next pieces
}

func (b *boardBody) check() error {
	for _, key := range b.Removed {
		if err := checkKey(key); err != nil {
			return err
		}
	}
	return checkEach(b.Entries, (*Entry).check)
}

// watched is what a watch knows of the board.
type watched struct {
	prefix  string
	entries map[string]Entry
	bytes   int
	more    bool // pieces are missing
}

// take adds a piece. The error is the scheduler's mistake.
func (w *watched) take(f frame) error {
	return receive(f, func(b *boardBody) error {
		if b.Reset {
			w.bytes = 0
			clear(w.entries)
		}
		for _, key := range b.Removed {
			w.drop(key)
		}
		for _, e := range b.Entries {
			if !strings.HasPrefix(e.Key, w.prefix) {
				return malformed(f.op, "key: it does not begin with the prefix (got %.64q, want %.64q)", e.Key, w.prefix)
			}
			w.drop(e.Key)
			w.entries[e.Key] = e
			w.bytes += e.bytes()
		}
		if len(w.entries) > maxEntries || w.bytes > maxEntryBytes {
			return malformed(f.op, "the board is too large (got %d entries of %d bytes, want at most %d of %d)", len(w.entries), w.bytes, maxEntries, maxEntryBytes)
		}
		w.more = b.More
		return nil
	})
}

func (w *watched) drop(key string) {
	e, known := w.entries[key]
	if known {
		w.bytes -= e.bytes()
		delete(w.entries, key)
	}
}

// list has the entries in their order.
func (w *watched) list() []Entry {
	out := make([]Entry, 0, len(w.entries))
	for _, e := range w.entries {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.Order, b.Order) })
	return out
}
