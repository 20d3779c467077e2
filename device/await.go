package device

import (
	"runtime"
	"time"
)

const (
	// spins is how often Await looks before it sleeps between two looks. A copy of a few MiB ends meanwhile.
	spins = 2000
	// shortestSleep and longestSleep bound the time between two looks.
	shortestSleep, longestSleep = 20 * time.Microsecond, time.Millisecond
)

// Await waits until the work of e is over, and returns its error. It looks again and again, since no library of an
// accelerator can wait for an event with a limit. giveUp, which may be nil, is called between looks. Await returns its
// error at once, and the work continues then.
func Await(e Event, giveUp func() error) error {
	sleep := shortestSleep
	for looks := 0; ; looks++ {
		if done, err := e.Query(); done || err != nil {
			return err
		}
		if looks < spins && looks%16 != 0 {
			runtime.Gosched()
			continue
		}
		if giveUp != nil {
			if err := giveUp(); err != nil {
				return err
			}
		}
		if looks >= spins {
			time.Sleep(sleep)
			sleep = min(2*sleep, longestSleep)
		}
	}
}
