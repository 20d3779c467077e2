// Command hello is the smallest stepvan program: workers push four numbers to
// every server, and each server answers with their doubles.
//
//	stepvan launch -n 2w1s -- go run ./examples/hello
package main
