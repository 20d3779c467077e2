package layout

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// TestTorch compares with what torch.distributed.tensor made of random layouts. testdata/record_torch.py has recorded
// it.
func TestTorch(t *testing.T) {
	text, err := os.ReadFile("testdata/torch.json")
	require.NoError(t, err)
	var recorded struct {
		Cases []struct {
			Mesh       []int
			Shape      []int64
			Placements [][]any
			Ranks      []struct {
				At     []int
				Local  []int64
				Spans  [][][2]int64
				Offset []int64
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &recorded))
	require.Len(t, recorded.Cases, 300)
	refused := 0
	for _, x := range recorded.Cases {
		l := Layout{Mesh: Mesh{Dims: x.Mesh}}
		for _, p := range x.Placements {
			l.Placements = append(l.Placements, placementOf(p))
		}
		shape := shapeOf(t, x.Shape)
		if x.Ranks == nil { // an uneven StridedShard
			refused++
			require.ErrorIs(t, l.CheckShape(shape), stepvan.ErrInvalid)
			continue
		}
		for _, r := range x.Ranks {
			p, err := l.Part(shape, l.Mesh.Index(r.At))
			require.NoError(t, err)
			local := p.Local()
			require.Equal(t, r.Local, local.Dims(), "%s of %v at %v", l, x.Shape, r.At)
			for d, want := range r.Spans {
				var got [][2]int64
				for _, s := range p.Spans(d) {
					got = append(got, [2]int64{s.Start, s.Stop})
				}
				require.Equal(t, want, got, "%s of %v at %v", l, x.Shape, r.At)
			}
			for d, want := range r.Offset {
				require.Equal(t, want, p.Spans(d)[0].Start)
			}
		}
	}
	require.Positive(t, refused)
}

func placementOf(text []any) Placement {
	number := func(i int) int { return int(text[i].(float64)) }
	switch text[0] {
	case "S":
		return Shard(number(1))
	case "SS":
		return StridedShard(number(1), number(2))
	}
	return Replicate()
}
