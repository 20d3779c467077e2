package peer

import (
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/tensor"
)

// The messages, for tests that send them by hand.
const (
	OpTell     = uint8(opTell)
	OpTaken    = uint8(opTaken)
	OpOffer    = uint8(opOffer)
	OpAccept   = uint8(opAccept)
	OpRefuse   = uint8(opRefuse)
	OpChunk    = uint8(opChunk)
	OpWritten  = uint8(opWritten)
	OpDone     = uint8(opDone)
	OpFail     = uint8(opFail)
	OpQuiet    = uint8(opQuiet)
	OpOpen     = uint8(opOpen)
	OpReady    = uint8(opReady)
	OpAttach   = uint8(opAttach)
	OpAttached = uint8(opAttached)
	OpDetach   = uint8(opDetach)
	OpRevoke   = uint8(opRevoke)
	OpReleased = uint8(opReleased)
	OpGet      = uint8(opGet)
	OpPut      = uint8(opPut)
	OpServe    = uint8(opServe)
	OpNote     = uint8(opNote)
	OpMail     = uint8(opMail)
	OpLetter   = uint8(opLetter)
	OpUnknown  = OpLetter + 1
)

// Kinds of letters.
const (
	LetterProposal = letterProposal
	LetterAgreed   = letterAgreed
	LetterRejected = letterRejected
	MaxOffers      = maxOffers
)

// AppendForm encodes what a peer tells of a view, with a place where that is not zero.
func AppendForm(b []byte, v *tensor.Strided, grant uint64, generation uint32, offset int64) []byte {
	f := formOf(v)
	f.place.Grant, f.place.Generation, f.place.Offset = link.GrantID(grant), generation, offset
	return f.append(b)
}
