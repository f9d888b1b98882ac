#include "solo.cuh"

/* Decode of a single token: products that fill the device with one block on every multiprocessor (sm_90 and later), for
 * matrices of few tiles each (fused.c decides).
 *
 * A block is two teams of eight warps.  A team works through units, tiles of 16 outputs; warp s of it takes the steps s,
 * s + 8, ... of each: the order of linear.cu.  Every warp has a ring of its own for its records, which it fills
 * without a word to other warps and across the ends of units.  So weights stream in from before the kernel waits for its
 * predecessor until the last unit.
 *
 * Small steps between products are done again by every block instead of once by a kernel of their own: the norm or the
 * gated norm before a product, the choice of experts before theirs.  They cost less than the edge of a kernel.  What
 * follows a product (convolution, cache, relu^2, the sum over experts, the addition to the residual stream) is done with
 * its result.  A kernel that reads states before it waits relies on embed_rows, which lets no kernel of a step start before
 * the last step is over.
 *
 * A block of one kernel and one of the next share a multiprocessor, but not two of the same. */

/* ---- products of the one row ---- */
struct unit { int segment, tile; };

struct segment_items {
	const struct solo_args &a;
	int bytes;
	__device__ int count(void) const { return max(0, (a.units - first() + stride() - 1) / stride()); }
	__device__ int first(void) const { return blockIdx.x + gridDim.x * team(); }
	__device__ int stride(void) const { return gridDim.x * TEAMS; }
	__device__ struct unit unit_of(int j) const
	{
		struct unit u = { 0, first() + j * stride() };
		while (u.tile >= a.w[u.segment].tiles)
			u.tile -= a.w[u.segment++].tiles;
		return u;
	}
	__device__ struct run run_of(int j) const
	{
		struct unit u = unit_of(j);
		const struct packed_matrix &m = a.w[u.segment];
		return { m.weight + (int64_t)u.tile * m.steps * bytes, m.steps };
	}
	/* The first units that the ring does not hold, into L2. */
	__device__ void prefetch_rest(int n, int slots) const
	{
		if (threadIdx.x % TEAM)
			return;
#pragma unroll 1
		for (int j = 0, steps = 0; j < n && steps < 3 * SLICES * slots; j++) {
			struct run r = run_of(j);
			steps += r.steps;
			if (steps > SLICES * slots)
				prefetch(r.w, r.steps * bytes);
		}
	}
};

/* What output i of a unit needs: what does not depend on the kernel before. */
template <int OUT> __device__ static inline struct early load_early(const struct solo_args &a, struct unit u, int i)
{
	struct early e = {};
	int o = u.tile * TILE_ROWS + i;
	const struct packed_matrix &m = a.w[u.segment];
	e.scale = m.scale;
	if (o >= m.out)
		return e;
	if (m.bias)
		e.bias = m.bias[o];
	if (OUT == SOLO_CONV)
		early_conv(e, a.conv, a.slots, 0, o);
	return e;
}

template <int F, int OUT>
__device__ static inline void finish(const struct solo_args &a, struct unit u, const struct early &e, const float *part, int i)
{
	const struct packed_matrix &m = a.w[u.segment];
	int o = u.tile * TILE_ROWS + i;
	if (o >= m.out)
		return;
	float h = OUT == SOLO_ADD ? __ldcg(a.h + o) : 0.0f, v = scaled<F>(sum_of(part, i), e.scale);
	if (m.bias)
		v += e.bias;
	v = rounded(v, a.bf16);
	if (OUT == SOLO_CONV)
		put_conv(a.conv, e, a.y, a.slots, 0, o, v, 1);
	else if (OUT == SOLO_KV)
		put_kv(a.kv, u.segment, a.y, a.slots[0], 0, o, m.out, v);
	else if (OUT == SOLO_RELU2)
		a.y_bf16[o] = bf16_bits(squared(v, 1));
	else if (OUT == SOLO_ADD)
		a.h[o] = rounded(h + v, !a.input.wide);
	else
		a.y[o] = v;
}

/* Router logits by the second team, in the order of moe.cu.  The gate's row of the first one is in shared memory. */
__device__ static void route_logits(const struct solo_args &a, const uint16_t *row, const float *first, float *part)
{
	int i = threadIdx.x % TEAM;
#pragma unroll 1
	for (int e = blockIdx.x; e < a.E; e += gridDim.x) {
		const float *gate = e == (int)blockIdx.x ? first : a.gate + (int64_t)e * a.input.in;
		float sum = 0;
#pragma unroll 4
		for (int c = i; c < a.input.in; c += ROUTE_THREADS)
			sum = fmaf(gate[c], bf16_value(row[c]), sum);
		sum = warp_sum(sum);
		if (lane() == 0)
			part[slice()] = sum;
		team_sync();
		if (i == 0) {
			for (int k = 1; k < SLICES; k++)
				sum += part[k];
			a.logits[e] = sum;
		}
		team_sync();
	}
}

