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
/* x = h * rsqrt(mean(h^2) + eps) * w.  A block owns a row, thread i the columns i, i + 256, ...; the sum of squares
 * is added per thread in ascending order, then in block_sum's order: fixed.  With `add` h += y comes first.
 * wide: h is fp32 and is read rounded to bf16.  h and x may differ from 16-byte alignment. */
__global__ void __launch_bounds__(NORM_THREADS) rms_norm_rows(float *x, float *h, const float *y, const float *w, int H,
							       float eps, int bf16, int wide)
{
	extern __shared__ float row[];
	float *hr = h + (int64_t)blockIdx.x * H, *xr = x + (int64_t)blockIdx.x * H, sum = 0;
	grid_wait();
	grid_release();
	for (int c = threadIdx.x; c < H; c += NORM_THREADS) {
		float v = hr[c];
		if (y) {
			v = rounded(v + y[(int64_t)blockIdx.x * H + c], bf16 && !wide);
			hr[c] = v;
		}
		row[c] = wide ? rounded(v, bf16) : v;
		sum += row[c] * row[c];
	}
	float r = 1.0f / sqrtf(block_sum(sum) / H + eps);
	for (int c = threadIdx.x; c < H; c += NORM_THREADS)
		xr[c] = rounded(row[c] * r * w[c], bf16);
}

/* y = rms_norm(y * silu(z)) * w over each group of channels.  A block owns one group of one row; sums as above. */
__global__ void __launch_bounds__(NORM_THREADS) gated_norm_groups(float *y, const float *z, int ldz, const float *w,
								   int channels, int size, float eps, int bf16)
{
	extern __shared__ float q[];
	float *yr = y + (int64_t)blockIdx.y * channels + blockIdx.x * size, sum = 0;
	const float *zr = z + (int64_t)blockIdx.y * ldz + blockIdx.x * size;
	grid_wait();
	grid_release();
	for (int c = threadIdx.x; c < size; c += NORM_THREADS) {
		q[c] = yr[c] * silu(zr[c]);
		sum += q[c] * q[c];
	}
	float r = 1.0f / sqrtf(block_sum(sum) / size + eps);
	for (int c = threadIdx.x; c < size; c += NORM_THREADS)
		yr[c] = rounded(q[c] * r * w[blockIdx.x * size + c], bf16);
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

cudaError_t launch_rms_norm(float *x, float *h, const float *y, const float *w, int T, int H, float eps, int bf16,
			    int wide, cudaStream_t s)
{
	return launch(rms_norm_rows, T, NORM_THREADS, H * sizeof(float), s, x, h, y, w, H, eps, bf16, wide);
}

cudaError_t launch_gated_norm(float *y, const float *z, int ldz, const float *w, int T, int channels, int groups,
			      float eps, int bf16, cudaStream_t s)
{
	int size = channels / groups;
	return launch(gated_norm_groups, dim3(groups, T), NORM_THREADS, size * sizeof(float), s, y, z, ldz, w, channels,
		      size, eps, bf16);
}

cudaError_t launch_add(float *a, const float *b, int64_t n, int bf16, cudaStream_t s)
{
	return launch(add_elements, (unsigned)((n + 255) / 256), 256, 0, s, a, b, n, bf16);
}

cudaError_t launch_relu2(float *x, int64_t n, int bf16, cudaStream_t s)
{
	return launch(relu2_elements, (unsigned)((n + 255) / 256), 256, 0, s, x, n, bf16);
}
