package bench

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTurns(t *testing.T) {
	turns := newRotation(3)
	var order []int // written by the one that has the turn
	ended := make(chan error, len(turns))
	for i, s := range turns {
		go func() {
			defer s.release()
			err := s.acquire(t.Context())
			for round := 0; round < i+1 && err == nil; round++ {
				order = append(order, i)
				err = s.yield(t.Context())
			}
			ended <- err
		}()
	}
	for range turns {
		require.NoError(t, <-ended)
	}
	require.Equal(t, []int{0, 1, 2, 1, 2, 2}, order)
}

// A measurement that releases its turn passes it on, as soon as it has it.
func TestAReleasedTurnIsPassedOn(t *testing.T) {
	turns := newRotation(3)
	released := make(chan struct{})
	go func() {
		turns[1].release()
		close(released)
	}()
	require.NoError(t, turns[0].acquire(t.Context()))
	require.Empty(t, turns[2].token)
	turns[0].release()
	<-released
	require.NotEmpty(t, turns[2].token)
	turns[2].release()

	turns = newRotation(2)
	turns[0].release()
	require.NotEmpty(t, turns[1].token)
	turns[1].release()
}

func TestTheContextEndsTheWaitForATurn(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	require.ErrorIs(t, newRotation(2)[1].acquire(ctx), why)
}
