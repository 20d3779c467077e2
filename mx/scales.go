package mx

// Tiles of scales as tensor cores read them.
const (
	tileRows    = 128
	tileColumns = 4
	tileBytes   = tileRows * tileColumns
	groupRows   = 32 // the rows of a tile are in four groups, which lie side by side
)

// SwizzledBytes is how long the list of scales is of a matrix with so many rows and columns.
func SwizzledBytes(rows, columns int64) int64 {
	return (rows + tileRows - 1) / tileRows * ((columns/Block + tileColumns - 1) / tileColumns) * tileBytes
}

// scaleAt is where the scale of a block is.
func (m *matrix) scaleAt(row, block int) int {
	if !m.swizzled {
		return row*m.blocks + block
	}
	tile := row/tileRows*((m.blocks+tileColumns-1)/tileColumns) + block/tileColumns
	row %= tileRows
	return tile*tileBytes + row%groupRows*16 + row/groupRows*tileColumns + block%tileColumns
}
