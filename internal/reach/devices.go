package reach

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/rdma/device"
	"github.com/stepvan/stepvan/rdma/device/devicelist"
)

// Devices chooses the RDMA ports of a node with settings s, the best one first. Each has its GID index and its source
// address, and every port that is skipped has its reason. The error is a ConfigError: a setting names what the machine
// does not have. There may be no choice and no error. Then Selection.Why says why.
func Devices(s *config.Settings, inv *device.Inventory, lookup func(string) (string, bool)) (*device.Selection, error) {
	list, err := devicelist.Parse(s.RDMADevices)
	var syntax *devicelist.SyntaxError
	if errors.As(err, &syntax) {
		return nil, refusedDevice(s, lookup, device.PartDevices, syntax.Reason)
	}
	selection, err := inv.Choose(device.Request{
		Devices: list, GIDIndex: s.RDMAGIDIndex, Interface: s.Interface, Accelerator: acceleratorOf(s, inv),
	})
	var contradiction *device.RequestError
	if errors.As(err, &contradiction) {
		return nil, refusedDevice(s, lookup, contradiction.Part, contradiction.Reason)
	}
	return selection, err
}

// DevicesHere reads the devices of this machine, and chooses among them.
func DevicesHere(s *config.Settings, lookup func(string) (string, bool)) (*device.Selection, *device.Inventory, error) {
	inv, err := device.ThisMachine().Read()
	if err != nil {
		return nil, nil, err
	}
	selection, err := Devices(s, inv, lookup)
	return selection, inv, err
}

// deviceAddress is the source address of the first port that a node with settings s uses. What is wrong with the
// settings or the machine is said when the van is made.
func deviceAddress(s *config.Settings) netip.Addr {
	selection, _, err := DevicesHere(s, nil)
	if err != nil || len(selection.Choices) == 0 {
		return netip.Addr{}
	}
	return selection.Choices[0].Source
}

// deviceSettings name the settings of the parts of a request.
var deviceSettings = map[device.Part]string{
	device.PartDevices:   "STEPVAN_RDMA_DEVICES",
	device.PartGIDIndex:  "STEPVAN_RDMA_GID_INDEX",
	device.PartInterface: netDevice,
}

func refusedDevice(s *config.Settings, lookup func(string) (string, bool), part device.Part, reason string) error {
	key, value := s.Written(lookup, deviceSettings[part])
	return &stepvan.ConfigError{Key: key, Value: value, Reason: reason}
}

// makers are the vendors of the accelerators of a backend.
var makers = map[config.Backend][]string{
	config.BackendGPU: {"NVIDIA", "AMD"},
	config.BackendDCU: {"Hygon"},
	config.BackendKLX: {"Kunlunxin"},
}

// acceleratorOf finds the accelerator of an instance by its number: nil where tensors are in host memory, or where the
// machine does not show it.
func acceleratorOf(s *config.Settings, inv *device.Inventory) *device.Accelerator {
	vendors := makers[s.Backend]
	if vendors == nil {
		return nil
	}
	all := slices.DeleteFunc(inv.Accelerators(), func(a device.Accelerator) bool { return !slices.Contains(vendors, a.Vendor) })
	if s.GPU >= len(all) {
		return nil
	}
	return &all[s.GPU]
}

// MayUseRDMA reports whether the settings let a node carry tensors over RDMA. The scheduler has no tensors.
func MayUseRDMA(s *config.Settings) bool {
	return s.Role != stepvan.RoleScheduler && !s.Local && (s.Van == config.VanAuto || DemandsRDMA(s))
}

// DemandsRDMA reports whether the settings allow no other van than RDMA between machines.
func DemandsRDMA(s *config.Settings) bool {
	return s.Van == config.VanRDMA || s.Van == config.VanShmRDMA
}

// DevicesInUse says in words what RDMA of a selection a node uses.
func DevicesInUse(s *device.Selection) string {
	first := s.Choices[0].String()
	if more := len(s.Choices) - 1; more > 0 {
		return fmt.Sprintf("%s, and %d more", first, more)
	}
	return first
}
