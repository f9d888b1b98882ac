/* What an open CUDA device holds.  Private to engine/cuda.
 *
 * One stream; all memory is allocated while the session opens and registered here, so that `close` and a fatal error free
 * all of it.  Every call of the CUDA runtime goes through TRY or OPEN, or its result is looked at: a failure is one line and, after open, the end
 * of the process (exit 1), since ops return nothing and a device that failed is of no more use. */
#ifndef ASSAY_ENGINE_CUDA_DEVICE_H
#define ASSAY_ENGINE_CUDA_DEVICE_H

#include "engine/backend.h"
#include "launch.h"

struct blas;                          /* blas.c */
struct nvml;                          /* engine/nvml.h */

/* Host vector of the model -> its copy on the device. */
struct vector { const void *host; float *dev; };

/* The forms of one matrix that the arm can need; see prepare.c. */
struct matrix {
	struct raw_matrix raw;            /* weight NULL: not kept */
	struct packed_matrix packed;      /* weight NULL: none (fp32 compute, or a format without tiles) */
	void *library;                    /* e4m3 rows padded for the library's FP8 product; NULL: not used */
	struct expert_tables *experts;    /* of expert 0's up projection: the layer's tables */
};

/* One routed projection of a layer under each rule: index (fp8 is W8A8) + 2 * (nvfp4 is W4A4). */
struct expert_table {
	struct packed_matrix *packed;     /* on the device, [experts]; NULL under fp32 compute */
	struct raw_matrix *raw;           /* on the device, [experts]; NULL where packed */
	bool kind[N_PRODUCTS];            /* kinds of product that occur */
	bool act;                         /* some expert quantises its input */
	int out, in, tiles;
	const char *base;                 /* packed matrices of one shape and format at equal distances; else NULL */
	int64_t stride;
	int only, steps;                  /* that format */
	float *scale;                     /* on the device, [experts] */
};
struct expert_tables { struct expert_table up[4], down[4]; };

struct device {
	const struct model *model;        /* borrowed */
	struct counters *counters;        /* borrowed */
	struct limits limits;
	int rows;                         /* most token rows of a step */
	int bf16, wide;                   /* compute: bf16; residual stream wider than activations */
	cudaStream_t stream;
	void **memory;                    /* owned: every device allocation */
	int n_memory, room;
	size_t bytes, peak_bytes;         /* allocated now, at most */

	struct vector *vectors;           /* owned, sorted by host address */
	int n_vectors;
	struct matrix *matrices;          /* owned [n_matrices]: what linear.prepared points to */
	int n_matrices;
	struct expert_tables *tables;     /* owned [moe layers] */
	char *arena;                      /* device memory of all matrices */
	size_t arena_used, arena_size;

	struct blas *blas;                /* owned; NULL: no FP8 product of the library */
	uint8_t *codes;                   /* e4m3 operand of the library */
	float *library_out;

	void *operand;                    /* quantised or bf16 input rows of a product */
	uint16_t *up_bf16;                /* routed experts: input of the down projections, [entries][padded width] */
	float *up, *down;                 /* the same in float; output of the down projections */
	int32_t *entry;
	struct expert_tile *tile;
	int *n_tiles;
	float *route_logits;
	float *scan_sums, *scan_states;
	float *attn_part;                 /* partial softmaxes of decode rows */
	int splits, part_rows;
	float *logits;                    /* [slots, vocab] */
	struct head_part *head_part;
	struct head_row *head_rows, *host_rows;   /* device; pinned host */
	float *host_logits;               /* pinned host [slots, vocab] */
	cudaStream_t copies;              /* of logits to the host */
	cudaEvent_t headed, copied;       /* logits are there; they are on the host */
	bool copying;                     /* the stream has not been told to wait for `copied` */

	char *ring;                       /* pinned host: small uploads on their way */
	size_t ring_at;
	cudaGraphExec_t *graph;           /* owned [slots + 1]: the decode step of each batch size */
	struct nvml *nvml;                /* owned; NULL where NVML is missing */
	/* Fused decode (fused.c): scratch for STREAM_ROWS rows, and what waits to be done with the next kernel. */
	bool fused;                       /* sm_90 and compute: bf16 */
	int capability, multiprocessors;  /* 90 for sm_90 */
	float *proj, *conv_out, *mix;     /* a Mamba mixer's in_proj, convolution and state output; also q and attention */
	uint16_t *rows_bf16, *shared_up;      /* bf16 rows [T, padded width] */
	float *shared_out, *step_weight;
	int *arrived;
	struct stream_plan *plan;
	bool norm_waits;                  /* norm: a norm whose x nobody has read yet */
	struct norm_args norm;
	int norm_rows;
	struct residual parts;            /* the parts that make up parts_y, where that is not NULL */
	const void *parts_y;
	char gpu[256], arch[16], driver[32], runtime[32];
};

