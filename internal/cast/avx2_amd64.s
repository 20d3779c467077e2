//go:build !race

#include "textflag.h"

// Each loop has the form func(to, from unsafe.Pointer, n int), where n is a multiple of 16. A loop whose name begins
// with past writes past the caches, to lines of 64 bytes, and its n is a multiple of 32.

#define ARGUMENTS \
	MOVQ to+0(FP), DI   \
	MOVQ from+8(FP), SI \
	MOVQ n+16(FP), CX

// LOOP works on 16 elements at a time. LAST is for its end: after stores past the caches SFENCE, so that the stores that
// follow become visible after them.
#define LOOP(OF, FROM, TO, LAST) \
	ARGUMENTS      \
	               \
next:              \
	SUBQ $16, CX   \
	JL   done      \
	OF             \
	ADDQ $FROM, SI \
	ADDQ $TO, DI   \
	JMP  next      \
	               \
done:              \
	LAST           \
	VZEROUPPER     \
	RET

// BROADCAST fills a register with a number of 32 bits. x is its lower half.
#define BROADCAST(number, x, register) \
	MOVL         $number, AX \
	MOVD         AX, x       \
	VPBROADCASTD x, register

#define BFLOAT16_CONSTANTS \
	BROADCAST(0x7fff, X15, Y15) \
	BROADCAST(1, X14, Y14)      \
	BROADCAST(0x40, X13, Y13)

// TO_BFLOAT16 rounds a, and leaves 16 bits in each lane. b and c are changed.
#define TO_BFLOAT16(a, b, c) \
	VPSRLD    $16, a, b    \
	VPAND     Y14, b, c    \
	VPADDD    Y15, c, c    \
	VPOR      Y13, b, b    \
	VPADDD    a, c, c      \
	VCMPPS    $3, a, a, a  \
	VPSRLD    $16, c, c    \
	VPBLENDVB a, b, c, a

// ROUND is TO_BFLOAT16 of numbers.
#define ROUND(a, b) \
	VPSRLD $16, a, b \
	VPAND  Y14, b, b \
	VPADDD Y15, a, a \
	VPADDD b, a, a   \
	VPSRLD $16, a, a

// TO_BFLOAT16S rounds Y0 and Y1 to Y0. It looks once whether all of them are numbers.
#define TO_BFLOAT16S \
	VCMPPS    $3, Y0, Y1, Y6 \
	VPTEST    Y6, Y6         \
	JEQ       numbers        \
	TO_BFLOAT16(Y0, Y2, Y3)  \
	TO_BFLOAT16(Y1, Y4, Y5)  \
	JMP       pack           \
	                         \
numbers:                     \
	ROUND(Y0, Y2)            \
	ROUND(Y1, Y4)            \
	                         \
pack:                        \
	VPACKUSDW Y1, Y0, Y0     \
	VPERMQ    $0xd8, Y0, Y0

#define LOAD \
	VMOVUPS (SI), Y0   \
	VMOVUPS 32(SI), Y1

#define STORE \
	VMOVUPS Y0, (DI)   \
	VMOVUPS Y1, 32(DI)

#define STORE_PAST \
	VMOVNTDQ Y0, (DI)   \
	VMOVNTDQ Y1, 32(DI)

#define ENCODE_BFLOAT16 \
	LOAD              \
	TO_BFLOAT16S      \
	VMOVUPS Y0, (DI)

#define PAST_ENCODE_BFLOAT16 \
	LOAD               \
	TO_BFLOAT16S       \
	VMOVNTDQ Y0, (DI)

#define OF_BFLOAT16 \
	VPMOVZXWD (SI), Y0    \
	VPMOVZXWD 16(SI), Y1  \
	VPSLLD    $16, Y0, Y0 \
	VPSLLD    $16, Y1, Y1

#define DECODE_BFLOAT16 \
	OF_BFLOAT16 \
	STORE

#define PAST_DECODE_BFLOAT16 \
	OF_BFLOAT16 \
	STORE_PAST

#define ENCODE_FLOAT16 \
	LOAD                     \
	VCVTPS2PH $0, Y0, (DI)   \
	VCVTPS2PH $0, Y1, 16(DI)

#define PAST_ENCODE_FLOAT16 \
	LOAD                          \
	VCVTPS2PH   $0, Y0, X0        \
	VCVTPS2PH   $0, Y1, X1        \
	VINSERTI128 $1, X1, Y0, Y0    \
	VMOVNTDQ    Y0, (DI)

#define OF_FLOAT16 \
	VCVTPH2PS (SI), Y0   \
	VCVTPH2PS 16(SI), Y1

#define DECODE_FLOAT16 \
	OF_FLOAT16 \
	STORE

#define PAST_DECODE_FLOAT16 \
	OF_FLOAT16 \
	STORE_PAST

