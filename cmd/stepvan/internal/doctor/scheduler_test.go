package doctor

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
)

// A real scheduler is known as one and does not mind; a program that answers otherwise is known not to be one.
func TestRootPortOfThisMachine(t *testing.T) {
	s := worker(t, "DMLC_ROLE=scheduler DMLC_PS_ROOT_URI=127.0.0.1 DMLC_PS_ROOT_PORT=0 DMLC_NUM_WORKER=1 DMLC_NUM_SERVER=1")
	s.LogLevel = config.LogOff
	listening, started := make(chan int, 1), make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		_, err := ps.Start(ctx, s, ps.OnListen(func(port int) { listening <- port }))
		started <- err
	}()
	s.RootPort, s.Role = <-listening, stepvan.RoleWorker
	for range 3 {
		require.Equal(t, Check{"root port", OK, "the scheduler listens at " + s.RootAddr(), ""}, worstNamed(Run(ctx, s, Options{Reach: 10 * time.Second}), "root port"))
	}
	cancel()
	require.ErrorIs(t, <-started, context.Canceled, "the scheduler was still waiting for its nodes")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" + strconv.Itoa(1<<40) + string(make([]byte, 256))))
			_ = c.Close()
		}
	}()
	s.RootPort = l.Addr().(*net.TCPAddr).Port
	got := worstNamed(Run(t.Context(), s, Options{Reach: 10 * time.Second}), "root port")
	require.Equal(t, Fail, got.Status, "%+v", got)
	require.Contains(t, got.Found, "is not a scheduler")
}
