package launch

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Unignore has this process catch SIGINT and SIGHUP, which a shell may have it ignore because it runs in the
// background, until release is called. They have no effect on it then, and programs that it starts meanwhile
// do not inherit that they are ignored. It is for tests of Ctrl-C.
func Unignore() (release func()) {
	c := make(chan os.Signal, 1) // read by nobody
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return func() { signal.Stop(c) }
}

// Signals collects the signals by which people and systems end a program (SIGINT,
// SIGTERM, SIGHUP), for Plan.Signals, until release is called. A signal that this
// process was started to ignore, as under nohup, stays ignored. Until release a
// write to a closed standard output is an error rather than the end of the
// process, so that Run can stop the children first.
func Signals() (signals <-chan os.Signal, release func()) {
	c := make(chan os.Signal, 4)
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	pipe := make(chan os.Signal, 1) // read by nobody: the error of the write is enough
	signal.Notify(pipe, unix.SIGPIPE)
	return c, func() {
		signal.Stop(c)
		signal.Stop(pipe)
	}
}
