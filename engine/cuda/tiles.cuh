/* Packed weights and the tensor-core product that linear.cu and stream.cu share; launch.h brings it in.
 *
 * A step is 16 rows x 64 columns in one contiguous record.  Lane 4g + q of a warp owns columns 8q .. 8q + 7 of rows g and
 * g + 8 in each half of 32 columns.  e4m3, and e2m1 times its block scale, are exact in bf16, so every format and every
 * quantised activation ends in mma m16n8k16 with bf16 operands and fp32 sums (e4m3 with e4m3: fp16 operands): weights are
 * the 16-row side, tokens the 8-column side.  One 16-byte load of a token row feeds two mma. */
#ifndef ASSAY_ENGINE_CUDA_TILES_CUH
#define ASSAY_ENGINE_CUDA_TILES_CUH

/* Bytes of a record: NVFP4 has its 64 block scales behind the codes. */
template <int F> struct record;
template <> struct record<FORMAT_BF16> { enum { BYTES = 2048, LOADS = 4 }; };
template <> struct record<FORMAT_FP8> { enum { BYTES = 1024, LOADS = 2 }; };
template <> struct record<FORMAT_NVFP4> { enum { BYTES = 576, LOADS = 1 }; };
template <> struct record<PRODUCT_W8A8> { enum { BYTES = 1024, LOADS = 2 }; };

__device__ inline uint32_t mul_pair(uint32_t a, uint32_t b)
{
	uint32_t d;
	asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(0x80008000u));
	return d;
}

/* ---- unpacking: 8 weights of one row into 4 pairs, even column in the low half ---- */
/* As bf16 bits a code is 2^-120 of its value. */
__device__ inline uint32_t pair_bf16(uint32_t bytes)  /* codes in bytes 1 and 3 */
{
	return mul_pair((bytes & 0x80008000u) | (bytes >> 4 & 0x07f007f0u), 0x7b807b80u);
}
__device__ inline void unpack_fp8(uint32_t out[2], uint32_t w)
{
	out[0] = pair_bf16(__byte_perm(w, 0, 0x1404));
	out[1] = pair_bf16(__byte_perm(w, 0, 0x3424));
}
/* Two codes as fp16, exactly. */
__device__ inline uint32_t pair_fp16(uint16_t codes)
{
	uint32_t d = 0;
#if __CUDA_ARCH__ >= 890
	asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(d) : "h"(codes));
#else
	d = fp16_bits(e4m3_value((uint8_t)codes)) | (uint32_t)fp16_bits(e4m3_value((uint8_t)(codes >> 8))) << 16;
#endif
	return d;
}

/* Each half word holds one code of each pair: sign and three magnitude bits at 15 8-6, 12 5-3, 9 2-0, and 14 13 11-10;
 * so three pairs need one shift and one mask.  As bf16 bits a code is 2^-126 of its value; scale holds s * 2^110, so the
 * pairs hold value * s * 2^-16 and NVFP4_RESCALE takes the power back after the sum. */
#define NVFP4_RESCALE 65536.0f
/* H: which half of `scales` holds the row's scale. */
template <int H>
__device__ inline uint32_t scale_pair(uint32_t pair, uint32_t scales)
{
	uint32_t d;
	if (H)
		asm("{ .reg .b16 l, h; .reg .b32 b; mov.b32 {l, h}, %2; mov.b32 b, {h, h}; fma.rn.bf16x2 %0, %1, b, %3; }"
		    : "=r"(d) : "r"(pair), "r"(scales), "r"(0x80008000u));
	else
		asm("{ .reg .b16 l, h; .reg .b32 b; mov.b32 {l, h}, %2; mov.b32 b, {l, l}; fma.rn.bf16x2 %0, %1, b, %3; }"
		    : "=r"(d) : "r"(pair), "r"(scales), "r"(0x80008000u));
	return d;
}
template <int H>
__device__ inline void unpack_nvfp4(uint32_t out[4], uint32_t w, uint32_t scales)
{
	out[0] = scale_pair<H>(w & 0x81c081c0u, scales);
	out[1] = scale_pair<H>(w << 3 & 0x81c081c0u, scales);
	out[2] = scale_pair<H>(w << 6 & 0x81c081c0u, scales);
	out[3] = scale_pair<H>((w << 1 & 0x80008000u) | (w >> 5 & 0x01000100u) | (w >> 4 & 0x00c000c0u), scales);
}
__device__ inline uint32_t nvfp4_half(const uint32_t code[4])
{
	return (code[0] & 8) << 12 | (code[0] & 7) << 6 | (code[1] & 8) << 9 | (code[1] & 7) << 3 | (code[2] & 8) << 6 |
	       (code[2] & 7) | (code[3] & 8) << 11 | (code[3] & 4) << 11 | (code[3] & 3) << 10;
}
/* A block scale is stored with five exponent bits and no subnormals, so that code * 16 + 0x7200 is s * 2^110 as bf16 bits;
 * a block whose scale is 0 has its weights zeroed instead. */
