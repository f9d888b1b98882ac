#include "launch.h"

/* Decode products: at most 8 token rows, weights read once (sm_90 and later).
 *
 * A block owns one tile of 16 outputs.  Its weights are contiguous; bulk copies that complete on barriers in shared memory
 * ask for all of them (or for as much as its ring holds) before the kernel waits for its predecessor.  Blocks of the next
 * kernel take the places of those that end and do the same, so memory stays busy across kernels; small kernels between
 * two products (norms, state updates) cost little, since the weights behind them are already on their way.
 *
 * Kernels release their successor at once.  Only the up projection of chosen experts does so after it has waited: then the
 * kernel before it has ended when its successor, their down projection, starts and reads the choice before it waits.
 *
 * Order of a sum: that of linear.cu. */

#define THREADS (SLICES * WARP)
#define MAX_SLOTS 16
#define UNROLLED 8                    /* stages of a tile whose places are constants: up to 4,096 columns */

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
/* Copies bytes (a multiple of 16) from global memory; `full` completes when they have arrived.  They are read once: the cache
 * may drop them first. */
__device__ static inline void copy_in(void *to, const void *from, int bytes, uint64_t *full)
{
#if __CUDA_ARCH__ >= 900
	uint64_t policy;
	asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
	asm volatile("{ .reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1; }"
		     :: "r"(shared_address(full)), "r"(bytes) : "memory");
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
		     :: "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(full)), "l"(policy) : "memory");
#endif
}
__device__ static inline void prefetch(const char *p, int64_t bytes, int share, int shares)
{
#if __CUDA_ARCH__ >= 900
	int64_t each = (bytes / shares + 1023) / 1024 * 1024, at = share * each;
	if (at < bytes)
		asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
			     :: "l"(p + at), "r"((int)min(each, bytes - at)) : "memory");
#endif
}
/* This block's share of what later kernels will read, into the L2 cache. */
__device__ static inline void look_ahead(const struct stream_args &a)
{
#pragma unroll 1
	for (int i = 0; i < STREAM_AHEAD && a.ahead[i].p; i++)
		prefetch(a.ahead[i].p, a.ahead[i].bytes, blockIdx.x, gridDim.x);
}

/* ---- a tile ---- */
struct fixed { uint64_t full[MAX_SLOTS], empty[MAX_SLOTS]; int32_t choice[STREAM_ENTRIES]; };

struct place {
	const char *w;
	int steps, tile, segment;     /* segment -1: a routed expert */
	int expert, count;            /* its rows */
	const int16_t *entry;         /* [count] of an expert's rows; NULL: the one entry is `only` */
	int only;
};

/* Is this block's tile an expert's? */
__device__ static inline bool of_expert(const struct stream_args &a) { return (int)blockIdx.x >= a.tiles; }

/* The tile of this block; steps 0: none.  Segments first, then experts. */
template <int F, bool EXPERTS>
__device__ static inline struct place locate(const struct stream_args &a, const struct fixed *s)
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
	int j = (id - a.tiles) / e.tiles, active = a.route.k;
	p.segment = -1, p.tile = (id - a.tiles) % e.tiles;
	if (a.T == 1) {
		p.expert = s->choice[j], p.count = 1, p.only = j;
	} else {
		active = __ldcg(&a.plan->active);
		p.expert = __ldcg(&a.plan->expert[j]), p.count = __ldcg(&a.plan->count[j]), p.entry = a.plan->entry[j];
	}
	if (j >= active)
		return p;
	p.steps = e.steps;
	p.w = e.base + p.expert * e.stride + (int64_t)p.tile * p.steps * record<F>::BYTES;
	return p;
}

__device__ static inline int entry_of(const struct place &p, int row) { return p.entry ? __ldcg(p.entry + row) : p.only; }

/* Stage i of the tile: SLICES steps. */
template <int F>
__device__ static inline void fetch(const struct stream_args &a, struct fixed *s, char *ring, const struct place &p, int i)
{
	constexpr int STAGE = SLICES * record<F>::BYTES;
	int slot = i < a.slots_of_ring ? i : i % a.slots_of_ring;
	copy_in(ring + slot * STAGE, p.w + (int64_t)i * STAGE, min((int)SLICES, p.steps - i * SLICES) * record<F>::BYTES,
		&s->full[slot]);
}

