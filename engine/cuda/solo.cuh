/* Blocks of solo.cu: the rings that bring their weights, a warp's product, and the input row that every block makes. */
#ifndef ASSAY_ENGINE_CUDA_SOLO_CUH
#define ASSAY_ENGINE_CUDA_SOLO_CUH

#include "launch.h"
#include "bulk.cuh"

#define TEAMS 2
#define TEAM (SLICES * WARP)
#define THREADS (TEAMS * TEAM)
#define WARPS (TEAMS * SLICES)
#define QUADS 2                       /* of four input values, of a thread: input of up to 4 * 2 * 512 */

/* Shared memory of a block, and places in the rings of its warps.  Two blocks with MUCH do not fit on a multiprocessor, nor two
 * with LITTLE beside one with MUCH: so the blocks of a kernel spread over all multiprocessors, whichever is free first.  One
 * with MUCH and one with LITTLE do fit: kernels that follow each other alternate, but for the pair with a state update
 * between them. */
#define MUCH_BYTES (116 << 10)
#define LITTLE_BYTES (88 << 10)
#define PLACES(bytes) ((bytes) / (WARPS * 1024))
template <int F> struct ring { enum { MUCH = PLACES(100 << 10), LITTLE = PLACES(72 << 10) }; };
template <> struct ring<FORMAT_BF16> { enum { MUCH = PLACES(50 << 10) < 2 ? 2 : PLACES(50 << 10), LITTLE = 2 }; };
template <> struct ring<FORMAT_NVFP4> { enum { MUCH = PLACES(196 << 10), LITTLE = PLACES(97 << 10) }; };

__device__ static inline int team(void) { return threadIdx.x / TEAM; }
__device__ static inline int slice(void) { return threadIdx.x / WARP % SLICES; }
__device__ static inline int lane(void) { return threadIdx.x % WARP; }
__device__ static inline void team_sync(void)
{
	if (team())
		asm volatile("bar.sync 2, %0;" :: "n"(TEAM) : "memory");
	else
		asm volatile("bar.sync 1, %0;" :: "n"(TEAM) : "memory");
}

/* ---- a warp's records ---- */
/* The records of a unit: `steps` of them, one behind the other. */
struct run { const char *w; int steps; };

/* A warp's ring of R places.  Each record is a group of asynchronous copies; a lane copies what it will read itself, but for
 * the block scales of NVFP4, which four lanes copy for all. */
template <int F, int R> struct feed {
	enum { BYTES = record<F>::BYTES };
	uint32_t ring, to, from;      /* the places to fill and to read next, as distances from the first */
	int room;                     /* places whose record has been used */
	int item, left;               /* the next run to ask for; records left of the last one, from `at` on */
	const char *at;               /* this lane's first 16 bytes of it */

	__device__ void open(char *shared)
	{
		ring = shared_address(shared) + threadIdx.x / WARP * R * BYTES;
		to = from = item = left = 0;
		room = R;
		at = NULL;
	}
	__device__ static uint32_t after(uint32_t place) { return place == (R - 1) * BYTES ? 0 : place + BYTES; }
	/* One group: the next record, or none. */
	__device__ void put(bool is)
	{
		uint32_t place = ring + to + lane() * 16;
#pragma unroll
		for (int j = 0; j < (BYTES + 511) / 512; j++)
			if (is && ((j + 1) * 512 <= BYTES || lane() < BYTES % 512 / 16))
				asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(place + j * 512), "l"(at + j * 512) : "memory");
		asm volatile("cp.async.commit_group;" ::: "memory");
		at += SLICES * BYTES;
		left--;
		to = after(to);
	}
	/* Goes to the next run that has records for this warp, if one is left. */
	template <class I> __device__ void seek(const I &items, int limit)
	{
#pragma unroll 1
		while (left <= 0 && item < limit) {
			struct run r = items.run_of(item++);
			left = (r.steps - slice() + SLICES - 1) / SLICES;
			at = r.w + slice() * BYTES + lane() * 16;
		}
	}
	/* Asks for records of items below `limit` while there is room.  all: no others follow; places left over count as filled, by
	 * groups of no copies, since `take` waits for all groups but the last R - 1. */
	template <class I> __device__ void fill(const I &items, int limit, bool all)
	{
#pragma unroll 1
		for (; room; room--) {
			seek(items, limit);
			if (left <= 0 && !all)
				return;
			put(left > 0);
		}
	}
	/* Where all records have been used: the ring is empty again. */
	__device__ void restart(void) { room = R; from = to; }
	/* The next record, which has been asked for. */
	__device__ void take(struct step<F> &w)
	{
		asm volatile("cp.async.wait_group %0;" :: "n"(R - 1) : "memory");
		__syncwarp();
		w.load_shared(ring + from, lane());
		from = after(from);
	}
	/* When the record has been used: asks for the next in its place. */
	template <class I> __device__ void refill(const I &items, int limit)
	{
		__syncwarp();
		if (left <= 0)
			seek(items, limit);
		put(left > 0);
	}
};

