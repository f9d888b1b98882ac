/* Opening, closing, memory and copies of a CUDA device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/err.h"
#include "device.h"
#include "ops.h"

#define RING ((size_t)1 << 20)
#define SMALL ((size_t)16 << 10)      /* uploads up to this go through the ring without waiting */

bool cuda_unfused;

/* ---- errors ---- */

void cuda_check(struct device *dev, cudaError_t e, const char *call)
{
	if (e == cudaSuccess)
		return;
	fprintf(stderr, "assay-engine: cuda: %.*s: %s: %s\n", (int)strcspn(call, "("), call, cudaGetErrorName(e),
		cudaGetErrorString(e));
	cuda_close(dev);
	exit(1);
}

int cuda_failed(cudaError_t e, const char *call, struct err *err)
{
	int name = (int)strcspn(call, "(");

	switch (e) {
	case cudaErrorNoDevice:
	case cudaErrorInsufficientDriver:
	case cudaErrorStubLibrary:
	case cudaErrorSystemDriverMismatch:
		return err_set(err, ERR_CANNOT_RUN, "backend cuda: no usable NVIDIA device: %s", cudaGetErrorString(e));
	case cudaErrorNoKernelImageForDevice:
	case cudaErrorInvalidDeviceFunction:
	case cudaErrorUnsupportedPtxVersion:
		return err_set(err, ERR_CANNOT_RUN, "backend cuda: this build holds no code for this device: %s",
			       cudaGetErrorString(e));
	case cudaErrorMemoryAllocation:
		return err_set(err, ERR_FAILED, "backend cuda: the device's memory is too small (%.*s)", name, call);
	default:
		return err_set(err, ERR_FAILED, "backend cuda: %.*s: %s: %s", name, call, cudaGetErrorName(e),
			       cudaGetErrorString(e));
	}
}

/* ---- memory ---- */

void *device_alloc(struct device *dev, size_t bytes, struct err *err)
{
	void *p = NULL;
	cudaError_t e;

	bytes = (bytes + 255) / 256 * 256;
	if (bytes == 0)
		bytes = 256;
	e = cudaMalloc(&p, bytes);
	if (e != cudaSuccess) {
		cudaGetLastError();
		cuda_failed(e, "cudaMalloc(", err);
		return NULL;
	}
	if (dev->n_memory == dev->room) {
		dev->room = dev->room ? 2 * dev->room : 64;
		dev->memory = xrealloc(dev->memory, dev->room, sizeof(*dev->memory));
	}
	dev->memory[dev->n_memory++] = p;
	e = cudaMemsetAsync(p, 0, bytes, dev->stream);
	if (e != cudaSuccess) {
		cuda_failed(e, "cudaMemsetAsync(", err);
		return NULL;
	}
	dev->bytes += bytes;
	if (dev->bytes > dev->peak_bytes)
		dev->peak_bytes = dev->bytes;
	return p;
}

void device_free(struct device *dev, void *p)
{
	if (!p)
		return;
	for (int i = 0; i < dev->n_memory; i++)
		if (dev->memory[i] == p) {
			dev->memory[i] = dev->memory[--dev->n_memory];
			TRY(dev, cudaFree(p));
			return;
		}
	BUG("device memory that was not allocated here");
}

void *cuda_alloc(struct device *dev, size_t bytes)
{
	struct err err = {0};
	void *p = device_alloc(dev, bytes, &err);

	if (p)
		return p;
	fprintf(stderr, "assay-engine: %s\n", err.text);
	cuda_close(dev);
	exit(1);
}

const float *device_vector(const struct device *dev, const void *host)
{
	int low = 0, high = dev->n_vectors;

	if (!host)
		return NULL;
	while (low < high) {
		int mid = (low + high) / 2;

		if (dev->vectors[mid].host == host)
			return dev->vectors[mid].dev;
		if ((const char *)dev->vectors[mid].host < (const char *)host)
			low = mid + 1;
		else
			high = mid;
	}
	BUG("a vector that the model did not hold at open");
}

/* ---- copies ---- */

