// Package cuda is the driver of NVIDIA's GPUs for package device. [Use] opens libcuda when a program asks for it, and
// registers the driver. The library is never linked, so a program with this package starts without it.
//
// The driver works in the primary context of each device, as the runtime of CUDA and torch do. So their streams are
// streams for [device.Stream]. Each call makes that context current on its thread, and takes it back.
//
// Any goroutine may call everything here. Without cgo Use returns stepvan.ErrNotSupported.
//
// The tests run the driver against a library that stands for libcuda. It was not run on a GPU.
package cuda
