#include <stddef.h>
#include "launch.h"
#include "bulk.cuh"

/* Products of many token rows on the warpgroup tensor cores of sm_90 (wgmma), for builds and devices that have them; elsewhere
 * product_wide of linear.cu.
 *
 * Blocks stay: each takes every gridDim-th item, 8 tiles of 16 outputs times a run of up to 128 token rows.  Of three warpgroups
 * one brings weights and rows into a ring of stages, running ahead across items; two multiply, a warp one tile of 16 outputs.
 * The weights are unpacked into registers, the 64-row side of m64nNk16; the rows are its other side, from shared memory.
 *
 * Order of a sum: that of linear.cu.  A column has the same place in an mma as there, which is why the operand's columns come
 * in another order: wide_column. */

#if ASSAY_SM90A
#define WIDE 128                      /* outputs and token rows of an item */
#define TILES (WIDE / TILE_ROWS)
#define GROUP 128                     /* threads of a warpgroup */
#define THREADS (3 * GROUP)
#define ROW_BYTES (TILE_STEP * 2)     /* of a token row in a stage */
#define X_BYTES (WIDE * ROW_BYTES)
#define SUM_ROW (TILE_ROWS + 4)       /* floats of a token row's sums on their way out, against bank conflicts */
#define OUT_ROWS 64                   /* token rows of a warp that are on their way at a time */
#define SUM_BYTES (OUT_ROWS * SUM_ROW * 4)
#define MOST_STAGES 8

/* Shared memory of a block: stages of rows, stages of weights, a warp's sums on their way out, barriers; aligned to 1024. */
template <int F> struct layout {
	enum { W_BYTES = TILES * record<F>::BYTES, ROOM = (225 << 10) - TILES * SUM_BYTES,
	       STAGES = ROOM / (X_BYTES + W_BYTES) < MOST_STAGES ? ROOM / (X_BYTES + W_BYTES) : MOST_STAGES,
	       W = STAGES * X_BYTES, SUMS = W + STAGES * W_BYTES, READY = SUMS + TILES * SUM_BYTES, FREE = READY + STAGES * 8,
	       BYTES = FREE + STAGES * 8 + 1024,
	       LATE = STAGES - 3 };           /* steps that are under way when one is passed on; who multiplies holds up to 3 */
};

/* A stage, and the parity of its barriers' phase. */
struct cursor {
	int slot, lap;
	__device__ void next(int stages)
	{
		if (++slot == stages)
			slot = 0, lap ^= 1;
	}
};

__device__ inline void init_at(uint32_t barrier, int count)
{
	asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");
}
__device__ inline void arrive_at(uint32_t barrier)
{
	asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" :: "r"(barrier) : "memory");
}
__device__ inline void wait_at(uint32_t barrier, int parity)
{
	asm volatile("{ .reg .pred p;\n"
		     "again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
		     "@p bra done; bra again; done: }" :: "r"(barrier), "r"(parity) : "memory");
}

/* ---- items ---- */
struct item { int first, count, tile; struct packed_matrix w; };

/* Item i, false: none of this kernel's.  One matrix: its tiles in order, each for all runs, which read the same weights;
 * experts: run by run. */
template <int F>
__device__ static inline bool item_at(struct item &at, const struct product &p, const struct packed_matrix &w,
				      const struct packed_matrix *table, int columns, int i)
{
	if (table) {
		struct expert_tile t = p.plan.tile[i / columns];
		at.tile = i % columns * TILES, at.first = t.first, at.count = t.count, at.w = table[t.expert];
	} else {
		int runs = (p.T + WIDE - 1) / WIDE;
		at.tile = i / runs * TILES, at.first = i % runs * WIDE;
		at.count = min(WIDE, p.T - at.first), at.w = w;
	}
	return product_of(at.w.format, at.w.act) == F && at.tile < at.w.tiles;
}

/* Rows that are multiplied: `count` rounded up to what there is an instruction for. */
__device__ inline int rows_of(int count) { return (count + 15) / 16 * 16; }

/* The steps of a product: slice by slice, s, s + 8, ... */
__device__ inline int step_after(int step, int steps) { return step + SLICES < steps ? step + SLICES : step % SLICES + 1; }

/* ---- the warpgroup that brings ---- */
__device__ inline void copy_unit(uint32_t to, const char *from)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}

