#include "textflag.h"

// func Write(p unsafe.Pointer, n uintptr)
TEXT ·Write(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
	ADDQ AX, CX
	ANDQ $~63, AX

line:
	// PREFETCHW (AX), which the assembler does not know. Processors without it take it for nothing.
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08
	ADDQ $64, AX
	CMPQ AX, CX
	JCS  line
	RET
