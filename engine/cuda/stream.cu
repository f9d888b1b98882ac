#include "launch.h"
#include "bulk.cuh"

/* Decode products: at most 8 token rows, weights read once (sm_90 and later).
 *
 * A block owns one tile of 16 outputs.  Its weights are contiguous; bulk copies that complete on barriers in shared memory
 * ask for the first of them before the kernel waits for its predecessor, and for the others as they arrive.  Blocks of the
 * next kernel take the places of those that end and do the same, so memory stays busy across kernels; small kernels between
 * two products (norms, state updates) cost little, since the weights behind them are already on their way.
 *
 * Kernels release their successor at once.  Only the up projection of chosen experts does so after it has waited: then the
 * kernel before it has ended when its successor, their down projection, starts and reads the choice before it waits.
 *
 * Order of a sum: that of linear.cu. */

#ifndef WARPS
#define WARPS 4                       /* a warp takes SHARE slices: fewer warps spend less on what every warp does */
#endif
#define SHARE (SLICES / WARPS)
#define THREADS (WARPS * WARP)
#define MAX_SLOTS 16
/* Stages of a tile that are on their way at a time.  More of them keep the memory no busier, but whatever else is asked for, a
 * row or what a small kernel between two products reads, would stand in line behind them. */
#define DEPTH 2

/* ---- a tile ---- */
struct fixed { uint64_t full[MAX_SLOTS], empty[MAX_SLOTS]; };

struct place {
	const char *w;
	int steps, tile, segment;     /* segment -1: a routed expert */
	int expert, count;            /* its rows */
	const int16_t *entry;         /* [count], of an expert's rows; NULL: the one row is token 0's choice `only` */
	int only;
};

/* The tile of this block; steps 0: none.  Segments first, then experts, whose choice is read: `wait` for it. */
template <int F, bool EXPERTS>
__device__ static inline struct place locate(const struct stream_args &a, bool wait)
{
	struct place p = {};
	int id = blockIdx.x;
	if (!EXPERTS || id < a.tiles) {
		while (id >= a.w[p.segment].tiles)
			id -= a.w[p.segment++].tiles;
		p.tile = id, p.steps = a.w[p.segment].steps, p.count = a.T;
		p.w = a.w[p.segment].weight + (int64_t)id * p.steps * record<F>::BYTES;
		return p;
	}
	const struct stream_experts &e = a.experts;
	int j = (id - a.tiles) / e.tiles;
	p.segment = -1, p.tile = (id - a.tiles) % e.tiles;
	if (wait)
		grid_wait();
	if (a.T == 1) {
		p.count = 1, p.only = j;
	} else {
		if (j >= __ldcg(&a.plan->active))
			return p;
		p.count = __ldcg(&a.plan->count[j]), p.entry = a.plan->entry[j];
	}
	p.expert = __ldcg(&a.plan->expert[j]);
	p.steps = e.steps;
	p.w = e.base + p.expert * e.stride + (int64_t)p.tile * p.steps * record<F>::BYTES;
	return p;
}

/* Row `row` of an expert: token << 8 | slot. */
__device__ static inline int entry_of(const struct place &p, int row) { return p.entry ? __ldcg(p.entry + row) : p.only; }
__device__ static inline int64_t entry_row(const struct stream_args &a, int entry) { return (entry >> 8) * a.route.k + (entry & 255); }

/* Stage i of the tile: SLICES steps. */
template <int F>
__device__ static inline void fetch(struct fixed *s, char *ring, const struct place &p, int slots, int i)
{
	constexpr int STAGE = SLICES * record<F>::BYTES;
	int slot = i < slots ? i : i % slots;
	copy_in(ring + slot * STAGE, p.w + (int64_t)i * STAGE, min((int)SLICES, p.steps - i * SLICES) * record<F>::BYTES,
		&s->full[slot]);
}

