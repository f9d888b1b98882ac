#include "launch.h"

/* Decode products: at most 8 token rows, weights read once.
 *
 * One block for each multiprocessor, two teams of 8 warps in it.  A team takes whole tiles of 16 outputs; a stage is 8
 * steps of a tile, contiguous in memory, one for each warp.  A producer warp for each team keeps a ring of stages full
 * by bulk copies that complete on a barrier in shared memory.  It starts before the kernel waits for its predecessor:
 * weights depend on nothing, so memory stays busy while the input rows are still being made, and half of a
 * multiprocessor's threads and shared memory are left for the next kernel to do the same.
 *
 * Kernels release their successor only after they have waited themselves.  So what a kernel does before it waits may
 * read what the kernel before its predecessor wrote: the expert products choose their experts there.
 *
 * Order of a sum: that of linear.cu. */

#define TEAMS 2
#define TEAM_THREADS (SLICES * WARP)
#define CONSUMERS (TEAMS * TEAM_THREADS)
#define THREADS (CONSUMERS + TEAMS * WARP)
#define HALF_SHARED (112 << 10)       /* of a multiprocessor, so that two kernels fit */
#define ALL_SHARED (220 << 10)
#define MAX_RING 16

/* ---- barriers in shared memory ---- */
__device__ static inline uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ static inline void barrier_init(uint64_t *b, int count)
{
	asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(shared_address(b)), "r"(count) : "memory");
}
__device__ static inline void barrier_arrive(uint64_t *b)
{
	asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" :: "r"(shared_address(b)) : "memory");
}
__device__ static inline void barrier_wait(uint64_t *b, int parity)
{
	asm volatile("{ .reg .pred p;\n"
		     "again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
		     "@p bra done; bra again; done: }" :: "r"(shared_address(b)), "r"(parity) : "memory");
}
/* Copies bytes (a multiple of 16) from global memory; `full` completes when they have arrived. */
__device__ static inline void copy_in(void *to, const void *from, int bytes, uint64_t *full)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("{ .reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1; }"
		     :: "r"(shared_address(full)), "r"(bytes) : "memory");
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
		     :: "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(full)) : "memory");
#endif
}
__device__ static inline void team_barrier(int team)
{
	asm volatile("bar.sync %0, %1;" :: "r"(2 + team), "n"(TEAM_THREADS) : "memory");
}

/* ---- shared memory ---- */
struct __align__(128) fixed {         /* what does not depend on shapes */
	uint64_t full[TEAMS][MAX_RING], empty[TEAMS][MAX_RING];
	float part[TEAMS][SLICES][STREAM_ROWS][TILE_ROWS];
	float route_part[TEAMS][SLICES];
	int active;                   /* experts that some row has chosen */
	int expert[STREAM_ENTRIES];   /* of each active one */
	int count[STREAM_ENTRIES];    /* its rows */
	int16_t entry[STREAM_ENTRIES][STREAM_ROWS];   /* entries of its rows, tokens ascending */
	int32_t choice[STREAM_ENTRIES];               /* [T, k]: the router's result */
	float weight[STREAM_ENTRIES];
};
struct place {                        /* of one tile */
	const char *w;
	int steps, segment, index, tile;      /* segment -1: expert `index` of the active ones */
};

__device__ static inline struct place locate(const struct stream_args &a, const struct fixed *s, int bytes, int id)
{
	struct place p;
	if (id >= a.tiles) {
		p.index = (id - a.tiles) / a.experts.tiles;
		p.tile = (id - a.tiles) % a.experts.tiles;
		p.segment = -1;
		p.steps = a.experts.steps;
		p.w = a.experts.base + s->expert[p.index] * a.experts.stride;
	} else {
		p.segment = 0;
		while (id >= a.w[p.segment].tiles)
			id -= a.w[p.segment++].tiles;
		p.index = 0;
		p.tile = id;
		p.steps = a.w[p.segment].steps;
		p.w = a.w[p.segment].weight;
	}
	p.w += (int64_t)p.tile * p.steps * bytes;
	return p;
}

__device__ static inline int tiles_of(const struct stream_args &a, const struct fixed *s)
{
	return a.tiles + (a.experts.route.E ? s->active * a.experts.tiles : 0);
}

