package verbs

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
		is   []error
		not  error
	}{
		{
			failed("post_send", "mlx5_0", syscall.ENOMEM),
			"post_send: mlx5_0: cannot allocate memory: the send queue is full, or the request has more inline data or segments than the queue pair takes",
			[]error{syscall.ENOMEM}, stepvan.ErrNoMemory,
		},
		{
			failed("reg_mr", "mlx5_0", syscall.ENOMEM),
			"reg_mr: mlx5_0: cannot allocate memory: raise the limit of locked memory (ulimit -l, memlock of the container)",
			[]error{syscall.ENOMEM, stepvan.ErrNoMemory}, stepvan.ErrNotSupported,
		},
		{
			failed("alloc_mw", "siw0", 524),
			"alloc_mw: siw0: the driver, the kernel or the library does not support it",
			[]error{stepvan.ErrNotSupported, errors.ErrUnsupported}, stepvan.ErrNoMemory,
		},
		{
			failed("reg_dmabuf_mr", "rxe0", syscall.EOPNOTSUPP),
			"reg_dmabuf_mr: rxe0: the driver, the kernel or the library does not support it",
			[]error{stepvan.ErrNotSupported}, stepvan.ErrBusy,
		},
		{
			failed("create_event_channel", "", syscall.EACCES),
			"create_event_channel: permission denied: the user needs access to /dev/infiniband (uverbs and rdma_cm)",
			[]error{syscall.EACCES}, stepvan.ErrNotSupported,
		},
		{
			(&Completion{Status: 12, Vendor: 0x81, QP: 0x1a}).Err("write", "mlx5_1"),
			"write: mlx5_1: queue pair 0x1a: the peer did not answer: it is dead, or the path to it is down (status 12, vendor code 0x81)",
			[]error{stepvan.ErrPeerLost}, stepvan.ErrClosed,
		},
		{
			(&Completion{Status: 99, QP: 1}).Err("write", "mlx5_1"),
			"write: mlx5_1: queue pair 0x1: unknown status 99 (status 99, vendor code 0x0)",
			nil, stepvan.ErrPeerLost,
		},
		{
			(&ConnectionEvent{Kind: Rejected, Status: 28, Parameters: ConnectionParameters{Private: []byte("no")}}).Err(),
			"connect: the peer refused the connection: by its program", nil, stepvan.ErrPeerLost,
		},
		{
			(&ConnectionEvent{Kind: AddressError, Status: -int(syscall.ENETUNREACH)}).Err(),
			"connect: the address is not reachable from any RDMA device: network is unreachable", []error{syscall.ENETUNREACH}, stepvan.ErrPeerLost,
		},
		{(&ConnectionEvent{Kind: Unreachable}).Err(), "connect: the peer does not answer", nil, stepvan.ErrBusy},
		{
			&LibraryError{Reason: "libibverbs.so.1: cannot open shared object file"},
			"load: libibverbs.so.1: cannot open shared object file: install rdma-core (on Debian: apt-get install libibverbs1 librdmacm1 ibverbs-providers)",
			[]error{stepvan.ErrNotSupported}, stepvan.ErrClosed,
		},
		{
			&InUseError{Object: "device d", Users: []string{"queue pair 0x1 of d", "region of d"}},
			"close: device d: queue pair 0x1 of d, region of d still use it: close first what uses it",
			[]error{stepvan.ErrBusy}, stepvan.ErrClosed,
		},
		{ErrNotInBuild, "verbs: RDMA is not in this build: build with CGO_ENABLED=1 and a C compiler: stepvan: not supported: unsupported operation", []error{stepvan.ErrNotSupported}, stepvan.ErrClosed},
	} {
		require.EqualError(t, c.err, c.want)
		for _, is := range c.is {
			require.ErrorIs(t, c.err, is)
		}
		require.NotErrorIs(t, c.err, c.not)
	}
	require.NoError(t, (&Completion{}).Err("", "mlx5_0"))
	require.NoError(t, (&ConnectionEvent{Kind: Established}).Err())
	require.Equal(t, "unknown event 99", ConnectionEventKind(99).String())
}
