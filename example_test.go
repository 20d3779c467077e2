package stepvan_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stepvan/stepvan"
)

// An error of an operation names the peer that it is about.
func ExampleOpError() {
	// err is what Handle.Wait returns when a server has died.
	var err error = &stepvan.OpError{Op: "push_pull", Peer: "server 1", Err: stepvan.ErrPeerLost}

	var failed *stepvan.OpError
	if errors.Is(err, stepvan.ErrPeerLost) && errors.As(err, &failed) {
		fmt.Println(failed.Peer, "is gone")
	}
	// Output: server 1 is gone
}

// An error about a setting names the variable to change.
func ExampleConfigError() {
	// err is what ps.Start returns.
	err := errors.Join(&stepvan.ConfigError{Key: "DMLC_ROLE", Value: "boss", Reason: "must be one of worker, server, scheduler, joint"})

	var wrong *stepvan.ConfigError
	if errors.As(err, &wrong) {
		fmt.Println(wrong)
	}
	// Output: DMLC_ROLE="boss": must be one of worker, server, scheduler, joint
}

// A mistake of this library ends the node. Report it with the text of Report, which has the stack.
func ExampleInternalError() {
	// err is what an operation of the node returns from then on.
	var err error = &stepvan.InternalError{Version: "v1.2.3", Node: "worker 3", Op: "poll", Panic: "index out of range", Stack: "goroutine 7 [running]"}

	var broken *stepvan.InternalError
	if errors.As(err, &broken) {
		fmt.Println(broken.Node, "failed:", broken.Panic)
		fmt.Println(strings.HasSuffix(broken.Report(), broken.Stack))
	}
	// Output:
	// worker 3 failed: index out of range
	// true
}

// A peer that is not a node of stepvan breaks the protocol.
func ExampleProtocolError() {
	// err is in the error of an operation with that peer.
	var err error = &stepvan.OpError{Op: "push_pull", Peer: "server 1", Err: &stepvan.ProtocolError{Field: "kind", Offset: 6, Reason: "unknown kind 9"}}

	var wrong *stepvan.ProtocolError
	if errors.As(err, &wrong) {
		fmt.Println(wrong)
	}
	// Output: protocol error: kind at byte 6: unknown kind 9
}

// A full queue is an error that goes away: wait for an outstanding operation, then try again.
func Example_tryAgain() {
	full := 2
	send := func() error { // such as Node.PushPull
		if full--; full >= 0 {
			return fmt.Errorf("push_pull: %w", stepvan.ErrWouldBlock)
		}
		return nil
	}
	wait := func() { fmt.Println("wait for a handle") } // Handle.Wait of the oldest exchange

	err := send()
	for errors.Is(err, stepvan.ErrWouldBlock) {
		wait()
		err = send()
	}
	fmt.Println(err)
	// Output:
	// wait for a handle
	// wait for a handle
	// <nil>
}
