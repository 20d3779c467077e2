//go:build !race

#include "textflag.h"

// Each loop has the form func(values, codes, scales unsafe.Pointer, n int), where n is above 0.

#define ARGUMENTS \
	MOVQ values+0(FP), SI  \
	MOVQ codes+8(FP), DI   \
	MOVQ scales+16(FP), DX \
	MOVQ n+24(FP), CX

// BROADCAST fills a register with a number of 32 bits. x is its lower half.
#define BROADCAST(number, x, register) \
	MOVL         $number, AX \
	MOVD         AX, x       \
	VPBROADCASTD x, register

// order puts back in their order what the packing instructions have left in two halves.
DATA order<>+0(SB)/8, $0x0000000400000000
DATA order<>+8(SB)/8, $0x0000000500000001
DATA order<>+16(SB)/8, $0x0000000600000002
DATA order<>+24(SB)/8, $0x0000000700000003
GLOBL order<>(SB), NOPTR|RODATA, $32

#define QUANTIZE_CONSTANTS \
	BROADCAST(0x7fffffff, X15, Y15) \ // all but the sign
	BROADCAST(0x3c800000, X14, Y14) \ // 2^-6, the least normal element
	BROADCAST(0x46800000, X13, Y13) \ // 2^14, where numbers are multiples of the least element
	BROADCAST(0xc407ffff, X12, Y12) \ // half of the lowest bit of an element, and the exponents' other bias
	BROADCAST(1, X11, Y11)          \
	BROADCAST(0x80, X10, Y10)       \ // the sign of an element
	BROADCAST(0x43e00000, X9, Y9)     // 448

// ENCODE rounds a, times the factor in Y8, to codes. Y4, Y5 and Y6 are changed. Numbers below the least normal element
// are rounded by a sum, whose lowest bits are the code.
#define ENCODE(a) \
	VMULPS    Y8, a, a        \
	VPAND     Y15, a, Y4      \
	VPSRLD    $24, a, a       \
	VPAND     Y10, a, a       \
	VPSRLD    $20, Y4, Y5     \
	VPAND     Y11, Y5, Y5     \
	VPADDD    Y12, Y5, Y5     \
	VPADDD    Y4, Y5, Y5      \
	VPSRLD    $20, Y5, Y5     \
	VADDPS    Y13, Y4, Y6     \
	VPSUBD    Y13, Y6, Y6     \
	VPCMPGTD  Y4, Y14, Y4     \
	VPBLENDVB Y4, Y6, Y5, Y5  \
	VPOR      Y5, a, a

// NOT_A_NUMBER leaves the codes of a block with a NaN or an infinity. Y8 has the largest number, and Y9 0x7f.
#define NOT_A_NUMBER(a) \
	VPAND    Y15, a, a \
	VPCMPGTD Y8, a, a  \
	VPAND    Y9, a, a

// QUANTIZE is the loop. LOAD gets the values of a block as float32 in Y0 to Y3. The largest of the block decides the
// scale, as in the form in Go.
#define QUANTIZE(LOAD, BYTES) \
	ARGUMENTS                       \
	QUANTIZE_CONSTANTS              \
	VMOVDQU      order<>(SB), Y7    \
	                                \
next:                               \
	LOAD                            \
	VPAND        Y15, Y0, Y4        \
	VPAND        Y15, Y1, Y5        \
	VPMAXUD      Y4, Y5, Y4         \
	VPAND        Y15, Y2, Y5        \
	VPAND        Y15, Y3, Y6        \
	VPMAXUD      Y5, Y6, Y5         \
	VPMAXUD      Y4, Y5, Y4         \
	VEXTRACTI128 $1, Y4, X5         \
	VPMAXUD      X4, X5, X4         \
	VPSHUFD      $0x4e, X4, X5      \
	VPMAXUD      X4, X5, X4         \
	VPSHUFD      $0xb1, X4, X5      \
	VPMAXUD      X4, X5, X4         \
	VMOVD        X4, AX             \
	CMPL         AX, $0x7f800000    \
	JCC          notNumbers         \
	VDIVSS       X9, X4, X4         \
	VMOVD        X4, AX             \
	ADDL         $0x7fffff, AX      \
	SHRL         $23, AX            \
	MOVB         AX, (DX)           \
	NEGL         AX                 \
	ADDL         $254, AX           \
	SHLL         $23, AX            \
	VMOVD        AX, X8             \
	VPBROADCASTD X8, Y8             \
	ENCODE(Y0)                      \
	ENCODE(Y1)                      \
	ENCODE(Y2)                      \
	ENCODE(Y3)                      \
	                                \
store:                              \
	VPACKUSDW    Y1, Y0, Y0         \
	VPACKUSDW    Y3, Y2, Y2         \
	VPACKUSWB    Y2, Y0, Y0         \
	VPERMD       Y0, Y7, Y0         \
	VMOVDQU      Y0, (DI)           \
	ADDQ         $BYTES, SI         \
	ADDQ         $32, DI            \
	INCQ         DX                 \
	DECQ         CX                 \
	JNE          next               \
	VZEROUPPER                      \
	RET                             \
	                                \
notNumbers:                         \
	MOVB         $255, (DX)         \
	BROADCAST(0x7f7fffff, X8, Y8)   \
	BROADCAST(0x7f, X9, Y9)         \
	NOT_A_NUMBER(Y0)                \
	NOT_A_NUMBER(Y1)                \
	NOT_A_NUMBER(Y2)                \
	NOT_A_NUMBER(Y3)                \
	BROADCAST(0x43e00000, X9, Y9)   \
	JMP          store

