package stress

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/ps"
)

// The only path between a worker and a server loses everything for a while. A short outage costs time, or the peer. A
// long one costs the peer. The errors name the device, and nothing hangs. The ports stay up, since soft-RoCE may stay
// in the kernel for ever when a program sends over one that is down.
func TestAnOutageStress(t *testing.T) {
	if !withRDMA() {
		t.Log("only a machine with software RDMA has such ports")
		return
	}
	for i, outage := range []time.Duration{time.Second, bound} {
		t.Run(outage.String(), func(t *testing.T) {
			c := newCable(t, 40+i)
			cl := raise(t, overRDMA, shape{workers: 1, servers: 1, work: work{Loads: []load{small}, Apart: true}, edit: c.settings})
			w := cl.workers[0]
			w.tell(command{Do: doMark, Lane: 0, Count: 100})
			w.tell(command{Do: doRun, Count: 1 << 40})
			w.await(evMark, nil)
			c.silence(true)
			if outage < bound {
				time.Sleep(outage)
				c.silence(false)
				w.tell(command{Do: doMark, Lane: 0, Count: 100})
			}
			_, e := first(bound, "what becomes of the exchanges", func(e event) bool {
				return e.Kind == evLost || e.Kind == evMark && outage < bound
			}, w)
			t.Logf("%s %s", e.Kind, e.Text)
			if e.Kind == evLost {
				require.Contains(t, e.Text, "server 0")
				require.Contains(t, e.Text, c.device(0)+": ")
				require.Contains(t, w.await(evRefused, nil).Text, "server 0")
				w.await(evFreed, nil)
			}
			w.tell(command{Do: doStop})
			for _, p := range cl.all() {
				p.end()
			}
		})
	}
}

// cable is another cable of the machine, with a device at each end (see scripts/rdma/guest.sh). Each test has its own.
type cable struct {
	t      *testing.T
	number int
}

func newCable(t *testing.T, number int) cable {
	t.Helper()
	c := cable{t, number}
	c.ip(`link add vN0 mtu 9000 address 02:00:00:77:N:01 type veth peer name vN1 mtu 9000 address 02:00:00:77:N:02
		link set vN0 up
		link set vN1 up
		addr add 10.77.N.1/24 dev vN0
		addr add 10.77.N.2/24 dev vN1
		route add 10.77.N.2 dev vN0 src 10.77.N.1 table 1N
		route add 10.77.N.1 dev vN1 src 10.77.N.2 table 1N
		rule add pref 1 from 10.77.N.1 to 10.77.N.1 lookup local
		rule add pref 2 from 10.77.N.2 to 10.77.N.2 lookup local
		rule add pref 3 iif lo to 10.77.N.0/24 lookup 1N`)
	c.silence(false)
	for i := range 2 {
		out, err := exec.Command("rdma", "link", "add", c.device(i), "type", "rxe", "netdev", fmt.Sprintf("v%d%d", number, i)).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return c
}

func (c cable) device(end int) string { return fmt.Sprintf("cable%d%d", c.number, end) }

// settings have workers use the first end, and servers the other.
func (c cable) settings(s *ps.Settings) {
	if s.Role == ps.RoleWorker {
		s.RDMADevices = "=" + c.device(0)
	} else {
		s.RDMADevices = "=" + c.device(1)
	}
}

// silence has everything that is sent get lost, at the other end of the cable.
func (c cable) silence(on bool) {
	at := [2]string{"02:00:00:77:N:01", "02:00:00:77:N:02"}
	if on {
		at = [2]string{"02:00:00:77:ff:01", "02:00:00:77:ff:02"}
	}
	c.ip("neigh replace 10.77.N.2 lladdr " + at[1] + " dev vN0 nud permanent\n" +
		"neigh replace 10.77.N.1 lladdr " + at[0] + " dev vN1 nud permanent")
}

// ip runs commands; N stands for the number of the cable.
func (c cable) ip(commands string) {
	c.t.Helper()
	batch := exec.Command("ip", "-batch", "-")
	batch.Stdin = strings.NewReader(strings.ReplaceAll(commands, "N", fmt.Sprint(c.number)) + "\n")
	out, err := batch.CombinedOutput()
	require.NoError(c.t, err, string(out))
}