/* A thread's 16-byte units of every step: some of the tiles, unit `t % 8` of rows t / 8, + 16, ... */
template <int F> struct share {
	enum { UNITS = record<F>::BYTES / 16, W = (TILES * UNITS + GROUP - 1) / GROUP, X = WIDE / 16 };
	const char *w[W], *rows;
	uint32_t row[X];                      /* in units, which rows may have 2^32 of */
	int n;

	__device__ void open(const struct product &p, const struct item &at, int t)
	{
		n = rows_of(at.count), rows = (const char *)p.x;
#pragma unroll
		for (int k = 0; k < W; k++) {
			int i = t + k * GROUP, tile = min(at.tile + i / UNITS, at.w.tiles - 1);
			w[k] = at.w.weight + (int64_t)tile * at.w.steps * record<F>::BYTES + i % UNITS * 16;
		}
#pragma unroll
		for (int k = 0; k < X; k++) {
			int i = at.first + min(t / 8 + k * 16, at.count - 1);
			row[k] = (uint32_t)(p.plan.tile ? p.plan.entry[i] / p.x_div : i) * (p.ldx / 8) + t % 8;
		}
	}
	/* wgmma reads chunk c of a row at c ^ row % 8. */
	__device__ void copy(uint32_t x, uint32_t tiles, int step, int t) const
	{
		uint32_t to = x + t / 8 * ROW_BYTES + (t % 8 ^ t / 8 % 8) * 16;
#pragma unroll
		for (int k = 0; k < W; k++)
			if ((k + 1) * GROUP <= TILES * UNITS || t + k * GROUP < TILES * UNITS)
				copy_unit(tiles + (t + k * GROUP) * 16, w[k] + (uint32_t)(step * record<F>::BYTES));
#pragma unroll
		for (int k = 0; k < X; k++)
			if (k * 16 < n)
				copy_unit(to + k * 16 * ROW_BYTES, rows + (uint64_t)(row[k] + step * (ROW_BYTES / 16)) * 16);
		asm volatile("cp.async.commit_group;" ::: "memory");
	}
};

template <int F>
__device__ static inline void bring_items(const struct product &p, const struct packed_matrix &w, const struct packed_matrix *table,
					  int columns, int items, uint32_t base)
{
	using at_of = layout<F>;
	struct cursor c = {}, passed = {};
	struct item at;
	int t = threadIdx.x % GROUP, late = 0;
#pragma unroll 1
	for (int i = blockIdx.x; i < items; i += gridDim.x) {
		if (!item_at<F>(at, p, w, table, columns, i))
			continue;
		struct share<F> mine;
		mine.open(p, at, t);
		int step = 0;
#pragma unroll 1
		for (int k = 0; k < at.w.steps; k++) {
			wait_at(base + at_of::FREE + c.slot * 8, c.lap ^ 1);
			mine.copy(base + c.slot * X_BYTES, base + at_of::W + c.slot * at_of::W_BYTES, step, t);
			step = step_after(step, at.w.steps);
			c.next(at_of::STAGES);
			if (late < at_of::LATE) {
				late++;
				continue;
			}
			asm volatile("cp.async.wait_group %0;" :: "n"((int)layout<F>::LATE) : "memory");
			arrive_at(base + at_of::READY + passed.slot * 8);
			passed.next(at_of::STAGES);
		}
	}
	asm volatile("cp.async.wait_all;" ::: "memory");
	for (; late > 0; late--) {
		arrive_at(base + at_of::READY + passed.slot * 8);
		passed.next(at_of::STAGES);
	}
}

/* ---- the warpgroups that multiply ---- */
/* What wgmma writes or reads is not to be touched between its issue and wait_multiplied. */
__device__ inline void fence_registers(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ static inline void wait_multiplied(float acc[N / 2])
{
	asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
	for (int i = 0; i < N / 2; i++)
		asm volatile("" : "+f"(acc[i]) :: "memory");
}

#define R8(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define R16(i) R8(i), R8(i + 8)
#define S8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define S16 S8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define S24 S16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define S32 S24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define S40 S32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define S48 S40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define S56 S48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define S64 S56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA(SHAPE, TYPE, REGISTERS, A, ROWS, SUM, ...) \
	asm volatile("{ .reg .pred p; setp.ne.u32 p, " SUM ", 0;\n" \
		     "wgmma.mma_async.sync.aligned." SHAPE "k16.f32." TYPE "." TYPE " {" REGISTERS "}, {" A "}, " ROWS ", p, 1, 1, 0; }" \
		     : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows), "r"((uint32_t)add))
