package text

// ByteUnits are the binary units of byte sizes, from the largest.
var ByteUnits = [...]struct {
	Suffix string
	Bytes  int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}
