package device

import (
	"errors"
	"fmt"

	"github.com/Mellanox/rdmamap"
)

// mapped asks rdmamap for the device of a network interface. rdmamap reads this machine only. It panics on files that
// are not as it expects them.
func mapped(iface string) (device string, err error) {
	defer func() {
		if p := recover(); p != nil {
			device, err = "", fmt.Errorf("rdmamap: %s: %v", iface, p)
		}
	}()
	device, err = rdmamap.GetRdmaDeviceForNetdevice(iface)
	if err == nil && device == "" {
		err = errUnmapped
	}
	return device, err
}

var errUnmapped = errors.New("rdmamap: the interface has no device")