/* ---- results ---- */
template <bool CONV>
__device__ static inline struct early load_early(const struct stream_args &a, const struct place &p, int row, int o)
{
	struct early e = {};
	if (row >= p.count)
		return e;
	if (p.segment < 0) {
		e.scale = a.experts.scale[p.expert];
		return e;
	}
	const struct packed_matrix &m = a.w[p.segment];
	e.scale = m.scale;
	e.bias = m.bias && o < m.out ? m.bias[o] : 0.0f;
	if (CONV)
		early_conv(e, a.conv, a.slots, row, o);
	return e;
}

/* Output o of row t of a segment. */
template <bool CONV>
__device__ static inline void put(const struct stream_args &a, const struct early &e, int segment, int t, int o, float v)
{
	if (CONV)
		put_conv(a.conv, e, a.y[0] + (int64_t)t * a.ldy[0], a.slots, t, o, v, a.bf16);
	else if (a.output == OUTPUT_KV)
		put_kv(a.kv, segment, a.y[0] + (int64_t)t * a.ldy[0], a.slots[t], t, o, a.w[segment].out, v);
	else if (a.output == OUTPUT_RELU2)
		a.y_bf16[(int64_t)t * a.ld_bf16 + o] = bf16_bits(squared(v, a.bf16));
	else
		a.y[segment][(int64_t)t * a.ldy[segment] + o] = v;
}

/* The sum of row `row`, output i of the tile, to its place.  part: of each slice, where its first record was: [T][16]. */
template <int F, bool CONV>
__device__ static inline void finish(const struct stream_args &a, const struct place &p, const struct early &e,
				     const char *part, int row, int i)
{
	const struct stream_experts &x = a.experts;
	int o = p.tile * TILE_ROWS + i;
	if (row >= p.count || o >= (p.segment < 0 ? x.out : a.w[p.segment].out))
		return;
	const char *sum = part + (row * TILE_ROWS + i) * sizeof(float);
	float v = *(const float *)sum;
#pragma unroll
	for (int k = 1; k < SLICES; k++)
		v += *(const float *)(sum + k * record<F>::BYTES);
	v *= F == FORMAT_NVFP4 ? e.scale * NVFP4_RESCALE : e.scale;
	if (p.segment >= 0 && a.w[p.segment].bias)
		v += e.bias;
	v = rounded(v, a.bf16);
	if (p.segment >= 0)
		put<CONV>(a, e, p.segment, row, o, v);
	else if (x.is_down)
		x.down[entry_row(a, entry_of(p, row)) * x.out + o] = v;
	else
		x.up[entry_row(a, entry_of(p, row)) * x.ld_up + o] = bf16_bits(squared(v, a.bf16));
}

/* ---- the product ---- */
/* Operand row g of the tile. */
__device__ static inline const uint16_t *row_of(const struct stream_args &a, const struct place &p, int g)
{
	if (p.segment >= 0)
		return a.rows + (int64_t)g * a.ld;
	int entry = entry_of(p, g);
	return a.experts.is_down ? a.experts.up + entry_row(a, entry) * a.experts.ld_up :
		a.experts.rows + (int64_t)(entry >> 8) * a.experts.ld;
}

/* The rows in shared memory, where there is room for them, 64 bytes apart so that their banks differ. */
__device__ static inline void bring_rows(const struct stream_args &a, const struct place &p, char *to)
{
	int units = p.steps * (TILE_STEP / 8);
	for (int g = 0; g < p.count; g++) {
		const uint4 *from = (const uint4 *)row_of(a, p, g);
#pragma unroll 4
		for (int i = threadIdx.x; i < units; i += THREADS)
			((uint4 *)(to + g * a.row_bytes))[i] = from[i];
	}
	__syncthreads();
}

/* The one row of chosen experts, asked for before their weights are: it would come behind them.  At most 4096 columns. */
struct early_row { uint4 v[SOLO_INPUT / 8 / THREADS]; };
__device__ static inline void ask_row(struct early_row &r, const uint16_t *from, int units)
{
#pragma unroll
	for (int k = 0; k < SOLO_INPUT / 8 / THREADS; k++)
		if ((int)threadIdx.x + k * THREADS < units)
			r.v[k] = __ldcg((const uint4 *)from + threadIdx.x + k * THREADS);
}
__device__ static inline void keep_row(const struct early_row &r, char *to, int units)
{
#pragma unroll
	for (int k = 0; k < SOLO_INPUT / 8 / THREADS; k++)
		if ((int)threadIdx.x + k * THREADS < units)
			((uint4 *)to)[threadIdx.x + k * THREADS] = r.v[k];
	__syncthreads();
}