/* Of the one row, lanes 0 to 3 hold the columns; x of the others stays zero. */
__device__ static inline void load_row(uint4 x[2], uint32_t at)
{
	asm volatile("{ .reg .pred p; setp.lt.u32 p, %8, 4;\n"
		     "@p ld.shared.v4.u32 {%0, %1, %2, %3}, [%9];\n"
		     "@p ld.shared.v4.u32 {%4, %5, %6, %7}, [%9 + 64]; }"
		     : "+r"(x[0].x), "+r"(x[0].y), "+r"(x[0].z), "+r"(x[0].w), "+r"(x[1].x), "+r"(x[1].y), "+r"(x[1].z),
		       "+r"(x[1].w) : "r"(lane()), "r"(at) : "memory");
}

/* This warp's share of one run against a row in shared memory; the partial sums of 16 outputs go to part. */
template <int F, int R, class I>
__device__ static inline void multiply(float *part, struct feed<F, R> &f, const I &items, int limit, int steps, const uint16_t *row)
{
	float acc[4] = {};
	uint4 x[2] = {};
	uint32_t at = shared_address(row) + (lane() * 8 + slice() * TILE_STEP) * (int)sizeof(*row);
#pragma unroll 1
	for (int i = slice(); i < steps; i += SLICES, at += SLICES * TILE_STEP * sizeof(*row)) {
		struct step<F> w;
		load_row(x, at);
		f.take(w);
		multiply_step<F>(acc, w, x);
		f.refill(items, limit);
	}
	if (lane() % 4 == 0) {
		part[slice() * TILE_ROWS + lane() / 4] = acc[0];
		part[slice() * TILE_ROWS + lane() / 4 + 8] = acc[2];
	}
}

/* Output i of the tile, before scale and bias. */
__device__ static inline float sum_of(const float *part, int i)
{
	float v = part[i];
#pragma unroll
	for (int k = 1; k < SLICES; k++)
		v += part[k * TILE_ROWS + i];
	return v;
}

template <int F> __device__ static inline float scaled(float v, float scale)
{
	return v * (F == FORMAT_NVFP4 ? scale * NVFP4_RESCALE : scale);
}

/* ---- the input row ---- */
/* Sum over the block's first `warps` warps, as norm.cu adds it. */
__device__ static inline float block_sum(float x, float *part, int warps)
{
	x = warp_sum(x);
	if (lane() == 0)
		part[threadIdx.x / WARP] = x;
	__syncthreads();
	return warp_sum(lane() < warps ? part[lane()] : 0.0f);
}

/* The four input values w v scale, rounded and quantised, to the row (and to `keep`).  No part of its callers: every kernel
 * meets its code cold, so that little code counts for more than a call. */
