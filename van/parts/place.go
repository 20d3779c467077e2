package parts

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van"
)

// Place asks p for the memory of the payload of d, appends it to dst and returns dst. It holds p to its promise. When
// the payload is refused, Place sets d.Refused. An error ends the connection.
func Place(p van.Placer, ep van.Endpoint, d *van.Delivery, dst [][]byte) ([][]byte, error) {
	dst, err := p.Place(ep, &d.Header, d.Meta, dst)
	if err == nil {
		if n := van.Total(dst); n != int64(d.Header.Payload) {
			err = errs.Invalid("place: payload: the Placer gave memory of another size (got %d bytes, want %d)", n, d.Header.Payload)
		}
	}
	if err != nil {
		var broken *stepvan.ProtocolError // here, as it is on the heap
		if errors.As(err, &broken) {
			return dst, err
		}
	}
	d.Refused = err
	return dst, nil
}