/* ---- the producer: lane 0 of a warp of its own ---- */
template <int BYTES>
__device__ static void produce(const struct stream_args &a, struct fixed *s, char *ring, int team)
{
	int i = 0, all = tiles_of(a, s);
	for (int id = blockIdx.x * TEAMS + team; id < all; id += gridDim.x * TEAMS) {
		struct place p = locate(a, s, BYTES, id);
		for (int step = 0; step < p.steps; step += SLICES, i++) {
			int slot = i % a.ring;
			if (i >= a.ring)
				barrier_wait(&s->empty[team][slot], (i / a.ring - 1) & 1);
			copy_in(ring + (int64_t)slot * SLICES * BYTES, p.w + (int64_t)step * BYTES,
				min(SLICES, p.steps - step) * BYTES, &s->full[team][slot]);
		}
	}
}

/* ---- experts: who is chosen ---- */
/* By the 512 consumers; the same in every block.  shared: route_floats for each row. */
__device__ static void choose(const struct stream_args &a, struct fixed *s, float *shared)
{
	const struct route_args &r = a.experts.route;
	int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, T = a.input.T, n = T * r.k;
	if (warp < T)
		route_row(s->choice + warp * r.k, s->weight + warp * r.k, shared + warp * route_floats(r), r, warp);
	norm_barrier<1>();
	uint32_t *rows = (uint32_t *)shared;          /* bit t of rows[e]: token t chose expert e */
	for (int e = threadIdx.x; e < r.E; e += CONSUMERS)
		rows[e] = 0;
	norm_barrier<1>();
	if ((int)threadIdx.x < n)
		atomicOr(&rows[s->choice[threadIdx.x]], 1u << threadIdx.x / r.k);
	norm_barrier<1>();
	int *at = (int *)shared + r.E;                /* of each expert among the active ones */
	if (warp == 0) {
		int active = 0;
		for (int e0 = 0; e0 < r.E; e0 += WARP) {
			bool is = e0 + lane < r.E && rows[e0 + lane];
			uint32_t mask = __ballot_sync(FULL, is);
			if (is) {
				int j = active + __popc(mask & ((1u << lane) - 1));
				at[e0 + lane] = j;
				s->expert[j] = e0 + lane;
				s->count[j] = __popc(rows[e0 + lane]);
			}
			active += __popc(mask);
		}
		if (lane == 0)
			s->active = active;
	}
	norm_barrier<1>();
	if ((int)threadIdx.x < n) {
		int e = s->choice[threadIdx.x], t = threadIdx.x / r.k;
		s->entry[at[e]][__popc(rows[e] & ((1u << t) - 1))] = threadIdx.x;
	}
	if (blockIdx.x == 0 && a.experts.expert && (int)threadIdx.x < n) {
		a.experts.expert[threadIdx.x] = s->choice[threadIdx.x];
		a.experts.weight[threadIdx.x] = s->weight[threadIdx.x];
	}
}

/* ---- input rows into shared memory: by the 512 consumers ---- */
/* A normed row, as norm.cu makes it. */
__device__ static void norm_row(const struct stream_args &a, uint16_t *row, float *values, int t)
{
	const struct stream_input &in = a.input;
	float sum = 0;
	for (int c = threadIdx.x; c < in.in; c += NORM_THREADS) {
		float v = residual_value(in.r, t, c);
		values[c] = in.r.wide ? rounded(v, a.bf16) : v;
		sum += values[c] * values[c];
	}
	float scale = 1.0f / sqrtf(norm_sum<1>(sum) / in.in + in.eps);
	for (int c0 = 0; c0 < in.ld; c0 += NORM_THREADS) {
		int c = c0 + threadIdx.x;
		float v = c < in.in ? rounded(values[c] * scale * in.w[c], a.bf16) : 0.0f;
		if (in.leave && blockIdx.x == 0 && c < in.ld_leave)
			in.leave[t * in.ld_leave + c] = bf16_bits(v);
		v = act_value(v, in.act, in.input_scale);
		if (c < in.ld)
			row[c] = bf16_bits(v);
	}
}

/* A gated row, as norm.cu makes it: a warp for each group. */
__device__ static void gated_row(const struct stream_args &a, uint16_t *row, float *scales, int t)
{
	const struct stream_input &in = a.input;
	const float *y = in.x + (int64_t)t * in.in, *z = in.z + (int64_t)t * in.ldz;
	int size = in.in / in.groups;
	for (int g = threadIdx.x / WARP; g < in.groups; g += CONSUMERS / WARP) {
		float scale = gated_scale(y + g * size, z + g * size, size, in.eps);
		if (threadIdx.x % WARP == 0)
			scales[g] = scale;
	}
	norm_barrier<1>();
	for (int c0 = 0; c0 < in.ld; c0 += CONSUMERS) {
		int c = c0 + threadIdx.x;
		float v = c < in.in ? rounded(y[c] * silu(z[c]) * scales[c / size] * in.w[c], a.bf16) : 0.0f;
		v = act_value(v, in.act, in.input_scale);
		if (c < in.ld)
			row[c] = bf16_bits(v);
	}
}

