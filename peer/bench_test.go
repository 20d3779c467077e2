package peer_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// BenchmarkPlans compares runs of plans with a copy of as many bytes as they read, in turns. The figures are medians: a
// share of 0.7 is a run that takes 1/0.7 as long as the copy.
func BenchmarkPlans(b *testing.B) {
	for _, v := range []pairtest.Van{pairtest.Shm(), pairtest.TCP()} {
		for _, where := range []memory{shared, heap} {
			for _, c := range [][3]tensor.DType{
				{tensor.BFloat16, 0, tensor.BFloat16},
				{tensor.Float32, tensor.BFloat16, tensor.BFloat16},
				{tensor.BFloat16, tensor.BFloat16, tensor.Float32},
			} {
				for _, merge := range []peer.Merge{peer.Overwrite, peer.Sum} {
					for _, rows := range []int64{1 << 10, 64 << 10} {
						b.Run(fmt.Sprintf("%s/%v/%s-%s/%s/%d", v.Name, where, c[0], c[2], merge, rows), func(b *testing.B) {
							benchmarkPlan(b, v, where, c, merge, rows)
						})
					}
				}
			}
		}
	}
}

func benchmarkPlan(b *testing.B, v pairtest.Van, where memory, c [3]tensor.DType, merge peer.Merge, rows int64) {
	const total = 128 << 20
	all := pairtest.NewPeers(b, pairtest.Options{Van: v}, 2)
	width := total / int64(c[0].Size()) / rows
	whole := dense(b, all[1], where, c[2], rows, width+64)
	dst, err := whole.Narrow(1, 0, width)
	if err != nil {
		b.Fatal(err)
	}
	sources := 1
	if merge != peer.Overwrite {
		sources = 2
	}
	sends, recvs := make([][]peer.Move, 2), make([][]peer.Move, 2)
	for i := range sources {
		m := peer.Move{ID: uint64(i), Peer: 1, View: dense(b, all[0], where, c[0], rows, width), Wire: c[1]}
		from := m.View.Memory()
		for k, bytes := 0, from.Bytes(); k < len(bytes); k++ {
			bytes[k] = byte(k) & 0x3f
		}
		sends[0] = append(sends[0], m)
		m.Peer, m.View, m.Merge = 0, dst, merge
		recvs[1] = append(recvs[1], m)
	}
	plans := planEverywhere(b, all, "bench", sends, recvs)
	x, y := make([]byte, total), make([]byte, total)
	for k := range y {
		x[k], y[k] = 1, byte(k)
	}
	var runs, copies, shares []float64
	version := uint64(0)
	for range max(b.N, 9) {
		began := time.Now()
		for range sources {
			bulk.Copy(x, y)
		}
		copied := time.Since(began)
		version++
		began = time.Now()
		var g errgroup.Group
		for _, pl := range plans {
			g.Go(func() error {
				h, err := pl.Begin(version)
				if err != nil {
					return err
				}
				return h.Wait(pairtest.Context(b))
			})
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		took := time.Since(began)
		runs, copies = append(runs, took.Seconds()), append(copies, copied.Seconds())
		shares = append(shares, copied.Seconds()/took.Seconds())
	}
	for _, list := range [][]float64{runs, copies, shares} {
		slices.Sort(list)
	}
	b.ReportMetric(float64(total*sources)/1e9/copies[len(copies)/2], "copy-GB/s")
	b.ReportMetric(float64(total*sources)/1e9/runs[len(runs)/2], "GB/s")
	b.ReportMetric(shares[len(shares)/2], "share")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkReplicas sends 256 MiB to four receivers over TCP, with and without a chain, in turns. The figures are
// medians of the time until all have everything.
func BenchmarkReplicas(b *testing.B) {
	all := pairtest.NewPeers(b, pairtest.Options{Van: pairtest.TCP()}, 5)
	x := newBroadcast(b, all, 256<<20)
	var took [2][]float64
	for version := range uint64(max(b.N, 7)) {
		for on := range took {
			plans := planReplicas(b, all, x.sends, x.recvs, on == 1)
			runEverywhere(b, plans, 2*version+1) // the memory is touched
			began := time.Now()
			runEverywhere(b, plans, 2*version+2)
			took[on] = append(took[on], time.Since(began).Seconds())
			closeAll(b, plans)
		}
	}
	for on, name := range []string{"copies", "chain"} {
		slices.Sort(took[on])
		n := len(took[on])
		b.ReportMetric(1e3*took[on][n/2], name+"-ms")
		b.ReportMetric(1e3*took[on][n/4], name+"-low-ms")
		b.ReportMetric(1e3*took[on][3*n/4], name+"-high-ms")
	}
	b.ReportMetric(0, "ns/op")
}
