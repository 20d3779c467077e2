package tcpvan

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

func hasIPv6() bool {
	l, err := net.Listen("tcp", "[::1]:0")
	if err == nil {
		_ = l.Close()
	}
	return err == nil
}

// talk proves that a message passes in both directions.
func talk(t *testing.T, a, b *party, out, in van.Endpoint) {
	t.Helper()
	there, back := message(1, 3, pattern(9, 1)), message(2, 3, pattern(9, 1))
	require.NoError(t, out.Send(there))
	expect(t, van.EventMessage, b, a).Delivery.Release()
	completed(t, there, a, b)
	require.NoError(t, in.Send(back))
	expect(t, van.EventMessage, a, b).Delivery.Release()
	completed(t, back, b, a)
}

func TestAddresses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	cases := []struct {
		name, listen, bound string // bound: how the address to dial begins
		peer                string // how the accepted endpoint names its peer
		v6                  bool
	}{
		{"IPv4", "127.0.0.1:0", "127.0.0.1:", "127.0.0.1:", false},
		{"IPv6", "[::1]:0", "[::1]:", "[::1]:", true},
		{"name", "localhost:0", "", "", false},
		{"all interfaces", ":0", "", "", false},
		{"all interfaces of IPv4", "0.0.0.0:0", "0.0.0.0:", "127.0.0.1:", false},
		{"all interfaces of IPv6", "[::]:0", "[::]:", "", true},
		{"path", "unix:" + path, "unix:" + path, "unix:" + path, false},
		{"abstract", "unix:@" + t.Name(), "unix:@" + t.Name(), "unix:@", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.v6 && !hasIPv6() {
				t.Skip("this machine has no IPv6")
			}
			a, b := newParty(t, Options{}), newParty(t, Options{})
			bound, err := b.Listen(c.listen)
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(bound, c.bound), bound)
			out, in := dial(t, a, b, bound)
			require.Equal(t, bound, out.Peer())
			require.True(t, strings.HasPrefix(in.Peer(), c.peer), in.Peer())
			talk(t, a, b, out, in)
			if c.name == "name" {
				_, port, _ := net.SplitHostPort(bound)
				out, in = dial(t, a, b, "localhost:"+port)
				talk(t, a, b, out, in)
			}
		})
	}
}

func TestBadAddresses(t *testing.T) {
	v := newParty(t, Options{})
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for _, addr := range []string{"", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", "::1:80", "unix:", "unix:@", "unix:/" + strings.Repeat("x", 200), "unix:/a\x00b"} {
		_, err := v.Dial(ctx, addr)
		require.ErrorIs(t, err, stepvan.ErrInvalid, addr)
		_, err = v.Listen(addr)
		require.ErrorIs(t, err, stepvan.ErrInvalid, addr)
		var oe *stepvan.OpError
		require.ErrorAs(t, err, &oe)
	}
	_, err := v.Dial(ctx, "no such name.invalid:80")
	var dns *net.DNSError
	require.ErrorAs(t, err, &dns)
	require.NoError(t, ctx.Err(), "a name that does not exist is no reason to wait")
}

func TestLocal(t *testing.T) {
	v := newParty(t, Options{Local: true})
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:80"} {
		_, err := v.Listen(addr)
		require.ErrorIs(t, err, stepvan.ErrInvalid, addr)
		_, err = v.Dial(context.Background(), addr)
		require.ErrorIs(t, err, stepvan.ErrInvalid, addr)
	}
	for _, addr := range []string{"127.0.0.1:0", "unix:@" + t.Name()} {
		w := newParty(t, Options{Local: true})
		out, in := connect(t, v, w, addr)
		talk(t, v, w, out, in)
	}
}

func TestPortInUse(t *testing.T) {
	v := newParty(t, Options{})
	bound, err := v.Listen("127.0.0.1:0")
	require.NoError(t, err)
	_, err = v.Listen(bound)
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.ErrorContains(t, err, bound)
	require.ErrorContains(t, err, "choose another port or stop the process that holds it")
	path := "unix:" + filepath.Join(t.TempDir(), "s")
	_, err = v.Listen(path)
	require.NoError(t, err)
	_, err = v.Listen(path)
	require.ErrorIs(t, err, unix.EADDRINUSE)
}

// The file of a killed process does not stand in the way, and is removed by Close.
func TestSocketFileLeftBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	require.FileExists(t, path)

	v := newParty(t, Options{})
	_, err = v.Listen("unix:" + path)
	require.NoError(t, err)
	require.NoError(t, v.Close())
	require.NoFileExists(t, path)

	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	w := newParty(t, Options{})
	_, err = w.Listen("unix:" + path)
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.FileExists(t, path, "a file that is no socket was removed")
}

// closedPort is an address of this machine at which nobody listens.
func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func TestDialGivesUp(t *testing.T) {
	v := newParty(t, Options{})
	addr := closedPort(t)
	var err error
	for missesAllowed := 30 * time.Millisecond; missesAllowed < limit && !errors.Is(err, unix.ECONNREFUSED); missesAllowed *= 2 {
		// On a busy machine the first attempt may take longer than the context lives.
		ctx, cancel := context.WithTimeout(context.Background(), missesAllowed)
		_, err = v.Dial(ctx, addr)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.ErrorIs(t, err, unix.ECONNREFUSED)
	require.ErrorContains(t, err, addr)
	require.ErrorContains(t, err, "gave up after")
	require.ErrorContains(t, err, "is the other side running there")
	var oe *stepvan.OpError
	require.ErrorAs(t, err, &oe)
	require.True(t, oe.Timeout())
}

func TestCloseEndsDial(t *testing.T) {
	v := newParty(t, Options{})
	addr := closedPort(t)
	failed := make(chan error)
	go func() {
		_, err := v.Dial(context.Background(), addr)
		failed <- err
	}()
	require.NoError(t, v.Close())
	require.ErrorIs(t, <-failed, stepvan.ErrClosed)
	_, err := v.Dial(context.Background(), addr)
	require.ErrorIs(t, err, stepvan.ErrClosed)
	_, err = v.Listen("127.0.0.1:0")
	require.Error(t, err)
	require.Equal(t, -1, v.FD())
}

func TestOptions(t *testing.T) {
	_, err := New(Options{})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	for name, o := range map[string]Options{
		"Rails":         {Rails: MaxRails + 1},
		"RailThreshold": {RailThreshold: -1},
		"SmallBytes":    {SmallBytes: -1},
		"SocketBuffer":  {SocketBuffer: -1},
		"Credits":       {Credits: MaxCredits + 1},
		"SendQueue":     {SendQueue: -1},
		"Pending":       {Pending: -1},
		"PendingTime":   {PendingTime: -1},
	} {
		o.Placer = &memory{}
		_, err := New(o)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, name)
	}
	o, err := Options{Placer: &memory{}}.complete()
	require.NoError(t, err)
	again, err := o.complete()
	require.NoError(t, err)
	require.Equal(t, o, again)
}