__device__ static void make_rows(const struct stream_args &a, uint16_t *rows, float *scratch)
{
	const struct stream_input &in = a.input;
	for (int t = 0; t < in.T; t++) {
		uint16_t *row = rows + t * in.ld;
		if (in.kind == INPUT_NORM)
			norm_row(a, row, scratch, t);
		else if (in.kind == INPUT_GATED)
			gated_row(a, row, scratch, t);
		else if (in.kind == INPUT_ROWS)
			for (int c = threadIdx.x * 8; c < in.ld_leave; c += CONSUMERS * 8)
				*(uint4 *)(row + c) = *(const uint4 *)(in.rows + t * in.ld_leave + c);
		else
			for (int c0 = 0; c0 < in.ld; c0 += CONSUMERS) {
				int c = c0 + threadIdx.x;
				float v = act_value(c < in.in ? in.x[(int64_t)t * in.in + c] : 0.0f, in.act, in.input_scale);
				if (c < in.ld)
					row[c] = bf16_bits(v);
			}
		norm_barrier<1>();
	}
}

/* ---- router logits of the rows: a team for each expert, in the order of moe.cu ---- */
__device__ static void route_logits(const struct stream_args &a, struct fixed *s, const uint16_t *rows, int team)
{
	int i = threadIdx.x % TEAM_THREADS, H = a.input.in, T = a.input.T;
	for (int e = blockIdx.x * TEAMS + team; e < a.gate_rows; e += gridDim.x * TEAMS)
		for (int t = 0; t < T; t++) {
			float sum = 0;
#pragma unroll 4
			for (int c = i; c < H; c += ROUTE_THREADS)
				sum = fmaf(__ldg(a.gate + (int64_t)e * H + c), bf16_value(rows[t * a.input.ld + c]), sum);
			sum = warp_sum(sum);
			if (i % WARP == 0)
				s->route_part[team][i / WARP] = sum;
			team_barrier(team);
			if (i == 0) {
				for (int w = 1; w < SLICES; w++)
					sum += s->route_part[team][w];
				a.logits[t * a.gate_rows + e] = sum;
			}
			team_barrier(team);
		}
}

/* ---- results ---- */
__device__ static inline void put_conv(const struct stream_args &a, int t, int o, float v)
{
	const struct stream_conv &v_ = a.conv;
	int c = o - v_.first;
	if (c < 0 || c >= v_.channels) {
		a.y[0][(int64_t)t * a.ldy[0] + o] = v;
		return;
	}
	float *window = v_.state + v_.slots[t] * v_.stride + c;
	float u = conv_at(&v, 0, window, v_.w + c * v_.kernel, v_.bias ? v_.bias[c] : 0.0f, v_.channels, v_.kernel, 0);
	v_.u[(int64_t)t * v_.channels + c] = rounded(u, a.bf16);
	conv_shift(window, &v, 0, v_.channels, v_.kernel, 1);
}

__device__ static inline void put_kv(const struct stream_args &a, int segment, int t, int o, float v)
{
	const struct stream_kv &kv = a.kv;
	if (segment == 0) {
		a.y[0][(int64_t)t * a.ldy[0] + o] = v;
		return;
	}
	float scale = segment == 1 ? kv.k_scale : kv.v_scale;
	int64_t at = kv.slots[t] * (segment == 1 ? kv.k_stride : kv.v_stride) + (int64_t)kv.pos[t] * a.w[segment].out + o;
	store_from_float(segment == 1 ? kv.k_cache : kv.v_cache, at, kv.kind == KIND_FP8 ? v / scale : v, kv.kind);
}

__device__ static inline float squared(float v, int bf16)
{
	v = fmaxf(v, 0.0f);
	return rounded(v * v, bf16);
}

/* Output o of row t of a segment. */
__device__ static inline void put(const struct stream_args &a, int segment, int t, int o, float v)
{
	switch (a.output) {
	case OUTPUT_CONV: put_conv(a, t, o, v); break;
	case OUTPUT_KV: put_kv(a, segment, t, o, v); break;
	case OUTPUT_RELU2: a.y_bf16[(int64_t)t * a.ld_bf16 + o] = bf16_bits(squared(v, a.bf16)); break;
	default: a.y[segment][(int64_t)t * a.ldy[segment] + o] = v;
	}
}

