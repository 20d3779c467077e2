package peer

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/tensor"
)

// seedForms are views as peers tell them.
func seedForms() (list [][]byte) {
	for _, f := range []form{
		{dtype: tensor.Float32, rank: 2, dims: [tensor.MaxRank]int64{3, 4}, strides: [tensor.MaxRank]int64{4, 1}},
		{dtype: tensor.BFloat16, rank: 3, dims: [tensor.MaxRank]int64{2, 5, 7}, strides: [tensor.MaxRank]int64{0, 70, 1}},
		{dtype: tensor.Uint8},
		{dtype: tensor.Float64, rank: 1, dims: [tensor.MaxRank]int64{9}, strides: [tensor.MaxRank]int64{2}, place: link.Target{Grant: 3, Generation: 1, Offset: 4096}},
	} {
		list = append(list, f.append(nil))
	}
	return list
}

// A form that is accepted keeps within bounds that all arithmetic with it relies on, and says the same when it is
// encoded again.
func FuzzForm(f *testing.F) {
	for _, b := range seedForms() {
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		da, db := decode(a), decode(b)
		x, y := da.form(), db.form()
		if da.end() != nil || db.end() != nil {
			return
		}
		for _, v := range []*form{&x, &y} {
			require.LessOrEqual(t, v.span(), int64(maxSpan)*16)
			require.GreaterOrEqual(t, v.span(), int64(0))
			require.GreaterOrEqual(t, v.bytes(), int64(0))
			require.GreaterOrEqual(t, v.place.Offset, int64(0))
			require.GreaterOrEqual(t, v.place.Offset+v.span(), v.place.Offset)
			again := decode(v.append(nil))
			w := again.form()
			require.NoError(t, again.end())
			require.Equal(t, *v, w)
		}
		if x.dtype != y.dtype || x.bytes() != y.bytes() || x.bytes() > 1<<16 || x.span() > 1<<16 || y.span() > 1<<16 {
			return
		}
		walk, err := route(&x, &y)
		if err != nil || walk.Bytes() == 0 {
			return
		}
		require.Equal(t, x.bytes(), walk.Bytes())
		from, to := make([]byte, x.span()), make([]byte, y.span())
		var c cargo
		c.add(&walk, unsafe.Pointer(unsafe.SliceData(to)), unsafe.Pointer(unsafe.SliceData(from)))
		for i := range c.chunks {
			c.copyIn(i)
			require.LessOrEqual(t, c.size(i), int64(chunkBytes))
		}
	})
}

// Messages of any bytes are read to their end or refused.
func FuzzMessage(f *testing.F) {
	for _, b := range seedForms() {
		f.Add(append(binary.LittleEndian.AppendUint64(nil, 7), b...))
		f.Add(append(append(make([]byte, 24), b...), 1, 2))
	}
	f.Add(appendReason(nil, errNoWindow))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := decode(b)
		_, why := d.u64(), d.reason()
		require.Error(t, why)
		_ = d.end()
		d = decode(b)
		_, _, v := d.u64(), d.take(len(Token{})-tokenKey), d.form()
		for range v.rank {
			d.uvarint()
		}
		_ = d.end()
		d = decode(b)
		_, _, _ = d.u32(), d.bytes(), d.text(maxText)
		_ = d.end()
	})
}

// Letters of any bytes are read to their end or refused. Moves that are accepted are in order, and are what they say
// when they are encoded again.
func FuzzLetter(f *testing.F) {
	x := pair{draft: &draft{}}
	for i, b := range seedForms() {
		d := decode(b)
		x.sends = append(x.sends, Move{ID: uint64(i) + 1})
		x.forms[0] = append(x.forms[0], d.form())
	}
	head := append([]byte{letterProposal}, make([]byte, 16)...)
	f.Add(x.appendProposal(head))
	f.Add(appendText(append([]byte{letterRejected}, make([]byte, 16)...), "no", maxText))
	f.Add([]byte{letterAgreed})
	f.Fuzz(func(t *testing.T, b []byte) {
		l := readLetter(b)
		if l.kind == letterRejected {
			_ = l.text(maxText)
			return
		}
		theirs := [2][]proposed{l.moves(), l.moves()}
		_ = l.options()
		if l.end() != nil {
			return
		}
		for _, list := range theirs {
			for i := range list {
				require.True(t, i == 0 || list[i-1].id < list[i].id)
			}
		}
	})
}

// The letters of a group may have any bytes.
func FuzzBundle(f *testing.F) {
	g := &Group{ranks: make([]stepvan.Rank, 3)}
	f.Add(bundle([][]byte{[]byte("a"), nil, []byte("bc")}, 0, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		have := make([][]byte, 3)
		if g.unbundle(have, 1, 2, b) != nil {
			return
		}
		size := 0
		for _, one := range have {
			size += len(one)
		}
		require.LessOrEqual(t, size, len(b))
	})
}

// Tokens may have any bytes.
func FuzzToken(f *testing.F) {
	f.Add(make([]byte, 32))
	f.Fuzz(func(t *testing.T, b []byte) {
		var x Token
		copy(x[:], b)
		p := &Peer{}
		p.windows.p = p
		if x.check("get") != nil {
			return
		}
		_, err := p.find("get", x.owner())
		require.Error(t, err)
		_, err = p.windows.find(nil, x.window(), x[tokenKey:], RightRead)
		require.ErrorIs(t, err, errNoWindow)
	})
}
