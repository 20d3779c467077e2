package particle_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/particle"
	"github.com/stepvan/stepvan/tensor"
)

// parameters makes a tensor that other instances may map.
func (c *cluster) parameters(rank int, first float32) (tensor.Tensor, []float32) {
	t, err := c.peers[rank].Memory.Zeros(tensor.Float32, 1000)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { c.peers[rank].Memory.Put(t.Region()) })
	x, err := tensor.As[float32](t)
	require.NoError(c.t, err)
	for i := range x {
		x[i] = first + float32(i)
	}
	return t, x
}

// view gets a view of a particle from the first loop.
func (c *cluster) view(id particle.ID) (*particle.Future, []float32) {
	f, err := c.loops[0].Get(particle.None, id)
	require.NoError(c.t, err)
	v, err := f.Wait(limited(c.t))
	require.NoError(c.t, err)
	require.True(c.t, v.View)
	require.Equal(c.t, "weights", string(v.Data))
	require.Len(c.t, v.Tensors, 1)
	one, ok := v.Tensors[0].Contiguous()
	require.True(c.t, ok)
	x, err := tensor.As[float32](one)
	require.NoError(c.t, err)
	return f, x
}

func (c *cluster) out(rank int, id particle.ID) int {
	n, err := c.loops[rank].Views(id)
	require.NoError(c.t, err)
	return n
}

func TestViewsAreOfOneMomentAndCounted(t *testing.T) {
	for name, v := range map[string]pairtest.Van{"seen": pairtest.OneSided(), "copied": pairtest.TCP(), "shm": pairtest.Shm()} {
		for rank := range 2 {
			t.Run(name, func(t *testing.T) {
				c := newCluster(t, v, 2, nil)
				id := c.create(rank, 0, map[string]particle.Hook{"echo": echo})
				mine, x := c.parameters(rank, 1)
				ended := make(chan struct{})
				require.NoError(t, c.loops[rank].Share(id, particle.Value{Data: []byte("weights"), Tensors: []tensor.Strided{mine.Strided()}, Lent: func() { close(ended) }}))
				f, got := c.view(id)
				require.Equal(t, x, got)
				shared := rank == 0 || v.Shares
				if shared {
					require.Equal(t, 1, c.out(rank, id))
					x[3] = 99 // against the rule
					require.EqualValues(t, 99, got[3], "it is the memory itself")
					again, _ := c.view(id)
					require.Equal(t, 2, c.out(rank, id))
					again.Forget()
				}
				require.Eventually(t, func() bool { return c.out(rank, id) == 0 != shared }, waitLimit, time.Millisecond)
				next, y := c.parameters(rank, 5)
				require.NoError(t, c.loops[rank].Share(id, particle.Value{Data: []byte("weights"), Tensors: []tensor.Strided{next.Strided()}}))
				require.Zero(t, c.out(rank, id))
				if shared {
					select {
					case <-ended:
						t.Fatal("the memory has ended, and a view is out")
					default:
					}
				}
				require.EqualValues(t, 1, got[0], "the view stays as it is")
				f.Forget()
				<-ended
				f, got = c.view(id)
				require.Equal(t, y, got)
				f.Forget()
				require.NoError(t, c.loops[rank].Share(id, particle.Value{}))
			})
		}
	}
}

func TestViewsAreSharedOnDemandAndWaitForTheTurn(t *testing.T) {
	c := newCluster(t, pairtest.OneSided(), 2, nil)
	begun, end := make(chan struct{}), make(chan struct{})
	id := c.create(1, 0, map[string]particle.Hook{
		"write": func(*particle.Call, particle.Value) (particle.Value, error) {
			close(begun)
			<-end
			return particle.Value{}, nil
		},
	})
	f, err := c.loops[0].Get(particle.None, id)
	require.NoError(t, err)
	_, err = f.Wait(limited(t))
	require.ErrorIs(t, err, stepvan.ErrRemote, "there is no hook that shares")
	mine, x := c.parameters(1, 1)
	asked := 0
	require.NoError(t, c.loops[1].HandleShare(id, func(y *particle.Call, _ particle.Value) (particle.Value, error) {
		asked++
		return particle.Value{}, c.loops[1].Share(y.Particle(), particle.Value{Data: []byte("weights"), Tensors: []tensor.Strided{mine.Strided()}})
	}))
	for range 3 {
		f, got := c.view(id)
		require.Equal(t, x, got)
		f.Forget()
	}
	require.Equal(t, 1, asked)
	_, err = c.loops[0].Send(particle.None, id, "write", particle.Value{})
	require.NoError(t, err)
	<-begun
	f, err = c.loops[0].Get(particle.None, id)
	require.NoError(t, err)
	require.Zero(t, c.out(1, id), "no view goes out while a hook has the turn")
	x[0] = 42
	close(end)
	v, err := f.Wait(limited(t))
	require.NoError(t, err)
	one, _ := v.Tensors[0].Contiguous()
	got, err := tensor.As[float32](one)
	require.NoError(t, err)
	require.EqualValues(t, 42, got[0], "it comes after the hook")
	f.Forget()
	require.NoError(t, c.loops[1].Share(id, particle.Value{}))
}

func TestAClosedLoopGivesBackItsViews(t *testing.T) {
	c := newCluster(t, pairtest.OneSided(), 2, nil)
	id := c.create(1, 0, nil)
	mine, _ := c.parameters(1, 1)
	ended := make(chan struct{})
	require.NoError(t, c.loops[1].Share(id, particle.Value{Data: []byte("weights"), Tensors: []tensor.Strided{mine.Strided()}, Lent: func() { close(ended) }}))
	f, _ := c.view(id)
	require.NoError(t, c.loops[0].Close(limited(t)))
	f.Forget()
	require.Eventually(t, func() bool { return c.out(1, id) == 0 }, waitLimit, time.Millisecond)
	require.NoError(t, c.loops[1].Close(limited(t)))
	<-ended
}

func TestAViewForALoopThatIsOverIsNotOut(t *testing.T) {
	c := newCluster(t, pairtest.OneSided(), 2, nil)
	id, other := c.create(0, 0, map[string]particle.Hook{"echo": echo}), c.create(1, 0, nil)
	mine, _ := c.parameters(0, 1)
	asked, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	require.NoError(t, c.loops[0].HandleShare(id, func(y *particle.Call, _ particle.Value) (particle.Value, error) {
		close(asked)
		<-end
		return particle.Value{}, c.loops[0].Share(y.Particle(), particle.Value{Data: []byte("weights"), Tensors: []tensor.Strided{mine.Strided()}, Lent: func() { close(ended) }})
	}))
	f, err := c.loops[1].Get(particle.None, id)
	require.NoError(t, err)
	<-asked
	require.NoError(t, c.loops[1].Close(limited(t)))
	_, err = f.Wait(limited(t))
	require.ErrorIs(t, err, stepvan.ErrClosed)
	require.Eventually(t, func() bool {
		_, err := c.loops[0].Get(particle.None, other)
		return errors.Is(err, stepvan.ErrPeerLost)
	}, waitLimit, time.Millisecond)
	close(end)
	_, err = c.ask(id, "echo", "after that")
	require.NoError(t, err)
	require.Zero(t, c.out(0, id), "nobody would give it back")
	require.NoError(t, c.loops[0].Share(id, particle.Value{}))
	<-ended
}
