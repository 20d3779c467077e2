package launch

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// GuardCommand is the hidden sub-command of stepvan that runs Guard.
const GuardCommand = "guard"

// guard is a process that outlives this one when something kills it. A nil guard does nothing.
type guard struct {
	cmd  *exec.Cmd
	pipe *os.File // its end means the end of this process
}

// startGuard starts the guard of the run whose mark is id.
func startGuard(command []string, id string) (*guard, error) {
	if command == nil {
		return nil, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard of the run: %w%s", err, startHint(err))
	}
	defer func() { _ = r.Close() }()
	g := &guard{cmd: exec.Command(command[0], command[1:]...), pipe: w} //nolint:gosec // the caller's command
	g.cmd.Stdin = r
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a signal to this process's group does not reach it
	if err := g.cmd.Start(); err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("start the guard of the run: %w%s", err, startHint(err))
	}
	g.send(id)
	return g, nil
}

// send writes a line. A guard that was killed matters only when this process is killed, too.
func (g *guard) send(line string) {
	if g != nil {
		_, _ = g.pipe.WriteString(line + "\n")
	}
}

// stop ends the guard after the run has ended.
func (g *guard) stop() {
	if g == nil {
		return
	}
	_ = g.cmd.Process.Kill() // before the pipe ends
	_ = g.cmd.Wait()
	_ = g.pipe.Close()
}

// Guard is the program of Plan.Guard. It reads from a pipe whose other end the launcher holds. The
// first line is the id of the run's mark, the others are the pids of the children. The pipe ends
// when the launcher is killed. Then Guard kills the processes of the run until none is left. Until
// it returns, the process ignores signals that ask programs to end.
func Guard(in io.Reader) error {
	ignored := make(chan os.Signal, 1) // never read
	signal.Notify(ignored, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(ignored)
	d := descendants{self: anyProcess, roots: map[int]bool{}, known: map[int]bool{}}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if d.id == "" {
			d.id = lines.Text()
			continue
		}
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			return fmt.Errorf("guard of a run: pid of a child: %w", err)
		}
		d.roots[pid] = true
	}
	if d.id == "" {
		return fmt.Errorf("guard of a run: only stepvan launch starts this command: %w", io.ErrUnexpectedEOF)
	}
	return d.killAll()
}

// killAll kills the processes of a run whose launcher is gone, until none is left.
func (d *descendants) killAll() error {
	for began := time.Now(); time.Since(began) < stuckTime; time.Sleep(sweepTime) {
		left := 0
		for _, p := range d.find(processes()) {
			if !p.zombie {
				left++
				_ = unix.Kill(p.pid, unix.SIGKILL)
			}
		}
		if left == 0 {
			return nil
		}
	}
	return fmt.Errorf("guard of a run: SIGKILL does not end all processes")
}
