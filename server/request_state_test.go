package server

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The moves of a request, as a reader expects them: every other pair of states is refused.
func TestStatesOfARequest(t *testing.T) {
	allowed := map[requestState][]requestState{
		requestFree:           {requestReceiving, requestRefused},
		requestReceiving:      {requestQueued, requestFree}, // complete; or refused, aborted
		requestQueued:         {requestTaken, requestFree},  // by GetBatch; or with a failed batch, or the server's end
		requestRefused:        {requestFree},
		requestTaken:          {requestAnswering, requestAnsweredAtStop, requestFree},
		requestAnswering:      {requestFree, requestTaken}, // sent; or not, and it can be answered again
		requestAnsweredAtStop: {requestClosing, requestFree},
		requestClosing:        {requestFree, requestAnsweredAtStop},
	}
	for from := range requestStates {
		for to := range requestStates {
			r := &requestSlot{state: from}
			if slices.Contains(allowed[from], to) {
				require.NotPanics(t, func() { r.become(to) }, "%v to %v", from, to)
				require.Equal(t, to, r.state)
				continue
			}
			require.Panics(t, func() { r.become(to) }, "%v to %v", from, to)
			require.Equal(t, from, r.state, "a refused move changes nothing")
		}
	}
}

// A Respond that fails gives the request back as it was. While one runs, another one is refused.
func TestRespondMovesARequestAndBack(t *testing.T) {
	for held, during := range map[requestState]requestState{
		requestTaken:          requestAnswering,
		requestAnsweredAtStop: requestClosing,
	} {
		r := &requestSlot{state: held}
		atStop := r.answeredAtStop()
		require.Equal(t, held == requestAnsweredAtStop, atStop)
		require.True(t, r.respondTo())
		require.Equal(t, during, r.state)
		require.False(t, r.respondTo(), "it is being answered")
		require.Equal(t, atStop, r.answeredAtStop())
		r.undoRespond()
		require.Equal(t, held, r.state)
	}
}

// Only what the program holds can be found by its ID.
func TestWhichRequestsCanBeFound(t *testing.T) {
	for state := range requestStates {
		r := &requestSlot{state: state}
		r.generation.Store(1)
		table := requestTable{slots: []*requestSlot{r}}
		held := state == requestTaken || state == requestAnswering || state == requestAnsweredAtStop || state == requestClosing
		require.Equal(t, held, table.find(r.id()) != nil, "%v", state)
		require.Nil(t, table.find(r.id()+1<<32), "of another generation")
		require.Nil(t, table.find(r.id()+1), "of another slot")
	}
}

// A chunk goes one way round: each state has one that may follow.
func TestStatesOfAChunk(t *testing.T) {
	next := map[chunkState]chunkState{
		chunkAnnounced:   chunkGranted,
		chunkGranted:     chunkWithdrawing,
		chunkWithdrawing: chunkFreeing,
		chunkFreeing:     chunkAnnounced,
	}
	for from := range chunkStates {
		for to := range chunkStates {
			c := &chunk{state: from}
			if next[from] == to {
				require.NotPanics(t, func() { c.become(to) }, "%v to %v", from, to)
				require.Equal(t, to, c.state)
				continue
			}
			require.Panics(t, func() { c.become(to) }, "%v to %v", from, to)
			require.Equal(t, from, c.state)
		}
	}
}
