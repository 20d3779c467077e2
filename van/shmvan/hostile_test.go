package shmvan

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// A peer writes what it likes into the words of its own file. It costs its own connection, and nothing else.
func TestScribbledWords(t *testing.T) {
	values := []uint64{1, 63, 1 << 20, 1 << 63, 1<<64 - 1}
	words := map[string]func(e *endpoint, v uint64){
		"consumed": func(e *endpoint, v uint64) { e.receiver.in.own.consumed.Store(v) },
		"done":     func(e *endpoint, v uint64) { e.receiver.in.own.done.Store(v) },
		"ring": func(e *endpoint, v uint64) {
			shm.Word64(e.sender.out.own.ring, int(e.sender.out.pos)%len(e.sender.out.own.ring)).Store(v)
		},
	}
	for name, scribble := range words {
		t.Run(name, func(t *testing.T) {
			for _, value := range values {
				_, b, x, y := pair(t, Options{Files: memory()})
				z := newParty(t, Options{}).dial(b.v.host.address(b.v.listenerPath(t)))
				b.until(van.EventAccepted)
				scribble(x, value)
				require.NoError(t, y.Send(message(1)))
				lost := b.until(van.EventLost)
				require.Same(t, y, bare(lost.Endpoint))
				require.ErrorAs(t, lost.Err, new(*stepvan.ProtocolError), "%#x", value)
				require.NoError(t, z.Send(message(1)))
				b.until(van.EventMessage).Delivery.Release()
			}
		})
	}
}

// Words that this side does not count with are worth nothing: a lie there costs the liar only.
func TestScribbledFlags(t *testing.T) {
	a, b, x, y := pair(t, Options{Files: memory()})
	a.v.page.asleep.Store(1<<64 - 1)
	for range 10 {
		require.NoError(t, y.Send(message(1)))
	}
	x.memory.table.count(5).Store(1 << 63) // uses of grants that were never given
	g, err := granter{y}.Grant(shared(t, 64), 1, everything)
	require.NoError(t, err)
	require.NoError(t, granter{y}.Withdraw(g.ID, 3))
	require.Equal(t, van.OpID(3), b.until(van.EventCompletion).Op)
	require.NoError(t, x.Send(message(1)))
	b.until(van.EventMessage).Delivery.Release()
}

// memfd makes a file as a hostile peer would.
func memfd(t *testing.T, size, allocated int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Ftruncate(fd, size))
	if allocated > 0 {
		require.NoError(t, unix.Fallocate(fd, 0, 0, allocated))
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	require.NoError(t, err)
	return fd
}

