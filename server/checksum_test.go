package server_test

import (
	"bytes"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/worker"
)

func TestAnswersThatAreChangedTooEarlyAreFound(t *testing.T) {
	var log bytes.Buffer
	c := New(t, Options{Van: WithFaults(Mem()), Server: server.Options{CheckBorrowed: true, Log: zerolog.New(&log)}})
	s := c.Servers[0]
	handles, _ := issue(t, c.Workers[0], 2, 1000, false)
	buffer := Floats(t, make([]float32, 1000)...)
	first, second := take(t, s, stepvan.DefaultPolicy)[0], take(t, s, stepvan.DefaultPolicy)[0]
	require.True(t, c.Net.Stall("worker 0"))
	lent, err := s.Respond(List(buffer), first.ID)
	require.NoError(t, err)
	copied, _, err := s.RespondCopy(List(buffer), second.ID)
	require.NoError(t, err)
	fill(t, buffer, 1)
	require.True(t, c.Net.Resume("worker 0"))
	err = lent.Wait(Context(t))
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "respond with worker 0: ")
	require.ErrorContains(t, err, "the pull of key 1000: it was changed before its response was done")
	require.NoError(t, copied.Wait(Context(t)))
	for _, h := range handles {
		require.NoError(t, h.Wait(Context(t)))
	}
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("a borrowed tensor was changed")), log.String())
}

// A chunk may be the answer to its own push. The worker may fill it again once it has the answer.
func TestWhatIsNotChangedIsNotFound(t *testing.T) {
	forVans(t, func(t *testing.T, v Van) {
		c := New(t, Options{Van: v, Server: server.Options{CheckBorrowed: true}, Worker: worker.Options{CheckBorrowed: true}})
		w, s := c.Workers[0], c.Servers[0]
		chunk, own := Floats(t, make([]float32, many)...), Floats(t, make([]float32, many)...)
		_, err := s.RegisterRecvBuffer(chunk, ranks(0), Keys(1))
		require.NoError(t, err)
		x, y := shared(t, w.Instance, 1, many), Floats(t, make([]float32, many)...)
		for i := range 50 {
			fill(t, x, float32(i))
			h, err := w.PushPull(List(x, y), Keys(1, 2), List(y, x), Keys(3, 4)) // pulled into what is pushed
			require.NoError(t, err)
			r := take(t, s, stepvan.DefaultPolicy)[0]
			fill(t, own, float32(2*i))
			back, err := s.Respond(List(own, r.Pushes()[0]), r.ID)
			require.NoError(t, err)
			require.NoError(t, h.Wait(Context(t)))
			requireFilled(t, float32(2*i), y, "own")
			requireFilled(t, float32(i), x, "chunk")
			require.NoError(t, back.Wait(Context(t)))
		}
	})
}