__device__ static __noinline__ void store_input(uint16_t *row, const struct solo_input &n, int i, float4 v, float scale, float4 w)
{
	v = rounded_quad(make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w), 1);
	v = act_quad(v, n.act, 1.0f / n.input_scale);
	if (i >= n.ld / 4)
		return;
	store_quad(row + i * 4, v, n.act);
	if (n.keep && blockIdx.x == 0)
		store_quad(n.keep + i * 4, v, n.act);
}

/* The norm of norm.cu, bit by bit: n.threads threads take two quads each. */
__device__ static void norm_row(uint16_t *row, const struct solo_input &n, const float4 w[QUADS], float *part)
{
	float4 v[QUADS];
	float sum = 0;
#pragma unroll
	for (int j = 0; j < QUADS; j++) {
		int i = threadIdx.x + j * n.threads;
		v[j] = (int)threadIdx.x < n.threads && i < n.in / 4 ? __ldcg((const float4 *)n.x + i) : make_float4(0, 0, 0, 0);
		v[j] = rounded_quad(v[j], n.wide);
		sum += (v[j].x * v[j].x + v[j].y * v[j].y) + (v[j].z * v[j].z + v[j].w * v[j].w);
	}
	float scale = 1.0f / sqrtf(block_sum(sum, part, n.threads / WARP) / n.in + n.eps);
	if ((int)threadIdx.x >= n.threads)
		return;
#pragma unroll
	for (int j = 0; j < QUADS; j++)
		store_input(row, n, threadIdx.x + j * n.threads, v[j], scale, w[j]);
}

/* The gated norm of norm.cu, bit by bit, of values that are gated already. */
__device__ static void gated_row(uint16_t *row, const struct solo_input &n, const float4 w[QUADS], float *part)
{
	int warps = n.in / n.groups / (4 * WARP);
	float4 v[QUADS];
#pragma unroll
	for (int j = 0; j < QUADS; j++) {
		int i = threadIdx.x + j * THREADS;
		v[j] = i < n.in / 4 ? __ldcg((const float4 *)n.x + i) : make_float4(0, 0, 0, 0);
		float sum = warp_sum((v[j].x * v[j].x + v[j].y * v[j].y) + (v[j].z * v[j].z + v[j].w * v[j].w));
		if (lane() == 0)
			part[i / WARP] = sum;
	}
	__syncthreads();
#pragma unroll
	for (int j = 0; j < QUADS; j++) {
		int i = threadIdx.x + j * THREADS;
		const float *sums = part + i / WARP / warps * warps;
		float sum = sums[0];
#pragma unroll 1
		for (int k = 1; i < n.in / 4 && k < warps; k++)
			sum += sums[k];
		store_input(row, n, i, v[j], 1.0f / sqrtf(sum / (warps * 4 * WARP) + n.eps), w[j]);
	}
}

__device__ static inline void copy_row(uint16_t *to, const uint16_t *from, int n)
{
#pragma unroll 2
	for (int i = threadIdx.x; i < n / 8; i += THREADS)
		((uint4 *)to)[i] = __ldcg((const uint4 *)from + i);
}

/* Waits for the kernel before, then makes the row; all threads see it. */
__device__ static inline void make_row(uint16_t *row, const struct solo_input &n, float *part)
{
	float4 w[QUADS];
	int step = n.kind == SOLO_NORM ? n.threads : THREADS;
#pragma unroll
	for (int j = 0; j < QUADS; j++) {
		int i = threadIdx.x + j * step;
		w[j] = n.kind != SOLO_ROWS && (int)threadIdx.x < step && i < n.in / 4 ? __ldg((const float4 *)n.w + i) : make_float4(0, 0, 0, 0);
	}
	grid_wait();
	if (n.kind == SOLO_NORM)
		norm_row(row, n, w, part);
	else if (n.kind == SOLO_GATED)
		gated_row(row, n, w, part);
	else
		copy_row(row, n.rows, n.ld);
	__syncthreads();
}
#endif
