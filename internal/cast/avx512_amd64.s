//go:build !race

#include "textflag.h"

// Each loop has the form func(to, from unsafe.Pointer, n int). It works on 32 elements at a time, then on 16, and the
// rest with a mask. Unaligned loads and stores are as quick as aligned ones within a line of the cache.

#define ARGUMENTS \
	MOVQ to+0(FP), DI   \
	MOVQ from+8(FP), SI \
	MOVQ n+16(FP), CX

// MASK sets the lowest CX bits of K1. CX is below 16.
#define MASK \
	MOVL  $1, AX     \
	SHLXL CX, AX, AX \
	DECL  AX         \
	KMOVW AX, K1

// BROADCAST fills a register with a number of 32 bits.
#define BROADCAST(number, register) \
	MOVL         $number, AX  \
	VPBROADCASTD AX, register

// TO_BFLOAT16 rounds a, and leaves 16 bits in each lane. b, c and K2 are changed. Z31 has 0x7fff, Z30 has 1 and Z29 the
// bit of a quiet NaN.
#define TO_BFLOAT16(a, b, c) \
	VPSRLD $16, a, b       \
	VPANDD Z30, b, c       \
	VPADDD Z31, a, Z28     \
	VCMPPS $3, a, a, K2    \
	VPADDD Z28, c, a       \
	VPSRLD $16, a, a       \
	VPORD  Z29, b, K2, a

// func encodeBFloat16AVX512(to, from unsafe.Pointer, n int)
TEXT ·encodeBFloat16AVX512(SB), NOSPLIT, $0-24
	ARGUMENTS
	BROADCAST(0x7fff, Z31)
	BROADCAST(1, Z30)
	BROADCAST(0x40, Z29)

two:
	SUBQ      $32, CX
	JL        one
	VMOVDQU32 (SI), Z0
	VMOVDQU32 64(SI), Z1
	TO_BFLOAT16(Z0, Z2, Z3)
	TO_BFLOAT16(Z1, Z4, Z5)
	VPMOVDW   Z0, (DI)
	VPMOVDW   Z1, 32(DI)
	ADDQ      $128, SI
	ADDQ      $64, DI
	JMP       two

one:
	ADDQ      $16, CX
	JL        rest
	VMOVDQU32 (SI), Z0
	TO_BFLOAT16(Z0, Z2, Z3)
	VPMOVDW   Z0, (DI)
	ADDQ      $64, SI
	ADDQ      $32, DI
	SUBQ      $16, CX

rest:
	ADDQ        $16, CX
	MASK
	VMOVDQU32.Z (SI), K1, Z0
	TO_BFLOAT16(Z0, Z2, Z3)
	VPMOVDW     Z0, K1, (DI)
	VZEROUPPER
	RET

// func decodeBFloat16AVX512(to, from unsafe.Pointer, n int)
TEXT ·decodeBFloat16AVX512(SB), NOSPLIT, $0-24
	ARGUMENTS

two:
	SUBQ      $32, CX
	JL        one
	VPMOVZXWD (SI), Z0
	VPMOVZXWD 32(SI), Z1
	VPSLLD    $16, Z0, Z0
	VPSLLD    $16, Z1, Z1
	VMOVDQU32 Z0, (DI)
	VMOVDQU32 Z1, 64(DI)
	ADDQ      $64, SI
	ADDQ      $128, DI
	JMP       two

one:
	ADDQ      $16, CX
	JL        rest
	VPMOVZXWD (SI), Z0
	VPSLLD    $16, Z0, Z0
	VMOVDQU32 Z0, (DI)
	ADDQ      $32, SI
	ADDQ      $64, DI
	SUBQ      $16, CX

rest:
	ADDQ        $16, CX
	MASK
	VPMOVZXWD.Z (SI), K1, Z0
	VPSLLD      $16, Z0, Z0
	VMOVDQU32   Z0, K1, (DI)
	VZEROUPPER
	RET

// func encodeFloat16AVX512(to, from unsafe.Pointer, n int)
TEXT ·encodeFloat16AVX512(SB), NOSPLIT, $0-24
	ARGUMENTS

