package peertest

import (
	"context"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// Peer is what the cases use of a [peer.Peer]. Its methods promise the same.
type Peer interface {
	common
	Send(v tensor.Strided, to stepvan.Rank, tag peer.Tag) (Handle, error)
	Recv(v tensor.Strided, from stepvan.Rank, tag peer.Tag) (Handle, error)
	Expose(v tensor.Strided, o peer.WindowOptions) (Window, error)
	Get(dst tensor.Strided, t peer.Token, at []int64) (Handle, error)
	Put(src tensor.Strided, t peer.Token, at []int64, note []byte) (Handle, error)
	Plan(ctx context.Context, name string, sends, recvs []peer.Move) (Plan, error)
	PlanWith(ctx context.Context, name string, sends, recvs []peer.Move, o peer.PlanOptions) (Plan, error)
}

// common are the methods that have the same results in a Peer and in a [peer.Peer].
type common interface {
	Connect(ctx context.Context, ranks ...stepvan.Rank) error
	Mail(to stepvan.Rank, topic peer.Topic, body []byte) error
	Listen(topic peer.Topic, f func(from stepvan.Rank, body []byte)) (stop func(), err error)
	Group(name string, ranks []stepvan.Rank) (*peer.Group, error)
}

// Handle is what the cases use of a [peer.Handle].
type Handle interface {
	Wait(ctx context.Context) error
	Done() bool
}

// Window is a [peer.Window].
type Window interface {
	Token() peer.Token
	Close(ctx context.Context) error
}

// Plan is what the cases use of a [peer.Plan].
type Plan interface {
	Begin(version uint64) (Handle, error)
	Offered() (version uint64, ok bool)
	Version() uint64
	Stats() peer.PlanStats
	Close(ctx context.Context) error
}

// plainPeer is a peer as it is.
type plainPeer struct {
	common
	p *peer.Peer
}

func (p plainPeer) Send(v tensor.Strided, to stepvan.Rank, tag peer.Tag) (Handle, error) {
	return p.p.Send(v, to, tag)
}

func (p plainPeer) Recv(v tensor.Strided, from stepvan.Rank, tag peer.Tag) (Handle, error) {
	return p.p.Recv(v, from, tag)
}

func (p plainPeer) Expose(v tensor.Strided, o peer.WindowOptions) (Window, error) {
	return p.p.Expose(v, o)
}

func (p plainPeer) Get(dst tensor.Strided, t peer.Token, at []int64) (Handle, error) {
	return p.p.Get(dst, t, at)
}

func (p plainPeer) Put(src tensor.Strided, t peer.Token, at []int64, note []byte) (Handle, error) {
	return p.p.Put(src, t, at, note)
}

func (p plainPeer) Plan(ctx context.Context, name string, sends, recvs []peer.Move) (Plan, error) {
	return p.PlanWith(ctx, name, sends, recvs, peer.PlanOptions{})
}

func (p plainPeer) PlanWith(ctx context.Context, name string, sends, recvs []peer.Move, o peer.PlanOptions) (Plan, error) {
	pl, err := p.p.PlanWith(ctx, name, sends, recvs, o)
	if err != nil {
		return nil, err
	}
	return plainPlan{pl}, nil
}

type plainPlan struct{ *peer.Plan }

func (p plainPlan) Begin(version uint64) (Handle, error) { return p.Plan.Begin(version) }
