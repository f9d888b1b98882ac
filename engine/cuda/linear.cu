#include "launch.h"

/* Products of few or many token rows with a matrix that is streamed once from memory.
 *
 * Tensor cores (mma m16n8k16, bf16 operands, fp32 sums) take weights as the 16-row side and tokens as the 8-column
 * side.  e4m3, and e2m1 times its block scale, are exact in bf16, so every weight format and every quantised activation
 * ends in the same product; what differs is how a lane unpacks its bytes.  Within a step of 64 columns lane 4g + q owns
 * columns 8q .. 8q + 7 of each half: one 16-byte load of a token row feeds two mma.
 *
 * Order of a sum, whatever T: warp s takes steps s, s + 8, ... in ascending order; the eight partial sums are added
 * in the order of the warps.  */

/* ---- unpacking: 8 weights of one row into 4 pairs, even column in the low half ---- */
__device__ static inline uint32_t scale_pair(uint32_t a, uint32_t b)
{
	uint32_t d;
	asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(0x80008000u));
	return d;
}
#define PAIR_2P120 0x7b807b80u
#define PAIR_2P110 0x76807680u

/* Bytes of a word: codes 0, 2, 1, 3. */
__device__ static inline void unpack_fp8(uint32_t out[2], uint32_t w)
{
	uint32_t low = (w << 8 & 0x80008000u) | (w << 4 & 0x07f007f0u);
	uint32_t high = (w & 0x80008000u) | (w >> 4 & 0x07f007f0u);
	out[0] = scale_pair(low, PAIR_2P120);
	out[1] = scale_pair(high, PAIR_2P120);
}

/* Each half word holds one code of each pair: sign and three magnitude bits at 15 8-6, 12 5-3, 9 2-0, and 14 13 11-10;
 * so three pairs need one shift and one mask.  As bf16 bits a code is 2^-126 of its value; scale holds s * 2^110, so the
 * pairs hold value * s * 2^-16 and NVFP4_RESCALE takes the power back after the sum. */
#define NVFP4_RESCALE 65536.0f
__device__ static inline void unpack_nvfp4(uint32_t out[4], uint32_t w, uint32_t scale)
{
	out[0] = scale_pair(w & 0x81c081c0u, scale);
	out[1] = scale_pair(w << 3 & 0x81c081c0u, scale);
	out[2] = scale_pair(w << 6 & 0x81c081c0u, scale);
	out[3] = scale_pair((w << 1 & 0x80008000u) | (w >> 5 & 0x01000100u) | (w >> 4 & 0x00c000c0u), scale);
}
__device__ static inline uint32_t nvfp4_pack_half(const uint32_t code[4])
{
	uint32_t h = 0;
	h |= (code[0] & 8) << 12 | (code[0] & 7) << 6;
	h |= (code[1] & 8) << 9 | (code[1] & 7) << 3;
	h |= (code[2] & 8) << 6 | (code[2] & 7);
	h |= (code[3] & 8) << 11 | (code[3] & 4) << 11 | (code[3] & 3) << 10;
	return h;
}
/* Byte i of a scale word as a pair s * 2^110: e4m3 as bf16 bits is 2^-120 of its value. */
template <int I>
__device__ static inline uint32_t unpack_scale(uint32_t word)
{
	uint32_t pair = __byte_perm(word, 0, 0x4040 | I << 8 | I) << 4;
	return scale_pair(scale_pair(pair, PAIR_2P120), PAIR_2P110);
}

