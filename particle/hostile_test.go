package particle

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// liar is a peer that sends a loop what it likes, and what that loop answers.
type liar struct {
	t        *testing.T
	peers    []*pairtest.PeerOfCluster
	loop     *Loop
	particle ID
	replies  chan frame
	stop     func() // listening
}

func newLiar(t *testing.T, v pairtest.Van, o Options) *liar {
	x := &liar{t: t, peers: pairtest.NewPeers(t, pairtest.Options{Van: v}, 2), replies: make(chan frame, 1024)}
	x.listen()
	var err error
	o.Memory = x.peers[0].Memory
	x.loop, err = Open(x.peers[0].Peer, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.loop.Close(x.limit())) })
	x.particle, _, err = x.loop.Create(0, 0)
	require.NoError(t, err)
	require.NoError(t, x.loop.Handle(x.particle, "echo", func(_ *Call, args Value) (Value, error) { return Value{Data: args.Data}, nil }))
	return x
}

// listen keeps the replies of the loop.
func (x *liar) listen() {
	var err error
	x.stop, err = x.peers[1].Listen(topic, func(_ stepvan.Rank, body []byte) {
		if f, err := readFrame(slices.Clone(body)); err == nil && f.op == opReply {
			select {
			case x.replies <- f:
			default:
			}
		}
	})
	require.NoError(x.t, err)
}

func (x *liar) limit() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	x.t.Cleanup(cancel)
	return ctx
}

func (x *liar) mail(body []byte) {
	for {
		if x.peers[1].Mail(0, topic, body) == nil {
			return
		}
		time.Sleep(time.Millisecond) // there is no room for more at the moment
	}
}

func (x *liar) send(f frame) {
	f.life = 1
	x.mail(f.append(nil))
}

// greet says hello as a loop does.
func (x *liar) greet(pickled bool) {
	x.send(frame{op: opHello, data: (&hello{devices: 1, pickled: pickled}).append(nil)})
}

// call is a right call of the liar.
func (x *liar) call(number uint64) frame {
	return frame{op: opCall, number: number, to: x.particle, from: None, name: "echo", path: []step{{1, number}}}
}

// works checks that the loop does its work, for itself and for the liar.
func (x *liar) works() {
	f, err := x.loop.Send(None, x.particle, "echo", Value{Data: []byte("x")})
	require.NoError(x.t, err)
	v, err := f.Wait(x.limit())
	require.NoError(x.t, err)
	require.Equal(x.t, "x", string(v.Data))
	c := x.call(1 << 50)
	c.data = []byte("y")
	x.send(c)
	r := x.reply(1 << 50)
	require.Equal(x.t, codeOK, r.code, "%s", r.data)
	require.Equal(x.t, "y", string(r.data))
}

// reply waits for the reply to a call.
func (x *liar) reply(number uint64) frame {
	for {
		select {
		case f := <-x.replies:
			if f.number == number {
				return f
			}
		case <-x.limit().Done():
			x.t.Fatal("there is no reply")
		}
	}
}

func TestLiesAreRefusedAndChangeNothing(t *testing.T) {
	x := newLiar(t, pairtest.TCP(), Options{AllowPickled: true})
	early := x.call(1)
	x.send(early)
	x.greet(true)
	require.Equal(t, codeInvalid, x.reply(1).code, "it had not said hello")
	x.works()
	for what, c := range map[string]struct {
		change func(f *frame)
		want   code
	}{
		"no such particle":   {func(f *frame) { f.to = 99 }, codeInvalid},
		"a negative one":     {func(f *frame) { f.to = -5 }, codeInvalid},
		"no such hook":       {func(f *frame) { f.name = "nothing" }, codeInvalid},
		"no path":            {func(f *frame) { f.path = nil }, codeInvalid},
		"the path of others": {func(f *frame) { f.path = []step{{0, f.number}} }, codeInvalid},
		"pickled":            {func(f *frame) { f.flags, f.data = flagPickled, []byte("cos\nsystem\n") }, codeRefused},
		"pickled and apart":  {func(f *frame) { f.flags, f.bytes, f.tag = flagPickled|flagApart, 1<<20, tagSpace }, codeRefused},
		"too large":          {func(f *frame) { f.flags, f.bytes, f.tag = flagApart, 1<<50, tagSpace }, codeInvalid},
		"the tag of others":  {func(f *frame) { f.flags, f.bytes, f.tag = flagApart, 1<<20, 7 }, codeInvalid},
	} {
		f := x.call(2)
		c.change(&f)
		x.send(f)
		r := x.reply(2)
		require.Equal(t, c.want, r.code, what)
		require.NotEmpty(t, r.data, what)
		x.works()
	}
	sealed := x.call(3)
	sealed.flags, sealed.data, sealed.life = flagPickled|flagSealed, []byte("cos\nsystem\n"), 1
	x.mail(append(sealed.append(nil), slices.Repeat([]byte{1}, numberBytes+sealBytes)...))
	require.Equal(t, codeRefused, x.reply(3).code, "a wrong seal")
	x.works()
}

