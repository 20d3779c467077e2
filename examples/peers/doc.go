// Peers is one program for two jobs, which are started apart. One trains weights, and the other one serves each version
// of them:
//
//	go run ./examples/peers train 9100 &
//	go run ./examples/peers serve 9100
//
// Both print the same numbers.
package main