/* A small copy leaves through pinned memory and does not wait; a lap of the ring is waited for. */
void cuda_upload(struct device *dev, void *to, const void *from, size_t bytes)
{
	if (bytes > SMALL) {
		TRY(dev, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, dev->stream));
		TRY(dev, cudaStreamSynchronize(dev->stream));
		return;
	}
	if (dev->ring_at + bytes > RING) {
		TRY(dev, cudaStreamSynchronize(dev->stream));
		dev->ring_at = 0;
	}
	memcpy(dev->ring + dev->ring_at, from, bytes);
	TRY(dev, cudaMemcpyAsync(to, dev->ring + dev->ring_at, bytes, cudaMemcpyHostToDevice, dev->stream));
	dev->ring_at += (bytes + 63) / 64 * 64;
}

void cuda_download(struct device *dev, void *to, const void *from, size_t bytes)
{
	settle(dev);
	TRY(dev, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, dev->stream));
	TRY(dev, cudaStreamSynchronize(dev->stream));
}

void cuda_act_to_host(struct device *dev, double *to, const void *from, size_t n)
{
	float part[1024];

	for (size_t i = 0; i < n; i += 1024) {
		size_t count = n - i < 1024 ? n - i : 1024;

		cuda_download(dev, part, (const float *)from + i, count * sizeof(*part));
		for (size_t j = 0; j < count; j++)
			to[i + j] = part[j];
	}
}

void cuda_act_from_host(struct device *dev, void *to, const double *from, size_t n)
{
	float part[1024];

	for (size_t i = 0; i < n; i += 1024) {
		size_t count = n - i < 1024 ? n - i : 1024;

		for (size_t j = 0; j < count; j++)
			part[j] = (float)from[i + j];
		cuda_upload(dev, (float *)to + i, part, count * sizeof(*part));
	}
}

enum dtype cuda_act_dtype(struct device *dev)
{
	(void)dev;
	return DTYPE_F32;
}

/* ---- open ---- */

static int find_device(struct device *dev, struct err *err)
{
	struct cudaDeviceProp p;
	int n = 0, id = 0, driver = 0, runtime = 0, ptx = 0, binary = 0;

	OPEN(cudaGetDeviceCount(&n));
	if (n == 0)
		return err_set(err, ERR_CANNOT_RUN, "backend cuda: no NVIDIA device");
	OPEN(cudaGetDevice(&id));
	OPEN(cudaGetDeviceProperties(&p, id));
	OPEN(cudaDriverGetVersion(&driver));
	OPEN(cudaRuntimeGetVersion(&runtime));
	snprintf(dev->gpu, sizeof(dev->gpu), "%s", p.name);
	snprintf(dev->arch, sizeof(dev->arch), "sm_%d%d", p.major, p.minor);
	snprintf(dev->driver, sizeof(dev->driver), "%d.%d", driver / 1000, driver % 1000 / 10);
	snprintf(dev->runtime, sizeof(dev->runtime), "%d.%d", runtime / 1000, runtime % 1000 / 10);
	if (p.major < 8)
		return err_set(err, ERR_CANNOT_RUN, "backend cuda: %s is %s; sm_80 or later is needed", p.name, dev->arch);
	OPEN(launch_check(&ptx, &binary));
	OPEN(launch_product_wide_open(p.major == 9 && p.minor == 0 ? p.multiProcessorCount : 0));
	launch_overlap = p.major >= 9;
	dev->fused = p.major >= 9 && dev->bf16 && !cuda_unfused;
	dev->capability = p.major * 10 + p.minor;
	dev->multiprocessors = p.multiProcessorCount;
	OPEN(cudaStreamCreateWithFlags(&dev->stream, cudaStreamNonBlocking));
	return 0;
}

static int need(struct device *dev, void *p, size_t n, size_t size, struct err *err)
{
	void *got = device_alloc(dev, n * size, err);

	memcpy(p, &got, sizeof(got));
	return got ? 0 : -1;
}

static size_t padded(size_t n) { return (n + TILE_STEP - 1) / TILE_STEP * TILE_STEP; }

static int largest(int a, int b) { return a > b ? a : b; }

/* The longest input row of any matrix, padded. */
static size_t widest(const struct model *m)
{
	const struct config *c = &m->config;
	int n = largest(c->hidden_size, c->d_inner);

	n = largest(n, c->num_attention_heads * c->head_dim);
	for (int i = 0; i < c->n_blocks[BLOCK_MLP]; i++)
		n = largest(n, c->intermediate_size[i]);
	n = largest(n, largest(c->moe_intermediate_size, c->shared_intermediate_size));
	return padded(largest(n, c->moe_latent_size));
}

