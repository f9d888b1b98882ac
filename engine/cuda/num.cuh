/* Number formats and small reductions on the device; launch.h brings it into every kernel file.
 *
 * bf16, e4m3 and e2m1 are written with integers so that they are the same on every architecture and exact by
 * construction (docs/model.md, section 4); quant.c is the definition they are held to. */
#ifndef ASSAY_ENGINE_CUDA_NUM_CUH
#define ASSAY_ENGINE_CUDA_NUM_CUH

#define WARP 32
#define FULL 0xffffffffu

/* ---- programmatic dependent launch: no-ops where the launch did not ask for it ---- */
/* Everything that the kernel before wrote may be read after this. */
__device__ inline void grid_wait(void)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* The next kernel may start its blocks: those load weights, then wait. */
__device__ inline void grid_release(void)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* ---- bf16 ---- */
__device__ inline uint16_t bf16_bits(float x)
{
	uint16_t b;
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(x));
	return b;
}
__device__ inline float bf16_value(uint16_t b) { return __uint_as_float((uint32_t)b << 16); }
/* The rounding between ops: to bf16 under compute: bf16, none under fp32. */
__device__ inline float rounded(float x, int bf16) { return bf16 ? bf16_value(bf16_bits(x)) : x; }

/* ---- fp16 ---- */
__device__ inline uint16_t fp16_bits(float x)
{
	uint16_t b;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(b) : "f"(x));
	return b;
}
__device__ inline float fp16_value(uint16_t b)
{
	float x;
	asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(b));
	return x;
}

/* ---- e4m3 ---- */
/* 2^120 moves the four exponent bits of a code, taken as the low ones of a float, to their value. */
__device__ inline float e4m3_value(uint8_t code)
{
	return __uint_as_float((uint32_t)(code & 0x80) << 24 | (uint32_t)(code & 0x7f) << 20) * 0x1p120f;
}
/* Round to nearest even, saturating at +-448. */
__device__ inline uint8_t e4m3_code(float x)
{
	uint32_t sign = __float_as_uint(x) >> 24 & 0x80;
	float a = fabsf(x);
	if (a != a)
		return 0x7f;
	if (a >= 448.0f)
		return (uint8_t)(sign | 0x7e);
	if (a < 0x1p-6f)
		return (uint8_t)(sign | (uint32_t)rintf(a * 512.0f));
	uint32_t u = __float_as_uint(a);
	u += 0x7ffff + (u >> 20 & 1);
	return (uint8_t)(sign | ((u >> 20) - (120u << 3)));
}
/* The value of that code; the hardware's conversions where it has them. */
__device__ inline float e4m3_rounded(float x)
{
#if __CUDA_ARCH__ >= 890
	uint16_t code;
	uint32_t halves;
	asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(code) : "f"(0.0f), "f"(x));
	asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(code));
	return fp16_value((uint16_t)halves);
#else
	return e4m3_value(e4m3_code(x));
#endif
}

/* ---- e2m1 ---- */
__device__ inline float e2m1_value(uint32_t code)
{
	return __uint_as_float((code & 8) << 28 | (code & 7) << 22) * 0x1p126f;
}
/* Round to nearest, ties to the even code, saturating at +-6. */
__device__ inline float e2m1_rounded(float x)
{
	float a = fminf(fabsf(x), 6.0f);
	float step = a < 2.0f ? 0.5f : a < 4.0f ? 1.0f : 2.0f;
	return copysignf(rintf(a / step) * step, x);
}

/* One stored element of a state or KV array. */
__device__ inline float load_as_float(const void *p, int64_t i, int dtype)
{
	switch (dtype) {
	case KIND_F32: return ((const float *)p)[i];
	case KIND_BF16: return bf16_value(((const uint16_t *)p)[i]);
	case KIND_F16: return fp16_value(((const uint16_t *)p)[i]);
	default: return e4m3_value(((const uint8_t *)p)[i]);
	}
}
__device__ inline void store_from_float(void *p, int64_t i, float x, int dtype)
{
	switch (dtype) {
	case KIND_F32: ((float *)p)[i] = x; break;
	case KIND_BF16: ((uint16_t *)p)[i] = bf16_bits(x); break;
	case KIND_F16: ((uint16_t *)p)[i] = fp16_bits(x); break;
	default: ((uint8_t *)p)[i] = e4m3_code(x);
	}
}

/* ---- activations ---- */
__device__ inline float silu(float x) { return x / (1.0f + expf(-x)); }
__device__ inline float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

/* ---- reductions in a fixed order ---- */
__device__ inline float warp_sum(float x)
{
	for (int i = WARP / 2; i; i /= 2)
		x += __shfl_xor_sync(FULL, x, i);
	return x;
}
__device__ inline float warp_max(float x)
{
	for (int i = WARP / 2; i; i /= 2)
		x = fmaxf(x, __shfl_xor_sync(FULL, x, i));
	return x;
}
#endif
