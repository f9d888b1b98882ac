#include "product.h"

#if HAVE_BF16_DOT
/* High and low byte of the bf16 value of each e4m3 code without its sign. */
static _Alignas(64) const uint8_t fp8_high[128] = {
	0x00, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c,
	0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d, 0x3d,
	0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e, 0x3e,
	0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f,
	0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40,
	0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41,
	0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42, 0x42,
	0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x43, 0x7f,
};
static _Alignas(64) const uint8_t fp8_low[128] = {
	0x00, 0x00, 0x80, 0xc0, 0x00, 0x20, 0x40, 0x60, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0,
	0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0,
	0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0,
	0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0,
	0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0,
	0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0,
	0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0,
	0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xc0,
};
/* 2^56 times the value of each e2m1 code in bf16, twice.  The scales of blocks come out at 2^-120 (expand_half_nvfp4), and
 * so a sum at 2^-64: far from both ends of fp32's range, and the two powers are taken out once a row. */
#define NVFP4_SUM_SCALE 0x1p64f
static _Alignas(64) const uint16_t e2m1_words[32] = {
	0, 0x5b00, 0x5b80, 0x5bc0, 0x5c00, 0x5c40, 0x5c80, 0x5cc0,
	0x8000, 0xdb00, 0xdb80, 0xdbc0, 0xdc00, 0xdc40, 0xdc80, 0xdcc0,
	0, 0x5b00, 0x5b80, 0x5bc0, 0x5c00, 0x5c40, 0x5c80, 0x5cc0,
	0x8000, 0xdb00, 0xdb80, 0xdbc0, 0xdc00, 0xdc40, 0xdc80, 0xdcc0,
};
#endif

#if HAVE_BF16_DOT
/* For byte b of each quadword the bit of the eight scales from which it takes 8: code i of quadword i starts at bit 8 i and
 * goes to bit 20 of both lanes. */
#define PLACE(i) 0, 0, (8 * (i) + 60) % 64, 8 * (i) + 4, 0, 0, (8 * (i) + 60) % 64, 8 * (i) + 4
static _Alignas(64) const uint8_t scale_place[64] = {
	PLACE(0), PLACE(1), PLACE(2), PLACE(3), PLACE(4), PLACE(5), PLACE(6), PLACE(7),
};
#undef PLACE
#endif

/* Formats without block scales. */
#define UNSCALED(expand, s, scales) ((void)(s), (void)(scales), expand)

ALWAYS const void *packed_row(const struct product *g, int t)
{
	return (const char *)g->x + (size_t)(g->index ? g->index[t] : t) * g->ldx;
}

/* Lanes are rows r, r + 1, ... of token row t. */
ALWAYS void finish_rows(const struct product *g, int r, int n, int t, vf v)
{
	v = v * vf_set1(g->scale);
	if (g->w->bias)
		v = v + vf_load_part(g->w->bias + r, n);
	if (g->round)
		v = vf_round_bf16(v);
	vf_store_part(g->y + (size_t)t * (size_t)g->ldy + r, v, n);
}

/* What finishing the tiles of four weight rows takes. */
struct tile_end {
	vf scale, bias;              /* bias: of the four rows, again and again */
	bool biased, round;
	int rows;                    /* of the four that are there */
};

ALWAYS struct tile_end tile_end(const struct product *g, int r, int rows)
{
	struct tile_end e = {vf_set1(g->scale), {0}, g->w->bias != NULL, g->round, rows};
	float bias[VW];

	for (int i = 0; e.biased && i < VW; i++)
		bias[i] = g->w->bias[r + min_int(i % 4, rows - 1)];
	if (e.biased)
		e.bias = vf_load(bias);
	return e;
}

/* acc[c * 4 + i]: token row c of those at y, row i. */
ALWAYS void finish_tile(const struct tile_end *e, float *y, size_t ldy, int tokens, const vf *acc)
{
#pragma GCC unroll 2
	for (int c = 0; c < TILE_TOKENS; c += VW / 4) {
		vf v = vf_sum_each(acc + c * 4) * e->scale;
		float out[VW];

		if (c >= tokens)
			break;
		if (e->biased)
			v = v + e->bias;
		if (e->round)
			v = vf_round_bf16(v);
		if (e->rows == 4) {
			vf_store_fours(y + (size_t)c * ldy, ldy, v, tokens - c);
			continue;
		}
		vf_store(out, v);
		for (int k = 0; k < VW / 4 && c + k < tokens; k++)
			memcpy(y + (size_t)(c + k) * ldy, out + 4 * k, (size_t)e->rows * sizeof(float));
	}
}

