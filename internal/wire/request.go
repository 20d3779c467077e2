package wire

import "github.com/stepvan/stepvan/tensor"

// Ops of the request channel, worker to server.
const (
	// OpRequest is one worker's request, of which every paired server gets its own.
	OpRequest uint8 = 1
	// OpRouted is a request routed by key or by name: other servers may get none.
	OpRouted uint8 = 2
	// OpFence says that its sender writes no more into the grants that OpWithdraw of Header.Generation, or an earlier
	// one, has listed. What it has written belongs to messages before the fence.
	OpFence uint8 = 3
)

// CheckFence checks the form of the header of an OpFence. An error is a *stepvan.ProtocolError.
func CheckFence(h *Header) error {
	if h.Total != 0 || h.Meta != 0 || h.Pushes != 0 || h.Pulls != 0 {
		return bad("total", offTotal, "a fence with %d bytes of payload, %d of meta, %d pushes and %d pulls", h.Total, h.Meta, h.Pushes, h.Pulls)
	}
	return nil
}

// Ops of the response channels, server to worker.
const (
	// OpResponse answers the request that Header.Request names. It holds the tensors for its pulls, nothing when it had
	// no pulls, or a text with FlagError.
	OpResponse uint8 = 1
)

// Request is the meta of a request. Pushes are the tensors of its payload, in order; those with DescInPlace have no
// bytes there. Pulls are the tensors that the response is to hold.
//
// The same value can be used for the next message: decoding reuses its slices.
type Request struct {
	Pushes []Descriptor
	Pulls  []Descriptor
}

// Decode reads the meta of the request that h heads and checks it against h.
// 0 allocations in the steady state. An error is a *stepvan.ProtocolError.
func (r *Request) Decode(h *Header, meta []byte) error {
	if h.Op != OpRequest && h.Op != OpRouted {
		return bad("op", offOp, "%d is not a request", h.Op)
	}
	l := list{rest: meta}
	r.Pushes = l.decode(r.Pushes[:0], h.Pushes)
	payload := l.payload
	r.Pulls = l.decode(r.Pulls[:0], h.Pulls)
	for i := range r.Pulls {
		if l.err == nil && r.Pulls[i].Flags&DescInPlace != 0 {
			return bad("flags", l.at, "a pull that is answered before it is asked for")
		}
	}
	return l.end(h.Total, payload)
}

// Response is the meta of a response: what the payload holds for each pull, in
// the order of the request, and the server's timestamps. Decoding reuses the slice.
type Response struct {
	Pulls  []Descriptor
	Stamps [4]int64 // zero without FlagTrace
}

// Decode reads the meta of the response that h heads, one without FlagError, and
// checks it against h. 0 allocations in the steady state. An error is a *stepvan.ProtocolError.
func (r *Response) Decode(h *Header, meta []byte) (err error) {
	if err := checkResponse(h); err != nil {
		return err
	}
	r.Stamps = [4]int64{}
	if h.Flags&FlagTrace != 0 {
		if meta, r.Stamps, err = CutStamps(meta); err != nil {
			return err
		}
	}
	l := list{rest: meta}
	r.Pulls = l.decode(r.Pulls[:0], h.Pulls)
	return l.end(h.Total, l.payload)
}

func checkResponse(h *Header) error {
	if h.Op != OpResponse {
		return bad("op", offOp, "%d is not a response", h.Op)
	}
	if h.Pushes != 0 {
		return bad("pushes", offPushes, "a response with %d pushes", h.Pushes)
	}
	return nil
}

// list decodes consecutive descriptors.
type list struct {
	rest    []byte
	at      int    // bytes decoded
	bytes   uint64 // sum of the descriptors' Bytes
	payload uint64 // of these, the bytes that are in the payload
	err     error
}

func (l *list) decode(dst []Descriptor, n uint32) []Descriptor {
	for i := uint32(0); i < n && l.err == nil; i++ {
		if len(dst) < cap(dst) {
			dst = dst[:len(dst)+1] // next sets every field
		} else {
			dst = append(dst, Descriptor{})
		}
		l.next(&dst[len(dst)-1])
	}
	return dst
}

func (l *list) next(d *Descriptor) {
	rest, err := d.Decode(l.rest, l.at)
	if err != nil {
		l.err = err
		return
	}
	sum := l.bytes + d.Bytes
	if sum < l.bytes || sum > 1<<63-1 {
		l.err = bad("bytes", l.at+8, "the tensors together have more bytes than 63 bits can count")
		return
	}
	l.bytes = sum
	l.payload += d.inMessage()
	l.at += len(l.rest) - len(rest)
	l.rest = rest
}

// end returns the first error. It checks the bytes of the payload, and that nothing is left of the meta.
func (l *list) end(got, want uint64) error {
	switch {
	case l.err != nil:
		return l.err
	case got != want:
		return bad("total", offTotal, "the payload has another size than its tensors (got %d bytes, want %d)", got, want)
	case len(l.rest) != 0:
		return bad("meta", l.at, "%d bytes behind the last descriptor", len(l.rest))
	}
	return nil
}

// KeyOf is a descriptor that has only a key and a number of bytes.
func KeyOf(k tensor.Key, bytes int64) Descriptor {
	return Descriptor{Key: k, Bytes: uint64(bytes), DType: tensor.Uint8, Shape: tensor.ShapeOf(bytes)}
}
