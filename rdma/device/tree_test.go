package device

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/rdma/device/devicetest"
)

// Short names for machines of files.
type (
	fake     = devicetest.Device
	fakePort = devicetest.Port
)

const nic0, nic1, vf0 = devicetest.Card0, devicetest.Card1, devicetest.Virtual0

var roce = devicetest.RoCE

// tree is a machine of files, with what rdmamap says of it.
type tree struct {
	*devicetest.Tree
	t      *testing.T
	mapped map[string]string
}

func newTree(t *testing.T) *tree { return &tree{devicetest.New(), t, map[string]string{}} }

func (m *tree) machine() Machine {
	return Machine{
		Root: m.Files,
		Interfaces: func() (all []Interface, err error) {
			for _, f := range m.Interfaces {
				all = append(all, Interface(f))
			}
			return all, nil
		},
		DeviceOf: func(name string) (string, error) {
			if d := m.mapped[name]; d != "" {
				return d, nil
			}
			return "", errors.New("rdmamap knows nothing")
		},
	}
}

func (m *tree) read() *Inventory {
	m.t.Helper()
	inv, err := m.machine().Read()
	require.NoError(m.t, err)
	return inv
}

// choose writes the outcome in lines: the choices, the ports that are skipped, the notes.
func choose(t *testing.T, inv *Inventory, r Request) string {
	t.Helper()
	s, err := inv.Choose(r)
	if err != nil {
		return err.Error()
	}
	var lines []string
	for _, c := range s.Choices {
		lines = append(lines, c.String())
	}
	for _, k := range s.Skipped {
		lines = append(lines, k.String())
	}
	return strings.Join(append(lines, s.Notes...), "\n")
}
