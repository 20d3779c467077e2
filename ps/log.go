package ps

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/sparing"
)

// logger is what WithLogger has given. Otherwise it writes to standard error: text for people on a terminal, else JSON.
func (o *options) logger(s *Settings) zerolog.Logger {
	if o.log != nil {
		return *o.log
	}
	level, err := zerolog.ParseLevel(string(s.LogLevel))
	if s.LogLevel == config.LogOff || err != nil {
		level = zerolog.Disabled
	}
	console := s.LogFormat == config.LogConsole || s.LogFormat == config.LogAuto && isatty.IsTerminal(os.Stderr.Fd())
	if !console {
		return zerolog.New(os.Stderr).Level(level).Hook(zerolog.HookFunc(stamp))
	}
	w := zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: "15:04:05.000", NoColor: !isatty.IsTerminal(os.Stderr.Fd())}
	return zerolog.New(w).Level(level).Hook(zerolog.HookFunc(stamp))
}

// stamp adds the time in ms; zerolog's own stamp has a format that all of the process share.
func stamp(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().Format("2006-01-02T15:04:05.000Z07:00"))
}

// identity adds role and rank to each line of the log. The rank is -1 until the scheduler has given it.
type identity struct {
	role string
	rank atomic.Int64
}

func newIdentity(role string, rank int) *identity {
	b := &identity{role: role}
	b.rank.Store(int64(rank))
	return b
}

// String reads "worker 3"; "worker" before the rank is known.
func (b *identity) String() string {
	if r := b.rank.Load(); r >= 0 && b.role != string(RoleScheduler) {
		return fmt.Sprintf("%s %d", b.role, r)
	}
	return b.role
}

// Run implements zerolog.Hook.
func (b *identity) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str("role", b.role)
	if r := b.rank.Load(); r >= 0 {
		e.Int64("rank", r)
	}
}

// starvedEvery is the time between two lines that say that descriptors have run out.
const starvedEvery = time.Minute

func newStarvedLines() *sparing.Lines { return sparing.New(1, starvedEvery, func(int) {}) }

// starved is called by vans when no descriptor is left for a peer that connects.
func (n *Node) starved(err error) {
	if n.starvedLines.Allow() {
		n.log.Error().Msg(err.Error())
	}
}
