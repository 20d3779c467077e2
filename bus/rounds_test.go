package bus

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// floats makes a contiguous view of so many rows and columns. Each element is its place plus first.
func floats(t testing.TB, first float32, rows, columns int64) ([]float32, tensor.Strided) {
	t.Helper()
	data := make([]float32, rows*columns)
	for i := range data {
		data[i] = first + float32(i)
	}
	x, err := tensor.FromSlice(data, rows, columns)
	require.NoError(t, err)
	return data, x.Strided()
}

// duo is a pair of one rank on each side, with a batch of one tensor of whole elements.
type duo struct {
	*town
	a, b     *job
	from, to []float32
	views    map[*job][]tensor.Strided
}

func newDuo(t testing.TB, v pairtest.Van, o Options) *duo {
	t.Helper()
	x := &duo{town: newTown(t, v, 2, o)}
	x.a, x.b = x.job(t, "training", nil, 0), x.job(t, "inference", nil, 1)
	openEverywhere(t, "p", x.a, x.b)
	var from, to tensor.Strided
	x.from, from = floats(t, 1, 8, 8)
	x.to, to = floats(t, -1000, 8, 8)
	x.views = map[*job][]tensor.Strided{x.a: {from}, x.b: {to}}
	noErrors(t, registerAll(t, "step", "p", x.views))
	return x
}

func (x *duo) status(t testing.TB, s *job, what string) Status {
	t.Helper()
	r, err := s.clients[0].Do(within(t), &QueryStatus{BatchID: "step", StateName: what})
	require.NoError(t, err)
	return r
}

// eventually polls until a condition holds.
func eventually(t testing.TB, f func() bool) {
	t.Helper()
	require.Eventually(t, f, pairtest.WaitLimit, time.Millisecond)
}

func TestRounds(t *testing.T) {
	x := newDuo(t, pairtest.Mem(), Options{})
	a, b := x.a.clients[0], x.b.clients[0]
	require.Equal(t, Status{State: Registered}, x.status(t, x.a, StateStatus))
	require.False(t, x.status(t, x.b, StateSignal).Signal)
	for round := uint64(1); round <= 3; round++ {
		for i := range x.from {
			x.from[i] += float32(round)
		}
		sent, err := a.Start(&Transfer{BatchID: "step", Type: Send})
		require.NoError(t, err)
		eventually(t, func() bool { return x.status(t, x.b, StateSignal).Signal })
		require.False(t, x.status(t, x.a, StateSignal).Signal)
		require.Equal(t, Status{State: Transferring, Round: round}, x.status(t, x.a, StateStatus))
		require.NotEqual(t, x.from, x.to, "it waits for the receiver")
		_, err = a.Do(within(t), &CleanupBatch{BatchID: "step"})
		require.ErrorIs(t, err, stepvan.ErrBusy)
		_, err = b.Do(within(t), &Transfer{BatchID: "step", Type: Recv})
		require.NoError(t, err)
		require.Equal(t, x.from, x.to)
		_, err = sent.Wait(within(t))
		require.NoError(t, err)
		require.False(t, x.status(t, x.b, StateSignal).Signal)
		require.Equal(t, Status{State: Done, Round: round}, x.status(t, x.b, StateStatus))
	}
	require.Equal(t, Unknown, func() BatchState {
		r, err := a.Do(within(t), &QueryStatus{BatchID: "other", StateName: StateStatus})
		require.NoError(t, err)
		return r.State
	}())

	// The other direction, and rounds that are asked for ahead.
	var calls []*Call
	for range 3 {
		c, err := b.Start(&Transfer{BatchID: "step", Type: Send})
		require.NoError(t, err)
		calls = append(calls, c)
	}
	for i := range 3 {
		eventually(t, func() bool { return x.status(t, x.a, StateSignal).Signal })
		_, err := a.Do(within(t), &Transfer{BatchID: "step", Type: Recv})
		require.NoError(t, err)
		_, err = calls[i].Wait(within(t))
		require.NoError(t, err)
	}
	require.False(t, x.status(t, x.a, StateSignal).Signal)
	for range 2 { // idempotent
		cleanupAll(t, "step", x.a, x.b)
	}
	x.nothingLeft(t)
	_, err := a.Do(within(t), &Transfer{BatchID: "step", Type: Send})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "it is not registered: send RegisterTensors first")
	noErrors(t, registerAll(t, "step", "p", x.views)) // the name is free again
	noErrors(t, transferAll(t, "step", x.a, x.b))
}