__device__ inline uint32_t scale_code(uint32_t e4m3)
{
	uint32_t e = e4m3 >> 3 & 15, m = e4m3 & 7;
	if (e)
		return (e + 2) << 3 | m;
	return m >= 4 ? 2u << 3 | (m - 4) * 2 : m >= 2 ? 1u << 3 | (m - 2) * 4 : 0;
}
/* The scales of rows g (low half) and g + 8 in half U of a step. */
template <int U>
__device__ inline uint32_t unpack_scales(uint32_t word)
{
	return __byte_perm(word, 0, 0x4040 | (2 * U + 1) << 8 | 2 * U) * 16 + 0x72007200u;
}

/* ---- one record: what a lane holds of it ---- */
template <int F> struct step {
	uint4 w[record<F>::LOADS];
	uint32_t scale;

	__device__ void load(const char *at, int lane)        /* global memory */
	{
#pragma unroll
		for (int j = 0; j < record<F>::LOADS; j++)
			asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
			    : "=r"(w[j].x), "=r"(w[j].y), "=r"(w[j].z), "=r"(w[j].w) : "l"(at + (j * WARP + lane) * 16));
		if (F == FORMAT_NVFP4)
			asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(scale)
			    : "l"(at + 512 + (lane / 4 * 2 + lane % 4 / 2) * 4));
	}
	/* Of its 16 bytes (codes) and of its scales in a record: where in it. */
	__device__ static uint32_t codes_at(int lane) { return lane * 16; }
	__device__ static uint32_t scales_at(int lane) { return 512 + (lane / 4 * 2 + lane % 4 / 2) * 4; }
	__device__ void load_shared(uint32_t at, int lane)    /* shared memory */
	{
		load_shared_at(at + codes_at(lane), at + scales_at(lane));
	}
	__device__ void load_shared_at(uint32_t codes, uint32_t scales)
	{
#pragma unroll
		for (int j = 0; j < record<F>::LOADS; j++)
			asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
				     : "=r"(w[j].x), "=r"(w[j].y), "=r"(w[j].z), "=r"(w[j].w) : "r"(codes + j * WARP * 16));
		if (F == FORMAT_NVFP4)
			asm volatile("ld.shared.u32 %0, [%1];" : "=r"(scale) : "r"(scales));
	}
	/* Rows g (a) and g + 8 (b) of half U as pairs. */
	template <int U> __device__ void unpack(uint32_t a[4], uint32_t b[4]) const
	{
		if constexpr (F == FORMAT_BF16) {
			a[0] = w[2 * U].x, a[1] = w[2 * U].y, a[2] = w[2 * U].z, a[3] = w[2 * U].w;
			b[0] = w[2 * U + 1].x, b[1] = w[2 * U + 1].y, b[2] = w[2 * U + 1].z, b[3] = w[2 * U + 1].w;
		} else if constexpr (F == PRODUCT_W8A8) {
			const uint32_t c[4] = { w[U].x, w[U].y, w[U].z, w[U].w };
#pragma unroll
			for (int i = 0; i < 2; i++) {
				a[2 * i] = pair_fp16((uint16_t)c[i]), a[2 * i + 1] = pair_fp16((uint16_t)(c[i] >> 16));
				b[2 * i] = pair_fp16((uint16_t)c[2 + i]), b[2 * i + 1] = pair_fp16((uint16_t)(c[2 + i] >> 16));
			}
		} else if constexpr (F == FORMAT_FP8) {
			unpack_fp8(a, w[U].x);
			unpack_fp8(a + 2, w[U].y);
			unpack_fp8(b, w[U].z);
			unpack_fp8(b + 2, w[U].w);
		} else {
			uint32_t s = unpack_scales<U>(scale);
			unpack_nvfp4<0>(a, U ? w[0].z : w[0].x, s);
			unpack_nvfp4<1>(b, U ? w[0].w : w[0].y, s);
		}
	}
};

