#include "quant.h"

#include <math.h>
#include <string.h>

/* Codes 0 to 0x7f; the sign bit mirrors them.  The macro spells out one exponent: (8 + m) * 2^(e - 10). */
#define NORMAL(u, s) s 8 * u, s 9 * u, s 10 * u, s 11 * u, s 12 * u, s 13 * u, s 14 * u, s 15 * u
#define HALF(s) \
	s 0x0p-9f, s 0x1p-9f, s 0x2p-9f, s 0x3p-9f, s 0x4p-9f, s 0x5p-9f, s 0x6p-9f, s 0x7p-9f, \
	NORMAL(0x1p-9f, s), NORMAL(0x1p-8f, s), NORMAL(0x1p-7f, s), NORMAL(0x1p-6f, s), NORMAL(0x1p-5f, s), \
	NORMAL(0x1p-4f, s), NORMAL(0x1p-3f, s), NORMAL(0x1p-2f, s), NORMAL(0x1p-1f, s), NORMAL(0x1p0f, s), \
	NORMAL(0x1p1f, s), NORMAL(0x1p2f, s), NORMAL(0x1p3f, s), NORMAL(0x1p4f, s), \
	s 256.f, s 288.f, s 320.f, s 352.f, s 384.f, s 416.f, s 448.f, NAN

const float e4m3_table[256] = { HALF(+), HALF(-) };

const float e2m1_table[16] = {
	0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f, -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f,
};

static uint32_t bits_of(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof u);
	return u;
}

static float float_of(uint32_t u)
{
	float x;

	memcpy(&x, &u, sizeof x);
	return x;
}

float bf16_to_float(uint16_t b)
{
	return float_of((uint32_t)b << 16);
}

uint16_t bf16_from_float(float x)
{
	uint32_t u = bits_of(x);

	if (isnan(x))
		return (uint16_t)(u >> 16 | 0x40);  /* keep a mantissa bit: the upper half alone could be infinity */
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float bf16_round(float x)
{
	return bf16_to_float(bf16_from_float(x));
}

float fp16_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 0x3ff;

	if (exp == 31)
		return float_of(sign | 0x7f800000 | man << 13);
	if (exp == 0)
		return float_of(sign | bits_of((float)man * 0x1p-24f));
	return float_of(sign | (exp + 112) << 23 | man << 13);
}

uint16_t fp16_from_float(float x)
{
	uint16_t sign = bits_of(x) >> 16 & 0x8000;
	float a = fabsf(x);
	uint32_t u;

	if (isnan(x))
		return sign | 0x7e00;
	if (a >= 65520.f)
		return sign | 0x7c00;
	if (a < 0x1p-14f)  /* subnormal: the sum rounds to a multiple of 2^-24, its low bits are the code */
		return sign | (uint16_t)(bits_of(a + 0.5f) - bits_of(0.5f));
	u = bits_of(a);
	u += 0xfff + (u >> 13 & 1);
	return sign | (uint16_t)((u >> 13) - (112 << 10));
}

double e4m3_round(double x)
{
	double a = fabs(x) < 448 ? fabs(x) : 448, step;
	int exp;

	if (isnan(x))
		return x;
	frexp(a, &exp);
	step = ldexp(1, exp - 4 > -9 ? exp - 4 : -9);
	return copysign(rint(a / step) * step, x);
}

uint8_t e4m3_encode(double x)
{
	uint8_t sign = signbit(x) ? 0x80 : 0;
	double a = fabs(e4m3_round(x));
	int exp;

	if (isnan(x))
		return 0x7f;
	if (a < 0x1p-6)
		return sign | (uint8_t)(a * 512);
	frexp(a, &exp);  /* a = m * 2^exp, m in [0.5, 1): 16 m is 8 to 15 */
	return sign | (uint8_t)((exp + 6) << 3 | ((int)ldexp(a, 4 - exp) & 7));
}

double e2m1_round(double x)
{
	double a = fabs(x) < 6 ? fabs(x) : 6, step = a < 2 ? .5 : a < 4 ? 1 : 2;

	return isnan(x) ? x : copysign(rint(a / step) * step, x);
}

uint8_t e2m1_encode(double x)
{
	double a = fabs(e2m1_round(x));
	uint8_t code = 0;

	while (code < 7 && e2m1_table[code] < a)
		code++;
	return signbit(x) ? code | 8 : code;
}

void fp8_act(uint8_t *codes, const double *x, int n, float input_scale, bool f64)
{
	float inverse = 1.f / input_scale;

	for (int i = 0; i < n; i++)
		codes[i] = e4m3_encode(f64 ? x[i] * inverse : (double)((float)x[i] * inverse));
}

/* One block in real arithmetic. */
static double act_block_f64(double *value, const double *x, double g)
{
	double top = 0, sf;

	for (int i = 0; i < 16; i++)
		top = fmax(top, fabs(x[i]));
	sf = e4m3_round(g * top / 6);
	for (int i = 0; i < 16; i++)
		value[i] = e2m1_round(sf != 0 ? x[i] * g / sf : 0);
	return sf;
}

/* One block in the kernels' fp32 order: the reciprocals are rounded before they are used. */
static double act_block_fp32(double *value, const double *x, float g)
{
	float top = 0, sf, inverse, scale;

	for (int i = 0; i < 16; i++)
		top = fmaxf(top, fabsf((float)x[i]));
	sf = (float)e4m3_round(g * (top * (1.f / 6.f)));
	scale = sf * (1.f / g);
	inverse = sf != 0 ? 1.f / scale : 0;
	for (int i = 0; i < 16; i++)
		value[i] = e2m1_round((float)x[i] * inverse);
	return sf;
}

void nvfp4_act(double *value, double *scale, const double *x, int n, float input_scale, bool f64)
{
	float g = 1.f / input_scale;

	for (int i = 0; i < n; i += 16)
		scale[i / 16] = f64 ? act_block_f64(value + i, x + i, g) : act_block_fp32(value + i, x + i, g);
}

int64_t scale_swizzle(int64_t row, int64_t col, int64_t cols)
{
	int64_t tiles = (cols + 3) / 4;

	return (row / 128 * tiles + col / 4) * 512 + row % 32 * 16 + row / 32 % 4 * 4 + col % 4;
}
