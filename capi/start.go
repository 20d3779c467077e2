//go:build cgo && !stepvan_devices

package main

import "github.com/stepvan/stepvan/ps"

// startFrom is ps.StartFrom, except in tests.
var startFrom = ps.StartFrom
