package bus

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// recorded is a command and the bytes that msgspec has made of it. scripts/oracle/record_commands.py writes them.
type recorded struct {
	Class  string
	Fields struct {
		Timestamp    float64
		Semaphore    string  `json:"semaphore_name"`
		PairName     string  `json:"pair_name"`
		LocalName    string  `json:"local_name"`
		World        int     `json:"expected_world_size"`
		RemoteName   string  `json:"remote_name"`
		Mesh         *string `json:"mesh_shape_payload"`
		Placements   *string `json:"placements_payload"`
		BatchID      string  `json:"batch_id"`
		Tensors      []json.RawMessage
		BucketSize   int64  `json:"bucket_size"`
		TransferType string `json:"transfer_type"`
		StateName    string `json:"state_name"`
	}
	Bytes  string
	Length int // of the bytes, where only their beginning is recorded: all tensors are alike
}

func unhex(t testing.TB, s *string) []byte {
	if s == nil {
		return nil
	}
	b, err := hex.DecodeString(*s)
	require.NoError(t, err)
	return b
}

func (r *recorded) command(t testing.TB) Command {
	f := &r.Fields
	base := BaseCommand{f.Timestamp, f.Semaphore}
	switch r.Class {
	case "InitPair":
		return &InitPair{base, f.PairName, f.LocalName, f.World, f.RemoteName, unhex(t, f.Mesh), unhex(t, f.Placements)}
	case "RegisterTensors":
		return &RegisterTensors{base, f.BatchID, r.tensors(t), f.BucketSize}
	case "Transfer":
		return &Transfer{base, f.BatchID, TransferType(f.TransferType)}
	case "QueryStatus":
		return &QueryStatus{base, f.BatchID, f.StateName}
	case "CleanupBatch":
		return &CleanupBatch{base, f.BatchID}
	}
	require.Fail(t, "unknown class", r.Class)
	return nil
}

func (r *recorded) tensors(t testing.TB) (all []TensorOfPair) {
	list, count := r.Fields.Tensors, 1
	if r.Length > 0 {
		require.NoError(t, json.Unmarshal(list[1], &count))
		list = list[:1]
	}
	for _, raw := range list {
		var pair [2]string
		require.NoError(t, json.Unmarshal(raw, &pair))
		for range count {
			all = append(all, TensorOfPair{pair[0], unhex(t, &pair[1])})
		}
	}
	return all
}

// recordingsIn may name another folder than that of the committed recording: make oracle compares with more cases.
var recordingsIn = flag.String("recordings", "testdata", "the folder of the recording that TestCommandsAreThoseOfMsgspec reads")