#define LOAD_FLOAT32 \
	VMOVUPS (SI), Y0   \
	VMOVUPS 32(SI), Y1 \
	VMOVUPS 64(SI), Y2 \
	VMOVUPS 96(SI), Y3

#define LOAD_BFLOAT16 \
	VPMOVZXWD (SI), Y0    \
	VPMOVZXWD 16(SI), Y1  \
	VPMOVZXWD 32(SI), Y2  \
	VPMOVZXWD 48(SI), Y3  \
	VPSLLD    $16, Y0, Y0 \
	VPSLLD    $16, Y1, Y1 \
	VPSLLD    $16, Y2, Y2 \
	VPSLLD    $16, Y3, Y3

// func quantizeFloat32AVX2(values, codes, scales unsafe.Pointer, n int)
TEXT ·quantizeFloat32AVX2(SB), NOSPLIT, $0-32
	QUANTIZE(LOAD_FLOAT32, 128)

// func quantizeBFloat16AVX2(values, codes, scales unsafe.Pointer, n int)
TEXT ·quantizeBFloat16AVX2(SB), NOSPLIT, $0-32
	QUANTIZE(LOAD_BFLOAT16, 64)

#define DEQUANTIZE_CONSTANTS \
	BROADCAST(0xbfffbfff, X15, Y15) \ // all but the second bit of float16
	BROADCAST(0x3ff00000, X14, Y14) \ // 1.875, which NaN has before it is scaled
	BROADCAST(0x7fc00000, X13, Y13) \
	BROADCAST(0x7fff, X12, Y12)     \
	BROADCAST(1, X11, Y11)          \
	BROADCAST(0x7fffffff, X10, Y10)

// DECODE turns 8 halves into float32. Y6 and Y7 are changed.
#define DECODE(half, a) \
	VCVTPH2PS half, a           \
	VPAND     Y10, a, Y6        \
	VPCMPEQD  Y14, Y6, Y6       \
	VMULPS    Y8, a, a          \
	VMULPS    Y9, a, a          \
	VPBLENDVB Y6, Y13, a, a

// DEQUANTIZE is the loop. A code is a float16 with another bias after some shifts. The scale is applied as two factors,
// the product of which may be no float32. STORE writes Y0 to Y3.
#define DEQUANTIZE(STORE, BYTES) \
	ARGUMENTS                       \
	DEQUANTIZE_CONSTANTS            \
	                                \
next:                               \
	MOVBLZX      (DX), AX           \
	CMPL         AX, $255           \
	JEQ          notNumbers         \
	MOVL         AX, BX             \
	SHRL         $1, BX             \
	SUBL         BX, AX             \
	ADDL         $67, BX            \
	ADDL         $68, AX            \
	SHLL         $23, BX            \
	SHLL         $23, AX            \
	VMOVD        BX, X8             \
	VMOVD        AX, X9             \
	VPBROADCASTD X8, Y8             \
	VPBROADCASTD X9, Y9             \
	VPMOVSXBW    (DI), Y0           \
	VPMOVSXBW    16(DI), Y2         \
	VPSLLW       $7, Y0, Y0         \
	VPSLLW       $7, Y2, Y2         \
	VPAND        Y15, Y0, Y0        \
	VPAND        Y15, Y2, Y2        \
	VEXTRACTI128 $1, Y0, X1         \
	VEXTRACTI128 $1, Y2, X3         \
	DECODE(X0, Y0)                  \
	DECODE(X1, Y1)                  \
	DECODE(X2, Y2)                  \
	DECODE(X3, Y3)                  \
	                                \
store:                              \
	STORE                           \
	ADDQ         $BYTES, SI         \
	ADDQ         $32, DI            \
	INCQ         DX                 \
	DECQ         CX                 \
	JNE          next               \
	VZEROUPPER                      \
	RET                             \
	                                \
notNumbers:                         \
	VMOVDQA      Y13, Y0            \
	VMOVDQA      Y13, Y1            \
	VMOVDQA      Y13, Y2            \
	VMOVDQA      Y13, Y3            \
	JMP          store

#define STORE_FLOAT32 \
	VMOVUPS Y0, (SI)   \
	VMOVUPS Y1, 32(SI) \
	VMOVUPS Y2, 64(SI) \
	VMOVUPS Y3, 96(SI)

// TO_BFLOAT16 rounds a to 16 bits in each lane. The NaN above has none of the bits that go, and is kept. Y4 is changed.
#define TO_BFLOAT16(a) \
	VPSRLD $16, a, Y4   \
	VPAND  Y11, Y4, Y4  \
	VPADDD Y12, Y4, Y4  \
	VPADDD a, Y4, a     \
	VPSRLD $16, a, a

#define STORE_BFLOAT16 \
	TO_BFLOAT16(Y0)         \
	TO_BFLOAT16(Y1)         \
	TO_BFLOAT16(Y2)         \
	TO_BFLOAT16(Y3)         \
	VPACKUSDW Y1, Y0, Y0    \
	VPACKUSDW Y3, Y2, Y2    \
	VPERMQ    $0xd8, Y0, Y0 \
	VPERMQ    $0xd8, Y2, Y2 \
	VMOVDQU   Y0, (SI)      \
	VMOVDQU   Y2, 32(SI)

// func dequantizeFloat32AVX2(values, codes, scales unsafe.Pointer, n int)
TEXT ·dequantizeFloat32AVX2(SB), NOSPLIT, $0-32
	DEQUANTIZE(STORE_FLOAT32, 128)

// func dequantizeBFloat16AVX2(values, codes, scales unsafe.Pointer, n int)
TEXT ·dequantizeBFloat16AVX2(SB), NOSPLIT, $0-32
	DEQUANTIZE(STORE_BFLOAT16, 64)
