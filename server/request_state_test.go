package server

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The life of a request, move by move. Every other pair of state and event changes nothing.
func TestStatesOfARequest(t *testing.T) {
	type move struct {
		from requestState
		on   requestEvent
	}
	moves := map[move]requestState{
		{requestFree, eventArrive}:            requestArriving,
		{requestFree, eventRefuse}:            requestRefused,
		{requestArriving, eventComplete}:      requestQueued,
		{requestArriving, eventEnd}:           requestFree, // refused, or its worker is lost
		{requestQueued, eventTake}:            requestTaken,
		{requestQueued, eventEnd}:             requestFree, // with a failed batch, or with the server
		{requestRefused, eventEnd}:            requestFree,
		{requestTaken, eventRespond}:          requestAnswering,
		{requestTaken, eventAnswerAtStop}:     requestAnsweredAtStop,
		{requestTaken, eventEnd}:              requestFree, // the server was closed
		{requestAnswering, eventEnd}:          requestFree,
		{requestAnswering, eventUndo}:         requestTaken,
		{requestAnsweredAtStop, eventRespond}: requestClosing,
		{requestAnsweredAtStop, eventEnd}:     requestFree,
		{requestClosing, eventEnd}:            requestFree,
		{requestClosing, eventUndo}:           requestAnsweredAtStop,
	}
	for from := requestFree; from < requestStates; from++ {
		for event := range requestEvents {
			r := &requestSlot{state: from}
			to, ok := moves[move{from, event}]
			require.Equal(t, ok, r.on(event), "event %d in state %d", event, from)
			if !ok {
				to = from
			}
			require.Equal(t, to, r.state, "event %d in state %d", event, from)
		}
	}
}

// While one Respond runs, another one is refused. A request that was answered at stop stays so.
func TestRespondMovesARequestAndBack(t *testing.T) {
	for held, atStop := range map[requestState]bool{requestTaken: false, requestAnsweredAtStop: true} {
		r := &requestSlot{state: held}
		require.Equal(t, atStop, r.answeredAtStop())
		require.True(t, r.on(eventRespond))
		require.False(t, r.on(eventRespond))
		require.Equal(t, atStop, r.answeredAtStop())
		require.True(t, r.on(eventUndo))
		require.Equal(t, held, r.state)
	}
}

// Only what the program holds can be found by its ID.
func TestWhichRequestsCanBeFound(t *testing.T) {
	held := []requestState{requestTaken, requestAnswering, requestAnsweredAtStop, requestClosing}
	for state := requestFree; state < requestStates; state++ {
		var table requestTable
		slot, r := table.slots.Take()
		r.state = state
		id := RequestID(slot)
		require.Equal(t, slices.Contains(held, state), table.find(id) != nil, "state %d", state)
		require.Nil(t, table.find(id+1<<32), "of another generation")
		require.Nil(t, table.find(id+1), "of another slot")
	}
}

// A chunk goes one way round, and leaves only the state that it is in.
func TestStatesOfAChunk(t *testing.T) {
	next := map[chunkState]chunkState{
		chunkAnnounced:   chunkGranted,
		chunkGranted:     chunkWithdrawing,
		chunkWithdrawing: chunkFreeing,
		chunkFreeing:     chunkAnnounced,
	}
	for is := range chunkStates {
		for left := range chunkStates {
			c := &chunk{state: is}
			require.Equal(t, is == left, c.leave(left))
			if is == left {
				require.Equal(t, next[is], c.state)
			} else {
				require.Equal(t, is, c.state)
			}
		}
	}
}