func recordings(t testing.TB) (all []recorded) {
	f, err := os.Open(filepath.Join(*recordingsIn, "commands.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	lines := json.NewDecoder(bufio.NewReader(f))
	var head struct {
		Cases  int
		Wheels map[string]struct{ Version, SHA256 string }
	}
	require.NoError(t, lines.Decode(&head))
	require.NotEmpty(t, head.Wheels["msgspec"].Version)
	require.NotEmpty(t, head.Wheels["msgspec"].SHA256)
	for lines.More() {
		var r recorded
		require.NoError(t, lines.Decode(&r))
		all = append(all, r)
	}
	require.GreaterOrEqual(t, len(all), 60)
	require.Len(t, all, head.Cases)
	return all
}

// Go writes the bytes that msgspec writes, and reads them.
func TestCommandsAreThoseOfMsgspec(t *testing.T) {
	classes := map[string]bool{}
	for _, r := range recordings(t) {
		c := r.command(t)
		classes[c.Name()] = true
		got, err := Encode(c)
		require.NoError(t, err)
		want := unhex(t, &r.Bytes)
		if r.Length > 0 {
			require.Len(t, got, r.Length)
			require.Equal(t, want, got[:len(want)])
		} else {
			require.Equal(t, want, got)
		}
		back, err := Decode(got)
		require.NoError(t, err)
		require.Equal(t, c, back)
		if i, ok := c.(*InitPair); ok && i.MeshShape != nil {
			l, err := i.layout()
			require.NoError(t, err)
			require.Equal(t, i.MeshShape, EncodeMesh(l.Mesh.Dims))
			require.Equal(t, i.Placements, EncodePlacements(l.Placements))
		}
		if reg, ok := c.(*RegisterTensors); ok {
			for _, x := range reg.Tensors {
				h, err := DecodeHandle(x.Handle)
				require.NoError(t, err)
				again, err := h.Encode()
				require.NoError(t, err)
				require.Equal(t, x.Handle, again)
			}
		}
	}
	require.Len(t, classes, 5)
}

func TestPlacementsOfAllKinds(t *testing.T) {
	all := []layout.Placement{
		layout.StridedShard(1, 2), layout.Shard(7), layout.Replicate(), layout.Partial(layout.Sum), layout.Partial(layout.Avg),
		layout.Partial(layout.Max), layout.Partial(layout.Min), layout.Partial(layout.Product),
	}
	got, err := DecodePlacements(EncodePlacements(all))
	require.NoError(t, err)
	require.Equal(t, all, got)
}

// other returns the bytes of a command with another value of a field.
func other(c Command, change func(f map[string]any)) []byte {
	b, _ := Encode(c)
	v, _, _ := msgp.ReadIntfBytes(b)
	f := v.(map[string]any)
	change(f)
	out, _ := msgp.AppendIntf(nil, f)
	return out
}

func TestForeignBytes(t *testing.T) {
	pair := &InitPair{PairName: "p", LocalName: "a", ExpectedWorldSize: 1, RemoteName: "b"}
	batch := &RegisterTensors{BatchID: "s", Tensors: []TensorOfPair{{"p", []byte{1}}}}
	transfer := &Transfer{BatchID: "s", Type: Send}
	good, err := Encode(transfer)
	require.NoError(t, err)
	pickle := []byte("\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.")
	for want, b := range map[string][]byte{
		"not a map of at most 16 fields":                           nil,
		"type at byte 1: the field is missing":                     {0x80},
		"bytes follow the command":                                 append(good[:len(good):len(good)], 0),
		"cut off":                                                  good[:len(good)-1],
		"command at byte 0: not a map":                             pickle[1:],
		`unknown command (got "Reboot", want one of [InitPair`:     other(transfer, func(f map[string]any) { f["type"] = "Reboot" }),
		"type at byte":                                             other(transfer, func(f map[string]any) { f["type"] = 3 }),
		"the command has no such field":                            other(transfer, func(f map[string]any) { f["then"] = "more" }),
		"batch_id at byte":                                         other(transfer, func(f map[string]any) { delete(f, "batch_id") }),
		"it is not text":                                           other(transfer, func(f map[string]any) { f["batch_id"] = []byte("s") }),
		`unknown (got "both")`:                                     other(transfer, func(f map[string]any) { f["transfer_type"] = "both" }),
		"it is not a number of seconds":                            other(transfer, func(f map[string]any) { f["timestamp"] = "now" }),
		"timestamp: it is not a time (got NaN)":                    other(transfer, func(f map[string]any) { f["timestamp"] = math.NaN() }),
		"semaphore_name at byte":                                   other(transfer, func(f map[string]any) { f["semaphore_name"] = "" }),
		"nested too deeply":                                        other(transfer, func(f map[string]any) { f["batch_id"] = []any{[]any{[]any{1}}} }),
		"it is not a number from 0 to 65536":                       other(pair, func(f map[string]any) { f["expected_world_size"] = -1 }),
		"expected_world_size: out of range (got 0":                 other(pair, func(f map[string]any) { f["expected_world_size"] = 0 }),
		"one is there without the other (got 1 and 0 bytes)":       other(pair, func(f map[string]any) { f["mesh_shape_payload"] = []byte{0x90} }),
		"mesh_shape_payload at byte":                               other(pair, func(f map[string]any) { f["mesh_shape_payload"] = pickle; f["placements_payload"] = pickle }),
		"it is the local name":                                     other(pair, func(f map[string]any) { f["remote_name"] = "a" }),
		"not printable text without slashes":                       other(pair, func(f map[string]any) { f["pair_name"] = "a\nb" }),
		"local_name: it is not printable text without slashes":     other(pair, func(f map[string]any) { f["local_name"] = "a/b" }),
		"pair_name: wrong length (got 65, want 1 to 64 bytes)":     other(pair, func(f map[string]any) { f["pair_name"] = strings.Repeat("x", 65) }),
		"it is not a tuple of 2":                                   other(batch, func(f map[string]any) { f["tensors"] = []any{[]any{"p"}} }),
		"it is not a list of at most 2":                            other(batch, func(f map[string]any) { f["tensors"] = []any{[]any{"p", []byte{1}, 3}} }),
		"wrong number (got 0, want 1 to":                           other(batch, func(f map[string]any) { f["tensors"] = []any{} }),
		"it is 0: give at least 1":                                 other(batch, func(f map[string]any) { f["bucket_size"] = 0 }),
		"handle of tensor 0: wrong length (got 129, want 1 to 128": other(batch, func(f map[string]any) { f["tensors"] = []any{[]any{"p", make([]byte, 129)}} }),
		"it is not bytes":                                          other(batch, func(f map[string]any) { f["tensors"] = []any{[]any{"p", "x"}} }),
		"too long (got 104857600, want at most 16777216 bytes)":    make([]byte, 100<<20),
		"tensors at byte":                                          hostileList(),
	} {
		c, err := Decode(b)
		require.Nil(t, c, want)
		require.ErrorContains(t, err, want)
		var p *stepvan.ProtocolError
		require.True(t, errors.As(err, &p) || errors.Is(err, stepvan.ErrInvalid), "%v", err)
	}
}

// hostileList is a command with a list that says it has 4 billion elements.
func hostileList() []byte {
	b := msgp.AppendMapHeader(nil, 3)
	b = appendText(b, "type", "RegisterTensors")
	b = appendText(b, "batch_id", "s")
	b = msgp.AppendString(b, "tensors")
	return append(b, 0xdd, 0xff, 0xff, 0xff, 0xff)
}

// A field may be there once.
func TestFieldsThatAreThereTwice(t *testing.T) {
	b := msgp.AppendMapHeader(nil, 4)
	b = appendText(b, "type", "CleanupBatch")
	b = appendText(b, "batch_id", "a")
	b = appendText(b, "batch_id", "b")
	b = appendText(b, "semaphore_name", "b")
	_, err := Decode(b)
	require.ErrorContains(t, err, `field "batch_id" is there twice`)
}

func TestForeignPayloads(t *testing.T) {
	_, err := DecodeMesh([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	require.ErrorContains(t, err, "mesh_shape_payload at byte 0: it is not a list of at most 8")
	_, err = DecodeMesh([]byte{0x92, 2})
	require.ErrorContains(t, err, "not a number")
	_, err = DecodeMesh([]byte{0x91, 2, 2})
	require.ErrorContains(t, err, "longer")
	for want, all := range map[string][]any{
		`unknown placement of 1 parts (got "S"`:    {[]any{"S"}},
		`unknown placement of 2 parts (got "Q"`:    {[]any{"Q", 1}},
		`unknown reduction (got "mean"`:            {[]any{"P", "mean"}},
		"not a number from 0 to 7":                 {[]any{"S", 8}},
		"placements_payload at byte 0: it is not ": {[]any{"S", -1}},
		"it is not text":                           {[]any{0, 1}},
	} {
		b, err := msgp.AppendIntf(nil, all)
		require.NoError(t, err)
		_, err = DecodePlacements(b)
		require.ErrorContains(t, err, want)
	}
	for want, all := range map[string][]any{
		"it is not a tuple of 5":     {1, 2, "float32", []any{2}},
		"is not a dense element":     {1, 2, "floaty", []any{2}, []any{1}},
		"1 strides do not fit the 2": {1, 2, "float32", []any{2, 2}, []any{1}},
		"63 bits":                    {1, 2, "float32", []any{1 << 40, 1 << 40}, []any{1 << 40, 1}},
		"not a number from 0":        {1, -2, "float32", []any{2}, []any{1}},
	} {
		b, err := msgp.AppendIntf(nil, all)
		require.NoError(t, err)
		_, err = DecodeHandle(b)
		require.ErrorContains(t, err, want)
	}
	h := TensorHandle{1 << 60, 1 << 60, tensor.Float8E4M3FNUZ, tensor.ShapeOf(2, 2, 2, 2, 2, 2, 2, 1), []int64{1 << 40, 1 << 40, 1 << 40, 1 << 40, 1 << 40, 1 << 40, 1 << 40, 1}}
	b, err := h.Encode()
	require.NoError(t, err, "the largest view of a whole address space is below %d bytes: %d", MaxHandle, len(b))
	h.Offset = -1
	_, err = h.Encode()
	require.ErrorContains(t, err, "offset: it is negative")
	h.Strides = nil
	_, err = h.Encode()
	require.ErrorIs(t, err, stepvan.ErrInvalid)
}

// Commands that no agent could follow are not sent.
func TestCommandsThatAreNotSent(t *testing.T) {
	for want, c := range map[string]Command{
		"semaphore_name: too long":      &Transfer{BaseCommand: BaseCommand{Semaphore: strings.Repeat("x", 257)}, BatchID: "s", Type: Send},
		"transfer_type: unknown":        &Transfer{BatchID: "s"},
		"state_name: unknown":           &QueryStatus{BatchID: "s"},
		"batch_id: wrong length (got 0": &CleanupBatch{},
		"bucket_size: it is negative":   &RegisterTensors{BatchID: "s", BucketSize: -1, Tensors: []TensorOfPair{{"p", []byte{1}}}},
		"the mesh and expected_world_size differ (got [2 2] with 4 ranks, want 3)": &InitPair{PairName: "p", LocalName: "a", RemoteName: "b", ExpectedWorldSize: 3,
			MeshShape: EncodeMesh([]int{2, 2}), Placements: EncodePlacements([]layout.Placement{layout.Replicate(), layout.Replicate()})},
		"differ in number": &InitPair{PairName: "p", LocalName: "a", RemoteName: "b", ExpectedWorldSize: 4,
			MeshShape: EncodeMesh([]int{2, 2}), Placements: EncodePlacements([]layout.Placement{layout.Replicate()})},
		"too long (got 600": &InitPair{PairName: "p", LocalName: "a", RemoteName: "b", ExpectedWorldSize: 4, MeshShape: make([]byte, 600), Placements: []byte{0x90}},
	} {
		_, err := Encode(c)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
}

func FuzzDecode(f *testing.F) {
	for _, r := range recordings(f) {
		f.Add(unhex(f, &r.Bytes))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(b)
		if err != nil {
			require.Nil(t, c)
			return
		}
		again, err := Encode(c)
		require.NoError(t, err)
		back, err := Decode(again)
		require.NoError(t, err)
		require.Equal(t, c, back)
	})
}

func FuzzPayloads(f *testing.F) {
	f.Add(EncodeMesh([]int{2, 4}))
	f.Add(EncodePlacements([]layout.Placement{layout.StridedShard(1, 2), layout.Partial(layout.Max), layout.Shard(1)}))
	h := TensorHandle{3, 64, tensor.BFloat16, tensor.ShapeOf(8, 4), []int64{4, 1}}
	b, err := h.Encode()
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if dims, err := DecodeMesh(b); err == nil {
			again, err := DecodeMesh(EncodeMesh(dims))
			require.NoError(t, err)
			require.Equal(t, dims, again)
		}
		if all, err := DecodePlacements(b); err == nil {
			again, err := DecodePlacements(EncodePlacements(all))
			require.NoError(t, err)
			require.Equal(t, all, again)
		}
		if h, err := DecodeHandle(b); err == nil {
			if again, err := h.Encode(); err == nil {
				back, err := DecodeHandle(again)
				require.NoError(t, err)
				require.Equal(t, h, back)
			}
		}
	})
}