__device__ static inline void mma(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* ---- one step of 16 rows: what a lane loads, and rows g and g + 8 of half u as pairs ---- */
template <int F> struct step;

template <> struct step<FORMAT_BF16> {
	uint4 w[4];
	__device__ void load(const struct packed_matrix &m, int64_t i, int lane)
	{
#pragma unroll
		for (int j = 0; j < 4; j++)
			w[j] = __ldg((const uint4 *)m.weight + (i * 4 + j) * WARP + lane);
	}
	template <int U> __device__ void unpack(uint32_t a[4], uint32_t b[4]) const
	{
		a[0] = w[2 * U].x, a[1] = w[2 * U].y, a[2] = w[2 * U].z, a[3] = w[2 * U].w;
		b[0] = w[2 * U + 1].x, b[1] = w[2 * U + 1].y, b[2] = w[2 * U + 1].z, b[3] = w[2 * U + 1].w;
	}
};

template <> struct step<FORMAT_FP8> {
	uint4 w[2];
	__device__ void load(const struct packed_matrix &m, int64_t i, int lane)
	{
#pragma unroll
		for (int j = 0; j < 2; j++)
			w[j] = __ldg((const uint4 *)m.weight + (i * 2 + j) * WARP + lane);
	}
	template <int U> __device__ void unpack(uint32_t a[4], uint32_t b[4]) const
	{
		unpack_fp8(a, w[U].x);
		unpack_fp8(a + 2, w[U].y);
		unpack_fp8(b, w[U].z);
		unpack_fp8(b + 2, w[U].w);
	}
};

template <> struct step<FORMAT_NVFP4> {
	uint4 w;
	uint32_t scale;
	__device__ void load(const struct packed_matrix &m, int64_t i, int lane)
	{
		w = __ldg((const uint4 *)m.weight + i * WARP + lane);
		scale = __ldg(m.block_scale + i * 16 + (lane / 4 * 2 + lane % 4 / 2));
	}
	template <int U> __device__ void unpack(uint32_t a[4], uint32_t b[4]) const
	{
		unpack_nvfp4(a, U ? w.z : w.x, unpack_scale<2 * U>(scale));
		unpack_nvfp4(b, U ? w.w : w.y, unpack_scale<2 * U + 1>(scale));
	}
};

template <int U, int F, int MT, int NT>
__device__ static inline void half_step(float acc[MT][NT][4], const struct step<F> w[MT], const uint16_t *const xr[NT], int col)
{
	uint4 x[NT];
#pragma unroll
	for (int n = 0; n < NT; n++)
		x[n] = xr[n] ? *(const uint4 *)(xr[n] + col) : make_uint4(0, 0, 0, 0);
#pragma unroll
	for (int m = 0; m < MT; m++) {
		uint32_t a[4], b[4];
		w[m].template unpack<U>(a, b);
#pragma unroll
		for (int n = 0; n < NT; n++) {
			mma(acc[m][n], a[0], b[0], a[1], b[1], x[n].x, x[n].y);
			mma(acc[m][n], a[2], b[2], a[3], b[3], x[n].z, x[n].w);
		}
	}
}

/* ---- which rows a block serves, and what becomes of a sum ---- */
struct rows { int first, count, expert; };

/* Grouped: the tile of blockIdx.y; count 0: nothing to do.  Else a run of `width` rows. */
__device__ static inline struct rows block_rows(const struct product &p, int width)
{
	struct rows r = { (int)blockIdx.y * width, 0, -1 };
	if (!p.plan.tile) {
		r.count = min(width, p.T - r.first);
	} else if ((int)blockIdx.y < *p.plan.n_tiles) {
		struct expert_tile t = p.plan.tile[blockIdx.y];
		r.first = t.first, r.count = t.count, r.expert = t.expert;
	}
	return r;
}
__device__ static inline int y_row(const struct product &p, int i) { return p.plan.tile ? p.plan.entry[i] : i; }
__device__ static inline int x_row(const struct product &p, int i) { return p.plan.tile ? p.plan.entry[i] / p.x_div : i; }

__device__ static inline void store(const struct product &p, const float *bias, float scale, int64_t row, int o, float sum)
{
	float v = sum * scale;
	if (bias)
		v += bias[o];
	v = rounded(v, p.bf16);
	if (p.relu2) {
		v = fmaxf(v, 0.0f);
		v = rounded(v * v, p.bf16);
	}
	if (p.y)
		p.y[row * p.ldy + o] = v;
	if (p.y_bf16)
		p.y_bf16[row * p.ldy_bf16 + o] = bf16_bits(v);
}

/* A block owns MT tiles of 16 outputs and up to 8 NT token rows; warp s the steps s, s + 8, ...; a lane rows g and g + 8
 * of each tile for token columns 2q and 2q + 1.  B: steps that are loaded together.  Weights and x aligned to 16. */
template <int F, int MT, int NT, int B>
__global__ void __launch_bounds__(SLICES * WARP) product_tiles(struct product p, struct packed_matrix w,
								const struct packed_matrix *table)
{
	constexpr int O = MT * TILE_ROWS, C = NT * 8, DIRECT = SLICES * O * C * 4 <= 32768;
	__shared__ float part[DIRECT ? SLICES : 1][C][O];
	int lane = threadIdx.x % WARP, slice = threadIdx.x / WARP, g = lane / 4, q = lane % 4, tile = blockIdx.x * MT;
	struct rows r;
	grid_release();
	if (table) {
		grid_wait();
		r = block_rows(p, C);
		if (!r.count)
			return;
		w = table[r.expert];
		if (w.format != F || tile >= w.tiles)
			return;
	} else {
		r = block_rows(p, C);
	}
	struct step<F> s[B][MT];
	float acc[MT][NT][4] = {};
	const uint16_t *xr[NT];
	for (int i0 = slice, first = 1; first || i0 < w.steps; i0 += SLICES * B, first = 0) {
#pragma unroll
		for (int b = 0; b < B; b++)
#pragma unroll
			for (int m = 0; m < MT; m++)
				if (i0 + b * SLICES < w.steps)
					s[b][m].load(w, (int64_t)min(tile + m, w.tiles - 1) * w.steps + i0 + b * SLICES, lane);
		if (first) {
			if (!table)
				grid_wait();
#pragma unroll
			for (int n = 0; n < NT; n++)
				xr[n] = n * 8 + g < r.count ?
					(const uint16_t *)p.x + (int64_t)x_row(p, r.first + n * 8 + g) * p.ldx + q * 8 : NULL;
		}
#pragma unroll
		for (int b = 0; b < B; b++) {
			int i = i0 + b * SLICES;
			if (i >= w.steps)
				break;
			half_step<0, F, MT, NT>(acc, s[b], xr, i * TILE_STEP);
			half_step<1, F, MT, NT>(acc, s[b], xr, i * TILE_STEP + 32);
		}
	}
	for (int turn = 0; turn < (DIRECT ? 1 : SLICES); turn++) {
		if (DIRECT || turn == slice) {
#pragma unroll
			for (int m = 0; m < MT; m++)
#pragma unroll
				for (int n = 0; n < NT; n++)
#pragma unroll
					for (int i = 0; i < 4; i++) {
						float *to = &part[DIRECT ? slice : 0][n * 8 + q * 2 + i % 2][m * TILE_ROWS + g + i / 2 * 8];
						*to = DIRECT || turn == 0 ? acc[m][n][i] : *to + acc[m][n][i];
					}
		}
		__syncthreads();
	}
	float scale = F == FORMAT_NVFP4 ? w.scale * NVFP4_RESCALE : w.scale;
	for (int i = threadIdx.x; i < O * r.count; i += SLICES * WARP) {
		int o = tile * TILE_ROWS + i % O, c = i / O;
		float sum = part[0][c][i % O];
#pragma unroll
		for (int k = 1; k < (DIRECT ? SLICES : 1); k++)
			sum += part[k][c][i % O];
		if (o < w.out)
			store(p, w.bias, scale, y_row(p, r.first + c), o, sum);
	}
}

/* The plain form: a warp owns one output of up to RAW_ROWS token rows, lane i the columns i, i + 32, ... in ascending
 * order, then warp_sum: fixed.  For fp32 compute and for formats without tiles. */
#define RAW_ROWS 8
__global__ void __launch_bounds__(SLICES * WARP) product_rows(struct product p, struct raw_matrix w,
							       const struct raw_matrix *table)
{
	int lane = threadIdx.x % WARP, o = blockIdx.x * SLICES + threadIdx.x / WARP;
	grid_release();
	grid_wait();
	struct rows r = block_rows(p, RAW_ROWS);
	if (!r.count)
		return;
	if (table)
		w = table[r.expert];
	if (o >= w.out)
		return;
	const float *x[RAW_ROWS];
	float sum[RAW_ROWS] = {};
	for (int c = 0; c < RAW_ROWS; c++)
		x[c] = (const float *)p.x + (int64_t)x_row(p, r.first + min(c, r.count - 1)) * p.ldx;
	for (int i = lane; i < w.in; i += WARP) {
		float v = raw_value(w, o, i);
#pragma unroll
		for (int c = 0; c < RAW_ROWS; c++)
			sum[c] = fmaf(v, x[c][i], sum[c]);
	}
#pragma unroll
	for (int c = 0; c < RAW_ROWS; c++) {
		float total = warp_sum(sum[c]);
		if (lane == 0 && c < r.count)
			store(p, w.bias, w.scale, y_row(p, r.first + c), o, total);
	}
}

/* ---- operands ---- */
__device__ static inline float act_value(float v, int act, float input_scale)
{
	if (act == ACT_FP8)
		return e4m3_rounded(v * (1.0f / input_scale));
	if (act == ACT_NVFP4) {
		float g = 1.0f / input_scale, top = fabsf(v);
		for (int i = 8; i; i /= 2)
			top = fmaxf(top, __shfl_xor_sync(FULL, top, i));
		float sf = e4m3_rounded(g * (top * (1.0f / 6.0f)));
		float r = sf != 0.0f ? 1.0f / (sf * (1.0f / g)) : 0.0f;
		return e2m1_rounded(v * r) * sf;
	}
	return v;
}

/* to[e,:] = quantised x[e / div,:].  A block owns a row, thread i the columns i, i + 256, ...; sixteen neighbouring lanes
 * share an NVFP4 block. */
__global__ void act_rows(void *to, int ld, int to_bf16, const float *x, int ldx, int div, int in, int act,
			 float input_scale, const struct packed_matrix *table, const struct raw_matrix *raw_table,
			 const int32_t *expert)
{
	int e = blockIdx.x;
	grid_release();
	grid_wait();
	if (table)
		act = table[expert[e]].act, input_scale = table[expert[e]].input_scale;
	if (raw_table)
		act = raw_table[expert[e]].act, input_scale = raw_table[expert[e]].input_scale;
	for (int c0 = 0; c0 < ld; c0 += blockDim.x) {
		int c = c0 + threadIdx.x;
		float v = act_value(c < in ? x[(int64_t)(e / div) * ldx + c] : 0.0f, act, input_scale);
		if (c >= ld)
			continue;
		if (to_bf16)
			((uint16_t *)to)[(int64_t)e * ld + c] = bf16_bits(v);
		else
			((float *)to)[(int64_t)e * ld + c] = v;
	}
}

/* e4m3 codes for the library's FP8 product.  A block owns a row; zeros behind `in` and behind the last row. */
__global__ void code_rows(uint8_t *to, int ld, const float *x, int ldx, int in, float input_scale, int rows)
{
	int row = blockIdx.x;
	grid_release();
	grid_wait();
	for (int c = threadIdx.x; c < ld; c += blockDim.x)
		to[(int64_t)row * ld + c] = row < rows && c < in ?
			e4m3_code(x[(int64_t)row * ldx + c] * (1.0f / input_scale)) : 0;
}

/* y = d + bias, rounded.  A block owns 256 outputs of a row. */
__global__ void finish_rows(float *y, int ldy, const float *d, int ldd, const float *bias, int out, int bf16)
{
	int o = blockIdx.x * blockDim.x + threadIdx.x;
	grid_release();
	grid_wait();
	if (o < out)
		y[(int64_t)blockIdx.y * ldy + o] = rounded(d[(int64_t)blockIdx.y * ldd + o] + (bias ? bias[o] : 0.0f), bf16);
}

/* ---- packing ---- */
__device__ static inline uint32_t raw_code(const struct raw_matrix &w, int row, int col)
{
	if (row >= w.out || col >= w.in)
		return 0;
	int64_t i = (int64_t)row * w.in + col;
	if (w.format == FORMAT_BF16)
		return ((const uint16_t *)w.weight)[i];
	if (w.format == FORMAT_FP8)
		return ((const uint8_t *)w.weight)[i];
	return ((const uint8_t *)w.weight)[i / 2] >> (col % 2 * 4) & 15;
}

/* The eight columns from `col` of one row in the form that unpack reads: 16, 8 or 4 bytes. */
__device__ static void pack_run(uint32_t *to, const struct raw_matrix &w, int row, int col)
{
	uint32_t c[8];
	for (int i = 0; i < 8; i++)
		c[i] = raw_code(w, row, col + i);
	if (w.format == FORMAT_BF16)
		for (int i = 0; i < 4; i++)
			to[i] = c[2 * i] | c[2 * i + 1] << 16;
	else if (w.format == FORMAT_FP8)
		for (int i = 0; i < 2; i++)
			to[i] = c[4 * i] | c[4 * i + 2] << 8 | c[4 * i + 1] << 16 | c[4 * i + 3] << 24;
	else {
		uint32_t even[4] = { c[0], c[2], c[4], c[6] }, odd[4] = { c[1], c[3], c[5], c[7] };
		to[0] = nvfp4_pack_half(even) | nvfp4_pack_half(odd) << 16;
	}
}

__device__ static uint32_t raw_scale(const struct raw_matrix &w, int row, int block)
{
	return row < w.out && block * 16 < w.in ? w.block_scale[(int64_t)row * (w.in / 16) + block] : 0;
}

/* A warp owns one step, a lane what it will load there. */
__global__ void pack_steps(uint32_t *to, uint32_t *block_scale, struct raw_matrix w, int steps)
{
	int64_t i = (int64_t)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
	int lane = threadIdx.x % WARP, g = lane / 4, q = lane % 4;
	int row = (int)(i / steps) * TILE_ROWS + g, col = (int)(i % steps) * TILE_STEP + q * 8;
	if (row >= (w.out + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS)
		return;
	for (int j = 0; j < 4; j++) {                /* half step j / 2, row g or g + 8 */
		uint32_t *at = w.format == FORMAT_BF16 ? to + ((i * 4 + j) * WARP + lane) * 4 :
			       w.format == FORMAT_FP8 ? to + ((i * 2 + j / 2) * WARP + lane) * 4 + j % 2 * 2 :
			       to + (i * WARP + lane) * 4 + j;
		pack_run(at, w, row + j % 2 * 8, col + j / 2 * 32);
	}
	if (w.format == FORMAT_NVFP4 && q % 2 == 0) {
		int block = (int)(i % steps) * 4 + q / 2;
		block_scale[i * 16 + g * 2 + q / 2] = raw_scale(w, row, block) | raw_scale(w, row + 8, block) << 8 |
			raw_scale(w, row, block + 2) << 16 | raw_scale(w, row + 8, block + 2) << 24;
	}
}

/* ---- launchers ---- */
cudaError_t launch_pack(void *weight, uint32_t *block_scale, struct raw_matrix from, int tiles, int steps, cudaStream_t s)
{
	int64_t warps = (int64_t)tiles * steps;
	return launch(pack_steps, (unsigned)((warps + 7) / 8), 256, 0, s, (uint32_t *)weight, block_scale, from, steps);
}

cudaError_t launch_act(void *to, int ld, int to_bf16, const float *x, int ldx, int div, int in, int act, float input_scale,
		       const struct packed_matrix *table, const struct raw_matrix *raw_table, const int32_t *expert,
		       int rows, cudaStream_t s)
{
	return launch(act_rows, rows, 256, 0, s, to, ld, to_bf16, x, ldx, div, in, act, input_scale, table, raw_table,
		      expert);
}

template <int F>
static cudaError_t launch_tiles(struct product p, struct packed_matrix w, const struct packed_matrix *table, int tiles,
				int width, int runs, cudaStream_t s)
{
	constexpr int B = F == FORMAT_NVFP4 ? 6 : F == FORMAT_FP8 ? 3 : 2;
	if (width <= 8)
		return launch(product_tiles<F, 1, 1, B>, dim3(tiles, runs), 256, 0, s, p, w, table);
	if (width <= 16)
		return launch(product_tiles<F, 1, 2, B>, dim3(tiles, runs), 256, 0, s, p, w, table);
	if (width <= 32)
		return launch(product_tiles<F, 2, 4, 1>, dim3((tiles + 1) / 2, runs), 256, 0, s, p, w, table);
	return launch(product_tiles<F, 4, 8, 1>, dim3((tiles + 3) / 4, runs), 256, 0, s, p, w, table);
}

static cudaError_t launch_format(struct product p, struct packed_matrix w, const struct packed_matrix *table, int format,
				 int tiles, int width, int runs, cudaStream_t s)
{
	switch (format) {
	case FORMAT_BF16: return launch_tiles<FORMAT_BF16>(p, w, table, tiles, width, runs, s);
	case FORMAT_FP8: return launch_tiles<FORMAT_FP8>(p, w, table, tiles, width, runs, s);
	case FORMAT_NVFP4: return launch_tiles<FORMAT_NVFP4>(p, w, table, tiles, width, runs, s);
	default: return cudaErrorInvalidValue;
	}
}

cudaError_t launch_product(struct product p, struct packed_matrix w, cudaStream_t s)
{
	int width = p.T <= 8 ? 8 : p.T <= 16 ? 16 : p.T <= 32 ? 32 : 64;
	return launch_format(p, w, NULL, w.format, w.tiles, width, (p.T + width - 1) / width, s);
}

cudaError_t launch_product_grouped(struct product p, const struct packed_matrix *table, int format, int tiles,
				   cudaStream_t s)
{
	struct packed_matrix none = {};
	return launch_format(p, none, table, format, tiles, p.plan.width, p.plan.max_tiles, s);
}

cudaError_t launch_product_raw(struct product p, struct raw_matrix w, cudaStream_t s)
{
	return launch(product_rows, dim3((w.out + SLICES - 1) / SLICES, (p.T + RAW_ROWS - 1) / RAW_ROWS), SLICES * WARP, 0,
		      s, p, w, (const struct raw_matrix *)NULL);
}

/* plan.width is at most RAW_ROWS. */
cudaError_t launch_product_raw_grouped(struct product p, const struct raw_matrix *table, int out, cudaStream_t s)
{
	struct raw_matrix none = {};
	return launch(product_rows, dim3((out + SLICES - 1) / SLICES, p.plan.max_tiles), SLICES * WARP, 0, s, p, none, table);
}

cudaError_t launch_codes(uint8_t *to, int ld, const float *x, int ldx, int in, float input_scale, int rows,
			 int padded_rows, cudaStream_t s)
{
	return launch(code_rows, padded_rows, 256, 0, s, to, ld, x, ldx, in, input_scale, rows);
}

cudaError_t launch_finish(float *y, int ldy, const float *d, int ldd, const float *bias, int out, int T, int bf16,
			  cudaStream_t s)
{
	return launch(finish_rows, dim3((out + 255) / 256, T), 256, 0, s, y, ldy, d, ldd, bias, out, bf16);
}

cudaError_t launch_check(int *ptx_version, int *binary_version)
{
	struct cudaFuncAttributes a;
	cudaError_t e = cudaFuncGetAttributes(&a, (const void *)product_rows);
	if (e == cudaSuccess)
		*ptx_version = a.ptxVersion, *binary_version = a.binaryVersion;
	return e;
}