/* ---- results ---- */
/* What a thread's output needs beside its sum, loaded while the weights are on their way. */
struct early { float scale, bias, window[3], w[4], conv_bias; };

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
	const struct stream_conv &k = a.conv;
	int c = o - k.first;
	if (!CONV || c < 0 || c >= k.channels)
		return e;
	const float *window = k.state + a.slots[row] * k.stride + c, *w = k.w + c * k.kernel;
	e.conv_bias = k.bias ? k.bias[c] : 0.0f;
#pragma unroll
	for (int j = 0; j < 4; j++)
		if (j < k.kernel) {
			e.w[j] = w[j];
			if (j < 3 && j < k.kernel - 1)
				e.window[j] = window[(int64_t)j * k.channels];
		}
	return e;
}

/* The convolution step of one channel: up to four taps from registers, else conv_at and conv_shift. */
__device__ static inline void put_conv(const struct stream_args &a, const struct early &e, int t, int o, float v)
{
	const struct stream_conv &k = a.conv;
	int c = o - k.first;
	if (c < 0 || c >= k.channels) {
		a.y[0][(int64_t)t * a.ldy[0] + o] = v;
		return;
	}
	float *window = k.state + a.slots[t] * k.stride + c, sum = e.conv_bias;
	if (k.kernel > 4) {
		sum = conv_at(&v, 0, window, k.w + c * k.kernel, e.conv_bias, k.channels, k.kernel, 0);
		conv_shift(window, &v, 0, k.channels, k.kernel, 1);
	} else {
#pragma unroll
		for (int j = 0; j < 4; j++)
			if (j < k.kernel) {
				float x = j == k.kernel - 1 ? v : e.window[j < 3 ? j : 0];
				sum = fmaf(e.w[j], x, sum);
				if (j)
					window[(int64_t)(j - 1) * k.channels] = x;
			}
		sum = silu(sum);
	}
	k.u[(int64_t)t * k.channels + c] = rounded(sum, a.bf16);
}

__device__ static inline void put_kv(const struct stream_args &a, int segment, int t, int o, float v)
{
	const struct stream_kv &kv = a.kv;
	if (segment == 0) {
		a.y[0][(int64_t)t * a.ldy[0] + o] = v;
		return;
	}
	float scale = segment == 1 ? kv.k_scale : kv.v_scale;
	int64_t at = a.slots[t] * (segment == 1 ? kv.k_stride : kv.v_stride) + (int64_t)kv.pos[t] * a.w[segment].out + o;
	store_from_float(segment == 1 ? kv.k_cache : kv.v_cache, at, kv.kind == KIND_FP8 ? v / scale : v, kv.kind);
}

__device__ static inline float squared(float v, int bf16)
{
	v = fmaxf(v, 0.0f);
	return rounded(v * v, bf16);
}

/* Output o of row t of a segment. */
template <bool CONV>
__device__ static inline void put(const struct stream_args &a, const struct early &e, int segment, int t, int o, float v)
{
	if (CONV)
		put_conv(a, e, t, o, v);
	else if (a.output == OUTPUT_KV)
		put_kv(a, segment, t, o, v);
	else if (a.output == OUTPUT_RELU2)
		a.y_bf16[(int64_t)t * a.ld_bf16 + o] = bf16_bits(squared(v, a.bf16));
	else
		a.y[segment][(int64_t)t * a.ldy[segment] + o] = v;
}

/* The sum of row `row`, output i of the tile, to its place.  part: [SLICES][T][16]. */
template <int F, bool CONV>
__device__ static inline void finish(const struct stream_args &a, const struct place &p, const struct early &e,
				     const float *part, int row, int i)
{
	const struct stream_experts &x = a.experts;
	int o = p.tile * TILE_ROWS + i;
	if (row >= p.count || o >= (p.segment < 0 ? x.out : a.w[p.segment].out))
		return;
	float v = part[row * TILE_ROWS + i];
#pragma unroll
	for (int k = 1; k < SLICES; k++)
		v += part[(k * a.T + row) * TILE_ROWS + i];
	v *= F == FORMAT_NVFP4 ? e.scale * NVFP4_RESCALE : e.scale;
	if (p.segment >= 0 && a.w[p.segment].bias)
		v += e.bias;
	v = rounded(v, a.bf16);
	if (p.segment >= 0)
		put<CONV>(a, e, p.segment, row, o, v);
	else if (x.is_down)
		x.down[(int64_t)entry_of(p, row) * x.out + o] = v;
	else
		x.up[(int64_t)entry_of(p, row) * x.ld_up + o] = bf16_bits(squared(v, a.bf16));
}

