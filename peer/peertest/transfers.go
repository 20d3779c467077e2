package peertest

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// sizes of transfers, in numbers of 8 bytes: around what is sent at once, around a chunk, and more than are in flight.
var sizes = []int64{0, 1, 2047, 2048, 2049, 8 << 10, 1<<17 - 1, 1 << 17, 1<<17 + 1, 1 << 20}

func transfers(m *member) {
	for k, n := range sizes {
		for _, from := range places {
			for _, to := range places {
				for _, sendFirst := range []bool{true, false} {
					seed := 1 + k
					if m.rank == 0 {
						src := m.empty(from, n)
						fill(src, seed)
						if !sendFirst {
							m.waitForAll()
						}
						h, err := m.peer.Send(m.all(src), 1, peer.Tag(k))
						if sendFirst {
							m.waitForAll()
						}
						m.wait(h, err)
						poison(src)
						m.waitForAll()
					} else {
						dst := m.empty(to, n)
						if sendFirst {
							m.waitForAll()
						}
						h, err := m.peer.Recv(m.all(dst), 0, peer.Tag(k))
						if !sendFirst {
							m.waitForAll()
						}
						m.wait(h, err)
						m.want(is(dst, seed), "wrong elements in a transfer of %d numbers", n)
						poison(dst)
						m.waitForAll()
						m.want(clean(dst), "a transfer of %d numbers writes after its end", n)
					}
					m.free()
				}
			}
		}
	}
}

func strides(m *member) {
	const rows = 700
	for k, width := range []int64{3, 64, 700} {
		for _, at := range places {
			x := m.empty(at, rows*width*2)
			if m.rank == 0 {
				fill(x, k)
				m.wait(m.peer.Send(m.cols(x, width*2, 1, width), 1, 1))
				row := m.view(x, tensor.ShapeOf(rows, width), []int64{0, 1}, 5) // one row again and again
				m.wait(m.peer.Send(row, 1, 2))
			} else {
				poison(x)
				m.wait(m.peer.Recv(m.cols(x, width*2, width, width), 0, 1))
				for i, n := range x {
					r, c := int64(i)/(2*width), int64(i)%(2*width)
					want := int64(-7)
					if c >= width {
						want = int64(k)<<32 + r*2*width + 1 + c - width
					}
					m.want(n == want, "element %d of columns of %d is %d, want %d", i, width, n, want)
				}
				m.wait(m.peer.Recv(m.cols(x, width*2, 0, width), 0, 2))
				for i, n := range x {
					if c := int64(i) % (2 * width); c < width {
						m.want(n == int64(k)<<32+5+c, "element %d of a row that is sent again and again is %d", i, n)
					}
				}
				_, err := m.peer.Recv(m.view(x, tensor.ShapeOf(4, 4), []int64{0, 1}, 0), 0, 3)
				m.want(errors.Is(err, stepvan.ErrInvalid), "a destination that overlaps itself: got %v", err)
			}
			m.waitForAll()
			m.free()
		}
	}
}

func order(m *member) {
	lengths := []int64{5000, 1, 3000, 10, 40_000, 0, 1, 2048, 2049}
	const tags = 3
	if m.rank == 0 {
		var handles []Handle
		for i, n := range lengths {
			for tag := range tags {
				src := make([]int64, n)
				fill(src, i*tags+tag)
				h, err := m.peer.Send(m.all(src), 1, peer.Tag(tag))
				m.must(err, "send")
				handles = append(handles, h)
			}
		}
		for _, h := range handles {
			m.wait(h, nil)
		}
		return
	}
	for tag := tags - 1; tag >= 0; tag-- {
		for i, n := range lengths {
			dst := make([]int64, n)
			m.wait(m.peer.Recv(m.all(dst), 0, peer.Tag(tag)))
			m.want(is(dst, i*tags+tag), "transfer %d with tag %d is out of order", i, tag)
		}
	}
}

func allDial(m *member) {
	var handles []Handle
	in := make([][]int64, m.size)
	for r := range m.size {
		src := make([]int64, 3000)
		fill(src, m.rank)
		in[r] = make([]int64, 3000)
		h, err := m.peer.Recv(m.all(in[r]), stepvan.Rank(r), 1)
		m.must(err, "recv")
		s, err := m.peer.Send(m.all(src), stepvan.Rank(r), 1)
		m.must(err, "send")
		handles = append(handles, h, s)
	}
	for _, h := range handles {
		m.wait(h, nil)
	}
	for r := range in {
		m.want(is(in[r], r), "wrong elements of peer %d", r)
	}
	m.waitForAll()
}
