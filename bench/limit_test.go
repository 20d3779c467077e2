package bench

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// pairs makes both sides of each limit. The sizes are larger than what a socket takes at once.
func pairs(t *testing.T) map[string][2]limiter {
	s := &spec{Push: 3 << 20, Pull: 5 << 20}
	copies := newCopyLimit(s)
	out := map[string][2]limiter{"copy": {copies, copies}}
	for name, v := range map[string]Van{"tcp": TCP, "unix": Unix} {
		s.Van = v
		m := [2]*member{{spec: s}, {spec: s}}
		opened, err := m[1].open()
		require.NoError(t, err)
		defer m[1].listen.Close()
		require.NoError(t, m[0].connect(t.Context(), opened.Addr))
		c, err := m[1].listen.Accept()
		require.NoError(t, err)
		require.NoError(t, m[1].take(c))
		out[name] = [2]limiter{m[0].limit, m[1].limit}
	}
	return out
}

func TestLimits(t *testing.T) {
	const count = 5
	for name, p := range pairs(t) {
		t.Run(name, func(t *testing.T) {
			answered := make(chan error, 1)
			go func() { answered <- answerLimit(p[1], count) }()
			l := newLatencies()
			require.NoError(t, timeLimit(p[0], count, l))
			require.NoError(t, <-answered)
			require.EqualValues(t, count, l.count())
			p[1].close()
			require.ErrorIs(t, p[0].exchange(), gone(name))
		})
	}
}

// gone is what a side hears when the other has closed: a TCP socket may be reset while it sends.
func gone(name string) error {
	if name == "copy" {
		return net.ErrClosed
	}
	return errSocketGone
}

func TestASocketCarriesTheBytes(t *testing.T) {
	p := pairs(t)["tcp"]
	here, there := p[0].(*socketLimit), p[1].(*socketLimit)
	for i := range here.push {
		here.push[i] = byte(i * 7)
	}
	answered := make(chan error, 1)
	go func() { answered <- there.answer() }()
	require.NoError(t, here.exchange())
	require.NoError(t, <-answered)
	require.Equal(t, here.push, there.push)
	here.close()
	there.close()
}
