package files_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/files"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/tensor"
)

const both = link.RightRead | link.RightWrite

// session is a link that notes what it is asked for.
type session struct {
	caps      link.Caps
	err       error  // of Grant
	during    func() // an attempt
	returned  uint64
	attempts  int
	granted   map[link.GrantID]int // bytes
	rights    map[link.GrantID]link.Rights
	withdrawn []func() // not called so far
}

func newSession() *session {
	return &session{granted: map[link.GrantID]int{}, rights: map[link.GrantID]link.Rights{}}
}

func (s *session) Caps() *link.Caps { return &s.caps }
func (s *session) Returned() uint64 { return s.returned }

func (s *session) Grant(mem []byte, generation uint32, rights link.Rights) (link.Grant, error) {
	s.attempts++
	if s.during != nil {
		s.during()
	}
	if s.err != nil {
		return link.Grant{}, s.err
	}
	id := link.GrantID(s.attempts)
	s.granted[id], s.rights[id] = len(mem), rights
	return link.Grant{ID: id, Generation: generation}, nil
}

func (s *session) Withdraw(g link.GrantID, done func()) {
	delete(s.granted, g)
	s.withdrawn = append(s.withdrawn, done)
}

// endWithdrawals does what the link does when the peer has given up its views.
func (s *session) endWithdrawals() {
	for _, done := range s.withdrawn {
		done()
	}
	s.returned += uint64(len(s.withdrawn))
	s.withdrawn = nil
}

func newMemory(t testing.TB) (*files.Memory, *tensor.Allocator) {
	t.Helper()
	mem, err := tensor.NewAllocator(tensor.Options{Name: "files"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mem.Close()) })
	return &files.Memory{Files: mem, Registry: registry.New(nil, zerolog.Nop())}, mem
}

// alloc returns memory of the allocator until the end of the test.
func alloc(t testing.TB, mem *tensor.Allocator, n int) []byte {
	t.Helper()
	r, err := mem.Alloc(n)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r.Bytes()
}

const ofItsOwn = tensor.DefaultArenaBytes + 1 // bytes that get a file of their own

func fileOf(t testing.TB, mem *tensor.Allocator, b []byte) tensor.Place {
	t.Helper()
	at, ok := mem.Locate(b)
	require.True(t, ok)
	return at
}

func TestAFileIsGrantedOnce(t *testing.T) {
	m, mem := newMemory(t)
	first, second, other := alloc(t, mem, 100), alloc(t, mem, 100), alloc(t, mem, int(ofItsOwn))
	s := newSession()
	g := files.New(s, m)
	at := fileOf(t, mem, first)
	require.Equal(t, at.File, fileOf(t, mem, second).File)

	target := g.Reach(first, link.RightRead)
	require.Equal(t, link.Target{Grant: 1, Generation: files.Generation, Offset: at.Offset}, target)
	require.Equal(t, len(at.Memory), s.granted[1])
	require.Equal(t, target.Grant, g.Granted(at.File, link.RightRead))
	require.Equal(t, link.Target{Grant: 1, Generation: files.Generation, Offset: at.Offset + 7}, g.Reach(first[7:9], link.RightRead))
	require.Equal(t, fileOf(t, mem, second).Offset, g.Reach(second, link.RightRead).Offset)
	require.Equal(t, 1, s.attempts)
	require.EqualValues(t, 2, g.Reach(other, link.RightRead).Grant)
}

func TestEachRightsHaveAGrantOfTheirOwn(t *testing.T) {
	m, mem := newMemory(t)
	b := alloc(t, mem, 100)
	file := fileOf(t, mem, b).File
	s := newSession()
	g := files.New(s, m)
	for i, rights := range []link.Rights{link.RightRead, link.RightWrite, both} {
		require.Zero(t, g.Granted(file, rights))
		for range 2 {
			require.EqualValues(t, i+1, g.Reach(b, rights).Grant)
		}
		require.Equal(t, rights, s.rights[link.GrantID(i+1)])
	}
	require.Equal(t, 3, s.attempts)
}

func TestMemoryThatNobodyMayBeGranted(t *testing.T) {
	m, mem := newMemory(t)
	b := alloc(t, mem, 100)
	s := newSession()
	g := files.New(s, m)
	require.Zero(t, g.Reach(make([]byte, 100), both), "the Go heap")
	require.Zero(t, g.Reach(nil, both))
	require.True(t, g.Registered(b), "the van does not ask for it")
	s.caps.Registered = true
	require.True(t, g.Registered(b), "no device asks for it")
	require.Zero(t, g.Reach(b, both))
	require.Zero(t, s.attempts)
}

// nic is a device that reaches all memory which is registered.
type nic struct{}

func (nic) Register([]byte) error   { return nil }
func (nic) Deregister([]byte) error { return nil }

