// Package work is what the programs of a measurement do besides exchanging: a server
// computes before it answers, and both sides write what they send and read what they get.
//
// With Spec.Fresh each side writes all that it sends anew and reads all that it gets, and
// checks the sum of it. So each exchange finds the bytes where a program leaves them: in
// the caches of the core that computed them.
//
// Times say how long a server computes: always as long, evenly between two times, or a
// mixture of such parts. The side that pushes draws the time of each exchange, and sends
// it in the first eight bytes of the push. So both sides know it, and what the exchange
// takes beyond it is known exactly.
//
// With Spec.Sleep the server sleeps for its time instead of computing, so that both sides
// wait.
//
// Both the nodes of a measurement and its limit use this package, so they do the same.
//
// # Threads and memory
//
// One goroutine at a time may use an Asker. It allocates when it is made, and nothing
// after that. Spec and Times are values that nobody changes. The functions use the
// memory of their arguments only during the call.
package work