func TestLiesAboutMattersOfOthersChangeNothing(t *testing.T) {
	x := newLiar(t, pairtest.OneSided(), Options{})
	x.greet(false)
	waits := make(chan struct{})
	require.NoError(t, x.loop.Handle(x.particle, "wait", func(*Call, Value) (Value, error) {
		<-waits
		return Value{Data: []byte("right")}, nil
	}))
	f, err := x.loop.Send(None, x.particle, "wait", Value{})
	require.NoError(t, err)
	x.send(frame{op: opReply, number: f.number, data: []byte("wrong")})
	x.send(frame{op: opReply, number: 12345})
	x.send(frame{op: opPlace, number: 1, to: 1, chain: placeNumber(Place{1, 1, 0})})
	x.send(frame{op: opPlace, number: 1, to: 77})
	x.send(frame{op: opFreed, number: 12345})
	x.send(frame{op: opReply, number: f.number, flags: flagView, tag: 5, forms: []form{{tensor.Uint8, tensor.ShapeOf(4)}}, tokens: make([]peer.Token, 1)})
	x.greet(true)
	close(waits)
	v, err := f.Wait(x.limit())
	require.NoError(t, err)
	require.Equal(t, "right", string(v.Data))
	require.Len(t, x.loop.Particles(), 1, "the liar is not the driver")
	x.works()
}

func TestValuesThatNeverComeHoldNothingUp(t *testing.T) {
	x := newLiar(t, pairtest.OneSided(), Options{ValueBytes: 1 << 20})
	x.greet(false)
	for i := range 10 { // only one of them finds room
		f := x.call(uint64(i + 1))
		f.flags, f.bytes, f.tag = flagApart, 1<<20, tagSpace+uint64(i)<<12
		x.send(f)
	}
	f, err := x.loop.Send(None, x.particle, "echo", Value{Data: []byte("x")})
	require.NoError(t, err)
	_, err = f.Wait(x.limit())
	require.NoError(t, err)
	require.NoError(t, x.loop.Close(x.limit()))
}

// Frames with changed bytes leave a loop able to work.
func TestChangedFramesStorm(t *testing.T) {
	x := newLiar(t, pairtest.Mem(), Options{ValueBytes: 1 << 16})
	x.greet(false)
	r := rand.New(rand.NewPCG(1, 2))
	seeds := seedFrames()
	for range 5000 {
		f := seeds[r.IntN(len(seeds))]
		if f.op == opBye || f.op == opHello {
			continue // they would end it, rightly
		}
		f.life, f.to = 1, ID(r.IntN(3)-1)
		b := f.append(nil)
		for range r.IntN(4) {
			if at := r.IntN(len(b)); at != 0 && (at < 4 || at > 7) {
				b[at] ^= byte(1 << r.IntN(8))
			}
		}
		x.mail(b[:len(b)-r.IntN(2)*r.IntN(len(b)/2)])
	}
	x.works()
}

func TestAMessageWithoutANameIsRefusedByALoopThatPulls(t *testing.T) {
	x := &liar{t: t, peers: pairtest.NewPeers(t, pairtest.Options{Van: pairtest.Mem()}, 2), replies: make(chan frame, 16)}
	x.listen()
	var err error
	x.loop, err = Open(x.peers[0].Peer, Options{Pull: true, Memory: x.peers[0].Memory})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.loop.Close(x.limit())) })
	x.particle, _, err = x.loop.Create(0, 0)
	require.NoError(t, err)
	x.greet(false)
	f := x.call(1)
	f.name = ""
	x.send(f)
	require.Equal(t, codeInvalid, x.reply(1).code)
}

