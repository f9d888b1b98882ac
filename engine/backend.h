/* The op table: what a backend can do, and which backend serves which block of which layer.
 *
 * The forward pass (forward.c) is written once in terms of these ops.  Activations are arrays in the
 * backend's own element type and memory (`void *`: double for ref, float for cpu, device bf16 or float
 * for cuda); weights come as struct linear or plain float vectors of the model; integers of a batch
 * (ids, slots, positions) are in the backend's memory, put there by `upload`.
 *
 * Rounding between ops follows `compute` (docs/model.md, section 3): with bf16 every op's output is rounded
 * to bf16 where section 3 says so; fp32 rounds to float; f64 (ref only) does not round.
 *
 * Argument order: object, outputs, inputs, weights, scalars.  T: token rows.  Row-major; `ld` counts elements.
 */
#ifndef ASSAY_ENGINE_BACKEND_H
#define ASSAY_ENGINE_BACKEND_H

#include "contract/arm.h"
#include "contract/counters.h"
#include "model.h"

struct device;                 /* a backend's context: threads, streams, scratch; opaque outside the backend */
struct report;

/* The most that one open device will ever be asked for. */
struct limits {
	int rows;                  /* token rows of one step: the longest prefill piece, or the largest decode batch */
	int slots;                 /* sequences, so also the rows of a decode step */
	int len;                   /* positions of a sequence */
};

/* How the quantised modules of a layer are executed: mamba.proj and moe.experts of its arm. */
struct rule { enum numerics fp8, nvfp4; };
/* The numerics of one module under a rule.  W8A8 and W4A4 need an input_scale (W4A4 also the declaration); modules
 * without stay weight-only, plain weights are NUMERICS_BF16. */
enum numerics linear_numerics(const struct linear *l, struct rule rule);

/* Where carried state lies.  An op reads and writes row `slot` of `data`: the pool itself (slots = the
 * sequences' slots), or a gathered copy (slots = 0, 1, 2, ...).  Strides are in elements.  ref takes every dtype;
 * other backends take what state_pool makes for them (act dtype for conv, mamba.state for ssm, attn.kv for k and v). */
struct state_view {
	void *data;
	enum dtype dtype;
	size_t stride;             /* elements from one slot to the next */
};

struct ssm_shape { int heads, head_dim, groups, state, conv_kernel, chunk_size; };

struct attn_shape { int heads, kv_heads, head_dim; };

/* What a mixer's decode step reads and writes beside its activations; slots and positions in backend memory. */
struct mixer_state { struct state_view conv, ssm, k, v; const int32_t *slots, *pos; };

struct route_shape { int experts, per_token, n_group, topk_group; bool norm_topk_prob; double scaling; };

/* Result rows of the head, always on the host. */
struct logits_row {
	int n_top;                     /* min(20, vocab_size) */
	int32_t top_id[20];            /* best first, equal logits by lower id */
	double top_logit[20];
	double lse;                    /* exact log-sum-exp over the row, fp64 sums */
	uint64_t xxh64;                /* over the row as fp32 (f64 under compute: f64), little-endian, seed 0 */
	int32_t given_rank;            /* of the id asked for (from 1); 0 if none was */
	double given_logit;
};

/* All launches of one kernel in a profile.  Kernels overlap: own is the time in which none before it ran any more. */
struct kernel_time { const char *name; long launches; double seconds, own; };

struct backend {
	const char *name;

	/* ---- life ---- */
	/* Opens a device for this model under this arm: prepares weights, allocates scratch for at most
	 * what `limits` says.  After it nothing allocates.  `counters` is borrowed; the backend adds kernel_launches and
	 * graph_replays there, forward.c all others.  ERR_CANNOT_RUN if the machine has no such device. */
	int (*open)(struct device **dev, struct model *m, const struct arm *arm, const struct limits *limits,
		    struct counters *counters, struct err *err);
	void (*close)(struct device *dev);
	void *(*alloc)(struct device *dev, size_t bytes);        /* zeroed; aligned to 64 */
	void (*free)(struct device *dev, void *p);
	enum dtype (*act_dtype)(struct device *dev);             /* of activations and of the conv state */
	/* Of the residual stream h: the act dtype, or wider where config.residual_in_fp32 asks for it.  Then `add` does
	 * not round to bf16 and `rms_norm` reads h rounded to it (3.1). */
	enum dtype (*residual_dtype)(struct device *dev);
	/* Host <-> backend memory. */
	void (*upload)(struct device *dev, void *to, const void *from, size_t bytes);
	void (*download)(struct device *dev, void *to, const void *from, size_t bytes);
	/* Activations <-> double on the host: the seam of `place.*: host`.  Exact in both directions for values
	 * that the backend rounded itself. */
	void (*act_to_host)(struct device *dev, double *to, const void *from, size_t n);
	void (*act_from_host)(struct device *dev, void *to, const double *from, size_t n);