/* Shared memory of a block behind the ring. */
struct __align__(16) solo_shared { float part[TEAMS][2][SLICES * TILE_ROWS], sums[THREADS * QUADS / WARP + SLICES]; uint64_t gate; };

template <int F, int OUT> __device__ static inline void product_block(const struct solo_args &a)
{
	extern __shared__ __align__(128) char shared[];
	constexpr int R = OUT == SOLO_KV || OUT == SOLO_RELU2 ? ring<F>::LITTLE : ring<F>::MUCH;
	struct feed<F, R> f;
	struct segment_items items = { a, record<F>::BYTES };
	int n = items.count();
	struct solo_shared *s = (struct solo_shared *)(shared + WARPS * R * record<F>::BYTES);
	uint16_t *row = (uint16_t *)(s + 1);
	float *gate = (float *)(row + a.input.ld);
	grid_release();
	f.open(shared);
	f.fill(items, n, true);
	if (OUT == SOLO_RELU2 && threadIdx.x == 0 && (int)blockIdx.x < a.E) {
		barrier_init(&s->gate, 1);
		barriers_ready();
		copy_in(gate, a.gate + (int64_t)blockIdx.x * a.input.in, a.input.in * sizeof(float), &s->gate);
	}
	items.prefetch_rest(n, R);
	struct early e = {};
	if (slice() < n && lane() < TILE_ROWS)
		e = load_early<OUT>(a, items.unit_of(slice()), lane());
	make_row(row, a.input, s->sums);
	if (OUT == SOLO_RELU2 && team() == 1 && (int)blockIdx.x < a.E) {
		barrier_wait(&s->gate, 0);
		route_logits(a, row, gate, s->sums);
	}
#pragma unroll 1
	for (int j = 0; j < n; j++) {
		struct unit u = items.unit_of(j);
		float *part = s->part[team()][j % 2];
		multiply<F>(part, f, items, n, a.w[u.segment].steps, row);
		team_sync();
		if (j % SLICES == slice() && lane() < TILE_ROWS) {
			finish<F, OUT>(a, u, e, part, lane());
			if (j + SLICES < n)
				e = load_early<OUT>(a, items.unit_of(j + SLICES), lane());
		}
		__syncwarp();
	}
}

/* y = x W^T of one row that is the norm of the residual stream, or the gated norm of a state update's output, or given.
 * One block on every multiprocessor.  Sums in a fixed order: linear.cu's. */
template <int F, int OUT> __global__ void __launch_bounds__(THREADS, 2) solo_tiles(const __grid_constant__ struct solo_args a)
{
	product_block<F, OUT>(a);
}

/* With the convolution step: a name of its own for the audit. */
template <int F> __global__ void __launch_bounds__(THREADS, 2) stream_conv_tiles_solo(const __grid_constant__ struct solo_args a)
{
	product_block<F, SOLO_CONV>(a);
}

/* ---- experts ---- */
struct choice { int32_t expert[SOLO_EXPERTS]; float weight[SOLO_EXPERTS], scale[SOLO_EXPERTS]; };

/* Scores in fours. */
__host__ __device__ static inline int score_room(int E) { return (E + 3) / 4 * 4; }

/* The choice of experts by a team, by rank: two threads count who comes before an expert.  Bits as route_row.  score: room for the
 * scores and as many numbers that order them. */