/* FP16: operands are fp16, else bf16. */
template <bool FP16 = false>
__device__ inline void mma(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
	if constexpr (FP16)
		asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
			     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
			     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
	else
		asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
			     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
			     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Half U of a record against 8 NT token rows; xr[n]: this lane's columns of token row 8n + g (NULL: zeros). */
template <int U, int F, int MT, int NT>
__device__ inline void half_step(float acc[MT][NT][4], const struct step<F> w[MT], const uint16_t *const xr[NT], int col)
{
	uint4 x[NT];
#pragma unroll
	for (int n = 0; n < NT; n++)
		x[n] = xr[n] ? *(const uint4 *)(xr[n] + col + U * 32) : make_uint4(0, 0, 0, 0);
#pragma unroll
	for (int m = 0; m < MT; m++) {
		uint32_t a[4], b[4];
		w[m].template unpack<U>(a, b);
#pragma unroll
		for (int n = 0; n < NT; n++) {
			mma<F == PRODUCT_W8A8>(acc[m][n], a[0], b[0], a[1], b[1], x[n].x, x[n].y);
			mma<F == PRODUCT_W8A8>(acc[m][n], a[2], b[2], a[3], b[3], x[n].z, x[n].w);
		}
	}
}

/* ---- activations before a product ---- */
__device__ inline uint16_t operand_bits(float v, int act) { return act == ACT_FP8 ? fp16_bits(v) : bf16_bits(v); }
/* Value c of a row as the product sees it; g = 1 / input_scale; sixteen neighbouring lanes hold an NVFP4 block. */
__device__ inline float act_value(float v, int act, float g)
{
	if (act == ACT_FP8)
		return e4m3_rounded(v * g);
	if (act == ACT_NVFP4) {
		float top = fabsf(v);
		for (int i = 8; i; i /= 2)
			top = fmaxf(top, __shfl_xor_sync(FULL, top, i));
		float sf = e4m3_rounded(g * (top * (1.0f / 6.0f)));
		float r = sf != 0.0f ? 1.0f / (sf * (1.0f / g)) : 0.0f;
		return e2m1_rounded(v * r) * sf;
	}
	return v;
}

/* ---- four neighbouring values of a row ---- */
__device__ inline float4 rounded_quad(float4 v, int bf16)
{
	return make_float4(rounded(v.x, bf16), rounded(v.y, bf16), rounded(v.z, bf16), rounded(v.w, bf16));
}

/* Four values as a product sees them; g = 1 / input_scale; four neighbouring lanes hold an NVFP4 block. */
__device__ inline float4 act_quad(float4 v, int act, float g)
{
	if (act == ACT_FP8)
		return make_float4(e4m3_rounded(v.x * g), e4m3_rounded(v.y * g), e4m3_rounded(v.z * g), e4m3_rounded(v.w * g));
	if (act != ACT_NVFP4)
		return v;
	float top = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
	top = fmaxf(top, __shfl_xor_sync(FULL, top, 1));
	top = fmaxf(top, __shfl_xor_sync(FULL, top, 2));
	float sf = e4m3_rounded(g * (top * (1.0f / 6.0f))), r = sf != 0.0f ? 1.0f / (sf * (1.0f / g)) : 0.0f;
	return make_float4(e2m1_rounded(v.x * r) * sf, e2m1_rounded(v.y * r) * sf, e2m1_rounded(v.z * r) * sf,
			   e2m1_rounded(v.w * r) * sf);
}

__device__ inline void store_quad(uint16_t *to, float4 v, int act)
{
	*(ushort4 *)to = make_ushort4(operand_bits(v.x, act), operand_bits(v.y, act), operand_bits(v.z, act),
				      operand_bits(v.w, act));
}

/* ---- a convolution step of one channel (docs/model.md, 3.3 step 2) ---- */
/* Column t of a channel: a token of x, or (t < 0) the carried window, whose newest column is -1. */
__device__ inline float conv_column(const float *x, int ldx, const float *window, int channels, int kernel, int t)
{
	return t >= 0 ? x[(int64_t)t * ldx] : window[(int64_t)(kernel - 1 + t) * channels];
}
/* silu(bias + sum_j w[j] * column(t - (K-1) + j)), oldest first. */
__device__ inline float conv_at(const float *x, int ldx, const float *window, const float *w, float bias, int channels,
				int kernel, int t)
{
	float sum = bias;
	for (int j = 0; j < kernel; j++)
		sum = fmaf(w[j], conv_column(x, ldx, window, channels, kernel, t - (kernel - 1) + j), sum);
	return silu(sum);
}
/* The window after T tokens: its last K-1 columns.  Row j comes from a row at or above it: ascending order is safe. */
__device__ inline void conv_shift(float *window, const float *x, int ldx, int channels, int kernel, int T)
{
	for (int j = 0; j < kernel - 1; j++)
		window[(int64_t)j * channels] = conv_column(x, ldx, window, channels, kernel, T - (kernel - 1) + j);
}

/* ---- the residual stream ---- */
/* Element c of token t of what is still to be added to h: a mixer's output, or the parts of a MoE block: the weighted sum
 * of its routed experts, slots in order, and the shared expert (docs/model.md, 3.6 steps 9 and 11). */
__device__ inline float pending_value(const struct residual &r, int t, int c)
{
	if (!r.down)
		return r.y[(int64_t)t * r.H + c];
	float sum = 0;
#pragma unroll 2
	for (int i = 0; i < r.k; i++)
		sum = fmaf(r.weight[t * r.k + i], r.down[((int64_t)t * r.k + i) * r.H + c], sum);
	sum = rounded(sum, r.bf16);
	return r.shared ? rounded(sum + r.shared[(int64_t)t * r.H + c], r.bf16) : sum;
}
/* h after the addition. */
__device__ inline float residual_value(const struct residual &r, int t, int c)
{
	float h = r.h[(int64_t)t * r.H + c];
	return r.y || r.down ? rounded(h + pending_value(r, t, c), r.bf16 && !r.wide) : h;
}
#endif
