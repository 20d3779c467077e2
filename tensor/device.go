package tensor

import (
	"fmt"
	"strconv"

	"github.com/stepvan/stepvan"
)

// DeviceKind says what holds memory. It has the numbers of DLPack.
type DeviceKind int32

// These are the kinds of device.
const (
	DeviceCPU         DeviceKind = 1
	DeviceCUDA        DeviceKind = 2
	DeviceCUDAHost    DeviceKind = 3 // memory of the host that CUDA has pinned
	DeviceOpenCL      DeviceKind = 4
	DeviceVulkan      DeviceKind = 7
	DeviceMetal       DeviceKind = 8
	DeviceVPI         DeviceKind = 9
	DeviceROCM        DeviceKind = 10
	DeviceROCMHost    DeviceKind = 11 // memory of the host that ROCm has pinned
	DeviceExtension   DeviceKind = 12
	DeviceCUDAManaged DeviceKind = 13
	DeviceOneAPI      DeviceKind = 14
	DeviceWebGPU      DeviceKind = 15
	DeviceHexagon     DeviceKind = 16
	DeviceMAIA        DeviceKind = 17
)

var deviceNames = map[DeviceKind]string{
	DeviceCPU: "cpu", DeviceCUDA: "cuda", DeviceCUDAHost: "cuda_host", DeviceOpenCL: "opencl", DeviceVulkan: "vulkan",
	DeviceMetal: "metal", DeviceVPI: "vpi", DeviceROCM: "rocm", DeviceROCMHost: "rocm_host", DeviceExtension: "ext_dev",
	DeviceCUDAManaged: "cuda_managed", DeviceOneAPI: "oneapi", DeviceWebGPU: "webgpu", DeviceHexagon: "hexagon",
	DeviceMAIA: "maia",
}

// Valid reports whether DLPack has the kind.
func (k DeviceKind) Valid() bool { return deviceNames[k] != "" }

// IsHost reports whether the processor reads and writes such memory as its own.
func (k DeviceKind) IsHost() bool {
	return k == DeviceCPU || k == DeviceCUDAHost || k == DeviceROCMHost
}

// String returns the name, such as "cuda".
func (k DeviceKind) String() string {
	if name := deviceNames[k]; name != "" {
		return name
	}
	return "device kind " + strconv.Itoa(int(k))
}

// Device is what holds memory: the processor, or one accelerator of a kind. The zero value is the processor.
type Device struct {
	Kind DeviceKind
	ID   int32 // counts the devices of the kind
}

// IsHost reports whether the processor reads and writes the memory of the device as its own.
func (d Device) IsHost() bool { return d.Kind == 0 || d.Kind.IsHost() }

// String returns kind and number, such as "cuda:0".
func (d Device) String() string {
	d = d.orCPU()
	return d.Kind.String() + ":" + strconv.Itoa(int(d.ID))
}

// orCPU is d with the kind that the zero value stands for.
func (d Device) orCPU() Device {
	if d.Kind == 0 {
		d.Kind = DeviceCPU
	}
	return d
}

// errDevice is the error of a use that the processor cannot make of the memory.
func (d Device) errDevice() error {
	return fmt.Errorf("the processor does not reach its memory (got %s, want cpu): copy it to memory of the host: %w", d, stepvan.ErrNotSupported)
}