/* Both halves of a step's columns; x stays as it was, zero, where there is no row. */
__device__ static inline void load_row(uint4 x[2], const uint16_t *at, bool is)
{
	asm volatile("{ .reg .pred p; setp.ne.u32 p, %8, 0;\n"
		     "@p ld.v4.u32 {%0, %1, %2, %3}, [%9];\n"
		     "@p ld.v4.u32 {%4, %5, %6, %7}, [%9 + 64]; }"
		     : "+r"(x[0].x), "+r"(x[0].y), "+r"(x[0].z), "+r"(x[0].w), "+r"(x[1].x), "+r"(x[1].y), "+r"(x[1].z),
		       "+r"(x[1].w) : "r"((uint32_t)is), "l"(at));
}
/* From shared memory. */
__device__ static inline void load_row(uint4 x[2], uint32_t at, bool is)
{
	asm volatile("{ .reg .pred p; setp.ne.u32 p, %8, 0;\n"
		     "@p ld.shared.v4.u32 {%0, %1, %2, %3}, [%9];\n"
		     "@p ld.shared.v4.u32 {%4, %5, %6, %7}, [%9 + 64]; }"
		     : "+r"(x[0].x), "+r"(x[0].y), "+r"(x[0].z), "+r"(x[0].w), "+r"(x[1].x), "+r"(x[1].y), "+r"(x[1].z),
		       "+r"(x[1].w) : "r"((uint32_t)is), "r"(at));
}

/* A warp takes its steps of every stage, and loads the rows under the next ones once these are done.  Where the ring holds fewer stages
 * than the tile has, the others are asked for as places come free.  row: this lane's columns of its row, a pointer or an
 * address in shared memory; is: there is one. */
template <int F, typename R>
__device__ static inline void multiply(struct fixed *s, char *ring, const struct place &p, int slots, R row, bool is, float acc[SHARE][4])
{
	constexpr int STAGE = SLICES * record<F>::BYTES, HOP = WARPS * record<F>::BYTES;
	constexpr int WIDTH = TILE_STEP * (sizeof(R) == sizeof(uint32_t) ? (int)sizeof(uint16_t) : 1);
	int lane = threadIdx.x % WARP, slice = threadIdx.x / WARP, slot = 0, lap = 0;
	int asked = min(slots, (p.steps + SLICES - 1) / SLICES), next = threadIdx.x ? asked : DEPTH;
	bool refill = p.steps > slots * SLICES;
	uint32_t from = shared_address(ring) + slice * record<F>::BYTES, gate = shared_address(s->full);
	uint32_t codes = from + step<F>::codes_at(lane), scales = from + step<F>::scales_at(lane);
	uint4 x[SHARE][2] = {};
	asm volatile("" : "+r"(codes), "+r"(scales), "+r"(gate));      /* computed once */
	row += slice * WIDTH;
#pragma unroll
	for (int h = 0; h < SHARE; h++)
		load_row(x[h], row + h * WARPS * WIDTH, is && slice + h * WARPS < p.steps);
#pragma unroll 1
	for (int i = slice; i - slice < p.steps; i += SLICES) {
		row += SLICES * WIDTH;
		barrier_wait(gate, lap);
		if (next < asked)
			fetch<F>(s, ring, p, slots, next++);
#pragma unroll
		for (int h = 0; h < SHARE; h++)
			if (i + h * WARPS < p.steps) {
				struct step<F> w;
				w.load_shared_at(codes + h * HOP, scales + h * HOP);
				multiply_step<F>(acc[h], w, x[h]);
				load_row(x[h], row + h * WARPS * WIDTH, is && i + SLICES + h * WARPS < p.steps);
			}
		if (refill) {
			int ahead = i - slice + slots * SLICES;
			__syncwarp();
			if (lane == 0)
				barrier_arrive(&s->empty[slot]);
			if (threadIdx.x == 0 && ahead < p.steps) {
				barrier_wait(&s->empty[slot], lap);
				fetch<F>(s, ring, p, slots, ahead / SLICES);
			}
		}
		codes += STAGE, scales += STAGE, gate += sizeof(uint64_t);
		if (++slot == slots) {
			codes -= slots * STAGE, scales -= slots * STAGE, gate -= slots * sizeof(uint64_t);
			slot = 0, lap ^= 1;
		}
	}
}

