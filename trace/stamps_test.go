package trace

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// exchange is a request whose parts have distinct lengths. The server's clock is an hour ahead.
func exchange(start int64) Stamps {
	server := start + int64(time.Hour)
	return Stamps{start, start + 10, server + 100, server + 120, server + 420, server + 425, start + 610, start + 613}
}

func TestParts(t *testing.T) {
	s := exchange(1_000_000)
	for name, c := range map[string]struct{ got, want time.Duration }{
		"total":   {s.Total(), 613},
		"send":    {s.Send(), 10},
		"wait":    {s.Wait(), 600},
		"back":    {s.Back(), 3},
		"server":  {s.Server(), 325},
		"queue":   {s.Queue(), 20},
		"compute": {s.Compute(), 300},
		"respond": {s.Respond(), 5},
		"network": {s.Network(), 275},
	} {
		require.Equal(t, c.want, c.got, name)
	}
	require.Equal(t, s.Total(), s.Send()+s.Network()+s.Server()+s.Back())
}

func TestWhichStampsThereAre(t *testing.T) {
	s := exchange(1)
	require.True(t, s.HasWorker() && s.HasServer())
	for i := range s {
		cut := s
		cut[i] = 0
		ofServer := i >= RequestPostRecv && i <= ResponsePostSend
		require.Equal(t, ofServer, cut.HasWorker(), "without stamp %d", i)
		require.Equal(t, !ofServer, cut.HasServer(), "without stamp %d", i)
	}
}

func TestPushOnlyHasNoServerTime(t *testing.T) {
	s := Stamps{RequestStart: 100, RequestPostSend: 110, ResponsePostRecv: 150, ResponseProcess: 151}
	require.Zero(t, s.Server())
	require.EqualValues(t, 40, s.Network())
}
