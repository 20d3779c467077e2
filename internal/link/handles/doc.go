// Package handles keeps the results of asynchronous operations: a table of
// records which are named by slot and generation, waited for by any number of
// goroutines, and recycled after a set number of later operations has finished.
// So nothing grows for ever, and an ID that outlives its record is
// stepvan.ErrStale instead of somebody else's result.
//
// The operation's owner opens a record, hands its ID out, and finishes it
// exactly once. A record is pinned while somebody waits for it, and then outlives
// its turn. In the steady state nothing here allocates; nothing here takes a lock.
package handles
