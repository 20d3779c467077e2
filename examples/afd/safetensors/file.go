package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

const (
	lengthBytes = 8
	// maxHeader is the limit that the format's own reader sets.
	maxHeader = 100_000_000
	// chunkBytes is what the readers hold at a time between file and floats.
	chunkBytes = 64 << 10
)

// File is an open file whose header has been checked.
type File struct {
	source io.ReaderAt
	closer io.Closer
	data   int64 // offset of the data within source
	infos  map[string]Info
}

// Open opens and checks the file at path. The caller must Close it.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	file, err := openSized(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	file.closer = f
	return file, nil
}

func openSized(f *os.File) (*File, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	return New(f, st.Size())
}

// New checks the header of a source of size bytes. The source must stay valid
// and unchanged as long as the File is used; Close does not close it.
func New(source io.ReaderAt, size int64) (*File, error) {
	if size < lengthBytes {
		return nil, malformed("", "%d bytes are too few for a header length", size)
	}
	var raw [lengthBytes]byte
	if _, err := source.ReadAt(raw[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("safetensors: header length: %w", err)
	}
	length := binary.LittleEndian.Uint64(raw[:])
	if length > maxHeader || length > uint64(size-lengthBytes) {
		return nil, malformed("", "header length %d exceeds the file (%d bytes) or the limit of %d", length, size, maxHeader)
	}
	header := make([]byte, length)
	if _, err := io.ReadFull(io.NewSectionReader(source, lengthBytes, int64(length)), header); err != nil {
		return nil, fmt.Errorf("safetensors: header: %w", err)
	}
	data := lengthBytes + int64(length)
	infos, err := parseHeader(header, uint64(size-data))
	if err != nil {
		return nil, err
	}
	return &File{source: source, data: data, infos: infos}, nil
}

// Close releases the file that Open opened.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// Names lists the tensors in alphabetical order.
func (f *File) Names() []string {
	names := make([]string, 0, len(f.infos))
	for name := range f.infos {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Info gives a tensor's entry. Its Shape belongs to the File: read only.
func (f *File) Info(name string) (Info, error) {
	info, ok := f.infos[name]
	if !ok {
		return Info{}, malformed(name, "not in the file")
	}
	return info, nil
}

// ReadFloat32 fills dst with elements of an F32 tensor, in row-major order,
// starting at element first.
func (f *File) ReadFloat32(name string, first uint64, dst []float32) error {
	info, err := f.Info(name)
	if err != nil {
		return err
	}
	if info.DType != F32 {
		return malformed(name, "is %s where F32 is needed", info.DType)
	}
	if n := info.Elements(); first > n || uint64(len(dst)) > n-first {
		return malformed(name, "elements [%d, +%d) asked of %d", first, len(dst), n)
	}
	return f.readFloats(name, f.data+int64(info.Begin+4*first), dst)
}

func (f *File) readFloats(name string, offset int64, dst []float32) error {
	buf := make([]byte, min(chunkBytes, 4*len(dst)))
	for len(dst) > 0 {
		chunk := buf[:min(len(buf), 4*len(dst))]
		if n, err := f.source.ReadAt(chunk, offset); n < len(chunk) {
			return fmt.Errorf("safetensors: tensor %q: %w", name, err)
		}
		n := len(chunk) / 4
		for i := range n {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(chunk[4*i:]))
		}
		dst, offset = dst[n:], offset+int64(len(chunk))
	}
	return nil
}
