package tcpvan

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stepvan/stepvan/internal/vantest"
	"github.com/stepvan/stepvan/internal/vantest/faults"
	"github.com/stepvan/stepvan/van"
)

func TestMain(m *testing.M) { os.Exit(vantest.Main(m, factories()...)) }

// TestVan holds the van to the contract over TCP and Unix sockets, with one connection per endpoint and with several.
func TestVan(t *testing.T) {
	for _, f := range factories() {
		t.Run(f.Name, func(t *testing.T) { vantest.Run(t, f) })
	}
}

// TestWrapped holds the wrapper for faults to the contract while there is no fault.
func TestWrapped(t *testing.T) {
	f := factories()[0]
	f.New = faults.New(faults.Options{}).Wrap("", f.New)
	vantest.Run(t, f)
}

func FuzzPeer(f *testing.F) { vantest.Fuzz(f, factories()[0]) }

func factories() []vantest.Factory {
	return []vantest.Factory{
		factory("tcp", "127.0.0.1:0", Options{}),
		factory("tcp-rails", "127.0.0.1:0", Options{Rails: 3}),
		factory("unix", "unix:", Options{Local: true}),
		factory("unix-rails", "unix:@", Options{Local: true, Rails: 3}),
	}
}

func factory(name, listen string, o Options) vantest.Factory {
	o.Credits = 8
	o.RailThreshold = 64 << 10
	return vantest.Factory{
		Name: name,
		New: func(p van.Placer, _ func()) (van.Van, error) {
			o := o
			o.Placer = p
			v, err := New(o)
			if err == nil && o.Local {
				v = freeSocket{v}
			}
			return v, err
		},
		Listen: listen, BadAddr: "no port",
		Credits:    o.Credits,
		Boundaries: []int{defaultSmallBytes, defaultSmallBytes + roomForHeads, o.RailThreshold},
		RawDial: func(addr string) (io.ReadWriteCloser, error) {
			c, err := rawDial(addr)
			if err == nil {
				_, err = c.Write((&preamble{count: 1, threshold: 1}).encode())
			}
			return c, err
		},
		GreetDial: rawDial,
		TwoSided:  true,
	}
}

func rawDial(addr string) (io.ReadWriteCloser, error) {
	if path, ok := strings.CutPrefix(addr, unixScheme); ok {
		return net.Dial("unix", path)
	}
	return net.Dial("tcp", addr)
}

// freeSocket gives "unix:" and "unix:@" the meaning of port 0: a name that nobody has.
type freeSocket struct{ van.Van }

var socketCount atomic.Int64

func (f freeSocket) Listen(addr string) (string, error) {
	name := fmt.Sprintf("stepvan-test-%d-%d", os.Getpid(), socketCount.Add(1))
	switch addr {
	case "unix:":
		addr += filepath.Join(os.TempDir(), name)
	case "unix:@":
		addr += name
	}
	return f.Van.Listen(addr)
}
