package wire

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

func vector(k tensor.Key, n int64, flags DescriptorFlags) Descriptor {
	d := KeyOf(k, n)
	d.Flags = flags
	return d
}

func TestTensorsInPlaceAreNoPartOfThePayload(t *testing.T) {
	meta := func(ds ...Descriptor) (b []byte) {
		for i := range ds {
			b = ds[i].Append(b)
		}
		return b
	}
	here, there, room := vector(1, 100, 0), vector(2, 1<<40, DescInPlace), vector(3, 7, DescVariable)
	for name, c := range map[string]struct {
		h    Header
		meta []byte
		ok   bool
	}{
		"a push of each kind":             {Header{Op: OpRequest, Pushes: 2, Pulls: 1, Total: 100}, meta(here, there, room), true},
		"pushes in place alone":           {Header{Op: OpRouted, Pushes: 1, Total: 0}, meta(there), true},
		"a payload for a push in place":   {Header{Op: OpRequest, Pushes: 1, Total: 1 << 40}, meta(there), false},
		"a pull that is there already":    {Header{Op: OpRequest, Pulls: 1}, meta(vector(3, 7, DescInPlace)), false},
		"answers in place":                {Header{Op: OpResponse, Pulls: 2, Total: 100}, meta(here, there), true},
		"a payload for an answer that is": {Header{Op: OpResponse, Pulls: 2, Total: 100 + 1<<40}, meta(here, there), false},
		"more bytes than can be counted":  {Header{Op: OpResponse, Pulls: 2}, meta(vector(1, 1<<62, DescInPlace), vector(2, 1<<62, DescInPlace)), false},
	} {
		t.Run(name, func(t *testing.T) {
			c.h.Meta = uint32(len(c.meta))
			err := new(Request).Decode(&c.h, c.meta)
			if c.h.Op == OpResponse && c.h.Pushes == 0 && c.h.Pulls == 2 {
				err = new(Response).Decode(&c.h, c.meta)
			}
			if c.ok {
				require.NoError(t, err)
				return
			}
			var broken *stepvan.ProtocolError
			require.ErrorAs(t, err, &broken)
		})
	}
}

func TestFencesAreEmpty(t *testing.T) {
	require.NoError(t, CheckFence(&Header{Op: OpFence, Generation: 7}))
	for name, h := range map[string]Header{
		"payload": {Total: 1}, "meta": {Meta: 1}, "pushes": {Pushes: 1}, "pulls": {Pulls: 1},
	} {
		require.Error(t, CheckFence(&h), name)
	}
}