static int alloc_experts(struct device *dev, struct err *err)
{
	const struct config *c = &dev->model->config;
	size_t entries = (size_t)dev->rows * c->num_experts_per_tok;
	size_t X = c->moe_latent_size ? c->moe_latent_size : c->hidden_size;

	if (!c->n_blocks[BLOCK_MOE])
		return 0;
	if (need(dev, &dev->up_bf16, entries * padded(c->moe_intermediate_size), sizeof(uint16_t), err) ||
	    need(dev, &dev->up, entries * c->moe_intermediate_size, sizeof(float), err) ||
	    need(dev, &dev->down, entries * X, sizeof(float), err) ||
	    need(dev, &dev->entry, entries, sizeof(int32_t), err) ||
	    need(dev, &dev->tile, entries + c->n_routed_experts, sizeof(struct expert_tile), err) ||
	    need(dev, &dev->n_tiles, 1, sizeof(int), err))
		return -1;
	return need(dev, &dev->route_logits, (size_t)dev->rows * c->n_routed_experts, sizeof(float), err);
}

static int alloc_mixers(struct device *dev, struct err *err)
{
	const struct config *c = &dev->model->config;
	size_t chunks = c->chunk_size ? dev->limits.rows / c->chunk_size + 2 : 0;

	if (c->n_blocks[BLOCK_MAMBA] &&
	    (need(dev, &dev->scan_sums, chunks * c->mamba_num_heads, sizeof(float), err) ||
	     need(dev, &dev->scan_states, chunks * c->d_inner * c->ssm_state_size, sizeof(float), err)))
		return -1;
	dev->splits = (dev->limits.len + ATTN_SPLIT - 1) / ATTN_SPLIT;
	dev->part_rows = dev->limits.slots;
	if (c->n_blocks[BLOCK_ATTN] && dev->splits > 1)
		return need(dev, &dev->attn_part, (size_t)dev->part_rows * dev->splits * c->num_attention_heads *
			    (c->head_dim + 2), sizeof(float), err);
	return 0;
}

static int alloc_head(struct device *dev, struct err *err)
{
	size_t slots = dev->limits.slots, V = dev->model->config.vocab_size, parts = (V + HEAD_SLICE - 1) / HEAD_SLICE;

	if (parts > HEAD_PARTS)
		return err_set(err, ERR_CANNOT_RUN, "backend cuda: a vocabulary of %zu is larger than its head supports", V);
	if (need(dev, &dev->logits, slots * V, sizeof(float), err) ||
	    need(dev, &dev->head_part, slots * parts, sizeof(struct head_part), err) ||
	    need(dev, &dev->head_rows, slots, sizeof(struct head_row), err))
		return -1;
	OPEN(cudaMallocHost((void **)&dev->host_rows, slots * sizeof(struct head_row)));
	OPEN(cudaMallocHost((void **)&dev->host_logits, slots * V * sizeof(float)));
	OPEN(cudaStreamCreateWithFlags(&dev->copies, cudaStreamNonBlocking));
	OPEN(cudaEventCreateWithFlags(&dev->headed, cudaEventDisableTiming));
	OPEN(cudaEventCreateWithFlags(&dev->copied, cudaEventDisableTiming));
	return 0;
}

static int alloc_operands(struct device *dev, struct err *err)
{
	const struct config *c = &dev->model->config;
	size_t rows = dev->rows, entries = rows * c->num_experts_per_tok, n = rows * widest(dev->model);
	size_t X = padded(largest(c->moe_latent_size ? c->moe_latent_size : c->hidden_size, c->moe_intermediate_size));

	if (c->n_blocks[BLOCK_MOE] && entries * X > n)
		n = entries * X;
	return need(dev, &dev->operand, n, dev->bf16 ? sizeof(uint16_t) : sizeof(float), err);
}

/* What this backend was not written for. */
static int check_model(const struct device *dev, struct err *err)
{
	const struct config *c = &dev->model->config;

	if (c->n_blocks[BLOCK_MAMBA] && c->conv_kernel - 1 > CONV_TOKENS)
		return err_set(err, ERR_CANNOT_RUN, "backend cuda: conv_kernel %d", c->conv_kernel);
	if (c->n_blocks[BLOCK_ATTN] && c->head_dim > 256)
		return err_set(err, ERR_CANNOT_RUN, "backend cuda: head_dim %d", c->head_dim);
	if (c->n_blocks[BLOCK_MOE] && (c->n_routed_experts > 1024 || c->n_group > 1024))
		return err_set(err, ERR_CANNOT_RUN, "backend cuda: %d experts", c->n_routed_experts);
	return 0;
}