/* ---- errors ---- */
/* A test's switch: op by op where a step could be fused. */
extern bool cuda_unfused;
/* After open: one line, everything freed, exit 1. */
#define TRY(dev, call) cuda_check(dev, call, #call)
void cuda_check(struct device *dev, cudaError_t e, const char *call);
/* A kernel launch: counted, checked.  RUN first does what waits. */
#define RUN_NOW(dev, launch) ((dev)->counters->n[COUNT_KERNEL_LAUNCHES]++, TRY(dev, launch))
#define RUN(dev, launch) (settle(dev), RUN_NOW(dev, launch))
void settle(struct device *dev);
/* What follows on the stream finds the logits copied and may write others: at the beginning of each step. */
void keep_logits(struct device *dev);
/* While opening: err_set and -1. */
int cuda_failed(cudaError_t e, const char *call, struct err *err);
#define OPEN(call) do { \
		cudaError_t e_ = (call); \
		if (e_ != cudaSuccess) \
			return cuda_failed(e_, #call, err); \
	} while (0)

/* ---- memory ---- */
/* Registered device memory, zeroed, aligned to 256; NULL after err_set. */
void *device_alloc(struct device *dev, size_t bytes, struct err *err);
void device_free(struct device *dev, void *p);
/* The device copy of a vector of the model; BUG if it was not registered.  NULL for NULL. */
const float *device_vector(const struct device *dev, const void *host);

/* ---- prepare.c: weights at open ---- */
int prepare_vectors(struct device *dev, struct err *err);
int prepare_matrices(struct device *dev, struct model *m, struct err *err);
void prepare_release(struct device *dev);
size_t record_bytes(enum weight_format f);      /* of 16 x 64 values in tiles */
int64_t packed_bytes(const struct packed_matrix *m);

/* ---- blas.c ---- */
/* *out stays NULL where the library or the device has no FP8 product; `reason` says why. */
int blas_open(struct blas **out, struct device *dev, const char **reason, struct err *err);
void blas_close(struct blas *b);
int blas_plan(struct blas *b, int out, int in, struct err *err);
/* The chosen algorithm of plan i for the report; NULL behind the last. */
const char *blas_plan_text(const struct blas *b, int i);
void *blas_library(void);             /* dlopen; NULL: not found */
int blas_padded(int n);               /* out and in are padded to this */
void blas_product(struct blas *b, struct device *dev, float *d, const uint8_t *x, const void *w, int out, int in, int rows,
		  float scale);

/* ---- linear.c, experts.c ---- */
/* cuda_linear with the rounding given: bf16 = 0 keeps the sum. */
void cuda_product(struct device *dev, float *y, int ldy, const float *x, int ldx, const struct linear *w,
		  enum numerics numerics, int bf16, int T);
void cuda_linear(struct device *dev, void *y, int ldy, const void *x, int ldx, const struct linear *w,
		 enum numerics numerics, int T);
/* The head's: its norm may still wait. */
void cuda_logits_product(struct device *dev, float *y, const float *x, const struct linear *w, enum numerics numerics,
			 int bf16, int T);
void cuda_experts(struct device *dev, void *y, const void *x, const int32_t *expert, const void *weight,
		  const struct moe *w, struct rule rule, int per_token, int X, int T);
/* The activation quantiser that executes `numerics`, and the factor of the accumulator. */
int act_of(enum numerics n);
float scale_of(const struct linear *l, enum numerics n);

/* ---- fused.c ---- */
int fused_open(struct device *dev, struct err *err);
bool cuda_mixer_step(struct device *dev, void *y, const void *x, const struct layer *layer,
		     const struct mixer_state *state, struct rule rule, int T);
/* The norm that follows an addition (y NULL: none): waits for the kernel that reads x if that may be fused. */
void norm_later(struct device *dev, void *x, void *h, const void *y, const float *w, int T, int H, double eps);
/* Does x wait for its norm?  Then norm_to_rows computes it into rows_bf16 alone, as a product's input. */
bool norm_waits_for(const struct device *dev, const void *x, int T);
void norm_to_rows(struct device *dev, int in, int act, float input_scale);
/* y = norm of the residual stream W^T for a single token whose norm waits; false: not for this shape. */
bool solo_product(struct device *dev, float *y, const struct linear *l, enum numerics numerics, int bf16);
/* What y stands for. */
struct residual residual_of(struct device *dev, void *h, const void *y, int H);

/* ---- graph.c ---- */
bool cuda_graph_replay(struct device *dev, int rows);
void cuda_graph_drop(struct device *dev);            /* all: the next step of each size is captured anew */
void cuda_graph_begin(struct device *dev, int rows);
void cuda_graph_end(struct device *dev, int rows);

/* ---- watch.c, audit.c, trace.c ---- */
void watch_open(struct device *dev);
void watch_close(struct device *dev);
void cuda_watch(struct device *dev, bool on);
void cuda_window(struct device *dev, bool open);
void cuda_describe(struct device *dev, struct report *r);
void *audit_library(void);            /* trace.c: dlopen; NULL: not found */
int cuda_audit_begin(struct err *err);
int cuda_audit_end(struct report *r, struct err *err);
bool cuda_kernel_known(const char *name);        /* is it in kernels.def? */

/* ---- profile.c ---- */
int cuda_profile_begin(struct device *dev, struct err *err);
int cuda_profile_end(struct device *dev, const struct kernel_time **rows, int *n, struct err *err);
double cuda_copy_rate(struct device *dev, struct err *err);

#endif
