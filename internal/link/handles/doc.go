// Package handles keeps the results of asynchronous operations in a table of records. Slot and generation name a
// record. Any number of goroutines may wait for it. The table recycles it after a set number of later operations has
// finished. So the table does not grow without bound, and an ID that outlives its record gives stepvan.ErrStale instead
// of the result of another operation.
//
// The owner of the operation opens a record, hands its ID out, and finishes it exactly once. A waiting goroutine pins
// the record, and the table then recycles it later. In the steady state nothing here allocates, and nothing here takes
// a lock.
package handles
