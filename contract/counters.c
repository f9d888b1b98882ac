#include "counters.h"

#include <string.h>
#include "err.h"

static const struct { const char *name, *says; } counters[N_COUNTERS] = {
#define COUNTER(id, name, says) { name, says },
#include "counters.def"
#undef COUNTER
};

const char *counter_name(enum counter c)
{
	BUG_ON((unsigned)c >= N_COUNTERS);
	return counters[c].name;
}

const char *counter_says(enum counter c)
{
	BUG_ON((unsigned)c >= N_COUNTERS);
	return counters[c].says;
}

int counter_find(const char *name)
{
	for (int c = 0; c < N_COUNTERS; c++)
		if (strcmp(name, counters[c].name) == 0)
			return c;
	return -1;
}
