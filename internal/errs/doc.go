// Package errs holds the error values and types that every layer shares.
//
// Nothing that a peer, the environment or the hardware does is answered with a
// panic or an exit: it becomes one of these values, wrapped so that errors.Is
// and errors.As find the cause, with a text that says what to do about it.
// Package ps publishes them to programs.
package errs
