//go:build cgo

package main

import (
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// ring is a scheduler and some peers of this process, as a C program would have them.
type ring struct {
	cluster
	peers []cUint64
}

func newRing(t testing.TB, count int, settings ...string) *ring {
	r := &ring{cluster: cluster{t: t, e: new(cError), settings: append([]string{"DMLC_NUM_WORKER=0", "DMLC_NUM_SERVER=0", "STEPVAN_NUM_PEER=" + decimal(count)}, settings...)}}
	t.Cleanup(r.pin.Unpin)
	r.scheduler = r.start("scheduler", "0")
	var info cInfo
	for info.root_port == 0 {
		r.ok(goInfo(r.scheduler, &info, r.e))
		runtime.Gosched()
	}
	for range count {
		r.peers = append(r.peers, r.start("peer", decimal(int(info.root_port))))
	}
	r.ok(goStartWait(r.scheduler, -1, r.e))
	byRank := make([]cUint64, count)
	for _, id := range r.peers {
		r.ok(goStartWait(id, -1, r.e))
		rank, size := new(cUint32), new(cUint32)
		r.ok(goPeerInfo(id, rank, size, r.e))
		byRank[*rank] = id
	}
	r.peers = byRank
	t.Cleanup(r.stopAll)
	return r
}

func (r *ring) stopAll() {
	r.all(append(r.peers, r.scheduler), func(id cUint64, e *cError) {
		if code := goStop(id, -1, e); code != codeOK && code != codeClosed {
			r.t.Error(chars(&e.message))
		}
		goClose(id, e)
	})
	back()
}

// all does something with some nodes at once.
func (r *ring) all(ids []cUint64, f func(id cUint64, e *cError)) {
	var group sync.WaitGroup
	for _, id := range ids {
		group.Go(func() { f(id, new(cError)) })
	}
	group.Wait()
}

// view is a view of a matrix with rows and columns, and as many elements between two rows. Its elements count from
// first on.
func (r *ring) view(rows, columns, step int, first float64) *cView {
	all := make([]float64, rows*step)
	for i := range all {
		all[i] = first + float64(i)
	}
	v := viewOf(&all[0], int64(rows), int64(columns), int64(step), 1)
	r.pin.Pin(&all[0])
	p := &v
	r.pin.Pin(p)
	return p
}

// at are the elements of row i.
func at(v *cView, i int) []float64 {
	return unsafe.Slice((*float64)(unsafe.Add(v.data, i*int(v.strides[0])*8)), v.shape[1])
}

func TestTransfersOfC(t *testing.T) {
	r := newRing(t, 2)
	send, recv := pinned[cUint64](&r.cluster, 1), pinned[cUint64](&r.cluster, 1)
	for _, columns := range []int{2, 4000} {
		from, to := r.view(3, columns, columns+5, 100), r.view(3, columns, columns, -1)
		r.ok(goRecv(r.peers[1], to, 0, 7, 72, recv, r.e))
		require.Equal(t, codeTimeout, goWait(r.peers[1], *recv, 1000, r.e))
		require.Contains(t, chars(&r.e.message), "wait")
		r.ok(goSend(r.peers[0], from, 1, 7, 71, send, r.e))
		r.ok(goWait(r.peers[0], *send, -1, r.e))
		r.ok(goWait(r.peers[1], *recv, -1, r.e))
		for i := range 3 {
			require.Equal(t, at(from, i), at(to, i))
		}
		require.ElementsMatch(t, []uint64{71, 72}, back())
	}
	done := pinned[cInt32](&r.cluster, 1)
	r.ok(goDone(r.peers[1], *recv, done, r.e))
	require.EqualValues(t, 1, *done)
	r.ok(goRecv(r.peers[1], r.view(1, 1, 1, 0), 0, 8, 73, recv, r.e))
	r.ok(goDone(r.peers[1], *recv, done, r.e))
	require.Zero(t, *done)
	r.ok(goCancel(r.peers[1], *recv, done, r.e))
	require.EqualValues(t, 1, *done)
	require.Equal(t, codeClosed, goWait(r.peers[1], *recv, -1, r.e))
	r.ok(goCancel(r.peers[1], *recv, done, r.e))
	require.Zero(t, *done, "it is over")
	require.Equal(t, []uint64{73}, back())
}

func TestTransfersThatDifferFailAtBothSides(t *testing.T) {
	r := newRing(t, 2)
	send, recv := pinned[cUint64](&r.cluster, 1), pinned[cUint64](&r.cluster, 1)
	r.ok(goSend(r.peers[0], r.view(3, 4000, 4000, 0), 1, 7, 74, send, r.e))
	r.ok(goRecv(r.peers[1], r.view(3, 4001, 4001, 0), 0, 7, 75, recv, r.e))
	for i, h := range []cUint64{*send, *recv} {
		require.Equal(t, codeInvalid, goWait(r.peers[i], h, -1, r.e))
		require.Contains(t, chars(&r.e.message), "[3 4001]")
		require.Equal(t, "peer "+decimal(1-i), chars(&r.e.subject))
	}
	require.ElementsMatch(t, []uint64{74, 75}, back())
}

func TestRefusedTransfersTakeNoOwner(t *testing.T) {
	r := newRing(t, 2)
	number := pinned[cUint64](&r.cluster, 1)
	v, twice := r.view(2, 2, 2, 0), r.view(2, 2, 2, 0)
	twice.strides[0] = 0
	for text, code := range map[string]func() cCode{
		"must not be NULL":             func() cCode { return goSend(r.peers[0], nil, 1, 7, 76, number, r.e) },
		"handle must not":              func() cCode { return goSend(r.peers[0], v, 1, 7, 76, nil, r.e) },
		"no such peer":                 func() cCode { return goSend(r.peers[0], v, 2, 7, 76, number, r.e) },
		"the cluster has no such peer": func() cCode { return goRecv(r.peers[0], v, 1<<32-1, 7, 76, number, r.e) },
		"too large":                    func() cCode { return goSend(r.peers[0], v, 1, 1<<63, 76, number, r.e) },
		"recv: ":                       func() cCode { return goRecv(r.peers[0], twice, 1, 7, 76, number, r.e) },
		"only a peer talks to peers":   func() cCode { return goSend(r.scheduler, v, 1, 7, 76, number, r.e) },
	} {
		require.Equal(t, codeInvalid, code(), text)
		require.Contains(t, chars(&r.e.message), text)
		require.Empty(t, back(), text)
	}
	require.Equal(t, codeInvalid, goWait(r.scheduler, 1, 0, r.e))
	require.Equal(t, codeStale, goWait(r.peers[0], 1, 0, r.e))
}

// agree makes a plan: peer 0 sends a view to peer 1.
func (r *ring) agree(from, to *cView, limit cInt64) (plans [2]cUint64, codes [2]cCode, texts [2]string) {
	move := func(v *cView, rank cUint32) *cMove {
		m := &cMove{view: *v, id: 5, peer: rank, label: pinnedText(&r.cluster, "weight")}
		r.pin.Pin(m)
		return m
	}
	out, in := move(from, 1), move(to, 0)
	numbers := [2]*cUint64{pinned[cUint64](&r.cluster, 1), pinned[cUint64](&r.cluster, 1)}
	name := pinnedText(&r.cluster, "weights")
	r.ok(goPlan(r.peers[0], name, out, 1, nil, 0, 77, limit, numbers[0], r.e))
	r.ok(goPlan(r.peers[1], name, nil, 0, in, 1, 78, limit, numbers[1], r.e))
	for i := range plans {
		plans[i] = *numbers[i]
		codes[i] = goWait(r.peers[i], plans[i], -1, r.e)
		texts[i] = chars(&r.e.message)
	}
	return plans, codes, texts
}

// pinnedText is a text that C holds.
func pinnedText(c *cluster, text string) *cChar {
	b := unsafe.Slice(pinned[byte](c, len(text)+1), len(text))
	copy(b, text)
	return (*cChar)(unsafe.Pointer(&b[0]))
}

func TestPlansOfC(t *testing.T) {
	r := newRing(t, 2)
	from, to := r.view(3, 4000, 4005, 100), r.view(3, 4000, 4000, -1)
	plans, codes, texts := r.agree(from, to, -1)
	require.Equal(t, [2]cCode{}, codes, texts)
	offered, version, handle, stats := pinned[cUint64](&r.cluster, 1), pinned[cUint64](&r.cluster, 1), pinned[cUint64](&r.cluster, 1), pinned[cPlanStats](&r.cluster, 1)
	require.Equal(t, codeInvalid, goPlanBegin(plans[0], 0, handle, r.e))
	require.Equal(t, codeInvalid, goPlanBegin(plans[0], 1, nil, r.e))
	for run := cUint64(1); run < 4; run++ {
		at(from, 1)[2] = float64(-run)
		r.ok(goPlanBegin(plans[0], run, handle, r.e))
		sends := *handle
		for *offered = 0; *offered != run; {
			r.ok(goPlanState(plans[1], offered, version, nil, r.e))
			require.Equal(t, run-1, *version)
		}
		r.ok(goPlanBegin(plans[1], 0, handle, r.e))
		r.ok(goWait(r.peers[1], *handle, -1, r.e))
		r.ok(goWait(r.peers[0], sends, -1, r.e))
		r.ok(goPlanState(plans[1], nil, version, stats, r.e))
		require.Equal(t, run, *version)
		for i := range 3 {
			require.Equal(t, at(from, i), at(to, i))
		}
	}
	require.EqualValues(t, 3*4000*8, stats.received)
	require.EqualValues(t, 1, stats.moves)
	require.EqualValues(t, 1, stats.pairs)
	require.Equal(t, codeInvalid, goPlanBegin(plans[0], 2, handle, r.e), "it falls")
	require.Empty(t, back(), "the plan uses its views")
	for i := range plans {
		r.ok(goPlanClose(plans[i], -1, r.e))
		require.Equal(t, codeStale, goPlanClose(plans[i], -1, r.e))
		require.Contains(t, chars(&r.e.message), "was closed")
	}
	require.ElementsMatch(t, []uint64{77, 78}, back())
}

func TestPlansThatDoNotFitFailAtBothSides(t *testing.T) {
	r := newRing(t, 2)
	plans, codes, texts := r.agree(r.view(3, 4, 4, 0), r.view(3, 5, 5, 0), -1)
	handle := pinned[cUint64](&r.cluster, 1)
	for i := range plans {
		require.Equal(t, codeInvalid, codes[i], texts[i])
		require.Contains(t, texts[i], "plan weights: peer "+decimal(1-i)+": move 5 (weight)")
		require.Equal(t, codeInvalid, goPlanBegin(plans[i], 1, handle, r.e))
		require.Equal(t, codeInvalid, goPlanState(plans[i], nil, nil, nil, r.e))
		r.ok(goPlanClose(plans[i], 0, r.e))
	}
	require.ElementsMatch(t, []uint64{77, 78}, back())
}

func TestAPlanThatNobodyElseMakesExpires(t *testing.T) {
	r := newRing(t, 2)
	number, name := pinned[cUint64](&r.cluster, 1), pinnedText(&r.cluster, "alone")
	m := &cMove{view: *r.view(1, 1, 1, 0), peer: 1}
	r.pin.Pin(m)
	r.ok(goPlan(r.peers[0], name, m, 1, nil, 0, 79, 1e6, number, r.e))
	handle := pinned[cUint64](&r.cluster, 1)
	require.Equal(t, codeExpired, goWait(r.peers[0], *number, -1, r.e))
	require.Equal(t, "peer 1", chars(&r.e.subject))
	require.Equal(t, codeExpired, goPlanBegin(*number, 1, handle, r.e))
	r.ok(goPlanClose(*number, 0, r.e))
	require.Equal(t, []uint64{79}, back())

	r.ok(goPlan(r.peers[0], name, m, 1, nil, 0, 80, -1, number, r.e)) // a close gives it up
	require.Equal(t, codeTimeout, goWait(r.peers[0], *number, 1000, r.e))
	require.Equal(t, codeBusy, goPlanBegin(*number, 1, handle, r.e))
	r.ok(goPlanClose(*number, -1, r.e))
	require.Equal(t, []uint64{80}, back())

	r.ok(goPlan(r.peers[0], name, m, 1, nil, 0, 81, -1, number, r.e)) // and so does the end of the node
	r.ok(goClose(r.peers[0], r.e))
	require.Equal(t, codeClosed, goPlanClose(*number, -1, r.e))
	require.Equal(t, []uint64{81}, back())
}

func TestRefusedPlansTakeNoOwner(t *testing.T) {
	r := newRing(t, 2)
	number, name := pinned[cUint64](&r.cluster, 1), pinnedText(&r.cluster, "weights")
	good := cMove{view: *r.view(2, 2, 2, 0), peer: 1}
	wide, wrong := good, good
	wide.view.rank, wrong.reserved = 9, 1
	moves := unsafe.Slice(pinned[cMove](&r.cluster, 2), 2)
	for text, m := range map[string][]cMove{"sends[1] : view: it has 9 dimensions": {good, wide}, "reserved is not 0": {good, wrong}} {
		copy(moves, m)
		free := foreign.windows.Unused()
		require.Equal(t, codeInvalid, goPlan(r.peers[0], name, &moves[0], 2, nil, 0, 82, -1, number, r.e))
		require.Contains(t, chars(&r.e.message), text)
		require.Empty(t, back(), text)
		require.LessOrEqual(t, free, foreign.windows.Unused())
	}
	require.Equal(t, codeInvalid, goPlan(r.peers[0], nil, nil, 0, nil, 0, 82, -1, number, r.e))
	require.Equal(t, codeInvalid, goPlan(r.peers[0], name, nil, 1, nil, 0, 82, -1, number, r.e))
	require.Equal(t, codeInvalid, goPlan(r.peers[0], name, nil, 0, nil, 1, 82, -1, number, r.e))
	require.Equal(t, codeInvalid, goPlan(r.scheduler, name, nil, 0, nil, 0, 82, -1, number, r.e))
	require.Empty(t, back())
}

// The memory of a plan stays although the program gives its number up.
func TestPlansKeepMemoryThatIsFreed(t *testing.T) {
	r := newRing(t, 2)
	data, number := pinned[unsafe.Pointer](&r.cluster, 1), pinned[cUint64](&r.cluster, 1)
	r.ok(goAlloc(r.peers[0], 8, 0, data, number, r.e))
	from := cView{data: *data, memory: *number, dtype: cUint8(tensor.Float64)}
	*(*float64)(*data) = 42
	to := cView{data: unsafe.Pointer(pinned[float64](&r.cluster, 1)), dtype: cUint8(tensor.Float64)}
	plans, codes, texts := r.agree(&from, &to, -1)
	require.Equal(t, [2]cCode{}, codes, texts)
	r.ok(goFree(*number, r.e))
	handle := pinned[cUint64](&r.cluster, 1)
	r.ok(goPlanBegin(plans[0], 9, handle, r.e))
	r.ok(goPlanBegin(plans[1], 9, handle, r.e))
	r.ok(goWait(r.peers[1], *handle, -1, r.e))
	require.Equal(t, 42.0, *(*float64)(to.data))
	for _, p := range plans {
		r.ok(goPlanClose(p, -1, r.e))
	}
	require.ElementsMatch(t, []uint64{77, 78}, back())
}

func TestGroupsOfC(t *testing.T) {
	r := newRing(t, 3)
	name, ranks := pinnedText(&r.cluster, "all"), pinned[cUint32](&r.cluster, 3)
	copy(unsafe.Slice(ranks, 3), []cUint32{2, 0, 1})
	of := make([]cUint64, 3)
	number, handle := pinned[cUint64](&r.cluster, 1), pinned[cUint64](&r.cluster, 1)
	for i, id := range r.peers {
		r.ok(goGroup(id, name, ranks, 3, number, r.e))
		of[i] = *number
	}
	r.ok(goGroupBarrier(of[0], handle, r.e))
	first := *handle
	require.Equal(t, codeBusy, goGroupBarrier(of[0], handle, r.e))
	require.Equal(t, codeTimeout, goWait(r.peers[0], first, 1000, r.e))
	require.Contains(t, chars(&r.e.message), "barrier of group all")
	require.Equal(t, codeBusy, goGathered(r.peers[0], first, 0, nil, 0, number, r.e))
	for _, g := range of[1:] {
		r.ok(goGroupBarrier(g, handle, r.e))
	}
	r.ok(goWait(r.peers[0], first, -1, r.e))
	require.Equal(t, codeInvalid, goGathered(r.peers[0], first, 0, nil, 0, number, r.e))

	data := pinned[byte](&r.cluster, 100000)
	handles := make([]cUint64, 3)
	for i, g := range of {
		b := unsafe.Slice(data, 100000)
		for k := range b {
			b[k] = byte(i)
		}
		for codeOK != goGroupAllGather(g, unsafe.Pointer(data), cUint64(i*50000), handle, r.e) {
			runtime.Gosched() // the barrier is not over everywhere
		}
		handles[i] = *handle
	}
	for i, h := range handles {
		r.ok(goWait(r.peers[i], h, -1, r.e))
		for member, rank := range []int{2, 0, 1} {
			want := cCode(codeTooSmall)
			if rank == 0 {
				want = codeOK
			}
			require.Equal(t, want, goGathered(r.peers[i], h, cUint64(member), nil, 0, number, r.e))
			require.EqualValues(t, rank*50000, *number)
			r.ok(goGathered(r.peers[i], h, cUint64(member), unsafe.Pointer(data), 100000, number, r.e))
			for _, b := range unsafe.Slice(data, *number) {
				require.EqualValues(t, rank, b)
			}
		}
		require.Equal(t, codeInvalid, goGathered(r.peers[i], h, 3, nil, 0, number, r.e))
		require.Equal(t, codeStale, goGathered(r.peers[(i+1)%3], h, 0, nil, 0, number, r.e), "of another node")
	}
	r.ok(goGroupClose(of[1], r.e)) // fails an operation of the others
	r.ok(goGroupBarrier(of[0], handle, r.e))
	first = *handle
	r.ok(goGroupClose(of[0], r.e))
	require.Equal(t, codeStale, goWait(r.peers[0], first, 0, r.e))
	require.Equal(t, codeStale, goGroupClose(of[0], r.e))
	r.ok(goGroupBarrier(of[2], handle, r.e))
	require.Equal(t, codeRemote, goWait(r.peers[2], *handle, -1, r.e))
	require.Equal(t, codeInvalid, goGroup(r.peers[0], name, ranks, 1, number, r.e), "this peer is not a member")
	require.Equal(t, codeInvalid, goGroup(r.peers[0], nil, ranks, 1, number, r.e))
	require.Equal(t, codeInvalid, goGroup(r.peers[0], name, nil, 1, number, r.e))
}

// Views of any member go to the others, and their sums to one. The owners come back when nobody uses the views.
func TestBroadcastAndReduceOfC(t *testing.T) {
	r := newRing(t, 3)
	name, ranks := pinnedText(&r.cluster, "all"), pinned[cUint32](&r.cluster, 3)
	copy(unsafe.Slice(ranks, 3), []cUint32{2, 0, 1})
	of, byMember := make([]cUint64, 3), []int{2, 0, 1}
	number, handle := pinned[cUint64](&r.cluster, 1), pinned[cUint64](&r.cluster, 1)
	for i, rank := range byMember {
		r.ok(goGroup(r.peers[rank], name, ranks, 3, number, r.e))
		of[i] = *number
	}
	views := []*cView{r.view(3, 400, 405, 1000), r.view(3, 400, 400, 0), r.view(3, 400, 500, 2000)}
	into := r.view(3, 400, 410, -1)
	waitFor := func(begin func(i int) cCode, want cCode) {
		var handles [3]cUint64
		for i := range of {
			r.ok(begin(i))
			handles[i] = *handle
		}
		for i, rank := range byMember {
			require.Equal(t, want, goWait(r.peers[rank], handles[i], -1, r.e), chars(&r.e.message))
		}
	}
	waitFor(func(i int) cCode {
		var to *cView
		if i == 2 {
			to = into
		}
		return goGroupReduce(of[i], views[i], to, cUint32(peer.Sum), 2, cUint64(101+i), handle, r.e)
	}, codeOK)
	require.ElementsMatch(t, []uint64{101, 102, 103}, back())
	for i := range 3 {
		for k, got := range at(into, i) {
			require.Equal(t, at(views[0], i)[k]+at(views[1], i)[k]+at(views[2], i)[k], got)
		}
	}
	waitFor(func(i int) cCode { return goGroupBroadcast(of[i], views[i], 1, cUint64(104+i), handle, r.e) }, codeOK)
	require.ElementsMatch(t, []uint64{104, 105, 106}, back())
	for i := range 3 {
		require.Equal(t, at(views[1], i), at(views[0], i))
		require.Equal(t, at(views[1], i), at(views[2], i))
	}

	wide := *views[0]
	wide.rank = 9
	r.pin.Pin(&wide)
	for text, code := range map[string]func() cCode{
		"view must not be NULL":   func() cCode { return goGroupBroadcast(of[0], nil, 0, 107, handle, r.e) },
		"handle must not be NULL": func() cCode { return goGroupBroadcast(of[0], views[0], 0, 107, nil, r.e) },
		"it has 9 dimensions":     func() cCode { return goGroupBroadcast(of[0], &wide, 0, 107, handle, r.e) },
		"into at the root":        func() cCode { return goGroupReduce(of[0], views[0], nil, 1, 0, 107, handle, r.e) },
		"there is no such merge":  func() cCode { return goGroupReduce(of[0], views[0], into, 256, 0, 107, handle, r.e) },
		"view, and into":          func() cCode { return goGroupReduce(of[0], nil, into, 1, 0, 107, handle, r.e) },
	} {
		require.Equal(t, codeInvalid, code(), text)
		require.Contains(t, chars(&r.e.message), text)
		require.Empty(t, back(), text)
	}
	// What only the members find out together fails at all of them, and the owners come back.
	waitFor(func(i int) cCode { return goGroupBroadcast(of[i], views[i], cUint32(i%2), cUint64(108+i), handle, r.e) }, codeInvalid)
	require.ElementsMatch(t, []uint64{108, 109, 110}, back())
	for i := range of {
		require.Equal(t, codeOK, goGroupBroadcast(of[i], views[i], 0, 111, handle, r.e))
		require.Equal(t, codeInvalid, goWait(r.peers[byMember[i]], *handle, -1, r.e), "the group is over")
		require.Equal(t, []uint64{111}, back())
	}
}

// Budget: 0 allocations in the steady state for small transfers, a run of a plan, and waits.
func TestPeersAllocateNothing(t *testing.T) {
	r := newRing(t, 2)
	plans, codes, texts := r.agree(r.view(1, 4000, 4000, 1), r.view(1, 4000, 4000, -1), -1)
	from, to := r.view(2, 50, 60, 1), r.view(2, 50, 50, -1)
	require.Equal(t, [2]cCode{}, codes, texts)
	handles := unsafe.Slice(pinned[cUint64](&r.cluster, 4), 4)
	owners := pinned[cUint64](&r.cluster, 8)
	version := cUint64(0)
	round := func() {
		version++
		r.must(goSend(r.peers[0], from, 1, 7, 91, &handles[0], r.e))
		r.must(goRecv(r.peers[1], to, 0, 7, 92, &handles[1], r.e))
		r.must(goPlanBegin(plans[0], version, &handles[2], r.e))
		r.must(goPlanBegin(plans[1], version, &handles[3], r.e))
		for i, h := range handles {
			r.must(goWait(r.peers[i%2], h, -1, r.e))
		}
		goReleased(owners, 8)
	}
	for range 300 {
		round()
	}
	got := testing.AllocsPerRun(500, round)
	if !race.Enabled {
		require.Less(t, got, 1.0)
	}
}

func (r *ring) must(code cCode) {
	if code != codeOK {
		r.t.Fatal(chars(&r.e.message))
	}
}
