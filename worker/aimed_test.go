package worker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// asks sends a request for these pulls, with the keys 1, 2 and so on. It returns what the server is told of each pull.
func (p *rawServer) asks(t *testing.T, pulls ...tensor.Tensor) (worker.Handle, *link.Inbound, []wire.Descriptor) {
	t.Helper()
	h, err := p.w.PushPull(nil, nil, pulls, Keys(1, 2, 3, 4)[:len(pulls)])
	require.NoError(t, err)
	m := p.server.Take(t)
	return h, m, requestOf(t, m).Pulls
}

// aims answers the request with payload that is written to the targets, and with these descriptors.
func (p *rawServer) aims(t *testing.T, request uint64, payload [][]byte, targets []link.Target, answers ...wire.Descriptor) {
	t.Helper()
	require.NoError(t, p.session.Send(&link.Outbound{
		Channel: link.ChannelBulk, Op: wire.OpResponse, Request: request, Pulls: uint32(len(answers)), Meta: keyOf(answers...),
		Payload: payload, Targets: targets,
	}))
}

// answersInPlace answers a request whose pulls are all lent, with what is there.
func (p *rawServer) answersInPlace(t *testing.T, m *link.Inbound, pulls ...wire.Descriptor) {
	t.Helper()
	answers := make([]wire.Descriptor, len(pulls))
	for i := range pulls {
		answers[i] = unnamed(pulls[i], wire.DescInPlace)
	}
	p.aims(t, m.Header.Request, nil, nil, answers...)
	m.Release()
}

// filled are the bytes of n floats of that value.
func filled(t *testing.T, n int, value float32) []byte {
	x := Floats(t, make([]float32, n)...)
	v := Values(t, x)
	for i := range v {
		v[i] = value
	}
	return x.Bytes()
}

// unnamed is an answer to the pull that d describes, without a place.
func unnamed(d wire.Descriptor, flags wire.DescriptorFlags) wire.Descriptor {
	d.Region, d.Offset, d.Generation, d.Flags = 0, 0, 0, flags
	return d
}

// One response has an answer that the server wrote with the message, one that it wrote before, one that came with the
// message, and an empty one.
func TestAnswersOfOneResponseComeInDifferentForms(t *testing.T) {
	p := newRawServerOver(t, Keeping(OneSided(), filled(t, 2, 7)))
	written, inPlace := shared(t, p.node.Instance, many), shared(t, p.node.Instance, many)
	kept, empty := Floats(t, 0, 0), Floats(t)
	h, m, pulls := p.asks(t, written, kept, inPlace, empty)
	v, err := p.session.Map(link.TargetOf(&pulls[2]), int64(pulls[2].Bytes), link.RightWrite)
	require.NoError(t, err)
	copy(v.Bytes, filled(t, many, 6))
	v.Release()
	// The last eight bytes of the payload stand for what the van keeps.
	_, other, places := p.asks(t, shared(t, p.node.Instance, 2), shared(t, p.node.Instance, many))
	p.aims(t, m.Header.Request, [][]byte{filled(t, many, 5), filled(t, 2, 0)},
		[]link.Target{link.TargetOf(&pulls[0]), link.TargetOf(&places[0])},
		pulls[0], unnamed(pulls[1], 0), unnamed(pulls[2], wire.DescInPlace), pulls[3])
	m.Release()
	require.NoError(t, h.Wait(Context(t)))
	p.answersInPlace(t, other, places...)
	for i, c := range []struct {
		x    tensor.Tensor
		want float32
	}{{written, 5}, {inPlace, 6}, {kept, 7}} {
		for _, got := range Values(t, c.x) {
			require.Equal(t, c.want, got, "answer %d", i)
		}
	}
}

// A response whose targets the van refuses comes as any other. Its answers may still name their places.
func TestAnswersThatNameTheirPlacesMayComeInTheMessage(t *testing.T) {
	p := newRawServerOver(t, OneSided())
	x := shared(t, p.node.Instance, many)
	h, m, pulls := p.asks(t, x)
	p.aims(t, m.Header.Request, [][]byte{filled(t, many, 5)}, nil, pulls[0])
	m.Release()
	require.NoError(t, h.Wait(Context(t)))
	require.Equal(t, float32(5), Values(t, x)[many-1])
}

