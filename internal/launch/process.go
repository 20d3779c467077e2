package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// childProcess is a child with its process and its pipes.
type childProcess struct {
	child  Child
	index  int // chooses its colour
	cmd    *exec.Cmd
	tail   tail
	ended  bool
	pipes  []*os.File // read ends
	result []byte
	broken error // why the result could not be read
}

// start runs the child, and adds the readers of its pipes to readers.
func (c *childProcess) start(plan *Plan, p *printer, readers *sync.WaitGroup) error {
	writeEnds, err := c.connect(plan)
	if err == nil {
		err = c.cmd.Start()
	}
	for _, f := range writeEnds {
		_ = f.Close()
	}
	if err != nil {
		c.close()
		return fmt.Errorf("start %v: %w%s", c.child, err, startHint(err))
	}
	c.child.PID = c.cmd.Process.Pid
	c.read(plan, p, readers)
	return nil
}

// connect makes the pipes. Standard input is /dev/null, so that no child waits for a terminal.
func (c *childProcess) connect(plan *Plan) (writeEnds []*os.File, err error) {
	n := 2
	if plan.Result != nil {
		n = 3
	}
	for range n {
		r, w, err := os.Pipe()
		if err != nil {
			return writeEnds, err
		}
		c.pipes, writeEnds = append(c.pipes, r), append(writeEnds, w)
	}
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.ExtraFiles = writeEnds[0], writeEnds[1], writeEnds[2:]
	return writeEnds, nil
}

// read starts one goroutine for each pipe. A goroutine ends with the last process that holds the
// other end, or at close.
func (c *childProcess) read(plan *Plan, p *printer, readers *sync.WaitGroup) {
	name := c.child.String()
	readers.Go(func() { pump(c.pipes[0], p.stream(name, c.index, nil), p, plan.Stdout) })
	readers.Go(func() { pump(c.pipes[1], p.stream(name, c.index, &c.tail), p, plan.Stderr) })
	if plan.Result != nil {
		readers.Go(func() { c.result, c.broken = collect(c.pipes[2]) })
	}
}

// readSize is the number of bytes of one read, and so of one print.
const readSize = 32 << 10

// pump prints the content of a pipe until its end.
func pump(from io.Reader, s *stream, p *printer, to io.Writer) {
	buf := make([]byte, readSize)
	for {
		n, err := from.Read(buf)
		p.write(to, s.feed(buf[:n]))
		if err != nil {
			p.write(to, s.finish())
			return
		}
	}
}

// close ends the readers.
func (c *childProcess) close() {
	for _, f := range c.pipes {
		_ = f.Close()
	}
}

// failure is how the child ended; nil after success.
func (c *childProcess) failure() *Failure {
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok, status.Exited() && status.ExitStatus() == 0:
		return nil
	case status.Signaled():
		return &Failure{Child: c.child, Status: -1, Signal: status.Signal(), Core: status.CoreDump()}
	}
	return &Failure{Child: c.child, Status: status.ExitStatus()}
}

// startHint says what to do when the kernel does not start a program.
func startHint(err error) string {
	switch {
	case errors.Is(err, unix.ENOEXEC):
		return ": a script needs a first line like #!/bin/sh"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return ": raise the limit with ulimit -n, or start fewer"
	case errors.Is(err, unix.EAGAIN):
		return ": raise the limit of processes with ulimit -u, or start fewer"
	case errors.Is(err, unix.ENOMEM):
		return ": there is too little memory"
	}
	return ""
}