/* The weight rows of the next panel, into L2 while this one is worked on. */
ALWAYS void ask_for(const struct linear *w, int r, int rows, size_t ldw)
{
	const char *from = (const char *)w->weight + (size_t)r * ldw;

	for (size_t i = 0; i < (size_t)rows * ldw; i += 64)
		__builtin_prefetch(from + i, 0, 2);
}

/* ---- expansion to floats ---- */

ALWAYS void expand_f32(vf *w, const uint8_t *p)
{
	memcpy(w, p, sizeof(*w));
}

ALWAYS void expand_f16(vf *w, const uint8_t *p)
{
	uint16_t h[VW];

	memcpy(h, p, sizeof(h));
	*w = vf_load_f16(h);
}

/* A 32-bit lane holds an even column in its low half, the next odd one in its high half. */
ALWAYS void expand_bf16(vf *w, const uint8_t *p)
{
	vi pair;

	memcpy(&pair, p, sizeof(pair));
	w[0] = (vf)(pair << 16);
	w[1] = (vf)(pair & (int32_t)0xffff0000);
}

/* The code's exponent and mantissa bits at a float's place are the value times 2^-120, subnormals included. */
ALWAYS vf e4m3_value(vi code)
{
	vf magnitude = (vf)((code & 0x7f) << 20) * vf_set1(0x1p120f);

	return (vf)((vi)magnitude | (code & 0x80) << 24);
}

ALWAYS void expand_fp8(vf *w, const uint8_t *p)
{
	*w = e4m3_value(vi_load_u8(p));
}

/* Likewise: e2m1's bits at a float's place are the value times 2^-126. */
ALWAYS vf e2m1_value(vi code)
{
	vf magnitude = (vf)((code & 7) << 22) * vf_set1(0x1p126f);

	return (vf)((vi)magnitude | (code & 8) << 28);
}

/* VW bytes, two columns each: even columns, then odd ones. */
ALWAYS void expand_nibbles(vf *w, const uint8_t *p)
{
	vi code = vi_load_u8(p);

	w[0] = e2m1_value(code & 15);
	w[1] = e2m1_value((code >> 4) & 15);
}

/* At least one block of 16 columns, 8 bytes. */
ALWAYS void expand_nvfp4(vf *w, vf *s, const uint8_t *p, const uint8_t *scales)
{
	for (int i = 0; i < (VW < 8 ? 8 / VW : 1); i++)
		expand_nibbles(w + 2 * i, p + VW * i);
	*s = vf_set1(e4m3_table[scales[0]]);
#if VW == 16
	*s = vf_select((vi){0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1}, vf_set1(e4m3_table[scales[1]]), *s);
#endif
}

#define DOT(name) f32_##name
#define GEMV_ROWS 4
#define GEMV_AHEAD 8192
#define OPERAND vf
#define MUL_ADD(acc, w, x) vf_fma(w, x, acc)
#define P 1
#define S 0
#define UNIT VW
#define W_BYTES (4 * VW)
#define S_BYTES 0
#define EXPAND(w, s, weights, scales) UNSCALED(expand_f32(w, weights), s, scales)
#define PACKING PACKED_FLAT
#include "dot.inc.h"

#define DOT(name) f16_##name
#define GEMV_ROWS 4
#define GEMV_AHEAD 8192
#define OPERAND vf
#define MUL_ADD(acc, w, x) vf_fma(w, x, acc)
#define P 1
#define S 0
#define UNIT VW
#define W_BYTES (2 * VW)
#define S_BYTES 0
#define EXPAND(w, s, weights, scales) UNSCALED(expand_f16(w, weights), s, scales)
#define PACKING PACKED_FLAT
#include "dot.inc.h"

#define DOT(name) bf16_##name
#define GEMV_ROWS 4
#define GEMV_AHEAD 8192
#define OPERAND vf
#define MUL_ADD(acc, w, x) vf_fma(w, x, acc)
#define P 2
#define S 0
#define UNIT (2 * VW)
#define W_BYTES (4 * VW)
#define S_BYTES 0
#define EXPAND(w, s, weights, scales) UNSCALED(expand_bf16(w, weights), s, scales)
#define PACKING PACKED_PAIRS
#include "dot.inc.h"

#define DOT(name) fp8_##name
#define GEMV_ROWS 4
#define GEMV_AHEAD 8192
#define OPERAND vf
#define MUL_ADD(acc, w, x) vf_fma(w, x, acc)
#define P 1
#define S 0
#define UNIT VW
#define W_BYTES VW
#define S_BYTES 0
#define EXPAND(w, s, weights, scales) UNSCALED(expand_fp8(w, weights), s, scales)
#define PACKING PACKED_FLAT
#include "dot.inc.h"