two:
	SUBQ      $32, CX
	JL        one
	VMOVDQU32 (SI), Z0
	VMOVDQU32 64(SI), Z1
	VCVTPS2PH $0, Z0, (DI)
	VCVTPS2PH $0, Z1, 32(DI)
	ADDQ      $128, SI
	ADDQ      $64, DI
	JMP       two

one:
	ADDQ      $16, CX
	JL        rest
	VMOVDQU32 (SI), Z0
	VCVTPS2PH $0, Z0, (DI)
	ADDQ      $64, SI
	ADDQ      $32, DI
	SUBQ      $16, CX

rest:
	ADDQ        $16, CX
	MASK
	VMOVDQU32.Z (SI), K1, Z0
	VCVTPS2PH   $0, Z0, K1, (DI)
	VZEROUPPER
	RET

// func decodeFloat16AVX512(to, from unsafe.Pointer, n int)
TEXT ·decodeFloat16AVX512(SB), NOSPLIT, $0-24
	ARGUMENTS

two:
	SUBQ      $32, CX
	JL        one
	VCVTPH2PS (SI), Z0
	VCVTPH2PS 32(SI), Z1
	VMOVDQU32 Z0, (DI)
	VMOVDQU32 Z1, 64(DI)
	ADDQ      $64, SI
	ADDQ      $128, DI
	JMP       two

one:
	ADDQ      $16, CX
	JL        rest
	VCVTPH2PS (SI), Z0
	VMOVDQU32 Z0, (DI)
	ADDQ      $32, SI
	ADDQ      $64, DI
	SUBQ      $16, CX

rest:
	ADDQ        $16, CX
	MASK
	VCVTPH2PS.Z (SI), K1, Z0
	VMOVDQU32   Z0, K1, (DI)
	VZEROUPPER
	RET

// MERGE is a loop over float32. OF computes Z0 of the destination in Z0 and the source in Z1.
#define MERGE(OF) \
	ARGUMENTS                     \
	                              \
next:                             \
	SUBQ        $16, CX           \
	JL          rest              \
	VMOVUPS     (DI), Z0          \
	VMOVUPS     (SI), Z1          \
	OF                            \
	VMOVUPS     Z0, (DI)          \
	ADDQ        $64, SI           \
	ADDQ        $64, DI           \
	JMP         next              \
	                              \
rest:                             \
	ADDQ        $16, CX           \
	MASK                          \
	VMOVUPS.Z   (DI), K1, Z0      \
	VMOVUPS.Z   (SI), K1, Z1      \
	OF                            \
	VMOVUPS     Z0, K1, (DI)      \
	VZEROUPPER                    \
	RET

#define SUM VADDPS Z1, Z0, Z0

#define PRODUCT VMULPS Z1, Z0, Z0

// The instruction returns its first operand for a NaN and for two zeros. A NaN of the source takes its place.
#define MAXIMUM \
	VMAXPS  Z0, Z1, Z0    \
	VCMPPS  $3, Z1, Z1, K2 \
	VMOVAPS Z1, K2, Z0

#define MINIMUM \
	VMINPS  Z0, Z1, Z0    \
	VCMPPS  $3, Z1, Z1, K2 \
	VMOVAPS Z1, K2, Z0

// func sumAVX512(to, from unsafe.Pointer, n int)
TEXT ·sumAVX512(SB), NOSPLIT, $0-24
	MERGE(SUM)

// func productAVX512(to, from unsafe.Pointer, n int)
TEXT ·productAVX512(SB), NOSPLIT, $0-24
	MERGE(PRODUCT)

// func maximumAVX512(to, from unsafe.Pointer, n int)
TEXT ·maximumAVX512(SB), NOSPLIT, $0-24
	MERGE(MAXIMUM)

// func minimumAVX512(to, from unsafe.Pointer, n int)
TEXT ·minimumAVX512(SB), NOSPLIT, $0-24
	MERGE(MINIMUM)

// func sumBFloat16AVX512(to, from unsafe.Pointer, n int)
TEXT ·sumBFloat16AVX512(SB), NOSPLIT, $0-24
	ARGUMENTS
	BROADCAST(0x7fff, Z31)
	BROADCAST(1, Z30)
	BROADCAST(0x40, Z29)

