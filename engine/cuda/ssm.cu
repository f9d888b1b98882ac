#include "launch.h"

#define GATED_MAX 1024        /* channels of a group that a cluster can gate: 8 heads of 128 */
#define SSM_ROWS 16           /* state rows (head channels) of a block: 4 warps of 4 */

/* S = exp(A d) S + (d B) x, y = S C + D x, for one token of each row.  A block owns 16 channels of a head of one row, a warp
 * four of them, lane i the state columns 4i .. 4i + 3 of every 128; y is added per lane in ascending order, then by
 * warp_sum: fixed.  y comes from the fp32 state before it is rounded to the cache's type. */
__global__ void __launch_bounds__(128) ssm_step_rows(struct ssm_args a, const int32_t *slots)
{
	int tiles = (a.head_dim + SSM_ROWS - 1) / SSM_ROWS, h = blockIdx.x / tiles, row = blockIdx.y, lane = threadIdx.x % WARP;
	int p0 = blockIdx.x % tiles * SSM_ROWS + threadIdx.x / WARP * 4, N = a.state_size;
	grid_release();
	grid_wait();
	const float *u = a.u + (int64_t)row * a.ldu;
	const float *B = u + a.heads * a.head_dim + h / (a.heads / a.groups) * N, *C = B + a.groups * N;
	float d = fminf(fmaxf(softplus(a.dt[(int64_t)row * a.lddt + h] + a.dt_bias[h]), a.lo), a.hi), decay = expf(a.A[h] * d);
	for (int p = p0; p < min(p0 + 4, a.head_dim); p++) {
		float x = u[h * a.head_dim + p], sum = 0;
		int64_t at = slots[row] * a.stride + (int64_t)(h * a.head_dim + p) * N;
		for (int n0 = lane * 4; n0 < N; n0 += 4 * WARP)
			for (int n = n0; n < min(n0 + 4, N); n++) {
				float S = fmaf(d * B[n], x, decay * load_as_float(a.state, at + n, a.kind));
				sum = fmaf(S, C[n], sum);
				store_from_float(a.state, at + n, S, a.kind);
			}
		sum = warp_sum(sum);
		if (lane == 0)
			a.y[((int64_t)row * a.heads + h) * a.head_dim + p] = rounded(fmaf(a.D[h], x, sum), a.bf16);
	}
}

/* Four rows p .. p + 3 of a head's state, columns n .. n + 3: S = exp(A d) S + (d B) x; sum += S C. */
__device__ static inline void advance(float4 S[4], float sum[4], const float x[4], float4 b, float4 c, float decay)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		S[i].x = fmaf(b.x, x[i], decay * S[i].x), S[i].y = fmaf(b.y, x[i], decay * S[i].y);
		S[i].z = fmaf(b.z, x[i], decay * S[i].z), S[i].w = fmaf(b.w, x[i], decay * S[i].w);
		sum[i] = fmaf(S[i].w, c.w, fmaf(S[i].z, c.z, fmaf(S[i].y, c.y, fmaf(S[i].x, c.x, sum[i]))));
	}
}

/* The same where the state is fp32 and N a multiple of 128 columns: bit-equal, with 16-byte accesses. */
__global__ void __launch_bounds__(128) ssm_step_rows_wide(struct ssm_args a, const int32_t *slots)
{
	int tiles = (a.head_dim + SSM_ROWS - 1) / SSM_ROWS, h = blockIdx.x / tiles, row = blockIdx.y, lane = threadIdx.x % WARP;
	int p0 = blockIdx.x % tiles * SSM_ROWS + threadIdx.x / WARP * 4, N = a.state_size;
	grid_release();
	grid_wait();
	const float *u = a.u + (int64_t)row * a.ldu;
	const float *B = u + a.heads * a.head_dim + h / (a.heads / a.groups) * N, *C = B + a.groups * N;
	float d = fminf(fmaxf(softplus(a.dt[(int64_t)row * a.lddt + h] + a.dt_bias[h]), a.lo), a.hi), decay = expf(a.A[h] * d);
	float sum[4] = {}, x[4];
#pragma unroll
	for (int i = 0; i < 4; i++)
		x[i] = p0 + i < a.head_dim ? u[h * a.head_dim + p0 + i] : 0.0f;
	float *state = (float *)a.state + slots[row] * a.stride + (int64_t)(h * a.head_dim + p0) * N;
	for (int n = lane * 4; n < N; n += 4 * WARP) {
		float4 S[4] = {};
#pragma unroll
		for (int i = 0; i < 4; i++)
			if (p0 + i < a.head_dim)
				S[i] = *(const float4 *)(state + (int64_t)i * N + n);
		float4 b = { d * B[n], d * B[n + 1], d * B[n + 2], d * B[n + 3] }, c = { C[n], C[n + 1], C[n + 2], C[n + 3] };
		advance(S, sum, x, b, c, decay);
#pragma unroll
		for (int i = 0; i < 4; i++)
			if (p0 + i < a.head_dim)
				*(float4 *)(state + (int64_t)i * N + n) = S[i];
	}
#pragma unroll
	for (int i = 0; i < 4; i++) {
		float total = warp_sum(sum[i]);
		if (lane == 0 && p0 + i < a.head_dim)
			a.y[((int64_t)row * a.heads + h) * a.head_dim + p0 + i] =
				rounded(fmaf(a.D[h], x[i], total), a.bf16);
	}
}

