package registry

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan/internal/sparing"
	"github.com/stepvan/stepvan/tensor"
)

// Streamed counts the tensors that a device could have moved, and that were copied into messages since their memory is
// not registered.
type Streamed struct {
	Tensors uint64
	Bytes   uint64
}

const (
	// patience is how often a tensor of one key is streamed before the log says it. A node that registers memory by
	// itself needs some of these times.
	patience = 16
	// mostKeys bounds the keys that are counted.
	mostKeys = 4096
	// saidFor is how long the log says it once.
	saidFor = time.Hour
)

// streams counts what is streamed.
type streams struct {
	log   zerolog.Logger
	lines *sparing.Lines

	mu sync.Mutex
	// +checklocks:mu
	total Streamed
	// +checklocks:mu
	times map[tensor.Key]int
}

func newStreams(log zerolog.Logger) streams {
	return streams{log: log, lines: sparing.New(1, saidFor, func(int) {}), times: map[tensor.Key]int{}}
}

// NoteStreamed notes that a tensor is streamed. what says what it is: "push". It is not for tensors that travel with
// the head of their message. It does not block.
func (r *Registry) NoteStreamed(what string, key tensor.Key, bytes int) {
	if r.streams.note(key, bytes) && r.streams.lines.Allow() {
		r.streams.log.Warn().Str("what", what).Uint64("key", uint64(key)).Int("bytes", bytes).
			Msgf("the %s of key %d is copied into messages again and again, since its memory is not registered. It is faster if the program uses one tensor again, registers it, or takes it from the memory of the node", what, key)
	}
}

// note counts a tensor, and reports whether it is time to say it.
func (s *streams) note(key tensor.Key, bytes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total.Tensors++
	s.total.Bytes += uint64(bytes)
	n, known := s.times[key]
	if !known && len(s.times) == mostKeys {
		return false
	}
	s.times[key] = n + 1
	return n+1 >= patience
}

// Streamed returns the counts of this moment.
func (r *Registry) Streamed() Streamed {
	r.streams.mu.Lock()
	defer r.streams.mu.Unlock()
	return r.streams.total
}
