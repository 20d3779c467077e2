package link

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// onePeer is a peer whose only grant is memory of the test. It counts the views.
type onePeer struct {
	mem    []byte
	mapped int
	out    int
}

func (p *onePeer) Map(t van.Target, n int64, _ van.Rights) (van.View, error) {
	p.mapped++
	p.out++
	return van.View{Bytes: p.mem[t.Offset : t.Offset+n], Holder: p}, nil
}

func (p *onePeer) ReleaseView(van.View) { p.out-- }

func (*onePeer) OwnerEnded(van.View) bool { return false }

// The driver needs the lock of a session for what arrives. It does not wait for copies of up to milliseconds. A session
// that ends during the copy refuses the message.
func TestPromptMessagesAreWrittenUnderNoLock(t *testing.T) {
	peer := &onePeer{mem: make([]byte, 10)}
	s := &Session{transport: &Transport{options: Options{QueueMessages: 1}}, state: stateOpen}
	s.transport.options.setDefaults()
	s.transport.options.QueueMessages = 1
	s.caps = van.Caps{OneSided: true, MaxMeta: 1}
	s.out.session, s.grants.session, s.grants.viewer = s, s, peer
	o := &Outbound{
		Channel: ChannelBulk, Payload: [][]byte{[]byte("abc"), nil, []byte("de")}, Haste: Haste{Prompt: true},
		Targets: []van.Target{{Offset: 5}, {}, {Offset: 1}},
	}
	require.NoError(t, s.out.prepare(o, 0))
	require.Zero(t, peer.mapped)
	s.mu.Lock()
	s.out.write(o)
	s.mu.Unlock()
	require.Equal(t, targetsWritten, o.use)
	require.Equal(t, "\x00de\x00\x00abc\x00\x00", string(peer.mem))
	require.Equal(t, []int{2, 0}, []int{peer.mapped, peer.out})
	require.NoError(t, s.out.admit(o, 0))
	require.ErrorIs(t, s.out.admit(o, 1), stepvan.ErrWouldBlock)
	s.state, s.err = stateLost, stepvan.ErrPeerLost
	require.ErrorIs(t, s.out.admit(o, 0), stepvan.ErrPeerLost)
	require.ErrorIs(t, s.out.prepare(o, 0), stepvan.ErrPeerLost)
}
