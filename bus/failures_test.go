package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// Ranks that do not agree on a pair learn so at once, all of them. Afterwards they can open it.
func TestPairsThatDoNotFit(t *testing.T) {
	r, s, p := layout.Replicate(), layout.Shard(0), layout.Partial(layout.Sum)
	l := func(placements ...layout.Placement) *layout.Layout {
		x := on([]int{2}, placements...)
		return &x
	}
	for name, c := range map[string]struct {
		a, b   *layout.Layout
		change func(all [4]*InitPair) // of training 0 and 1, and of inference 0 and 1
		want   []string
	}{
		"size": {l(s), l(s), func(all [4]*InitPair) {
			all[1].ExpectedWorldSize = 3
			all[1].MeshShape = EncodeMesh([]int{3})
		}, []string{"the ranks differ in expected_world_size", "training rank 0 (peer 0) says 2", "training rank 1 (peer 1) says 3"}},
		"layout": {l(s), l(s), func(all [4]*InitPair) {
			all[3].Placements = EncodePlacements([]layout.Placement{r})
		}, []string{"the ranks differ in layout", "inference rank 0 (peer 2) has (2)[S(0)]", "inference rank 1 (peer 3) has (2)[R]"}},
		"names": {l(s), l(s), func(all [4]*InitPair) {
			all[2].RemoteName, all[3].RemoteName = "validation", "validation"
		}, []string{"the ranks do not name each other", `names "validation"`}},
		"one layout":   {l(s), nil, func([4]*InitPair) {}, []string{"one side has a layout and the other none", "whole tensors"}},
		"both partial": {l(p), l(p), func([4]*InitPair) {}, []string{"both sides are partial, so neither can receive"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTown(t, pairtest.Mem(), 4, Options{})
			a, b := x.job(t, "training", c.a, 0, 1), x.job(t, "inference", c.b, 2, 3)
			all := [4]*InitPair{a.command("p", "inference"), a.command("p", "inference"), b.command("p", "training"), b.command("p", "training")}
			c.change(all)
			clients := append(append([]*Client{}, a.clients...), b.clients...)
			var failed [4]chan error
			for i, cl := range clients {
				failed[i] = make(chan error, 1)
				go func() {
					_, err := cl.Do(within(t), all[i])
					failed[i] <- err
				}()
				if i < 3 {
					time.Sleep(time.Millisecond) // so that some come late
				}
			}
			for i := range failed {
				err := <-failed[i]
				require.ErrorIs(t, err, stepvan.ErrInvalid)
				for _, w := range c.want {
					require.ErrorContains(t, err, w)
				}
			}
			if c.b != nil && c.a.CheckTarget() == nil {
				openEverywhere(t, "p", a, b)
			}
		})
	}
}

// Without layouts both sides need as many ranks.
func TestWholeTensorsOfUnequalSides(t *testing.T) {
	x := newTown(t, pairtest.Mem(), 3, Options{})
	a, b := x.job(t, "training", nil, 0, 1), x.job(t, "inference", nil, 2)
	for _, err := range everywhere(func(s *job, i int) error {
		_, err := s.clients[i].Do(within(t), s.command("p", map[*job]string{a: "inference", b: "training"}[s]))
		return err
	}, a, b) {
		require.ErrorContains(t, err, "without layouts both sides need as many ranks")
		require.ErrorContains(t, err, "says 2")
		require.ErrorContains(t, err, "says 1")
	}
}

func TestPairsThatAreOpen(t *testing.T) {
	x := newTown(t, pairtest.Mem(), 2, Options{})
	whole := on([]int{1}, layout.Replicate())
	a, b := x.job(t, "training", &whole, 0), x.job(t, "inference", &whole, 1)
	openEverywhere(t, "p", a, b)
	openEverywhere(t, "p", a, b) // the same again
	other := a.command("p", "inference")
	other.Placements = EncodePlacements([]layout.Placement{layout.Shard(0)})
	_, err := a.clients[0].Do(within(t), other)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, `it is open with another layout or partner (got (1)[S(0)] of 1 ranks with partner "inference", want (1)[R] of 1 ranks`)
	// Several clients of one agent need ranks.
	c, d := x.client(t, 0, -1), x.client(t, 0, -1)
	for _, err := range everywhere(func(s *job, i int) error {
		_, err := s.clients[i].Do(within(t), s.command("q", "inference"))
		return err
	}, &job{"training", nil, []*Client{c, d}}) {
		require.ErrorContains(t, err, "peer 0 has several clients of training, and which is first is not known: name the rank of each client")
	}
}

