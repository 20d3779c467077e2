package reach

import "strings"

// Machine names the machine and user whose memory an instance shares. It reads that from the addresses where the
// instance listens. It is "" for an instance that shares none.
func Machine(addresses []string) string {
	for _, a := range addresses {
		if rest, ok := strings.CutPrefix(a, "shm://"); ok {
			machine, _, _ := strings.Cut(rest, "/")
			return machine
		}
	}
	return ""
}
