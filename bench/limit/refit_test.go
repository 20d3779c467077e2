package limit

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/bench/refit"
)

// bareRefit makes all processes of a bare resharding.
func bareRefit(t *testing.T, kind Kind, s refit.Spec) (all []*Refit, shares []*refit.Share) {
	t.Helper()
	s.SetDefaults()
	require.Empty(t, s.Check())
	var addrs []string
	for _, destination := range []bool{false, true} {
		n := s.Sources()
		if destination {
			n = s.Destinations()
		}
		for rank := range n {
			share, err := s.Share(destination, rank)
			require.NoError(t, err)
			share.Use(make([]byte, share.Bytes))
			if !destination {
				share.Fill(5)
			}
			r, addr, err := OpenRefit(kind, share)
			require.NoError(t, err)
			t.Cleanup(r.Close)
			all, shares, addrs = append(all, r), append(shares, share), append(addrs, addr)
		}
	}
	for _, r := range all[s.Sources():] {
		require.NoError(t, r.Connect(t.Context(), s.Sources(), addrs))
	}
	return all, shares
}

func runAll(all []*Refit, count int, took func(time.Duration)) error {
	var g errgroup.Group
	for _, r := range all {
		g.Go(func() error { return r.Run(count, took) })
	}
	return g.Wait()
}

// The bare processes copy the boxes of the moves.
func TestRefitCopiesTheBoxes(t *testing.T) {
	for name, s := range map[string]refit.Spec{
		"rows": {Bytes: 4 << 20}, "columns": {Bytes: 4 << 20, Dim: 1, Row: 256}, "one pair": {Bytes: 4 << 20, Dim: 1, Pair: true}, "moves": {Moves: 800},
	} {
		t.Run(name, func(t *testing.T) {
			all, shares := bareRefit(t, Memory, s)
			for range 2 {
				require.NoError(t, runAll(all, 3, func(d time.Duration) {}))
				for _, share := range shares {
					require.NoError(t, share.Check(5))
					if share.Destination {
						clear(share.Memory())
						require.Error(t, share.Check(5))
					}
				}
			}
		})
	}
}

// Over sockets all bytes go, between the same pairs.
func TestRefitOverSockets(t *testing.T) {
	for _, kind := range []Kind{Netpoll, UnixNetpoll} {
		all, shares := bareRefit(t, kind, refit.Spec{Bytes: 4 << 20})
		for _, share := range shares {
			if !share.Destination {
				for i := range share.Memory() {
					share.Memory()[i] = 7
				}
			}
		}
		require.NoError(t, runAll(all, 3, func(d time.Duration) {}))
		for _, share := range shares {
			require.Equal(t, len(share.Memory()), bytes.Count(share.Memory(), []byte{7}))
		}
	}
}

// The end of a process ends the others.
func TestRefitNoticesAClose(t *testing.T) {
	for _, kind := range []Kind{Memory, Netpoll} {
		all, _ := bareRefit(t, kind, refit.Spec{Bytes: 4 << 20})
		require.NoError(t, runAll(all, 1, func(d time.Duration) {}))
		last := len(all) - 1
		all[last].Close()
		require.ErrorIs(t, runAll(all[:last], 1, func(d time.Duration) {}), net.ErrClosed)
	}
}

func TestRefitRefusals(t *testing.T) {
	_, _, err := OpenRefit(Perftest, new(refit.Share))
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	s := refit.Spec{Bytes: 4 << 20}
	s.SetDefaults()
	share, err := s.Share(true, 1)
	require.NoError(t, err)
	share.Use(make([]byte, share.Bytes))
	r, _, err := OpenRefit(Memory, share)
	require.NoError(t, err)
	defer r.Close()
	require.ErrorIs(t, r.Connect(t.Context(), 1, []string{"x"}), stepvan.ErrInvalid)
	require.ErrorIs(t, r.Connect(t.Context(), 4, []string{"x", "x", "x", "x"}), stepvan.ErrInvalid)
}