/* ---- the router ---- */
#define RANKED 512                    /* most experts that a block ranks */
__device__ static inline bool ranks(const struct route_args &r) { return r.n_group <= 1 && r.E <= RANKED && r.k <= THREADS && r.k <= STREAM_ENTRIES; }

/* By a block: the choice of a single token without groups, by rank: each thread counts who comes before its expert. */
__device__ static inline void choose_by_rank(const struct route_args &r, int32_t *expert, float *weight, float *scratch)
{
	__shared__ int32_t choice[STREAM_ENTRIES];
	float *score = scratch, sum = 0;
	uint32_t *order = (uint32_t *)(scratch + r.E);
	float logit[RANKED / THREADS], bias[RANKED / THREADS];
#pragma unroll
	for (int j = 0; j < RANKED / THREADS; j++) {
		int e = threadIdx.x + j * THREADS;
		logit[j] = e < r.E ? __ldcg(r.logits + e) : 0.0f;
		bias[j] = e < r.E ? __ldg(r.bias + e) : 0.0f;
	}
#pragma unroll
	for (int j = 0; j < RANKED / THREADS; j++) {
		int e = threadIdx.x + j * THREADS;
		if (e < r.E) {
			score[e] = 1.0f / (1.0f + expf(-logit[j]));
			order[e] = order_of(score[e] + bias[j]);
		}
	}
	__syncthreads();
#pragma unroll 1
	for (int e = threadIdx.x; e < r.E; e += THREADS) {
		uint32_t mine = order[e];
		int rank = 0;
#pragma unroll 8
		for (int i = 0; i < r.E; i++)
			rank += order[i] > mine || (order[i] == mine && i < e);
		if (rank < r.k)
			expert[rank] = choice[rank] = e;
	}
	__syncthreads();
	if ((int)threadIdx.x >= r.k)
		return;
#pragma unroll 1
	for (int i = 0; i < r.k; i++)
		sum += score[choice[i]];
	float w = score[choice[threadIdx.x]];
	weight[threadIdx.x] = (r.norm ? w / (sum + 1e-20f) : w) * r.scaling;
}

/* By a block: a warp routes a token; then the experts that some token chose, in ascending order, with their rows. */
__device__ static void choose_experts(const struct route_args &r, struct stream_plan *plan, float *weight, float *scratch, int T)
{
	__shared__ int32_t choice[STREAM_ENTRIES];
	int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, n = T * r.k;
	if (T == 1 && ranks(r)) {
		choose_by_rank(r, plan->expert, weight, scratch);
		return;
	}
#pragma unroll 1
	for (int t = warp; t < T; t += WARPS)
		route_row(choice + t * r.k, weight + t * r.k, scratch + t * route_floats(r), r, t);
	__syncthreads();
	if (T == 1) {
		for (int i = threadIdx.x; i < n; i += THREADS)
			plan->expert[i] = choice[i];
		return;
	}
	uint32_t *rows = (uint32_t *)scratch;         /* bit t of rows[e]: token t chose expert e */
	int *at = (int *)scratch + r.E;               /* of each expert among the active ones */
#pragma unroll 1
	for (int e = threadIdx.x; e < r.E; e += THREADS)
		rows[e] = 0;
	__syncthreads();
	for (int i = threadIdx.x; i < n; i += THREADS)
		atomicOr(&rows[choice[i]], 1u << i / r.k);
	__syncthreads();
	if (warp == 0) {
		int active = 0;
#pragma unroll 1
		for (int e0 = 0; e0 < r.E; e0 += WARP) {
			bool is = e0 + lane < r.E && rows[e0 + lane];
			uint32_t mask = __ballot_sync(FULL, is);
			int j = active + __popc(mask & ((1u << lane) - 1));
			if (is) {
				at[e0 + lane] = j;
				plan->expert[j] = e0 + lane;
				plan->count[j] = __popc(rows[e0 + lane]);
			}
			active += __popc(mask);
		}
		if (lane == 0)
			plan->active = active;
	}
	__syncthreads();
	for (int i = threadIdx.x; i < n; i += THREADS)
		plan->entry[at[choice[i]]][__popc(rows[choice[i]] & ((1u << i / r.k) - 1))] =
			(int16_t)(i / r.k << 8 | i % r.k);
}