	/* ---- ops; NULL where a backend has none: then forward.c serves it by ref and counts reference_tier ---- */
	/* h[T,H] = embedding rows of ids */
	void (*embed)(struct device *dev, void *h, const int32_t *ids, const struct linear *table, int T);
	/* x = h * rsqrt(mean(h^2) + eps) * w, rounded once  (3.2) */
	void (*rms_norm)(struct device *dev, void *x, const void *h, const float *w, int T, int H, double eps);
	/* h += y, rounded (3.1) */
	void (*add)(struct device *dev, void *h, const void *y, int T, int H);
	/* Optional fusion: h += y, then x = rms_norm(h), bit-equal to the two.  NULL: add and rms_norm are called. */
	void (*add_rms_norm)(struct device *dev, void *x, void *h, const void *y, const float *w, int T, int H, double eps);
	/* Optional fusion: a whole mixer of a decode step, y[T,H] from the normed x[T,H], bit-equal to its ops, the single-step
	 * ones for Mamba.  False: this layer is not served so, and nothing was done. */
	bool (*mixer_step)(struct device *dev, void *y, const void *x, const struct layer *layer,
			   const struct mixer_state *state, struct rule rule, int T);
	/* y[T,out] (row stride ldy) = x[T,in] (ldx) W^T * scale + bias, rounded once  (section 4).  A row's result does not
	 * depend on T. */
	void (*linear)(struct device *dev, void *y, int ldy, const void *x, int ldx, const struct linear *w,
		       enum numerics numerics, int T);
	/* u[T,conv_dim] = silu(conv(xBC)), the K-1 window of each row's slot shifted by one (3.3 step 2).  One token per row. */
	void (*conv_step)(struct device *dev, void *u, const void *xbc, int ldx, struct state_view conv, const int32_t *slots,
			  const float *w, const float *bias, int channels, int kernel, int rows);
	/* The same over T consecutive tokens of one sequence, from and to the state in `slot`. */
	void (*conv_scan)(struct device *dev, void *u, const void *xbc, int ldx, struct state_view conv, int slot,
			  const float *w, const float *bias, int channels, int kernel, int T);
	/* Single-step update (3.3.1).  y[rows,heads*head_dim]; u as conv left it: x | B | C; dt[rows,heads] raw (lddt). */
	void (*ssm_step)(struct device *dev, void *y, const void *u, int ldu, const void *dt, int lddt,
			 struct state_view ssm, const int32_t *slots, const struct mamba *w, const struct ssm_shape *shape,
			 const double limit[2], int rows);
	/* Chunk scan (3.3.2) over T consecutive tokens of one sequence whose first has absolute position pos.  The state
	 * in `slot` is read (zeros after a reset) and replaced. */
	void (*ssm_scan)(struct device *dev, void *y, const void *u, int ldu, const void *dt, int lddt,
			 struct state_view ssm, int slot, const struct mamba *w, const struct ssm_shape *shape,
			 const double limit[2], int T, int64_t pos);
	/* y = rms_norm_per_group(y * silu(z)) * w, in place (3.3 step 6). */
	void (*gated_norm)(struct device *dev, void *y, const void *z, int ldz, const float *w, int T, int channels,
			   int groups, double eps);
	/* Appends k and v rows at positions pos[row] of each row's slot, then attends over 0..pos[row] (3.4).  Cache layout
	 * [slot][position][kv_heads * head_dim].  One entry of slots and pos per token row; rows of one sequence ascend. */
	void (*attention)(struct device *dev, void *y, const void *q, const void *k, const void *v,
			  struct state_view k_cache, struct state_view v_cache, const int32_t *slots, const int32_t *pos,
			  const struct attn_shape *shape, float k_scale, float v_scale, int T);
	/* x = relu(x)^2, in place (3.5) */
	void (*relu2)(struct device *dev, void *x, int T, int n);
	/* Router (3.6 steps 1 to 7): expert[T,k] best first and weight[T,k] (double for ref, float elsewhere), both in
	 * backend memory.  The logits are never rounded to bf16. */
	void (*route)(struct device *dev, int32_t *expert, void *weight, const void *x, const float *gate,
		      const float *bias, int H, const struct route_shape *shape, int T);
	/* y[T,X] = sum over the k slots of a token, best first, of weight * down(relu2(up(x))), rounded once (3.6 step 9);
	 * up and down round as linear and relu2 do.  linear_numerics(projection, rule) says how each is executed. */
	void (*experts)(struct device *dev, void *y, const void *x, const int32_t *expert, const void *weight,
			const struct moe *w, struct rule rule, int per_token, int X, int T);
	/* y[T,n] += x, rounded: routed and shared experts (3.6 step 11) */
	void (*combine)(struct device *dev, void *y, const void *x, int T, int n);
	/* Logits of `rows` hidden rows (normed), their top 20, lse, hash, and the rank of given[row] (< 0: none asked).
	 * given in backend memory.  next[row] (backend memory) gets the best id: the input of the next step.  Only starts
	 * the work; `logits` waits and hands the rows to the host.  head_bf16: the logits are rounded to bf16 first. */
	void (*head)(struct device *dev, int32_t *next, const void *x, const struct linear *w, enum numerics numerics,
		     const int32_t *given, bool head_bf16, int rows);
	void (*logits)(struct device *dev, struct logits_row *out, int rows);
	/* Optional: `logits` leaves xxh64 open, and this hands over the hashes of its rows; once, before the next `logits`. */
	void (*hashes)(struct device *dev, uint64_t *out, int rows);
	/* Optional, for tests: every logit of one row of the last head.  Call after `logits`. */
	void (*logits_all)(struct device *dev, double *out, int row);

