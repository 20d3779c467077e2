package doctor

import (
	"fmt"
	"time"
)

// briefSilence is how long a healthy node may be silent while its process waits for a core or for
// memory.
const briefSilence = 200 * time.Millisecond

// checkHeartbeats finds a timeout so short that healthy nodes count as lost.
func (d *doctor) checkHeartbeats() {
	s := d.settings
	if s.HeartbeatTimeout == 0 {
		d.ok("heartbeats", "off: a silent peer is noticed when its connection breaks")
		return
	}
	found := fmt.Sprintf("a peer that is silent for %v is lost", s.HeartbeatTimeout)
	if s.HeartbeatTimeout < briefSilence {
		d.warn("heartbeats", found+", and a healthy peer may be silent for that long", fmt.Sprintf("set PS_HEARTBEAT_TIMEOUT to %v or more, the same everywhere", briefSilence))
		return
	}
	d.ok("heartbeats", found)
}
