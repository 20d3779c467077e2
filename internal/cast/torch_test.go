package cast

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/tensor"
)

// record is what testdata/record_torch.py has recorded: hashes.
type record struct {
	Torch                                    string
	Elements, Conversions, Merges, Divisions map[string]string
}

// nans are the bits that stand for any NaN of a type.
var nans = map[tensor.DType]uint64{
	tensor.Float64: 0x7ff8 << 48, tensor.Float32: 0x7fc00000, tensor.Float16: 0x7e00, tensor.BFloat16: 0x7fc0,
	tensor.Float8E4M3FN: 0x7f, tensor.Float8E5M2: 0x7f,
}

// appendElement appends the low bytes of an element.
func appendElement(b []byte, d tensor.DType, bits uint64) []byte {
	switch d.Size() {
	case 1:
		return append(b, byte(bits))
	case 2:
		return binary.LittleEndian.AppendUint16(b, uint16(bits))
	case 4:
		return binary.LittleEndian.AppendUint32(b, uint32(bits))
	}
	return binary.LittleEndian.AppendUint64(b, bits)
}

// elementsOf are the elements of a type that are converted. The script has the same.
func elementsOf(d tensor.DType) (b []byte) {
	switch d {
	case tensor.Float64:
		for high := range uint32(1 << 16) {
			for _, low := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff} {
				wide := math.Float64bits(float64(math.Float32frombits(high<<16 | low)))
				for _, more := range []uint64{0, 1, 1<<28 - 1, 1 << 28, 1<<28 + 1} {
					b = appendElement(b, d, wide+more)
				}
			}
		}
	case tensor.Float32:
		for high := range uint32(1 << 19) {
			for _, low := range []uint32{0, 1, 0xfff, 0x1000, 0x1001, 0x1fff} {
				b = appendElement(b, d, uint64(high<<13|low))
			}
		}
	default:
		for code := range uint64(1) << (8 * d.Size()) {
			b = appendElement(b, d, code)
		}
	}
	return b
}

const pairs = 1 << 18

// operandsOf are the elements of a type that are merged: those of the destination, or of the source.
func operandsOf(d tensor.DType, source bool) (b []byte) {
	odd := uint64(0x9e37_79b9_7f4a_7c15)
	if source {
		odd = 0xd1b5_4a32_d192_ed03
	}
	for i := range uint64(pairs) {
		bits := i * odd >> (64 - 8*d.Size())
		if d == tensor.Bool {
			bits &= 1
		}
		b = appendElement(b, d, bits)
	}
	return b
}

// bitsOf is element i of a list.
func bitsOf(b []byte, d tensor.DType, i int) uint64 {
	switch d.Size() {
	case 1:
		return uint64(b[i])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b[2*i:]))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return binary.LittleEndian.Uint64(b[8*i:])
}

// valueOf is an element as a number.
func valueOf(d tensor.DType, bits uint64) float64 {
	switch d {
	case tensor.Float64:
		return math.Float64frombits(bits)
	case tensor.Float32:
		return float64(math.Float32frombits(uint32(bits)))
	case tensor.Float16:
		return float64(ofFloat16(uint16(bits)))
	case tensor.BFloat16:
		return float64(ofBFloat16(uint16(bits)))
	case tensor.Float8E4M3FN:
		return float64(e4m3fnValues[bits])
	}
	return float64(e5m2Values[bits])
}

// digest is the hash of a result. zeros: negative zeros count as zeros.
func digest(b []byte, d tensor.DType, zeros bool) string {
	if nan, is := nans[d]; is {
		same := make([]byte, 0, len(b))
		for i := range len(b) / d.Size() {
			bits := bitsOf(b, d, i)
			switch x := valueOf(d, bits); {
			case math.IsNaN(x):
				bits = nan
			case zeros && x == 0:
				bits = 0
			}
			same = appendElement(same, d, bits)
		}
		b = same
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

func first(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// all are the loops that torch is compared with: this processor's, and those in Go.
func all() map[string]*loops {
	return map[string]*loops{"best": best(), "plain": plain()}
}

// TestTorch compares with what torch made of the same elements.
func TestTorch(t *testing.T) {
	if race.Enabled {
		t.Skip("there are no goroutines, and the detector would take most of a minute")
	}
	text, err := os.ReadFile("testdata/torch.json")
	require.NoError(t, err)
	var r record
	require.NoError(t, json.Unmarshal(text, &r))
	for name, l := range all() {
		t.Run(name, func(t *testing.T) {
			compareConversions(t, l, &r)
			compareMerges(t, l, &r)
		})
	}
	compareDivisions(t, &r)
}

func compareConversions(t *testing.T, l *loops, r *record) {
	require.Len(t, r.Elements, len(nans))
	require.Len(t, r.Conversions, len(nans)*len(nans))
	for from := range nans {
		x := elementsOf(from)
		sum := sha256.Sum256(x)
		require.Equal(t, r.Elements[from.String()], hex.EncodeToString(sum[:16]), "the elements of %s", from)
		n := len(x) / from.Size()
		for to := range nans {
			k, err := l.kernel(to, from, Overwrite)
			require.NoError(t, err)
			y := make([]byte, n*to.Size())
			k.Run(first(y), first(x), n)
			name := fmt.Sprintf("%s to %s", from, to)
			require.Equal(t, r.Conversions[name], digest(y, to, false), "%s: torch %s has other elements", name, r.Torch)
		}
	}
}

func compareMerges(t *testing.T, l *loops, r *record) {
	require.Len(t, r.Merges, 88)
	for name, want := range r.Merges {
		words := strings.Fields(name) // sum of float32 into bfloat16
		from, err := tensor.ParseDType(words[2])
		require.NoError(t, err)
		to, err := tensor.ParseDType(words[4])
		require.NoError(t, err)
		var m Merge
		for m < mergeEnd && m.String() != words[0] {
			m++
		}
		k, err := l.kernel(to, from, m)
		require.NoError(t, err, name)
		x, y := operandsOf(to, false), operandsOf(from, true)
		k.Run(first(x), first(y), pairs)
		require.Equal(t, want, digest(x, to, m == Max || m == Min), "%s: torch %s has other elements", name, r.Torch)
	}
}

func compareDivisions(t *testing.T, r *record) {
	require.Len(t, r.Divisions, 12)
	for name, want := range r.Divisions {
		words := strings.Fields(name) // float32 by 7
		d, err := tensor.ParseDType(words[0])
		require.NoError(t, err)
		by := map[string]int{"3": 3, "7": 7, "1000": 1000}[words[2]]
		k, err := NewDivision(d, by)
		require.NoError(t, err)
		x := operandsOf(d, false)
		k.Run(first(x), first(x), pairs)
		require.Equal(t, want, digest(x, d, false), "%s: torch %s has other elements", name, r.Torch)
	}
}
