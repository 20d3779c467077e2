package trace

import (
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// numbered is an entry all of whose fields say n, so that a torn one shows.
func numbered(n int64) Entry {
	e := Entry{RequestID: uint64(n), Key: uint64(n), BytesOut: n, BytesBack: n, Worker: int32(n), Server: int32(n)}
	for i := range e.Stamps {
		e.Stamps[i] = n
	}
	return e
}

func ids(entries []Entry) (all []uint64) {
	for _, e := range entries {
		all = append(all, e.RequestID)
	}
	return all
}

func TestSlotFillsTwoCacheLines(t *testing.T) {
	require.EqualValues(t, 128, unsafe.Sizeof(slot{}))
}

func TestRingCapacityIsAPowerOfTwo(t *testing.T) {
	for ask, want := range map[int]int{-1: 1, 0: 1, 1: 1, 2: 2, 3: 4, 1000: 1024, 1024: 1024, 1025: 2048} {
		require.Equal(t, want, NewRing(ask).capacity(), "asked for %d", ask)
	}
}

func TestRingKeepsTheLast(t *testing.T) {
	for _, c := range []struct {
		name        string
		records     int64
		want        []uint64
		overwritten uint64
	}{
		{"empty", 0, nil, 0},
		{"some", 3, []uint64{1, 2, 3}, 0},
		{"full", 4, []uint64{1, 2, 3, 4}, 0},
		{"one more", 5, []uint64{2, 3, 4, 5}, 1},
		{"many more", 4003, []uint64{4000, 4001, 4002, 4003}, 3999},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewRing(4)
			for n := int64(1); n <= c.records; n++ {
				r.Record(numbered(n))
			}
			require.Equal(t, c.want, ids(r.Snapshot()))
			require.Equal(t, c.overwritten, r.oldest(r.recorded()))
			require.EqualValues(t, c.records, r.recorded())
		})
	}
}

func TestNilRing(t *testing.T) {
	var r *Ring
	r.Record(numbered(1))
	require.Empty(t, r.Snapshot())
	require.Zero(t, r.recorded()+r.oldest(r.recorded()))
}

func TestSnapshotLeavesOutWhatIsOverwrittenMeanwhile(t *testing.T) {
	r := NewRing(4)
	for n := int64(1); n <= 7; n++ {
		r.Record(numbered(n))
	}
	got, next := r.copyBlock(nil, 1, 6)
	require.Equal(t, []uint64{4, 5, 6}, ids(got))
	require.EqualValues(t, 6, next)
	got, next = r.copyBlock(nil, 0, 2)
	require.Empty(t, got)
	require.GreaterOrEqual(t, next, uint64(2), "the end is reached")
}

func TestSnapshotOfManyBlocks(t *testing.T) {
	r := NewRing(4 * block)
	for n := range int64(5 * block) {
		r.Record(numbered(n))
	}
	got := ids(r.Snapshot())
	require.Len(t, got, 4*block)
	require.EqualValues(t, block, got[0])
	require.EqualValues(t, 5*block-1, got[len(got)-1])
	require.True(t, slices.IsSorted(got))
}

func TestRingUnderConcurrentWritersAndReaders(t *testing.T) {
	const writers, each = 8, 2000
	r := NewRing(64)
	stop := make(chan struct{})
	var readers, writing sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				checkWhole(t, r.Snapshot())
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for w := range int64(writers) {
		writing.Go(func() {
			for n := range int64(each) {
				r.Record(numbered(w*each + n + 1))
			}
		})
	}
	writing.Wait()
	close(stop)
	readers.Wait()
	require.EqualValues(t, writers*each, r.recorded())
	last := r.Snapshot()
	require.LessOrEqual(t, len(last), r.capacity())
	checkWhole(t, last)
}

// checkWhole fails for an entry that two writers made together, and for one entry seen twice.
func checkWhole(t *testing.T, entries []Entry) {
	seen := ids(entries)
	slices.Sort(seen)
	if len(slices.Compact(seen)) != len(entries) {
		t.Error("an entry was returned twice")
	}
	for i := range entries {
		if entries[i] != numbered(int64(entries[i].RequestID)) {
			t.Errorf("torn entry %+v", entries[i])
		}
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	r, label := NewRing(8), "layer 0"
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		r.Record(Entry{Stamps: Stamps{RequestStart: Now()}, Label: label})
	}))
}

func TestNowNeverStepsBack(t *testing.T) {
	last := Now()
	for range 1000 {
		n := Now()
		require.GreaterOrEqual(t, n, last)
		last = n
	}
}

func BenchmarkNow(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = Now()
	}
}

func BenchmarkRecord(b *testing.B) {
	r, e := NewRing(1<<14), numbered(1)
	e.Label = "layer 0"
	b.ReportAllocs()
	for b.Loop() {
		r.Record(e)
	}
}

func BenchmarkRecordParallel(b *testing.B) {
	r, e := NewRing(1<<14), numbered(1)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.Record(e)
		}
	})
}
