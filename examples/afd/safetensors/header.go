package safetensors

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math/bits"
	"slices"
	"strings"
)

// maxDims bounds a shape; real tensors have at most a handful of dimensions.
const maxDims = 16

// Info is one tensor's entry in the header, checked.
type Info struct {
	Name  string
	DType DType
	Shape []uint64
	// Begin and End are byte offsets into the data that follows the header.
	Begin, End uint64
}

// Elements is the product of the shape: 1 for a scalar.
func (i Info) Elements() uint64 {
	n := uint64(1)
	for _, d := range i.Shape {
		n *= d
	}
	return n
}

// entry is a tensor as JSON has it.
type entry struct {
	DType   DType    `json:"dtype"`
	Shape   []uint64 `json:"shape"`
	Offsets []uint64 `json:"data_offsets"`
}

// parseHeader checks the JSON header of a file whose data is dataLen bytes long.
func parseHeader(header []byte, dataLen uint64) (map[string]Info, error) {
	entries, err := decodeEntries(header)
	if err != nil {
		return nil, err
	}
	infos := make(map[string]Info, len(entries))
	for name, e := range entries {
		info, err := checkEntry(name, e, dataLen)
		if err != nil {
			return nil, err
		}
		infos[name] = info
	}
	return infos, checkCoverage(infos, dataLen)
}

// decodeEntries walks the top-level object by token, because json.Unmarshal
// would silently let the last of two equal names win.
func decodeEntries(header []byte) (map[string]entry, error) {
	if len(header) == 0 || header[0] != '{' {
		return nil, malformed("", "the header must start with '{'")
	}
	dec := json.NewDecoder(bytes.NewReader(header))
	dec.DisallowUnknownFields()
	if _, err := dec.Token(); err != nil {
		return nil, malformed("", "header is not JSON: %v", err)
	}
	entries := make(map[string]entry)
	seen := make(map[string]bool)
	for dec.More() {
		name, err := decodeName(dec, seen)
		if err != nil {
			return nil, err
		}
		if name == "__metadata__" {
			if err := dec.Decode(&map[string]string{}); err != nil {
				return nil, malformed("", "__metadata__ must map strings to strings: %v", err)
			}
			continue
		}
		var e entry
		if err := dec.Decode(&e); err != nil {
			return nil, malformed(name, "entry is not {dtype, shape, data_offsets}: %v", err)
		}
		entries[name] = e
	}
	if _, err := dec.Token(); err != nil {
		return nil, malformed("", "header is not JSON: %v", err)
	}
	return entries, checkPadding(header[dec.InputOffset():])
}

func decodeName(dec *json.Decoder, seen map[string]bool) (string, error) {
	token, err := dec.Token()
	if err != nil {
		return "", malformed("", "header is not JSON: %v", err)
	}
	name, ok := token.(string)
	if !ok {
		return "", malformed("", "header has %v where a tensor's name belongs", token)
	}
	if seen[name] {
		return "", malformed(name, "named twice in the header")
	}
	seen[name] = true
	return name, nil
}

// checkPadding allows the spaces with which writers align the data.
func checkPadding(rest []byte) error {
	if s := strings.TrimRight(string(rest), " \n\t\r"); s != "" {
		return malformed("", "%d bytes after the header's JSON", len(s))
	}
	return nil
}

func checkEntry(name string, e entry, dataLen uint64) (Info, error) {
	size, ok := elementSize[e.DType]
	if !ok {
		return Info{}, malformed(name, "unknown dtype %q", e.DType)
	}
	if len(e.Shape) > maxDims {
		return Info{}, malformed(name, "%d dimensions, at most %d can be read", len(e.Shape), maxDims)
	}
	if len(e.Offsets) != 2 {
		return Info{}, malformed(name, "data_offsets has %d numbers instead of 2", len(e.Offsets))
	}
	begin, end := e.Offsets[0], e.Offsets[1]
	if begin > end || end > dataLen {
		return Info{}, malformed(name, "data_offsets [%d, %d] do not lie in order within the %d bytes of data", begin, end, dataLen)
	}
	want, ok := byteSize(e.Shape, size)
	if !ok || want != end-begin {
		return Info{}, malformed(name, "shape %v of %s does not fill %d bytes", e.Shape, e.DType, end-begin)
	}
	return Info{Name: name, DType: e.DType, Shape: e.Shape, Begin: begin, End: end}, nil
}

// byteSize multiplies the shape out; ok is false when that overflows.
func byteSize(shape []uint64, size uint64) (n uint64, ok bool) {
	n = size
	for _, d := range shape {
		hi, lo := bits.Mul64(n, d)
		if hi != 0 {
			return 0, false
		}
		n = lo
	}
	return n, true
}

// checkCoverage refuses overlaps and holes: the format demands that the tensors
// tile the data, so a gap means a damaged or a hand-made file.
func checkCoverage(infos map[string]Info, dataLen uint64) error {
	order := make([]Info, 0, len(infos))
	for _, info := range infos {
		order = append(order, info)
	}
	slices.SortFunc(order, func(a, b Info) int {
		if a.Begin != b.Begin {
			return cmp.Compare(a.Begin, b.Begin)
		}
		return cmp.Compare(a.End, b.End)
	})
	at := uint64(0)
	for _, info := range order {
		if info.Begin < at {
			return malformed(info.Name, "overlaps the tensor before it by %d bytes", at-info.Begin)
		}
		if info.Begin > at {
			return malformed(info.Name, "leaves a hole of %d bytes before it", info.Begin-at)
		}
		at = info.End
	}
	if at != dataLen {
		return malformed("", "%d bytes of data belong to no tensor", dataLen-at)
	}
	return nil
}
