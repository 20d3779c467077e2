// Package rdma tells what libibverbs makes of the RDMA devices of this machine, for the commands that show and check
// them. It opens the libraries, and devices for a moment. Any goroutine may call it.
package rdma
