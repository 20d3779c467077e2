package link

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A session that is refused never becomes open, and only one that is open becomes answered.
func TestPhasesOfAHandshake(t *testing.T) {
	for before, c := range map[phase]struct {
		open     bool
		answered phase // after a message of the peer
	}{
		phaseIntroducing: {false, phaseIntroducing},
		phaseOpen:        {true, phaseAnswered},
		phaseAnswered:    {true, phaseAnswered},
		phaseRefused:     {false, phaseRefused},
	} {
		require.Equal(t, c.open, before.open(), before)
		s := &Session{transport: &Transport{}, state: stateOpen}
		s.out = sender{session: s, held: true}
		s.opening.session, s.opening.phase = s, before
		s.opening.answered()
		require.Equal(t, c.answered, s.opening.phase, before)
		require.Equal(t, before != phaseOpen, s.out.held, "output waits for the answer to the handshake")
	}
}
