/* Operands of mma in shared memory and registers, for kernels whose operands are all bf16. */
#ifndef ASSAY_ENGINE_CUDA_MATRIX_CUH
#define ASSAY_ENGINE_CUDA_MATRIX_CUH

__device__ static inline uint32_t pair_of(float even, float odd) { return bf16_bits(even) | (uint32_t)bf16_bits(odd) << 16; }

/* Four 8 x 8 matrices: lane l gives the address of row l % 8 of matrix l / 8. */
template <bool TRANSPOSED> __device__ static inline void matrices(uint32_t m[4], const uint16_t *row)
{
	uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
	if (TRANSPOSED)
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
			     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(at));
	else
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
			     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(at));
}

/* Where a lane's row of four matrices lies, the second 8 rows down, or (ACROSS) 8 columns on. */
template <bool ACROSS> __device__ static inline int lane_at(int ld)
{
	int lane = threadIdx.x % WARP, second = lane / 8 % 2 * 8, third = lane / 16 * 8;
	return ACROSS ? (lane % 8 + third) * ld + second : (lane % 8 + second) * ld + third;
}

#endif
