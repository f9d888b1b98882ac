#include "level.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

extern const struct level cpu_level_portable;
#if defined(__x86_64__)
extern const struct level cpu_level_avx2, cpu_level_avx512, cpu_level_avx512bf16;
#endif

const struct level *const cpu_levels[] = {
	&cpu_level_portable,
#if defined(__x86_64__)
	&cpu_level_avx2, &cpu_level_avx512, &cpu_level_avx512bf16,
#endif
	NULL,
};

static const struct level *forced;

#if defined(__x86_64__)
/* clang's __builtin_cpu_supports does not know it; what else it needs of the system comes with avx2. */
static bool has_f16c(void)
{
	unsigned a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

bool level_supported(const struct level *l)
{
#if defined(__x86_64__)
	bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
		    __builtin_cpu_supports("bmi2");
	bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");

	if (l == &cpu_level_avx2)
		return avx2;
	if (l == &cpu_level_avx512)
		return avx512;
	if (l == &cpu_level_avx512bf16)
		return avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
#endif
	return l == &cpu_level_portable;
}

const struct level *level_current(void)
{
	const struct level *best = forced;

	for (int i = 0; !forced && cpu_levels[i]; i++)
		if (level_supported(cpu_levels[i]))
			best = cpu_levels[i];
	return best;
}

void level_force(const struct level *l)
{
	BUG_ON(l && !level_supported(l));
	forced = l;
}

const struct level *level_find(const char *name)
{
	for (int i = 0; cpu_levels[i]; i++)
		if (!strcmp(cpu_levels[i]->name, name))
			return cpu_levels[i];
	return NULL;
}

const char *level_feature(const struct level *l)
{
	if (!level_supported(l))
		return "this CPU lacks it";
	return l == level_current() ? "enabled" : "disabled";
}
