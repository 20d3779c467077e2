package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// compile checks testdata/abi.c against a version of abi.h.
func compile(t *testing.T, header string) (said string, err error) {
	t.Helper()
	dir := t.TempDir()
	check, err := os.ReadFile("testdata/abi.c")
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "testdata"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "testdata/abi.c"), check, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "abi.h"), []byte(header), 0o644))
	out, err := exec.Command("cc", "-std=gnu11", "-fsyntax-only", "-Wall", "-Werror", filepath.Join(dir, "testdata/abi.c")).CombinedOutput()
	return string(out), err
}

// What abi.h declares is what the headers of the system declare.
func TestInterfaceIsThatOfTheHeaders(t *testing.T) {
	for _, needed := range []string{"/usr/include/infiniband/verbs.h", "/usr/include/rdma/rdma_cma.h"} {
		if _, err := os.Stat(needed); err != nil {
			if os.Getenv("STEPVAN_TEST_REQUIRE_RDMA") != "" {
				t.Fatal(err)
			}
			t.Skip("no headers: apt-get install libibverbs-dev librdmacm-dev")
		}
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip(err)
	}
	header, err := os.ReadFile("abi.h")
	require.NoError(t, err)
	said, err := compile(t, string(header))
	require.NoError(t, err, said)

	for _, c := range []struct{ from, to, want string }{
		{"uint32_t vendor_err;", "uint64_t vendor_err;", "ibv_wc.vendor_err: size"},
		{"uint32_t unused[7];", "uint32_t unused[5];", "ibv_send_wr.bind_mw.mw: offset"},
		{"void *to_post_send[12];", "void *to_post_send[11];", "ibv_context_ops.post_send: offset"},
		{"ABI_WR_SEND = 2,", "ABI_WR_SEND = 3,", "WR_SEND"},
	} {
		require.Contains(t, string(header), c.from)
		said, err := compile(t, strings.Replace(string(header), c.from, c.to, 1))
		require.Error(t, err, "a header with %q passes", c.to)
		require.Contains(t, said, c.want)
	}
}
