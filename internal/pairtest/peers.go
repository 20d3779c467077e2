package pairtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/peer"
)

// PeerOfCluster is a peer of a cluster, with its instance.
type PeerOfCluster struct {
	Instance
	*peer.Peer
	Service listening
}

// listening is a service, and the address where its transport listens.
type listening struct {
	*peer.Service
	Addr string
}

// hasNetwork reports whether there is TCP beside the van, between machines.
func (o *Options) hasNetwork() bool { return o.Van.Shares && o.Machines != nil }

func peerID(i int) wire.PeerID { return wire.PeerID(200_000 + i) }

// NewPeers makes a cluster of n peers. They have no sessions yet. The end of the test closes them, and fails the test
// when memory has leaked.
func NewPeers(t testing.TB, o Options, n int) []*PeerOfCluster {
	t.Helper()
	if o.Van.Maker == nil {
		o.Van = Mem()
	}
	return newPeers(t, o, n, nil)
}

// NewPeersBeside is NewPeers with one peer more, the last. The test chooses what it sends.
func NewPeersBeside(t testing.TB, o Options, n int) ([]*PeerOfCluster, *Peer) {
	t.Helper()
	if o.Van.Maker == nil {
		o.Van = Mem()
	}
	x := NewPeer(t, o, fmt.Sprintf("peer %d", n), peerID(n))
	x.copies = true
	return newPeers(t, o, n, x), x
}

func newPeers(t testing.TB, o Options, n int, last *Peer) []*PeerOfCluster {
	t.Helper()
	all := make([]*PeerOfCluster, n)
	addrs := make([]string, n, n+1)
	far := make([]string, n)
	members := make([]peer.Member, n, n+1)
	for i := range all {
		name := fmt.Sprintf("peer %d", i)
		x := &PeerOfCluster{Instance: NewInstance(t, o, name, peerID(i))}
		own := peer.Options{Log: zerolog.Nop(), Redial: WaitLimit, Dial: func(ctx context.Context, rank stepvan.Rank) (*link.Session, error) {
			if o.hasNetwork() && o.Machines[i] != o.Machines[rank] {
				return x.Transport.Dial(ctx, []string{far[rank]})
			}
			return x.Transport.Dial(ctx, []string{addrs[rank]})
		}}
		if o.Peer != nil {
			o.Peer(&own)
		}
		x.Service.Service = peer.New(x.Transport, own)
		x.Peer = x.Service.Peer()
		t.Cleanup(func() { require.NoError(t, x.Service.Close()) })
		bound, err := x.Transport.Listen(o.Van.Addr(name))
		require.NoError(t, err)
		all[i], addrs[i], x.Service.Addr = x, bound[0], bound[0]
		members[i] = peer.Member{Rank: stepvan.Rank(i), Name: name, ID: peerID(i)}
		if o.hasNetwork() {
			bound, err = x.Transport.Listen(TCP().Addr(name))
			require.NoError(t, err)
			far[i], members[i].Machine = bound[0], fmt.Sprint("machine ", o.Machines[i])
		}
	}
	if last != nil {
		addrs = append(addrs, last.Listen(t, o.Van))
		members = append(members, peer.Member{Rank: stepvan.Rank(n), Name: last.Name, ID: peerID(n)})
	}
	for i, x := range all {
		require.NoError(t, x.Service.Join(stepvan.Rank(i), members))
	}
	return all
}