#define DOT(name) nvfp4_##name
#define GEMV_ROWS 4
#define GEMV_AHEAD 8192
#define OPERAND vf
#define MUL_ADD(acc, w, x) vf_fma(w, x, acc)
#define P (VW < 8 ? 16 / VW : 2)
#define S 1
#define UNIT (VW < 8 ? 16 : 2 * VW)
#define W_BYTES (UNIT / 2)
#define S_BYTES (UNIT / 16)
#define EXPAND(w, s, weights, scales) expand_nvfp4(w, s, weights, scales)
#define PACKING PACKED_PAIRS
#include "dot.inc.h"

#if HAVE_BF16_DOT
/* ---- expansion to bf16 ---- */

/* The first n bytes at p, zeros after them; n = 64 where this is inlined for whole steps. */
ALWAYS __m512i load_bytes(const uint8_t *p, int n)
{
	return n == 64 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8(~0ull >> (64 - n), p);
}

ALWAYS void expand_half_bf16(vh *w, const uint8_t *p, int columns)
{
	*w = (vh)load_bytes(p, 2 * columns);
}

/* 64 codes.  High and low byte of the bf16 value are looked up by the code without its sign, then interleaved
 * within 128-bit lanes: w[0] has columns 0..7, 16..23, 32..39, 48..55, w[1] the others. */
ALWAYS void expand_half_fp8(vh *w, const uint8_t *p, int columns)
{
	__m512i code = load_bytes(p, columns);

	__asm__("" : "+v"(code));        /* one load: the look-ups may overwrite copies of a register */
	__m512i high = _mm512_permutex2var_epi8(_mm512_load_si512(fp8_high), code, _mm512_load_si512(fp8_high + 64));
	__m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(fp8_low), code, _mm512_load_si512(fp8_low + 64));

	high = _mm512_ternarylogic_epi32(high, code, _mm512_set1_epi8((char)0x80), 0xf8);    /* high | (code & sign) */
	w[0] = (vh)_mm512_unpacklo_epi8(low, high);
	w[1] = (vh)_mm512_unpackhi_epi8(low, high);
}

/* 64 bytes, 8 blocks of a quadword.  The table repeats after 16 codes and so looks at the lowest nibble of a word:
 * w[m] has columns m, m + 4, m + 8, ...  Every quadword gets all 8 scales and takes the bits of its own to a float's place
 * in both lanes, where they are the value times 2^-120, as in e4m3_value. */
ALWAYS void expand_half_nvfp4(vh *w, vf *s, const uint8_t *p, const uint8_t *scales, int columns)
{
	const __m512i table = _mm512_load_si512(e2m1_words), place = _mm512_load_si512(scale_place);
	__m512i codes = load_bytes(p, columns / 2), eight;

	if (columns == 128) {
		int64_t bits;

		memcpy(&bits, scales, sizeof(bits));
		eight = _mm512_set1_epi64(bits);
	} else {
		eight = _mm512_broadcastq_epi64(_mm_maskz_loadu_epi8((__mmask16)((1u << columns / 16) - 1), scales));
	}
	w[0] = (vh)_mm512_permutexvar_epi16(codes, table);
	w[1] = (vh)_mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4), table);
	w[2] = (vh)_mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 8), table);
	w[3] = (vh)_mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 12), table);
	*s = (vf)_mm512_and_si512(_mm512_multishift_epi64_epi8(place, eight), _mm512_set1_epi32(0x07f00000));
}

/* expand_half_nvfp4's step of 128 columns where there are 64: the lower half of every vector. */
ALWAYS vf half_step_nvfp4(vf acc, const uint8_t *p, const uint8_t *scales, const vh *x)
{
	const __m256i table = _mm256_load_si256((const __m256i *)e2m1_words), place = _mm256_load_si256((const __m256i *)scale_place);
	__m256i codes = _mm256_loadu_si256((const __m256i *)p), w;
	__m256 block = _mm256_setzero_ps(), s;
	int32_t four;

	memcpy(&four, scales, sizeof(four));
	s = (__m256)_mm256_and_si256(_mm256_multishift_epi64_epi8(place, _mm256_set1_epi32(four)), _mm256_set1_epi32(0x07f00000));
#pragma GCC unroll 4
	for (int m = 0; m < 4; m++) {
		w = _mm256_permutexvar_epi16(_mm256_srli_epi16(codes, 4 * m), table);
		block = _mm256_dpbf16_ps(block, (__m256bh)_mm512_castsi512_si256((__m512i)x[m]), (__m256bh)w);
	}
	return _mm512_insertf32x8(acc, _mm256_fmadd_ps(block, s, _mm512_castps512_ps256(acc)), 0);
}

