/* The FP8 product of cuBLASLt (docs/model.md, 4.8): opened at run time, one plan for each shape, made at open.
 *
 * y[rows, out] = x[rows, in] W^T in the library's column-major terms: A = W, transposed, B = x, m = out, n = rows, k = in.
 * The algorithm is chosen once per shape, for 16 rows and without split-K, and used for every number of rows, so that a
 * row's result does not depend on how many there are. */
#include <cublasLt.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include "contract/err.h"
#include "ops.h"

#define PAD 16
#define WORKSPACE ((size_t)32 << 20)

struct plan {
	int out, in;
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a, b, d;
	cublasLtMatmulAlgo_t algo;
	size_t workspace;
	char text[128];               /* for the report */
};

struct blas {
	void *library;
	cublasLtHandle_t handle;
	void *workspace;              /* of the device's memory list */
	struct plan *plans;           /* owned */
	int n_plans;
	cublasStatus_t (*create)(cublasLtHandle_t *);
	cublasStatus_t (*destroy)(cublasLtHandle_t);
	size_t (*version)(void);
	cublasStatus_t (*desc_create)(cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType_t);
	cublasStatus_t (*desc_destroy)(cublasLtMatmulDesc_t);
	cublasStatus_t (*desc_set)(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *, size_t);
	cublasStatus_t (*layout_create)(cublasLtMatrixLayout_t *, cudaDataType, uint64_t, uint64_t, int64_t);
	cublasStatus_t (*layout_destroy)(cublasLtMatrixLayout_t);
	cublasStatus_t (*layout_set)(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void *, size_t);
	cublasStatus_t (*preference_create)(cublasLtMatmulPreference_t *);
	cublasStatus_t (*preference_destroy)(cublasLtMatmulPreference_t);
	cublasStatus_t (*preference_set)(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *,
					 size_t);
	cublasStatus_t (*heuristic)(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
				    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
				    cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t *, int *);
	cublasStatus_t (*algo_get)(const cublasLtMatmulAlgo_t *, cublasLtMatmulAlgoConfigAttributes_t, void *, size_t,
				   size_t *);
	cublasStatus_t (*matmul)(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *,
				 cublasLtMatrixLayout_t, const void *, cublasLtMatrixLayout_t, const void *,
				 const void *, cublasLtMatrixLayout_t, void *, cublasLtMatrixLayout_t,
				 const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t);
};

int blas_padded(int n) { return (n + PAD - 1) / PAD * PAD; }

/* ---- the library ---- */

static bool symbols(struct blas *b)
{
	const struct { void *to; const char *name; } wanted[] = {
		{ &b->create, "cublasLtCreate" }, { &b->destroy, "cublasLtDestroy" },
		{ &b->version, "cublasLtGetVersion" }, { &b->desc_create, "cublasLtMatmulDescCreate" },
		{ &b->desc_destroy, "cublasLtMatmulDescDestroy" }, { &b->desc_set, "cublasLtMatmulDescSetAttribute" },
		{ &b->layout_create, "cublasLtMatrixLayoutCreate" },
		{ &b->layout_destroy, "cublasLtMatrixLayoutDestroy" },
		{ &b->layout_set, "cublasLtMatrixLayoutSetAttribute" },
		{ &b->preference_create, "cublasLtMatmulPreferenceCreate" },
		{ &b->preference_destroy, "cublasLtMatmulPreferenceDestroy" },
		{ &b->preference_set, "cublasLtMatmulPreferenceSetAttribute" },
		{ &b->heuristic, "cublasLtMatmulAlgoGetHeuristic" },
		{ &b->algo_get, "cublasLtMatmulAlgoConfigGetAttribute" }, { &b->matmul, "cublasLtMatmul" },
	};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
		if (!(*(void **)wanted[i].to = dlsym(b->library, wanted[i].name)))
			return false;
	return true;
}