// A rank that needs nothing waits for the others, and gets the signal all the same.
func TestRanksWithoutElements(t *testing.T) {
	rows := func(n int) *layout.Layout {
		l := on([]int{n}, layout.Shard(0))
		return &l
	}
	x := newTown(t, pairtest.Mem(), 5, Options{})
	a, b := x.job(t, "training", rows(2), 0, 1), x.job(t, "inference", rows(3), 2, 3, 4)
	openEverywhere(t, "p", a, b)
	_, one := floats(t, 1, 1, 4)
	_, none := floats(t, 1, 0, 4)
	got, to := floats(t, 0, 1, 4)
	_, none2 := floats(t, 1, 0, 4)
	noErrors(t, registerAll(t, "step", "p", map[*job][]tensor.Strided{a: {one, none}, b: {to, none2, none2}}))
	signal := func(c *Client) bool {
		r, err := c.Do(within(t), &QueryStatus{BatchID: "step", StateName: StateSignal})
		require.NoError(t, err)
		return r.Signal
	}
	for _, c := range a.clients {
		_, err := c.Start(&Transfer{BatchID: "step", Type: Send})
		require.NoError(t, err)
	}
	for _, c := range b.clients {
		eventually(t, func() bool { return signal(c) })
	}
	for _, c := range b.clients {
		_, err := c.Do(within(t), &Transfer{BatchID: "step", Type: Recv})
		require.NoError(t, err)
		require.False(t, signal(c))
	}
	require.Equal(t, []float32{1, 2, 3, 4}, got)
}

// Views of fused matrices are sources and targets as they are.
func TestSlicesOfMatrices(t *testing.T) {
	for _, van := range pairtest.Vans() {
		t.Run(van.Name, func(t *testing.T) {
			half := on([]int{2}, layout.Shard(1))
			whole := on([]int{1}, layout.Replicate())
			x := newTown(t, van, 3, Options{})
			a, b := x.job(t, "training", &half, 0, 1), x.job(t, "inference", &whole, 2)
			openEverywhere(t, "p", a, b)
			var sources []tensor.Strided
			for i := range 2 {
				_, gate := floats(t, float32(1000*i), 4, 6) // columns 0 to 2 are the gate
				part, err := gate.Narrow(1, 0, 3)
				require.NoError(t, err)
				sources = append(sources, part)
			}
			got, fused := floats(t, -100, 4, 12)
			up, err := fused.Narrow(1, 6, 6)
			require.NoError(t, err)
			want := append([]float32{}, got...)
			for r := range 4 {
				for c := range 6 {
					want[r*12+6+c] = float32(1000*(c/3) + r*6 + c%3)
				}
			}
			noErrors(t, registerAll(t, "step", "p", map[*job][]tensor.Strided{a: sources, b: {up}}))
			noErrors(t, transferAll(t, "step", a, b))
			require.Equal(t, want, got, "the other half is untouched")
		})
	}
}

