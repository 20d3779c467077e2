package stepvan

import "strconv"

// Routing says which servers the tensors of an exchange go to. Its text is a value of the setting STEPVAN_ROUTING.
type Routing string

// These are the routings of STEPVAN_ROUTING, and the default.
const (
	// DefaultRouting is the routing of the worker's settings.
	DefaultRouting Routing = ""
	// Broadcast sends every push to every server. The pull tensors are server-major. Where each server writes P of
	// them, server s writes tensors s*P to s*P+P-1.
	Broadcast Routing = "broadcast"
	// ByKey sends each tensor to the server that owns its key. Pull tensor i gets the answer for pull key i.
	ByKey Routing = "key"
	// Named sends each tensor to the server that the exchange names for it. A tensor without such a name goes to the
	// server that owns its key. Pull tensor i gets the answer for pull key i.
	Named Routing = "named"
)

// Policy says what a batch waits for. A positive number k means requests from at least k workers: see [AtLeast].
type Policy int

// These are the policies of a batch. [AtLeast] makes others.
const (
	// DefaultPolicy is the policy of the server's settings (STEPVAN_BATCH).
	DefaultPolicy Policy = 0
	// LockStep waits for one request from every paired worker. All workers must use the routing Broadcast.
	LockStep Policy = -1
	// AnyReady waits for a request from any worker.
	AnyReady Policy = 1
)

// AtLeast returns the policy that waits for requests from at least k workers. k must be positive.
func AtLeast(k int) Policy { return Policy(k) }

// String returns "lockstep", "any", "default" or "at least k".
func (p Policy) String() string {
	switch {
	case p < 0:
		return "lockstep"
	case p == AnyReady:
		return "any"
	case p == DefaultPolicy:
		return "default"
	}
	return "at least " + strconv.Itoa(int(p))
}