/* Everything written before is seen by whoever arrives later. */
__device__ static inline int arrive(int *count)
{
	int n;
	asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(n) : "l"(count) : "memory");
	return n;
}

/* The choice among other numbers, for the code: a block that waits has time to bring it in. */
__device__ static void rehearse(const struct route_args &r, float *scratch)
{
	struct route_args other = r;
	float *end = scratch + route_floats(r);
	other.logits = r.bias;
	if (ranks(r))
		choose_by_rank(other, (int32_t *)end, end + r.k, scratch);
	else if (threadIdx.x < WARP)
		route_row((int32_t *)end, end + r.k, scratch, other, 0);
	__syncthreads();
}

/* A logit of each row, by a block behind the tiles: the order of moe.cu.  The gate's row comes as the weights of a tile do.
 * The block that finishes last chooses the experts. */
template <int F> __device__ static void route_logits(const struct stream_args &a, struct fixed *s, char *ring, float *shared, int e)
{
	int i = threadIdx.x, bytes = a.in * (int)sizeof(float);
	const float *gate = a.gate + (int64_t)e * a.in;
	bool fits = bytes % 16 == 0 && bytes <= a.ring_bytes;
	constexpr int TOGETHER = 12;                  /* loads of a thread on their way */
	__shared__ bool last;
	grid_release();
	if (fits && i == 0) {
		barrier_init(&s->full[0], 1);
		barriers_ready();
		copy_in(ring, gate, bytes, &s->full[0]);
	}
	rehearse(a.route, shared);
	grid_wait();
	if (fits) {
		barrier_wait(&s->full[0], 0);
		gate = (const float *)ring;
	}
#pragma unroll 1
	for (int t = 0; t < a.T; t++) {
		const uint16_t *row = a.rows + (int64_t)t * a.ld;
		float sum[SHARE] = {};
#pragma unroll 1
		for (int c = i; c < a.in; c += TOGETHER * THREADS) {
			uint16_t x[TOGETHER];
#pragma unroll
			for (int j = 0; j < TOGETHER; j++)
				x[j] = c + j * THREADS < a.in ? row[c + j * THREADS] : 0;
#pragma unroll
			for (int j = 0; j < TOGETHER; j++)
				if (c + j * THREADS < a.in)
					sum[j % SHARE] = fmaf(gate[c + j * THREADS], bf16_value(x[j]), sum[j % SHARE]);
		}
#pragma unroll
		for (int h = 0; h < SHARE; h++) {
			sum[h] = warp_sum(sum[h]);
			if (i % WARP == 0)
				shared[i / WARP + h * WARPS] = sum[h];
		}
		__syncthreads();
		if (i == 0) {
			for (int k = 1; k < SLICES; k++)
				sum[0] += shared[k];
			a.logits[t * a.route.E + e] = sum[0];
		}
		__syncthreads();
	}
	if (i == 0)
		last = arrive(a.arrived) == a.route.E - 1;
	__syncthreads();
	if (!last)
		return;
	if (i == 0)
		*a.arrived = 0;
	choose_experts(a.route, a.plan, a.weight, shared, a.T);
}

