// Package build tells from what, and for what, a program was built. It keeps no
// state, and all may be called concurrently.
package build
