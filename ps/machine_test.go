package ps_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
)

// vans returns what each process says of its connections, by name.
func (f *family) vans() map[string]string {
	f.t.Helper()
	out := map[string]string{}
	for _, p := range append(append([]*process(nil), f.servers...), f.workers...) {
		text, err := p.expect(limited(f.t), "vans")
		require.NoError(f.t, err)
		out[p.name] = text
	}
	return out
}

// temporary gives all processes a directory of their own for what they leave on the machine.
func temporary(dir string) func(string, *exec.Cmd) {
	return func(_ string, cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "TMPDIR="+dir) }
}

// short is a directory whose path leaves room for names of sockets.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sv")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func sockets(t *testing.T, dir string) (all []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			all = append(all, path)
		}
		return err
	}))
	return all
}

// Processes of one machine share memory without being told; one that is told otherwise is reached its way.
func TestProcessesChoose(t *testing.T) {
	const shared = "servers 0-1: shm (same machine)"
	for name, c := range map[string]struct {
		shape shape
		want  map[string]string
	}{
		"auto": {want: map[string]string{
			"worker 0": shared, "worker 1": shared, "server 0": "workers 0-1: shm (same machine)", "server 1": "workers 0-1: shm (same machine)",
		}},
		"this machine only": {shape: shape{edit: func(s *ps.Settings) { s.Local = true }}, want: map[string]string{
			"worker 0": shared, "worker 1": shared, "server 0": "workers 0-1: shm (same machine)", "server 1": "workers 0-1: shm (same machine)",
		}},
		"a server on tcp": {shape: shape{each: map[string]func(*ps.Settings){"server 1": only(config.VanTCP)}}, want: map[string]string{
			"worker 0": "server 0: shm (same machine); server 1: tcp (shm: not offered there, rdma: ...)",
			"worker 1": "server 0: shm (same machine); server 1: tcp (shm: not offered there, rdma: ...)",
			"server 0": "workers 0-1: shm (same machine)", "server 1": "workers 0-1: tcp (STEPVAN_VAN=tcp)",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c.shape.workers, c.shape.servers = 2, 2
			f := raise(t, byChoice, c.shape, "serve", "work", 50)
			got := f.vans()
			for name, text := range got { // why there is no RDMA depends on the machine
				got[name] = regexp.MustCompile("rdma: [^)]*").ReplaceAllString(text, "rdma: ...")
			}
			require.Equal(t, c.want, got)
			f.all(limited(t), "done")
		})
	}
}

// root skips a test that needs namespaces or users, which only root can make everywhere.
func root(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may make namespaces and become another user")
	}
}

// in has one process start in namespaces of its own, or as another user.
func in(name string, change func(*exec.Cmd)) func(string, *exec.Cmd) {
	return func(n string, cmd *exec.Cmd) {
		if n == name {
			change(cmd)
		}
	}
}

// behind has a process start after a line of shell that changes what it sees of the file system.
func behind(t *testing.T, line string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "mount --make-rprivate / && " + line + " && exec /proc/self/fd/3"}
		cmd.ExtraFiles = []*os.File{binary(t)}
	}
}

