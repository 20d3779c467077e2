//go:build !race

#include "textflag.h"

// Each loop has the form func(values, codes, scales unsafe.Pointer, n int), where n is above 0.

#define ARGUMENTS \
	MOVQ values+0(FP), SI  \
	MOVQ codes+8(FP), DI   \
	MOVQ scales+16(FP), DX \
	MOVQ n+24(FP), CX

// BROADCAST fills a register with a number of 32 bits.
#define BROADCAST(number, register) \
	MOVL         $number, AX  \
	VPBROADCASTD AX, register

#define QUANTIZE_CONSTANTS \
	BROADCAST(0x7fffffff, Z31) \ // all but the sign
	BROADCAST(0x7f800000, Z30) \ // infinity
	BROADCAST(0x3c800000, Z29) \ // 2^-6, the least normal element
	BROADCAST(0x46800000, Z28) \ // 2^14, where numbers are multiples of the least element
	BROADCAST(0xc407ffff, Z27) \ // half of the lowest bit of an element, and the exponents' other bias
	BROADCAST(1, Z26)          \
	BROADCAST(0x80, Z25)       \ // the sign of an element
	BROADCAST(0x7f, Z24)       \ // NaN
	BROADCAST(0x43e00000, Z23) \ // 448
	BROADCAST(0x7fffff, Z22)   \ // all of the fraction
	BROADCAST(254, Z21)

// ENCODE rounds a, times the factor in Z4, to the codes in the lowest bytes of b. a, c and K1 are changed.
#define ENCODE(a, b, c) \
	VMULPS     Z4, a, a          \
	VPANDD     Z31, a, c         \
	VPSRLD     $24, a, a         \
	VPSRLD     $20, c, b         \
	VPANDD     Z26, b, b         \
	VPADDD     Z27, b, b         \
	VPADDD     c, b, b           \
	VPSRLD     $20, b, b         \
	VPCMPUD    $1, Z29, c, K1    \
	VADDPS     Z28, c, K1, b     \
	VPTERNLOGD $0xf8, Z25, a, b

// NOT_A_NUMBER leaves the codes of a in the lowest bytes of b, in a block with a NaN or an infinity.
#define NOT_A_NUMBER(a, b) \
	VPANDD      Z31, a, a      \
	VPCMPUD     $5, Z30, a, K1 \
	VMOVDQA32.Z Z24, K1, b

// QUANTIZE is the loop. LOAD gets the values of a block as float32 in Z0 and Z1. The largest of the block decides the
// scale, as in the form in Go.
#define QUANTIZE(LOAD, BYTES) \
	ARGUMENTS                   \
	QUANTIZE_CONSTANTS          \
	                            \
next:                           \
	LOAD                        \
	VPANDD        Z31, Z0, Z2   \
	VPANDD        Z31, Z1, Z3   \
	VPMAXUD       Z2, Z3, Z2    \
	VEXTRACTI64X4 $1, Z2, Y3    \
	VPMAXUD       Y2, Y3, Y2    \
	VEXTRACTI128  $1, Y2, X3    \
	VPMAXUD       X2, X3, X2    \
	VPSHUFD       $0x4e, X2, X3 \
	VPMAXUD       X2, X3, X2    \
	VPSHUFD       $0xb1, X2, X3 \
	VPMAXUD       X2, X3, X2    \
	VMOVD         X2, AX        \
	CMPL          AX, $0x7f800000 \
	JCC           notNumbers    \
	VDIVSS        X23, X2, X2   \
	VPADDD        X22, X2, X2   \
	VPSRLD        $23, X2, X2   \
	VPEXTRB       $0, X2, (DX)  \
	VPSUBD        X2, X21, X2   \
	VPSLLD        $23, X2, X2   \
	VPBROADCASTD  X2, Z4        \
	ENCODE(Z0, Z5, Z6)          \
	ENCODE(Z1, Z7, Z8)          \
	                            \
store:                          \
	VPMOVDB       Z5, (DI)      \
	VPMOVDB       Z7, 16(DI)    \
	ADDQ          $BYTES, SI    \
	ADDQ          $32, DI       \
	INCQ          DX            \
	DECQ          CX            \
	JNE           next          \
	VZEROUPPER                  \
	RET                         \
	                            \
notNumbers:                     \
	MOVB          $255, (DX)    \
	NOT_A_NUMBER(Z0, Z5)        \
	NOT_A_NUMBER(Z1, Z7)        \
	JMP           store

#define LOAD_FLOAT32 \
	VMOVUPS (SI), Z0   \
	VMOVUPS 64(SI), Z1

