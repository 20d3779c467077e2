package config

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTableIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for i := range table {
		f := &table[i]
		t.Run(f.name, func(t *testing.T) {
			require.NotEmpty(t, f.name)
			require.NotEmpty(t, f.group)
			require.True(t, strings.HasSuffix(f.doc, "."), "doc line ends with a full stop: %q", f.doc)
			require.False(t, strings.Contains(f.doc+f.then, "|"), "a bar would break the table of docs/settings.md")
			for _, n := range f.names() {
				require.False(t, seen[n], "%s is the name of two settings", n)
				seen[n] = true
				require.True(t, unknown(n) == false)
			}
			if f.def != "" {
				v, err := f.parse(f.def)
				require.NoError(t, err)
				require.NoError(t, f.inRange(v))
				require.Equal(t, f.def, f.format(v), "the default is written as it is printed")
			}
			if f.typ.Kind().String() == "int" || f.typ == bytesType || f.typ == durationType {
				for _, limit := range []string{f.min, f.max} {
					_, err := f.parse(limit)
					require.NoError(t, err, "limits are required and must parse")
				}
			}
			for _, word := range f.words {
				require.Contains(t, f.values, word)
			}
		})
	}
}

func TestDocsAreUpToDate(t *testing.T) {
	have, err := os.ReadFile("../docs/settings.md")
	require.NoError(t, err)
	require.Equal(t, Markdown(), string(have), "docs/settings.md is stale: go generate ./config")
}

func TestDocsNameEveryVariable(t *testing.T) {
	doc := Markdown()
	for name := range byName {
		require.Contains(t, doc, "`"+name+"`")
	}
}

// The names that programs for the original may set; each must be read or be known to have no meaning.
func TestEveryNameOfTheOriginalIsHandled(t *testing.T) {
	names := strings.Fields(`DMLC_ROLE DMLC_NUM_WORKER DMLC_NUM_SERVER DMLC_GROUP_SIZE DMLC_NODE_RANK DMLC_RANK_OFFSET
		DMLC_INSTANCE_ID DMLC_PS_ROOT_URI DMLC_PS_ROOT_PORT DMLC_NODE_HOST DMLC_INTERFACE DMLC_ENABLE_RDMA DMLC_PS_VAN_TYPE
		DMLC_LOCAL DMLC_PORT DMLC_NUM_PORTS STEPMESH_BACKEND STEPMESH_BAKCEND STEPMESH_GPU STEPMESH_SPLIT_QP_LAG
		STEPMESH_MEM_SYNC STEPMESH_BIND_CPU_CORE STEPVAN_BIND_CPU_CORE STEPMESH_CPU_CORES_PER_SOCKET STEPMESH_CPU_CORES_PER_GPU
		STEPMESH_CPU_START_OFFSET PS_VERBOSE PS_RESEND PS_RESEND_TIMEOUT PS_DROP_MSG PS_HEARTBEAT_INTERVAL PS_HEARTBEAT_TIMEOUT`)
	for _, n := range names {
		require.NotNil(t, byName[n], n)
	}
	for _, n := range []string{"BYTEPS_LOCAL_RANK", "STEPAF_X", "DMLC_ENABLE_UCX", "DMLC_USE_KUBERNETES"} {
		require.Nil(t, byName[n], n)
		require.True(t, meaningless(n), n)
	}
}
