package limit

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan/bench/refit"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/trace"
)

// Refit is one process of a bare resharding. Its runs follow one another in lock-step: no destination begins one before
// all have ended the last. One goroutine at a time.
//
// With Memory each destination maps the files of its sources, copies the boxes of its moves, and raises a flag. The
// sources sleep. With sockets each source writes to each of its destinations as many bytes as the moves have, and waits
// until they are read.
type Refit struct {
	share *refit.Share
	flows *flows // nil with Memory

	// With Memory.
	file   *shm.Memory           // of a source its model, of a destination its flag
	models map[int64]*shm.Memory // of the sources, by rank
	flags  []*atomic.Uint64      // of the other destinations
	maps   []*shm.Memory         // their files
	done   uint64                // runs
}

// OpenRefit makes a process with a share, and the address that others must know. kind is Memory, Netpoll or
// UnixNetpoll.
// The memory of the share holds what a source has to send.
func OpenRefit(kind Kind, share *refit.Share) (*Refit, string, error) {
	r := &Refit{share: share, models: map[int64]*shm.Memory{}}
	switch kind {
	case Netpoll, UnixNetpoll:
		var addr string
		var err error
		r.flows, addr, err = listenFlows(kind, share)
		return r, addr, err
	case Memory:
	default:
		return nil, "", errs.Invalid("%q is not a kind of bare resharding", kind)
	}
	bytes := int64(flagBytes)
	if !share.Destination {
		bytes = share.Bytes
	}
	file, err := shm.Create("stepvan-limit", max(bytes, 1), false)
	if err != nil {
		return nil, "", err
	}
	r.file = file
	if !share.Destination {
		copy(file.Bytes(), share.Memory())
	}
	return r, fmt.Sprintf(addrFormat, os.Getpid(), file.FD()), nil
}

// flagBytes is the file of a destination, which has one number.
const flagBytes = 4 << 10

// Connect connects a destination with the processes at addrs, which are in the order of their ranks. The first of them
// are sources. Destinations come behind them.
func (r *Refit) Connect(ctx context.Context, sources int, addrs []string) error {
	if r.flows != nil {
		return r.flows.dial(ctx, addrs)
	}
	for i := range r.share.Moves {
		m := &r.share.Moves[i]
		rank := int64(m.Peer)
		if r.models[rank] != nil {
			continue
		}
		if rank < 0 || rank >= int64(sources) || sources > len(addrs) {
			return errs.Invalid("a move of the limit comes from %d, which is not one of %d sources", rank, sources)
		}
		file, err := mapFile(addrs[rank])
		if err != nil {
			return err
		}
		r.models[rank] = file
	}
	own := fmt.Sprintf(addrFormat, os.Getpid(), r.file.FD())
	for _, addr := range addrs[sources:] {
		if addr == own {
			continue
		}
		file, err := mapFile(addr)
		if err != nil {
			return err
		}
		r.maps, r.flags = append(r.maps, file), append(r.flags, number(file, 0))
	}
	return nil
}

// mapFile maps the whole file at an address.
func mapFile(addr string) (*shm.Memory, error) {
	var pid, fd uint32
	if _, err := fmt.Sscanf(addr, addrFormat, &pid, &fd); err != nil || addr != fmt.Sprintf(addrFormat, pid, fd) {
		return nil, errs.Invalid("%q is not the address of a shared memory file", addr)
	}
	opened, err := os.OpenFile(addr, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the shared memory of the limit: %w", err)
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return nil, err
	}
	return shm.Map(int(opened.Fd()), info.Size())
}

// Run does count runs. A destination reports the time of each. Budget: 0 allocations per run.
func (r *Refit) Run(count int, took func(time.Duration)) error {
	if r.flows != nil {
		return r.flows.run(count, took)
	}
	if !r.share.Destination {
		return nil
	}
	for last := trace.Now(); count > 0; count-- {
		for i := range r.share.Moves {
			r.copy(&r.share.Moves[i])
		}
		if err := r.raise(); err != nil {
			return err
		}
		next := trace.Now()
		took(time.Duration(next - last))
		last = next
	}
	return nil
}

// copy copies a box, row by row. Rows that touch are one.
func (r *Refit) copy(m *refit.Move) {
	to, from := r.share.Memory()[m.Mine.At:], r.models[int64(m.Peer)].Bytes()[m.Theirs.At:]
	b := m.Rows()
	for ; b.Count > 0; b.Count-- {
		copy(to[:b.Bytes], from)
		if b.Count > 1 {
			to, from = to[b.To:], from[b.From:]
		}
	}
}

// flagSleep is how long a destination sleeps between two looks at the flags of others.
const flagSleep = 20 * time.Microsecond

// raise says that this destination has ended a run, and waits for the others.
func (r *Refit) raise() error {
	r.done++
	number(r.file, 0).Store(r.done)
	began := time.Now()
	for looks := 0; ; looks++ {
		waiting := false
		for _, flag := range r.flags {
			n := flag.Load()
			if n == goneNumber {
				return errGone
			}
			waiting = waiting || n < r.done
		}
		switch {
		case !waiting:
			return nil
		case looks < emptyBeforeYield:
		case time.Since(began) > silentTime:
			return errs.Invalid("the other side has been silent for %v", silentTime)
		default:
			time.Sleep(flagSleep)
		}
	}
}

// Close ends the process, and the wait of others.
func (r *Refit) Close() {
	if r.flows != nil {
		r.flows.close()
	}
	if r.file == nil {
		return
	}
	if r.share.Destination {
		number(r.file, 0).Store(goneNumber)
	}
	_ = r.file.Close() // the bytes are of no further use
	r.file = nil
	for _, file := range r.models {
		_ = file.Close()
	}
	for _, file := range r.maps {
		_ = file.Close()
	}
}
