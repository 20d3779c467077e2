package rdma

import (
	"net/netip"
	"os"
	"testing"

	"github.com/stepvan/stepvan/internal/vantest"
	"github.com/stepvan/stepvan/internal/verbs"
)

// TestMain traces the objects of verbs, and fails when a test leaves one open.
func TestMain(m *testing.M) {
	loadOptions = verbs.Options{Trace: true}
	code := vantest.Main(m, factories()...)
	if process.library != nil {
		for _, o := range process.library.Live() {
			println("still open:", o.Name, "made at\n", o.Stack)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// machine is the two devices that scripts/rdma-vm offers.
type machine struct {
	device [2]string
	addr   [2]netip.Addr
}

// rdma returns the devices, or skips the test.
func rdma(t testing.TB) machine {
	t.Helper()
	if !onMachine() {
		if os.Getenv("STEPVAN_TEST_REQUIRE_RDMA") != "" {
			t.Fatal("STEPVAN_TEST_REQUIRE_RDMA is set, and there are no devices: run the test with scripts/test-rdma.sh")
		}
		t.Skip("no RDMA device: make test-rdma runs this test in a machine with some")
	}
	return theMachine()
}

func onMachine() bool { return os.Getenv("RDMAVM_DEV1") != "" }

func theMachine() machine {
	return machine{
		device: [2]string{os.Getenv("RDMAVM_DEV0"), os.Getenv("RDMAVM_DEV1")},
		addr:   [2]netip.Addr{netip.MustParseAddr(os.Getenv("RDMAVM_IP0")), netip.MustParseAddr(os.Getenv("RDMAVM_IP1"))},
	}
}

// iWARP reports whether the devices are soft-iWARP, which has no immediates and no windows.
func (m machine) iWARP() bool { return m.device[0] == "siw0" }