next:
	SUBQ      $16, CX
	JL        rest
	VPMOVZXWD (DI), Z0
	VPMOVZXWD (SI), Z1
	VPSLLD    $16, Z0, Z0
	VPSLLD    $16, Z1, Z1
	VADDPS    Z1, Z0, Z0
	TO_BFLOAT16(Z0, Z2, Z3)
	VPMOVDW   Z0, (DI)
	ADDQ      $32, SI
	ADDQ      $32, DI
	JMP       next

rest:
	ADDQ        $16, CX
	MASK
	VPMOVZXWD.Z (DI), K1, Z0
	VPMOVZXWD.Z (SI), K1, Z1
	VPSLLD      $16, Z0, Z0
	VPSLLD      $16, Z1, Z1
	VADDPS      Z1, Z0, Z0
	TO_BFLOAT16(Z0, Z2, Z3)
	VPMOVDW     Z0, K1, (DI)
	VZEROUPPER
	RET

// PAST is a loop that writes past the caches, in lines of 64 bytes. OF converts 32 elements. The stores that follow
// become visible after all of it.
#define PAST(OF, FROM, TO) \
	ARGUMENTS       \
	                \
next:               \
	SUBQ $32, CX    \
	JL   done       \
	OF              \
	ADDQ $FROM, SI  \
	ADDQ $TO, DI    \
	JMP  next       \
	                \
done:               \
	SFENCE          \
	VZEROUPPER      \
	RET

#define PAST_LINES \
	VMOVNTDQ Z0, (DI)   \
	VMOVNTDQ Z1, 64(DI)

#define PAST_LINE \
	VINSERTI64X4 $1, Y1, Z0, Z0 \
	VMOVNTDQ     Z0, (DI)

#define ENCODE_BFLOAT16 \
	VMOVDQU32 (SI), Z0      \
	VMOVDQU32 64(SI), Z1    \
	TO_BFLOAT16(Z0, Z2, Z3) \
	TO_BFLOAT16(Z1, Z4, Z5) \
	VPMOVDW   Z0, Y0        \
	VPMOVDW   Z1, Y1        \
	PAST_LINE

#define DECODE_BFLOAT16 \
	VPMOVZXWD (SI), Z0   \
	VPMOVZXWD 32(SI), Z1 \
	VPSLLD    $16, Z0, Z0 \
	VPSLLD    $16, Z1, Z1 \
	PAST_LINES

#define ENCODE_FLOAT16 \
	VMOVDQU32 (SI), Z0   \
	VMOVDQU32 64(SI), Z1 \
	VCVTPS2PH $0, Z0, Y0 \
	VCVTPS2PH $0, Z1, Y1 \
	PAST_LINE

#define DECODE_FLOAT16 \
	VCVTPH2PS (SI), Z0   \
	VCVTPH2PS 32(SI), Z1 \
	PAST_LINES

// func pastEncodeBFloat16AVX512(to, from unsafe.Pointer, n int)
TEXT ·pastEncodeBFloat16AVX512(SB), NOSPLIT, $0-24
	BROADCAST(0x7fff, Z31)
	BROADCAST(1, Z30)
	BROADCAST(0x40, Z29)
	PAST(ENCODE_BFLOAT16, 128, 64)

// func pastDecodeBFloat16AVX512(to, from unsafe.Pointer, n int)
TEXT ·pastDecodeBFloat16AVX512(SB), NOSPLIT, $0-24
	PAST(DECODE_BFLOAT16, 64, 128)

// func pastEncodeFloat16AVX512(to, from unsafe.Pointer, n int)
TEXT ·pastEncodeFloat16AVX512(SB), NOSPLIT, $0-24
	PAST(ENCODE_FLOAT16, 128, 64)

// func pastDecodeFloat16AVX512(to, from unsafe.Pointer, n int)
TEXT ·pastDecodeFloat16AVX512(SB), NOSPLIT, $0-24
	PAST(DECODE_FLOAT16, 64, 128)