/* ---- the product ---- */
/* This lane's columns of its token row; NULL: there is none. */
__device__ static inline const uint16_t *row_of(const struct stream_args &a, const struct place &p)
{
	int g = threadIdx.x % WARP / 4, q = threadIdx.x % 4;
	if (g >= p.count)
		return NULL;
	if (p.segment >= 0)
		return a.rows + (int64_t)g * a.ld + q * 8;
	int entry = entry_of(p, g);
	return (a.experts.is_down ? a.experts.up + (int64_t)entry * a.experts.ld_up :
		a.experts.rows + (int64_t)(entry / a.route.k) * a.experts.ld) + q * 8;
}

/* Both halves of a step's columns; x stays as it was, zero, where there is no row. */
__device__ static inline void load_row(uint4 x[2], const uint16_t *at, bool is)
{
	asm volatile("{ .reg .pred p; setp.ne.u32 p, %8, 0;\n"
		     "@p ld.global.v4.u32 {%0, %1, %2, %3}, [%9];\n"
		     "@p ld.global.v4.u32 {%4, %5, %6, %7}, [%9 + 64]; }"
		     : "+r"(x[0].x), "+r"(x[0].y), "+r"(x[0].z), "+r"(x[0].w), "+r"(x[1].x), "+r"(x[1].y), "+r"(x[1].z),
		       "+r"(x[1].w) : "r"((uint32_t)is), "l"(at));
}

template <int F>
__device__ static inline void multiply_step(float acc[4], const struct step<F> &w, const uint4 x[2])
{
	constexpr bool FP16 = F == PRODUCT_W8A8;
	uint32_t a[4], b[4];
	w.template unpack<0>(a, b);
	mma<FP16>(acc, a[0], b[0], a[1], b[1], x[0].x, x[0].y);
	mma<FP16>(acc, a[2], b[2], a[3], b[3], x[0].z, x[0].w);
	w.template unpack<1>(a, b);
	mma<FP16>(acc, a[0], b[0], a[1], b[1], x[1].x, x[1].y);
	mma<FP16>(acc, a[2], b[2], a[3], b[3], x[1].z, x[1].w);
}

/* A warp takes its step of every stage.  All stages are on their way: their places are constants. */
template <int F>
__device__ static inline void multiply(const struct stream_args &a, struct fixed *s, char *ring, const struct place &p, float acc[4])
{
	constexpr int STAGE = SLICES * record<F>::BYTES;
	int lane = threadIdx.x % WARP, slice = threadIdx.x / WARP;
	const uint16_t *row = row_of(a, p), *at = row + slice * TILE_STEP;
	uint32_t from = shared_address(ring) + slice * record<F>::BYTES;
	uint4 x[2] = {};
#pragma unroll
	for (int i = 0; i < UNROLLED; i++) {
		if (i * SLICES + slice >= p.steps)
			return;
		struct step<F> w;
		load_row(x, at + i * SLICES * TILE_STEP, row != NULL);
		barrier_wait(&s->full[i], 0);
		w.load_shared(from + i * STAGE, lane);
		multiply_step<F>(acc, w, x);
	}
}

/* The same where the ring holds fewer stages than the tile has: the others are asked for as places come free. */
template <int F>
__device__ static void multiply_ring(const struct stream_args &a, struct fixed *s, char *ring, const struct place &p, float acc[4])
{
	constexpr int STAGE = SLICES * record<F>::BYTES;
	int lane = threadIdx.x % WARP, slice = threadIdx.x / WARP, slots = a.slots_of_ring, slot = 0, lap = 0;
	const uint16_t *row = row_of(a, p);
	uint4 x[2] = {};
#pragma unroll 1
	for (int i = slice; i - slice < p.steps; i += SLICES) {
		int next = i - slice + slots * SLICES;
		struct step<F> w;
		load_row(x, row + i * TILE_STEP, row != NULL && i < p.steps);
		barrier_wait(&s->full[slot], lap);
		if (i < p.steps) {
			w.load_shared(shared_address(ring) + slot * STAGE + slice * record<F>::BYTES, lane);
			multiply_step<F>(acc, w, x);
		}
		__syncwarp();
		if (lane == 0)
			barrier_arrive(&s->empty[slot]);
		if (threadIdx.x == 0 && next < p.steps) {
			barrier_wait(&s->empty[slot], lap);
			fetch<F>(a, s, ring, p, next / SLICES);
		}
		if (++slot == slots)
			slot = 0, lap ^= 1;
	}
}

