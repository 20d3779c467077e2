package parts

import (
	"fmt"
	"io"

	"github.com/stepvan/stepvan"
)

// ErrClosedByPeer is the loss of a peer that has closed the connection.
var ErrClosedByPeer = fmt.Errorf("%w: closed by the peer: %w", stepvan.ErrPeerLost, io.EOF)