const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// The van closes the connection of a peer with a bad hello without an answer, and keeps nothing of it. Peers of another
// version get one, see below.
func TestHostileHellos(t *testing.T) {
	b := newParty(t, Options{})
	addr := b.listen()
	size := fileBytes(minRing, minSlots)
	good := func() []byte {
		h := hello{Ring: minRing, Slots: minSlots, Pid: 1}
		return h.encode()
	}
	file, page := memfd(t, size, size, sealed), memfd(t, pageBytes, pageBytes, sealed)
	with := func(at int, v byte) []byte { h := good(); h[at] ^= v; return h }
	cases := map[string]struct {
		hello []byte
		fds   []int
	}{
		"nothing":            {nil, nil},
		"no descriptors":     {good(), nil},
		"one descriptor":     {good(), []int{file}},
		"three descriptors":  {good(), []int{file, page, page}},
		"many descriptors":   {good(), []int{file, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page, page}},
		"short":              {good()[:helloBytes-1], []int{file, page}},
		"long":               {append(good(), 0), []int{file, page}},
		"magic":              {with(0, 1), []int{file, page}},
		"ring":               {with(16, 1), []int{file, page}},
		"a huge ring":        {with(22, 1), []int{file, page}},
		"slots":              {with(48, 1), []int{file, page}},
		"many slots":         {with(51, 1), []int{file, page}},
		"files exchanged":    {good(), []int{page, file}},
		"unsealed":           {good(), []int{memfd(t, size, size, 0), page}},
		"can shrink":         {good(), []int{memfd(t, size, size, unix.F_SEAL_GROW), page}},
		"short file":         {good(), []int{memfd(t, size-4096, size-4096, sealed), page}},
		"long file":          {good(), []int{memfd(t, size+4096, size+4096, sealed), page}},
		"empty file":         {good(), []int{memfd(t, 0, 0, sealed), page}},
		"unallocated file":   {good(), []int{memfd(t, size, 0, sealed), page}},
		"half a file":        {good(), []int{memfd(t, size, size/2, sealed), page}},
		"unallocated page":   {good(), []int{file, memfd(t, pageBytes, 0, sealed)}},
		"no memory at all":   {good(), []int{int(os.Stdin.Fd()), int(os.Stdin.Fd())}},
		"garbage":            {[]byte("GET / HTTP/1.1\r\n\r\n"), nil},
		"garbage with files": {[]byte("GET / HTTP/1.1\r\n\r\n"), []int{file, page}},
	}
	before := count(t, "/proc/self/fd")
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path, err := b.v.host.path(addr)
			require.NoError(t, err)
			conn, err := net.DialUnix(socketType, nil, &net.UnixAddr{Name: path, Net: socketType})
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			if c.hello != nil {
				_, _, err = conn.WriteMsgUnix(c.hello, unix.UnixRights(c.fds...), nil)
				require.NoError(t, err)
			} else {
				require.NoError(t, conn.CloseWrite())
			}
			n, err := conn.Read(make([]byte, 100))
			require.True(t, n == 0 || err != nil, "it was answered")
		})
	}
	b.eventually("the descriptors", func() bool { return count(t, "/proc/self/fd") <= before })
	x := newParty(t, Options{}).dial(addr)
	b.until(van.EventAccepted)
	require.NoError(t, x.Send(message(1)))
	b.until(van.EventMessage).Delivery.Release()
}

// otherVersion is a hello of another version, with so many more bytes than this version has.
func otherVersion(more int) []byte {
	h := binary.LittleEndian.AppendUint32([]byte(helloMagic), helloVersion+1)
	return append(h, make([]byte, helloBytes-len(h)+more)...)
}

// A peer that dials learns by which version this side shares memory, in a hello that begins as its own do.
func TestThePeerLearnsThatTheVersionsDiffer(t *testing.T) {
	b := newParty(t, Options{})
	path, err := b.v.host.path(b.listen())
	require.NoError(t, err)
	for _, more := range []int{0, 1, 64} {
		conn, err := net.DialUnix(socketType, nil, &net.UnixAddr{Name: path, Net: socketType})
		require.NoError(t, err)
		_, err = conn.Write(otherVersion(more))
		require.NoError(t, err)
		answer := make([]byte, 2*helloBytes)
		n, err := conn.Read(answer)
		require.NoError(t, err)
		var h hello
		require.Equal(t, helloBytes, n)
		_, err = binary.Decode(answer[:n], binary.LittleEndian, &h)
		require.NoError(t, err)
		require.Equal(t, hello{Magic: [8]byte([]byte(helloMagic)), Version: helloVersion}, h)
		n, err = conn.Read(answer)
		require.True(t, n == 0 || err != nil, "it stayed open")
		require.NoError(t, conn.Close())
	}
}

// A peer whose messages have another version learns ours, in a header that its own decoder understands as such.
func TestThePeerLearnsThatTheVersionsOfMessagesDiffer(t *testing.T) {
	a, b := newParty(t, Options{}), newParty(t, Options{})
	x := a.dial(b.listen())
	b.until(van.EventAccepted)
	m := message(1)
	binary.LittleEndian.PutUint16(m.Head[4:], wire.Version+1)
	require.NoError(t, x.Send(m))
	var version *wire.VersionError
	require.ErrorAs(t, b.until(van.EventLost).Err, &version)
	require.Equal(t, wire.VersionError{Peer: wire.Version + 1, Own: wire.Version}, *version)
	d := a.until(van.EventMessage).Delivery
	require.Equal(t, wire.KindRefuse, d.Header.Kind)
	d.Release()
	require.ErrorIs(t, a.until(van.EventLost).Err, stepvan.ErrPeerLost)
}

