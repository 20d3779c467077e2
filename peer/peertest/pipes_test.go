package peertest

import (
	"encoding/gob"
	"io"
)

// job is what the process of a member does. Its settings are in its environment.
type job struct {
	Case     string
	Mutation string // name of a mutation; "": none
	Rank     int
	Shares   bool // members see each other's memory
	Seed     uint64
}

// report is what a member tells the test.
type report struct {
	Over  bool   // the case is over at this member
	Text  string // what it has found
	Value []byte // else it meets the others, and brings this
}

// reply is what the test tells a member that meets the others.
type reply struct{ Values [][]byte }

// pipes join a member's process with the test.
type pipes struct {
	in  *gob.Decoder
	out *gob.Encoder
}

func newPipes(in io.Reader, out io.Writer) pipes {
	return pipes{gob.NewDecoder(in), gob.NewEncoder(out)}
}
