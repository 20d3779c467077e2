// Package modeltest makes small models with seeded random weights, so that tests
// of the split need no download. Test support only.
package modeltest
