package launch

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What reads no run from its input guards none.
func TestGuardOfNothing(t *testing.T) {
	require.ErrorContains(t, Guard(strings.NewReader("")), "only stepvan launch starts this command")
	require.ErrorContains(t, Guard(strings.NewReader("id\nx\n")), "pid of a child")
	require.NoError(t, Guard(strings.NewReader("an id that no process has\n")))
}

// Processes whose parent cannot be seen are found all the same.
func TestAnOrphanOfTheRunIsFound(t *testing.T) {
	const pid = 1 << 30 // no process has such a pid
	d := &descendants{self: anyProcess, id: "none", roots: map[int]bool{pid: true}, known: map[int]bool{}}
	got := d.find([]process{{pid: pid + 1, parent: pid + 9, session: pid}, {pid: pid + 2, parent: pid + 1}, {pid: pid + 3, parent: pid + 9}})
	require.Len(t, got, 2)
}

func TestAGuardThatCannotStartEndsTheRun(t *testing.T) {
	_, _, err := launch(t, Plan{Workers: 1, Worker: sh(":"), Guard: []string{"/no/such/program"},
		Started: func(c Child) { t.Errorf("%v was started", c) }})
	require.ErrorContains(t, err, "start the guard of the run")
}