__device__ static void choose(struct choice *c, const struct solo_experts &x, float *score)
{
	const struct route_args &r = x.route;
	int padded = score_room(r.E), t = threadIdx.x % TEAM;
	uint32_t *order = (uint32_t *)(score + padded);
#pragma unroll 1
	for (int e = t; e < padded; e += TEAM) {
		float s = e < r.E ? 1.0f / (1.0f + expf(-__ldcg(r.logits + e))) : 0.0f;
		score[e] = s;
		order[e] = e < r.E ? order_of(s + r.bias[e]) : 0;
	}
	team_sync();
#pragma unroll 1
	for (int e0 = 0; e0 < r.E; e0 += TEAM / 2) {
		int e = min(e0 + t / 2, r.E - 1), rank = 0;
		uint32_t mine = order[e];
#pragma unroll 4
		for (int i = t % 2; i < padded / 4; i += 2) {
			uint4 o = ((const uint4 *)order)[i];
			rank += (o.x > mine || (o.x == mine && 4 * i < e)) + (o.y > mine || (o.y == mine && 4 * i + 1 < e)) +
				(o.z > mine || (o.z == mine && 4 * i + 2 < e)) + (o.w > mine || (o.w == mine && 4 * i + 3 < e));
		}
		rank += __shfl_xor_sync(FULL, rank, 1);
		if (rank < r.k && e == e0 + t / 2)
			c->expert[rank] = e;
	}
	team_sync();
	if (t < r.k) {
		float sum = 0, w = score[c->expert[t]];
#pragma unroll 1
		for (int i = 0; i < r.k; i++)
			sum += score[c->expert[i]];
		c->weight[t] = (r.norm ? w / (sum + 1e-20f) : w) * r.scaling;
		c->scale[t] = x.scale[c->expert[t]];
	}
	__syncwarp();                 /* a warp must come to the barrier that follows as one */
}

/* Tiles of the shared expert's down projection, of which the last team has none, then of the up projections of the chosen.
 * Expert tiles are counted from 0, shared ones from - x.shared.tiles. */
#define CHOOSER (TEAMS - 1)
struct up_items {
	const struct solo_experts &x;
	const struct choice *c;
	int bytes, shared;            /* shared: this team's tiles of the shared expert */
	__device__ up_items(const struct solo_experts &of, const struct choice *choice, int size) : x(of), c(choice), bytes(size)
	{
		shared = team() == CHOOSER ? 0 : below(x.shared.tiles, CHOOSER);
	}
	__device__ static int first(void) { return blockIdx.x + gridDim.x * team(); }
	__device__ static int below(int units, int teams) { return max(0, (units - first() + (int)gridDim.x * teams - 1) / ((int)gridDim.x * teams)); }
	__device__ int count(void) const { return shared + below(x.route.k * x.tiles, TEAMS); }
	__device__ int unit_of(int j) const
	{
		return j < shared ? first() + j * CHOOSER * (int)gridDim.x - x.shared.tiles : first() + (j - shared) * TEAMS * (int)gridDim.x;
	}
	__device__ struct run run_at(int v) const
	{
		if (v < 0)
			return { x.shared.weight + (int64_t)(v + x.shared.tiles) * x.shared.steps * bytes, x.shared.steps };
		return { x.base + c->expert[v / x.tiles] * x.stride + (int64_t)(v % x.tiles) * x.steps * bytes, x.steps };
	}
	__device__ struct run run_of(int j) const { return run_at(unit_of(j)); }
	/* The block's expert tiles, into L2. */
	__device__ void prefetch_experts(void) const
	{
		for (int v = blockIdx.x + threadIdx.x % TEAM * gridDim.x; v < x.route.k * x.tiles; v += TEAM * gridDim.x)
			prefetch(run_at(v).w, x.steps * bytes);
	}
};

template <int F>
__device__ static inline void finish_up(const struct solo_experts &x, const struct choice *c, const float *part, int v, int i)
{
	int tile = v < 0 ? v + x.shared.tiles : v % x.tiles, o = tile * TILE_ROWS + i;
	if (o >= (v < 0 ? x.shared.out : x.out))
		return;
	float sum = sum_of(part, i);
	if (v >= 0) {
		sum = rounded(scaled<F>(sum, c->scale[v / x.tiles]), 1);
		x.up[v / x.tiles * x.ld_up + o] = bf16_bits(squared(sum, 1));
		return;
	}
	sum = scaled<F>(sum, x.shared.scale);
	x.shared_out[o] = rounded(x.shared.bias ? sum + x.shared.bias[o] : sum, 1);
}

/* Units as in product_block.  While the last team chooses, the others have the shared expert's tiles.  The successor is
 * released after the wait: it reads the router's logits before it waits. */
