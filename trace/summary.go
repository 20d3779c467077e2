package trace

import (
	"slices"
	"time"
)

// Row has the figures of the requests with one label. The parts of one request add up to its total. Their percentiles
// need not.
type Row struct {
	Label string
	Count int // requests; an exchange with several servers has one for each server

	Total, Send, Network, Server, Back Quantiles

	BytesOut, BytesBack int64 // of all requests together
}

// Summary has one row for each label, and one for all requests together.
type Summary struct {
	Rows []Row // labels in natural order: "layer 9" before "layer 10"
	All  Row   // of all requests together
}

// ByLabel returns the label of the entry. It is a group function for [Summarize].
func ByLabel(e *Entry) string { return e.Label }

// Summarize computes the figures of the entries of workers for each label. group returns the label of an entry. It is
// [ByLabel], or a function that reads the key, for example. Summarize leaves out entries without all of the worker's
// stamps.
func Summarize(entries []Entry, group func(*Entry) string) Summary {
	groups, all := map[string]*durations{}, new(durations)
	for i := range entries {
		e := &entries[i]
		if !e.Stamps.HasWorker() {
			continue
		}
		label := group(e)
		g := groups[label]
		if g == nil {
			g = new(durations)
			groups[label] = g
		}
		g.add(e)
		all.add(e)
	}
	s := Summary{All: all.row("all")}
	for label, g := range groups {
		s.Rows = append(s.Rows, g.row(label))
	}
	slices.SortFunc(s.Rows, func(a, b Row) int { return natural(a.Label, b.Label) })
	return s
}

// durations collects the parts of the entries of one row.
type durations struct {
	total, send, network, server, back []time.Duration
	out, in                            int64
}

func (d *durations) add(e *Entry) {
	s := &e.Stamps
	d.total = append(d.total, s.Total())
	d.send = append(d.send, s.Send())
	d.network = append(d.network, s.Network())
	d.server = append(d.server, s.Server())
	d.back = append(d.back, s.Back())
	d.out += e.BytesOut
	d.in += e.BytesBack
}

func (d *durations) row(label string) Row {
	return Row{
		Label: label, Count: len(d.total),
		Total: quantiles(d.total), Send: quantiles(d.send), Network: quantiles(d.network),
		Server: quantiles(d.server), Back: quantiles(d.back),
		BytesOut: d.out, BytesBack: d.in,
	}
}
