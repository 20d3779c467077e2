package replay

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/peer"
)

// state is how far a batch is.
type state uint8

const (
	idle state = iota
	requested
	submitted
	ready
	failed
)

// pack is a batch that is being prepared. Ring.mu guards it.
type pack struct {
	tick    Tick
	seed    uint64
	least   uint64 // min_snapshot_ptr
	slot    int
	attempt uint64
	state   state
	packed  *peer.Signal // the state is not requested any more
	asked   bool         // the collectors were, for this attempt
	err     error        // when failed
	seen    bool         // a caller has got err

	shares        []share
	whole         []uint64 // a bit for each row that is there
	left          int64    // rows that are not
	written, held uint64
}

// share is the rows that one collector has been asked for.
type share struct {
	rank        stepvan.Rank
	first, rows uint64
	left        uint64
}

// divide gives each collector its share of rows, which are alike as far as they can be.
func (p *pack) divide(rows int64, members []stepvan.Rank) {
	p.shares = p.shares[:0]
	n, total := uint64(len(members)), uint64(rows)
	for i, rank := range members {
		lo, hi := total*uint64(i)/n, total*uint64(i+1)/n
		if hi > lo {
			p.shares = append(p.shares, share{rank, lo, hi - lo, hi - lo})
		}
	}
	p.whole = append(p.whole[:0], make([]uint64, (rows+63)/64)...)
	p.left, p.written, p.held = rows, 0, 0
}

// take notes the rows of a note. It refuses rows that are not of the collector's share, and those that are there.
func (p *pack) take(from stepvan.Rank, n *note) error {
	for i := range p.shares {
		s := &p.shares[i]
		if s.rank != from {
			continue
		}
		if n.rows == 0 || n.first < s.first || n.first-s.first > s.rows || n.rows > s.rows-(n.first-s.first) {
			return fmt.Errorf("it says that it wrote %d rows from row %d on, and was asked for %d from row %d on", n.rows, n.first, s.rows, s.first)
		}
		if p.mark(n.first, n.rows) != n.rows {
			return fmt.Errorf("it says twice that it wrote some of the %d rows from row %d on", n.rows, n.first)
		}
		if s.left == s.rows {
			p.written, p.held = p.written+n.written, p.held+n.held
		}
		s.left -= n.rows
		p.left -= int64(n.rows)
		return nil
	}
	return fmt.Errorf("it was not asked for rows of tick %d", p.tick)
}

// mark sets the bits of some rows, and returns how many were not set.
func (p *pack) mark(first, rows uint64) (added uint64) {
	for at, end := first, first+rows; at < end; {
		n := min(64-at%64, end-at)
		mask := (^uint64(0) >> (64 - n)) << (at % 64)
		word := &p.whole[at/64]
		added += uint64(bits.OnesCount64(mask &^ *word))
		*word |= mask
		at += n
	}
	return added
}

// waitsFor lists the collectors whose rows are missing, for people.
func (p *pack) waitsFor() string {
	var names []string
	for _, s := range p.shares {
		if s.left > 0 {
			names = append(names, fmt.Sprintf("peer %d (%d of %d rows)", s.rank, s.left, s.rows))
		}
	}
	return strings.Join(names, ", ")
}