template <int F> __global__ void __launch_bounds__(THREADS, 2) solo_up_tiles(const __grid_constant__ struct solo_experts x)
{
	extern __shared__ __align__(128) char shared[];
	__shared__ struct choice c;
	constexpr int R = ring<F>::MUCH;
	struct feed<F, R> f;
	struct up_items items(x, &c, record<F>::BYTES);
	struct solo_shared *s = (struct solo_shared *)(shared + WARPS * R * record<F>::BYTES);
	uint16_t *row = (uint16_t *)(s + 1), *shared_row = row + x.ld;
	f.open(shared);
	f.fill(items, items.shared, true);
	grid_wait();
	grid_release();
	copy_row(row, x.rows, x.ld);
	copy_row(shared_row, x.shared_rows, x.ld_shared);
	__syncthreads();
	if (team() == CHOOSER) {
		choose(&c, x, (float *)(shared_row + x.ld_shared));
		team_sync();
		items.prefetch_experts();
	}
#pragma unroll 1
	for (int j = 0, n = items.shared, all = items.count();; j++) {
		if (j == items.shared) {              /* the choice is known */
			__syncthreads();
			f.restart();
			f.fill(items, n = all, true);
		}
		if (j >= all)
			break;
		int v = items.unit_of(j);
		float *part = s->part[team()][j % 2];
		multiply<F>(part, f, items, n, v < 0 ? x.shared.steps : x.steps, v < 0 ? shared_row : row);
		team_sync();
		if (j % SLICES == slice() && lane() < TILE_ROWS)
			finish_up<F>(x, &c, part, v, lane());
		__syncwarp();
	}
}

