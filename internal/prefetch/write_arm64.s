#include "textflag.h"

// func Write(p unsafe.Pointer, n uintptr)
TEXT ·Write(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD n+8(FP), R1
	ADD  R0, R1, R1
	AND  $~63, R0, R0

line:
	PRFM (R0), PSTL1KEEP
	ADD  $64, R0, R0
	CMP  R1, R0
	BLO  line
	RET
