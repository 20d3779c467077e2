// Package limit measures the least that an exchange can be: the same bytes with nothing
// between the program and what carries them.
//
// A Caller sends bytes to one or several Answerers and waits until each has sent others
// back. Five kinds:
//
//   - Socket and UnixSocket: non-blocking send and recv in tight loops, no poller, no
//     frames, the bytes read into one buffer
//   - Netpoll and UnixNetpoll: Read and Write of package net, which park the goroutine
//   - Memory: both sides copy from memory of their own into a file that both have
//     mapped, and raise an atomic number on which the other spins; without bytes to
//     copy it is the number alone
//
// A Copier tells how long a copy of so many bytes takes within one thread.
//
// # Threads and memory
//
// A Caller and an Answerer have one user at a time each. All memory is allocated when
// they are made, and written once: pages that nobody has written are all the same
// page of zeros, which is faster to read than memory is.
package limit
