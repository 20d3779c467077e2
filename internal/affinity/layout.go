package affinity

// Layout says which cores belong to an accelerator, as StepMesh counts them. Cores are numbered
// socket by socket, and two devices share each half of a socket. In each half the first Start cores
// stay free for the rest of the system.
type Layout struct {
	PerSocket int // cores of one socket
	PerDevice int // cores for each device
	Start     int // first core that is used in a half
}

// devicesPerHalf and halves: StepMesh knows machines of two sockets and eight devices.
const (
	devicesPerHalf = 2
	halves         = 4
)

// Cores is the set of cores of a device, counted from 0. Devices after the eighth follow the
// eighth.
func (l Layout) Cores(device int) Set {
	half := min(device/devicesPerHalf, halves-1)
	first := half*l.PerSocket/2 + l.Start + (device-half*devicesPerHalf)*l.PerDevice
	return Range(first, l.PerDevice)
}