// Two pairs in one batch, and both directions of it at once.
func TestBothDirectionsAtOnce(t *testing.T) {
	columns := on([]int{2}, layout.Shard(1))
	x := newTown(t, pairtest.OneSided(), 4, Options{})
	a, b := x.job(t, "training", &columns, 0, 1), x.job(t, "inference", &columns, 2, 3)
	openEverywhere(t, "down", a, b)
	openEverywhere(t, "up", b, a)
	type of struct {
		data [2][]float32
		view [2]tensor.Strided
	}
	all := map[*job][]of{}
	for _, s := range []*job{a, b} {
		for i := range 2 {
			var o of
			for k := range 2 {
				o.data[k], o.view[k] = floats(t, float32(100*i+1000*k+10000*len(s.name)), 8, 4)
			}
			all[s] = append(all[s], o)
		}
	}
	down := [2][]float32{clone([][]float32{all[a][0].data[0]})[0], clone([][]float32{all[a][1].data[0]})[0]}
	up := [2][]float32{clone([][]float32{all[b][0].data[1]})[0], clone([][]float32{all[b][1].data[1]})[0]}
	for batch, k := range map[string]int{"d": 0, "u": 1} {
		pair := map[int]string{0: "down", 1: "up"}[k]
		noErrors(t, everywhere(func(s *job, i int) error {
			return s.clients[i].Register(within(t), batch, []Tensor{{pair, all[s][i].view[k]}})
		}, a, b))
	}
	done := make(chan []error, 2)
	go func() { done <- transferAll(t, "d", a, b) }()
	go func() { done <- transferAll(t, "u", b, a) }()
	noErrors(t, <-done)
	noErrors(t, <-done)
	for i := range 2 {
		require.Equal(t, down[i], all[b][i].data[0])
		require.Equal(t, up[i], all[a][i].data[1])
	}
	// One batch over both pairs, of tensors of both.
	noErrors(t, everywhere(func(s *job, i int) error {
		return s.clients[i].Register(within(t), "both", []Tensor{{"up", all[s][i].view[1]}, {"down", all[s][i].view[0]}})
	}, a, b))
	all[a][1].data[0][5], all[a][0].data[1][6] = 55, 66
	noErrors(t, transferAll(t, "both", a, b))
	require.Equal(t, all[a][1].data, all[b][1].data)
	require.Equal(t, all[a][0].data, all[b][0].data)
}

// Jobs that open two pairs in opposite order meet.
func TestPairsInOppositeOrder(t *testing.T) {
	x := newTown(t, pairtest.Mem(), 2, Options{})
	a, b := x.job(t, "training", nil, 0), x.job(t, "inference", nil, 1)
	for i := range 2 {
		var calls []*Call
		for _, s := range []*job{a, b} {
			order := []string{"obs", "action"}
			if s == b {
				order = []string{"action", "obs"}
			}
			for _, pair := range order {
				c, err := s.clients[0].Start(s.command(pair, map[*job]string{a: b.name, b: a.name}[s]))
				require.NoError(t, err)
				calls = append(calls, c)
			}
			if s == a && i == 0 { // pairs that wait keep nobody else
				r, err := a.clients[0].Do(within(t), &QueryStatus{BatchID: "none", StateName: StateStatus})
				require.NoError(t, err)
				require.Equal(t, Unknown, r.State)
				require.False(t, calls[0].Done())
			}
		}
		for _, c := range calls {
			_, err := c.Wait(within(t))
			require.NoError(t, err)
		}
	}
}

// A client that is both sides of a pair names its role.
func TestRoles(t *testing.T) {
	x := newTown(t, pairtest.Mem(), 1, Options{})
	c := x.client(t, 0, -1)
	rows, columns := on([]int{1}, layout.Shard(0)), on([]int{1, 1}, layout.Replicate(), layout.Shard(1))
	a, b := &job{"training", &rows, []*Client{c}}, &job{"inference", &columns, []*Client{c}}
	openEverywhere(t, "p", a, b)
	from, master := floats(t, 3, 8, 4)
	to, copied := floats(t, 0, 8, 4)
	err := c.Register(within(t), "step", []Tensor{{"p", master}})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, `pair "p": this client is `)
	require.ErrorContains(t, err, "name the role")
	x.nothingLeft(t)
	require.ErrorContains(t, c.As("validation").Register(within(t), "step", []Tensor{{"p", master}}), `this client is not "validation" of it`)
	a.clients, b.clients = []*Client{c.As("training")}, []*Client{c.As("inference")}
	before := append([]float32{}, from...)
	noErrors(t, registerAll(t, "step", "p", map[*job][]tensor.Strided{a: {master}, b: {copied}}))
	sent, err := a.clients[0].Start(&Transfer{BatchID: "step", Type: Send})
	require.NoError(t, err)
	r, err := b.clients[0].Do(within(t), &QueryStatus{BatchID: "step", StateName: StateSignal})
	require.NoError(t, err)
	require.True(t, r.Signal)
	r, err = a.clients[0].Do(within(t), &QueryStatus{BatchID: "step", StateName: StateSignal})
	require.NoError(t, err)
	require.False(t, r.Signal)
	_, err = b.clients[0].Do(within(t), &Transfer{BatchID: "step", Type: Recv})
	require.NoError(t, err)
	_, err = sent.Wait(within(t))
	require.NoError(t, err)
	require.Equal(t, before, from, "the master is unchanged")
	require.Equal(t, before, to)
	cleanupAll(t, "step", a, b)
	x.nothingLeft(t)
}

