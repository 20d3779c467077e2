package bus

import (
	"bytes"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// fields is a map with keys of text. The first error stays, and what is read behind it is empty. Nothing is
// allocated by what a length says: values are read where they are, and copied once they are known to be there.
type fields struct {
	all    []byte
	values []field
	rest   []byte // of the value that is being read
	what   string // the key of that value
	at     int    // where that value is
	err    error
}

type field struct {
	key   []byte
	value []byte
	at    int
	used  bool
}

// maxFields bounds the fields of a map.
const maxFields = 16

// readFields finds the values of a map, which is all of b.
func readFields(b []byte) *fields {
	f := &fields{all: b, what: "command"}
	n, rest, err := msgp.ReadMapHeaderBytes(b)
	if err != nil || n > maxFields {
		f.fail("not a map of at most %d fields", maxFields)
		return f
	}
	f.values = make([]field, 0, n)
	for range n {
		key, left, err := msgp.ReadStringZC(rest)
		if f.at = len(b) - len(rest); err != nil {
			f.fail("a key is not text")
			return f
		}
		f.at = len(b) - len(left)
		if rest, err = skip(left, maxDepth); err != nil {
			f.what = text.Cut(string(key))
			f.fail("the value is cut off, or nested too deeply")
			return f
		}
		if f.find(string(key)) != nil {
			f.fail("field %q is there twice", text.Cut(string(key)))
			return f
		}
		f.values = append(f.values, field{key: key, value: left[:len(left)-len(rest)], at: f.at})
	}
	if f.at = len(b) - len(rest); len(rest) > 0 {
		f.fail("%d bytes follow the command", len(rest))
	}
	return f
}

// maxDepth is how deeply the values of a command are nested: a list of tuples.
const maxDepth = 2

// skip returns what follows a value.
func skip(b []byte, depth int) ([]byte, error) {
	var n uint32
	var err error
	switch msgp.NextType(b) {
	case msgp.ArrayType:
		if n, b, err = msgp.ReadArrayHeaderBytes(b); err != nil || depth == 0 {
			return nil, msgp.ErrShortBytes
		}
		for range n {
			if b, err = skip(b, depth-1); err != nil {
				return nil, err
			}
		}
		return b, nil
	case msgp.StrType, msgp.BinType, msgp.IntType, msgp.UintType, msgp.Float64Type, msgp.Float32Type, msgp.NilType, msgp.BoolType:
		return msgp.Skip(b)
	}
	return nil, msgp.ErrShortBytes // maps and extensions are in no command
}

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = errs.Protocol(f.what, f.at, format, args...)
	}
}

func (f *fields) find(key string) *field {
	for i := range f.values {
		if string(f.values[i].key) == key {
			return &f.values[i]
		}
	}
	return nil
}

func (f *fields) has(key string) bool { return f.find(key) != nil }

// open begins to read a value. A field that may be left out is nil then, or missing.
func (f *fields) open(key string, none bool) bool {
	v := f.find(key)
	f.what, f.rest = key, nil
	if v == nil {
		if !none {
			f.at = len(f.all)
			f.fail("the field is missing")
		}
		return false
	}
	v.used = true
	f.at, f.rest = v.at, v.value
	return !none || !msgp.IsNil(f.rest)
}

// endValue checks that a value was read as a whole.
func (f *fields) endValue() {
	if len(f.rest) > 0 {
		f.fail("the value is longer than it may be")
	}
}

func (f *fields) text(key string) string {
	if !f.open(key, false) {
		return ""
	}
	return f.nextText()
}

func (f *fields) textOrNone(key string) string {
	if !f.open(key, true) {
		return ""
	}
	s := f.nextText()
	if s == "" {
		f.fail("it is empty: give a name, or none")
	}
	return s
}

// nextText reads a text.
func (f *fields) nextText() string {
	if f.err != nil {
		return ""
	}
	s, rest, err := msgp.ReadStringZC(f.rest)
	if err != nil || !utf8.Valid(s) {
		f.fail("it is not text")
		return ""
	}
	f.rest = rest
	return string(s)
}

func (f *fields) payloadOrNone(key string) []byte {
	if !f.open(key, true) {
		return nil
	}
	return f.nextPayload()
}

// nextPayload reads bytes that are not empty.
func (f *fields) nextPayload() []byte {
	p := f.nextBytes()
	if p == nil {
		f.fail("it is empty")
	}
	return p
}

// nextBytes reads bytes. It returns nil for none.
func (f *fields) nextBytes() []byte {
	if f.err != nil {
		return nil
	}
	p, rest, err := msgp.ReadBytesZC(f.rest)
	if err != nil {
		f.fail("it is not bytes")
		return nil
	}
	if f.rest = rest; len(p) == 0 {
		return nil
	}
	return bytes.Clone(p)
}

func (f *fields) number(key string, most uint64) uint64 {
	if !f.open(key, false) {
		return 0
	}
	return f.nextNumber(most)
}

func (f *fields) numberOrNone(key string, most uint64) uint64 {
	if !f.open(key, true) {
		return 0
	}
	n := f.nextNumber(most)
	if n == 0 {
		f.fail("it is 0: give at least 1, or none")
	}
	return n
}

func (f *fields) nextNumber(most uint64) uint64 {
	if f.err != nil {
		return 0
	}
	n, rest, err := msgp.ReadUint64Bytes(f.rest)
	if err != nil || n > most {
		f.fail("it is not a number from 0 to %d", most)
		return 0
	}
	f.rest = rest
	return n
}

// time reads seconds. msgspec takes whole numbers for floats, too.
func (f *fields) time(key string) float64 {
	if !f.open(key, true) || f.err != nil {
		return 0
	}
	if t := msgp.NextType(f.rest); t == msgp.IntType || t == msgp.UintType {
		return float64(f.nextNumber(1 << 53))
	}
	v, _, err := msgp.ReadFloat64Bytes(f.rest)
	if err != nil {
		f.fail("it is not a number of seconds")
	}
	return v
}

// array begins to read a list.
func (f *fields) array(key string, most uint32) uint32 {
	if !f.open(key, false) {
		return 0
	}
	return f.nextArray(most)
}

func (f *fields) nextArray(most uint32) uint32 {
	if f.err != nil {
		return 0
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(f.rest)
	if err != nil || n > most {
		f.fail("it is not a list of at most %d", most)
		return 0
	}
	f.rest = rest
	return n
}

// tuple begins to read a list of so many.
func (f *fields) tuple(n uint32) {
	if got := f.nextArray(n); got != n {
		f.fail("it is not a tuple of %d", n)
	}
}

// end refuses fields that were not read.
func (f *fields) end() error {
	for i := range f.values {
		if v := &f.values[i]; !v.used {
			f.what, f.at = text.Cut(string(v.key)), v.at
			f.fail("the command has no such field")
		}
	}
	return f.err
}
