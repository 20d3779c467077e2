// Package reuse is for objects and slices that are used again. Once empty, they must not keep alive what they held.
package reuse
