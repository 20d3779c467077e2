package progress

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// countdown is a Source that sets an event at the k-th Poll after arm, as a ring does when the
// peer answers after that long.
type countdown struct {
	engine *Engine
	ev     Event
	after  int
	left   int
}

func (c *countdown) Poll(bool) int {
	if c.left == 0 {
		return 0
	}
	if c.left--; c.left > 0 {
		return 0
	}
	c.engine.Set(&c.ev)
	return 1
}

func (c *countdown) Arm() bool         { return c.left == 0 }
func (c *countdown) Flush(bool)        {}
func (c *countdown) FDs() []Descriptor { return nil }

// What a wait costs whose event comes at the k-th poll of a source that costs nothing. Budget: two
// uncontended atomic read-modify-writes for the token and one for the event, one clock read for
// each sixteen polls, no lock.
func BenchmarkWait(b *testing.B) {
	for _, k := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprintf("polls=%d", k), func(b *testing.B) {
			c := &countdown{after: k}
			e, err := NewEngine(c, Options{})
			require.NoError(b, err)
			defer e.Close()
			c.engine = e
			for b.Loop() {
				c.ev.Reset()
				c.left = k
				if err := e.WaitFor(bound, &c.ev); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
