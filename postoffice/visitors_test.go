package postoffice

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van/tcpvan"
)

const visitLimit = 20 * time.Second

// visitor is a peer that speaks the protocol as far as it likes.
type visitor struct {
	net.Conn
	seq uint64
}

func visit(addr string) (*visitor, error) {
	c, err := net.Dial("tcp", strings.TrimPrefix(addr, "tcp://"))
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(visitLimit))
	return &visitor{Conn: c}, nil
}

func (v *visitor) send(h wire.Header, meta []byte) error {
	b := make([]byte, wire.HeaderSize)
	h.Encode(b, meta)
	_, err := v.Write(append(b, meta...))
	return err
}

// hello introduces a peer without number and name.
func (v *visitor) hello() error {
	const nameless = 20 // bytes of an identity
	return v.send(wire.Header{Kind: wire.KindHello}, make([]byte, nameless))
}

func (v *visitor) heartbeat() error {
	v.seq++
	return v.send(wire.Header{Kind: wire.KindData, Channel: link.ChannelControl, Op: uint8(opHeartbeat), Sequence: v.seq}, nil)
}

// ended waits until the other side has ended the connection.
func (v *visitor) ended(t *testing.T) {
	t.Helper()
	_, err := io.Copy(io.Discard, v)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the visitor was never put out")
}

// Whatever a visitor does after it has introduced itself, it is put out.
func TestVisitorsArePutOut(t *testing.T) {
	for name, act := range map[string]func(*testing.T, *visitor){
		"silent": func(t *testing.T, v *visitor) { v.ended(t) },
		"heartbeats": func(t *testing.T, v *visitor) {
			go func() { _, _ = io.Copy(io.Discard, v) }()
			for v.heartbeat() == nil {
				time.Sleep(10 * time.Millisecond)
			}
		},
		"heartbeats, and reads no answer": func(t *testing.T, v *visitor) {
			var err error
			for err == nil {
				err = v.heartbeat()
			}
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the visitor was never put out")
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLive(t, pairtest.TCP(), SchedulerOptions{Workers: 1, JoinTimeout: 100 * time.Millisecond})
			v, err := visit(l.addrs[0])
			require.NoError(t, err)
			defer func() { _ = v.Close() }()
			require.NoError(t, v.hello())
			act(t, v)
		})
	}
}

// Visitors may come faster than they are put out. They keep no node out of the cluster: neither a node that has
// registered long ago nor a node that comes late.
func TestNodesGetInDuringAFlood(t *testing.T) {
	const visitors, enough = 16, 400
	registered := make(lines, 64)
	l := newVisited(t, pairtest.TCPVan("tcp", tcpvan.Options{Pending: visitors}), SchedulerOptions{Workers: 1, Servers: 1, StartTimeout: visitLimit, Options: Options{Log: zerolog.New(registered)}}, visitors)
	ctx, cancel := context.WithTimeout(t.Context(), visitLimit)
	defer cancel()
	joined := make(chan error, 2)
	_, join := l.add(stepvan.RoleServer, 0)
	go func() { joined <- join(ctx) }()
	registered.await(t, "1 of 2 nodes")

	var flood sync.WaitGroup
	came := make(chan struct{}, 1)
	over, stop := context.WithCancel(ctx)
	for range 8 {
		flood.Go(func() { inundate(over, l.addrs[0], came) })
	}
	defer flood.Wait()
	defer stop()
	for range enough {
		select {
		case <-came:
		case <-ctx.Done():
			t.Fatal("no flood")
		}
	}
	_, late := l.add(stepvan.RoleWorker, 0)
	go func() { joined <- late(ctx) }()
	for range cap(joined) {
		require.NoError(t, <-joined)
	}
	require.NoError(t, l.s.Start(ctx))
}

// lines is a log whose lines can be waited for; what nobody reads is dropped.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default:
	}
	return len(p), nil
}

func (l lines) await(t *testing.T, part string) {
	t.Helper()
	limit := time.After(visitLimit)
	for {
		select {
		case line := <-l:
			if strings.Contains(line, part) {
				return
			}
		case <-limit:
			t.Fatalf("no line with %q", part)
		}
	}
}

// inundate keeps some visitors at a time connected, which say hello and show that they live.
func inundate(ctx context.Context, addr string, came chan<- struct{}) {
	var guests []*visitor
	for ctx.Err() == nil {
		v, err := visit(addr)
		if err == nil {
			err = errors.Join(v.hello(), v.heartbeat())
			guests = append(guests, v)
		}
		select {
		case came <- struct{}{}:
		default:
		}
		if len(guests) > 16 || err != nil && len(guests) > 0 {
			_ = guests[0].Close()
			guests = guests[1:]
		}
	}
	for _, v := range guests {
		_ = v.Close()
	}
}
