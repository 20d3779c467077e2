package doctor

import (
	"fmt"
	"time"
)

// briefSilence is what a healthy node may be silent for: its process waits for a core, or for memory.
const briefSilence = 200 * time.Millisecond

// checkHeartbeats finds a timeout after which nodes that are well count as lost.
func (d *doctor) checkHeartbeats() {
	s := d.settings
	if s.HeartbeatTimeout == 0 {
		d.ok("heartbeats", "off: a silent peer is noticed when its connection breaks")
		return
	}
	found := fmt.Sprintf("a peer that is silent for %v is lost", s.HeartbeatTimeout)
	if s.HeartbeatTimeout < briefSilence {
		d.warn("heartbeats", found+", and one that is well may be silent for so long", fmt.Sprintf("set PS_HEARTBEAT_TIMEOUT to %v or more, the same everywhere", briefSilence))
		return
	}
	d.ok("heartbeats", found)
}
