package particle_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/particle"
)

func TestPickledValuesNeedLeaveAtBothEnds(t *testing.T) {
	key, other := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 32)
	for name, x := range map[string]struct {
		van    pairtest.Van
		allow  [2]bool
		keys   [2][]byte
		passes bool
		here   bool // the caller's own loop refuses at once
	}{
		"one machine":           {van: pairtest.Mem(), allow: [2]bool{true, true}, passes: true},
		"not allowed here":      {van: pairtest.Mem(), allow: [2]bool{false, true}, here: true},
		"not allowed there":     {van: pairtest.Mem(), allow: [2]bool{true, false}},
		"network without a key": {van: pairtest.TCP(), allow: [2]bool{true, true}},
		"network with a key":    {van: pairtest.TCP(), allow: [2]bool{true, true}, keys: [2][]byte{key, key}, passes: true},
		"network, another key":  {van: pairtest.TCP(), allow: [2]bool{true, true}, keys: [2][]byte{key, other}},
		"network, one key":      {van: pairtest.TCP(), allow: [2]bool{true, true}, keys: [2][]byte{key, nil}},
		"a key, not allowed":    {van: pairtest.TCP(), allow: [2]bool{true, false}, keys: [2][]byte{key, key}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, x.van, 2, func(rank int, o *particle.Options) {
				o.AllowPickled, o.Key = x.allow[rank], x.keys[rank]
			})
			id := c.create(1, 0, map[string]particle.Hook{
				"echo": func(_ *particle.Call, args particle.Value) (particle.Value, error) {
					return particle.Value{Data: args.Data, Pickled: args.Pickled}, nil
				},
				"pickle": func(*particle.Call, particle.Value) (particle.Value, error) {
					return particle.Value{Data: []byte("x"), Pickled: true}, nil
				},
			})
			for _, size := range []int{1, 100_000} {
				data := bytes.Repeat([]byte("."), size)
				f, err := c.loops[0].Send(particle.None, id, "echo", particle.Value{Data: data, Pickled: true})
				if x.here {
					require.ErrorIs(t, err, stepvan.ErrNotSupported)
					continue
				}
				require.NoError(t, err)
				v, err := f.Wait(limited(t))
				if x.passes {
					require.NoError(t, err)
					require.Equal(t, data, v.Data)
					require.True(t, v.Pickled)
				} else {
					require.ErrorIs(t, err, stepvan.ErrNotSupported)
				}
			}
			_, err := c.ask(id, "pickle", "")
			if x.passes {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, stepvan.ErrNotSupported)
			}
			_, err = c.ask(id, "echo", "plain")
			require.NoError(t, err, "others pass in any case")
		})
	}
}

func TestShortKeysAreRefused(t *testing.T) {
	p := pairtest.NewPeers(t, pairtest.Options{}, 1)[0]
	_, err := particle.Open(p.Peer, particle.Options{Key: make([]byte, 15)})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "key")
}
