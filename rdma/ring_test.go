package rdma

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/van"
)

// An immediate that names another place than the next one costs the connection, and so does one without a ring.
func TestImmediatesOfNowhere(t *testing.T) {
	if rdma(t).iWARP() {
		return // it has no immediates
	}
	for name, a := range map[string]struct {
		ring      bool
		immediate uint32
		want      string
	}{
		"without a ring":  {false, 0, "and there is no ring"},
		"another place":   {true, 3<<lengthBits | 100, "place 3 of the ring (want 0)"},
		"outside":         {true, 1<<32 - 1, "place 32767 of the ring (want 0)"},
		"longer":          {true, 1<<lengthBits - 1, "131071 bytes (want at most 4096)"},
		"shorter":         {true, 5, "too short (got 5 bytes"},
		"what was before": {true, prefixBytes, "kind 0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, Options{Immediate: a.ring})
			r, _ := s.attack(true)
			r.e.mu.Lock()
			q := &r.e.rails.first().queue
			q.add(verbs.Request{Op: verbs.OpWriteImmediate, Immediate: a.immediate, Remote: r.e.rails.first().teller.word, Key: r.e.rails.first().teller.key}, true)
			q.post()
			r.e.mu.Unlock()
			require.ErrorContains(t, s.next(van.EventLost).Err, a.want)
			s.unharmed()
		})
	}
}