/* One tile: a warp takes its steps of every stage, then the partial sums are added in the order of the slices. */
template <int F, bool CONV, bool EXPERTS> __device__ static void stream_block(const struct stream_args &a)
{
	extern __shared__ __align__(128) char shared[];
	struct fixed *s = (struct fixed *)(shared + a.ring_bytes);
	float acc[SHARE][4] = {};
	bool up = EXPERTS && !a.experts.is_down;
	int row = threadIdx.x / TILE_ROWS, i = threadIdx.x % TILE_ROWS, lane = threadIdx.x % WARP, slice = threadIdx.x / WARP;
	if (!CONV && !EXPERTS && (int)blockIdx.x >= a.tiles) {
		route_logits<F>(a, s, shared, (float *)(s + 1), blockIdx.x - a.tiles);
		return;
	}
	if (!up)
		grid_release();
	int units = a.experts.steps * (TILE_STEP / 8);
	bool ahead = up && a.T == 1 && a.row_bytes && (int)blockIdx.x >= a.tiles && units <= SOLO_INPUT / 8;
	struct early_row kept;
	if (ahead) {
		grid_wait();
		ask_row(kept, a.experts.rows, units);
	}
	struct place p = locate<F, EXPERTS>(a, up);
	int slots = EXPERTS && p.segment >= 0 ? a.slots_of_segments : a.slots_of_ring;
	if (threadIdx.x == 0) {
		int n = min((p.steps + SLICES - 1) / SLICES, slots);
#pragma unroll 1
		for (int k = 0; k < n; k++) {
			barrier_init(&s->full[k], 1);
			barrier_init(&s->empty[k], WARPS);
		}
		barriers_ready();
#pragma unroll 1
		for (int k = 0; k < min(n, DEPTH); k++)
			fetch<F>(s, shared, p, slots, k);
	}
	struct early e = load_early<CONV>(a, p, row, p.tile * TILE_ROWS + i);
	__syncthreads();
	grid_wait();
	if (up)
		grid_release();
	if (!p.steps)
		return;
	int g = lane / 4;
	bool is = g < p.count;
	if (a.row_bytes) {
		if (ahead)
			keep_row(kept, (char *)(s + 1), units);
		else
			bring_rows(a, p, (char *)(s + 1));
		uint32_t at = shared_address(s + 1) + g * a.row_bytes + lane % 4 * 8 * (int)sizeof(uint16_t);
		multiply<F>(s, shared, p, slots, at, is, acc);
	} else {
		const uint16_t *at = is ? row_of(a, p, g) + lane % 4 * 8 : a.rows;
		multiply<F>(s, shared, p, slots, at, is, acc);
	}
	__syncwarp();
#pragma unroll
	for (int k = 0; k < 4 * SHARE; k++)
		if (lane % 4 * 2 + k % 2 < a.T)
			*(float *)(shared + (slice + k / 4 * WARPS) * record<F>::BYTES + ((lane % 4 * 2 + k % 2) * TILE_ROWS +
				   lane / 4 + k % 4 / 2 * 8) * sizeof(float)) = acc[k / 4][k % 4];
	__syncthreads();
	finish<F, CONV>(a, p, e, shared, row, i);
}

/* Blocks of a multiprocessor: as many as let a layer's tiles run at once, beside the next kernel's first blocks. */
#define RESIDENT (32 / WARPS)

/* y = x W^T of up to 8 rows of segments, and router logits.  A block owns a tile, or one logit of every row.  Weights and
 * rows aligned to 16; sums in a fixed order. */
template <int F> __global__ void __launch_bounds__(THREADS, RESIDENT) stream_tiles(const __grid_constant__ struct stream_args a)
{
	stream_block<F, false, false>(a);
}

/* With the convolution step: a name of its own for the audit. */
template <int F> __global__ void __launch_bounds__(THREADS, RESIDENT) stream_conv_tiles(const __grid_constant__ struct stream_args a)
{
	stream_block<F, true, false>(a);
}

/* Segments and routed experts. */
template <int F> __global__ void __launch_bounds__(THREADS, RESIDENT) stream_expert_tiles(const __grid_constant__ struct stream_args a)
{
	stream_block<F, false, true>(a);
}