#define DOT(name) half_bf16_##name
#define GEMV_ROWS 1
#define GEMV_AHEAD 0
#define OPERAND vh
#define MUL_ADD(acc, w, x) vh_dot(acc, x, w)
#define P 1
#define S 0
#define UNIT 32
#define W_BYTES 64
#define S_BYTES 0
#define EXPAND(w, s, weights, scales) UNSCALED(expand_half_bf16(w, weights, 32), s, scales)
#define EXPAND_TAIL(w, s, weights, scales, n) UNSCALED(expand_half_bf16(w, weights, n), s, scales)
#define PACKING PACKED_HALF
#include "dot.inc.h"

#define DOT(name) half_fp8_##name
#define GEMV_ROWS 1
#define GEMV_AHEAD 0
#define APART 1
#define OPERAND vh
#define MUL_ADD(acc, w, x) vh_dot(acc, x, w)
#define P 2
#define S 0
#define UNIT 64
#define W_BYTES 64
#define S_BYTES 0
#define EXPAND(w, s, weights, scales) UNSCALED(expand_half_fp8(w, weights, 64), s, scales)
#define EXPAND_TAIL(w, s, weights, scales, n) UNSCALED(expand_half_fp8(w, weights, n), s, scales)
#define PACKING PACKED_HALF_FP8
#include "dot.inc.h"

#define DOT(name) half_nvfp4_##name
#define GEMV_ROWS 4
#define GEMV_AHEAD 16384
#define OPERAND vh
#define MUL_ADD(acc, w, x) vh_dot(acc, x, w)
#define P 4
#define S 1
#define UNIT 128
#define W_BYTES 64
#define S_BYTES 8
#define SUM_SCALE NVFP4_SUM_SCALE
#define EXPAND(w, s, weights, scales) expand_half_nvfp4(w, s, weights, scales, 128)
#define EXPAND_TAIL(w, s, weights, scales, n) expand_half_nvfp4(w, s, weights, scales, n)
#define HALF_STEP(acc, weights, scales, x) half_step_nvfp4(acc, weights, scales, x)
#define PACKING PACKED_HALF_NVFP4
#include "dot.inc.h"
#endif

/* Activations that are bf16 values: all of them under compute: bf16, quantised ones always (e4m3, and e2m1
 * times e4m3, are exact in bf16). */
static const struct product_kernel *kernel_for(const struct device *dev, enum weight_format format, bool quantised)
{
#if HAVE_BF16_DOT
	if (dev->bf16 || quantised) {
		static const struct product_kernel *const half[N_WEIGHT_FORMATS] = {
			[WEIGHT_BF16] = &half_bf16_kernel, [WEIGHT_FP8] = &half_fp8_kernel,
			[WEIGHT_NVFP4] = &half_nvfp4_kernel,
		};

		if (half[format])
			return half[format];
	}
#endif
	static const struct product_kernel *const kernels[N_WEIGHT_FORMATS] = {
		[WEIGHT_BF16] = &bf16_kernel, [WEIGHT_F16] = &f16_kernel, [WEIGHT_F32] = &f32_kernel,
		[WEIGHT_FP8] = &fp8_kernel, [WEIGHT_NVFP4] = &nvfp4_kernel,
	};
	(void)dev;
	(void)quantised;
	return kernels[format];
}

void product_pick(struct product *p, const struct device *dev, const struct linear *w, enum numerics numerics)
{
	bool quantised = numerics == NUMERICS_W8A8 || numerics == NUMERICS_W4A4;

	p->w = w;
	p->kernel = kernel_for(dev, w->format, quantised);
	p->scale = (quantised ? w->scale * w->input_scale : w->scale) * p->kernel->sum_scale;
	p->round = dev->bf16;
	p->index = NULL;
}

void product_dense(struct product *p, struct linear *linear, const struct device *dev, const void *weight, int out, int in)
{
	*linear = (struct linear){.out = out, .in = in, .weight = weight, .scale = 1,
				  .format = product_dense_half(dev) ? WEIGHT_BF16 : WEIGHT_F32};
	product_pick(p, dev, linear, NUMERICS_BF16);
	p->round = false;
}

void product_block(const struct product *p, int r0, int r1, int t0, int t1, void *panel)
{
	if (t1 - t0 == 1)
		p->kernel->gemv(p, r0, r1, t0);
	else
		p->kernel->gemm(p, r0, r1, t0, t1, panel);
}

static size_t padded(int in)
{
	return ((size_t)in + 127) / 128 * 128;
}

size_t packed_bytes(int in)
{
	return padded(in) * sizeof(float);
}

/* Operands of four rows as floats, and scale vectors of VW floats for every 16 columns at most. */
size_t panel_bytes(int in)
{
	return 4 * padded(in) * sizeof(float) + 4 * padded(in) / 16 * sizeof(vf);
}
