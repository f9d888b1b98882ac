#include "product.h"

/* ---- activation quantisers: 4.2 and 4.5 in the fp32 order of quant.h, value for value ---- */

/* Adding and subtracting a number whose ulp is the wanted step rounds to that step, ties to even.  The step of
 * e4m3 is 2^-3 of the binade, at least 2^-9. */
ALWAYS vf e4m3_round_vf(vf x)
{
	vf a = vf_min(vf_set1(448), vf_abs(x));
	vi binade = (vi)vf_max(a, vf_set1(0x1p-6f)) & 0x7f800000;
	vf big = (vf)(binade + (20 << 23));
	vf r = (a + big) - big;

	return (vf)((vi)r | ((vi)x & INT32_MIN));
}

static void quantise_fp8(float *out, const float *x, int n, float input_scale)
{
	vf inverse = vf_set1(1 / input_scale);

	for (int i = 0; i < n; i += VW)
		vf_store_part(out + i, e4m3_round_vf(vf_load_part(x + i, n - i) * inverse), n - i);
}

static float e4m3_round_one(float x)
{
	return e4m3_round_vf(vf_set1(x))[0];
}

/* e2m1's step is half of the binade, at least 0.5. */
static float e2m1_round_one(float x)
{
	float a = x < 0 ? -x : x, step;

	a = a < 6 ? a : 6;
	step = a < 2 ? 0.5f : a < 4 ? 1 : 2;
	a = (a / step + 0x1.8p23f) - 0x1.8p23f;
	return x < 0 ? -a * step : a * step;
}

static void quantise_nvfp4(float *out, const float *x, int n, float input_scale)
{
	float g = 1 / input_scale, back = 1 / g;

	for (int i = 0; i < n; i += 16) {
		float top = 0, inverse = 0;

		for (int j = 0; j < 16; j++)
			top = __builtin_fabsf(x[i + j]) > top ? __builtin_fabsf(x[i + j]) : top;
		float scale = e4m3_round_one(g * (top * (1.f / 6)));

		if (scale != 0)
			inverse = 1 / (scale * back);
		for (int j = 0; j < 16; j++)
			out[i + j] = e2m1_round_one(x[i + j] * inverse) * scale;
	}
}

/* ---- layouts ---- */

static void pack_flat(float *to, const float *x, int n)
{
	int end = (n + VW - 1) / VW * VW;

	memcpy(to, x, (size_t)n * sizeof(float));
	memset(to + n, 0, (size_t)(end - n) * sizeof(float));
}

static void pack_pairs(float *to, const float *x, int n, int unit)
{
	int end = (n + unit - 1) / unit * unit, i = 0;

	for (; i + 2 * VW <= n; i += 2 * VW)
		for (int j = 0; j < VW; j++) {
			to[i + j] = x[i + 2 * j];
			to[i + VW + j] = x[i + 2 * j + 1];
		}
	for (; i < end; i += 2 * VW)
		for (int j = 0; j < 2 * VW; j++)
			to[i + j % 2 * VW + j / 2] = i + j < n ? x[i + j] : 0;
}

#if HAVE_BF16_DOT
/* Columns i .. i + 31 of a row of n, zeros beyond. */
ALWAYS vh load_half(const float *x, int i, int n)
{
	if (i + 32 <= n)
		return vh_pack(vf_load(x + i), vf_load(x + i + 16));
	int left = n > i ? n - i : 0;

	return vh_pack(vf_load_n(x + i, min_int(left, 16)), left > 16 ? vf_load_n(x + i + 16, left - 16) : (vf){0});
}

static void pack_half(vh *to, const float *x, int n)
{
	for (int i = 0; i < n; i += 32)
		*to++ = load_half(x, i, n);
}

static void pack_half_fp8(vh *to, const float *x, int n)
{
	const __m512i even = _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13);
	const __m512i odd = _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15);

	for (int i = 0; i < n; i += 64, to += 2) {
		__m512i a = (__m512i)load_half(x, i, n), b = (__m512i)load_half(x, i + 32, n);

		to[0] = (vh)_mm512_permutex2var_epi64(a, even, b);
		to[1] = (vh)_mm512_permutex2var_epi64(a, odd, b);
	}
}

/* to[m]: columns m, m + 4, m + 8, ... */
static void pack_half_nvfp4(vh *to, const float *x, int n)
{
	const __m512i split = _mm512_set_epi16(31, 27, 23, 19, 15, 11, 7, 3, 30, 26, 22, 18, 14, 10, 6, 2,
					       29, 25, 21, 17, 13, 9, 5, 1, 28, 24, 20, 16, 12, 8, 4, 0);

	for (int i = 0; i < n; i += 128, to += 4) {
		__m512i q[4];

		for (int j = 0; j < 4; j++)
			q[j] = _mm512_permutexvar_epi16(split, (__m512i)load_half(x, i + 32 * j, n));
		__m512i a = _mm512_shuffle_i64x2(q[0], q[1], 0x44), b = _mm512_shuffle_i64x2(q[2], q[3], 0x44);
		__m512i c = _mm512_shuffle_i64x2(q[0], q[1], 0xee), d = _mm512_shuffle_i64x2(q[2], q[3], 0xee);

		to[0] = (vh)_mm512_shuffle_i64x2(a, b, 0x88);
		to[1] = (vh)_mm512_shuffle_i64x2(a, b, 0xdd);
		to[2] = (vh)_mm512_shuffle_i64x2(c, d, 0x88);
		to[3] = (vh)_mm512_shuffle_i64x2(c, d, 0xdd);
	}
}
#endif

static void pack_row(const struct product *p, void *to, const float *x, int n)
{
	switch (p->kernel->packing) {
	case PACKED_FLAT: pack_flat(to, x, n); break;
	case PACKED_PAIRS: pack_pairs(to, x, n, p->kernel->unit); break;
#if HAVE_BF16_DOT
	case PACKED_HALF: pack_half(to, x, n); break;
	case PACKED_HALF_FP8: pack_half_fp8(to, x, n); break;
	case PACKED_HALF_NVFP4: pack_half_nvfp4(to, x, n); break;
#else
	case PACKED_HALF: case PACKED_HALF_FP8: case PACKED_HALF_NVFP4: BUG("no bf16 products at this level");
#endif
	}
}

void pack_rows(const struct product *p, void *to, const float *x, int ldx, enum numerics numerics, int t0, int t1,
	       float *row)
{
	int n = p->w->in;

	for (int t = t0; t < t1; t++) {
		const float *from = x + (size_t)t * (size_t)ldx;

		if (numerics == NUMERICS_W8A8)
			quantise_fp8(row, from, n, p->w->input_scale);
		else if (numerics == NUMERICS_W4A4)
			quantise_nvfp4(row, from, n, p->w->input_scale);
		bool quantised = numerics == NUMERICS_W8A8 || numerics == NUMERICS_W4A4;

		pack_row(p, (char *)to + (size_t)t * p->ldx, quantised ? row : from, n);
	}
}