// Agents that have ranks of both sides get their signals, too: none of them waits for the other.
func TestSignalsOfMixedAgents(t *testing.T) {
	r := on([]int{2}, layout.Replicate())
	s := on([]int{2}, layout.Shard(0))
	x := newTown(t, pairtest.Mem(), 2, Options{})
	a, b := x.job(t, "training", &s, 0, 1), x.job(t, "inference", &r, 0, 1)
	openEverywhere(t, "p", a, b)
	_, v0 := floats(t, 0, 2, 2)
	_, v1 := floats(t, 4, 2, 2)
	g0, t0 := floats(t, -1, 4, 2)
	g1, t1 := floats(t, -1, 4, 2)
	noErrors(t, registerAll(t, "step", "p", map[*job][]tensor.Strided{a: {v0, v1}, b: {t0, t1}}))
	for range 2 {
		for _, c := range a.clients {
			_, err := c.Start(&Transfer{BatchID: "step", Type: Send})
			require.NoError(t, err)
		}
		noErrors(t, everywhere(func(s *job, i int) error {
			for ctx := within(t); ; {
				r, err := s.clients[i].Do(ctx, &QueryStatus{BatchID: "step", StateName: StateSignal})
				if err != nil || r.Signal {
					_, failed := s.clients[i].Do(ctx, &Transfer{BatchID: "step", Type: Recv})
					return errors.Join(err, failed)
				}
			}
		}, b))
		require.Equal(t, []float32{0, 1, 2, 3, 4, 5, 6, 7}, g0)
		require.Equal(t, g0, g1)
	}
}

// The queue of a client has a limit. What is beyond it is refused, or waits.
func TestQueue(t *testing.T) {
	x := newTown(t, pairtest.Mem(), 2, Options{Queue: 5})
	a, b := x.job(t, "training", nil, 0), x.job(t, "inference", nil, 1)
	c := a.clients[0]
	var calls []*Call
	for i := range 5 {
		call, err := c.Start(a.command(fmt.Sprintf("pair %d", i), "inference"))
		require.NoError(t, err)
		calls = append(calls, call)
	}
	_, err := c.Start(&QueryStatus{BatchID: "x", StateName: StateStatus})
	require.ErrorIs(t, err, stepvan.ErrWouldBlock)
	require.ErrorContains(t, err, "QueryStatus: 5 commands of this client have not completed")
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = c.Do(short, &QueryStatus{BatchID: "x", StateName: StateStatus})
	require.ErrorIs(t, err, stepvan.ErrWouldBlock)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	freed := make(chan error, 1)
	go func() {
		_, err := c.Do(within(t), &QueryStatus{BatchID: "x", StateName: StateStatus})
		freed <- err
	}()
	_, err = b.clients[0].Do(within(t), b.command("pair 3", "training"))
	require.NoError(t, err)
	_, err = calls[3].Wait(within(t))
	require.NoError(t, err)
	require.NoError(t, <-freed)
	require.False(t, calls[0].Done())
	require.NoError(t, c.Close(within(t)))
	require.NoError(t, c.Close(within(t)), "closed twice")
	for i, call := range calls {
		_, err := call.Wait(within(t))
		if i != 3 {
			require.ErrorIs(t, err, stepvan.ErrClosed)
		}
	}
	_, err = c.Start(&QueryStatus{BatchID: "x", StateName: StateStatus})
	require.ErrorIs(t, err, stepvan.ErrClosed)
}

