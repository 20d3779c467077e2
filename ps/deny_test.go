package ps_test

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// denyMemoryFiles has the kernel refuse memfd_create to all threads of this process from here on.
func denyMemoryFiles() error {
	const (
		load, jumpEqual, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
		allow, refuse        = 0x7fff0000, 0x00050000 | uint32(unix.EPERM) // SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO
		setFilter, allThread = 1, 1                                        // SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC
	)
	filter := []unix.SockFilter{
		{Code: load, K: 0}, // seccomp_data.nr
		{Code: jumpEqual, K: unix.SYS_MEMFD_CREATE, Jf: 1},
		{Code: ret, K: refuse},
		{Code: ret, K: allow},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, setFilter, allThread, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return errno
	}
	if _, err := unix.MemfdCreate("test", 0); !errors.Is(err, unix.EPERM) {
		return errors.New("memfd_create is not refused")
	}
	return nil
}
