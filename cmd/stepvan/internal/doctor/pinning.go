package doctor

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/config"
)

// restPinned is what a pair of nodes pins beside tensors.
const restPinned = 256 << 10

// checkPinning compares the memory that this process may pin with what RDMA needs.
func (d devices) checkPinning(used bool) {
	const name = "RDMA memory"
	soft, hard, err := d.sys.Limit(unix.RLIMIT_MEMLOCK)
	if !used || err != nil {
		return
	}
	least := uint64(restPinned * d.settings.Peers())
	switch {
	case d.mayPinAll():
		d.ok(name, "may pin any amount (CAP_IPC_LOCK)")
	case soft < least:
		d.problem(name, fmt.Sprintf("may pin %s%s, and the connections alone need %s", amount(soft), hardNote(soft, hard), config.Bytes(least)), moreMemlock)
	case soft != unlimited && soft < uint64(pinned):
		d.warn(name, fmt.Sprintf("may pin %s%s, and tensors that cannot be pinned are copied", amount(soft), hardNote(soft, hard)), moreMemlock)
	default:
		d.ok(name, "may pin "+amount(soft)+d.groupNote())
	}
}

// groupNote tells of a limit of the control group: pinned memory counts, and cannot be swapped out.
func (d *doctor) groupNote() string {
	have, where := sharing{d}.memory()
	if where != allowedByGroup {
		return ""
	}
	return ", of " + rounded(have).String() + " " + where
}

// ipcLock is the number of CAP_IPC_LOCK.
const ipcLock = 14

// mayPinAll reports whether this process has CAP_IPC_LOCK in the user namespace of the machine. That of a container
// without root has no effect.
func (d *doctor) mayPinAll() bool {
	const everybody = "0 0 4294967295"
	if strings.Join(strings.Fields(d.text("proc/self/uid_map")), " ") != everybody {
		return false
	}
	for line := range strings.Lines(d.text("proc/self/status")) {
		if digits, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(digits), 16, 64)
			return err == nil && caps&(1<<ipcLock) != 0
		}
	}
	return false
}

// What a node needs of a control group for RDMA: it opens a device twice, and each peer has queue pairs, completion
// queues and memory.
const (
	ownHandles  = 2
	ownObjects  = 64
	peerObjects = 8
)

// checkGroup looks for room in the control group for RDMA.
func (d devices) checkGroup(name string) {
	need := map[string]int{"hca_handle": ownHandles, "hca_object": ownObjects + peerObjects*d.settings.Peers()}
	for _, dir := range d.sys.Machine.GroupDirs("rdma") {
		most, used := parseGroup(d.text(dir+"/rdma.max"), name), parseGroup(d.text(dir+"/rdma.current"), name)
		for _, what := range []string{"hca_handle", "hca_object"} {
			limit, ok := most[what]
			if room := limit - used[what]; ok && room < need[what] {
				d.problem("RDMA group", fmt.Sprintf("the control group has room for %d more of %s of %s, and a node may need %d", max(0, room), what, name, need[what]),
					fmt.Sprintf("echo '%s hca_handle=max hca_object=max' > /%s/rdma.max", name, dir))
				return
			}
		}
	}
}

// parseGroup reads the line of a device in rdma.max or rdma.current: "mlx5_0 hca_handle=2 hca_object=2000". What has
// no limit is not in the result.
func parseGroup(text, device string) map[string]int {
	limits := map[string]int{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != device {
			continue
		}
		for _, word := range slices.Backward(words[1:]) {
			what, digits, _ := strings.Cut(word, "=")
			if n, err := strconv.Atoi(digits); err == nil && n >= 0 && n <= math.MaxInt32 {
				limits[what] = n
			}
		}
	}
	return limits
}
