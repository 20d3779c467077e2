package ps

import "github.com/stepvan/stepvan/internal/shm"

// PrivateDir is the directory in which nodes of this user find each other on this machine. It makes
// the directory; an error says why it cannot be used.
func PrivateDir() (string, error) {
	dir := shm.SocketDir()
	return dir, shm.PrivateDir(dir)
}