#if __CUDA_ARCH__ >= 900
__device__ static inline void cluster_sync(void)
{
	asm volatile("barrier.cluster.arrive.release.aligned;\n"
		     "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/* *p of block `rank` of the cluster. */
__device__ static inline void store_at(const float *p, int rank, float v)
{
	uint32_t at;
	asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"((uint32_t)__cvta_generic_to_shared(p)), "r"(rank));
	asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(at), "f"(v) : "memory");
}
#else
__device__ static inline void cluster_sync(void) {}
__device__ static inline void store_at(const float *, int, float) {}
#endif

/* The state update as above, then the gated norm of norm.cu: operand = rms_norm(y * silu(z)) * w, bit-equal to the two.  A
 * cluster owns a group of one row, a block one of its heads; all blocks of a cluster get all gated values of the group.  The
 * state does not depend on the kernel before and comes in while that runs.  128 state columns. */
__global__ void __launch_bounds__(512) ssm_step_rows_gated(struct ssm_args a, struct gated_args g, const int32_t *slots)
{
	__shared__ float4 value[GATED_MAX / 4];
	__shared__ float part[GATED_MAX / 128];
	int h = blockIdx.x, row = blockIdx.y, lane = threadIdx.x % WARP, p0 = threadIdx.x / WARP * 4, N = 4 * WARP;
	int heads = a.heads / a.groups, rank = h % heads, quads = a.head_dim / 4, chunks = heads * a.head_dim / 128, q = threadIdx.x;
	float *state = (float *)a.state + slots[row] * a.stride + (int64_t)(h * a.head_dim + p0) * N + lane * 4;
	float bias = a.dt_bias[h], A = a.A[h], D = a.D[h];
	float4 S[4], w = q < quads ? __ldg((const float4 *)g.w + h * quads + q) : make_float4(0, 0, 0, 0);
#pragma unroll
	for (int i = 0; i < 4; i++)
		S[i] = *(const float4 *)(state + i * N);
	grid_release();
	grid_wait();
	const float *u = a.u + (int64_t)row * a.ldu, *B = u + a.heads * a.head_dim + h / heads * N, *C = B + a.groups * N;
	float sum[4] = {}, mine = 0, scale = 0, gate = lane < 4 ? g.z[(int64_t)row * g.ldz + h * a.head_dim + p0 + lane] : 0;
	float4 b = *(const float4 *)(B + lane * 4), c = *(const float4 *)(C + lane * 4), x4 = *(const float4 *)(u + h * a.head_dim + p0);
	float d = fminf(fmaxf(softplus(a.dt[(int64_t)row * a.lddt + h] + bias), a.lo), a.hi);
	const float xs[4] = { x4.x, x4.y, x4.z, x4.w };
	advance(S, sum, xs, make_float4(d * b.x, d * b.y, d * b.z, d * b.w), c, expf(A * d));
#pragma unroll
	for (int i = 0; i < 4; i++) {
		*(float4 *)(state + i * N) = S[i];
		float y = rounded(fmaf(D, xs[i], warp_sum(sum[i])), a.bf16);
		if (lane == i)
			mine = y * silu(gate);
	}
	if (lane < 4)
		for (int r = 0; r < heads; r++)
			store_at((float *)value + rank * a.head_dim + p0 + lane, r, mine);
	cluster_sync();
#pragma unroll 1
	for (int k = threadIdx.x / WARP; k < chunks; k += blockDim.x / WARP) {
		float4 v = value[k * WARP + lane];
		float of_chunk = warp_sum((v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w));
		if (lane == 0)
			part[k] = of_chunk;
	}
	__syncthreads();
	if (q >= (quads + WARP - 1) / WARP * WARP)
		return;
	for (int k = 0; k < chunks; k++)
		scale = k ? scale + part[k] : part[0];
	scale = 1.0f / sqrtf(scale / (chunks * 128) + g.eps);
	float4 v = q < quads ? value[rank * quads + q] : make_float4(0, 0, 0, 0);
	v = rounded_quad(make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w), g.bf16);
	v = act_quad(v, g.act, 1.0f / g.input_scale);
	if (q < quads)
		store_quad(g.operand + (int64_t)row * g.ld + (h * quads + q) * 4, v, g.act);
}

