package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// TestMain is the program itself in the processes that the test starts.
func TestMain(m *testing.M) {
	if os.Getenv("STEPVAN_TEST_JOB") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTwoJobsPrintTheSame(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	require.NoError(t, l.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var printed [2]string
	var g errgroup.Group
	for i, side := range []string{"train", "serve"} {
		g.Go(func() error {
			job := exec.CommandContext(ctx, os.Args[0], side, port)
			job.Env, job.Stderr = append(os.Environ(), "STEPVAN_TEST_JOB=1", "STEPVAN_LOG_LEVEL=error"), os.Stderr
			out, err := job.Output()
			printed[i] = string(out)
			return err
		})
	}
	require.NoError(t, g.Wait())
	require.Equal(t, "1 0.5 0.5\n2 1 1\n3 1.5 1.5\n", printed[0])
	require.Equal(t, printed[0], printed[1])
}
