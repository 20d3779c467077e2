package peer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
)

// What two peers have told each other over one connection is not used over the next one.
func TestADraftEndsWithAConnection(t *testing.T) {
	p := &Peer{}
	p.letters.p = p
	for i := range stepvan.Rank(2) {
		p.remotes = append(p.remotes, &remote{peer: p, Member: Member{Rank: i, Name: "peer"}})
	}
	d := &draft{plan: &Plan{p: p, name: "weights"}}
	x := &pair{draft: d, rank: 1, sends: []Move{{ID: 1}}}
	d.pairs = append(d.pairs, x)
	require.NoError(t, d.check(), "nothing was told")
	p.remotes[1].session = &link.Session{}
	x.session = p.remotes[1].session
	require.NoError(t, d.check())
	p.remotes[1].session = &link.Session{}
	require.ErrorIs(t, d.check(), stepvan.ErrPeerLost)
	require.ErrorIs(t, x.openEdges(), stepvan.ErrPeerLost)
	require.Empty(t, d.plan.edges)
	p.remotes[1].session = nil
	require.ErrorIs(t, d.check(), stepvan.ErrPeerLost)
}

// A member does not wait for a letter that may have got lost with a connection.
func TestAnOperationOfAGroupEndsWithAConnection(t *testing.T) {
	p := &Peer{}
	p.letters = letters{p: p, waits: map[*letterWait]struct{}{}}
	for i := range stepvan.Rank(2) {
		r := &remote{peer: p, Member: Member{Rank: i, Name: "peer"}}
		r.letters.init(r)
		p.remotes = append(p.remotes, r)
	}
	p.remotes[1].losses = 3 // before
	g := &Group{p: p, name: "all", ranks: []stepvan.Rank{0, 1}, losses: []int{0, 3}}
	require.NoError(t, g.check())
	p.remotes[1].losses++
	_, w, err := p.letters.tryRead(g, "barrier", 1, "key")
	require.Nil(t, w)
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
}
