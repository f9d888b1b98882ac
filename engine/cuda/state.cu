#include "launch.h"

/* to[r] = from[r] for rows of `bytes` bytes; slot_to / slot_from choose the row (NULL: row r).  A block owns 256 words of
 * one row.  bytes and strides are multiples of 4, data is aligned to 4. */
__global__ void copy_rows(uint32_t *to, int64_t to_stride, const int32_t *slot_to, const uint32_t *from,
			  int64_t from_stride, const int32_t *slot_from, int64_t words)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	int r = blockIdx.y;
	grid_release();
	grid_wait();
	if (i < words)
		to[(slot_to ? slot_to[r] : r) * to_stride + i] = from[(slot_from ? slot_from[r] : r) * from_stride + i];
}

/* The same by bytes, for element sizes and counts that are no whole words (an fp8 cache of odd width). */
__global__ void copy_row_bytes(uint8_t *to, int64_t to_stride, const int32_t *slot_to, const uint8_t *from,
			       int64_t from_stride, const int32_t *slot_from, int64_t bytes)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	int r = blockIdx.y;
	grid_release();
	grid_wait();
	if (i < bytes)
		to[(slot_to ? slot_to[r] : r) * to_stride + i] = from[(slot_from ? slot_from[r] : r) * from_stride + i];
}

/* Sizes and strides in bytes. */
cudaError_t launch_copy_rows(void *to, int64_t to_stride, const int32_t *slot_to, const void *from,
			     int64_t from_stride, const int32_t *slot_from, int64_t bytes, int rows, cudaStream_t s)
{
	if ((bytes | to_stride | from_stride) % 4)
		return launch(copy_row_bytes, dim3((unsigned)((bytes + 255) / 256), rows), 256, 0, s, (uint8_t *)to,
			      to_stride, slot_to, (const uint8_t *)from, from_stride, slot_from, bytes);
	return launch(copy_rows, dim3((unsigned)((bytes / 4 + 255) / 256), rows), 256, 0, s, (uint32_t *)to,
		      to_stride / 4, slot_to, (const uint32_t *)from, from_stride / 4, slot_from, bytes / 4);
}