/* The update of ssm_step_rows for a single token, then mix = y * silu(z).  A block owns 16 channels of a head, a warp four.
 * The state does not depend on the kernel before and comes in while that runs. */
__global__ void __launch_bounds__(128) ssm_step_rows_gate(struct ssm_args a, const float *z, const int32_t *slots)
{
	int tiles = (a.head_dim + SSM_ROWS - 1) / SSM_ROWS, h = blockIdx.x / tiles, lane = threadIdx.x % WARP, N = a.state_size;
	int p0 = blockIdx.x % tiles * SSM_ROWS + threadIdx.x / WARP * 4, n = lane * 4;
	float *state = (float *)a.state + slots[0] * a.stride + (int64_t)(h * a.head_dim + p0) * N + n;
	const float *B = a.u + a.heads * a.head_dim + h / (a.heads / a.groups) * N, *C = B + a.groups * N;
	float bias = a.dt_bias[h], A = a.A[h], D = a.D[h], sum[4] = {}, x[4], gate[4];
	float4 S[4] = {}, b = make_float4(0, 0, 0, 0), c = b;
#pragma unroll
	for (int i = 0; i < 4; i++)
		if (n < N && p0 + i < a.head_dim)
			S[i] = *(const float4 *)(state + i * N);
	grid_release();
	grid_wait();
	if (n < N)
		b = *(const float4 *)(B + n), c = *(const float4 *)(C + n);
#pragma unroll
	for (int i = 0; i < 4; i++) {
		x[i] = p0 + i < a.head_dim ? a.u[h * a.head_dim + p0 + i] : 0.0f;
		gate[i] = p0 + i < a.head_dim ? z[h * a.head_dim + p0 + i] : 0.0f;
	}
	float d = fminf(fmaxf(softplus(a.dt[h] + bias), a.lo), a.hi);
	advance(S, sum, x, make_float4(d * b.x, d * b.y, d * b.z, d * b.w), c, expf(A * d));
#pragma unroll
	for (int i = 0; i < 4; i++) {
		float y = rounded(fmaf(D, x[i], warp_sum(sum[i])), a.bf16);
		if (lane == 0 && p0 + i < a.head_dim)
			a.y[h * a.head_dim + p0 + i] = y * silu(gate[i]);
		if (n < N && p0 + i < a.head_dim)
			*(float4 *)(state + i * N) = S[i];
	}
}

int ssm_step_mixes(struct ssm_args a)
{
	return a.kind == KIND_F32 && a.state_size % 4 == 0 && a.state_size <= 4 * WARP && a.stride % 4 == 0 &&
	       a.heads * a.head_dim % 4 == 0;
}

cudaError_t launch_ssm_step_gate(struct ssm_args a, const float *z, const int32_t *slots, cudaStream_t s)
{
	return launch(ssm_step_rows_gate, (unsigned)(a.heads * ((a.head_dim + SSM_ROWS - 1) / SSM_ROWS)), 128, 0, s, a, z, slots);
}

int ssm_step_gates(struct ssm_args a, struct gated_args g)
{
	int heads = a.heads / a.groups, size = heads * a.head_dim;
	return heads <= 8 && a.head_dim % 16 == 0 && a.head_dim <= 128 && size % 128 == 0 && a.state_size == 4 * WARP &&
	       a.kind == KIND_F32 && a.stride % 4 == 0 && a.ldu % 4 == 0 && g.ld == a.heads * a.head_dim && g.groups == a.groups;
}

cudaError_t launch_ssm_step_gated(struct ssm_args a, struct gated_args g, const int32_t *slots, int rows, cudaStream_t s)
{
	return launch_cluster(ssm_step_rows_gated, dim3(a.heads, rows), a.head_dim * 8, 0, a.heads / a.groups, s, a, g, slots);
}

cudaError_t launch_ssm_step(struct ssm_args a, const int32_t *slots, int rows, cudaStream_t s)
{
	dim3 grid((unsigned)(a.heads * ((a.head_dim + SSM_ROWS - 1) / SSM_ROWS)), rows);
	if (a.kind == KIND_F32 && a.state_size % (4 * WARP) == 0 && a.stride % 4 == 0)
		return launch(ssm_step_rows_wide, grid, 128, 0, s, a, slots);
	return launch(ssm_step_rows, grid, 128, 0, s, a, slots);
}
