package van

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

func TestCapsRefuseWhatTheyDoNotCarry(t *testing.T) {
	two := Caps{MaxMeta: 10, MaxPayload: 100, MaxSegments: 2}
	one := two
	one.OneSided, one.Views = true, true
	blind, device := one, one
	blind.Views = false
	device.Offload, device.InMessage = true, 40
	some := Target{Grant: 1}
	head, long := make([]byte, wire.HeaderSize+10), make([]byte, 100)
	for name, c := range map[string]struct {
		caps *Caps
		m    Message
		want string // "" when it is carried
	}{
		"largest":           {&two, Message{Head: head, Payload: [][]byte{long[:60], long[60:]}, Spare: long}, ""},
		"nothing":           {&two, Message{Head: head[:wire.HeaderSize]}, ""},
		"targets":           {&one, Message{Head: head, Payload: [][]byte{long}, Target: make([]Target, 1)}, ""},
		"no header":         {&two, Message{Head: head[:wire.HeaderSize-1]}, "header"},
		"meta":              {&two, Message{Head: append(head, 0)}, "got 11 bytes, want at most 10"},
		"payload":           {&two, Message{Head: head, Payload: [][]byte{long, long[:1]}}, "got 101 bytes, want at most 100"},
		"segments":          {&two, Message{Head: head, Payload: make([][]byte, 3)}, "got 3, want at most 2"},
		"spare":             {&two, Message{Head: head, Payload: [][]byte{long}, Spare: long[1:]}, "got 99 bytes, want 100"},
		"not one-sided":     {&two, Message{Head: head, Payload: [][]byte{long}, Target: make([]Target, 1)}, "not one-sided"},
		"written":           {&one, Message{Head: head, Written: 100}, ""},
		"too much written":  {&one, Message{Head: head, Written: 101}, "got 101 bytes, want at most 100"},
		"negative":          {&one, Message{Head: head, Written: -1}, "got -1 bytes and 0 segments"},
		"written and sent":  {&one, Message{Head: head, Payload: [][]byte{long[:1]}, Written: 1}, "got 1 bytes and 1 segments"},
		"written and spare": {&one, Message{Head: head, Spare: long, Written: 1}, "not all of the payload"},
		"nobody's grant":    {&two, Message{Head: head, Written: 1}, "no views"},
		"no views":          {&blind, Message{Head: head, Written: 1}, "no views"},
		"blind targets":     {&blind, Message{Head: head, Payload: [][]byte{long}, Target: make([]Target, 1)}, ""},
		"along":             {&device, Message{Head: head, Payload: [][]byte{long[:40], long[40:]}, Target: []Target{{}, some}}, ""},
		"too much along":    {&device, Message{Head: head, Payload: [][]byte{long[:40], long[40:41]}, Target: []Target{{}, {}}}, "got 41 bytes, want at most 40"},
		"number of targets": {&one, Message{Head: head, Payload: [][]byte{long}, Target: make([]Target, 2)}, "got 2, want 1"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := c.caps.Check(&c.m)
			if c.want == "" {
				require.NoError(t, err)
				require.Equal(t, Total(c.m.Payload)+c.m.Written, n)
				return
			}
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			require.ErrorContains(t, err, c.want)
		})
	}
}
