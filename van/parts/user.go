package parts

import "sync/atomic"

// UserValue is the caller's value of an endpoint. Concurrent.
type UserValue struct{ value atomic.Pointer[any] }

// SetUser implements van.Endpoint.
func (u *UserValue) SetUser(v any) { u.value.Store(&v) }

// User implements van.Endpoint.
func (u *UserValue) User() any {
	if p := u.value.Load(); p != nil {
		return *p
	}
	return nil
}
