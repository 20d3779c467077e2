// Package slots gives values numbers that can leave the process or the language: an index and a generation. Such an ID
// names its value until the value is freed, and never names another one. So peers and C programs may send any number,
// also an old or an invented one.
//
// # Threads
//
// A [Table] has no lock. Its owner calls all methods under a lock of its own, except [Table.Peek], [Table.Pin] and
// [Table.Unpin], which any goroutine may call at any time.
//
// # Memory
//
// The table makes slots in blocks, keeps them, and uses them again. A value stays at its address and keeps its content
// when it is freed, so that the slices in it are reused. In the steady state nothing here allocates.
package slots
