package reshard

import (
	"encoding/binary"
	"math"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// ReadRoster reads what [Roster.Append] has written. It trusts nothing: the error of bytes that make no roster is a
// [stepvan.ProtocolError].
func ReadRoster(b []byte) (*Roster, error) {
	c, err := newReading().roster(b)
	if err != nil {
		return nil, err
	}
	return &Roster{c.rank, c.sides[0].parameters(c.forms), c.sides[1].parameters(c.forms)}, nil
}

func (s *section) parameters(forms []*Form) []Parameter {
	var all []Parameter
	for i, name := range s.names {
		all = append(all, Parameter{name, s.resolved[i], *forms[s.forms[i]]})
	}
	return all
}

// contents are what a roster has, with the lists that rosters of other ranks share.
type contents struct {
	rank  stepvan.Rank
	forms []*Form
	sides [2]section
}

// section is one side of a roster.
type section struct {
	names    []string
	resolved []string // may be names
	forms    []int32  // by number
}

// reading reads the rosters of all ranks. Most ranks have the same names, and the reading has each list of names and
// each form once.
type reading struct {
	names  map[string][]string
	forms  map[formKey]*Form
	groups map[string][]stepvan.Rank
	spans  int // of the parts that one roster may still describe
}

// formKey tells forms apart: the bytes behind the groups, and the groups by their first element.
type formKey struct {
	rest                 string
	tensor, data, expert *stepvan.Rank
}

func newReading() *reading {
	return &reading{names: map[string][]string{}, forms: map[formKey]*Form{}, groups: map[string][]stepvan.Rank{}}
}

func (g *reading) roster(b []byte) (*contents, error) {
	r := reader{all: b, field: "roster"}
	r.code(codeRoster, rosterVersion)
	c := &contents{rank: stepvan.Rank(r.number("rank", 0, maxRank))}
	g.spans = maxSpans
	groups := make([][]stepvan.Rank, 1, 8) // number 0 stands for no group
	for range r.number("groups", 0, int64(min(maxLists, r.left()))) {
		groups = append(groups, g.group(&r))
	}
	for range r.number("forms", 0, int64(min(maxForms, r.left()/4))) {
		c.forms = append(c.forms, g.form(&r, groups))
	}
	for i := range c.sides {
		g.section(&r, &c.sides[i], len(c.forms))
	}
	if r.err == nil && r.left() > 0 {
		r.fail("%d bytes follow the end", r.left())
	}
	return c, r.err
}

// group reads the ranks of a group. The result is never nil.
func (g *reading) group(r *reader) []stepvan.Rank {
	start := r.at
	ranks := make([]stepvan.Rank, 0, r.number("ranks of a group", 0, int64(min(maxGroup, r.left()))))
	for range cap(ranks) {
		ranks = append(ranks, stepvan.Rank(r.number("rank of a group", 0, maxRank)))
	}
	if known := g.groups[string(r.all[start:r.at])]; known != nil {
		return known
	}
	if len(ranks) == 0 {
		r.fail("a group has no ranks")
		return ranks
	}
	g.groups[string(r.all[start:r.at])] = ranks
	return ranks
}

func (g *reading) form(r *reader, groups [][]stepvan.Rank) *Form {
	end := r.length("length of a form", 0, math.MaxInt32)
	end += r.at
	var own Groups
	for _, to := range []*[]stepvan.Rank{&own.Tensor, &own.Data, &own.Expert} {
		*to = groups[r.number("number of a group", 0, int64(len(groups)-1))]
	}
	if r.err != nil || r.at > end {
		r.fail("a form is longer than its length")
		return nil
	}
	key := formKey{string(r.all[r.at:end]), first(own.Tensor), first(own.Data), first(own.Expert)}
	if known := g.forms[key]; known != nil {
		r.at = end
		return known
	}
	inner := reader{all: r.all[:end], at: r.at, field: "form of a parameter"}
	f := inner.form(own)
	if inner.err == nil && inner.left() > 0 {
		inner.fail("%d bytes follow the end", inner.left())
	}
	if f.Part != nil {
		for d := range f.Part.Shape().Rank() {
			g.spans -= len(f.Part.Spans(d))
		}
	}
	if g.spans < 0 {
		inner.fail("the parts have too many spans (want at most %d in all)", maxSpans)
	}
	if r.at = end; inner.err != nil {
		r.err = inner.err
	}
	g.forms[key] = f
	return f
}

func first(ranks []stepvan.Rank) *stepvan.Rank {
	if len(ranks) == 0 {
		return nil
	}
	return &ranks[0]
}

// form reads what appendForm has written.
func (r *reader) form(groups Groups) *Form {
	f := &Form{DType: tensor.DType(r.byte())}
	flags := int(r.byte())
	f.Buffer = flags&flagBuffer != 0
	f.Shape = r.shape()
	switch flags >> kindShift {
	case kindWhole:
	case kindParallel:
		p := &Parallel{Divided: flags&flagDivided != 0, Expert: flags&flagExpert != 0, Indexed: flags&flagIndexed != 0, Groups: groups}
		p.Dim = int(r.number("partition_dim", 0, tensor.MaxRank-1))
		p.Stride = int(r.number("partition_stride", 0, math.MaxInt32))
		p.Experts = int(r.number("num_experts", 0, maxExperts))
		for range r.number("partition_sizes", 0, int64(r.left())) {
			p.Sizes = append(p.Sizes, r.number("size of a block", 0, math.MaxInt64))
		}
		f.Parallel = p
	case kindLayout:
		f.Part = r.cell()
	case kindPart:
		part, rest, err := layout.ReadPart(r.all[r.at:])
		if f.Part = &part; r.err == nil {
			r.at, r.err = len(r.all)-len(rest), err
		}
	default:
		r.fail("unknown kind of form %d", flags>>kindShift)
	}
	if err := f.Check(); r.err == nil && err != nil {
		r.fail("%v", err)
	}
	return f
}

// cell reads the part that a layout gives to one cell of its mesh.
func (r *reader) cell() *layout.Part {
	index := int(r.number("cell of the mesh", 0, maxGroup))
	whole := r.shape()
	if r.err != nil {
		return nil
	}
	l, rest, err := layout.ReadLayout(r.all[r.at:])
	if err != nil {
		r.err = err
		return nil
	}
	r.at = len(r.all) - len(rest)
	if err := l.CheckTarget(); err != nil {
		r.fail("%v", err)
		return nil
	}
	part, err := l.Part(whole, index)
	if err != nil {
		r.fail("%v", err)
	}
	return &part
}

func (g *reading) section(r *reader, s *section, forms int) {
	count := int(r.number("parameters", 0, int64(min(maxParameters, r.left()/3))))
	s.names = g.list(r, count)
	if s.resolved = s.names; r.left() > 0 && r.all[r.at] == 0 && count > 0 {
		r.at++
	} else {
		s.resolved = g.list(r, count)
	}
	if r.err != nil {
		return
	}
	s.forms = make([]int32, count)
	for i := range s.forms {
		s.forms[i] = int32(r.number("number of a form", 0, int64(forms-1)))
	}
}

// list reads a list of names.
func (g *reading) list(r *reader, count int) []string {
	size := r.length("length of the names", 0, math.MaxInt32)
	if r.err != nil {
		return nil
	}
	block := r.all[r.at : r.at+size]
	if known, ok := g.names[string(block)]; ok && len(known) == count {
		r.at += size
		return known
	}
	inner := reader{all: block, field: "names of parameters"}
	names := inner.names(count)
	if inner.err == nil && inner.left() > 0 {
		inner.fail("%d bytes follow the end", inner.left())
	}
	r.at += size
	if r.err = inner.err; r.err == nil {
		g.names[string(block)] = names
	}
	return names
}

func (r *reader) names(count int) []string {
	var all []byte
	ends := make([]int, 0, min(count, r.left()/2))
	start := 0
	for range count {
		before := len(all) - start
		shared := int(r.number("bytes of the name before", 0, int64(before)))
		more := r.length("bytes of a name", 0, maxName)
		if r.err == nil && (shared+more == 0 || shared+more > maxName || len(all) > maxNames) {
			r.fail("a name is empty, or the names are too long (want 1 to %d bytes a name, at most %d in all)", maxName, maxNames)
		}
		if r.err != nil {
			return nil
		}
		all = append(all, all[start:start+shared]...)
		start += before
		all = append(all, r.all[r.at:r.at+more]...)
		r.at += more
		ends = append(ends, len(all))
	}
	text, at := string(all), 0
	names := make([]string, len(ends))
	for i, end := range ends {
		names[i] = text[at:end]
		at = end
	}
	return names
}

// reader takes numbers from bytes of another rank. After the first error it returns the least that the caller allows.
type reader struct {
	all   []byte
	at    int
	field string
	err   error
}

func (r *reader) left() int { return len(r.all) - r.at }

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = errs.Protocol(r.field, r.at, format, args...)
	}
}

