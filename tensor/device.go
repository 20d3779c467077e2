package tensor

import "strconv"

// DeviceKind is the sort of memory a region lies in. The values are stable.
type DeviceKind uint8

// CPU is host memory; it is the zero value.
const CPU DeviceKind = 0

// String returns torch's word for the kind.
func (k DeviceKind) String() string {
	if k == CPU {
		return "cpu"
	}
	return "device" + strconv.Itoa(int(k))
}

// Device says where memory lies. The zero value is host memory.
type Device struct {
	Kind  DeviceKind
	Index uint8 // which one of its kind; 0 for the CPU
}

// String reads as torch prints a device: "cpu", or kind and index.
func (d Device) String() string {
	if d.Kind == CPU {
		return d.Kind.String()
	}
	return d.Kind.String() + ":" + strconv.Itoa(int(d.Index))
}
