package settings

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
)

var rows = []config.Row{
	{Group: "Cluster", Name: "DMLC_ROLE", Value: "worker", Source: "DMLC_ROLE", Accepts: "worker, server", Doc: "What this is."},
	{Group: "Cluster", Name: "DMLC_LOCAL", Value: "0", Default: "0", Source: "default", Accepts: "0 or 1", Shared: true, Doc: "Here only."},
	{Group: "Transport", Name: "STEPVAN_VAN", Aliases: []string{"A", "B"}, Default: "auto", Source: "derived", Accepts: "auto, tcp", Doc: "How."},
}

func TestPrint(t *testing.T) {
	var b strings.Builder
	require.NoError(t, Print(&b, rows, Style{}))
	require.Equal(t, `Cluster
  DMLC_ROLE    worker  DMLC_ROLE
  DMLC_LOCAL   0       default

Transport
  STEPVAN_VAN  -       derived
`, b.String())
}

func TestPrintLong(t *testing.T) {
	var b strings.Builder
	require.NoError(t, Print(&b, rows[1:], Style{Long: true, Color: true}))
	require.Equal(t, "\x1b[1mCluster\x1b[0m\n\x1b[2m  DMLC_LOCAL   0  default\x1b[0m\n"+`      Here only.
      accepts: 0 or 1; default: 0; the same everywhere

`+"\x1b[1mTransport\x1b[0m\n"+`  STEPVAN_VAN  -  derived
      How.
      accepts: auto, tcp; default: auto; also: A, B
`, b.String())
}

func TestJSONHasEverything(t *testing.T) {
	var b strings.Builder
	require.NoError(t, JSON(&b, rows))
	var got []map[string]any
	require.NoError(t, json.Unmarshal([]byte(b.String()), &got))
	require.Len(t, got, 3)
	require.Equal(t, map[string]any{"group": "Cluster", "name": "DMLC_LOCAL", "aliases": []any{}, "value": "0", "default": "0",
		"source": "default", "accepts": "0 or 1", "shared": true, "doc": "Here only."}, got[1])
	b.Reset()
	require.NoError(t, JSON(&b, nil))
	require.Equal(t, "[]\n", b.String())
}

func TestChanged(t *testing.T) {
	require.Equal(t, []config.Row{rows[0], rows[2]}, Changed(rows))
}