// A batch whose tensors do not fit fails at all ranks, and leaves nothing behind.
func TestBatchesThatDoNotFit(t *testing.T) {
	rows := on([]int{2}, layout.Shard(0))
	x := newTown(t, pairtest.OneSided(), 4, Options{})
	a, b := x.job(t, "training", &rows, 0, 1), x.job(t, "inference", &rows, 2, 3)
	openEverywhere(t, "p", a, b)
	openEverywhere(t, "q", a, b)
	_, good := floats(t, 0, 4, 4)
	_, wide := floats(t, 0, 4, 5)
	_, long := floats(t, 0, 6, 4)
	ints, err := tensor.FromSlice(make([]int32, 16), 4, 4)
	require.NoError(t, err)
	doubles, err := tensor.FromSlice(make([]float64, 16), 4, 4)
	require.NoError(t, err)
	one := []Tensor{{"p", good}}
	for name, c := range map[string]struct {
		tensors [4][]Tensor
		want    []string
	}{
		"count": {[4][]Tensor{one, one, one, {{"p", good}, {"p", good}}}, []string{"the ranks differ in the number of tensors", "inference rank 0 (peer 2) has 1", "inference rank 1 (peer 3) has 2"}},
		"shape": {[4][]Tensor{one, one, {{"p", wide}}, {{"p", wide}}}, []string{"tensor 0: ", "the sides differ in size", "inference rank 0 (peer 2) has parts of [8 5]", "training rank 0 (peer 0) has parts of [8 4]"}},
		"parts": {[4][]Tensor{{{"p", good}}, {{"p", long}}, one, one}, []string{"training: ", "rank 0 has [4 4] of a tensor [10 4]"}},
		"type":  {[4][]Tensor{{{"p", ints.Strided()}}, {{"p", ints.Strided()}}, one, one}, []string{"int32", "float32", "give both sides one type, or floats"}},
		"types of one side": {[4][]Tensor{one, {{"p", doubles.Strided()}}, one, one}, []string{
			"the ranks of one side differ in type", "training rank 0 (peer 0) has float32[4 4]", "training rank 1 (peer 1) has float64[4 4]"}},
		// What does not fit in one pair fails the batch in the other.
		"another pair": {[4][]Tensor{{{"q", good}, {"p", good}}, {{"q", good}, {"p", good}}, {{"q", wide}, {"p", good}}, {{"q", wide}, {"p", good}}}, []string{
			`pair "q"`, "the sides differ in size"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := everywhere(func(s *job, i int) error {
				if s == b {
					return s.clients[i].Register(within(t), "step", c.tensors[2+i])
				}
				return s.clients[i].Register(within(t), "step", c.tensors[i])
			}, a, b)
			for i, err := range all {
				require.ErrorIs(t, err, stepvan.ErrInvalid, "rank %d", i)
				require.ErrorContains(t, err, `RegisterTensors: batch "step"`)
				for _, w := range c.want {
					require.ErrorContains(t, err, w)
				}
			}
			x.nothingLeft(t)
		})
	}
	noErrors(t, everywhere(func(s *job, i int) error { return s.clients[i].Register(within(t), "step", one) }, a, b))
}

// What a client does wrong by itself fails at once.
func TestRegistrationsThatAreRefused(t *testing.T) {
	x := newDuo(t, pairtest.Mem(), Options{})
	c := x.a.clients[0]
	v := x.views[x.a][0]
	err := c.Register(within(t), "step", []Tensor{{"p", v}})
	require.ErrorContains(t, err, "the batch_id is in use")
	err = c.Register(within(t), "other", nil)
	require.ErrorContains(t, err, "tensors: wrong number (got 0")
	err = c.Register(within(t), "other", []Tensor{{"p", v}, {"nobody", v}})
	require.ErrorContains(t, err, `pair "nobody": it is not open at this client: send InitPair first`)
	_, err = c.Do(within(t), &RegisterTensors{BatchID: "other", Tensors: []TensorOfPair{{"p", []byte{1}}}})
	require.ErrorContains(t, err, "tensor handle at byte")
	h := TensorHandle{Memory: 1 << 40, DType: tensor.Float32, Shape: tensor.ShapeOf(2), Strides: []int64{1}}
	b, err := h.Encode()
	require.NoError(t, err)
	_, err = c.Do(within(t), &RegisterTensors{BatchID: "other", Tensors: []TensorOfPair{{"p", b}}})
	require.ErrorIs(t, err, stepvan.ErrStale)
	call, err := c.Start(&QueryStatus{BaseCommand: BaseCommand{Semaphore: "s"}, BatchID: "step", StateName: "mood"})
	require.NoError(t, err)
	_, err = call.Wait(within(t))
	require.ErrorContains(t, err, "state_name: unknown", "the completion has the error")
	cleanupAll(t, "step", x.a, x.b)
	x.nothingLeft(t)
}

