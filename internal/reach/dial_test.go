package reach

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/postoffice"
)

// Where no address of a peer leads to it, the error is about those that are left, and says what to set.
func TestUsableAddresses(t *testing.T) {
	dir := t.TempDir()
	near, far := "unix://"+filepath.Join(dir, "near"), "unix://"+filepath.Join(dir, "far")
	l, err := net.Listen("unix", filepath.Join(dir, "near"))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	const loopback, wide = "tcp://127.0.0.1:1", "tcp://192.0.2.1:1"
	for name, x := range map[string]struct {
		host    string
		offered []string
		usable  []string
		says    []string // nothing else that the other errors say
		not     string
	}{
		"all of them":                        {"", []string{near, loopback, wide}, []string{near, loopback, wide}, nil, ""},
		"another machine's":                  {"elsewhere", []string{far, loopback, wide}, []string{wide}, nil, ""},
		"sockets out of sight":               {"", []string{far}, nil, []string{far, "DMLC_LOCAL=0"}, "DMLC_PS_ROOT_URI"},
		"sockets out of sight, elsewhere":    {"elsewhere", []string{far}, nil, []string{far, "DMLC_LOCAL=0"}, "DMLC_PS_ROOT_URI"},
		"loopback elsewhere":                 {"elsewhere", []string{loopback}, nil, []string{loopback, "DMLC_PS_ROOT_URI"}, "DMLC_LOCAL"},
		"loopback elsewhere behind a socket": {"elsewhere", []string{far, loopback}, nil, []string{loopback, "DMLC_PS_ROOT_URI"}, far},
	} {
		t.Run(name, func(t *testing.T) {
			e := &Endpoint{o: Options{Settings: &config.Settings{Van: config.VanAuto}}}
			usable, err := e.usable(postoffice.Peer{Host: x.host, Addresses: x.offered})
			require.Equal(t, x.usable, usable)
			if x.says == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			for _, s := range x.says {
				require.ErrorContains(t, err, s)
			}
			require.NotContains(t, err.Error(), x.not)
		})
	}
}