/* ---- the router ---- */
/* By a block: a warp routes a token; then the experts that some token chose, in ascending order, with their rows. */
__device__ static void choose_experts(const struct route_args &r, struct stream_plan *plan, float *weight, float *scratch, int T)
{
	__shared__ int32_t choice[STREAM_ENTRIES];
	int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, n = T * r.k, i = threadIdx.x;
	if (warp < T)
		route_row(choice + warp * r.k, weight + warp * r.k, scratch + warp * route_floats(r), r, warp);
	__syncthreads();
	uint32_t *rows = (uint32_t *)scratch;         /* bit t of rows[e]: token t chose expert e */
	int *at = (int *)scratch + r.E;               /* of each expert among the active ones */
#pragma unroll 1
	for (int e = i; e < r.E; e += THREADS)
		rows[e] = 0;
	__syncthreads();
	if (i < n)
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
	if (i < n)
		plan->entry[at[choice[i]]][__popc(rows[choice[i]] & ((1u << i / r.k) - 1))] = (int16_t)i;
}

/* The choice of a single token, by one warp of each block that has an expert's tile. */
__device__ static void choose_alone(const struct stream_args &a, struct fixed *s, float *scratch)
{
	float *weight = scratch + route_floats(a.route);
	if (threadIdx.x < WARP) {
		route_row(s->choice, weight, scratch, a.route, 0);
		if ((int)blockIdx.x == a.tiles && !a.experts.is_down)
			for (int i = threadIdx.x; i < a.route.k; i += WARP)
				a.weight[i] = weight[i];
	}
	__syncthreads();
}

/* A logit of each row, by a block behind the tiles: the order of moe.cu.  Of more rows than one, the block that finishes last
 * chooses the experts. */
__device__ static void route_logits(const struct stream_args &a, float *shared, int e)
{
	constexpr int EARLY = 12;
	int i = threadIdx.x;
	float w[EARLY];
	__shared__ bool last;
#pragma unroll
	for (int j = 0; j < EARLY; j++)
		w[j] = i + j * ROUTE_THREADS < a.in ? __ldg(a.gate + (int64_t)e * a.in + i + j * ROUTE_THREADS) : 0.0f;
	grid_release();
	grid_wait();
#pragma unroll 1
	for (int t = 0; t < a.T; t++) {
		float sum = 0;
#pragma unroll
		for (int j = 0; j < EARLY; j++)
			if (i + j * ROUTE_THREADS < a.in)
				sum = fmaf(w[j], bf16_value(a.rows[(int64_t)t * a.ld + i + j * ROUTE_THREADS]), sum);
#pragma unroll 1
		for (int c = i + EARLY * ROUTE_THREADS; c < a.in; c += ROUTE_THREADS)
			sum = fmaf(__ldg(a.gate + (int64_t)e * a.in + c), bf16_value(a.rows[(int64_t)t * a.ld + c]), sum);
		sum = warp_sum(sum);
		if (i % WARP == 0)
			shared[i / WARP] = sum;
		__syncthreads();
		if (i == 0) {
			for (int k = 1; k < SLICES; k++)
				sum += shared[k];
			a.logits[t * a.route.E + e] = sum;
		}
		__syncthreads();
	}
	if (a.T == 1)                                 /* blocks that need it choose for themselves */
		return;
	if (i == 0) {
		__threadfence();
		last = atomicAdd(a.arrived, 1) == a.route.E - 1;
	}
	__syncthreads();
	if (!last)
		return;
	if (i == 0)
		*a.arrived = 0;
	__threadfence();
	choose_experts(a.route, a.plan, a.weight, shared, a.T);
}

