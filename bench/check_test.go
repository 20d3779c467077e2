package bench

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
)

func TestWrongBytesAreFound(t *testing.T) {
	pushed := []byte{1, 2, 255}
	answer := make([]byte, 7)
	writeAnswer(answer, pushed, 3)
	require.Equal(t, []byte{4, 5, 2, 4, 5, 2, 4}, answer)
	require.Equal(t, -1, firstWrong(answer, pushed, 3))
	for i := range answer {
		answer[i]++
		require.Equal(t, i, firstWrong(answer, pushed, 3))
		answer[i]--
	}
	require.Equal(t, 0, firstWrong(answer, pushed, 4), "the answer of another server")
}

// A short answer depends on every byte of the push.
func TestAShortAnswerIsTheSumOfAll(t *testing.T) {
	pushed := []byte{1, 2, 3, 4, 5}
	answer := make([]byte, 2)
	writeAnswer(answer, pushed, 10)
	require.Equal(t, []byte{19, 16}, answer)
	require.Equal(t, -1, firstWrong(answer, pushed, 10))
	for i := range pushed {
		pushed[i]++
		require.Equal(t, i%2, firstWrong(answer, pushed, 10))
		pushed[i]--
	}
}

func TestStrangersAtTheControlSocket(t *testing.T) {
	c := newCoordinator(&Options{Workers: 1, Servers: 1}, newRotation(1)[0], nil)
	say := func(text string) error {
		here, there := net.Pipe()
		defer here.Close()
		go func() {
			_, _ = there.Write([]byte(text))
			there.Close()
		}()
		return c.registerNode(newControlConn(here))
	}
	require.NoError(t, say(`{"role":"worker","rank":0}`))
	require.ErrorIs(t, say(`{"role":"worker","rank":0}`), stepvan.ErrInvalid, "twice")
	require.ErrorIs(t, say(`{"role":"worker","rank":-1}`), stepvan.ErrInvalid)
	require.ErrorIs(t, say(`{"role":"server","rank":1}`), stepvan.ErrInvalid)
	require.ErrorIs(t, say(`{"role":"cook","rank":0}`), stepvan.ErrInvalid)
	require.ErrorIs(t, say(`not JSON`), errConnLost)
	require.NoError(t, say(`{"role":"server","rank":0}`))
}

// What a node says is wrong is the error of the run, and so is that it says nothing.
func TestANodeThatComplains(t *testing.T) {
	here, there := net.Pipe()
	c := newCoordinator(&Options{Workers: 1, Servers: 1}, newRotation(1)[0], nil)
	l := newControlConn(here)
	l.name = "server 0"
	m := &nodeRunner{conn: newControlConn(there)}
	go func() {
		var cmd command
		_ = m.conn.receive(&cmd)
		_, err := m.handleCommand(t.Context(), &cmd)
		_ = m.conn.send(&reply{Error: err.Error()})
		_ = m.conn.receive(&cmd)
		there.Close()
	}()
	_, err := c.execute(command{Verb: verbCheck}, []*controlConn{l})
	require.ErrorContains(t, err, "server 0: stepvan: invalid argument: check before prepare")
	_, err = c.execute(command{Verb: verbLimit}, []*controlConn{l})
	require.ErrorIs(t, err, errConnLost)
	require.ErrorContains(t, err, "server 0")
}

// The replies of the last group come first, each time.
func TestGroupsReplyInTheSameOrderEachTime(t *testing.T) {
	var groups [][]*controlConn
	for i := range 2 {
		here, there := net.Pipe()
		defer there.Close()
		groups = append(groups, []*controlConn{newControlConn(here)})
		node := newControlConn(there)
		go func() {
			var cmd command
			for node.receive(&cmd) == nil {
				_ = node.send(&reply{Copy: time.Duration(i)})
			}
		}()
	}
	c := newCoordinator(&Options{Workers: 1, Servers: 1}, newRotation(1)[0], nil)
	for range 3 {
		replies, err := c.execute(command{Verb: verbLimit}, groups...)
		require.NoError(t, err)
		require.EqualValues(t, 1, replies[0].Copy)
		require.EqualValues(t, 0, replies[1].Copy)
	}
}

func TestArgumentsOfANode(t *testing.T) {
	for _, want := range []nodeArgs{{}, {Control: "/a b"}, {Bare: true, Pin: 2}, {Agent: "/a", Sends: true, Pin: 1}, {Agent: "/a"}, {Inside: "/a", Command: []string{"b", "--pin=3", "--"}}} {
		got, err := parseNodeArgs(want.list())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, args := range [][]string{{"more"}, {"--pin=x"}, {"--what"}, {"--inside=/a"}, {"--", "b"}} {
		_, err := parseNodeArgs(args)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
	}
}

func TestKeysDiffer(t *testing.T) {
	s := &Options{Inflight: 3}
	seen := map[any]bool{}
	for rank := range 3 {
		for slot := range s.bulkSlot() + 1 {
			seen[pushKey(ps.Rank(rank), slot)] = true
			seen[pullKey(ps.Rank(rank), slot)] = true
			require.Equal(t, slot, slotOf(pullKey(ps.Rank(rank), slot)))
		}
	}
	require.Len(t, seen, 2*3*5)
	require.NotEqual(t, s.endSlot(), s.bulkSlot())
}

func TestTheWrongVanIsRefused(t *testing.T) {
	all := ps.Connections{{Van: "shm", Reason: "same machine"}, {Van: "tcp", Reason: "shm: other machine"}}
	require.NoError(t, checkVan(all[:1], Shm))
	err := checkVan(all, Shm)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "is reached by tcp and not by shm (shm: other machine)")
}

// The first peers are called workers, and those behind them servers.
func TestPeersAtTheControlSocket(t *testing.T) {
	c := newCoordinator(&Options{Workload: Refit, Workers: 2, Servers: 1}, newRotation(1)[0], nil)
	say := func(text string) error {
		here, there := net.Pipe()
		defer here.Close()
		go func() {
			_, _ = there.Write([]byte(text))
			there.Close()
		}()
		return c.registerNode(newControlConn(here))
	}
	require.NoError(t, say(`{"role":"peer","rank":2}`))
	require.Equal(t, "peer 2", c.servers[0].name)
	require.NoError(t, say(`{"role":"peer","rank":1}`))
	require.Equal(t, "peer 1", c.workers[1].name)
	for _, text := range []string{`{"role":"peer","rank":2}`, `{"role":"peer","rank":3}`, `{"role":"peer","rank":-1}`} {
		require.ErrorIs(t, say(text), stepvan.ErrInvalid, text)
	}
}