#define LOAD_BFLOAT16 \
	VPMOVZXWD (SI), Z0    \
	VPMOVZXWD 32(SI), Z1  \
	VPSLLD    $16, Z0, Z0 \
	VPSLLD    $16, Z1, Z1

// func quantizeFloat32AVX512(values, codes, scales unsafe.Pointer, n int)
TEXT ·quantizeFloat32AVX512(SB), NOSPLIT, $0-32
	QUANTIZE(LOAD_FLOAT32, 128)

// func quantizeBFloat16AVX512(values, codes, scales unsafe.Pointer, n int)
TEXT ·quantizeBFloat16AVX512(SB), NOSPLIT, $0-32
	QUANTIZE(LOAD_BFLOAT16, 64)

#define DEQUANTIZE_CONSTANTS \
	BROADCAST(0xbfffbfff, Z31) \ // all but the second bit of float16
	BROADCAST(0x7f7f7f7f, Z30) \ // NaN
	BROADCAST(0x7fc00000, Z29) \
	BROADCAST(0x7fff, Z28)     \
	BROADCAST(1, Z27)

// DEQUANTIZE is the loop. A code is a float16 with another bias after some shifts. The scale is applied as two factors,
// the product of which may be no float32. STORE writes Z0 and Z1.
#define DEQUANTIZE(STORE, BYTES) \
	ARGUMENTS                         \
	DEQUANTIZE_CONSTANTS              \
	                                  \
next:                                 \
	MOVBLZX       (DX), AX            \
	CMPL          AX, $255            \
	JEQ           notNumbers          \
	MOVL          AX, BX              \
	SHRL          $1, BX              \
	SUBL          BX, AX              \
	ADDL          $67, BX             \
	ADDL          $68, AX             \
	SHLL          $23, BX             \
	SHLL          $23, AX             \
	VPBROADCASTD  BX, Z4              \
	VPBROADCASTD  AX, Z5              \
	VMOVDQU       (DI), Y2            \
	VPANDD        Y30, Y2, Y3         \
	VPCMPEQB      Y30, Y3, K1         \
	KSHIFTRD      $16, K1, K2         \
	VPMOVSXBW     Y2, Z2              \
	VPSLLW        $7, Z2, Z2          \
	VPANDD        Z31, Z2, Z2         \
	VEXTRACTI64X4 $1, Z2, Y3          \
	VCVTPH2PS     Y2, Z0              \
	VCVTPH2PS     Y3, Z1              \
	VMULPS        Z4, Z0, Z0          \
	VMULPS        Z4, Z1, Z1          \
	VMULPS        Z5, Z0, Z0          \
	VMULPS        Z5, Z1, Z1          \
	VMOVDQA32     Z29, K1, Z0         \
	VMOVDQA32     Z29, K2, Z1         \
	                                  \
store:                                \
	STORE                             \
	ADDQ          $BYTES, SI          \
	ADDQ          $32, DI             \
	INCQ          DX                  \
	DECQ          CX                  \
	JNE           next                \
	VZEROUPPER                        \
	RET                               \
	                                  \
notNumbers:                           \
	VMOVDQA32     Z29, Z0             \
	VMOVDQA32     Z29, Z1             \
	JMP           store

#define STORE_FLOAT32 \
	VMOVUPS Z0, (SI)   \
	VMOVUPS Z1, 64(SI)

// TO_BFLOAT16 rounds a to 16 bits in each lane. The NaN above has none of the bits that go, and is kept. b is changed.
#define TO_BFLOAT16(a, b) \
	VPSRLD $16, a, b \
	VPANDD Z27, b, b \
	VPADDD Z28, b, b \
	VPADDD a, b, a   \
	VPSRLD $16, a, a

#define STORE_BFLOAT16 \
	TO_BFLOAT16(Z0, Z2) \
	TO_BFLOAT16(Z1, Z3) \
	VPMOVDW Z0, (SI)    \
	VPMOVDW Z1, 32(SI)

// func dequantizeFloat32AVX512(values, codes, scales unsafe.Pointer, n int)
TEXT ·dequantizeFloat32AVX512(SB), NOSPLIT, $0-32
	DEQUANTIZE(STORE_FLOAT32, 128)

// func dequantizeBFloat16AVX512(values, codes, scales unsafe.Pointer, n int)
TEXT ·dequantizeBFloat16AVX512(SB), NOSPLIT, $0-32
	DEQUANTIZE(STORE_BFLOAT16, 64)
