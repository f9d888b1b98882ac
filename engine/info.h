/* assay-engine info: what a checkpoint, or a config alone, holds. */
#ifndef ASSAY_ENGINE_INFO_H
#define ASSAY_ENGINE_INFO_H

#include <jansson.h>
#include "model.h"

int info_main(int argc, char **argv);
/* What `info --json` prints.  New reference.
 *
 *   name, path, schedule (M * - E), blocks {mamba, attn, moe, mlp, layers}, config, parameters, tensors, weight_bytes, files,
 *   numerics {ALGORITHM: {modules, parameters, bytes}}, modules {KIND: {ALGORITHM: count}}, kv_cache_fp8_declared,
 *   state {ssm_bytes, conv_bytes, kv_bytes_per_token}, defaults (null where the build cannot run it)
 *
 * ALGORITHM: BF16 F16 F32 FP8 NVFP4 W4A16_NVFP4.  KIND: the module's name without layer and expert numbers.  State is for
 * one sequence: SSM in mamba_ssm_cache_dtype, conv and KV in bf16. */
json_t *info_json(struct model *m);

#endif
