#include "launch.h"

extern "C" int launch_overlap = 0;

/* ---- embedding ---- */
/* h[t,:] = table[ids[t],:].  A block owns 256 columns of one token.  No alignment needed; no sum. */
__global__ void embed_rows(float *h, const int32_t *ids, struct raw_matrix w, int H, int bf16)
{
	int c = blockIdx.x * blockDim.x + threadIdx.x;
	grid_wait();
	grid_release();
	if (c < H)
		h[(int64_t)blockIdx.y * H + c] = rounded(raw_value(w, ids[blockIdx.y], c) * w.scale, bf16);
}

/* ---- RMSNorm ---- */
/* x = h * rsqrt(mean(h^2) + eps) * w after the pending addition.  A block owns a row, thread i the columns i, i + 512, ...;
 * squares are added per thread in ascending order, then by norm_sum: fixed.  No alignment needed. */
__global__ void __launch_bounds__(NORM_THREADS) rms_norm_rows(struct norm_args a)
{
	extern __shared__ float row[];
	int t = blockIdx.x, H = a.r.H;
	float sum = 0;
	grid_wait();
	grid_release();
	for (int c = threadIdx.x; c < H; c += NORM_THREADS) {
		float v = residual_value(a.r, t, c);
		if (a.r.y || a.r.down)
			a.r.h[(int64_t)t * H + c] = v;
		row[c] = a.r.wide ? rounded(v, a.r.bf16) : v;
		sum += row[c] * row[c];
	}
	float scale = 1.0f / sqrtf(norm_sum<0>(sum) / H + a.eps);
	for (int c0 = 0; c0 < (a.operand ? a.ld : H); c0 += NORM_THREADS) {
		int c = c0 + threadIdx.x;
		float v = c < H ? rounded(row[c] * scale * a.w[c], a.r.bf16) : 0.0f;
		if (a.x && c < H)
			a.x[(int64_t)t * H + c] = v;
		if (a.operand) {
			v = act_value(v, a.act, a.input_scale);
			if (c < a.ld)
				a.operand[(int64_t)t * a.ld + c] = bf16_bits(v);
		}
	}
}

/* y = rms_norm(y * silu(z)) * w over each group of channels.  A warp owns one group of a row, lane i the channels i,
 * i + 32, ... in ascending order, then warp_sum: fixed. */
__global__ void __launch_bounds__(256) gated_norm_groups(float *y, const float *z, int ldz, const float *w, int channels,
							  int groups, float eps, int bf16)
{
	int g = blockIdx.x * 8 + threadIdx.x / WARP, lane = threadIdx.x % WARP, size = channels / groups, t = blockIdx.y;
	grid_wait();
	grid_release();
	if (g >= groups)
		return;
	float *yr = y + (int64_t)t * channels + g * size;
	const float *zr = z + (int64_t)t * ldz + g * size;
	float r = gated_scale(yr, zr, size, eps);
	for (int c = lane; c < size; c += WARP)
		yr[c] = rounded(yr[c] * silu(zr[c]) * r * w[g * size + c], bf16);
}

/* h += what is pending.  A thread owns one element. */
__global__ void residual_elements(struct residual r, int T)
{
	grid_wait();
	grid_release();
	residual_apply(r, T, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

/* ---- elementwise ---- */
/* a += b, rounded.  A thread owns one element. */
__global__ void add_elements(float *a, const float *b, int64_t n, int bf16)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	grid_wait();
	grid_release();
	if (i < n)
		a[i] = rounded(a[i] + b[i], bf16);
}

/* x = relu(x)^2.  A thread owns one element. */
__global__ void relu2_elements(float *x, int64_t n, int bf16)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	grid_wait();
	grid_release();
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

cudaError_t launch_rms_norm(struct norm_args a, int T, cudaStream_t s)
{
	return launch(rms_norm_rows, T, NORM_THREADS, a.r.H * sizeof(float), s, a);
}

cudaError_t launch_residual(struct residual r, int T, cudaStream_t s)
{
	return launch(residual_elements, (unsigned)((T * r.H + 255) / 256), 256, 0, s, r, T);
}

cudaError_t launch_gated_norm(float *y, const float *z, int ldz, const float *w, int T, int channels, int groups,
			      float eps, int bf16, cudaStream_t s)
{
	return launch(gated_norm_groups, dim3((groups + 7) / 8, T), 256, 0, s, y, z, ldz, w, channels, groups, eps, bf16);
}

cudaError_t launch_add(float *a, const float *b, int64_t n, int bf16, cudaStream_t s)
{
	return launch(add_elements, (unsigned)((n + 255) / 256), 256, 0, s, a, b, n, bf16);
}

cudaError_t launch_relu2(float *x, int64_t n, int bf16, cudaStream_t s)
{
	return launch(relu2_elements, (unsigned)((n + 255) / 256), 256, 0, s, x, n, bf16);
}