func TestWrittenAnswersMustBeWhereTheRequestWantsThem(t *testing.T) {
	const region, written = "memory that was not lent for it", "and the answers name memory for"
	type roomOf struct{ asked, second, other, elsewhere wire.Descriptor }
	for name, c := range map[string]struct {
		lie    func(first, second *wire.Descriptor, r *roomOf)
		reason string
	}{
		"a grant that does not exist": {func(a, _ *wire.Descriptor, _ *roomOf) { a.Region ^= 1 << 40 }, region},
		"a stale generation":          {func(a, _ *wire.Descriptor, _ *roomOf) { a.Generation-- }, region},
		"a wrong offset":              {func(a, _ *wire.Descriptor, _ *roomOf) { a.Offset += 64 }, region},
		"the room of another pull":    {func(a, b *wire.Descriptor, _ *roomOf) { a.Offset, b.Offset = b.Offset, a.Offset }, region},
		"the room of another request": {func(a, _ *wire.Descriptor, r *roomOf) { a.Offset = r.other.Offset }, region},
		"room of another server":      {func(a, _ *wire.Descriptor, r *roomOf) { a.Region = r.elsewhere.Region }, region},
		"a place for one of two":      {func(a, _ *wire.Descriptor, _ *roomOf) { *a = unnamed(*a, 0) }, written},
		"no place at all":             {func(a, b *wire.Descriptor, _ *roomOf) { *a, *b = unnamed(*a, 0), unnamed(*b, 0) }, written},
		"written twice":               {func(a, _ *wire.Descriptor, _ *roomOf) { a.Flags |= wire.DescInPlace }, "payload"},
		"other sizes than the rooms":  {func(a, b *wire.Descriptor, _ *roomOf) { *a, *b = resized(*a, 1), resized(*b, -1) }, "does not fit its pull"},
	} {
		t.Run(name, func(t *testing.T) {
			v := OneSided()
			p, q := newRawServerOver(t, v), newRawServerOver(t, OneSided())
			h, m, pulls := p.asks(t, shared(t, p.node.Instance, many), shared(t, p.node.Instance, many))
			kept := shared(t, p.node.Instance, many)
			other, n, others := p.asks(t, kept)
			_, o, elsewhere := q.asks(t, shared(t, q.node.Instance, many))
			first, second := pulls[0], pulls[1]
			c.lie(&first, &second, &roomOf{pulls[0], pulls[1], others[0], elsewhere[0]})
			p.aims(t, m.Header.Request, [][]byte{filled(t, many, 1), filled(t, many, 2)},
				[]link.Target{link.TargetOf(&pulls[0]), link.TargetOf(&pulls[1])}, first, second)
			m.Release()
			n.Release()
			q.answersInPlace(t, o, elsewhere...)
			err := h.Wait(Context(t))
			requireLost(t, err, "server 0")
			var broken *stepvan.ProtocolError
			require.ErrorAs(t, err, &broken)
			require.ErrorContains(t, err, c.reason)
			require.Error(t, p.server.Loss(t))
			requireLost(t, other.Wait(Context(t)), "server 0")
			require.Zero(t, Values(t, kept)[0], "nothing reaches the other request")
		})
	}
}

// resized is d with so many floats more.
func resized(d wire.Descriptor, floats int64) wire.Descriptor {
	d.Bytes = uint64(int64(d.Bytes) + 4*floats)
	d.Shape = tensor.ShapeOf(int64(d.Bytes) / 4)
	return d
}

// An answer names room that the worker has not lent to anybody, or no longer lends.
func TestWrittenAnswersToPullsThatAreNotLent(t *testing.T) {
	p := newRawServerOver(t, OneSided())
	lent, heap := shared(t, p.node.Instance, many), Floats(t, make([]float32, many)...)
	h, m, pulls := p.asks(t, lent, heap)
	require.Zero(t, pulls[1].Region)
	second := pulls[1]
	second.Region, second.Offset, second.Generation = pulls[0].Region, pulls[0].Offset, pulls[0].Generation
	p.aims(t, m.Header.Request, [][]byte{filled(t, many, 1), filled(t, many, 2)},
		[]link.Target{link.TargetOf(&pulls[0]), link.TargetOf(&pulls[0])}, pulls[0], second)
	m.Release()
	err := h.Wait(Context(t))
	requireLost(t, err, "server 0")
	require.ErrorContains(t, err, "memory that was not lent for it")
}

func TestWrittenAnswersAfterThePullWasGivenBack(t *testing.T) {
	p := newRawServerOver(t, OneSided())
	x := shared(t, p.node.Instance, many)
	h, m, pulls := p.asks(t, x)
	send := func() {
		p.aims(t, m.Header.Request, [][]byte{filled(t, many, 1)}, []link.Target{link.TargetOf(&pulls[0])}, pulls[0])
	}
	send()
	require.NoError(t, h.Wait(Context(t)))
	require.Equal(t, float32(1), Values(t, x)[0])
	send()
	require.ErrorContains(t, p.server.Loss(t), "a response to request")
	m.Release()
	_, err := p.w.PushPull(nil, nil, List(x), Keys(1))
	requireLost(t, err, "server 0")
}