// binary is this program, wherever its file is.
func binary(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open("/proc/self/exe")
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Namespaces that do not hide sockets do not keep processes from sharing memory.
func TestProcessesOfOtherNamespacesShare(t *testing.T) {
	root(t)
	for name, change := range map[string]func(*exec.Cmd){
		"IPC": func(cmd *exec.Cmd) { cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWIPC },
		"PID": func(cmd *exec.Cmd) { cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID },
		"UTS": func(cmd *exec.Cmd) { cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUTS },
	} {
		t.Run(name, func(t *testing.T) {
			f := raise(t, byChoice, shape{workers: 2, servers: 1, fit: in("worker 1", change)}, "serve", "work", 50)
			require.Equal(t, "server 0: shm (same machine)", f.vans()["worker 1"])
			f.all(limited(t), "done")
		})
	}
}

// Others reach a node that cannot share memory with them over a Unix socket, or over TCP where it sees no socket. The
// node says why, also to its peer. Where the settings demand shared memory, that is an error of the pair.
func TestProcessesThatCannotShare(t *testing.T) {
	root(t)
	dir := short(t)
	machine := filepath.Join(dir, "machine")
	require.NoError(t, os.WriteFile(machine, []byte("5ca1ab1e-0000-4000-8000-000000000000\n"), 0o600))
	for name, c := range map[string]struct {
		change    func(*exec.Cmd)
		van, want string
	}{
		"another machine":     {behind(t, "mount --bind "+machine+" /proc/sys/kernel/random/boot_id"), "unix", "other machine"},
		"another file system": {behind(t, "mount -t tmpfs none "+dir), "tcp", "no such"},
		"another user": {func(cmd *exec.Cmd) {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
			cmd.Path, cmd.ExtraFiles = "/proc/self/fd/3", []*os.File{binary(t)}
			cmd.Env = append(cmd.Env, "TMPDIR=/tmp")
		}, "tcp", "other user"},
	} {
		t.Run(name, func(t *testing.T) {
			fit := func(n string, cmd *exec.Cmd) { temporary(dir)(n, cmd); in("worker 1", c.change)(n, cmd) }
			f := raise(t, byChoice, shape{workers: 2, servers: 1, fit: fit}, "serve", "work", 20)
			vans := f.vans()
			require.Equal(t, "server 0: shm (same machine)", vans["worker 0"])
			reason := strings.TrimPrefix(vans["worker 1"], "server 0: "+c.van+" (shm: ")
			require.NotEqual(t, vans["worker 1"], reason, vans["worker 1"])
			require.Contains(t, reason, c.want)
			require.Contains(t, vans["server 0"], "worker 1: "+c.van+" (shm: "+strings.TrimSuffix(reason, ")")+", reported by the worker)")
			f.all(limited(t), "done")

			fit = func(n string, cmd *exec.Cmd) { temporary(dir)(n, cmd); in("worker 0", c.change)(n, cmd) }
			f = launch(t, overShm, shape{workers: 1, servers: 1, fit: fit}, "serve", "work", 1)
			_, err := f.workers[0].expect(limited(t), "started")
			for _, w := range []string{`STEPVAN_VAN="shm"`, "worker 0 (", "with server 0 (", "memory cannot be shared (", c.want, "set STEPVAN_VAN=auto"} {
				require.ErrorContains(t, err, w)
			}
			_, err = f.servers[0].expect(limited(t), "vans")
			require.ErrorContains(t, err, "memory cannot be shared (", "the server learns why its worker left")
		})
	}
}

// Where the kernel gives a process no memory files, everything works over sockets, and the reason is told.
func TestProcessesWithoutMemoryFiles(t *testing.T) {
	deny := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, denyEnv+"=1") }
	for name, c := range map[string]struct {
		fit  func(string, *exec.Cmd)
		edit func(*ps.Settings)
		want map[string]string // parts of what they say
	}{
		"a worker": {in("worker 1", deny), func(*ps.Settings) {}, map[string]string{
			"worker 0": "server 0: shm (same machine)", "worker 1": "server 0: unix (shm: ",
			"server 0": "worker 1: unix (shm: start over shm: shm: creating 4096 bytes of shared memory: operation not permitted, reported by the worker)",
		}},
		"a server": {in("server 0", deny), func(*ps.Settings) {}, map[string]string{
			"worker 0": "server 0: unix (shm: not offered there)", "server 0": "workers 0-1: unix (shm: ",
		}},
		"everybody, on this machine": {func(_ string, cmd *exec.Cmd) { deny(cmd) }, func(s *ps.Settings) { s.Local = true }, map[string]string{
			"worker 0": "server 0: unix (shm: ", "server 0": "operation not permitted",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := raise(t, byChoice, shape{workers: 2, servers: 1, fit: c.fit, edit: c.edit}, "serve", "work", 50)
			vans := f.vans()
			for who, want := range c.want {
				require.Contains(t, vans[who], want, who)
			}
			f.all(limited(t), "done")
		})
	}
	f := launch(t, overShm, shape{workers: 1, servers: 1, fit: in("worker 0", deny)}, "serve", "work", 1)
	_, err := f.workers[0].expect(limited(t), "started")
	for _, w := range []string{`STEPVAN_VAN="shm"`, "memory cannot be shared here", "operation not permitted", "stepvan doctor"} {
		require.ErrorContains(t, err, w)
	}
}

