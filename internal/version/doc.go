// Package version tells the version of this library, for errors and reports. It keeps no state, and all may be called
// concurrently.
package version
