package tcpvan

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// wires makes two connected sockets that do not block. They are the caller's.
type wires func() [2]int

func loopback(b testing.TB) wires {
	return func() [2]int { return socketPair(b, [4]byte{127, 0, 0, 1}, own, own) }
}

// veth connects two network namespaces, which end with the benchmark.
func veth(b testing.TB) wires {
	if os.Geteuid() != 0 {
		b.Skip("network namespaces need root")
	}
	near, far := namespace(b), namespace(b)
	peer := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), far)
	inside(b, near, func() error {
		return commands("ip link add sva type veth peer name svb netns "+peer, "ip addr add 10.255.77.1/24 dev sva", "ip link set sva up")
	})
	inside(b, far, func() error { return commands("ip addr add 10.255.77.2/24 dev svb", "ip link set svb up") })
	in := func(ns int) func(func() error) error {
		return func(f func() error) error { return within(ns, f) }
	}
	return func() [2]int { return socketPair(b, [4]byte{10, 255, 77, 2}, in(near), in(far)) }
}

func own(f func() error) error { return f() }

// socketPair makes the client's socket where near calls back, and the server's, at ip, where far does.
func socketPair(b testing.TB, ip [4]byte, near, far func(func() error) error) (fds [2]int) {
	address := &unix.SockaddrInet4{Addr: ip}
	listener := -1
	require.NoError(b, far(func() (err error) {
		if listener, err = tcpSocket(); err != nil {
			return err
		}
		if err = unix.Bind(listener, address); err != nil {
			return err
		}
		return unix.Listen(listener, 1)
	}))
	defer func() { _ = unix.Close(listener) }()
	bound, err := unix.Getsockname(listener)
	require.NoError(b, err)
	require.NoError(b, near(func() (err error) {
		if fds[0], err = tcpSocket(); err != nil {
			return err
		}
		return unix.Connect(fds[0], bound)
	}))
	fds[1], _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC)
	require.NoError(b, err)
	for _, fd := range fds {
		tune(fd, false, 0)
		require.NoError(b, unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, loopbackControl))
		require.NoError(b, unix.SetNonblock(fd, true))
	}
	return fds
}

func tcpSocket() (int, error) {
	return unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
}

// namespace makes a network namespace, kept by its descriptor until the benchmark ends.
func namespace(b testing.TB) (fd int) {
	err := onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		b.Skipf("no network namespace: %v", err)
	}
	b.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func inside(b testing.TB, ns int, f func() error) {
	if err := within(ns, f); err != nil {
		b.Skipf("no veth pair: %v", err)
	}
}

// within calls f on a thread of the namespace.
func within(ns int, f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// onThread calls f on a thread that ends with it, as nothing else may run in its namespace.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

func commands(lines ...string) error {
	for _, line := range lines {
		if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return nil
}

// extendedError is struct sock_extended_err (linux/errqueue.h), with which the control message begins.
func extendedError(data []byte) unix.SockExtendedErr {
	var x unix.SockExtendedErr
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&x)), unsafe.Sizeof(x)), data)
	return x
}
