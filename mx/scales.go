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

// eachRun calls f for runs of the scales of n blocks from block at on. A run is side by side in both layouts. f gets
// where the run begins in the list for tensor cores, and its range among the n blocks.
func (m *matrix) eachRun(at, n int, f func(list, first, end int)) {
	row, column := at/m.blocks, at%m.blocks
	across := (m.blocks + tileColumns - 1) / tileColumns
	for first := 0; first < n; {
		run := min(tileColumns-column%tileColumns, m.blocks-column, n-first)
		in := row % tileRows
		tile := row/tileRows*across + column/tileColumns
		f(tile*tileBytes+in%groupRows*16+in/groupRows*tileColumns+column%tileColumns, first, first+run)
		if first, column = first+run, column+run; column == m.blocks {
			row, column = row+1, 0
		}
	}
}
