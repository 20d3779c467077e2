package launch

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Unignore makes this process catch SIGINT and SIGHUP until release is called, if it ignores them.
// A shell starts background processes so. The signals then have no effect, and programs that this
// process starts do not ignore them. It is for tests of Ctrl-C.
func Unignore() (release func()) {
	c := make(chan os.Signal, 1) // never read
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return func() { signal.Stop(c) }
}

// Signals collects the signals that end a program (SIGINT, SIGTERM, SIGHUP) for Plan.Signals, until
// release is called. A signal that this process ignores, as under nohup, stays ignored. Until
// release, a write to a closed standard output returns an error and does not end the process, so
// that Run can stop the children first.
func Signals() (signals <-chan os.Signal, release func()) {
	c := make(chan os.Signal, 4)
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	pipe := make(chan os.Signal, 1) // never read: the error of the write is enough
	signal.Notify(pipe, unix.SIGPIPE)
	return c, func() {
		signal.Stop(c)
		signal.Stop(pipe)
	}
}
