package parts

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

type placer struct {
	size int
	err  error
}

func (p placer) Place(_ van.Endpoint, _ *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	return append(dst, make([]byte, p.size)), p.err
}

func TestThePlacerIsHeldToItsPromise(t *testing.T) {
	var other [1][]byte
	d := van.Delivery{Header: wire.Header{Payload: 10}}
	dst, err := Place(placer{size: 10}, nil, &d, other[:0])
	require.NoError(t, err)
	require.NoError(t, d.Refused)
	require.Equal(t, &other[0], &dst[0], "the memory of dst")

	_, err = Place(placer{size: 9}, nil, &d, nil)
	require.NoError(t, err)
	require.ErrorIs(t, d.Refused, stepvan.ErrInvalid)
	require.ErrorContains(t, d.Refused, "got 9 bytes, want 10")

	no := errors.New("no")
	_, err = Place(placer{err: no}, nil, &d, nil)
	require.NoError(t, err)
	require.Equal(t, no, d.Refused)

	_, err = Place(placer{err: &stepvan.ProtocolError{Field: "tensor"}}, nil, &d, nil)
	var broken *stepvan.ProtocolError
	require.ErrorAs(t, err, &broken)
}

func TestUserValue(t *testing.T) {
	var u UserValue
	require.Nil(t, u.User())
	u.SetUser(7)
	require.Equal(t, 7, u.User())
	u.SetUser(nil)
	require.Nil(t, u.User())
}