void *blas_library(void)
{
	static const char *const names[] = { "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so" };
	void *library = NULL;

	for (size_t i = 0; !library && i < sizeof(names) / sizeof(*names); i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	return library;
}

int blas_open(struct blas **out, struct device *dev, const char **reason, struct err *err)
{
	struct blas *b = xcalloc(1, sizeof(*b));

	*reason = "cuBLASLt was not found";
	b->library = blas_library();
	if (b->library && symbols(b) && b->create(&b->handle) == CUBLAS_STATUS_SUCCESS) {
		*out = b;
		b->workspace = device_alloc(dev, WORKSPACE, err);
		return b->workspace ? 0 : -1;
	}
	if (b->library) {
		*reason = "cuBLASLt could not be opened";
		dlclose(b->library);
	}
	free(b);
	return 0;
}

static void plan_release(struct blas *b, struct plan *p)
{
	if (p->desc)
		b->desc_destroy(p->desc);
	if (p->a)
		b->layout_destroy(p->a);
	if (p->b)
		b->layout_destroy(p->b);
	if (p->d)
		b->layout_destroy(p->d);
}

void blas_close(struct blas *b)
{
	if (!b)
		return;
	for (int i = 0; i < b->n_plans; i++)
		plan_release(b, &b->plans[i]);
	free(b->plans);
	if (b->handle)
		b->destroy(b->handle);
	dlclose(b->library);
	free(b);
}

/* ---- plans ---- */

static bool choose(struct blas *b, struct plan *p, cublasLtMatmulHeuristicResult_t *best)
{
	cublasLtMatmulPreference_t preference = NULL;
	size_t workspace = WORKSPACE;
	uint32_t no_split = CUBLASLT_REDUCTION_SCHEME_NONE;
	int n = 0;
	bool ok = b->preference_create(&preference) == CUBLAS_STATUS_SUCCESS &&
		  b->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
				    sizeof(workspace)) == CUBLAS_STATUS_SUCCESS &&
		  b->preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_split,
				    sizeof(no_split)) == CUBLAS_STATUS_SUCCESS &&
		  b->heuristic(b->handle, p->desc, p->a, p->b, p->d, p->d, preference, 1, best, &n) ==
			  CUBLAS_STATUS_SUCCESS && n > 0 && best->state == CUBLAS_STATUS_SUCCESS;

	if (preference)
		b->preference_destroy(preference);
	return ok;
}

static void describe(struct blas *b, struct plan *p)
{
	int32_t id = -1, custom = -1;
	uint32_t tile = 0, stages = 0;
	uint16_t cluster = 0;

	b->algo_get(&p->algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof(id), NULL);
	b->algo_get(&p->algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof(tile), NULL);
	b->algo_get(&p->algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, &stages, sizeof(stages), NULL);
	b->algo_get(&p->algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &custom, sizeof(custom), NULL);
	b->algo_get(&p->algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &cluster, sizeof(cluster), NULL);
	snprintf(p->text, sizeof(p->text), "%dx%d: algorithm %d tile %u stages %u cluster %u option %d", p->out, p->in, id,
		 tile, stages, cluster, custom);
}

static bool make(struct blas *b, struct plan *p)
{
	cublasOperation_t transposed = CUBLAS_OP_T;
	cublasLtMatmulHeuristicResult_t best;

	if (b->desc_create(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS ||
	    b->desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)) != CUBLAS_STATUS_SUCCESS ||
	    b->layout_create(&p->a, CUDA_R_8F_E4M3, p->in, p->out, p->in) != CUBLAS_STATUS_SUCCESS ||
	    b->layout_create(&p->b, CUDA_R_8F_E4M3, p->in, PAD, p->in) != CUBLAS_STATUS_SUCCESS ||
	    b->layout_create(&p->d, CUDA_R_32F, p->out, PAD, p->out) != CUBLAS_STATUS_SUCCESS || !choose(b, p, &best))
		return false;
	p->algo = best.algo;
	p->workspace = best.workspaceSize;
	describe(b, p);
	return true;
}

static struct plan *find(struct blas *b, int out, int in)
{
	for (int i = 0; i < b->n_plans; i++)
		if (b->plans[i].out == out && b->plans[i].in == in)
			return &b->plans[i];
	return NULL;
}

int blas_plan(struct blas *b, int out, int in, struct err *err)
{
	struct plan p = { .out = out, .in = in };

	if (find(b, out, in))
		return 0;
	if (!make(b, &p)) {
		plan_release(b, &p);
		return err_set(err, ERR_CANNOT_RUN, "backend cuda: cuBLASLt has no FP8 product of %d x %d", out, in);
	}
	b->plans = xrealloc(b->plans, b->n_plans + 1, sizeof(*b->plans));
	b->plans[b->n_plans++] = p;
	return 0;
}

const char *blas_plan_text(const struct blas *b, int i)
{
	return i < b->n_plans ? b->plans[i].text : NULL;
}

/* rows is padded; the caller's buffers are as long. */
void blas_product(struct blas *b, struct device *dev, float *d, const uint8_t *x, const void *w, int out, int in, int rows,
		  float scale)
{
	struct plan *p = find(b, out, in);
	uint64_t n = rows;
	float zero = 0;
	cublasStatus_t status;

	BUG_ON(!p);
	status = b->layout_set(p->b, CUBLASLT_MATRIX_LAYOUT_COLS, &n, sizeof(n));
	if (status == CUBLAS_STATUS_SUCCESS)
		status = b->layout_set(p->d, CUBLASLT_MATRIX_LAYOUT_COLS, &n, sizeof(n));
	if (status == CUBLAS_STATUS_SUCCESS)
		status = b->matmul(b->handle, p->desc, &scale, w, p->a, x, p->b, &zero, d, p->d, d, p->d, &p->algo,
				   b->workspace, WORKSPACE, dev->stream);
	dev->counters->n[COUNT_KERNEL_LAUNCHES]++;
	TRY(dev, status == CUBLAS_STATUS_SUCCESS ? cudaGetLastError() : cudaErrorUnknown);
}