	/* ---- state ---- */
	void (*state_clear)(struct device *dev, struct state_view v, int slot, size_t n);
	/* Copies n elements of each slot into consecutive rows of `to` (which has its own stride), and back. */
	void (*gather)(struct device *dev, struct state_view to, struct state_view from, const int32_t *slots, size_t n, int rows);
	void (*scatter)(struct device *dev, struct state_view to, struct state_view from, const int32_t *slots, size_t n, int rows);

	/* ---- optional: graph replay of the decode step (graph: on); all NULL where a backend has none ---- */
	/* Launches the captured step of this batch size and returns true (graph_replays is the backend's to count; forward.c
	 * adds the counts of the captured step), or returns false. */
	bool (*graph_replay)(struct device *dev, int rows);
	/* Around the ops of a decode step, embed to head, all of whose arguments but the contents of backend memory are
	 * the same in every step of this size.  graph_end also launches it once. */
	void (*graph_begin)(struct device *dev, int rows);
	void (*graph_end)(struct device *dev, int rows);

	/* ---- optional: what a report says about the device ---- */
	/* Around all prompts of a leg: what is said of it below begins anew. */
	void (*watch)(struct device *dev, bool on);
	/* A window of decode steps opens or closes; report.busy is of these alone. */
	void (*window)(struct device *dev, bool open);
	/* Fills host.gpu, arch, driver, cuda, busy and peak_device_bytes. */
	void (*describe)(struct device *dev, struct report *r);
	/* --audit: traces kernel launches from audit_begin (before open) on; audit_end compares them with the counters
	 * of the report and fills report.audit. */
	int (*audit_begin)(struct err *err);
	int (*audit_end)(struct report *r, struct err *err);

	/* ---- optional: bench ---- */
	/* Time by kernel between the two, most own time first; graphs are captured anew.  The rows stay until the next begin. */
	int (*profile_begin)(struct device *dev, struct err *err);
	int (*profile_end)(struct device *dev, const struct kernel_time **rows, int *n, struct err *err);
	/* Bytes read and written in a second by a copy within the device's memory; 0 after err_set. */
	double (*copy_rate)(struct device *dev, struct err *err);
};

extern const struct backend ref_backend;
extern const struct backend cpu_backend;
#ifdef ASSAY_CUDA
extern const struct backend cuda_backend;
struct report_cell;
/* Appends the device's feature cells (contract/report.h): "enabled" or the reason why not. */
void cuda_features(struct report_cell **cells, int *n);
#endif

/* NULL and ERR_CANNOT_RUN if this build lacks it. */
const struct backend *backend_find(int backend_value, struct err *err);
size_t dtype_size(enum dtype d);       /* bytes of an element */
/* `alloc` and `free` of a backend whose memory is the host's; dev is not used. */
void *host_alloc(struct device *dev, size_t bytes);
void host_free(struct device *dev, void *p);

#endif
