package ps_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/affinity"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// longText is what no error quotes in full, and mostText is how long an error may be.
var longText = strings.Repeat("x", 200_000)

const mostText = 1000

func TestErrorsCutTheTextsOfTheCaller(t *testing.T) {
	for name, call := range map[string]func() error{
		"an element type": func() error { _, err := tensor.ParseDType(longText); return err },
		"an allocator":    func() error { _, err := tensor.NewAllocator(tensor.Options{Name: longText, MaxBytes: 1}); return err },
		"a list of cores": func() error { _, err := affinity.Parse(longText); return err },
		"an own setting": func() error {
			s := alone(t, ps.RoleWorker)
			s.Backend = config.Backend(longText)
			return s.Validate()
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := call()
			require.Error(t, err)
			require.Less(t, len(err.Error()), mostText)
		})
	}
}

// Each variable of the table, and one that is not in it, has a long text in turn.
func TestErrorsCutTheTextsOfTheEnvironment(t *testing.T) {
	const base = "DMLC_ROLE=server DMLC_NUM_WORKER=1 DMLC_NUM_SERVER=1 DMLC_PS_ROOT_URI=127.0.0.1 DMLC_PS_ROOT_PORT=8123"
	names := []string{"STEPVAN_VNA"}
	for _, row := range config.Default().Table(nil) {
		names = append(append(names, row.Name), row.Aliases...)
	}
	for _, name := range names {
		values := map[string]string{}
		for pair := range strings.FieldsSeq(base + " " + name + "=" + longText) {
			key, value, _ := strings.Cut(pair, "=")
			values[key] = value
		}
		_, warnings, err := config.FromEnv(func(name string) (string, bool) { v, ok := values[name]; return v, ok }, []string{name + "=" + longText, "STEPVAN_" + longText + "=1"})
		require.True(t, err != nil || name == "STEPVAN_VNA", "%s", name)
		if err != nil {
			require.Less(t, len(err.Error()), mostText, "%s", name)
		}
		require.NotEmpty(t, warnings)
		for _, w := range warnings {
			require.Less(t, len(w.String()), mostText, "%s", name)
		}
	}
}
