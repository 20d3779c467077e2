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

// guard is the process that outlives this one when it is killed. A nil guard guards nothing.
type guard struct {
	cmd  *exec.Cmd
	pipe *os.File // the guard takes its end for the end of this process
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
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what ends this process does not end it
	if err := g.cmd.Start(); err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("start the guard of the run: %w%s", err, startHint(err))
	}
	g.tell(id)
	return g, nil
}

// tell writes a line. A guard that has been killed is missed by nobody until this process is, too.
func (g *guard) tell(line string) {
	if g != nil {
		_, _ = g.pipe.WriteString(line + "\n")
	}
}

// dismiss ends the guard: the run has ended, and nothing of it is left.
func (g *guard) dismiss() {
	if g == nil {
		return
	}
	_ = g.cmd.Process.Kill() // before the pipe ends
	_ = g.cmd.Wait()
	_ = g.pipe.Close()
}

// Guard is the program of Plan.Guard. It reads from in, a pipe whose other end the launcher holds: the id of the
// run's mark, then the pids of the children, a line each. The end of the pipe is the end of a launcher that was
// killed. Then Guard kills what is left of the run, and returns when nothing is. Signals that ask programs to
// end have no effect on the process meanwhile.
func Guard(in io.Reader) error {
	deaf := make(chan os.Signal, 1) // read by nobody
	signal.Notify(deaf, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(deaf)
	d := descendants{self: nobody, roots: map[int]bool{}, known: map[int]bool{}}
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
		return fmt.Errorf("guard of a run: stepvan launch starts it: %w", io.ErrUnexpectedEOF)
	}
	return d.end()
}

// nobody is the parent that all processes have in rooted whose parent cannot be seen.
const nobody = 0

// rooted gives every process an ancestor that find begins with.
func rooted(all []process) []process {
	visible := make(map[int]bool, len(all))
	for _, p := range all {
		visible[p.pid] = true
	}
	for i := range all {
		if !visible[all[i].parent] {
			all[i].parent = nobody
		}
	}
	return all
}

// end kills all that is left of a run whose launcher is gone, until nothing is.
func (d *descendants) end() error {
	for began := time.Now(); time.Since(began) < stuckTime; time.Sleep(sweepTime) {
		left := 0
		for _, p := range d.find(rooted(processes())) {
			if !p.zombie {
				left++
				_ = unix.Kill(p.pid, unix.SIGKILL)
			}
		}
		if left == 0 {
			return nil
		}
	}
	return fmt.Errorf("guard of a run: processes are left that SIGKILL does not end")
}
