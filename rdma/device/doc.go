// Package device finds the RDMA devices of a machine, and chooses where connections begin.
//
// [Machine.Read] takes an [Inventory]: devices with their ports and GIDs, network interfaces, accelerators. It reads
// sysfs and proc, and needs no rights for that. [Inventory.Choose] says which ports a node uses, each with its GID
// and source address, and why it skips the others. [Inventory.PortsOf] leads from a network interface to ports, and
// [Port.Interfaces] back.
//
//   - What a kernel or a driver writes may be missing, wrong or of a version to come. It costs the thing that it is
//     about, which is then in [Device.Problems], and nothing else.
//   - An inventory is what was true at one moment. Nobody changes it after Read, so any goroutine may use it.
//   - rdmamap finds the device of a network interface. The GID table, the hardware addresses and the PCI functions fill
//     in what it does not know: ports, VLANs, bonds, iWARP, and partitions of InfiniBand.
//
// The package needs no cgo, opens no device and keeps no state.
package device