/* One tile: a warp takes its step of every stage, then the partial sums are added in the order of the warps. */
template <int F, bool CONV, bool EXPERTS> __device__ static void stream_block(const struct stream_args &a)
{
	extern __shared__ __align__(128) char shared[];
	constexpr int STAGE = SLICES * record<F>::BYTES;
	struct fixed *s = (struct fixed *)(shared + a.slots_of_ring * STAGE);
	float *part = (float *)(s + 1), acc[4] = {};
	bool expert = EXPERTS && of_expert(a), up = EXPERTS && !a.experts.is_down;
	int row = threadIdx.x / TILE_ROWS, i = threadIdx.x % TILE_ROWS, lane = threadIdx.x % WARP, slice = threadIdx.x / WARP;
	if (threadIdx.x == WARP)
		look_ahead(a);
	if (!CONV && !EXPERTS && (int)blockIdx.x >= a.tiles) {
		route_logits(a, part, blockIdx.x - a.tiles);
		return;
	}
	if (!up)
		grid_release();
	if (up && expert)
		grid_wait();
	if (expert && a.T == 1)
		choose_alone(a, s, part);
	struct place p = locate<F, EXPERTS>(a, s);
	if (threadIdx.x == 0) {
		int n = min((p.steps + SLICES - 1) / SLICES, a.slots_of_ring);
#pragma unroll 1
		for (int k = 0; k < n; k++) {
			barrier_init(&s->full[k], 1);
			barrier_init(&s->empty[k], SLICES);
		}
		asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#pragma unroll 1
		for (int k = 0; k < n; k++)
			fetch<F>(a, s, shared, p, k);
	}
	if (up && expert && threadIdx.x == WARP && p.steps)
		prefetch(a.experts.next + p.expert * a.experts.stride, a.experts.next_bytes, p.tile, a.experts.tiles);
	grid_wait();
	if (up)
		grid_release();
	if (!p.steps)
		return;
	__syncthreads();
	struct early e = load_early<CONV>(a, p, row, p.tile * TILE_ROWS + i);
	if (p.steps <= min(a.slots_of_ring, UNROLLED) * SLICES)
		multiply<F>(a, s, shared, p, acc);
	else
		multiply_ring<F>(a, s, shared, p, acc);
#pragma unroll
	for (int k = 0; k < 4; k++)
		if (lane % 4 * 2 + k % 2 < a.T)
			part[(slice * a.T + lane % 4 * 2 + k % 2) * TILE_ROWS + lane / 4 + k / 2 * 8] = acc[k];
	__syncthreads();
	finish<F, CONV>(a, p, e, part, row, i);
}

/* Blocks of a multiprocessor: as many as let a layer's tiles run at once. */
template <int F> struct resident { enum { BLOCKS = F == FORMAT_NVFP4 ? 6 : 5 }; };

/* y = x W^T of up to 8 rows of segments, and router logits.  A block owns a tile, or one logit of every row.  Weights and
 * rows aligned to 16; sums in a fixed order. */
template <int F> __global__ void __launch_bounds__(THREADS, resident<F>::BLOCKS) stream_tiles(const __grid_constant__ struct stream_args a)
{
	stream_block<F, false, false>(a);
}

/* With the convolution step: a name of its own for the audit. */
template <int F> __global__ void __launch_bounds__(THREADS, resident<F>::BLOCKS) stream_conv_tiles(const __grid_constant__ struct stream_args a)
{
	stream_block<F, true, false>(a);
}

/* Segments and routed experts. */
template <int F> __global__ void __launch_bounds__(THREADS, resident<F>::BLOCKS) stream_expert_tiles(const __grid_constant__ struct stream_args a)
{
	stream_block<F, false, true>(a);
}

/* ---- launchers ---- */
#define RING (44 << 10)               /* of a block, where five share a multiprocessor */

template <int F> static cudaError_t launch_tiles(struct stream_args a, cudaStream_t s)
{
	constexpr int STAGE = SLICES * record<F>::BYTES;
	bool experts = a.experts.scale != NULL;
	int steps = experts ? a.experts.steps : 1, blocks = a.tiles;
	for (int i = 0; i < a.segments; i++)
		steps = steps > a.w[i].steps ? steps : a.w[i].steps;
	int stages = (steps + SLICES - 1) / SLICES, most = (a.tiles > 264 ? RING : 2 * RING) / STAGE;
	most = most < 2 ? 2 : most < MAX_SLOTS ? most : MAX_SLOTS;
	a.slots_of_ring = stages < most ? stages : most;
	size_t part = (size_t)SLICES * a.T * TILE_ROWS * sizeof(float), route = 0;
	if (a.gate) {
		blocks += a.route.E;
		route = a.T * route_floats(a.route) * sizeof(float);
	}
	if (experts) {
		blocks += a.T * a.route.k * a.experts.tiles;
		if (a.T == 1)
			route = (route_floats(a.route) + a.route.k) * sizeof(float);
	}
	void (*kernel)(const struct stream_args) = a.output == OUTPUT_CONV ? stream_conv_tiles<F> :
		experts ? stream_expert_tiles<F> : stream_tiles<F>;
	return launch(kernel, blocks, THREADS, (size_t)a.slots_of_ring * STAGE + sizeof(struct fixed) +
		      (part > route ? part : route), s, a);
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