func TestRegisteredMemoryTakesThePlaceOfFiles(t *testing.T) {
	m := &files.Memory{Registry: registry.New([]registry.Device{nic{}}, zerolog.Nop())}
	x, err := tensor.FromSlice(make([]byte, 1000))
	require.NoError(t, err)
	held, err := m.Registry.Register(x)
	require.NoError(t, err)
	s := newSession()
	s.caps.Registered = true
	g := files.New(s, m)
	part := x.Bytes()[10:20]
	require.True(t, g.Registered(part))
	require.False(t, g.Registered(make([]byte, 10)))
	require.Equal(t, link.Target{Grant: 1, Generation: files.Generation, Offset: 10}, g.Reach(part, both))
	require.EqualValues(t, 1, g.Granted(held.ID(), both))

	require.NoError(t, held.Close())
	require.Zero(t, g.Reach(part, both))
	over := false
	files.Withdraw(slices.Values([]*files.Grants{g}), held.ID(), func() { over = true })
	require.False(t, over)
	s.endWithdrawals()
	require.True(t, over)
}

func TestFailuresAreRemembered(t *testing.T) {
	full := fmt.Errorf("%w: 1 is out", errs.ErrNoGrant)
	free := func(s *session, _ *files.Grants) { s.returned++ }
	gone := func(_ *session, g *files.Grants) {
		files.Withdraw(slices.Values([]*files.Grants{g}), tensor.NewFileNumber(), func() {})
	}
	nothing := func(*session, *files.Grants) {}
	for name, c := range map[string]struct {
		err   error
		then  func(*session, *files.Grants)
		again bool
	}{
		"no room":                      {full, nothing, false},
		"no room, and a grant is back": {full, free, true},
		"no room, and a file is gone":  {full, gone, true},
		"the van cannot":               {stepvan.ErrNotSupported, nothing, false},
		"the van never can":            {stepvan.ErrNotSupported, free, false},
		"the session is over":          {stepvan.ErrPeerLost, free, false},
		"the queue is full":            {stepvan.ErrWouldBlock, nothing, true},
	} {
		t.Run(name, func(t *testing.T) {
			m, mem := newMemory(t)
			b := alloc(t, mem, 100)
			s := newSession()
			g := files.New(s, m)
			s.err = c.err
			require.Zero(t, g.Reach(b, both))
			require.Equal(t, 1, s.attempts)
			s.err = nil
			c.then(s, g)
			require.Equal(t, c.again, g.Reach(b, both).Grant != 0)
			require.NotZero(t, g.Reach(b, link.RightRead), "the other rights are another grant")
		})
	}
}

// What comes free during an attempt that fails counts for the next one.
func TestRoomThatComesDuringTheAttempt(t *testing.T) {
	m, mem := newMemory(t)
	b := alloc(t, mem, 100)
	s := newSession()
	g := files.New(s, m)
	s.err, s.during = errs.ErrNoGrant, func() { s.returned++ }
	require.Zero(t, g.Reach(b, both))
	s.err, s.during = nil, nil
	require.NotZero(t, g.Reach(b, both))
}

// Budget: 0 allocations for memory that was named before, granted or not.
func TestReachAllocatesNothing(t *testing.T) {
	m, mem := newMemory(t)
	first, second := alloc(t, mem, 100), alloc(t, mem, int(ofItsOwn))
	s := newSession()
	g := files.New(s, m)
	require.NotZero(t, g.Reach(first, both))
	s.err = errs.ErrNoGrant
	require.Zero(t, g.Reach(second, both))
	if pairtest.Race {
		return
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if g.Reach(first, both).Grant == 0 || g.Reach(second, both).Grant != 0 {
			t.Error("another outcome than before")
		}
	}))
}

// A peer that may only read a file does not write to it, though another right to the same file is out.
func TestRightsAtARealPeer(t *testing.T) {
	v := pairtest.OneSided()
	owner, peer := pairtest.NewPeer(t, pairtest.Options{Van: v}, "owner", 5), pairtest.NewPeer(t, pairtest.Options{Van: v}, "peer", 6)
	to, err := owner.Transport.Dial(pairtest.Context(t), []string{peer.Listen(t, v)})
	require.NoError(t, err)
	from := peer.Session(t)
	m := &files.Memory{Files: owner.Memory, Registry: owner.Transport.Registry}
	g := files.New(to, m)
	b := alloc(t, owner.Memory, 100)
	read, write := g.Reach(b, link.RightRead), g.Reach(b, link.RightWrite)
	require.NotEqual(t, read.Grant, write.Grant)
	view, err := from.Map(read, 100, link.RightRead)
	require.NoError(t, err)
	require.Same(t, &b[0], &view.Bytes[0])
	_, err = from.Map(read, 100, link.RightWrite)
	require.Error(t, err)
	_, err = from.Map(write, 100, link.RightRead)
	require.Error(t, err)

	over := make(chan struct{})
	files.Withdraw(slices.Values([]*files.Grants{g}), fileOf(t, owner.Memory, b).File, func() { close(over) })
	select {
	case <-over:
		t.Fatal("the peer still has a view")
	default:
	}
	view.Release()
	select {
	case <-over:
	case <-pairtest.Context(t).Done():
		t.Fatal("the grants have not ended")
	}
	_, err = from.Map(read, 100, link.RightRead)
	require.ErrorIs(t, err, stepvan.ErrStale)
}