// Root reaches the sockets of another user, whose memory it does not share.
func TestProcessesOfAnotherUserWithinReach(t *testing.T) {
	root(t)
	nobody := func(cmd *exec.Cmd) {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		cmd.Path, cmd.ExtraFiles = "/proc/self/fd/3", []*os.File{binary(t)}
	}
	dir := short(t)
	require.NoError(t, os.Chmod(dir, 0o777))
	fit := func(n string, cmd *exec.Cmd) { temporary(dir)(n, cmd); in("server 0", nobody)(n, cmd) }
	f := raise(t, byChoice, shape{workers: 2, servers: 1, fit: fit}, "serve", "work", 20)
	vans := f.vans()
	require.Equal(t, "server 0: unix (shm: other user)", vans["worker 0"])
	require.Equal(t, "workers 0-1: unix (shm: other user, reported by the worker)", vans["server 0"])
	f.all(limited(t), "done")
	require.Empty(t, sockets(t, dir))
}

// With DMLC_LOCAL=1 no network is used: processes without one, each in a namespace of its own, work together.
func TestThisMachineOnlyNeedsNoNetwork(t *testing.T) {
	root(t)
	for name, edit := range map[string]func(*ps.Settings){"shm": only(config.VanAuto), "unix": only(config.VanTCP)} {
		t.Run(name, func(t *testing.T) {
			f := raise(t, byChoice, shape{
				workers: 2, servers: 1, edit: func(s *ps.Settings) { s.Local = true; edit(s) },
				fit: func(_ string, cmd *exec.Cmd) { cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET },
			}, "serve", "work", 20)
			require.Contains(t, f.vans()["worker 1"], "server 0: "+name)
			f.all(limited(t), "done")
		})
	}
}

// What killed processes leave on the machine is gone after the next start, and clusters that are alive are not touched.
func TestLeftoversAreSwept(t *testing.T) {
	for name, edit := range map[string]func(*ps.Settings){
		"network": func(*ps.Settings) {}, "this machine only": func(s *ps.Settings) { s.Local = true },
		"unix": func(s *ps.Settings) { s.Local, s.Van = true, config.VanTCP },
	} {
		t.Run(name, func(t *testing.T) {
			dir := short(t)
			c := shape{workers: 1, servers: 1, edit: edit, fit: temporary(dir)}
			alive := raise(t, byChoice, c, "idle", "idle", 0)
			kept := sockets(t, dir)
			require.NotEmpty(t, kept)
			for range 3 {
				killed := raise(t, byChoice, c, "idle", "idle", 0)
				require.Greater(t, len(sockets(t, dir)), len(kept))
				killed.kill()
			}
			raise(t, byChoice, c, "serve", "work", 3).all(limited(t), "done")
			require.ElementsMatch(t, kept, sockets(t, dir))
			alive.kill()
			raise(t, byChoice, c, "serve", "work", 3).all(limited(t), "done")
			require.Empty(t, sockets(t, dir))
		})
	}
}

// kill ends all processes, which have no time to tidy up.
func (f *family) kill() {
	for _, p := range f.processes() {
		_ = p.cmd.Process.Kill()
		for range p.lines {
		}
	}
}

// Clusters of one machine and user, at once, do not meet.
func TestClustersSideBySide(t *testing.T) {
	for name, edit := range map[string]func(*ps.Settings){"network": func(*ps.Settings) {}, "this machine only": func(s *ps.Settings) { s.Local = true }} {
		t.Run(name, func(t *testing.T) {
			dir := short(t)
			var all []*family
			for range 2 {
				all = append(all, launch(t, byChoice, shape{workers: 2, servers: 1, edit: edit, fit: temporary(dir)}, "serve", "work", 50))
			}
			for _, f := range all {
				f.all(limited(t), "started")
			}
			for i, f := range all {
				require.Equal(t, "server 0: shm (same machine)", f.vans()["worker 1"], "cluster %d", i)
				f.all(limited(t), "done")
			}
			require.Empty(t, sockets(t, dir))
		})
	}
}
