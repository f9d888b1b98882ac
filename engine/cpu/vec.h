/* The vectors that the kernels are written in.
 *
 * Every kernel file of this directory is compiled once per level (Makefile): LEVEL is the level's name and
 * LEVEL_HEADER its vector header, which defines
 *   VW               floats in a vector; vf, vi: VW floats, VW 32-bit integers (GCC vectors: + - * / & << work)
 *   vf_sum           a fixed tree: lanes i and i + VW/2 first, then halves again
 *   vf_sum_each      the same tree over VW vectors at once
 *   HAVE_BF16_DOT    vh (2 VW bf16 values) and vh_dot, where the level has them
 * What is below follows from these, the same at every level.
 */
#ifndef ASSAY_ENGINE_CPU_VEC_H
#define ASSAY_ENGINE_CPU_VEC_H

#include LEVEL_HEADER

#ifndef HAVE_BF16_DOT
#define HAVE_BF16_DOT 0
#endif

#define ALWAYS static inline __attribute__((always_inline))

ALWAYS vf vf_set1(float x) { return x - (vf){0}; }
ALWAYS vi vi_set1(int32_t x) { return x - (vi){0}; }

/* To bf16, nearest even; a NaN stays one. */
ALWAYS vf vf_round_bf16(vf x)
{
	vi u = (vi)x;
	vi r = (u + 0x7fff + ((u >> 16) & 1)) & (int32_t)0xffff0000;

	return vf_select(x == x, (vf)r, (vf)((u | 0x400000) & (int32_t)0xffff0000));
}

ALWAYS float round_bf16(float x)
{
	uint32_t u;

	memcpy(&u, &x, 4);
	u = x == x ? u + 0x7fff + ((u >> 16) & 1) : u | 0x400000;
	u &= 0xffff0000;
	memcpy(&x, &u, 4);
	return x;
}

ALWAYS vf vf_abs(vf x) { return (vf)((vi)x & 0x7fffffff); }

/* e^x to 2 ulp, subnormal results and overflow included.  x = n ln 2 + r, |r| <= ln 2 / 2. */
ALWAYS vf vf_exp(vf x)
{
	const vf magic = vf_set1(0x1.8p23f);

	x = vf_max(vf_set1(-110), vf_min(vf_set1(90), x));
	vf shifted = vf_fma(x, vf_set1(0x1.715476p0f), magic);
	vf n = shifted - magic;
	vf r = vf_fma(n, vf_set1(-0x1.63p-1f), x);

	r = vf_fma(n, vf_set1(0x1.bd0106p-13f), r);
	vf p = vf_set1(1.9875691500e-4f);

	p = vf_fma(p, r, vf_set1(1.3981999507e-3f));
	p = vf_fma(p, r, vf_set1(8.3334519073e-3f));
	p = vf_fma(p, r, vf_set1(4.1665795894e-2f));
	p = vf_fma(p, r, vf_set1(1.6666665459e-1f));
	p = vf_fma(p, r, vf_set1(5.0000001201e-1f));
	p = vf_fma(p * r, r, r) + 1;
	/* 2^n in two factors, so that neither leaves the range of a float */
	vi k = (vi)shifted - (vi)magic, half = k >> 1;

	return p * (vf)((half + 127) << 23) * (vf)((k - half + 127) << 23);
}

/* log(1 + e^x), relative to 2 ulp: max(x, 0) + log1p(e^-|x|), log1p(t) = 2 atanh(t / (2 + t)). */
ALWAYS vf vf_softplus(vf x)
{
	vf t = vf_exp(-vf_abs(x)), s = t / (2 + t), z = s * s, p = vf_set1(1.f / 15);

	p = vf_fma(p, z, vf_set1(1.f / 13));
	p = vf_fma(p, z, vf_set1(1.f / 11));
	p = vf_fma(p, z, vf_set1(1.f / 9));
	p = vf_fma(p, z, vf_set1(1.f / 7));
	p = vf_fma(p, z, vf_set1(1.f / 5));
	p = vf_fma(p, z, vf_set1(1.f / 3));
	p = vf_fma(p * z, s, s);
	return vf_max(vf_set1(0), x) + 2 * p;
}

ALWAYS vf vf_silu(vf x) { return x / (1 + vf_exp(-x)); }
ALWAYS vf vf_sigmoid(vf x) { return 1 / (1 + vf_exp(-x)); }

/* Lanes of one vector, n < VW the last of a row. */
ALWAYS vf vf_load_part(const float *p, int n) { return n >= VW ? vf_load(p) : vf_load_n(p, n); }

ALWAYS void vf_store_part(float *p, vf v, int n)
{
	if (n >= VW)
		vf_store(p, v);
	else
		vf_store_n(p, v, n);
}

#endif
