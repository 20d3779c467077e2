package van

// GrantID names a grant to the peer that holds it. Foreign to the granter's
// addresses: a peer cannot compute one from another.
type GrantID uint64

// Rights of a grant.
type Rights uint8

// Rights bits.
const (
	RightWrite Rights = 1 << iota
	RightRead
)

// Grant allows one peer to reach one range of memory until it is withdrawn.
type Grant struct {
	ID         GrantID
	Generation uint32 // of the registration; a target with another generation is refused
	Rights     Rights
	Length     int64 // bytes
}

// Target addresses a byte in a grant of the peer: where a segment of a one-sided write, or a View, begins.
type Target struct {
	Grant      GrantID
	Generation uint32
	Offset     int64
}

// Granter is implemented by the endpoints of vans with Caps.OneSided. Grant and Withdraw
// have one caller at a time per endpoint, together with Send; Map may be called concurrently with everything.
type Granter interface {
	// Grant lets the peer of this endpoint reach mem, which is not empty. The memory stays the
	// caller's; it must live until Withdraw's completion or EventDetached. Errors:
	// stepvan.ErrNotSupported when mem is not in memory that the van can share,
	// errs.ErrNoGrant, which is one of these, when there is no room for another one, or for the file that mem is in:
	// there may be when a Withdraw has completed or a file has gone,
	// stepvan.ErrInvalid for rights that do not exist, stepvan.ErrClosed or
	// stepvan.ErrPeerLost after the end, stepvan.ErrWouldBlock when the queue is full.
	Grant(mem []byte, generation uint32, rights Rights) (Grant, error)

	// Withdraw ends a grant: from here on the peer can begin nothing with it. When the completion
	// with op arrives, no write of the peer can reach the memory any more, and no
	// View of it is out: only then may it be used for something else. That may take as
	// long as the peer keeps a View. A write that comes too late is refused with
	// stepvan.ErrStale, or costs the writer an error completion with it, and touches nothing.
	// A completion with an error (the connection has ended) says nothing about the memory: EventDetached
	// does. Errors: stepvan.ErrStale when g is withdrawn already or none of this
	// endpoint's, stepvan.ErrWouldBlock when the queue is full, stepvan.ErrClosed or stepvan.ErrPeerLost after the end.
	Withdraw(g GrantID, op OpID) error

	// Map returns n bytes of the peer's memory from t on, as this process sees them, for use
	// in place with the rights asked for. No allocation, and no system call for a
	// grant that was mapped before. Errors: stepvan.ErrStale for a grant that is
	// withdrawn, unknown, another peer's or of another generation; stepvan.ErrInvalid for a
	// range outside of the grant, for rights that it does not give, and for n below 1;
	// stepvan.ErrNotSupported when this process cannot map the memory; stepvan.ErrClosed or
	// stepvan.ErrPeerLost after the end.
	Map(t Target, n int64, rights Rights) (View, error)
}

// View is granted memory of a peer. It may be copied; exactly one copy is released.
type View struct {
	Bytes  []byte     // readable, and writable by the rights that were asked for, until Release
	Holder ViewHolder // of the van
	Ref    uint64     // the Holder's
}

// ViewHolder takes views back. Vans implement it.
type ViewHolder interface{ ReleaseView(View) }

// Release ends the use of the bytes. Exactly once, from any goroutine.
func (v View) Release() { v.Holder.ReleaseView(v) }
