#include "launch.h"

extern "C" int launch_overlap = 0;

/* ---- embedding ---- */
/* h[t,:] = table[ids[t],:].  A block owns 256 columns of one token.  No alignment needed; no sum. */
__global__ void embed_rows(float *h, const int32_t *ids, struct raw_matrix w, int H, int bf16)
{
	int c = blockIdx.x * blockDim.x + threadIdx.x;
	grid_wait();
	grid_release();               /* no kernel of this step runs before the last step is over: some read states before they wait */
	if (c < H)
		h[(int64_t)blockIdx.y * H + c] = rounded(raw_value(w, ids[blockIdx.y], c) * w.scale, bf16);
}

/* ---- RMSNorm ---- */
/* Sum over a block of up to 1024 threads, the same in each: a tree over lanes, then over warps: fixed. */
__device__ static inline float block_sum(float x)
{
	__shared__ float part[WARP];
	x = warp_sum(x);
	if (threadIdx.x % WARP == 0)
		part[threadIdx.x / WARP] = x;
	__syncthreads();
	return warp_sum(threadIdx.x % WARP < blockDim.x / WARP ? part[threadIdx.x % WARP] : 0.0f);
}

__device__ static inline float4 weighted(float4 sum, float w, float4 v)
{
	return make_float4(fmaf(w, v.x, sum.x), fmaf(w, v.y, sum.y), fmaf(w, v.z, sum.z), fmaf(w, v.w, sum.w));
}
__device__ static inline float4 plus(float4 a, float4 b)
{
	return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* Quads i and i + step of row t after the addition: residual_value, four at a time; zeros behind the row. */
__device__ static inline void residual_quads(float4 v[2], const struct residual &r, int64_t t, int i, int step)
{
	const float4 zero = make_float4(0, 0, 0, 0), *down = (const float4 *)r.down + t * r.k * (r.H / 4) + i;
	const bool is[2] = { i < r.H / 4, i + step < r.H / 4 };
	float4 p[2] = { zero, zero }, shared[2] = { zero, zero };
	int64_t at = t * (r.H / 4) + i;
#pragma unroll
	for (int j = 0; j < 2; j++)
		v[j] = is[j] ? ((const float4 *)r.h)[at + j * step] : zero;
	if (!r.y && !r.down)
		return;
	const float4 *add = (const float4 *)(r.down ? r.shared : r.y);
#pragma unroll
	for (int j = 0; j < 2; j++)
		shared[j] = add && is[j] ? add[at + j * step] : zero;
	if (r.down) {
#pragma unroll 2
		for (int k = 0; k < r.k; k++, down += r.H / 4) {
			float w = r.weight[t * r.k + k];
#pragma unroll
			for (int j = 0; j < 2; j++)
				if (is[j])
					p[j] = weighted(p[j], w, down[j * step]);
		}
#pragma unroll
		for (int j = 0; j < 2; j++)
			p[j] = rounded_quad(p[j], r.bf16);
	}
#pragma unroll
	for (int j = 0; j < 2; j++) {
		if (!r.down)
			p[j] = shared[j];
		else if (r.shared)
			p[j] = rounded_quad(plus(p[j], shared[j]), r.bf16);
		v[j] = rounded_quad(plus(v[j], p[j]), r.bf16 && !r.wide);
	}
}

/* The row that rehearses an addition: every array is the norm's weights, of a single expert. */
__device__ static inline struct residual rehearsal(const struct norm_args &a)
{
	struct residual r = a.r;
	r.h = (float *)a.w;
	r.y = r.y ? a.w : NULL;
	r.down = r.down ? a.w : NULL;
	r.weight = a.w;
	r.shared = r.shared ? a.w : NULL;
	r.k = 1;
	return r;
}

/* x = h * rsqrt(mean(h^2) + eps) * w after the pending addition.  A block owns a row, a thread two quads of columns at a
 * time; sums by block_sum: fixed.  H and ld multiples of 4.  Threads and registers are few so that a block finds a place
 * beside its predecessor's.
 *
 * In decode few blocks run, their code is cold, and while they wait they have nothing to do: they rehearse once on other
 * numbers and store nothing. */
__global__ void __launch_bounds__(512, 2) rms_norm_rows(struct norm_args a)
{
	extern __shared__ float4 row[];
	int t = blockIdx.x, n = a.r.H / 4, ld = a.operand ? a.ld / 4 : n, pass = gridDim.x <= STREAM_ROWS ? 0 : 1;
	float g = 1.0f / a.input_scale;
	float4 early[2];                              /* the weights of the first quads */
#pragma unroll
	for (int j = 0; j < 2; j++)
		early[j] = (int)(threadIdx.x + j * blockDim.x) < n ? __ldg((const float4 *)a.w + threadIdx.x + j * blockDim.x) :
			make_float4(0, 0, 0, 0);
	grid_release();
#pragma unroll 1
	for (; pass < 2; pass++) {
		struct residual r = pass ? a.r : rehearsal(a);
		int64_t at = pass ? t : 0;
		float sum = 0;
		if (pass)
			grid_wait();
#pragma unroll 1
		for (int i0 = threadIdx.x; i0 < n; i0 += 2 * blockDim.x) {
			float4 v[2];
			residual_quads(v, r, at, i0, blockDim.x);
#pragma unroll
			for (int j = 0; j < 2; j++) {
				int i = i0 + j * blockDim.x;
				if (i >= n)
					break;
				if ((r.y || r.down) && pass)
					((float4 *)r.h)[at * n + i] = v[j];
				row[i] = v[j] = r.wide ? rounded_quad(v[j], r.bf16) : v[j];
				sum += (v[j].x * v[j].x + v[j].y * v[j].y) + (v[j].z * v[j].z + v[j].w * v[j].w);
			}
		}
		float scale = 1.0f / sqrtf(block_sum(sum) / r.H + a.eps);
#pragma unroll 2
		for (int i0 = 0, k = 0; i0 < ld; i0 += blockDim.x, k++) {
			int i = i0 + threadIdx.x;
			float4 v = make_float4(0, 0, 0, 0), w = k == 0 ? early[0] : early[1];
			if (i < n) {
				v = row[i];
				if (k > 1)
					w = __ldg((const float4 *)a.w + i);
				v = rounded_quad(make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z,
							     v.w * scale * w.w), r.bf16);
			}
			if (a.x && i < n && pass)
				((float4 *)a.x)[(int64_t)t * n + i] = v;
			if (a.operand) {
				v = act_quad(v, a.act, g);
				if (i < ld && pass)
					store_quad(a.operand + (int64_t)t * a.ld + i * 4, v, a.act);
			}
		}
		__syncthreads();
	}
}

