package sys

import "golang.org/x/sys/unix"

// AdoptOrphans makes this process the parent of whatever its descendants leave behind (PR_SET_CHILD_SUBREAPER).
func AdoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// HasNoChild reports that this process has no child, neither living nor ended. It reaps nothing.
func HasNoChild() bool {
	return unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == unix.ECHILD
}

// Reap takes the status of a child that has ended. It does not wait.
func Reap(pid int) { _, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) }
