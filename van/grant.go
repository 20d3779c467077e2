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

// Target addresses a segment of a one-sided write.
type Target struct {
	Grant      GrantID
	Generation uint32
	Offset     int64
}

// Granter is implemented by the endpoints of vans with Caps.OneSided.
type Granter interface {
	// Grant lets the peer of this endpoint reach mem. The memory stays the
	// caller's; it must live until Withdraw's completion.
	Grant(mem []byte, generation uint32, rights Rights) (Grant, error)

	// Withdraw ends a grant. When the completion with op arrives, no write
	// of the peer can reach the memory any more: only then may it be used for
	// something else. A write that comes too late costs the writer an error
	// completion (errs.ErrStale), and touches nothing.
	Withdraw(g GrantID, op OpID) error
}