/* The same for rows of any length, float output only.  Thread i: columns i, i + 256, ... */
__global__ void __launch_bounds__(256) rms_norm_elements(struct norm_args a)
{
	extern __shared__ float values[];
	int t = blockIdx.x;
	float sum = 0;
	grid_release();
	grid_wait();
	for (int c = threadIdx.x; c < a.r.H; c += blockDim.x) {
		float v = residual_value(a.r, t, c);
		if (a.r.y || a.r.down)
			a.r.h[(int64_t)t * a.r.H + c] = v;
		values[c] = v = a.r.wide ? rounded(v, a.r.bf16) : v;
		sum += v * v;
	}
	float scale = 1.0f / sqrtf(block_sum(sum) / a.r.H + a.eps);
	for (int c = threadIdx.x; c < a.r.H; c += blockDim.x)
		a.x[(int64_t)t * a.r.H + c] = rounded(values[c] * scale * a.w[c], a.r.bf16);
}

/* y = rms_norm(y * silu(z)) * w over each group of channels, or operand = the same as a product's input.  A block owns a
 * row, a thread four channels at a time; groups are whole warps' channels (multiples of 128), whose sums are added in
 * order: fixed. */
__global__ void __launch_bounds__(1024) gated_norm_rows(struct gated_args a)
{
	extern __shared__ float4 row[];
	int t = blockIdx.x, n = a.channels / 4, warps = a.channels / a.groups / (4 * WARP), ld = a.operand ? a.ld / 4 : n;
	float *part = (float *)(row + n), g = 1.0f / a.input_scale;
	float4 *y = (float4 *)(a.y + (int64_t)t * a.channels);
	const float4 *z = (const float4 *)(a.z + (int64_t)t * a.ldz);
	float4 w0 = (int)threadIdx.x < n ? __ldg((const float4 *)a.w + threadIdx.x) : make_float4(0, 0, 0, 0);
	grid_release();
	grid_wait();
#pragma unroll 1
	for (int i = threadIdx.x; i < n; i += blockDim.x) {
		float4 v = y[i], q = z[i];
		v = make_float4(v.x * silu(q.x), v.y * silu(q.y), v.z * silu(q.z), v.w * silu(q.w));
		row[i] = v;
		float sum = warp_sum((v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w));
		if (threadIdx.x % WARP == 0)
			part[i / WARP] = sum;
	}
	__syncthreads();
#pragma unroll 1
	for (int i0 = 0; i0 < ld; i0 += blockDim.x) {
		int i = i0 + threadIdx.x;
		float4 v = make_float4(0, 0, 0, 0), w = i0 && i < n ? __ldg((const float4 *)a.w + i) : w0;
		if (i < n) {
			const float *sums = part + i / WARP / warps * warps;
			float sum = sums[0];
			for (int k = 1; k < warps; k++)
				sum += sums[k];
			float scale = 1.0f / sqrtf(sum / (warps * 4 * WARP) + a.eps);
			v = row[i];
			v = rounded_quad(make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w), a.bf16);
			if (!a.operand)
				y[i] = v;
		}
		if (a.operand) {
			v = act_quad(v, a.act, g);
			if (i < ld)
				store_quad(a.operand + (int64_t)t * a.ld + i * 4, v, a.act);
		}
	}
}

