// Package storages registers memory of the program that its operations name again and again.
//
// A storage is memory that the program has allocated as a whole, such as the memory of a tensor and of its views. The
// bindings for other languages give each storage a number that no other storage ever gets. So memory that was freed,
// and other memory at its address, are two storages. A [Table] counts how often operations name a storage. The second
// time it has the storage registered, on a goroutine of its own: no operation waits for a device. The bytes that are
// registered at once have a limit. The storage that was named longest ago makes room, unless an operation uses it.
//
// The table does not keep memory alive. The caller that gives a storage its number calls [Table.End] before
// the memory goes.
package storages
