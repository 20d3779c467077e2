package command

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
)

// place sets what a node must know.
func place(t *testing.T, role string) {
	t.Helper()
	for name, value := range map[string]string{
		"DMLC_ROLE": role, "DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1", "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "9000",
	} {
		t.Setenv(name, value)
	}
}

func TestEnv(t *testing.T) {
	place(t, "worker")
	t.Setenv("DMLC_PS_VAN_TYPE", "zmq")
	code, out, errOut := run(t, "env", "--changed")
	require.Zero(t, code, errOut)
	require.Empty(t, errOut)
	require.Contains(t, out, "  STEPVAN_VAN        tcp        DMLC_PS_VAN_TYPE\n")
	require.NotContains(t, out, "STEPVAN_RAILS")

	_, out, _ = run(t, "env")
	require.Contains(t, out, "STEPVAN_RAILS")
	require.NotContains(t, out, "accepts:")

	_, out, _ = run(t, "env", "--all")
	require.Contains(t, out, "accepts: 1 to 16; default: 1")

	_, out, _ = run(t, "env", "--json")
	var rows []map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &rows))
	require.Len(t, rows, len(config.Default().Table(nil)))
}

func TestEnvWithMistakesShowsTheRest(t *testing.T) {
	place(t, "boss")
	t.Setenv("STEPVAN_VNA", "tcp")
	code, out, errOut := run(t, "env")
	require.Equal(t, 1, code)
	require.Contains(t, out, "DMLC_NUM_WORKER")
	require.Contains(t, errOut, `mistake: DMLC_ROLE="boss"`)
	require.Contains(t, errOut, "warning: STEPVAN_VNA")
	require.Contains(t, errOut, "did you mean STEPVAN_VAN?")
}

// env also reports what Start would refuse or ignore.
func TestEnvAppliesTheChecksOfStart(t *testing.T) {
	place(t, "worker")
	t.Setenv("DMLC_PORT", "9001")
	code, _, errOut := run(t, "env", "--changed")
	require.Zero(t, code)
	require.Contains(t, errOut, "warning: DMLC_PORT: has no effect on a worker")
	t.Setenv("STEPVAN_VAN", "mem")
	code, _, errOut = run(t, "env", "--changed")
	require.Equal(t, 1, code)
	require.Contains(t, errOut, `mistake: STEPVAN_VAN="mem"`)
	t.Setenv("STEPVAN_VAN", "")
	t.Setenv("STEPMESH_BAKCEND", "dcu")
	_, _, errOut = run(t, "env", "--changed")
	require.Contains(t, errOut, `mistake: STEPMESH_BAKCEND="dcu": this build has no driver`)
	_, out, _ := run(t, "doctor")
	require.Regexp(t, `(?m)^fail +settings +STEPMESH_BAKCEND=dcu$`, out)
	require.NotContains(t, out, "driver of the adapter")
}

func TestEnvMarkdownIsTheReference(t *testing.T) {
	code, out, errOut := run(t, "env", "--markdown")
	require.Zero(t, code)
	require.Empty(t, errOut)
	require.Equal(t, config.Markdown(), out)
}

func TestDoctor(t *testing.T) {
	place(t, "worker")
	_, out, errOut := run(t, "doctor")
	require.Empty(t, errOut)
	require.Contains(t, out, "root port")

	t.Setenv("DMLC_ROLE", "boss")
	code, out, errOut := run(t, "doctor")
	require.Equal(t, 1, code)
	require.Contains(t, out, "to repair before a node can start")
	require.Empty(t, errOut, "the finding says it all")
}

// env reports mistakes in the settings and those that only Start finds.
func TestDoctorTellsEveryMistake(t *testing.T) {
	for name, value := range map[string]string{"STEPVAN_VAN": "shmem", "STEPVAN_GRANTS": "5", "STEPVAN_PROGRESS": "fast"} {
		t.Setenv(name, value)
	}
	wrong := []string{"STEPVAN_VAN=shmem", "STEPVAN_GRANTS=5", "STEPVAN_PROGRESS=fast"}
	for role, want := range map[string][]string{"worker": wrong, "": append(wrong, "DMLC_ROLE")} {
		place(t, role)
		code, out, _ := run(t, "doctor")
		require.Equal(t, 1, code)
		for _, w := range want {
			require.Regexp(t, `(?m)^fail +settings +`+w+`\b`, out, "role %q", role)
		}
	}
}
