package storages

import (
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/sparing"
)

// linesEvery is the time between two lines that say the same.
const linesEvery = time.Minute

// lines are what the log says of storages.
type lines struct {
	log           zerolog.Logger
	limit, errors *sparing.Lines
}

func newLines(log zerolog.Logger) lines {
	silent := func(int) {}
	return lines{log: log, limit: sparing.New(1, linesEvery, silent), errors: sparing.New(1, linesEvery, silent)}
}

// full says that a storage does not fit.
func (l *lines) full(size, limit int64) {
	if l.limit.Allow() {
		l.log.Warn().Int64("bytes", size).Int64("limit", limit).
			Msg("a device could reach memory that is used again and again, and STEPVAN_REGISTER_BYTES leaves no room for it: raise that")
	}
}

// evicted says that others have made room for a storage.
func (l *lines) evicted(count int, limit int64) {
	if l.limit.Allow() {
		l.log.Info().Int("storages", count).Int64("limit", limit).
			Msg("memory that was registered has made room for other memory: STEPVAN_REGISTER_BYTES is the limit")
	}
}

// refused says why a storage is not registered. The stop of the node is not worth a line.
func (l *lines) refused(size int64, err error) {
	if !errors.Is(err, stepvan.ErrClosed) && l.errors.Allow() {
		l.log.Warn().Err(err).Int64("bytes", size).Msg("memory that is used again and again cannot be registered")
	}
}

func (l *lines) end() {
	l.limit.End()
	l.errors.End()
}
