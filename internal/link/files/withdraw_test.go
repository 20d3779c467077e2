package files_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/files"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/tensor"
)

func TestWithdrawEndsTheGrantsOfAllPeers(t *testing.T) {
	m, mem := newMemory(t)
	b, other := alloc(t, mem, 100), alloc(t, mem, int(ofItsOwn))
	file := fileOf(t, mem, b).File
	first, second, third := newSession(), newSession(), newSession()
	peers := []*files.Grants{files.New(first, m), files.New(second, m), files.New(third, m)}
	peers[0].Reach(b, link.RightRead)
	peers[0].Reach(b, link.RightWrite)
	peers[1].Reach(b, both)
	kept := peers[1].Reach(other, both)

	over := 0
	files.Withdraw(slices.Values(peers), file, func() { over++ })
	require.Len(t, first.withdrawn, 2)
	require.Len(t, second.withdrawn, 1)
	require.Empty(t, third.withdrawn)
	first.endWithdrawals()
	require.Zero(t, over, "the second peer still reaches the memory")
	second.endWithdrawals()
	require.Equal(t, 1, over)

	require.Zero(t, peers[0].Granted(file, link.RightRead))
	require.Equal(t, kept, peers[1].Reach(other, both))
	attempts := first.attempts
	require.NotZero(t, peers[0].Reach(b, link.RightRead))
	require.Equal(t, attempts+1, first.attempts, "it was forgotten")
}

func TestWithdrawOfWhatNobodyReaches(t *testing.T) {
	m, _ := newMemory(t)
	over := 0
	files.Withdraw(slices.Values([]*files.Grants{files.New(newSession(), m)}), tensor.NewFileNumber(), func() { over++ })
	files.Withdraw(slices.Values[[]*files.Grants](nil), tensor.NewFileNumber(), func() { over++ })
	require.Equal(t, 2, over)
}

// A session that is over ends a withdrawal within the call.
func TestWithdrawAtOnce(t *testing.T) {
	m, mem := newMemory(t)
	b := alloc(t, mem, 100)
	s := endedSession{newSession()}
	peers := []*files.Grants{files.New(s, m), files.New(s, m)}
	for _, g := range peers {
		g.Reach(b, link.RightRead)
		g.Reach(b, link.RightWrite)
	}
	over := 0
	files.Withdraw(slices.Values(peers), fileOf(t, mem, b).File, func() { over++ })
	require.Equal(t, 1, over)
}

type endedSession struct{ *session }

func (s endedSession) Withdraw(_ link.GrantID, done func()) { done() }

// service has a lock and is told of files.
type service struct {
	mu      sync.Mutex
	watcher *files.Watcher
	dropped chan uint64
}

func newService(t testing.TB, mem *tensor.Allocator) *service {
	t.Helper()
	s := &service{dropped: make(chan uint64, 1000)}
	s.watcher = files.Watch(mem, &s.mu, func(file uint64) {
		if s.mu.TryLock() {
			t.Error("the lock of the service is free")
		}
		s.dropped <- file
	})
	t.Cleanup(s.watcher.Stop)
	return s
}

func (s *service) take(t testing.TB) uint64 {
	t.Helper()
	select {
	case file := <-s.dropped:
		return file
	case <-pairtest.Context(t).Done():
		t.Fatal("nothing was dropped")
		return 0
	}
}

// dropFile allocates a file of its own, and gives it back to the system.
func dropFile(t testing.TB, mem *tensor.Allocator) uint64 {
	t.Helper()
	r, err := mem.Alloc(int(ofItsOwn))
	require.NoError(t, err)
	file := fileOf(t, mem, r.Bytes()).File
	require.NoError(t, r.Close())
	require.NoError(t, mem.Trim())
	return file
}

func TestDroppedFilesAreReportedWithoutFurtherUse(t *testing.T) {
	_, mem := newMemory(t)
	s := newService(t, mem)
	s.watcher.Flush() // nothing
	require.Equal(t, dropFile(t, mem), s.take(t))
	require.Empty(t, s.dropped)
}

// The goroutine that holds the lock of the service may free memory. The service hears of it in the next Flush.
func TestDroppedUnderTheLockOfTheService(t *testing.T) {
	_, mem := newMemory(t)
	s := newService(t, mem)
	s.mu.Lock()
	want := []uint64{dropFile(t, mem), dropFile(t, mem)}
	s.watcher.Flush()
	require.Len(t, s.dropped, 2)
	s.watcher.Flush()
	s.mu.Unlock()
	require.ElementsMatch(t, want, []uint64{s.take(t), s.take(t)})
	require.Equal(t, dropFile(t, mem), s.take(t), "and each file once")
}

func TestStoppedWatchersHearNothing(t *testing.T) {
	_, mem := newMemory(t)
	first, second := newService(t, mem), newService(t, mem)
	first.watcher.Stop()
	require.Equal(t, dropFile(t, mem), second.take(t))
	require.Empty(t, first.dropped)
}

// Goroutines free memory while others use it: each file is reported once.
func TestManyFilesAreDropped(t *testing.T) {
	const goroutines, rounds = 3, 5
	_, mem := newMemory(t)
	s := newService(t, mem)
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range rounds {
				dropFile(t, mem)
				s.mu.Lock()
				s.watcher.Flush()
				s.mu.Unlock()
			}
		})
	}
	all.Wait()
	seen := map[uint64]bool{}
	for range goroutines * rounds {
		file := s.take(t)
		require.False(t, seen[file])
		seen[file] = true
	}
}
