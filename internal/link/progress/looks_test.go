package progress

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An engine that is woken looks, whether nobody waits or a waiter sleeps.
func TestWakeAllMakesTheEngineLook(t *testing.T) {
	m := newMailbox(t, false, Options{Mode: Park})
	looks := func() {
		t.Helper()
		before := m.engine.Looks.Count()
		for end := time.Now().Add(10 * time.Second); m.engine.Looks.Count() == before; runtime.Gosched() {
			m.engine.WakeAll()
			require.True(t, time.Now().Before(end), "it has not looked")
		}
	}
	looks()
	var ev Event
	done := make(chan error)
	go func() { done <- m.engine.Wait(t.Context(), &ev) }()
	for range 10 {
		looks()
	}
	m.engine.Set(&ev)
	require.NoError(t, <-done)
}