/* Sums of a tile to their places: 16 outputs of up to 8 rows, a thread each. */
template <int F>
__device__ static inline void finish(const struct stream_args &a, struct fixed *s, const struct place &p, int team)
{
	int i = threadIdx.x % TEAM_THREADS, row = i / TILE_ROWS, o = p.tile * TILE_ROWS + i % TILE_ROWS;
	int rows = p.segment < 0 ? s->count[p.index] : a.input.T;
	if (row >= rows || i >= STREAM_ROWS * TILE_ROWS)
		return;
	float v = s->part[team][0][row][i % TILE_ROWS];
	for (int k = 1; k < SLICES; k++)
		v += s->part[team][k][row][i % TILE_ROWS];
	const struct stream_experts &e = a.experts;
	float scale = p.segment < 0 ? e.scale[s->expert[p.index]] : a.w[p.segment].scale;
	const float *bias = p.segment < 0 ? NULL : a.w[p.segment].bias;
	if (o >= (p.segment < 0 ? e.out : a.w[p.segment].out))
		return;
	v *= F == FORMAT_NVFP4 ? scale * NVFP4_RESCALE : scale;
	v = rounded(bias ? v + bias[o] : v, a.bf16);
	if (p.segment >= 0)
		put(a, p.segment, row, o, v);
	else if (e.is_down)
		e.down[(int64_t)s->entry[p.index][row] * e.out + o] = v;
	else
		e.up[(int64_t)s->entry[p.index][row] * e.ld_up + o] = bf16_bits(squared(v, a.bf16));
}

/* This lane's columns of its token row for a tile; NULL: no such row. */
__device__ static inline const uint16_t *row_of(const struct stream_args &a, const struct fixed *s, const struct place &p,
						 const uint16_t *rows)
{
	int g = threadIdx.x % WARP / 4, q = threadIdx.x % 4;
	if (p.segment >= 0)
		return g < a.input.T ? rows + g * a.input.ld + q * 8 : NULL;
	if (g >= s->count[p.index])
		return NULL;
	int entry = s->entry[p.index][g];
	return (a.experts.is_down ? a.experts.up + (int64_t)entry * a.experts.ld_up :
		rows + entry / a.experts.route.k * a.input.ld) + q * 8;
}

/* Tiles of a team: a warp takes its step of every stage. */
template <int F>
__device__ static void consume(const struct stream_args &a, struct fixed *s, const char *ring, const uint16_t *rows, int team)
{
	constexpr int BYTES = record<F>::BYTES;
	int lane = threadIdx.x % WARP, slice = threadIdx.x % TEAM_THREADS / WARP, g = lane / 4, q = lane % 4, i = 0;
	int all = tiles_of(a, s);
	for (int id = blockIdx.x * TEAMS + team; id < all; id += gridDim.x * TEAMS) {
		struct place p = locate(a, s, BYTES, id);
		const uint16_t *x[1] = { row_of(a, s, p, rows) };
		float acc[1][1][4] = {};
		for (int first = 0; first < p.steps; first += SLICES, i++) {
			int slot = i % a.ring;
			barrier_wait(&s->full[team][slot], i / a.ring & 1);
			if (first + slice < p.steps) {
				struct step<F> w[1];
				w[0].load_shared(shared_address(ring + ((int64_t)slot * SLICES + slice) * BYTES), lane);
				half_step<0, F, 1, 1>(acc, w, x, (first + slice) * TILE_STEP);
				half_step<1, F, 1, 1>(acc, w, x, (first + slice) * TILE_STEP);
			}
			__syncwarp();
			if (lane == 0)
				barrier_arrive(&s->empty[team][slot]);
		}
#pragma unroll
		for (int k = 0; k < 4; k++)
			s->part[team][slice][q * 2 + k % 2][g + k / 2 * 8] = acc[0][0][k];
		team_barrier(team);
		finish<F>(a, s, p, team);
		team_barrier(team);
	}
}

/* y = x W^T of up to 8 rows with what comes before and after it (struct stream_args).  A block owns every gridDim-th pair of
 * tiles.  Weights and bf16 rows aligned to 16; sums in a fixed order. */