/* ---- launchers ---- */
/* Shared memory that the blocks of a multiprocessor may take, all of a kernel's at once if that can be; the rest is what lies
 * unused between blocks of other sizes. */
#define SHARED_MEMORY (196 << 10)
#define LEAST (26 << 10)
#define MOST (88 << 10)
#define SNUG (32 << 10)              /* a single row's blocks get as much if that holds the row and the whole tile */
static int multiprocessors = 132;

template <int F> static cudaError_t launch_tiles(struct stream_args a, cudaStream_t s)
{
	constexpr int STAGE = SLICES * record<F>::BYTES;
	bool experts = a.experts.scale != NULL;
	int steps = experts ? a.experts.steps : SLICES, longest = steps, blocks = a.tiles + (a.gate ? a.route.E : 0);
	if (experts)
		blocks += a.T * a.route.k * a.experts.tiles;
	for (int i = 0; i < a.segments; i++)
		longest = longest > a.w[i].steps ? longest : a.w[i].steps;
	if (!experts)                                 /* their number counts: segments beside them share their places */
		steps = longest;
	int each = SHARED_MEMORY / ((blocks + multiprocessors - 1) / multiprocessors) - 1024 - (int)sizeof(struct fixed);
	int stages = (steps + SLICES - 1) / SLICES, all = (longest + SLICES - 1) / SLICES, row_bytes = longest * TILE_STEP * 2 + 64;
	int whole = (steps < SLICES ? SLICES : steps) * record<F>::BYTES, most;
	each = each < LEAST ? LEAST : each > MOST ? MOST : each;
	if (a.T == 1 && each < whole + row_bytes && whole + row_bytes <= SNUG)
		each = whole + row_bytes;
	most = each / STAGE < 2 ? 2 : each / STAGE < MAX_SLOTS ? each / STAGE : MAX_SLOTS;
	a.slots_of_ring = stages <= MAX_SLOTS && whole <= each ? stages : most;
	a.ring_bytes = a.slots_of_ring == stages ? whole : a.slots_of_ring * STAGE;
	a.slots_of_segments = a.ring_bytes / STAGE < all ? a.ring_bytes / STAGE : all;
	if (longest == steps)
		a.slots_of_segments = a.slots_of_ring;
	a.row_bytes = a.ring_bytes + a.T * row_bytes <= each + 1024 ? row_bytes : 0;
	size_t rows = a.T * a.row_bytes, route = a.gate ? (a.T * route_floats(a.route) + 2 * a.route.k) * sizeof(float) : 0;
	void (*kernel)(const struct stream_args) = a.output == OUTPUT_CONV ? stream_conv_tiles<F> :
		experts ? stream_expert_tiles<F> : stream_tiles<F>;
	return launch(kernel, blocks, THREADS, a.ring_bytes + sizeof(struct fixed) + (rows > route ? rows : route), s, a);
}

cudaError_t launch_stream(struct stream_args a, int kind, cudaStream_t s)
{
	switch (kind) {
	case FORMAT_BF16: return launch_tiles<FORMAT_BF16>(a, s);
	case FORMAT_FP8: return launch_tiles<FORMAT_FP8>(a, s);
	case FORMAT_NVFP4: return launch_tiles<FORMAT_NVFP4>(a, s);
	case PRODUCT_W8A8: return launch_tiles<PRODUCT_W8A8>(a, s);
	default: return cudaErrorInvalidValue;
	}
}

cudaError_t launch_stream_open(void)
{
	int device = 0;
	if (cudaGetDevice(&device) == cudaSuccess)
		cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
#define KERNELS(F) (const void *)stream_tiles<F>, (const void *)stream_expert_tiles<F>, (const void *)stream_conv_tiles<F>
	const void *const kernels[] = { KERNELS(FORMAT_BF16), KERNELS(FORMAT_FP8), KERNELS(FORMAT_NVFP4), KERNELS(PRODUCT_W8A8) };
#undef KERNELS
	for (const void *k : kernels) {
		cudaError_t e = cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 160 << 10);
		if (e != cudaSuccess)
			return e;
	}
	return cudaGetLastError();
}
