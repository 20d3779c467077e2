package limit

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/stepvan/stepvan/bench/refit"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/trace"
)

// flows are the sockets between one process of a bare resharding and those on the other side.
type flows struct {
	share  *refit.Share
	spec   Spec
	listen net.Listener // of a source, until its destinations have connected
	all    []*flow
}

// flow is one socket, and what moves over it.
type flow struct {
	conn net.Conn
	part []byte // of the memory of this process
	word [8]byte
}

func listenFlows(kind Kind, share *refit.Share) (*flows, string, error) {
	f := &flows{share: share, spec: Spec{Kind: kind}}
	if share.Destination {
		return f, "", nil
	}
	l, err := net.Listen(f.spec.network())
	if err != nil {
		return nil, "", err
	}
	f.listen = l
	return f, l.Addr().String(), nil
}

// parts are the bytes that move to or from each rank. They follow one another in the memory of the share, which may be
// smaller than all of them.
func (f *flows) parts() (ranks []int, of map[int]int64) {
	of = map[int]int64{}
	for i := range f.share.Moves {
		m := &f.share.Moves[i]
		if of[int(m.Peer)] == 0 {
			ranks = append(ranks, int(m.Peer))
		}
		of[int(m.Peer)] += m.Bytes()
	}
	slices.Sort(ranks)
	return ranks, of
}

// add adds a socket over which bytes move, which belongs to f from then on.
func (f *flows) add(conn net.Conn, at, bytes int64) error {
	f.all = append(f.all, &flow{conn: conn})
	memory := f.share.Memory()
	if bytes > int64(len(memory)) {
		return errs.Invalid("%d bytes move over one socket of a share of %d", bytes, len(memory))
	}
	if at+bytes > int64(len(memory)) {
		at = 0
	}
	f.all[len(f.all)-1].part = memory[at : at+bytes]
	return control(conn, func(fd int) error {
		tune(conn, fd)
		return nil
	})
}

// dial connects a destination with its sources. It tells each of them how many bytes it wants.
func (f *flows) dial(ctx context.Context, addrs []string) error {
	network, _ := f.spec.network()
	ranks, of := f.parts()
	at := int64(0)
	for _, rank := range ranks {
		if rank < 0 || rank >= len(addrs) {
			return errs.Invalid("a move of the limit comes from %d, and there are %d processes", rank, len(addrs))
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addrs[rank])
		if err != nil {
			return err
		}
		if err := f.add(conn, at, of[rank]); err != nil {
			return err
		}
		at += of[rank]
		if err := binary.Write(conn, binary.LittleEndian, of[rank]); err != nil {
			return gone("write", err)
		}
	}
	return nil
}

// accept waits for the destinations of a source.
func (f *flows) accept() error {
	if f.listen == nil {
		return nil
	}
	ranks, _ := f.parts()
	at := int64(0)
	for range ranks {
		conn, err := f.listen.Accept()
		if err != nil {
			return err
		}
		var bytes int64
		if err := binary.Read(conn, binary.LittleEndian, &bytes); err != nil || bytes < 1 {
			conn.Close()
			return errors.Join(errs.Invalid("a destination of the limit wants %d bytes", bytes), err)
		}
		if err := f.add(conn, at, bytes); err != nil {
			return err
		}
		at += bytes
	}
	f.listen.Close()
	f.listen = nil
	return nil
}

func (f *flows) run(count int, took func(time.Duration)) error {
	if err := f.accept(); err != nil {
		return err
	}
	move := (*flow).send
	if f.share.Destination {
		move = (*flow).receive
	}
	for last := trace.Now(); count > 0; count-- {
		if err := f.each(move); err != nil {
			return err
		}
		next := trace.Now()
		if f.share.Destination {
			took(time.Duration(next - last))
		}
		last = next
	}
	return nil
}

// each moves over all sockets at once. After an error it ends them all.
func (f *flows) each(move func(*flow) error) error {
	failed := make([]error, len(f.all))
	var ended sync.WaitGroup
	for i, one := range f.all {
		ended.Go(func() {
			if failed[i] = move(one); failed[i] != nil {
				f.close()
			}
		})
	}
	ended.Wait()
	return errors.Join(failed...)
}

// send writes all bytes, and waits until the other side has them.
func (f *flow) send() error {
	if _, err := f.conn.Write(f.part); err != nil {
		return gone("write", err)
	}
	_, err := io.ReadFull(f.conn, f.word[:1])
	return gone("read", err)
}

// receive reads all bytes, and says so.
func (f *flow) receive() error {
	if _, err := io.ReadFull(f.conn, f.part); err != nil {
		return gone("read", err)
	}
	_, err := f.conn.Write(f.word[:1])
	return gone("write", err)
}

func (f *flows) close() {
	if f.listen != nil {
		f.listen.Close()
	}
	for _, one := range f.all {
		one.conn.Close()
	}
}