// A registration whose partners do not come ends in time, and says which ranks are missing.
func TestRegistrationsThatAreLate(t *testing.T) {
	x := newDuo(t, pairtest.Mem(), Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := x.a.clients[0].Register(ctx, "late", []Tensor{{"p", x.views[x.a][0]}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "these ranks have not registered: inference rank 0 (peer 1)")
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err = x.b.clients[0].Register(ctx, "late", []Tensor{{"p", x.views[x.b][0]}})
	require.ErrorContains(t, err, "these ranks have not registered: training rank 0 (peer 0)")
	noErrors(t, registerAll(t, "late", "p", x.views))
}

// Partial sources cannot be targets.
func TestDirectionsWithoutPlan(t *testing.T) {
	partial, whole := on([]int{2}, layout.Partial(layout.Sum)), on([]int{1}, layout.Replicate())
	x := newTown(t, pairtest.Mem(), 3, Options{})
	a, b := x.job(t, "training", &partial, 0, 1), x.job(t, "inference", &whole, 2)
	openEverywhere(t, "p", a, b)
	_, v := floats(t, 1, 2, 2)
	_, w := floats(t, 2, 2, 2)
	_, u := floats(t, 2, 2, 2)
	noErrors(t, registerAll(t, "step", "p", map[*job][]tensor.Strided{a: {v, w}, b: {u}}))
	for c, kind := range map[*Client]TransferType{a.clients[0]: Recv, b.clients[0]: Send} {
		_, err := c.Do(within(t), &Transfer{BatchID: "step", Type: kind})
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, "training cannot receive, since it is partial ((2)[P(sum)])")
	}
	noErrors(t, transferAll(t, "step", a, b))
}

// The death of a client, or of an agent, ends what names it, at all sides, and says what died.
func TestDeaths(t *testing.T) {
	for _, van := range []pairtest.Van{pairtest.Mem(), pairtest.OneSided(), pairtest.TCP()} {
		for name, die := range map[string]func(x *duo){
			"client": func(x *duo) { require.NoError(t, x.a.clients[0].Close(within(t))) },
			"agent":  func(x *duo) { require.NoError(t, x.agents[0].Close(within(t))) },
			"node": func(x *duo) {
				require.NoError(t, x.peers[0].Service.Close())
				require.NoError(t, x.peers[0].Transport.Close())
				x.board.kill(0)
				x.peers[1].Service.Lost(200_000, errors.New("peer 0 has died"))
			},
		} {
			t.Run(van.Name+" "+name, func(t *testing.T) {
				x := newDuo(t, van, Options{})
				c := x.b.clients[0]
				waits, err := c.Start(&Transfer{BatchID: "step", Type: Recv})
				require.NoError(t, err)
				die(x)
				_, err = waits.Wait(within(t))
				require.ErrorIs(t, err, stepvan.ErrPeerLost)
				require.ErrorContains(t, err, "peer 0")
				require.Equal(t, Failed, x.status(t, x.b, StateStatus).State)
				require.ErrorIs(t, x.status(t, x.b, StateStatus).Err, stepvan.ErrPeerLost)
				_, err = c.Do(within(t), &Transfer{BatchID: "step", Type: Recv})
				require.ErrorIs(t, err, stepvan.ErrPeerLost)
				_, err = c.Do(within(t), &CleanupBatch{BatchID: "step"})
				require.NoError(t, err)
			})
		}
	}
}

// An agent that waits for a pair learns of the death of a rank that it has seen.
func TestDeathsWhileAPairOpens(t *testing.T) {
	for name, die := range map[string]func(x *town, c *Client){
		"client": func(_ *town, c *Client) { require.NoError(t, c.Close(within(t))) },
		"node":   func(x *town, _ *Client) { x.board.kill(1) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newTown(t, pairtest.Mem(), 3, Options{})
			two := on([]int{2}, layout.Replicate())
			a, b := x.job(t, "training", &two, 0, 1), x.job(t, "inference", &two, 2, 2)
			first, err := a.clients[0].Start(a.command("p", "inference"))
			require.NoError(t, err)
			_, err = a.clients[1].Start(a.command("p", "inference"))
			require.NoError(t, err)
			third, err := b.clients[0].Start(b.command("p", "training"))
			require.NoError(t, err)
			for _, s := range []*session{a.clients[0].s.(*session), b.clients[0].s.(*session)} {
				eventually(t, func() bool {
					s.a.mu.Lock()
					defer s.a.mu.Unlock()
					for _, x := range s.pairs {
						for key := range x.seen {
							if strings.HasSuffix(key, fmt.Sprintf("/1.%d", a.clients[1].s.(*session).id)) {
								return true
							}
						}
					}
					return false
				})
			}
			die(x, a.clients[1])
			for _, c := range []*Call{first, third} {
				_, err := c.Wait(within(t))
				require.ErrorIs(t, err, stepvan.ErrPeerLost)
				require.ErrorContains(t, err, "peer 1")
			}
		})
	}
}

