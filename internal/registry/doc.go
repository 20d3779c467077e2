// Package registry says which memory of an instance is registered with its devices.
//
// A device reaches only memory that is registered with it, and that takes long: up to half a second for a GiB. So
// registration is a step of its own, on the goroutine of the program that asks for it and under no lock. The arenas of
// an allocator are registered whole, when the program first names a tensor in one. Other memory is registered when the
// program says so. What sends and grants only looks up. It takes no lock for that, and what it does not find goes
// another way.
//
// An address means nothing when its memory may be freed and used again. So a [Registration] holds the region of its
// tensor, and the registry keeps an arena mapped, until the devices have given the memory up.
package registry
