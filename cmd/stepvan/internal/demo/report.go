package demo

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stepvan/stepvan/examples/afd"
	process "github.com/stepvan/stepvan/examples/afd/demo"
	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/trace"
)

func (o *Options) introduce() {
	if o.Synthetic {
		o.say("%d workers push activations of Step-3's shape (%s out, %s back per server) to %d servers, %d micro-batches in flight.\n",
			o.Workers, kib(process.PushBytes), kib(process.PullBytes), o.Servers, process.InFlight)
		return
	}
	o.say("all-MiniLM-L6-v2, split: attention in %d workers, a slice of every FFN in each of %d servers;\nevery layer's activations cross by push_pull, %d micro-batches in flight.\n",
		o.Workers, o.Servers, afd.DefaultInFlight)
}

func kib(n int) string { return fmt.Sprintf("%g KiB", float64(n)/1024) }

func (o *Options) report(results []process.Result, took time.Duration) error {
	if !o.Synthetic {
		if err := o.reportEmbeddings(results, took); err != nil {
			return err
		}
	}
	o.reportVans(results)
	var entries []trace.Entry
	for i := range results {
		entries = append(entries, results[i].Trace...)
	}
	o.say("\nEach exchange with each server, in us: the worker's send, the network both ways, the server, and the way back into the program.")
	summary := trace.Summarize(entries, trace.ByLabel)
	return summary.Table(o.Output)
}

func (o *Options) reportEmbeddings(results []process.Result, took time.Duration) error {
	var all []model.Embedding
	for i := range results {
		all = append(all, results[i].Embeddings...)
	}
	sentences := afd.Sentences()
	if len(all) != len(sentences) {
		return fmt.Errorf("demo: sentences are missing (got %d embeddings, want %d)", len(all), len(sentences))
	}
	o.say("\n%d sentences embedded in %.1f s, start and stop of all processes included.", len(all), took.Seconds())
	want, err := o.reference()
	if err != nil {
		return err
	}
	if i := firstDifference(want, all); i >= 0 {
		return fmt.Errorf("demo: the embedding of sentence %d, %q, differs from that of one process", i, sentences[i])
	}
	o.say("The same split in one process gives the same embeddings, bit for bit.")
	o.say("\nNearest to %q:", o.Query)
	for _, m := range model.Nearest(all, results[0].Query, 5) {
		o.say("  %.3f  %s", m.Cosine, sentences[m.Index])
	}
	return nil
}

// reportVans lists the vans that carried the tensors. One line is enough when all pairs used the
// same.
func (o *Options) reportVans(results []process.Result) {
	var all ps.Connections
	for i := range results {
		all = append(all, results[i].Vans...)
	}
	if len(all) == 0 {
		return
	}
	if !slices.ContainsFunc(all, func(c ps.Connection) bool { return c.Van != all[0].Van || c.Reason != all[0].Reason }) {
		o.say("\nTensors went by %s (%s).", all[0].Van, all[0].Reason)
		return
	}
	o.say("\nWhat carried the tensors:")
	for rank := range results {
		o.say("worker %d with %v", rank, results[rank].Vans)
	}
}

// firstDifference compares bits. It returns -1 when there is no difference.
func firstDifference(want, got []model.Embedding) int {
	sameBits := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
	for i := range want {
		if !slices.EqualFunc(want[i], got[i], sameBits) {
			return i
		}
	}
	return -1
}
