package van

// GrantID names a grant to the peer that holds it. It tells nothing about the granter's addresses: a peer cannot
// compute one ID from another.
type GrantID uint64

// Rights of a grant.
type Rights uint8

// Rights bits.
const (
	RightWrite Rights = 1 << iota
	RightRead
)

// Grant allows one peer to reach one range of memory until it is withdrawn. The documentation of the package says what
// it is worth against a peer that keeps no rule.
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

// IsZero reports whether t names no grant. No grant has the ID 0.
func (t Target) IsZero() bool { return t.Grant == 0 }

// Granter is implemented by the endpoints of vans with Caps.OneSided. Its methods have one caller at a time per
// endpoint, together with Send.
type Granter interface {
	// Grant lets the peer of this endpoint reach mem, which is not empty. The memory stays the caller's. It must live
	// until the completion of Withdraw, or until EventDetached. Errors:
	//
	//   - stepvan.ErrNotSupported: mem is not in memory that the van can share, or is not registered (Caps.Registered).
	//   - errs.ErrNoGrant, which wraps it: there is no room for another grant, or for the memory file that mem is in.
	//     There may be room after a Withdraw has completed, or after a file has gone.
	//   - stepvan.ErrInvalid: the rights do not exist.
	//   - stepvan.ErrWouldBlock: the queue is full.
	//   - stepvan.ErrClosed or stepvan.ErrPeerLost: the connection has ended.
	Grant(mem []byte, generation uint32, rights Rights) (Grant, error)

	// Withdraw ends a grant: from here on the peer can begin nothing with it. When the completion with op arrives, no
	// write of the peer can reach the memory any more, and no View of it is in use. Only then may the memory be used
	// for something else. That may take as long as the peer keeps a View. A write that comes too late touches nothing:
	// the van refuses it with stepvan.ErrStale, or completes it with that error. A completion with an error (the
	// connection has ended) says nothing about the memory; EventDetached does. Errors:
	//
	//   - stepvan.ErrStale: g is withdrawn already, or not a grant of this endpoint.
	//   - stepvan.ErrWouldBlock: the queue is full.
	//   - stepvan.ErrClosed or stepvan.ErrPeerLost: the connection has ended.
	Withdraw(g GrantID, op OpID) error
}

// Viewer is implemented by the endpoints of vans with Caps.Views.
type Viewer interface {
	// Map returns n bytes of the peer's memory from t on, as this process sees them, for use in place with the rights
	// asked for. It does not allocate, and makes no system call for a grant that was mapped before. It may be called
	// concurrently with everything. Errors:
	//
	//   - stepvan.ErrStale: the grant is withdrawn, unknown, another peer's, or of another generation.
	//   - stepvan.ErrInvalid: the range is outside of the grant, the grant does not give the rights, or n is below 1.
	//   - stepvan.ErrNotSupported: this process cannot map the memory.
	//   - stepvan.ErrClosed or stepvan.ErrPeerLost: the connection has ended.
	Map(t Target, n int64, rights Rights) (View, error)
}

// View is granted memory of a peer. It may be copied; exactly one copy is released.
type View struct {
	Bytes  []byte     // readable, and writable by the rights that were asked for, until Release
	Holder ViewHolder // of the van
	Ref    uint64     // the Holder's
}

// ViewHolder takes views back, and looks after their owner. Vans implement it.
type ViewHolder interface {
	ReleaseView(View)
	OwnerEnded(View) bool
}

// Release ends the use of the bytes. Exactly once, from any goroutine.
func (v View) Release() { v.Holder.ReleaseView(v) }

// OwnerEnded reports whether the peer has ended the connection. The Close of the peer has done so when it returns, and
// then its program may write to the memory. So what was read of the view before OwnerEnded was false belongs together.
// Any goroutine, before Release.
func (v View) OwnerEnded() bool { return v.Holder.OwnerEnded(v) }
