package layout

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

// Limits of a mesh. They bound what a message of a peer may cost.
const (
	maxMeshDims = 8
	maxMesh     = 1 << 16 // ranks
)

// Mesh is a grid of ranks, as torch's DeviceMesh is. Indices count its cells in row-major order: the last dimension
// varies fastest.
type Mesh struct {
	Dims  []int
	Ranks []stepvan.Rank // of each index; nil: index i is rank i
}

// MeshOf is a mesh whose index i is rank i.
func MeshOf(dims ...int) Mesh { return Mesh{Dims: dims} }

// Check refuses a mesh with an extent below 1, with too many cells, with another number of ranks than cells, or with a
// rank that is negative or occurs twice. The errors are [stepvan.ErrInvalid].
func (m Mesh) Check() error {
	if len(m.Dims) > maxMeshDims {
		return errs.Invalid("layout: mesh has too many dimensions (got %d, want at most %d)", len(m.Dims), maxMeshDims)
	}
	size := 1
	for i, n := range m.Dims {
		if n < 1 || n > maxMesh {
			return errs.Invalid("layout: dimension %d of mesh %v is out of range (got %d, want 1 to %d)", i, m.Dims, n, maxMesh)
		}
		if size *= n; size > maxMesh {
			return errs.Invalid("layout: mesh %v is too large (want at most %d ranks)", m.Dims, maxMesh)
		}
	}
	if m.Ranks == nil {
		return nil
	}
	if len(m.Ranks) != size {
		return errs.Invalid("layout: mesh %v and its ranks differ in number (got %d ranks, want %d): name one rank for each cell",
			m.Dims, len(m.Ranks), size)
	}
	return distinct(fmt.Sprintf("mesh %v", m.Dims), m.Ranks)
}

// distinct refuses lists in which a rank is out of range or occurs twice.
func distinct(what string, ranks []stepvan.Rank) error {
	seen := make(map[stepvan.Rank]bool, len(ranks))
	for _, r := range ranks {
		if err := checkRank(what, r); err != nil {
			return err
		}
		if seen[r] {
			return errs.Invalid("layout: %s names rank %d twice: name each rank once", what, r)
		}
		seen[r] = true
	}
	return nil
}

func checkRank(what string, r stepvan.Rank) error {
	if r < 0 || r > maxRank {
		return errs.Invalid("layout: a rank of %s is out of range (got %d, want 0 to %d)", what, r, maxRank)
	}
	return nil
}

// maxRank is the largest rank that a table of moves can hold.
const maxRank = 1<<31 - 1

// Size is the number of cells. A mesh without dimensions has one.
func (m Mesh) Size() int {
	size := 1
	for _, n := range m.Dims {
		size *= n
	}
	return size
}

// Coordinates returns where index lies in the grid, outermost dimension first. The index must be at least 0 and below
// [Mesh.Size].
func (m Mesh) Coordinates(index int) []int {
	c := make([]int, len(m.Dims))
	m.coordinates(index, c)
	return c
}

func (m *Mesh) coordinates(index int, c []int) {
	for i := len(m.Dims) - 1; i >= 0; i-- {
		c[i] = index % m.Dims[i]
		index /= m.Dims[i]
	}
}

// Index is the inverse of [Mesh.Coordinates].
func (m Mesh) Index(coordinates []int) int {
	index := 0
	for i, c := range coordinates {
		index = index*m.Dims[i] + c
	}
	return index
}

// Rank is the rank at index.
func (m Mesh) Rank(index int) stepvan.Rank {
	if m.Ranks == nil {
		return stepvan.Rank(index)
	}
	return m.Ranks[index]
}

// step is by how much the index grows with coordinate dim.
func (m *Mesh) step(dim int) int {
	step := 1
	for _, n := range m.Dims[dim+1:] {
		step *= n
	}
	return step
}
