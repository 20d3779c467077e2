package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// request is the meta of two pushes and a pull.
func request() (Header, []byte) {
	d := descriptor()
	small := KeyOf(2, 100)
	var b []byte
	for _, d := range []Descriptor{d, small, d} {
		b = d.Append(b)
	}
	return Header{Op: OpRequest, Pushes: 2, Pulls: 1, Total: d.Bytes + 100}, b
}

func response() (Header, []byte) {
	d := KeyOf(9, 64)
	return Header{Op: OpResponse, Flags: FlagTrace, Pulls: 1, Total: 64}, AppendStamps(d.Append(nil), [4]int64{1, 2, 3, -4})
}

func TestRequestDecode(t *testing.T) {
	h, meta := request()
	var r Request
	for range 2 { // the second time with reused slices
		require.NoError(t, r.Decode(&h, meta))
		require.Equal(t, []Descriptor{descriptor(), KeyOf(2, 100)}, r.Pushes)
		require.Equal(t, []Descriptor{descriptor()}, r.Pulls)
	}
}

func TestResponseDecode(t *testing.T) {
	h, meta := response()
	var r Response
	require.NoError(t, r.Decode(&h, meta))
	require.Equal(t, Response{Pulls: []Descriptor{KeyOf(9, 64)}, Stamps: [4]int64{1, 2, 3, -4}}, r)
	h.Flags = 0
	require.Error(t, r.Decode(&h, meta), "stamps that nobody announced")
	require.NoError(t, r.Decode(&h, meta[:len(meta)-StampsSize]))
	require.Zero(t, r.Stamps)
}

func TestMetaTruncatedAtEveryOffset(t *testing.T) {
	qh, q := request()
	rh, p := response()
	var pe *stepvan.ProtocolError
	for n := range q {
		require.ErrorAs(t, new(Request).Decode(&qh, q[:n]), &pe, "request of %d bytes", n)
	}
	for n := range p {
		require.ErrorAs(t, new(Response).Decode(&rh, p[:n]), &pe, "response of %d bytes", n)
	}
	_, _, err := CutStamps(p[:StampsSize-1])
	require.ErrorAs(t, err, &pe)
}

func TestRequestRefuses(t *testing.T) {
	cases := []struct {
		name  string
		spoil func(h *Header, meta *[]byte)
		field string
	}{
		{"another op", func(h *Header, _ *[]byte) { h.Op = 77 }, "op"},
		{"more payload", func(h *Header, _ *[]byte) { h.Total++ }, "total"},
		{"surplus meta", func(_ *Header, m *[]byte) { *m = append(*m, 0) }, "meta"},
		{"fewer tensors than meta", func(h *Header, _ *[]byte) { h.Pulls = 0 }, "meta"},
		{"more tensors than meta", func(h *Header, _ *[]byte) { h.Pulls = 4096 }, "descriptor"},
		{"sum of bytes wraps", func(h *Header, m *[]byte) {
			d := KeyOf(1, 1<<62)
			*m = d.Append(d.Append(nil))
			h.Pushes, h.Pulls = 2, 0
		}, "bytes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h, meta := request()
			c.spoil(&h, &meta)
			var pe *stepvan.ProtocolError
			require.ErrorAs(t, new(Request).Decode(&h, meta), &pe)
			require.Equal(t, c.field, pe.Field)
		})
	}
}

func TestResponseRefuses(t *testing.T) {
	for field, spoil := range map[string]func(h *Header){
		"op":     func(h *Header) { h.Op = 0 },
		"pushes": func(h *Header) { h.Pushes = 1 },
		"total":  func(h *Header) { h.Total = 65 },
		"meta":   func(h *Header) { h.Pulls = 0; h.Total = 0 },
	} {
		h, meta := response()
		spoil(&h)
		var pe *stepvan.ProtocolError
		require.ErrorAs(t, new(Response).Decode(&h, meta), &pe, field)
		require.Equal(t, field, pe.Field)
	}
}

func TestAnnouncement(t *testing.T) {
	a := Announcement{Keys: []Descriptor{KeyOf(1, 10), KeyOf(2, 0)}}
	meta := encodeList(a.Keys)
	h := Header{Op: OpAnnounce, Pushes: 2, Generation: 3}
	var got Announcement
	require.NoError(t, got.Decode(&h, meta))
	require.Equal(t, a, got)
	var pe *stepvan.ProtocolError
	for n := range meta {
		require.ErrorAs(t, got.Decode(&h, meta[:n]), &pe)
	}
	for field, bad := range map[string]Header{
		"op":     {Op: 9, Pushes: 2},
		"total":  {Op: OpWithdraw, Pushes: 2, Total: 1},
		"pushes": {Op: OpWithdraw, Pushes: MaxAnnounced + 1},
		"meta":   {Op: OpWithdraw, Pushes: 1},
	} {
		require.ErrorAs(t, got.Decode(&bad, meta), &pe, field)
		require.Equal(t, field, pe.Field)
	}
}

func TestText(t *testing.T) {
	require.Equal(t, "push of key 7: too large", Text(AppendText(nil, "push of key 7: too large")))
	require.Len(t, AppendText(nil, strings.Repeat("x", 5000)), MaxText)
	cut := string(AppendText(nil, strings.Repeat("é", MaxText)[1:]))
	require.LessOrEqual(t, len(cut), MaxText)
	require.Equal(t, " [31mred?", Text([]byte("\x1b[31mred\xff")))
	require.Len(t, Text(make([]byte, 1<<20)), MaxText)
}

// Budget: 0 allocations once the slices have grown.
func TestMetaAllocates(t *testing.T) {
	qh, q := request()
	rh, p := response()
	var req Request
	var resp Response
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if req.Decode(&qh, q) != nil || resp.Decode(&rh, p) != nil {
			t.Fatal("broken")
		}
	}))
}

func FuzzMeta(f *testing.F) {
	h, meta := request()
	f.Add(h.Op, h.Pushes, h.Pulls, h.Total, uint16(0), meta)
	h, meta = response()
	f.Add(h.Op, h.Pushes, h.Pulls, h.Total, uint16(h.Flags), meta)
	f.Fuzz(func(t *testing.T, op uint8, pushes, pulls uint32, total uint64, flags uint16, meta []byte) {
		h := Header{Op: op, Pushes: pushes, Pulls: pulls, Total: total, Flags: Flags(flags)}
		var req Request
		if req.Decode(&h, meta) == nil {
			require.Len(t, req.Pushes, int(pushes))
			require.Len(t, req.Pulls, int(pulls))
			require.Equal(t, string(meta), string(encodeList(req.Pushes, req.Pulls)))
		}
		var resp Response
		if resp.Decode(&h, meta) == nil {
			again := encodeList(resp.Pulls)
			if h.Flags&FlagTrace != 0 {
				again = AppendStamps(again, resp.Stamps)
			}
			require.Equal(t, string(meta), string(again))
		}
		var a Announcement
		if a.Decode(&h, meta) == nil {
			require.Equal(t, string(meta), string(encodeList(a.Keys)))
		}
		require.LessOrEqual(t, len(Text(meta)), 3*MaxText)
	})
}

func encodeList(lists ...[]Descriptor) (b []byte) {
	for _, l := range lists {
		for i := range l {
			b = l[i].Append(b)
		}
	}
	return b
}

func TestKeyOf(t *testing.T) {
	d := KeyOf(tensor.Key(5), 12)
	var got Descriptor
	_, err := got.Decode(d.Append(nil), 0)
	require.NoError(t, err)
	require.Equal(t, d, got)
}
