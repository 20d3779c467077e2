package link_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
)

// journal notes what a node hears, in order.
type journal struct {
	mu sync.Mutex
	// +checklocks:mu
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) read() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.lines...)
}

// acknowledged is a Completer that writes a journal.
type acknowledged struct {
	*signal
	journal *journal
}

func (c *acknowledged) Done(o *link.Outbound, err error) {
	c.journal.add("acknowledged")
	c.signal.Done(o, err)
}

// A message that is Late does not delay the reply which acknowledges it, and is done before its session is lost.
func TestLateCompletersComeBehindTheReply(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		for name, c := range map[string]struct {
			late, drop bool
			want       []string
		}{
			"at once":          {want: []string{"acknowledged", "reply"}},
			"late":             {late: true, want: []string{"reply", "acknowledged"}},
			"late, and a loss": {late: true, drop: true, want: []string{"reply", "acknowledged", "lost"}},
		} {
			t.Run(name, func(t *testing.T) {
				p := newPair(t, k, nil)
				var j journal
				p.ha[link.ChannelRequest].use(nil, func(m *link.Inbound) {
					m.Release()
					if err := p.sa.Send(&link.Outbound{Channel: link.ChannelRequest}); err != nil {
						t.Error(err)
					}
				})
				p.hb[link.ChannelRequest].use(nil, func(m *link.Inbound) {
					m.Release()
					j.add("reply")
					if c.drop {
						p.sb.Drop(errors.New("dropped"))
					}
				})
				p.hb[link.ChannelRequest].onLost = func(error) { j.add("lost") }
				done := &acknowledged{&signal{node: p.b}, &j}
				require.NoError(t, p.sb.Send(&link.Outbound{Channel: link.ChannelRequest, Completer: done, Haste: link.Haste{Late: c.late}}))
				require.NoError(t, done.wait(t))
				p.hb[link.ChannelRequest].await(t, func() bool { return len(j.read()) >= len(c.want) })
				require.Equal(t, c.want, j.read())
			})
		}
	})
}