func TestOneLoopAcknowledgesOnce(t *testing.T) {
	peers := pairtest.NewPeers(t, pairtest.Options{Van: pairtest.Mem()}, 3)
	x := &liar{t: t, peers: peers, replies: make(chan frame, 16)}
	x.listen()
	var err error
	x.loop, err = Open(peers[0].Peer, Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.loop.Close(x.limit())) })
	x.greet(false)
	id, f, err := x.loop.Create(0, 0)
	require.NoError(t, err)
	require.NoError(t, x.loop.Handle(id, "echo", func(_ *Call, args Value) (Value, error) { return Value{Data: args.Data}, nil }))
	for range 3 {
		x.send(frame{op: opPlaced, number: f.number, to: id})
	}
	x.works()
	require.False(t, f.Done(), "the third loop does not know of the particle")
}

func TestCallsWithoutAResultHaveALimit(t *testing.T) {
	x := newLiar(t, pairtest.Mem(), Options{})
	x.greet(false)
	x.works()
	hold := func(bytes int64) {
		x.loop.mu.Lock()
		defer x.loop.mu.Unlock()
		r := x.loop.remotes[1]
		if bytes > 0 {
			require.Zero(t, r.held, "a call that has ended counts")
		}
		r.held += bytes
	}
	hold(maxHeld - callBytes)
	f := x.call(1)
	f.data = []byte("x")
	x.send(f)
	require.Equal(t, codeFull, x.reply(1).code)
	hold(callBytes - maxHeld)
	x.works()
}

// sendWithoutRoom is Send when there is room for the transfers of a value, and none for the mail that tells of them.
func (x *liar) sendWithoutRoom(to ID, v Value) *Future {
	l := x.loop
	p, err := l.opt.take("send", &v)
	require.NoError(x.t, err)
	l.mu.Lock()
	defer l.unlock()
	r := l.remotes[1]
	f := l.newFuture(None, to, "large", r)
	out := &outgoing{frame: frame{op: opCall, number: f.number, life: l.life, to: to, name: f.name, path: []step{{l.rank, f.number}}}, content: p, future: f}
	require.NoError(x.t, out.frame.load(p))
	require.NoError(x.t, r.begin(out))
	require.Len(x.t, out.sends, 1)
	r.out.push(out)
	return f
}

// A value is the program's again once its transfers are over, also when the loop that should get it is closed before.
func TestALentValueStaysWhileItTravels(t *testing.T) {
	x := newLiar(t, pairtest.OneSided(), Options{})
	x.greet(false)
	there, placed, err := x.loop.Create(1, 0)
	require.NoError(t, err)
	x.send(frame{op: opPlaced, number: placed.number, to: there})
	_, err = placed.Wait(x.limit())
	require.NoError(t, err)
	x.stop() // mail waits from here on
	part, err := tensor.FromBytes(tensor.Uint8, tensor.ShapeOf(1<<20), make([]byte, 1<<20))
	require.NoError(t, err)
	back := make(chan struct{})
	last := x.sendWithoutRoom(there, Value{Tensors: []tensor.Strided{part.Strided()}, Lent: func() { close(back) }})
	x.send(frame{op: opBye})
	handled := make(chan struct{})
	_, err = x.peers[0].Listen("after it", func(stepvan.Rank, []byte) { close(handled) })
	require.NoError(t, err)
	require.NoError(t, x.peers[1].Mail(0, "after it", nil))
	<-handled
	_, err = last.Wait(x.limit())
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
	select {
	case <-back:
		t.Fatal("the transfer is not over")
	default:
	}
	_, err = x.peers[1].Listen(topic, func(from stepvan.Rank, body []byte) {
		if f, err := readFrame(slices.Clone(body)); err == nil {
			discard(x.peers[1].Peer, from, &f, nil) // as a peer does whose loop is over
		}
	})
	require.NoError(t, err)
	select {
	case <-back:
	case <-x.limit().Done():
		t.Fatal("the value has not come back")
	}
}