#define WGMMA_OF(SHAPE, REGISTERS, A, ROWS, SUM, ...) do { \
		if constexpr (FP16) \
			WGMMA(SHAPE, "f16", REGISTERS, A, ROWS, SUM, __VA_ARGS__); \
		else \
			WGMMA(SHAPE, "bf16", REGISTERS, A, ROWS, SUM, __VA_ARGS__); \
	} while (0)

/* c = A B, or c += A B with `add`: A a warp's 16 rows of 16 weights, B the N token rows that the descriptor stands for. */
template <int N, bool FP16> __device__ static inline void wgmma(float c[N / 2], const uint32_t a[4], uint64_t rows, bool add)
{
	if constexpr (N == 16)
		WGMMA_OF("m64n16", S8, "%8, %9, %10, %11", "%12", "%13", R8(0));
	else if constexpr (N == 32)
		WGMMA_OF("m64n32", S16, "%16, %17, %18, %19", "%20", "%21", R16(0));
	else if constexpr (N == 48)
		WGMMA_OF("m64n48", S24, "%24, %25, %26, %27", "%28", "%29", R16(0), R8(16));
	else if constexpr (N == 64)
		WGMMA_OF("m64n64", S32, "%32, %33, %34, %35", "%36", "%37", R16(0), R16(16));
	else if constexpr (N == 80)
		WGMMA_OF("m64n80", S40, "%40, %41, %42, %43", "%44", "%45", R16(0), R16(16), R8(32));
	else if constexpr (N == 96)
		WGMMA_OF("m64n96", S48, "%48, %49, %50, %51", "%52", "%53", R16(0), R16(16), R16(32));
	else if constexpr (N == 112)
		WGMMA_OF("m64n112", S56, "%56, %57, %58, %59", "%60", "%61", R16(0), R16(16), R16(32), R8(48));
	else
		WGMMA_OF("m64n128", S64, "%64, %65, %66, %67", "%68", "%69", R16(0), R16(16), R16(32), R16(48));
}

/* Where the rows of a stage are: 128-byte rows, swizzled, 1024 bytes from eight rows to the next. */
__device__ inline uint64_t descriptor(uint32_t x)
{
	return (uint64_t)(1 << 30 | 1024 >> 4) << 32 | (1 << 16 | x >> 4);
}

/* A warp's tile of a step in the order of the mma: both halves, two mma each. */
template <int F> __device__ static inline void unpack_tile(uint32_t to[4][4], const struct step<F> &s)
{
#pragma unroll
	for (int u = 0; u < 2; u++) {
		uint32_t a[4], b[4];
		if (u)
			s.template unpack<1>(a, b);
		else
			s.template unpack<0>(a, b);
#pragma unroll
		for (int i = 0; i < 2; i++)
			to[2 * u + i][0] = a[2 * i], to[2 * u + i][1] = b[2 * i], to[2 * u + i][2] = a[2 * i + 1], to[2 * u + i][3] = b[2 * i + 1];
	}
}

/* A warp's tile of the next stage, once that is there.  Copies are written as threads write, wgmma reads otherwise: the fence. */
template <int F> __device__ static inline void load_tile(struct step<F> &s, struct cursor &c, uint32_t base)
{
	wait_at(base + layout<F>::READY + c.slot * 8, c.lap);
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
	s.load_shared(base + layout<F>::W + threadIdx.x / WARP * record<F>::BYTES + c.slot * layout<F>::W_BYTES, threadIdx.x % WARP);
	c.next(layout<F>::STAGES);
}

/* All steps of an item.  While the tensor cores have a step, the weights of the next are unpacked and those of the one after
 * it loaded.  c: the stage to multiply; ahead: the stage to load. */