// Commands about one pair and one batch follow each other although nobody waits for them.
func TestOrderOfCommands(t *testing.T) {
	x := newTown(t, pairtest.Mem(), 2, Options{})
	a, b := x.job(t, "training", nil, 0), x.job(t, "inference", nil, 1)
	var got []float32
	var calls []*Call
	for _, s := range []*job{a, b} {
		c := s.clients[0]
		data, v := floats(t, float32(len(s.name)), 3, 3)
		got = data
		handle, release, err := c.handle(&v)
		require.NoError(t, err)
		kind := map[*job]TransferType{a: Send, b: Recv}[s]
		for _, command := range []Command{
			s.command("p", map[*job]string{a: b.name, b: a.name}[s]),
			&RegisterTensors{BatchID: "step", Tensors: []TensorOfPair{{"p", handle}}},
			&Transfer{BatchID: "step", Type: kind},
			&Transfer{BatchID: "step", Type: kind},
		} {
			call, err := c.Start(command)
			require.NoError(t, err)
			calls = append(calls, call)
		}
		t.Cleanup(release)
	}
	for _, c := range calls {
		_, err := c.Wait(within(t))
		require.NoError(t, err)
	}
	require.Equal(t, float32(len("training")), got[0])
	again, err := a.clients[0].Start(&QueryStatus{BaseCommand: BaseCommand{Semaphore: "mine"}, BatchID: "step", StateName: StateStatus})
	require.NoError(t, err)
	r, err := again.Wait(within(t))
	require.NoError(t, err)
	require.Equal(t, Status{State: Done, Round: 2}, r)
}

// No command waits longer than its client says.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTown(t, pairtest.Mem(), 2, Options{})
		a := x.job(t, "training", nil, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := a.clients[0].Do(ctx, a.command("p", "inference"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "of training there are 1 of 1 ranks, and of inference 0 of an unknown number")
		all, _ := x.board.list("bus/m/")
		require.Empty(t, all, "nothing is left")
		call, err := a.clients[0].Start(a.command("p", "inference"))
		require.NoError(t, err)
		begun := time.Now()
		_, err = call.Wait(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 30*time.Second, time.Since(begun))
	})
}

// A caller that gives up drives its round no longer. The round continues, and so do the next ones.
func TestACallerGivesUpARound(t *testing.T) {
	partial, whole := on([]int{2}, layout.Partial(layout.Sum)), on([]int{1}, layout.Replicate())
	for _, van := range []pairtest.Van{pairtest.Mem(), pairtest.OneSided()} {
		t.Run(van.Name, func(t *testing.T) {
			x := newTown(t, van, 3, Options{})
			a, b := x.job(t, "training", &partial, 0, 1), x.job(t, "inference", &whole, 2)
			openEverywhere(t, "p", a, b)
			one, from := floats(t, 1, 4, 4)
			two, other := floats(t, 2, 4, 4)
			sum, to := floats(t, 0, 4, 4)
			noErrors(t, registerAll(t, "step", "p", map[*job][]tensor.Strided{a: {from, other}, b: {to}}))
			for round := range uint64(3) {
				short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				_, err := a.clients[0].Do(short, &Transfer{BatchID: "step", Type: Send}) // reduces with a rank that does not come
				cancel()
				require.ErrorIs(t, err, context.DeadlineExceeded)
				short, cancel = context.WithCancel(t.Context())
				cancel()
				_, err = b.clients[0].Do(short, &Transfer{BatchID: "step", Type: Recv})
				require.ErrorIs(t, err, context.Canceled)
				one[0]++
				_, err = a.clients[1].Do(within(t), &Transfer{BatchID: "step", Type: Send})
				require.NoError(t, err)
				for _, c := range []*Client{a.clients[0], b.clients[0]} {
					eventually(t, func() bool {
						s, err := c.Do(within(t), &QueryStatus{BatchID: "step", StateName: StateStatus})
						require.NoError(t, err)
						require.NotEqual(t, Failed, s.State, "%v", s.Err)
						return s == Status{State: Done, Round: round + 1}
					})
				}
				for i := range sum {
					require.InDelta(t, one[i]+two[i], sum[i], 0)
				}
			}
			cleanupAll(t, "step", a, b)
			x.nothingLeft(t)
		})
	}
}