/* The same for groups of any size, in place.  A block owns one group of one row. */
__global__ void __launch_bounds__(256) gated_norm_elements(struct gated_args a)
{
	extern __shared__ float values[];
	int size = a.channels / a.groups;
	float *y = a.y + (int64_t)blockIdx.y * a.channels + blockIdx.x * size, sum = 0;
	const float *z = a.z + (int64_t)blockIdx.y * a.ldz + blockIdx.x * size;
	grid_release();
	grid_wait();
	for (int c = threadIdx.x; c < size; c += blockDim.x) {
		values[c] = y[c] * silu(z[c]);
		sum += values[c] * values[c];
	}
	float scale = 1.0f / sqrtf(block_sum(sum) / size + a.eps);
	for (int c = threadIdx.x; c < size; c += blockDim.x)
		y[c] = rounded(values[c] * scale * a.w[blockIdx.x * size + c], a.bf16);
}

/* h += what is pending.  A thread owns one element. */
__global__ void residual_elements(struct residual r, int T)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	grid_release();
	grid_wait();
	if (i < T * r.H)
		r.h[i] = residual_value(r, i / r.H, i % r.H);
}

/* ---- elementwise ---- */
/* a += b, rounded.  A thread owns one element. */
__global__ void add_elements(float *a, const float *b, int64_t n, int bf16)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	grid_release();
	grid_wait();
	if (i < n)
		a[i] = rounded(a[i] + b[i], bf16);
}

/* x = relu(x)^2.  A thread owns one element. */
__global__ void relu2_elements(float *x, int64_t n, int bf16)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	grid_release();
	grid_wait();
	if (i < n) {
		float a = fmaxf(x[i], 0.0f);
		x[i] = rounded(a * a, bf16);
	}
}

/* ---- launchers ---- */
cudaError_t launch_embed(float *h, const int32_t *ids, struct raw_matrix w, int T, int H, int bf16, cudaStream_t s)
{
	return launch(embed_rows, dim3((H + 255) / 256, T), 256, 0, s, h, ids, w, H, bf16);
}

static unsigned threads_for(int n, int most) { return (unsigned)(n >= most ? most : (n + WARP - 1) / WARP * WARP); }

int norm_makes_operands(int H) { return H % 4 == 0; }

int gated_makes_operands(int channels, int groups, int ldz) { return channels / groups % (4 * WARP) == 0 && ldz % 4 == 0; }

int solo_norm_threads(int ld) { return (int)threads_for((ld / 4 + 1) / 2, 512); }

cudaError_t launch_rms_norm(struct norm_args a, int T, cudaStream_t s)
{
	int quads = (a.operand ? a.ld : a.r.H) / 4;
	if (!norm_makes_operands(a.r.H))
		return launch(rms_norm_elements, T, 256, a.r.H * sizeof(float), s, a);
	return launch(rms_norm_rows, T, solo_norm_threads(4 * quads), a.r.H * sizeof(float), s, a);
}

cudaError_t launch_residual(struct residual r, int T, cudaStream_t s)
{
	return launch(residual_elements, (unsigned)((T * r.H + 255) / 256), 256, 0, s, r, T);
}

cudaError_t launch_gated_norm(struct gated_args a, int T, cudaStream_t s)
{
	if (!gated_makes_operands(a.channels, a.groups, a.ldz))
		return launch(gated_norm_elements, dim3(a.groups, T), 256, a.channels / a.groups * sizeof(float), s, a);
	return launch(gated_norm_rows, T, threads_for((a.operand ? a.ld : a.channels) / 4, 1024),
		      (a.channels + a.channels / (4 * WARP)) * sizeof(float), s, a);
}

cudaError_t launch_add(float *a, const float *b, int64_t n, int bf16, cudaStream_t s)
{
	return launch(add_elements, (unsigned)((n + 255) / 256), 256, 0, s, a, b, n, bf16);
}

cudaError_t launch_relu2(float *x, int64_t n, int bf16, cudaStream_t s)
{
	return launch(relu2_elements, (unsigned)((n + 255) / 256), 256, 0, s, x, n, bf16);
}
