package progress

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Waiters arm the source before a long absence until several of them have brought nothing.
func TestAbsencesInWhichNothingComesAreNotArmed(t *testing.T) {
	var a absence
	away := func(found int, disturbed bool) {
		a.left.Store(1)
		a.beginWait(1 + longAbsence + 1)
		a.disturbed = disturbed
		a.noteArrivals(found)
		a.noteArrivals(0) // of further waits, which the program begins at once
	}
	silence := func() {
		for range mostSilent {
			require.True(t, a.wantsArming())
			away(0, false)
		}
		require.False(t, a.wantsArming())
	}
	silence()
	away(1, false) // the first poll has found something
	silence()
	away(0, true) // the background driver has handled something
	silence()
}

// What the background driver handles counts as having come during the absence.
func TestTheBackgroundDriverNotesWhatComes(t *testing.T) {
	m := newMailbox(t, true, Options{})
	own(t, m.engine)
	m.engine.listener.stop()
	m.engine.absence.disturbed = false
	var ev Event
	m.arrive(&ev)
	m.engine.driveOnce(false)
	own(t, m.engine)
	require.True(t, ev.IsSet())
	require.True(t, m.engine.absence.disturbed)
	m.engine.endDriving(true)
}
