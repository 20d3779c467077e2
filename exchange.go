package stepvan

import "strconv"

// Routing says which servers the tensors of an exchange go to. STEPVAN_ROUTING has the same text.
type Routing string

// The routings of STEPVAN_ROUTING, and the default.
const (
	// DefaultRouting is the routing of the worker's settings.
	DefaultRouting Routing = ""
	// Broadcast sends every push to every server. Pulls are server-major: with S servers and P pulls of each, server s
	// writes pull tensor s*P+i.
	Broadcast Routing = "broadcast"
	// ByKey sends each tensor to the owner of its key. Pulls are in plain order.
	ByKey Routing = "key"
	// Named sends each tensor to the server that the exchange names for it. A tensor for which it names no server goes
	// to the owner of its key. Pulls are in plain order.
	Named Routing = "named"
)

// Policy says what a batch waits for. A positive number k means a request from at least k workers: see [AtLeast].
type Policy int

// Policies of a batch.
const (
	// DefaultPolicy is the policy of the server's settings (STEPVAN_BATCH).
	DefaultPolicy Policy = 0
	// LockStep waits for one request from every paired worker. All workers must route by [Broadcast].
	LockStep Policy = -1
	// AnyReady waits for a request from any worker.
	AnyReady Policy = 1
)

// AtLeast is the policy that waits for requests from k workers. k must be positive.
func AtLeast(k int) Policy { return Policy(k) }

// String returns the policy's name in settings, or "at least k".
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