// Dial does not try again where a peer of another version listens.
func TestDialTellsThatTheVersionsDiffer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix(socketType, &net.UnixAddr{Name: path, Net: socketType})
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, helloBytes))
			_, _ = c.Write(otherVersion(1))
			_ = c.Close()
		}
	}()
	a := newParty(t, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = a.v.Dial(ctx, a.v.host.address(path))
	require.ErrorContains(t, err, fmt.Sprintf("the peer shares memory by version %d, this program by %d", helloVersion+1, helloVersion))
}

// fileMessage is what goes with a file.
func fileMessage(magic, id uint64, size int64) []byte {
	b := make([]byte, fileMessageBytes)
	binary.LittleEndian.PutUint64(b, magic)
	binary.LittleEndian.PutUint64(b[8:], id)
	binary.LittleEndian.PutUint64(b[16:], uint64(size))
	return b
}

func TestHostileFileMessages(t *testing.T) {
	const size = 1 << 16
	good := func() int { return memfd(t, size, size, sealed) }
	cases := map[string]func(sock int){
		"garbage":       func(s int) { _ = sendDescriptors(s, []byte("garbage")) },
		"too long":      func(s int) { _ = sendDescriptors(s, make([]byte, 4096)) },
		"no descriptor": func(s int) { _ = sendDescriptors(s, fileMessage(fileMagic, 1, size)) },
		"two":           func(s int) { _ = sendDescriptors(s, fileMessage(fileMagic, 1, size), good(), good()) },
		"many": func(s int) {
			f := good()
			_ = sendDescriptors(s, fileMessage(fileMagic, 1, size), f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f)
		},
		"magic":       func(s int) { _ = sendDescriptors(s, fileMessage(1, 1, size), good()) },
		"unsealed":    func(s int) { _ = sendDescriptors(s, fileMessage(fileMagic, 1, size), memfd(t, size, size, 0)) },
		"unallocated": func(s int) { _ = sendDescriptors(s, fileMessage(fileMagic, 1, size), memfd(t, size, 0, sealed)) },
		"short":       func(s int) { _ = sendDescriptors(s, fileMessage(fileMagic, 1, size+4096), good()) },
		"negative":    func(s int) { _ = sendDescriptors(s, fileMessage(fileMagic, 1, -1), good()) },
		"twice": func(s int) {
			_ = sendDescriptors(s, fileMessage(fileMagic, 1, size), good())
			_ = sendDescriptors(s, fileMessage(fileMagic, 1, size), good())
		},
		"a wake with fd": func(s int) { _ = sendDescriptors(s, wakeByte[:], good()) },
		"a flood": func(s int) {
			f := good()
			for i := range maxFiles + 1 {
				for sendDescriptors(s, fileMessage(fileMagic, uint64(i+1), size), f) != nil {
					runtime.Gosched() // until the receiver has taken some
				}
			}
		},
	}
	for name, send := range cases {
		t.Run(name, func(t *testing.T) {
			_, b, x, _ := pair(t, Options{Files: memory()})
			z := newParty(t, Options{}).dial(b.v.host.address(b.v.listenerPath(t)))
			b.until(van.EventAccepted)
			maps := mappings(t)
			sent, sock := make(chan struct{}), x.conn.sock
			go func() { defer close(sent); send(sock) }()
			lost := b.until(van.EventLost)
			require.ErrorAs(t, lost.Err, new(*stepvan.ProtocolError))
			require.NoError(t, z.Send(message(1)))
			b.until(van.EventMessage).Delivery.Release()
			<-sent
			require.NoError(t, x.conn.van.Close())
			b.until(van.EventDetached)
			require.LessOrEqual(t, mappings(t), maps)
		})
	}
}

