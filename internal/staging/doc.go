// Package staging copies between memory of accelerators and pinned memory of the host.
//
// A van that does not reach memory of an accelerator sends and receives host memory instead. A [Stager] gives that
// memory from the pool of the instance, and has the driver of the device pin the arena that it lies in, once. Copies go
// through two streams of the Stager for each device, one for each direction. So copies out of a device and into it run
// at the same time, and beside the streams of the program.
//
// The functions block until the copies are over. Their callers are goroutines that hold no lock and drive nothing.
// Memory that a copy uses stays held until the device is done with it, whatever happens meanwhile.
package staging
