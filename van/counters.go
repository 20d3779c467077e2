package van

import (
	"fmt"
	"strings"
)

// Counters tell what an endpoint has had its devices do, for people and tools.
type Counters struct {
	Devices     []string `json:"devices"`     // whose ports the endpoint uses
	Requests    uint64   `json:"requests"`    // work requests that were posted for sending
	Doorbells   uint64   `json:"doorbells"`   // calls that posted them
	Signaled    uint64   `json:"signaled"`    // work requests that have a completion of their own
	Receives    uint64   `json:"receives"`    // receives that were posted
	Completions uint64   `json:"completions"` // that this side has polled, of both kinds
	Written     uint64   `json:"written"`     // bytes that went from registered memory into grants of the peer
	Fetched     uint64   `json:"fetched"`     // bytes that this side has read from registered memory of the peer
	Staged      uint64   `json:"staged"`      // of the bytes fetched, those for memory that is not registered: they were copied once
	Streamed    uint64   `json:"streamed"`    // bytes of payload that were copied into messages
	Pinned      uint64   `json:"pinned"`      // bytes that the endpoint itself has pinned
}

// Counted is implemented by endpoints of vans with a device.
type Counted interface {
	// Counters may be called concurrently with everything, also after the end of the connection.
	Counters() Counters
}

// String reads "mlx5_0: 12 work requests, 6 doorbells, 9 completions; bytes: 2048 written, 0 fetched, 40 streamed".
func (c Counters) String() string {
	return fmt.Sprintf("%s: %d work requests, %d doorbells, %d completions; bytes: %d written, %d fetched, %d streamed",
		strings.Join(c.Devices, ", "), c.Requests, c.Doorbells, c.Completions, c.Written, c.Fetched, c.Streamed)
}
