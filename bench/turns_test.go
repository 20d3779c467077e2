package bench

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTurns(t *testing.T) {
	seats := newCircle(3)
	var order []int // written by whoever has the turn
	ended := make(chan error, len(seats))
	for i, s := range seats {
		go func() {
			defer s.leave()
			err := s.take(t.Context())
			for round := 0; round < i+1 && err == nil; round++ {
				order = append(order, i)
				err = s.next(t.Context())
			}
			ended <- err
		}()
	}
	for range seats {
		require.NoError(t, <-ended)
	}
	require.Equal(t, []int{0, 1, 2, 1, 2, 2}, order)
}

// Who leaves before its turn is passed over, also when the turn was given to it already.
func TestWhoLeavesIsPassedOver(t *testing.T) {
	seats := newCircle(3)
	seats[1].leave()
	require.NoError(t, seats[0].take(t.Context()))
	seats[0].leave()
	require.NotEmpty(t, seats[2].turn)
	seats[2].leave()

	seats = newCircle(2)
	seats[0].leave()
	require.NotEmpty(t, seats[1].turn)
}

func TestTheContextEndsTheWaitForATurn(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	require.ErrorIs(t, newCircle(2)[1].take(ctx), why)
}
