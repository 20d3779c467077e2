package reshard

import (
	"encoding/binary"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Roster is what a rank tells the others: the parameters that it has, and those that it wants.
type Roster struct {
	Rank         stepvan.Rank
	Sources      []Parameter
	Destinations []Parameter
}

// Limits of a roster. They bound what the bytes of another rank may cost.
const (
	maxRank       = 1<<31 - 1
	maxGroup      = 1 << 16 // ranks of a group
	maxLists      = 1 << 16 // different groups of a roster
	maxForms      = 1 << 20 // different forms of a roster
	maxParameters = 1 << 22 // of each side
	maxName       = 1 << 12 // bytes of a name
	maxNames      = 1 << 26 // bytes of all names of a side
	maxSpans      = 1 << 20 // of all parts of a roster
)

// The encoding of a roster. Numbers are varints of encoding/binary.
//
//	code, version, rank
//	groups: their count; each has the count of its ranks, and the ranks
//	forms: their count; each has its length in bytes, its three groups (0: none, else the number of the group and 1),
//	    and what appendForm writes
//	twice, for sources and for destinations:
//	    the count of parameters
//	    the names: their length in bytes; each shares so many bytes with the name before it, and has so many more
//	    the resolved names in the same way, or length 0 where they are the names
//	    the number of the form of each parameter
const (
	codeRoster    = 0xd8
	rosterVersion = 1
)

// The flags of a form, and its kind in the bits above them.
const (
	flagBuffer  = 1 << 0
	flagDivided = 1 << 1
	flagExpert  = 1 << 2
	flagIndexed = 1 << 3
	kindShift   = 4
)

// Kinds of forms.
const (
	kindWhole    = 0 // nothing follows
	kindParallel = 1 // the attributes of Megatron-core
	kindLayout   = 2 // the number of a cell of the mesh, the shape of the whole tensor, and a layout
	kindPart     = 3 // a part
)

// Append appends the encoding of r to b. Parameters of equal form and groups take a few bytes beside their names.
func (r *Roster) Append(b []byte) ([]byte, error) {
	if err := checkRank(r.Rank); err != nil {
		return b, err
	}
	w := writer{lists: map[string]int{}, forms: map[string]int{}}
	var sides [2][]byte
	for i, all := range [2][]Parameter{r.Sources, r.Destinations} {
		var err error
		if sides[i], err = w.side(all); err != nil {
			return b, err
		}
	}
	b = append(b, codeRoster, rosterVersion)
	b = binary.AppendUvarint(b, uint64(r.Rank))
	b = append(binary.AppendUvarint(b, uint64(len(w.lists))), w.listBytes...)
	b = append(binary.AppendUvarint(b, uint64(len(w.forms))), w.formBytes...)
	return append(append(b, sides[0]...), sides[1]...), nil
}

func checkRank(r stepvan.Rank) error {
	if r < 0 || r > maxRank {
		return errs.Invalid("reshard: rank is out of range (got %d, want 0 to %d)", r, maxRank)
	}
	return nil
}

// writer collects the groups and forms of a roster.
type writer struct {
	lists, forms         map[string]int
	listBytes, formBytes []byte
	one                  []byte // working memory
}

func (w *writer) side(all []Parameter) ([]byte, error) {
	if len(all) > maxParameters {
		return nil, errs.Invalid("reshard: too many parameters (got %d, want at most %d): reshard the model in pieces", len(all), maxParameters)
	}
	var numbers []byte
	same := true
	for i := range all {
		n, err := w.form(&all[i])
		if err != nil {
			return nil, fmt.Errorf("%w, of parameter %q", err, all[i].Name)
		}
		numbers = binary.AppendUvarint(numbers, uint64(n))
		same = same && (all[i].Resolved == "" || all[i].Resolved == all[i].Name)
	}
	b := binary.AppendUvarint(nil, uint64(len(all)))
	b, err := appendNames(b, all, func(p *Parameter) string { return p.Name })
	if err != nil {
		return nil, err
	}
	if same {
		b = append(b, 0)
	} else if b, err = appendNames(b, all, (*Parameter).resolved); err != nil {
		return nil, err
	}
	return append(b, numbers...), nil
}

func (p *Parameter) resolved() string {
	if p.Resolved == "" {
		return p.Name
	}
	return p.Resolved
}

func appendNames(b []byte, all []Parameter, name func(*Parameter) string) ([]byte, error) {
	var names []byte
	before := ""
	for i := range all {
		s := name(&all[i])
		if s == "" || len(s) > maxName {
			return nil, errs.Invalid("reshard: name of parameter %d has a bad length (got %d, want 1 to %d)", i, len(s), maxName)
		}
		shared := 0
		for shared < min(len(s), len(before)) && s[shared] == before[shared] {
			shared++
		}
		names = binary.AppendUvarint(names, uint64(shared))
		names = binary.AppendUvarint(names, uint64(len(s)-shared))
		names = append(names, s[shared:]...)
		before = s
	}
	return append(binary.AppendUvarint(b, uint64(len(names))), names...), nil
}

// form is the number of the form of p.
func (w *writer) form(p *Parameter) (int, error) {
	if err := p.Form.Check(); err != nil {
		return 0, err
	}
	b := w.one[:0]
	var groups Groups
	if p.Parallel != nil {
		groups = p.Parallel.Groups
	}
	for _, ranks := range [][]stepvan.Rank{groups.Tensor, groups.Data, groups.Expert} {
		n, err := w.list(ranks)
		if err != nil {
			return 0, err
		}
		b = binary.AppendUvarint(b, uint64(n))
	}
	b, w.one = appendForm(b, &p.Form), b
	n, ok := w.forms[string(b)]
	if !ok {
		n = len(w.forms)
		w.forms[string(b)] = n
		w.formBytes = append(binary.AppendUvarint(w.formBytes, uint64(len(b))), b...)
	}
	return n, nil
}

// list is the number of a group and 1, or 0 for none.
func (w *writer) list(ranks []stepvan.Rank) (int, error) {
	if ranks == nil {
		return 0, nil
	}
	if len(ranks) > maxGroup {
		return 0, errs.Invalid("reshard: a group is too large (got %d ranks, want at most %d)", len(ranks), maxGroup)
	}
	b := binary.AppendUvarint(nil, uint64(len(ranks)))
	for _, r := range ranks {
		if err := checkRank(r); err != nil {
			return 0, err
		}
		b = binary.AppendUvarint(b, uint64(r))
	}
	n, ok := w.lists[string(b)]
	if !ok {
		n = len(w.lists)
		w.lists[string(b)] = n
		w.listBytes = append(w.listBytes, b...)
	}
	return n + 1, nil
}

func appendForm(b []byte, f *Form) []byte {
	flags, kind := 0, kindWhole
	if f.Buffer {
		flags |= flagBuffer
	}
	if p := f.Parallel; p != nil {
		kind = kindParallel
		for _, x := range []struct {
			set  bool
			flag int
		}{{p.Divided, flagDivided}, {p.Expert, flagExpert}, {p.Indexed, flagIndexed}} {
			if x.set {
				flags |= x.flag
			}
		}
	} else if f.Part != nil {
		kind = kindPart
	}
	b = append(b, byte(f.DType), byte(flags|kind<<kindShift))
	b = appendShape(b, f.Shape)
	switch kind {
	case kindParallel:
		p := f.Parallel
		for _, n := range []int{p.Dim, p.Stride, p.Experts, len(p.Sizes)} {
			b = binary.AppendUvarint(b, uint64(n))
		}
		for _, size := range p.Sizes {
			b = binary.AppendUvarint(b, uint64(size))
		}
	case kindPart:
		b = f.Part.Append(b)
	}
	return b
}

func appendShape(b []byte, s tensor.Shape) []byte {
	b = append(b, byte(s.Rank()))
	for _, n := range s.Dims() {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}
