/* The ops of one level.  Kernel files say cpu_ssm_step; the linker sees cpu_ssm_step_avx2. */
#ifndef ASSAY_ENGINE_CPU_OPS_H
#define ASSAY_ENGINE_CPU_OPS_H

#include "contract/err.h"
#include "device.h"
#include "engine/quant.h"
#include "vec.h"

#define LEVEL_PASTE(name, level) name##_##level
#define LEVEL_EXPAND(name, level) LEVEL_PASTE(name, level)
#define LEVEL_NAME(name) LEVEL_EXPAND(name, LEVEL)

#define cpu_embed LEVEL_NAME(cpu_embed)
#define cpu_rms_norm LEVEL_NAME(cpu_rms_norm)
#define cpu_add LEVEL_NAME(cpu_add)
#define cpu_add_rms_norm LEVEL_NAME(cpu_add_rms_norm)
#define cpu_gated_norm LEVEL_NAME(cpu_gated_norm)
#define cpu_relu2 LEVEL_NAME(cpu_relu2)
#define cpu_linear LEVEL_NAME(cpu_linear)
#define cpu_conv_step LEVEL_NAME(cpu_conv_step)
#define cpu_conv_scan LEVEL_NAME(cpu_conv_scan)
#define cpu_ssm_step LEVEL_NAME(cpu_ssm_step)
#define cpu_ssm_scan LEVEL_NAME(cpu_ssm_scan)
#define cpu_attention LEVEL_NAME(cpu_attention)
#define cpu_route LEVEL_NAME(cpu_route)
#define cpu_experts LEVEL_NAME(cpu_experts)
#define cpu_combine LEVEL_NAME(cpu_combine)
#define cpu_head LEVEL_NAME(cpu_head)

/* Each has the type of its entry in the op table. */
#define OP(name) __typeof__(*((struct backend *)0)->name) cpu_##name;
OP(embed) OP(rms_norm) OP(add) OP(add_rms_norm) OP(gated_norm) OP(relu2) OP(linear) OP(conv_step) OP(conv_scan)
OP(ssm_step) OP(ssm_scan) OP(attention) OP(route) OP(experts) OP(combine) OP(head)
#undef OP

ALWAYS int min_int(int a, int b) { return a < b ? a : b; }

/* An op's output, rounded as `compute` says. */
ALWAYS vf vf_round(const struct device *dev, vf x) { return dev->bf16 ? vf_round_bf16(x) : x; }

#endif
