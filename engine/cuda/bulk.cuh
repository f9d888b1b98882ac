/* What the kernels that stream weights share: barriers in shared memory, bulk copies, and outputs that are more than a
 * number in an array. */
#ifndef ASSAY_ENGINE_CUDA_BULK_CUH
#define ASSAY_ENGINE_CUDA_BULK_CUH

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
__device__ static inline void barrier_wait(uint32_t at, int parity)
{
	asm volatile("{ .reg .pred p;\n"
		     "again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
		     "@p bra done; bra again; done: }" :: "r"(at), "r"(parity) : "memory");
}
__device__ static inline void barrier_wait(uint64_t *b, int parity) { barrier_wait(shared_address(b), parity); }
__device__ static inline void barriers_ready(void) { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
/* Copies bytes (a multiple of 16) from global memory; `full` completes when they have arrived.  They are read once: the cache
 * may drop them first, so that activations and code stay. */
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
/* Into L2, for a kernel or a stage that comes soon.  bytes: a multiple of 16. */
__device__ static inline void prefetch(const void *from, int bytes)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(from), "r"(bytes) : "memory");
#endif
}

/* ---- products ---- */
/* A step against 8 rows: x holds this lane's columns of its row, both halves. */
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

/* ---- results ---- */
/* What an output needs beside its sum, loaded while the weights are on their way. */
struct early { float scale, bias, window[3], w[4], conv_bias; };

__device__ static inline void early_conv(struct early &e, const struct stream_conv &k, const int32_t *slots, int row, int o)
{
	int c = o - k.first;
	if (c < 0 || c >= k.channels)
		return;
	const float *window = k.state + slots[row] * k.stride + c, *w = k.w + c * k.kernel;
	e.conv_bias = k.bias ? k.bias[c] : 0.0f;
#pragma unroll
	for (int j = 0; j < 4; j++)
		if (j < k.kernel) {
			e.w[j] = w[j];
			if (j < 3 && j < k.kernel - 1)
				e.window[j] = window[(int64_t)j * k.channels];
		}
}

/* The convolution step of one channel, or y[o] = v: up to four taps from registers, else conv_at and conv_shift. */
__device__ static inline void put_conv(const struct stream_conv &k, const struct early &e, float *y, const int32_t *slots,
				       int t, int o, float v, int bf16)
{
	int c = o - k.first;
	if (c < 0 || c >= k.channels) {
		y[o] = v;
		return;
	}
	float *window = k.state + slots[t] * k.stride + c, sum = e.conv_bias;
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
	k.u[(int64_t)t * k.channels + c] = rounded(sum, bf16);
}

/* Segment 0 is the query; the others are appended to their caches.  width: of the segment. */
__device__ static inline void put_kv(const struct stream_kv &kv, int segment, float *y, int slot, int t, int o, int width, float v)
{
	if (segment == 0) {
		y[o] = v;
		return;
	}
	float scale = segment == 1 ? kv.k_scale : kv.v_scale;
	int64_t at = slot * (segment == 1 ? kv.k_stride : kv.v_stride) + (int64_t)kv.pos[t] * width + o;
	store_from_float(segment == 1 ? kv.k_cache : kv.v_cache, at, kv.kind == KIND_FP8 ? v / scale : v, kv.kind);
}

__device__ static inline float squared(float v, int bf16)
{
	v = fmaxf(v, 0.0f);
	return rounded(v * v, bf16);
}
#endif
