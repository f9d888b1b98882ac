#include <stdio.h>
#include <string.h>
#include "contract/err.h"
#include "suggest.h"

#define WORD 64

static int least(int a, int b)
{
	return a < b ? a : b;
}

/* Insertions, deletions, replacements and swaps of neighbours that turn a into b. */
static int distance(const char *a, const char *b)
{
	int n = (int)strlen(a), m = (int)strlen(b);
	int d[WORD + 1][WORD + 1];

	if (n > WORD || m > WORD)
		return WORD;
	for (int i = 0; i <= n; i++)
		d[i][0] = i;
	for (int j = 0; j <= m; j++)
		d[0][j] = j;
	for (int i = 1; i <= n; i++)
		for (int j = 1; j <= m; j++) {
			int best = least(d[i - 1][j], d[i][j - 1]) + 1;

			best = least(best, d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				best = least(best, d[i - 2][j - 2] + 1);
			d[i][j] = best;
		}
	return d[n][m];
}

const char *suggest(char *buf, size_t size, const char *word, const char *const *known, int n)
{
	int limit = least(3, ((int)strlen(word) + 2) / 3);
	int best = limit + 1, at = -1;

	for (int i = 0; i < n; i++) {
		int d = distance(word, known[i]);

		if (d < best) {
			best = d;
			at = i;
		}
	}
	if (at >= 0) {
		snprintf(buf, size, "; did you mean `%s`?", known[at]);
		return buf;
	}
	size_t used = (size_t)snprintf(buf, size, n ? "; known: " : "; none is known here");

	for (int i = 0; i < n && used < size; i++)
		used += (size_t)snprintf(buf + used, size - used, "%s%s", i ? ", " : "", known[i]);
	return buf;
}
