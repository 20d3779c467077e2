package shmvan

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/sys"
)

// FuzzRecord has a van read records of any kind and content.
func FuzzRecord(f *testing.F) {
	for k := kindSkip; k <= kindEnd; k++ {
		rec := make([]byte, 200)
		m := message(1, make([]byte, 8))
		rec[recHead], rec[recSegs], rec[recSize] = byte(len(m.Head)), 1, 8
		copy(rec[recBody:], m.Head)
		f.Add(byte(k), rec)
	}
	f.Fuzz(func(t *testing.T, k byte, rec []byte) { replay(t, kind(k), rec) })
}

// FuzzHello has hellos of any content read.
func FuzzHello(f *testing.F) {
	h := hello{Ring: minRing, Slots: minSlots, Pid: 1, At: 4096}
	f.Add(h.encode())
	f.Add([]byte(helloMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got hello
		if got.decode(b) != nil {
			return
		}
		require.LessOrEqual(t, fileBytes(int(got.Ring), int(got.Slots)), fileBytes(maxRing, maxSlots))
		var again hello
		require.NoError(t, again.decode(got.encode()))
		require.Equal(t, got, again)
	})
}

// FuzzParcel has messages of any content taken off a socket.
func FuzzFileMessage(f *testing.F) {
	f.Add(wakeByte[:], byte(0))
	f.Add(fileMessage(fileMagic, 1, 4096), byte(1))
	f.Add(fileMessage(fileMagic, 1, 1<<40), byte(2))
	f.Fuzz(func(t *testing.T, b []byte, fds byte) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer sys.CloseAll(pair[:])
		mem := make([]int, fds%8)
		for i := range mem {
			mem[i] = pair[0]
		}
		if len(b) == 0 || len(b) > 64<<10 || sendDescriptors(pair[0], b, mem...) != nil {
			return
		}
		m := &peerMemory{conn: &connection{sock: pair[1]}}
		file, err := m.readMessage()
		require.Nil(t, file, "a socket is no memory")
		if err == nil {
			require.Len(t, b, len(wakeByte))
			require.Empty(t, mem)
		}
	})
}
