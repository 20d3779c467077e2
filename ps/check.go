package ps

import (
	"context"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/reach"
)

// The following are there for the command stepvan.

// Check tells what Start would refuse of settings in this build, and what it would accept without effect. It opens
// nothing.
func Check(s Settings) ([]config.Warning, error) { return CheckFrom(s, nil) }

// CheckFrom is Check for settings that lookup, which answers like os.LookupEnv, has given: what it says of a setting
// begins with the variable that the user has set.
func CheckFrom(s Settings, lookup func(string) (string, bool)) ([]config.Warning, error) {
	return reach.Check(&s, false, lookup)
}

// TryPair tells what would carry tensors between nodes of this machine and user, and why.
func TryPair(ctx context.Context, s Settings) (Connection, error) {
	van, reason, err := reach.TryPair(ctx, s)
	return Connection{Van: van, Reason: reason}, err
}

// TryScheduler returns nil when the scheduler of s answers.
func TryScheduler(ctx context.Context, s Settings) error { return reach.TryScheduler(ctx, s) }

// PrivateDir is the directory in which nodes of this user find each other on this machine.
func PrivateDir() (string, error) { return reach.SocketDir() }
