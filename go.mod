module github.com/stepvan/stepvan

go 1.26

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	golang.org/x/text v0.32.0 // indirect
	gonum.org/v1/gonum v0.17.0 // indirect
)
