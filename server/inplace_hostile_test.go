package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
)

// sendReferences sends a request with descriptors of the test's choice.
func (w *writer) sendReferences(id uint64, pushes, pulls []wire.Descriptor) {
	w.t.Helper()
	var meta []byte
	for i := range pushes {
		meta = pushes[i].Append(meta)
	}
	for i := range pulls {
		meta = pulls[i].Append(meta)
	}
	require.NoError(w.t, w.session.Send(&link.Outbound{
		Channel: link.ChannelRequest, Op: wire.OpRequest, Request: id,
		Pushes: uint32(len(pushes)), Pulls: uint32(len(pulls)), Meta: meta,
	}))
}

func TestHostileReferences(t *testing.T) {
	for name, edit := range map[string]func(*wire.Descriptor){
		"outside of the grant":  func(d *wire.Descriptor) { d.Offset = 93 },
		"far outside":           func(d *wire.Descriptor) { d.Offset = 1 << 63 },
		"an offset that wraps":  func(d *wire.Descriptor) { d.Offset = 1<<64 - 4 },
		"a stale generation":    func(d *wire.Descriptor) { d.Generation-- },
		"an unknown grant":      func(d *wire.Descriptor) { d.Region ^= 1 << 30 },
		"no grant":              func(d *wire.Descriptor) { d.Region = 0 },
		"more than was granted": func(d *wire.Descriptor) { d.Bytes, d.Shape = 1<<40, tensor.ShapeOf(1<<40) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t)
			g, err := w.session.Grant(make([]byte, 100), 5, link.RightRead)
			require.NoError(t, err)
			d := wire.KeyOf(1, 8)
			d.Region, d.Generation, d.Flags = uint64(g.ID), 5, wire.DescInPlace
			edit(&d)
			w.sendReferences(1, []wire.Descriptor{d}, []wire.Descriptor{wire.KeyOf(2, 8)})
			require.Error(t, w.Loss(t))
			require.Zero(t, w.s.Stats().Unanswered)
			h, _ := push(t, w.c.Workers[1], 1, 5)
			respond(t, w.s, take(t, w.s, stepvan.AnyReady)[0].ID, Floats(t, 6))
			require.NoError(t, h.Wait(Context(t)), "a bad peer costs its own connection only")
		})
	}
}

func TestReferencesOverATwoSidedVan(t *testing.T) {
	_, raw, session := withRaw(t, stepvan.AnyReady)
	d := wire.KeyOf(1, 8)
	d.Region, d.Generation, d.Flags = 7, 1, wire.DescInPlace
	require.NoError(t, session.Send(&link.Outbound{
		Channel: link.ChannelRequest, Op: wire.OpRequest, Request: 1, Pushes: 1, Meta: d.Append(nil),
	}))
	require.Error(t, raw.Loss(t))
}

// A worker that leaves a push in place over a van without views does not speak the protocol, whatever it has granted.
func TestReferencesOverAVanWithoutViews(t *testing.T) {
	w := newWriterOver(t, WithFaults(NoViews()), server.Options{Policy: stepvan.AnyReady})
	g, err := w.session.Grant(make([]byte, 100), 5, link.RightRead|link.RightWrite)
	require.NoError(t, err)
	_, err = w.session.Map(link.Target{Grant: g.ID, Generation: 5}, 1, link.RightRead)
	require.ErrorIs(t, err, stepvan.ErrNotSupported)
	d := wire.KeyOf(1, 8)
	d.Region, d.Generation, d.Flags = uint64(g.ID), 5, wire.DescInPlace
	w.sendReferences(1, []wire.Descriptor{d}, nil)
	require.ErrorContains(t, w.Loss(t), "the push of key 1")
	require.Zero(t, w.s.Stats().Unanswered)
}

// The server ignores a reference to a pull tensor that is wrong.
func TestHostileOffers(t *testing.T) {
	w := newWriter(t)
	readOnly, err := w.session.Grant(make([]byte, 100), 5, link.RightRead)
	require.NoError(t, err)
	odd, err := w.session.Grant(make([]byte, 100), 5, link.RightRead|link.RightWrite)
	require.NoError(t, err)
	place := func(k tensor.Key, id link.GrantID, generation uint32, offset uint64) wire.Descriptor {
		d := wire.Descriptor{Key: k, Bytes: 8, DType: tensor.Float64, Shape: tensor.ShapeOf(1)}
		d.Region, d.Generation, d.Offset = uint64(id), generation, offset
		return d
	}
	w.sendReferences(1, nil, []wire.Descriptor{
		place(1, readOnly.ID, 5, 0), place(2, odd.ID, 4, 0), place(3, odd.ID, 5, 93), place(4, odd.ID, 5, 1), place(5, odd.ID, 5, 1<<64-8), place(6, 99, 5, 0),
	})
	r := take(t, w.s, stepvan.AnyReady)[0]
	var answers []tensor.Tensor
	for i := range r.Pulls() {
		x := out(t, r, i)
		x.Bytes()[0] = byte(i)
		answers = append(answers, x)
	}
	respond(t, w.s, r.ID, answers...)
	m := w.Take(t)
	require.EqualValues(t, 6*8, m.Header.Total, "all of it is sent")
	require.EqualValues(t, 5, m.Payload[40])
	m.Release()
}
