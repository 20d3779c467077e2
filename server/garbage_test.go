package server_test

import (
	"runtime"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/server"
)

// sessionWith returns the session of s with an instance, without keeping it.
func sessionWith(t *testing.T, s *Server, name string) (found weak.Pointer[link.Session]) {
	for _, session := range s.Transport.Sessions() {
		if session.Peer().Name == name {
			found = weak.Make(session)
		}
	}
	require.NotNil(t, found.Value())
	return found
}

// A session has buffers of its own. A server keeps nothing of one that was lost before its request was answered.
func TestLostSessionsAreGarbage(t *testing.T) {
	for name, answer := range map[string]func(*Server, []server.Request) (server.Response, error){
		"Respond": func(s *Server, reqs []server.Request) (server.Response, error) {
			return s.Respond(List(rows(t, 1)), reqs[1].ID)
		},
		"RespondVec": func(s *Server, reqs []server.Request) (server.Response, error) {
			return s.RespondVec(rows(t, 2), List(rows(t, 1), rows(t, 1)), []server.RequestID{reqs[0].ID, reqs[1].ID})
		},
		"RespondCopy": func(s *Server, reqs []server.Request) (server.Response, error) {
			back, _, err := s.RespondCopy(List(rows(t, 1)), reqs[1].ID)
			return back, err
		},
	} {
		for _, v := range []Van{TCP(), Shm()} { // over memvan the lost worker itself keeps both ends of the connection
			t.Run(name+"/"+v.Name, func(t *testing.T) {
				c := New(t, Options{Van: v, Workers: 2})
				s := c.Servers[0]
				reqs, _, _ := request(t, c, []int64{1}, []int64{1})
				lost := sessionWith(t, s, "worker 1")
				require.NoError(t, c.Workers[1].Transport.Abort())
				_, err := s.GetBatch(Context(t), stepvan.LockStep)
				requireGone(t, err, "worker 1")
				back, err := answer(s, reqs)
				require.NoError(t, err)
				require.ErrorIs(t, back.Wait(Context(t)), stepvan.ErrPeerLost)
				require.Eventually(t, func() bool {
					runtime.GC() // the driver may still have events of it
					return lost.Value() == nil
				}, WaitLimit, 1, "the session is still in memory")
			})
		}
	}
}
