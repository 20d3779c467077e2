package doctor

import (
	"fmt"
	"strings"

	"github.com/stepvan/stepvan/config"
)

// socketBytes is the size that a socket buffer should have: a message of 1.75 MiB and the next one.
const socketBytes = 4 << 20

// checkSockets checks the largest socket buffers that a process may have.
func (d network) checkSockets() {
	s := d.settings
	if s.Van != config.VanTCP && s.Van != config.VanAuto || s.Local {
		return
	}
	var small, fix []string
	for _, key := range []string{"rmem_max", "wmem_max"} {
		if n, ok := d.number("proc/sys/net/core/" + key); ok && n < socketBytes {
			small = append(small, fmt.Sprintf("net.core.%s is %v", key, config.Bytes(n)))
			fix = append(fix, fmt.Sprintf("net.core.%s=%d", key, socketBytes))
		}
	}
	if len(small) == 0 {
		d.ok("socket buffers", fmt.Sprintf("up to %v or more are allowed", config.Bytes(socketBytes)))
		return
	}
	d.warn("socket buffers", strings.Join(small, ", ")+": large messages take more rounds", "sysctl -w "+strings.Join(fix, " ")+" (in /etc/sysctl.d to keep it)")
}
