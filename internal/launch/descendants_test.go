package launch

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	for text, want := range map[string]process{
		"42 (sh) S 7 40 39 0 -1 4194560":       {pid: 42, parent: 7, group: 40, session: 39},
		"42 (a) b) (c) Z 7 40 39 0":            {pid: 42, parent: 7, group: 40, session: 39, zombie: true},
		"42 (new\nline ) 1 2 3) R 7 40 39 0 1": {pid: 42, parent: 7, group: 40, session: 39},
		"42 () X 7 40 39":                      {pid: 42, parent: 7, group: 40, session: 39, zombie: true},
	} {
		got, ok := parseStat([]byte(text))
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "42", "42 (sh", "42 (sh) S 7 40", "x (sh) S 7 40 39", "42 (sh) S x 40 39", ") 42 (sh S 7 40 39", "(sh) S 7 40 39"} {
		_, ok := parseStat([]byte(text))
		require.False(t, ok, text)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (sh) S 7 40 39 0"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, ok := parseStat(text); !ok {
			require.Zero(t, p)
		}
	})
}

func TestProcessesHasThisOne(t *testing.T) {
	for _, p := range processes() {
		if p.pid == os.Getpid() {
			require.Equal(t, os.Getppid(), p.parent)
			return
		}
	}
	t.Fatal("this process is not listed")
}

func TestFindTakesOnlyThisRun(t *testing.T) {
	const self = 1 << 30 // no pid is so large, so nothing is read of a real process
	pid := func(n int) int { return self + n }
	p := func(n, parent, session int) process {
		return process{pid: pid(n), parent: pid(parent), session: pid(session)}
	}
	d := &descendants{self: self, roots: map[int]bool{pid(1): true}, known: map[int]bool{pid(6): true, pid(99): true}}
	got := d.find([]process{
		p(1, 0, 1),   // a child
		p(2, 1, 1),   // what it started
		p(3, 2, 3),   // which started a session of its own
		p(4, 0, 1),   // an orphan of the child's session
		p(5, 4, 5),   // and what that started
		p(6, 0, 6),   // an orphan recognised before
		p(7, 0, 7),   // another child of this process
		p(8, 7, 7),   // and what that started
		p(9, 77, 1),  // not below this process
		p(10, 77, 5), // neither
	})
	var names []string
	for _, p := range got {
		names = append(names, fmt.Sprint(p.pid-self))
	}
	require.ElementsMatch(t, []string{"1", "2", "3", "4", "5", "6"}, names)
	require.Equal(t, map[int]bool{pid(1): false, pid(2): true, pid(3): true, pid(4): true, pid(5): true, pid(6): true}, d.known, "who is gone is forgotten")
}