// func encodeBFloat16AVX2(to, from unsafe.Pointer, n int)
TEXT ·encodeBFloat16AVX2(SB), NOSPLIT, $0-24
	BFLOAT16_CONSTANTS
	LOOP(ENCODE_BFLOAT16, 64, 32, NOP)

// func pastEncodeBFloat16AVX2(to, from unsafe.Pointer, n int)
TEXT ·pastEncodeBFloat16AVX2(SB), NOSPLIT, $0-24
	BFLOAT16_CONSTANTS
	LOOP(PAST_ENCODE_BFLOAT16, 64, 32, SFENCE)

// func decodeBFloat16AVX2(to, from unsafe.Pointer, n int)
TEXT ·decodeBFloat16AVX2(SB), NOSPLIT, $0-24
	LOOP(DECODE_BFLOAT16, 32, 64, NOP)

// func pastDecodeBFloat16AVX2(to, from unsafe.Pointer, n int)
TEXT ·pastDecodeBFloat16AVX2(SB), NOSPLIT, $0-24
	LOOP(PAST_DECODE_BFLOAT16, 32, 64, SFENCE)

// func encodeFloat16AVX2(to, from unsafe.Pointer, n int)
TEXT ·encodeFloat16AVX2(SB), NOSPLIT, $0-24
	LOOP(ENCODE_FLOAT16, 64, 32, NOP)

// func pastEncodeFloat16AVX2(to, from unsafe.Pointer, n int)
TEXT ·pastEncodeFloat16AVX2(SB), NOSPLIT, $0-24
	LOOP(PAST_ENCODE_FLOAT16, 64, 32, SFENCE)

// func decodeFloat16AVX2(to, from unsafe.Pointer, n int)
TEXT ·decodeFloat16AVX2(SB), NOSPLIT, $0-24
	LOOP(DECODE_FLOAT16, 32, 64, NOP)

// func pastDecodeFloat16AVX2(to, from unsafe.Pointer, n int)
TEXT ·pastDecodeFloat16AVX2(SB), NOSPLIT, $0-24
	LOOP(PAST_DECODE_FLOAT16, 32, 64, SFENCE)

// MERGE merges 16 elements of float32. OF computes its first register, which has the destination, and its second one,
// which has the source. It may change the third one.
#define MERGE(OF) \
	VMOVUPS (DI), Y0   \
	VMOVUPS 32(DI), Y1 \
	VMOVUPS (SI), Y2   \
	VMOVUPS 32(SI), Y3 \
	OF(Y0, Y2, Y4)     \
	OF(Y1, Y3, Y5)     \
	STORE

#define SUM(x, y, z) VADDPS y, x, x

#define PRODUCT(x, y, z) VMULPS y, x, x

// The instruction returns its first operand for a NaN and for two zeros. A NaN of the source takes its place.
#define MAXIMUM(x, y, z) \
	VMAXPS    x, y, x     \
	VCMPPS    $3, y, y, z \
	VBLENDVPS z, y, x, x

#define MINIMUM(x, y, z) \
	VMINPS    x, y, x     \
	VCMPPS    $3, y, y, z \
	VBLENDVPS z, y, x, x

// func sumAVX2(to, from unsafe.Pointer, n int)
TEXT ·sumAVX2(SB), NOSPLIT, $0-24
	LOOP(MERGE(SUM), 64, 64, NOP)

// func productAVX2(to, from unsafe.Pointer, n int)
TEXT ·productAVX2(SB), NOSPLIT, $0-24
	LOOP(MERGE(PRODUCT), 64, 64, NOP)

// func maximumAVX2(to, from unsafe.Pointer, n int)
TEXT ·maximumAVX2(SB), NOSPLIT, $0-24
	LOOP(MERGE(MAXIMUM), 64, 64, NOP)

// func minimumAVX2(to, from unsafe.Pointer, n int)
TEXT ·minimumAVX2(SB), NOSPLIT, $0-24
	LOOP(MERGE(MINIMUM), 64, 64, NOP)

#define SUM_BFLOAT16 \
	VPMOVZXWD (DI), Y0    \
	VPMOVZXWD 16(DI), Y1  \
	VPMOVZXWD (SI), Y2    \
	VPMOVZXWD 16(SI), Y3  \
	VPSLLD    $16, Y0, Y0 \
	VPSLLD    $16, Y1, Y1 \
	VPSLLD    $16, Y2, Y2 \
	VPSLLD    $16, Y3, Y3 \
	VADDPS    Y2, Y0, Y0  \
	VADDPS    Y3, Y1, Y1  \
	TO_BFLOAT16S          \
	VMOVUPS   Y0, (DI)

// func sumBFloat16AVX2(to, from unsafe.Pointer, n int)
TEXT ·sumBFloat16AVX2(SB), NOSPLIT, $0-24
	BFLOAT16_CONSTANTS
	LOOP(SUM_BFLOAT16, 32, 32, NOP)