struct widest_fp8 { int out, in; };

static void find_fp8(struct linear *l, int layer, void *ud)
{
	struct widest_fp8 *w = ud;

	(void)layer;
	if (l->format != WEIGHT_FP8 || !(l->input_scale > 0))
		return;
	w->out = largest(w->out, blas_padded(l->out));
	w->in = largest(w->in, blas_padded(l->in));
}

/* mamba.proj: w8a8-lt. */
static int open_library(struct device *dev, struct model *m, struct err *err)
{
	struct widest_fp8 w = {0};
	const char *reason = "the device has no FP8 tensor cores";
	size_t rows = blas_padded(dev->rows);

	for (int i = 0; i < m->config.num_hidden_layers; i++)
		if (m->layers[i].block == BLOCK_MOE && m->layers[i].moe.experts[0].up_proj.format == WEIGHT_FP8)
			return err_set(err, ERR_CANNOT_RUN, "mamba.proj: w8a8-lt: cuBLASLt has no grouped product for the "
				       "FP8 experts of layer %d", i);
	if (dev->capability >= 89 && blas_open(&dev->blas, dev, &reason, err))
		return -1;
	if (!dev->blas)
		return err_set(err, ERR_CANNOT_RUN, "mamba.proj: w8a8-lt: %s", reason);
	model_each_linear(m, find_fp8, &w);
	return need(dev, &dev->codes, rows * w.in, 1, err) || need(dev, &dev->library_out, rows * w.out, sizeof(float), err) ?
		-1 : 0;
}

static int open_parts(struct device *dev, struct model *m, const struct arm *arm, struct err *err)
{
	if (find_device(dev, err) || check_model(dev, err))
		return -1;
	if (arm->value[FACTOR_MAMBA_PROJ] == MAMBA_PROJ_W8A8_LT && open_library(dev, m, err))
		return -1;
	OPEN(cudaMallocHost((void **)&dev->ring, RING));
	if (prepare_vectors(dev, err) || prepare_matrices(dev, m, err) || alloc_operands(dev, err) ||
	    alloc_experts(dev, err) || alloc_mixers(dev, err) || alloc_head(dev, err) || fused_open(dev, err))
		return -1;
	OPEN(cudaStreamSynchronize(dev->stream));
	watch_open(dev);
	return 0;
}

int cuda_open(struct device **out, struct model *m, const struct arm *arm, const struct limits *limits,
	      struct counters *counters, struct err *err)
{
	struct device *dev = xcalloc(1, sizeof(*dev));

	dev->model = m;
	dev->counters = counters;
	dev->limits = *limits;
	dev->rows = largest(limits->rows, limits->slots);
	dev->bf16 = arm->value[FACTOR_COMPUTE] == COMPUTE_BF16;
	dev->wide = dev->bf16 && m->config.residual_in_fp32;
	dev->graph = xcalloc(limits->slots + 1, sizeof(*dev->graph));
	if (open_parts(dev, m, arm, err)) {
		cuda_close(dev);
		return -1;
	}
	*out = dev;
	return 0;
}

void cuda_close(struct device *dev)
{
	if (!dev)
		return;
	watch_close(dev);
	if (dev->stream)
		cudaStreamSynchronize(dev->stream);
	if (dev->copies)
		cudaStreamSynchronize(dev->copies);
	for (int i = 0; i <= dev->limits.slots; i++)
		if (dev->graph[i])
			cudaGraphExecDestroy(dev->graph[i]);
	blas_close(dev->blas);
	for (int i = 0; i < dev->n_memory; i++)
		cudaFree(dev->memory[i]);
	cudaFreeHost(dev->host_rows);
	cudaFreeHost(dev->host_logits);
	cudaFreeHost(dev->ring);
	if (dev->copied)
		cudaEventDestroy(dev->copied);
	if (dev->headed)
		cudaEventDestroy(dev->headed);
	if (dev->copies)
		cudaStreamDestroy(dev->copies);
	if (dev->stream)
		cudaStreamDestroy(dev->stream);
	cudaGetLastError();
	prepare_release(dev);
	free(dev->graph);
	free(dev->memory);
	free(dev);
}