// A peer has one agent. After its end nothing is left on the board, and another one may follow.
func TestAgentsEnd(t *testing.T) {
	x := newDuo(t, pairtest.Mem(), Options{})
	_, err := NewAgent(t.Context(), x.peers[0].Peer, pinner{x.board, 0}, Options{})
	require.ErrorContains(t, err, "this peer has an agent already")
	for _, a := range x.agents {
		require.NoError(t, a.Close(within(t)))
		require.NoError(t, a.Close(within(t)))
		_, err := a.Client(ClientOptions{})
		require.ErrorIs(t, err, stepvan.ErrClosed)
	}
	all, _ := x.board.list("")
	require.Empty(t, all)
	again, err := NewAgent(t.Context(), x.peers[0].Peer, pinner{x.board, 0}, Options{})
	require.NoError(t, err)
	require.NoError(t, again.Close(within(t)))
	_, err = NewAgent(t.Context(), x.peers[0].Peer, pinner{x.board, 0}, Options{Queue: -1})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}

// Letters that no agent sends are passed over.
func TestHostileLetters(t *testing.T) {
	x := newDuo(t, pairtest.Mem(), Options{})
	l := x.agents[1].legs[legKey{"step", "p"}]
	failed := (&letter{kind: letterFailed, batch: "step", pair: "p", roster: l.r.id, token: l.token + 1, failure: failure{"lost", "no", 3}}).encode()
	for _, body := range [][]byte{{}, {letterLast}, {letterLast, 0x80}, {letterMore, 1, 2}, {letterLast, 3}, append([]byte{letterLast}, failed...)} {
		require.NoError(t, x.peers[0].Mail(1, topic, body))
	}
	for range 300 { // more than any letter has
		err := x.peers[0].Mail(1, topic, append([]byte{letterMore}, make([]byte, peer.MaxMail-1)...))
		for errors.Is(err, stepvan.ErrWouldBlock) {
			time.Sleep(time.Millisecond)
			err = x.peers[0].Mail(1, topic, append([]byte{letterMore}, make([]byte, peer.MaxMail-1)...))
		}
		require.NoError(t, err)
	}
	require.NoError(t, x.peers[0].Mail(1, topic, []byte{letterLast}))
	noErrors(t, transferAll(t, "step", x.a, x.b))
	require.Equal(t, x.from, x.to)
}

func FuzzLetter(f *testing.F) {
	for _, l := range []letter{
		{kind: letterRegister, batch: "b", pair: "p", roster: 1 << 63, member: 3, attempt: 4, forms: []form{{[2]tensor.DType{12, 12}, tensor.ShapeOf(2, 3)}}},
		{kind: letterFits, batch: "b", pair: "p", token: 9, attempts: []uint64{1, 2, 3}, forms: []form{{[2]tensor.DType{11, 12}, tensor.ShapeOf()}}},
		{kind: letterFailed, batch: "b", pair: "p", failure: failure{"invalid", "why", 1 << 63}}, {kind: letterAsked, direction: 1, rounds: [2]uint64{7, 8}},
	} {
		f.Add(l.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := readLetter(b)
		if err != nil {
			return
		}
		again, err := readLetter(l.encode())
		require.NoError(t, err)
		require.Equal(t, l, again)
	})
}

func FuzzEntry(f *testing.F) {
	n := rankEntry{agent: 3, client: 7, pair: "p", side: "a", remote: "b", attempt: 9, size: 2, rank: -1, mesh: EncodeMesh([]int{2}), placements: EncodePlacements([]layout.Placement{layout.Shard(0)})}
	f.Add(n.key(), n.encode())
	f.Fuzz(func(t *testing.T, key string, b []byte) {
		n, err := readEntry(3, key, b)
		if err != nil {
			return
		}
		again, err := readEntry(3, n.key(), n.encode())
		require.NoError(t, err)
		require.Equal(t, n, again)
	})
}
