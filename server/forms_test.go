package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/server"
)

// One message has a push that the worker wrote and one that came with the message.
func TestPushesOfOneMessageComeInDifferentForms(t *testing.T) {
	for name, c := range map[string]struct {
		claims bool // the second push says that it was written, too
		broken bool
	}{
		"a written and a kept one":              {},
		"the kept one is claimed to be written": {claims: true, broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriterOver(t, Keeping(OneSided(), bytesOfFloat(t, 7)), server.Options{Policy: stepvan.AnyReady})
			buffer := Floats(t, 0, 0)
			_, err := w.s.RegisterRecvBuffer(buffer, ranks(0, 0), Keys(1, 2))
			require.NoError(t, err)
			chunks, generation := w.announcement(wire.OpAnnounce)
			first, second := float(1), float(9)
			first.Region, first.Offset, first.Generation = chunks[0].Region, chunks[0].Offset, chunks[0].Generation
			if c.claims {
				second = float(2)
				second.Region, second.Offset, second.Generation = chunks[1].Region, chunks[1].Offset, chunks[1].Generation
			}
			require.NoError(t, w.session.Send(&link.Outbound{
				Channel: link.ChannelRequest, Op: wire.OpRequest, Request: 1, Generation: generation,
				Pushes: 2, Meta: second.Append(first.Append(nil)), Payload: [][]byte{bytesOfFloat(t, 5), bytesOfFloat(t, 6)},
				Targets: []link.Target{link.TargetOf(&chunks[0]), link.TargetOf(&chunks[1])},
			}))
			if c.broken {
				_, err := w.s.GetBatch(Context(t), stepvan.LockStep)
				var broken *stepvan.ProtocolError
				require.ErrorAs(t, err, &broken)
				require.ErrorContains(t, err, "the worker wrote 4 bytes, and the pushes name grants for 8")
				return
			}
			r := take(t, w.s, stepvan.AnyReady)[0]
			require.Equal(t, []float32{5}, Values(t, r.Pushes()[0]))
			require.True(t, isPartOf(r.Pushes()[0], buffer))
			require.Equal(t, []float32{7}, Values(t, r.Pushes()[1]))
			respond(t, w.s, r.ID)
		})
	}
}

func bytesOfFloat(t *testing.T, x float32) []byte {
	one := Floats(t, x)
	return one.Bytes()
}