// Descriptors that come without a byte are given back as well.
func TestRightsWithoutAByte(t *testing.T) {
	_, b, x, _ := pair(t, Options{Files: memory()})
	file := memfd(t, 1<<16, 1<<16, sealed)
	open := descriptors(t)
	for range 3 {
		sendRights(x.conn.sock, file, file)
	}
	require.ErrorAs(t, b.until(van.EventLost).Err, new(*stepvan.ProtocolError))
	require.LessOrEqual(t, descriptors(t), open)
}

// sendRights sends descriptors and nothing else, which unix.Sendmsg does not.
func sendRights(sock int, fds ...int) {
	rights := unix.UnixRights(fds...)
	var vec unix.Iovec
	msg := unix.Msghdr{Iov: &vec, Control: &rights[0]}
	msg.SetIovlen(1)
	msg.SetControllen(len(rights))
	_, _, _ = unix.Syscall(unix.SYS_SENDMSG, uintptr(sock), uintptr(unsafe.Pointer(&msg)), unix.MSG_NOSIGNAL)
}

// Records of any content cost the connection or are messages; they fault nothing.
func TestGarbageRecords(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	kinds := []kind{kindSkip, kindInline, kindWritten, kindMapped, kindForeign, kindStream, kindChunk, kindForget, kindEnd, 255}
	for round := range 200 {
		rec := make([]byte, 256)
		for i := range rec {
			rec[i] = byte(rng.UintN(256))
		}
		if round%2 == 0 { // as near to a record as chance gets
			m := message(1, make([]byte, rng.IntN(9)))
			le := binary.LittleEndian
			le.PutUint32(rec[recHead:], uint32(len(m.Head)))
			le.PutUint32(rec[recSegs:], rng.Uint32N(3))
			le.PutUint64(rec[recSize:], uint64(len(m.Payload[0])))
			copy(rec[recBody:], m.Head)
		}
		replay(t, kinds[round%len(kinds)], rec)
	}
}

// replay has a van read one record of a peer's, and looks whether it still works.
func replay(t testing.TB, k kind, rec []byte) {
	_, b, x, y := pair(t, Options{Files: memory(), RingBytes: minRing, Grants: minSlots, Credits: MaxCredits})
	n := min(align(recBody+len(rec)), minRing/4)
	out, err := x.sender.out.begin(n)
	require.NoError(t, err)
	copy(out[8:], rec[min(8, len(rec)):])
	x.sender.out.publish(n, k, 0)
	b.eventually("the record", func() bool {
		var ev [4]van.Event
		for _, e := range ev[:b.v.Poll(ev[:], true)] {
			if e.Delivery != nil {
				e.Delivery.Release()
			}
		}
		return y.conn.state.Load() != stateOpen || !y.receiver.in.waiting()
	})
	require.NoError(t, x.conn.van.Close())
	require.NoError(t, y.conn.van.Close())
}

// A peer that connects and says nothing gets no ring.
func TestSilentPeersGetNoRing(t *testing.T) {
	b := newParty(t, Options{})
	addr := b.listen()
	path, err := b.v.host.path(addr)
	require.NoError(t, err)
	for range 30 {
		conn, err := net.DialUnix(socketType, nil, &net.UnixAddr{Name: path, Net: socketType})
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
	}
	newParty(t, Options{}).dial(addr)
	b.until(van.EventAccepted) // it connected last
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	rings := 0
	for _, f := range files {
		if to, _ := os.Readlink("/proc/self/fd/" + f.Name()); strings.Contains(to, "stepvan:ring") {
			rings++
		}
	}
	require.LessOrEqual(t, rings, 2, "one on each side of the last")
}
