/* What both forms of the chunk scan share: scan.cu in plain fp32, ssd.cu on tensor cores. */
#ifndef ASSAY_ENGINE_CUDA_SCAN_CUH
#define ASSAY_ENGINE_CUDA_SCAN_CUH

struct chunk { int start, length; };

__device__ static inline struct chunk chunk_at(const struct scan_args &c, int i)
{
	struct chunk k;
	k.start = i == 0 ? 0 : c.first + (i - 1) * c.Q;
	k.length = min(i == 0 ? c.first : c.Q, c.T - k.start);
	return k;
}

/* d = clamp(softplus(dt + bias)) of token i of the chunk. */
__device__ static inline float time_step(const struct ssm_args &a, struct chunk k, int i, int h)
{
	return fminf(fmaxf(softplus(a.dt[(int64_t)(k.start + i) * a.lddt + h] + a.dt_bias[h]), a.lo), a.hi);
}

/* ssd.cu; 0: not for these shapes. */
int ssd_fits(struct ssm_args a, struct scan_args c);
cudaError_t launch_ssd_states(struct ssm_args a, struct scan_args c, cudaStream_t s);
cudaError_t launch_ssd_out(struct ssm_args a, struct scan_args c, cudaStream_t s);
#endif
