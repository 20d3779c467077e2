package sparing

import "time"

// Every calls line at the end of each period, from another goroutine, with the time since the start. It ends with a
// call of stop.
func Every(period time.Duration, line func(waited time.Duration)) (stop func()) {
	begun, end := time.Now(), make(chan struct{})
	go func() {
		t := time.NewTicker(period)
		defer t.Stop()
		for {
			select {
			case now := <-t.C:
				line(now.Sub(begun))
			case <-end:
				return
			}
		}
	}()
	return func() { close(end) }
}
