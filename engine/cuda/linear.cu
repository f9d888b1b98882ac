#include <stddef.h>
#include "launch.h"

/* Products of few or many token rows with a matrix, one block for some of its tiles.
 *
 * Order of a sum, whatever the number of rows: warp s takes steps s, s + 8, ... in ascending order; the eight partial
 * sums are added in the order of the warps.  stream.cu and wide.cu add in the same order. */

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
 * of each tile for token columns 2q and 2q + 1.  B: steps that are loaded together.  Weights and x aligned to 16.
 * Over 60 lines because the loads before the wait, the products and the sums share one set of registers. */
template <int F, int MT, int NT, int B>
__global__ void __launch_bounds__(SLICES * WARP) product_tiles(struct product p, struct packed_matrix w,
								const struct packed_matrix *table)
{
	constexpr int O = MT * TILE_ROWS, C = NT * 8, DIRECT = SLICES * O * C * 4 <= 32768;
	__shared__ float part[DIRECT ? SLICES : 1][C][O];
	int lane = threadIdx.x % WARP, slice = threadIdx.x / WARP, g = lane / 4, q = lane % 4, tile = blockIdx.x * MT;
	struct rows r;
	if (table) {
		grid_release();
		grid_wait();
		r = block_rows(p, C);
		if (!r.count)
			return;
		w = table[r.expert];
		if (product_of(w.format, w.act) != F || tile >= w.tiles)
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
					s[b][m].load(w.weight + ((int64_t)min(tile + m, w.tiles - 1) * w.steps + i0 + b * SLICES) *
						     record<F>::BYTES, lane);
		if (first) {
			if (!table) {
				grid_release();
				grid_wait();
			}
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
			half_step<1, F, MT, NT>(acc, s[b], xr, i * TILE_STEP);
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

/* ---- many rows ---- */
#define WIDE 128                      /* outputs and token rows of a block */
#define WIDE_THREADS 256
#define STAGES 4
#define ROW_BYTES (TILE_STEP * 2)     /* of a token row in a stage */

template <int F> struct stage { char w[WIDE / TILE_ROWS * record<F>::BYTES], x[WIDE * ROW_BYTES]; };

__device__ static inline void copy16(uint32_t to, const void *from)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}

/* Where 16 bytes of a token row lie: neighbouring rows swap their halves, so that 8 lanes meet 32 banks. */
__device__ static inline int row_at(int row, int unit) { return row * ROW_BYTES + (unit ^ (row & 1) << 2) * 16; }

/* What a thread brings of every step: some units of the block's tiles, unit `threadIdx.x % 8` of four rows. */
template <int F> struct share {
	enum { BYTES = record<F>::BYTES, UNITS = WIDE / TILE_ROWS * BYTES / 16, N = (UNITS + WIDE_THREADS - 1) / WIDE_THREADS,
	       ROWS = WIDE * 8 / WIDE_THREADS };
	const char *w[N], *x[ROWS];

	__device__ void open(const struct product &p, const struct packed_matrix &m, struct rows r, int tile)
	{
#pragma unroll
		for (int k = 0; k < N; k++) {
			int i = threadIdx.x + k * WIDE_THREADS;
			w[k] = m.weight + (int64_t)min(tile + i / (BYTES / 16), m.tiles - 1) * m.steps * BYTES + i % (BYTES / 16) * 16;
		}
#pragma unroll
		for (int k = 0; k < ROWS; k++)
			x[k] = (const char *)p.x + ((int64_t)x_row(p, r.first + min((int)threadIdx.x / 8 + k * (WIDE_THREADS / 8), r.count - 1)) *
						    p.ldx + threadIdx.x % 8 * 8) * sizeof(uint16_t);
	}
	__device__ void fetch(uint32_t to, int step) const
	{
#pragma unroll
		for (int k = 0; k < N; k++)
			if ((k + 1) * WIDE_THREADS <= UNITS || (int)threadIdx.x + k * WIDE_THREADS < UNITS)
				copy16(to + (threadIdx.x + k * WIDE_THREADS) * 16, w[k] + (uint32_t)(step * BYTES));
#pragma unroll
		for (int k = 0; k < ROWS; k++)
			copy16(to + offsetof(struct stage<F>, x) + row_at(threadIdx.x / 8, threadIdx.x % 8) + k * (WIDE_THREADS / 8) * ROW_BYTES,
			       x[k] + (uint32_t)(step * ROW_BYTES));
	}
};

/* One step of a warp's 2 tiles and N runs of 8 rows, 16 rows apart. */
template <int F, int N> __device__ static inline void multiply(float acc[2][8][4], const struct stage<F> *s, int m0, int n0)
{
	int lane = threadIdx.x % WARP, g = lane / 4, q = lane % 4;
	struct step<F> r[2];
#pragma unroll
	for (int m = 0; m < 2; m++)
		r[m].load_shared((uint32_t)__cvta_generic_to_shared(s->w + (m0 + m) * record<F>::BYTES), lane);
#pragma unroll
	for (int u = 0; u < 2; u++) {
		uint32_t a[2][4], b[2][4];
#pragma unroll
		for (int m = 0; m < 2; m++)
			if (u)
				r[m].template unpack<1>(a[m], b[m]);
			else
				r[m].template unpack<0>(a[m], b[m]);
#pragma unroll
		for (int n = 0; n < N; n++) {
			uint4 x = *(const uint4 *)(s->x + row_at(n0 + n * 16 + g, u * 4 + q));
#pragma unroll
			for (int m = 0; m < 2; m++) {
				mma<F == PRODUCT_W8A8>(acc[m][n], a[m][0], b[m][0], a[m][1], b[m][1], x.x, x.y);
				mma<F == PRODUCT_W8A8>(acc[m][n], a[m][2], b[m][2], a[m][3], b[m][3], x.z, x.w);
			}
		}
	}
}

/* All steps of N runs of rows, slice by slice, so that the sums are those of product_tiles. */
template <int F, int N>
__device__ static inline void all_steps(float sum[2][8][4], struct stage<F> *stages, const struct share<F> &mine, int steps,
					int m0, int n0)
{
	float acc[2][8][4] = {};
	int asked = 0, first = 0, step = 0, slice = 0, next = 0;
#pragma unroll 1
	for (int k = 1 - STAGES; k < steps; k++) {
		if (k >= 0) {
			asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
			__syncthreads();
		}
		if (asked < steps) {
			mine.fetch((uint32_t)__cvta_generic_to_shared(stages + asked++ % STAGES), step);
			step += SLICES;
			if (step >= steps)
				step = ++first;
		}
		asm volatile("cp.async.commit_group;" ::: "memory");
		if (k < 0)
			continue;
		multiply<F, N>(acc, stages + k % STAGES, m0, n0);
		next += SLICES;
		if (next < steps)
			continue;
#pragma unroll
		for (int i = 0; i < 8 * N; i++) {
			float *a = &acc[i / 4 / N][i / 4 % N][i % 4], *s = &sum[i / 4 / N][i / 4 % N][i % 4];
			*s = slice ? *s + *a : *a;
			*a = 0;
		}
		next = ++slice;
	}
}

/* For many rows where wide.cu has no kernel: a block owns 8 tiles and up to 128 token rows, warp w tiles 2 (w / 2) and + 1 for
 * every other run of 8 rows.  Weights and x aligned to 16. */
template <int F>
__global__ void __launch_bounds__(WIDE_THREADS, 1) product_wide(struct product p, struct packed_matrix w,
								 const struct packed_matrix *table)
{
	extern __shared__ __align__(128) char shared[];
	struct stage<F> *stages = (struct stage<F> *)shared;
	int tile = blockIdx.x * (WIDE / TILE_ROWS), m0 = threadIdx.x / WARP / 2 * 2, n0 = threadIdx.x / WARP % 2 * 8;
	grid_release();
	grid_wait();
	struct rows r = block_rows(p, WIDE);
	if (!r.count)
		return;
	if (table)
		w = table[r.expert];
	if (product_of(w.format, w.act) != F || tile >= w.tiles)
		return;
	struct share<F> mine;
	float sum[2][8][4];
	mine.open(p, w, r, tile);
	if (r.count > 96)
		all_steps<F, 8>(sum, stages, mine, w.steps, m0, n0);
	else if (r.count > 64)
		all_steps<F, 6>(sum, stages, mine, w.steps, m0, n0);
	else
		all_steps<F, 4>(sum, stages, mine, w.steps, m0, n0);
	float scale = F == FORMAT_NVFP4 ? w.scale * NVFP4_RESCALE : w.scale;
	int g = threadIdx.x % WARP / 4, q = threadIdx.x % 4;
#pragma unroll
	for (int i = 0; i < 64; i++) {
		int o = (tile + m0 + i / 32) * TILE_ROWS + g + i % 4 / 2 * 8, c = n0 + i / 4 % 8 * 16 + q * 2 + i % 2;
		float v = sum[i / 32][i / 4 % 8][i % 4];
		if (o < w.out && c < r.count)
			store(p, w.bias, scale, y_row(p, r.first + c), o, w.steps < SLICES ? v + 0.0f : v);
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
/* to[e,:] = quantised x[e / div,:].  A block owns 256 columns of a row, a thread one; sixteen neighbouring lanes share an
 * NVFP4 block. */
__global__ void act_rows(void *to, int ld, int packed, const float *x, int ldx, int div, int in, int act,
			 float input_scale, const struct packed_matrix *table, const struct raw_matrix *raw_table,
			 const int32_t *expert)
{
	int e = blockIdx.x, c = blockIdx.y * blockDim.x + threadIdx.x;
	grid_release();
	grid_wait();
	if (table)
		act = table[expert[e]].act, input_scale = table[expert[e]].input_scale;
	if (raw_table)
		act = raw_table[expert[e]].act, input_scale = raw_table[expert[e]].input_scale;
	float v = act_value(c < in ? x[(int64_t)(e / div) * ldx + c] : 0.0f, act, 1.0f / input_scale);
	if (c >= ld)
		return;
	if (packed)
		((uint16_t *)to)[(int64_t)e * ld + (packed == 2 ? wide_column(c) : c)] = operand_bits(v, act);
	else
		((float *)to)[(int64_t)e * ld + c] = v;
}

/* The same for packed rows whose columns come in fours.  A thread owns four, four neighbouring lanes an NVFP4 block. */
__global__ void __launch_bounds__(256) act_quads(uint16_t *to, int ld, int wide, const float *x, int ldx, int div, int in, int act,
						  float input_scale, const struct packed_matrix *table, const int32_t *expert, int rows)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	int quads = ld / 4, e = (int)(i / quads), c = (int)(i % quads) * 4;
	grid_release();
	grid_wait();
	bool is = e < rows;
	if (table && is)
		act = table[expert[e]].act, input_scale = table[expert[e]].input_scale;
	float4 v = is && c < in ? *(const float4 *)(x + (int64_t)(e / div) * ldx + c) : make_float4(0, 0, 0, 0);
	v = act_quad(v, act, 1.0f / input_scale);
	uint16_t *row = to + (int64_t)e * ld;
	if (is && !wide)
		store_quad(row + c, v, act);
	else if (is) {
		*(ushort2 *)(row + wide_column(c)) = make_ushort2(operand_bits(v.x, act), operand_bits(v.y, act));
		*(ushort2 *)(row + wide_column(c + 2)) = make_ushort2(operand_bits(v.z, act), operand_bits(v.w, act));
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

__device__ static uint32_t raw_scale(const struct raw_matrix &w, int row, int block)
{
	return row < w.out && block * 16 < w.in ? w.block_scale[(int64_t)row * (w.in / 16) + block] : 0;
}

/* The eight columns from `col` of one row in the form that unpack reads: 16, 8 or 4 bytes. */
__device__ static void pack_run(uint32_t *to, const struct raw_matrix &w, int row, int col)
{
	uint32_t c[8];
	bool zero = w.format == FORMAT_NVFP4 && raw_scale(w, row, col / 16) == 0;
	for (int i = 0; i < 8; i++)
		c[i] = zero ? 0 : raw_code(w, row, col + i);
	if (w.format == FORMAT_BF16)
		for (int i = 0; i < 4; i++)
			to[i] = c[2 * i] | c[2 * i + 1] << 16;
	else if (w.format == FORMAT_FP8)
		for (int i = 0; i < 2; i++)
			to[i] = c[4 * i] | c[4 * i + 1] << 8 | c[4 * i + 2] << 16 | c[4 * i + 3] << 24;
	else {
		uint32_t even[4] = { c[0], c[2], c[4], c[6] }, odd[4] = { c[1], c[3], c[5], c[7] };
		to[0] = nvfp4_half(even) | nvfp4_half(odd) << 16;
	}
}

/* A warp owns one record, a lane what it will load there. */
__global__ void pack_records(char *to, struct raw_matrix w, int tiles, int steps)
{
	int64_t i = (int64_t)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
	int lane = threadIdx.x % WARP, g = lane / 4, q = lane % 4, f = w.format;
	int row = (int)(i / steps) * TILE_ROWS + g, first = (int)(i % steps) * TILE_STEP;
	int bytes = f == FORMAT_BF16 ? record<FORMAT_BF16>::BYTES : f == FORMAT_FP8 ? record<FORMAT_FP8>::BYTES :
		    record<FORMAT_NVFP4>::BYTES;
	if (i >= (int64_t)tiles * steps)
		return;
	uint32_t *at = (uint32_t *)(to + i * bytes);
	for (int j = 0; j < 4; j++)                  /* half j / 2, row g or g + 8 */
		pack_run(f == FORMAT_BF16 ? at + (j * WARP + lane) * 4 : f == FORMAT_FP8 ?
			 at + (j / 2 * WARP + lane) * 4 + j % 2 * 2 : at + lane * 4 + j,
			 w, row + j % 2 * 8, first + j / 2 * 32 + q * 8);
	if (f == FORMAT_NVFP4 && q % 2 == 0) {
		int block = first / 16 + q / 2;
		at[128 + g * 2 + q / 2] = scale_code(raw_scale(w, row, block)) | scale_code(raw_scale(w, row + 8, block)) << 8 |
			scale_code(raw_scale(w, row, block + 2)) << 16 | scale_code(raw_scale(w, row + 8, block + 2)) << 24;
	}
}

/* ---- launchers ---- */
cudaError_t launch_pack(char *to, struct raw_matrix from, int tiles, int steps, cudaStream_t s)
{
	int64_t warps = (int64_t)tiles * steps;
	return launch(pack_records, (unsigned)((warps + 7) / 8), 256, 0, s, to, from, tiles, steps);
}

cudaError_t launch_act(void *to, int ld, int packed, const float *x, int ldx, int div, int in, int act, float input_scale,
		       const struct packed_matrix *table, const struct raw_matrix *raw_table, const int32_t *expert,
		       int rows, cudaStream_t s)
{
	if (packed && !raw_table && in % 4 == 0 && ldx % 4 == 0 && (uintptr_t)x % 16 == 0)
		return launch(act_quads, (unsigned)(((int64_t)rows * (ld / 4) + 255) / 256), 256, 0, s, (uint16_t *)to, ld, packed == 2, x, ldx, div, in,
			      act, input_scale, table, expert, rows);
	return launch(act_rows, dim3(rows, (ld + 255) / 256), 256, 0, s, to, ld, packed, x, ldx, div, in, act, input_scale, table, raw_table,
		      expert);
}

template <int F>
static cudaError_t launch_tiles(struct product p, struct packed_matrix w, const struct packed_matrix *table, int tiles,
				int width, int runs, cudaStream_t s)
{
	constexpr int B = F == FORMAT_NVFP4 ? 6 : F == FORMAT_BF16 ? 2 : 3;
	if (width <= 8)
		return launch(product_tiles<F, 1, 1, B>, dim3(tiles, runs), 256, 0, s, p, w, table);
	if (width <= 16)
		return launch(product_tiles<F, 1, 2, B>, dim3(tiles, runs), 256, 0, s, p, w, table);
	if (width <= 32)
		return launch(product_tiles<F, 2, 4, 1>, dim3((tiles + 1) / 2, runs), 256, 0, s, p, w, table);
	if (width <= 64)
		return launch(product_tiles<F, 4, 8, 1>, dim3((tiles + 3) / 4, runs), 256, 0, s, p, w, table);
	size_t shared = STAGES * sizeof(struct stage<F>);
	cudaFuncSetAttribute(product_wide<F>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
	return launch(product_wide<F>, dim3((tiles + 7) / 8, runs), WIDE_THREADS, shared, s, p, w, table);
}

static cudaError_t launch_kind(struct product p, struct packed_matrix w, const struct packed_matrix *table, int kind,
			       int tiles, int width, int runs, cudaStream_t s)
{
	if (product_is_wide(width))
		return launch_product_wide(p, w, table, kind, tiles, runs, s);
	switch (kind) {
	case FORMAT_BF16: return launch_tiles<FORMAT_BF16>(p, w, table, tiles, width, runs, s);
	case FORMAT_FP8: return launch_tiles<FORMAT_FP8>(p, w, table, tiles, width, runs, s);
	case FORMAT_NVFP4: return launch_tiles<FORMAT_NVFP4>(p, w, table, tiles, width, runs, s);
	case PRODUCT_W8A8: return launch_tiles<PRODUCT_W8A8>(p, w, table, tiles, width, runs, s);
	default: return cudaErrorInvalidValue;
	}
}

cudaError_t launch_product(struct product p, struct packed_matrix w, cudaStream_t s)
{
	int width = p.T <= 8 ? 8 : p.T <= 16 ? 16 : p.T <= 32 ? 32 : p.T <= 64 ? 64 : WIDE;
	return launch_kind(p, w, NULL, product_of(w.format, w.act), w.tiles, width, (p.T + width - 1) / width, s);
}

cudaError_t launch_product_grouped(struct product p, const struct packed_matrix *table, int kind, int tiles,
				   cudaStream_t s)
{
	struct packed_matrix none = {};
	return launch_kind(p, none, table, kind, tiles, p.plan.width, p.plan.max_tiles, s);
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
