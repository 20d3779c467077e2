//go:build cgo

package main

import (
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/capi/internal/numbers"
)

// Several threads exchange at once while two answer each request: one of them gets to, and the other is refused.
func TestThreadsExchangeAtOnce(t *testing.T) {
	const threads, rounds = 4, 50
	c := newCluster(t)
	var all sync.WaitGroup
	for i := range threads {
		x := newExchange(c, cUint64(100+i))
		e := new(cError)
		*x.x.push_keys, *x.x.pull_keys = cUint64(10+i), cUint64(20+i)
		*(*float64)(x.x.push.data) = float64(i)
		all.Go(func() {
			for range rounds {
				if goPushPull(x.worker, x.x, x.handle, e) != codeOK || goWait(x.worker, *x.handle, -1, e) != codeOK {
					t.Error(chars(&e.message))
					return
				}
				if got := *(*float64)(x.x.pull.data); got != float64(i) {
					t.Errorf("thread %d got %v", i, got)
				}
			}
		})
	}
	x := newExchange(c, 0)
	for range threads * rounds {
		x.must(goGetBatch(x.server, 1, 0, -1, x.b, x.e))
		codes := answerTwice(x)
		require.Contains(t, codes, codeOK)
		require.True(t, slices.Contains(codes, codeBusy) || slices.Contains(codes, codeStale), codes)
	}
	all.Wait()
	var owners [64]cUint64
	back := map[cUint64]int{}
	for n := cUint64(1); n > 0; {
		n = goReleased(&owners[0], cUint64(len(owners)))
		for _, o := range owners[:n] {
			back[o]++
		}
	}
	for i := range cUint64(threads) {
		require.Equal(t, rounds, back[100+i])
	}
}

// answerTwice echoes the request of a batch by two threads.
func answerTwice(x *exchange) []cCode {
	codes := make([]cCode, 2)
	var both sync.WaitGroup
	for i := range codes {
		both.Go(func() {
			e := new(cError)
			codes[i] = goRespond(x.server, x.b.requests.handler, x.b.push, 1, 0, nil, e)
		})
	}
	both.Wait()
	return codes
}

// A closed queue drops what it is told, and its number; what it was told before is in order.
func TestQueues(t *testing.T) {
	e := new(cError)
	number, fd := new(cUint64), new(cInt32)
	require.Equal(t, codeOK, goQueueOpen(number, fd, e))
	q, ok := queues.Get(numbers.ID(*number))
	require.True(t, ok)
	for token := range uint64(5) {
		q.put(token)
	}
	tokens, count := make([]cUint64, 3), new(cUint64)
	require.Equal(t, codeOK, goQueueTake(*number, &tokens[0], 3, count, e))
	require.Equal(t, []cUint64{0, 1, 2}, tokens)
	require.Equal(t, codeOK, goQueueTake(*number, &tokens[0], 3, count, e))
	require.EqualValues(t, 2, *count)
	q.put(7)
	require.Equal(t, codeOK, goQueueClose(*number, e))
	q.put(8)
	require.Empty(t, q.tokens)
	require.Equal(t, codeStale, goQueueTake(*number, &tokens[0], 3, count, e))
	require.Equal(t, codeStale, goQueueClose(*number, e))
}

func TestLabelsAreKeptOnceAndLimited(t *testing.T) {
	known := interned{known: map[string]string{}}
	text := []byte("layer 3\x00")
	a, err := known.text((*cChar)(unsafe.Pointer(&text[0])))
	require.NoError(t, err)
	require.Equal(t, "layer 3", a)
	_, err = known.text((*cChar)(unsafe.Pointer(&text[0])))
	require.NoError(t, err)
	require.Len(t, known.known, 1)
	for i := range maxLabels - 1 {
		known.known[decimal(i)] = ""
	}
	_, err = known.text((*cChar)(unsafe.Pointer(&text[0])))
	require.NoError(t, err, "known")
	other := []byte("other\x00")
	_, err = known.text((*cChar)(unsafe.Pointer(&other[0])))
	require.Equal(t, codeInvalid, codeOf(err))
}