template <int F> __device__ static void stream_block(const struct stream_args &a)
{
	extern __shared__ __align__(128) char shared[];
	constexpr int STAGE = SLICES * record<F>::BYTES;
	struct fixed *s = (struct fixed *)(shared + (int64_t)TEAMS * a.ring * STAGE);
	uint16_t *rows = (uint16_t *)(s + 1);
	float *scratch = (float *)(rows + (a.input.staged ? (int64_t)a.input.T * a.input.ld : 0));
	bool consumer = threadIdx.x < CONSUMERS;
	int team = consumer ? threadIdx.x / TEAM_THREADS : (threadIdx.x - CONSUMERS) / WARP;
	char *ring = shared + (int64_t)team * a.ring * STAGE;
	if (threadIdx.x == 0) {
		for (int i = 0; i < TEAMS * a.ring; i++) {
			barrier_init(&s->full[i / a.ring][i % a.ring], 1);
			barrier_init(&s->empty[i / a.ring][i % a.ring], SLICES);
		}
		asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	}
	bool early = a.experts.route.E && a.experts.is_down, late = a.experts.route.E && !a.experts.is_down;
	if (consumer && late) {
		grid_wait();
		grid_release();
	}
	if (consumer && (early || late))
		choose(a, s, scratch);
	__syncthreads();
	if (!consumer) {
		if (threadIdx.x % WARP == 0)
			produce<record<F>::BYTES>(a, s, ring, team);
		return;
	}
	if (!late) {
		grid_wait();
		grid_release();
	}
	if (a.input.staged)
		make_rows(a, rows, scratch);
	const uint16_t *x = a.input.staged ? rows : a.input.rows;
	if (a.experts.apply.h)
		residual_apply(a.experts.apply, a.input.T, blockIdx.x * CONSUMERS + threadIdx.x, gridDim.x * CONSUMERS);
	if (a.gate)
		route_logits(a, s, x, team);
	consume<F>(a, s, ring, x, team);
}

template <int F>
__global__ void __launch_bounds__(THREADS, 2) stream_tiles(const __grid_constant__ struct stream_args a)
{
	stream_block<F>(a);
}

/* With the convolution step: a name of its own for the audit. */
template <int F>
__global__ void __launch_bounds__(THREADS, 2) stream_conv_tiles(const __grid_constant__ struct stream_args a)
{
	stream_block<F>(a);
}

/* ---- launchers ---- */
/* Floats of scratch: a normed row, the scales of groups, or the router's values. */
static size_t scratch_bytes(const struct stream_args *a)
{
	size_t route = a->experts.route.E ? (size_t)a->input.T * route_floats(a->experts.route) : 0;
	size_t norm = a->input.kind == INPUT_NORM ? a->input.in : a->input.groups;
	return (route > norm ? route : norm) * sizeof(float) + 64;
}

template <int F> static cudaError_t launch_tiles(struct stream_args a, int blocks, cudaStream_t s)
{
	constexpr size_t STAGE = SLICES * record<F>::BYTES;
	size_t rows = a.input.staged ? (size_t)a.input.T * a.input.ld * sizeof(uint16_t) : 0;
	size_t fixed = sizeof(struct fixed) + rows + scratch_bytes(&a);
	size_t limit = fixed > 48 << 10 ? ALL_SHARED : HALF_SHARED;
	int most = a.tiles + (a.experts.route.E ? a.input.T * a.experts.route.k * a.experts.tiles : 0);
	if (fixed + 2 * TEAMS * STAGE > ALL_SHARED)
		return cudaErrorInvalidValue;
	a.ring = (int)((limit - fixed) / (TEAMS * STAGE));
	a.ring = a.ring < MAX_RING ? a.ring : MAX_RING;
	if (a.gate && most < a.gate_rows)
		most = a.gate_rows;
	if (blocks > (most + TEAMS - 1) / TEAMS)
		blocks = (most + TEAMS - 1) / TEAMS;
	return launch(a.output == OUTPUT_CONV ? stream_conv_tiles<F> : stream_tiles<F>, blocks, THREADS, fixed + TEAMS * a.ring * STAGE, s, a);
}

cudaError_t launch_stream(struct stream_args a, int format, int blocks, cudaStream_t s)
{
	switch (format) {
	case FORMAT_BF16: return launch_tiles<FORMAT_BF16>(a, blocks, s);
	case FORMAT_FP8: return launch_tiles<FORMAT_FP8>(a, blocks, s);
	case FORMAT_NVFP4: return launch_tiles<FORMAT_NVFP4>(a, blocks, s);
	default: return cudaErrorInvalidValue;
	}
}

cudaError_t launch_stream_open(void)
{
	const void *const kernels[] = { (const void *)stream_tiles<FORMAT_BF16>, (const void *)stream_tiles<FORMAT_FP8>,
					(const void *)stream_tiles<FORMAT_NVFP4>,
					(const void *)stream_conv_tiles<FORMAT_BF16>, (const void *)stream_conv_tiles<FORMAT_FP8>,
					(const void *)stream_conv_tiles<FORMAT_NVFP4> };
	for (const void *k : kernels) {
		cudaError_t e = cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, ALL_SHARED);
		if (e != cudaSuccess)
			return e;
	}
	return cudaGetLastError();
}