/* A unit is a tile of all chosen experts, every other one a team's. */
struct down_items {
	const struct solo_experts &x;
	const struct choice *c;
	int bytes;
	__device__ int units(void) const { return max(0, (x.tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x); }
	__device__ int experts(void) const { return (x.route.k - team() + TEAMS - 1) / TEAMS; }
	__device__ struct run run_of(int j) const
	{
		int tile = blockIdx.x + j / experts() * gridDim.x, e = c->expert[team() + j % experts() * TEAMS];
		return { x.base + e * x.stride + (int64_t)tile * x.steps * bytes, x.steps };
	}
};

/* h[o] += the experts' weighted sum and the shared expert: residual_value of tiles.cuh. */
template <int F>
__device__ static inline void finish_down(const struct solo_experts &x, const struct choice *c, const float *part, int o,
					  float h, float shared)
{
	float sum = 0;
	if (o >= x.out)
		return;
#pragma unroll 2
	for (int e = 0; e < x.route.k; e++)
		sum = fmaf(c->weight[e], rounded(scaled<F>(sum_of(part + e * SLICES * TILE_ROWS, lane()), c->scale[e]), 1), sum);
	sum = rounded(sum, 1);
	if (x.shared_out)
		sum = rounded(sum + shared, 1);
	x.h[o] = rounded(h + sum, !x.wide);
}

/* The chosen experts' down projections and what is added to the residual stream.  Each team makes the choice for itself, so that
 * both pass as many barriers. */
template <int F> __global__ void __launch_bounds__(THREADS, 2) solo_down_tiles(const __grid_constant__ struct solo_experts x)
{
	extern __shared__ __align__(128) char shared[];
	__shared__ struct choice choices[TEAMS];
	struct choice &c = choices[team()];
	constexpr int R = ring<F>::LITTLE;
	struct feed<F, R> f;
	struct down_items items = { x, &c, record<F>::BYTES };
	int units = items.units(), each = items.experts(), warp = threadIdx.x / WARP, k = x.route.k;
	float *parts = (float *)(shared + WARPS * R * record<F>::BYTES);
	uint16_t *rows = (uint16_t *)(parts + 2 * k * SLICES * TILE_ROWS);
	float h = 0, add = 0;
	grid_release();
	f.open(shared);
	choose(&c, x, (float *)rows + team() * 2 * score_room(x.route.E));
	__syncthreads();
	f.fill(items, units * each, true);
	if (threadIdx.x % TEAM == 0)
		for (int j = 0; j < units * each; j++)
			if (j * x.steps >= SLICES * R)
				prefetch(items.run_of(j).w, x.steps * record<F>::BYTES);
	grid_wait();
	int o = (blockIdx.x + warp * gridDim.x) * TILE_ROWS + lane();
	if (lane() < TILE_ROWS && o < x.out) {
		h = __ldcg(x.h + o);
		add = x.shared_out ? __ldcg(x.shared_out + o) : 0.0f;
	}
	copy_row(rows, x.rows, k * x.ld);
	__syncthreads();
#pragma unroll 1
	for (int u = 0; u < units; u++) {
		float *part = parts + u % 2 * k * SLICES * TILE_ROWS;
#pragma unroll 1
		for (int e = team(); e < k; e += TEAMS)
			multiply<F>(part + e * SLICES * TILE_ROWS, f, items, units * each, x.steps, rows + e * x.ld);
		__syncthreads();
		if (u == warp && lane() < TILE_ROWS)
			finish_down<F>(x, &c, part, o, h, add);
		__syncwarp();
	}
}

/* ---- launchers ---- */
static int multiprocessors = 132;

template <int F> static cudaError_t launch_kind(struct solo_args a, int output, cudaStream_t s)
{
	void (*kernel)(const struct solo_args) = output == SOLO_CONV ? stream_conv_tiles_solo<F> : output == SOLO_KV ? solo_tiles<F, SOLO_KV> :
		output == SOLO_RELU2 ? solo_tiles<F, SOLO_RELU2> : output == SOLO_ADD ? solo_tiles<F, SOLO_ADD> : solo_tiles<F, SOLO_FLOAT>;
	bool little = output == SOLO_KV || output == SOLO_RELU2;
	size_t all = little ? LITTLE_BYTES : MUCH_BYTES, ring_bytes = (size_t)WARPS * record<F>::BYTES * (little ? ring<F>::LITTLE : ring<F>::MUCH);
	size_t used = ring_bytes + sizeof(struct solo_shared) + a.input.ld * sizeof(uint16_t) + (a.E ? a.input.in * sizeof(float) : 0);
	int blocks = a.units > a.E ? a.units : a.E;
	return launch(kernel, blocks < multiprocessors ? blocks : multiprocessors, THREADS, used > all ? used : all, s, a);
}

template <int F> static cudaError_t launch_experts(struct solo_experts x, int down, cudaStream_t s)
{
	size_t scores = (down ? TEAMS : 1) * 2 * score_room(x.route.E) * sizeof(float), all = down ? LITTLE_BYTES : MUCH_BYTES;
	size_t rows = (size_t)x.route.k * x.ld * sizeof(uint16_t), used = (size_t)WARPS * record<F>::BYTES * (down ? ring<F>::LITTLE : ring<F>::MUCH);
	int units = down ? x.tiles : x.shared.tiles + x.route.k * x.tiles;
	used += down ? 2 * x.route.k * SLICES * TILE_ROWS * sizeof(float) + (rows > scores ? rows : scores) :
		sizeof(struct solo_shared) + (x.ld + x.ld_shared) * sizeof(uint16_t) + scores;
	return launch(down ? solo_down_tiles<F> : solo_up_tiles<F>, units < multiprocessors ? units : multiprocessors, THREADS,
		      used > all ? used : all, s, x);
}

#define BY_KIND(kind, call) \
	switch (kind) { \
	case FORMAT_BF16: return call(FORMAT_BF16); \
	case FORMAT_FP8: return call(FORMAT_FP8); \
	case FORMAT_NVFP4: return call(FORMAT_NVFP4); \
	case PRODUCT_W8A8: return call(PRODUCT_W8A8); \
	default: return cudaErrorInvalidValue; \
	}

cudaError_t launch_solo(struct solo_args a, int output, int kind, cudaStream_t s)
{
#define CALL(F) launch_kind<F>(a, output, s)
	BY_KIND(kind, CALL)
#undef CALL
}

cudaError_t launch_solo_experts(struct solo_experts x, int down, int kind, cudaStream_t s)
{
#define CALL(F) launch_experts<F>(x, down, s)
	BY_KIND(kind, CALL)
#undef CALL
}

template <int F> static cudaError_t open_kind(void)
{
	const void *const kernels[] = {
		(const void *)stream_conv_tiles_solo<F>, (const void *)solo_tiles<F, SOLO_KV>, (const void *)solo_tiles<F, SOLO_RELU2>,
		(const void *)solo_tiles<F, SOLO_ADD>, (const void *)solo_tiles<F, SOLO_FLOAT>, (const void *)solo_up_tiles<F>,
		(const void *)solo_down_tiles<F>,
	};
	for (const void *k : kernels) {
		cudaError_t e = cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10);
		if (e != cudaSuccess)
			return e;
	}
	return cudaSuccess;
}

cudaError_t launch_solo_open(void)
{
	int device = 0;
	if (cudaGetDevice(&device) == cudaSuccess)
		cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
	cudaError_t e = open_kind<FORMAT_BF16>();
	e = e == cudaSuccess ? open_kind<FORMAT_FP8>() : e;
	e = e == cudaSuccess ? open_kind<FORMAT_NVFP4>() : e;
	return e == cudaSuccess ? open_kind<PRODUCT_W8A8>() : e;
}
