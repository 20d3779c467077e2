// Package reuse is for slices that live on in recycled objects. Once empty, they must not keep alive what they held.
package reuse