template <int F, int N>
__device__ static inline void multiply_item(float sum[WIDE / 2], struct cursor &c, struct cursor &ahead, uint32_t base, int steps)
{
	float acc[N / 2] = {};
	uint32_t a[2][4][4];
	struct step<F> s;
	int slice = 0, end = (steps + SLICES - 1) / SLICES;   /* the step behind the slice */
	bool add = false;                                     /* to what the slice has so far */
#pragma unroll
	for (int i = 0; i < N / 2; i++)
		sum[i] = -0.0f;                               /* -0 + v is v */
	load_tile<F>(s, ahead, base);
	unpack_tile<F>(a[0], s);
	if (steps > 1)
		load_tile<F>(s, ahead, base);
#pragma unroll 1
	for (int k0 = 0; k0 < steps; k0 += 2)
#pragma unroll
		for (int j = 0; j < 2; j++) {
			int k = k0 + j;
			if (k >= steps)
				break;
			uint32_t rows = base + c.slot * X_BYTES;
			fence_registers();
#pragma unroll
			for (int i = 0; i < 4; i++)
				wgmma<N, F == PRODUCT_W8A8>(acc, a[j][i], descriptor(rows + i * 32), add || i);
			commit();
			if (k + 1 < steps)
				unpack_tile<F>(a[j ^ 1], s);
			if (k + 2 < steps)
				load_tile<F>(s, ahead, base);
			wait_multiplied<N>(acc);
			__syncwarp();                 /* every lane has read */
			if (threadIdx.x % WARP == 0)
				arrive_at(base + layout<F>::FREE + c.slot * 8);
			c.next(layout<F>::STAGES);
			add = k + 1 < end;
			if (add)
				continue;
			end += (steps - ++slice + SLICES - 1) / SLICES;
#pragma unroll
			for (int i = 0; i < N / 2; i++)
				sum[i] += acc[i];
		}
}

/* Four neighbouring outputs of a row to their places. */
__device__ inline void put_quad(const struct product &p, const struct packed_matrix &w, int64_t row, int o, float scale, float4 v)
{
	float q[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
	for (int i = 0; i < 4; i++) {
		q[i] = (w.steps < SLICES ? q[i] + 0.0f : q[i]) * scale;
		if (w.bias && o + i < w.out)
			q[i] += w.bias[o + i];
		q[i] = rounded(q[i], p.bf16);
		if (p.relu2)
			q[i] = squared(q[i], p.bf16);
	}
	if (p.y && o + 3 < w.out && p.ldy % 4 == 0)
		*(float4 *)(p.y + row * p.ldy + o) = make_float4(q[0], q[1], q[2], q[3]);
	else if (p.y)
		for (int i = 0; i < 4; i++)
			if (o + i < w.out)
				p.y[row * p.ldy + o + i] = q[i];
	if (p.y_bf16)
#pragma unroll
		for (int i = 0; i < 4; i++)
			if (o + i < w.out)
				p.y_bf16[row * p.ldy_bf16 + wide_column(o + i)] = bf16_bits(q[i]);
}

/* A warp's sums, by way of shared memory, where they become runs of outputs. */
template <int N>
__device__ static inline void store_item(const struct product &p, const struct item &at, float scale, const float sum[WIDE / 2], float *room)
{
	int lane = threadIdx.x % WARP, g = lane / 4, q = lane % 4, o = (at.tile + threadIdx.x / WARP) * TILE_ROWS + q * 4;
#pragma unroll
	for (int c0 = 0; c0 < N; c0 += OUT_ROWS) {
		constexpr int MOST = N < OUT_ROWS ? N : OUT_ROWS;
		int row[2];                           /* of token rows c0 + lane and 32 further */
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int i = at.first + min(c0 + h * WARP + lane, at.count - 1);
			row[h] = p.plan.tile ? __ldg(p.plan.entry + i) : i;
		}
		__syncwarp();
#pragma unroll
		for (int i = 0; i < MOST / 2; i++)
			if (c0 / 2 + i < N / 2)
				room[(i / 4 * 8 + q * 2 + i % 2) * SUM_ROW + g + i % 4 / 2 * 8] = sum[c0 / 2 + i];
		__syncwarp();
#pragma unroll 2
		for (int c = g; c < MOST && c0 + c - g < N; c += 8) {
			int to = __shfl_sync(FULL, c < WARP ? row[0] : row[1], c % WARP);
			if (c0 + c < at.count)
				put_quad(p, at.w, to, o, scale, *(const float4 *)(room + c * SUM_ROW + q * 4));
		}
	}
}

template <int F, int N>
__device__ static inline void item_of(const struct product &p, const struct item &at, struct cursor &c, struct cursor &ahead, char *shared)
{
	float sum[WIDE / 2];
	multiply_item<F, N>(sum, c, ahead, shared_address(shared), at.w.steps);
	store_item<N>(p, at, F == FORMAT_NVFP4 ? at.w.scale * NVFP4_RESCALE : at.w.scale, sum,
		      (float *)(shared + layout<F>::SUMS + threadIdx.x / WARP * SUM_BYTES));
}

