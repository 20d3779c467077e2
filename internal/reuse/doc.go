// Package reuse is for slices that live on in recycled objects: emptied, they must not keep alive what they held.
package reuse