// code reads the first two bytes.
func (r *reader) code(want, version byte) {
	switch {
	case len(r.all) < 2 || r.all[0] != want:
		r.fail("not the beginning of one (got % x, want %x)", r.all[:min(1, len(r.all))], want)
	case r.all[1] != version:
		r.fail("another version (got %d, want %d): use the same version of stepvan at all ranks", r.all[1], version)
	default:
		r.at = 2
	}
}

func (r *reader) byte() byte {
	if r.left() < 1 {
		r.fail("cut off")
	}
	if r.err != nil {
		return 0
	}
	r.at++
	return r.all[r.at-1]
}

func (r *reader) number(what string, least, most int64) int64 {
	if r.err != nil {
		return least
	}
	v, n := binary.Uvarint(r.all[r.at:])
	if n <= 0 {
		r.fail("%s: cut off or too long", what)
		return least
	}
	if v > uint64(math.MaxInt64) || int64(v) < least || int64(v) > most {
		r.fail("%s: out of range (got %d, want %d to %d)", what, v, least, most)
		return least
	}
	r.at += n
	return int64(v)
}

// length reads how many of the bytes that follow belong together.
func (r *reader) length(what string, least, most int64) int {
	n := int(r.number(what, least, most))
	if r.err == nil && n > r.left() {
		r.fail("%s: cut off (got %d of %d bytes)", what, r.left(), n)
	}
	if r.err != nil {
		return 0
	}
	return n
}

func (r *reader) shape() tensor.Shape {
	dims := make([]int64, min(int(r.byte()), tensor.MaxRank+1))
	for i := range dims {
		dims[i] = r.number("extent", 0, math.MaxInt64)
	}
	s, err := tensor.MakeShape(dims...)
	if err != nil {
		r.fail("%v", err)
	}
	return s
}
