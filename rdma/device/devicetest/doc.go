// Package devicetest makes machines of files, with RDMA devices as sysfs shows them, for tests. It imports nothing of
// stepvan, so that the tests of package device can use it.
package devicetest
