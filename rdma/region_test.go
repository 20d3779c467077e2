package rdma

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/shm"
)

// fake registers memory without a device.
func (s *regions) fake(mem []byte) *region {
	r := &region{mem: mem, extent: extentOf(mem), count: 1}
	r.users.Store(1)
	s.add(r)
	return r
}

func TestRegionsAreFoundByAnyPart(t *testing.T) {
	var s regions
	s.init(nil)
	mem := make([]byte, 100)
	whole, part, second := s.fake(mem[10:90]), s.fake(mem[20:30]), s.fake(mem[90:])
	require.Same(t, part, s.find(mem[20:30]))
	require.Same(t, whole, s.find(mem[20:31]))
	require.Same(t, whole, s.find(mem[10:90]))
	require.Same(t, second, s.find(mem[99:]))
	require.Nil(t, s.find(mem[9:11]))
	require.Nil(t, s.find(mem[89:91]), "two regions together")
	require.Nil(t, s.find(make([]byte, 1)))
	require.EqualValues(t, 2, part.users.Load())
	require.EqualValues(t, 3, whole.users.Load())
}

// A region that is registered twice ends with the second end, and only once nobody uses it.
func TestRegionsCountTheirUsers(t *testing.T) {
	var s regions
	s.init(nil)
	mem := make([]byte, 100)
	r := s.fake(mem)
	again, err := s.again(extentOf(mem))
	require.NoError(t, err)
	require.True(t, again)
	require.Same(t, r, s.find(mem[:1]))
	require.NoError(t, s.deregister(mem))
	require.Same(t, r, s.find(mem[:1]))
	require.NoError(t, s.deregister(mem))
	require.Nil(t, s.find(mem[:1]))
	require.ErrorContains(t, s.deregister(mem), "these 100 bytes are not registered")
	require.False(t, r.drop())
	require.True(t, r.drop())
	require.False(t, r.take(), "it is about to be unregistered")
}

func TestFindAllocatesNothing(t *testing.T) {
	var s regions
	s.init(nil)
	mem := make([]byte, 1000)
	for i := range 100 {
		s.fake(mem[10*i : 10*i+10])
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { s.find(mem[500:505]).drop() }))
}

// A van that is closed while memory is unregistered leaves nothing open, which TestMain looks for.
func TestTheEndWaitsForMemoryThatIsUnregistered(t *testing.T) {
	rdma(t)
	m, err := shm.Anonymous(64 << 20)
	require.NoError(t, err)
	for range 4 {
		v := newVan(t, Options{})
		require.NoError(t, v.Register(m.Bytes()))
		began, ended := make(chan struct{}), make(chan error)
		go func() {
			close(began)
			ended <- v.Deregister(m.Bytes())
		}()
		<-began
		require.NoError(t, v.Close())
		require.NoError(t, <-ended)
	}
	require.NoError(t, m.Close())
}
