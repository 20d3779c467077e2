package reach

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/link"
)

// Reasons are alike for peers that are alike, or a line would have a part for each of a thousand.
func TestReasonsNameNoAddress(t *testing.T) {
	const addr = "00aa11/tmp/stepvan-0/shm.7.beef"
	for want, err := range map[string]error{
		"other machine": errors.New("other machine"),
		"other user":    fmt.Errorf("other user: %w", stepvan.ErrNotSupported),
		"its socket is not to be seen from here: no such file or directory": fmt.Errorf("its socket /tmp/stepvan-0/shm.7.beef is not to be seen from here: %w", unix.ENOENT),
		"dial over shm: cannot allocate memory":                             &stepvan.OpError{Op: "dial", Van: "shm", Peer: addr, Err: unix.ENOMEM},
	} {
		require.Equal(t, want, shortReason(link.PassedOver{Address: "shm://" + addr, Err: err}))
	}
}

// A worker and a server both give the reason for every van that was passed over, each from where it is known.
func TestReasonsOfBothSides(t *testing.T) {
	noDevice, noMemory := fmt.Errorf("no device: %w", stepvan.ErrNotSupported), errors.New("no memfd")
	elsewhere := link.PassedOver{Address: "shm://m/s", Err: errors.New("other machine")}
	unreachable := link.PassedOver{Address: "rdma://10.0.0.1:7", Err: errors.New("no route")}
	for name, x := range map[string]struct {
		van                string
		setting            config.Van
		shm, rdma          error // absent at the worker
		serverShm, itsRDMA error // absent at the server
		passed             []link.PassedOver
		worker, server     string
	}{
		"nobody has a device": {
			van: "tcp", rdma: noDevice, itsRDMA: noDevice, passed: []link.PassedOver{elsewhere},
			worker: "shm: other machine, rdma: no device", server: "shm: other machine, rdma: no device, reported by the worker",
		},
		"the server has none": {
			van: "tcp", itsRDMA: noDevice, passed: []link.PassedOver{elsewhere},
			worker: "shm: other machine, rdma: not offered there", server: "shm: other machine, rdma: no device, reported by the worker",
		},
		"no route": {
			van: "tcp", passed: []link.PassedOver{elsewhere, unreachable},
			worker: "shm: other machine, rdma: no route", server: "shm: other machine, rdma: no route, reported by the worker",
		},
		"rdma": {
			van: "rdma", passed: []link.PassedOver{elsewhere},
			worker: "shm: other machine", server: "shm: other machine, reported by the worker",
		},
		"rdma on one machine": {
			van: "rdma", setting: config.VanShmRDMA, serverShm: noMemory,
			worker: "shm: not offered there", server: "shm: no memfd",
		},
		"the server has neither": {
			van: "tcp", serverShm: noMemory, itsRDMA: noDevice,
			worker: "shm: not offered there, rdma: not offered there", server: "shm: no memfd, rdma: no device",
		},
		"a Unix socket needs no device": {
			van: "unix", shm: noMemory, rdma: noDevice, passed: []link.PassedOver{elsewhere},
			worker: "shm: no memfd", server: "shm: no memfd, reported by the worker",
		},
	} {
		t.Run(name, func(t *testing.T) {
			side := func(shm, rdma error) *extraVans {
				o := newExtraVans(&Options{Role: stepvan.RoleWorker, Settings: &config.Settings{Van: cmp.Or(x.setting, config.VanAuto)}}, false)
				o.shm.absent, o.rdma.absent = shm, rdma
				return &o
			}
			said := side(x.shm, x.rdma).vanReason(x.van, x.passed)
			require.Equal(t, x.worker, said)
			require.Equal(t, x.server, side(x.serverShm, x.itsRDMA).peerReason(x.van, said))
			peer := side(x.serverShm, x.itsRDMA)
			peer.role = stepvan.RolePeer
			require.Equal(t, strings.ReplaceAll(x.server, "reported by the worker", "reported by the peer"), peer.peerReason(x.van, said))
		})
	}
}
