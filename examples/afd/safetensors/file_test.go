package safetensors

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// image builds a file from its parts.
func image(header string, data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

func floats(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func open(b []byte) (*File, error) { return New(bytes.NewReader(b), int64(len(b))) }

const two = `{"__metadata__":{"format":"pt"},` +
	`"b":{"dtype":"F32","shape":[2,2],"data_offsets":[4,20]},` +
	`"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`

func TestReadFloat32(t *testing.T) {
	f, err := open(image(two+"   ", floats(1, 2, 3, 4, 5)))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, f.Names())

	info, err := f.Info("b")
	require.NoError(t, err)
	require.Equal(t, []uint64{2, 2}, info.Shape)
	require.EqualValues(t, 4, info.Elements())

	scalar, matrix, tail := make([]float32, 1), make([]float32, 4), make([]float32, 2)
	require.NoError(t, f.ReadFloat32("a", 0, scalar))
	require.NoError(t, f.ReadFloat32("b", 0, matrix))
	require.NoError(t, f.ReadFloat32("b", 2, tail))
	require.Equal(t, []float32{1}, scalar)
	require.Equal(t, []float32{2, 3, 4, 5}, matrix)
	require.Equal(t, []float32{4, 5}, tail)
	require.NoError(t, f.Close())
}

func TestReadFloat32SpansChunks(t *testing.T) {
	n := chunkBytes/4*2 + 3
	want := make([]float32, n)
	for i := range want {
		want[i] = float32(i)
	}
	header := `{"x":{"dtype":"F32","shape":[32771],"data_offsets":[0,131084]}}`
	path := filepath.Join(t.TempDir(), "x.safetensors")
	require.NoError(t, os.WriteFile(path, image(header, floats(want...)), 0o600))
	f, err := Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	got := make([]float32, n)
	require.NoError(t, f.ReadFloat32("x", 0, got))
	require.Equal(t, want, got)
}

func TestReadFloat32Refuses(t *testing.T) {
	f, err := open(image(`{"h":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, make([]byte, 12)))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		tensor string
		first  uint64
		n      int
		want   string
	}{
		"missing":      {"y", 0, 1, "not in the file"},
		"other dtype":  {"h", 0, 1, "F16 where F32"},
		"too many":     {"x", 0, 3, "asked of 2"},
		"past the end": {"x", 3, 0, "asked of 2"},
		"overflow":     {"x", math.MaxUint64, 2, "asked of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, f.ReadFloat32(c.tensor, c.first, make([]float32, c.n)), c.want)
		})
	}
}

func TestOpenNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.safetensors")
	_, err := Open(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	_, err = Open(path)
	require.ErrorContains(t, err, "bad.safetensors")
}

// malformedFiles are the ways in which a file can be wrong; the fuzzer starts from them.
var malformedFiles = map[string]struct {
	file []byte
	want string
}{
	"empty":               {nil, "too few"},
	"length only":         {image("", nil), "must start with"},
	"giant length":        {[]byte("\xff\xff\xff\xff\xff\xff\xff\xff{}"), "header length"},
	"length past the end": {[]byte("\x10\x00\x00\x00\x00\x00\x00\x00{}"), "header length"},
	"not an object":       {image(`[]`, nil), "must start with"},
	"cut JSON":            {image(`{"a":`, nil), `tensor "a"`},
	"bytes after JSON":    {image(`{}x`, nil), "after the header"},
	"entry not an object": {image(`{"a":3}`, nil), "entry is not"},
	"unknown field":       {image(`{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4],"z":1}}`, make([]byte, 4)), "entry is not"},
	"metadata not a map":  {image(`{"__metadata__":[1]}`, nil), "__metadata__"},
	"name twice":          {image(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, nil), "twice"},
	"unknown dtype":       {image(`{"a":{"dtype":"Q4","shape":[1],"data_offsets":[0,1]}}`, make([]byte, 1)), "unknown dtype"},
	"negative shape":      {image(`{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, make([]byte, 1)), "entry is not"},
	"too many dims":       {image(`{"a":{"dtype":"U8","shape":[`+strings.Repeat("1,", 16)+`1],"data_offsets":[0,1]}}`, make([]byte, 1)), "dimensions"},
	"one offset":          {image(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}}`, make([]byte, 1)), "instead of 2"},
	"offsets reversed":    {image(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, make([]byte, 1)), "in order"},
	"past the data":       {image(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, make([]byte, 1)), "in order"},
	"shape too small":     {image(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}`, make([]byte, 8)), "does not fill"},
	"shape overflows":     {image(`{"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}}`, make([]byte, 4)), "does not fill"},
	"overlap":             {image(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, make([]byte, 3)), "overlaps"},
	"hole":                {image(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, make([]byte, 2)), "hole"},
	"surplus data":        {image(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, make([]byte, 2)), "no tensor"},
}

func TestMalformed(t *testing.T) {
	for name, c := range malformedFiles {
		t.Run(name, func(t *testing.T) {
			_, err := open(c.file)
			var format *FormatError
			require.ErrorAs(t, err, &format)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestTruncationAtEveryOffset(t *testing.T) {
	whole := image(two, floats(1, 2, 3, 4, 5))
	for n := range whole {
		_, err := open(whole[:n])
		require.Error(t, err, "cut to %d bytes", n)
	}
}

func FuzzNew(f *testing.F) {
	for _, c := range malformedFiles {
		f.Add(c.file)
	}
	f.Add(image(two, floats(1, 2, 3, 4, 5)))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := open(b)
		if err != nil {
			return
		}
		total := uint64(0)
		for _, name := range file.Names() {
			info, err := file.Info(name)
			require.NoError(t, err)
			total += info.End - info.Begin
			if info.DType == F32 {
				require.NoError(t, file.ReadFloat32(name, 0, make([]float32, info.Elements())))
			}
		}
		require.LessOrEqual(t, total, uint64(len(b)), "tensors cannot hold more than the file")
	})
}
