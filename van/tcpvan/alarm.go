package tcpvan

import (
	"sync/atomic"
	"time"
)

// alarm has a later Poll look at something.
type alarm struct {
	wake  func() // the driver
	due   atomic.Bool
	timer atomic.Pointer[time.Timer]
}

// set has the alarm come after d, and wake the driver. Poll only.
func (a *alarm) set(d time.Duration) {
	if t := a.timer.Load(); t != nil {
		t.Reset(d)
		return
	}
	a.timer.Store(time.AfterFunc(d, func() {
		a.due.Store(true)
		a.wake()
	}))
}

// take reports whether the alarm has come since take reported it last. Poll only.
func (a *alarm) take() bool { return a.due.Load() && a.due.CompareAndSwap(true, false) }

// stop ends an alarm that is set: its timer would keep the van in memory. Concurrent.
func (a *alarm) stop() {
	if t := a.timer.Load(); t != nil {
		t.Stop()
	}
}