/* Weights and x aligned to 16. */
template <int F>
__global__ void __launch_bounds__(THREADS, 1) product_warpgroups(const __grid_constant__ struct product p,
								  const __grid_constant__ struct packed_matrix w,
								  const struct packed_matrix *table, int columns)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	extern __shared__ char pool[];
	char *shared = pool + (-shared_address(pool) & 1023);
	uint32_t base = shared_address(shared);
	if (threadIdx.x == 0) {
		for (int i = 0; i < layout<F>::STAGES; i++) {
			init_at(base + layout<F>::READY + i * 8, GROUP);
			init_at(base + layout<F>::FREE + i * 8, 2 * GROUP / WARP);
		}
		barriers_ready();
	}
	__syncthreads();
	grid_release();
	grid_wait();
	int items = (table ? *p.plan.n_tiles : (p.T + WIDE - 1) / WIDE) * columns;
	if (threadIdx.x >= 2 * GROUP) {
		asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
		bring_items<F>(p, w, table, columns, items, base);
		return;
	}
	asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
	struct cursor c = {}, ahead = {};
	struct item at;
#pragma unroll 1
	for (int i = blockIdx.x; i < items; i += gridDim.x) {
		if (!item_at<F>(at, p, w, table, columns, i))
			continue;
		switch (rows_of(at.count)) {
		case 16: item_of<F, 16>(p, at, c, ahead, shared); break;
		case 32: item_of<F, 32>(p, at, c, ahead, shared); break;
		case 48: item_of<F, 48>(p, at, c, ahead, shared); break;
		case 64: item_of<F, 64>(p, at, c, ahead, shared); break;
		case 80: item_of<F, 80>(p, at, c, ahead, shared); break;
		case 96: item_of<F, 96>(p, at, c, ahead, shared); break;
		case 112: item_of<F, 112>(p, at, c, ahead, shared); break;
		default: item_of<F, WIDE>(p, at, c, ahead, shared);
		}
	}
#endif
}

/* ---- launchers ---- */
static int multiprocessors;           /* 0: no such kernels */

template <int F>
static cudaError_t launch_items(struct product p, struct packed_matrix w, const struct packed_matrix *table, int tiles, int runs,
				cudaStream_t s)
{
	int columns = (tiles + TILES - 1) / TILES, items = runs * columns;
	return launch(product_warpgroups<F>, items < multiprocessors ? items : multiprocessors, THREADS, layout<F>::BYTES, s, p, w, table,
		      columns);
}

int product_is_wide(int rows) { return multiprocessors && rows > WIDE / 2; }

cudaError_t launch_product_wide(struct product p, struct packed_matrix w, const struct packed_matrix *table, int kind, int tiles, int runs,
				cudaStream_t s)
{
	switch (kind) {
	case FORMAT_BF16: return launch_items<FORMAT_BF16>(p, w, table, tiles, runs, s);
	case FORMAT_FP8: return launch_items<FORMAT_FP8>(p, w, table, tiles, runs, s);
	case FORMAT_NVFP4: return launch_items<FORMAT_NVFP4>(p, w, table, tiles, runs, s);
	case PRODUCT_W8A8: return launch_items<PRODUCT_W8A8>(p, w, table, tiles, runs, s);
	default: return cudaErrorInvalidValue;
	}
}

cudaError_t launch_product_wide_open(int count)
{
	cudaError_t e = cudaSuccess;
	multiprocessors = 0;
	if (!count)
		return e;
	const struct { const void *kernel; int bytes; } kernels[] = {
		{ (const void *)product_warpgroups<FORMAT_BF16>, layout<FORMAT_BF16>::BYTES },
		{ (const void *)product_warpgroups<FORMAT_FP8>, layout<FORMAT_FP8>::BYTES },
		{ (const void *)product_warpgroups<FORMAT_NVFP4>, layout<FORMAT_NVFP4>::BYTES },
		{ (const void *)product_warpgroups<PRODUCT_W8A8>, layout<PRODUCT_W8A8>::BYTES },
	};
	for (auto k : kernels)
		if (e == cudaSuccess)
			e = cudaFuncSetAttribute(k.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, k.bytes);
	if (e == cudaSuccess)
		multiprocessors = count;
	return e;
}
#else
int product_is_wide(int) { return 0; }
cudaError_t launch_product_wide(struct product, struct packed_matrix, const struct packed_matrix *, int, int, int, cudaStream_t)
{
	return cudaErrorNoKernelImageForDevice;
}
cudaError_t launch_product_wide_open(int) { return cudaSuccess; }
#endif
