#include "product.h"

#define level_ops LEVEL_NAME(level_ops)
#define cpu_level LEVEL_NAME(cpu_level)
#define QUOTE(x) #x
#define LEVEL_STRING(x) QUOTE(x)

static const struct backend level_ops = {
	.embed = cpu_embed,
	.rms_norm = cpu_rms_norm,
	.add = cpu_add,
	.add_rms_norm = cpu_add_rms_norm,
	.linear = cpu_linear,
	.conv_step = cpu_conv_step,
	.conv_scan = cpu_conv_scan,
	.ssm_step = cpu_ssm_step,
	.ssm_scan = cpu_ssm_scan,
	.gated_norm = cpu_gated_norm,
	.attention = cpu_attention,
	.relu2 = cpu_relu2,
	.route = cpu_route,
	.experts = cpu_experts,
	.combine = cpu_combine,
	.head = cpu_head,
};

extern const struct level cpu_level;
const struct level cpu_level = {LEVEL_STRING(LEVEL), &level_ops, packed_bytes, panel_bytes};
