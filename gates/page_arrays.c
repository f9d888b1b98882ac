#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "page.h"

static json_t *base64(const unsigned char *bytes, size_t size)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *text = xmalloc((size + 2) / 3 * 4 + 1), *to = text;

	for (size_t i = 0; i < size; i += 3) {
		size_t left = size - i;
		unsigned v = (unsigned)bytes[i] << 16 | (left > 1 ? (unsigned)bytes[i + 1] << 8 : 0) | (left > 2 ? bytes[i + 2] : 0);

		*to++ = digits[v >> 18];
		*to++ = digits[v >> 12 & 63];
		*to++ = left > 1 ? digits[v >> 6 & 63] : '=';
		*to++ = left > 2 ? digits[v & 63] : '=';
	}
	json_t *string = json_stringn_nocheck(text, (size_t)(to - text));

	free(text);
	return string;
}

static uint32_t logarithm(double x)
{
	double v;

	if (isnan(x))
		return 4095;
	if (x <= 0)
		return 0;
	v = round((log2(x) + 20) * 157) + 1;
	return v < 1 ? 1 : v > 4094 ? 4094 : (uint32_t)v;
}

json_t *page_indices(const uint32_t *x, size_t n, int each)
{
	unsigned char *bytes = xmalloc(n * (size_t)each + 1);

	for (size_t i = 0; i < n; i++)
		for (int b = 0; b < each; b++)
			bytes[i * (size_t)each + (size_t)b] = (unsigned char)(x[i] >> 8 * b);
	json_t *array = base64(bytes, n * (size_t)each);

	free(bytes);
	return array;
}

json_t *page_integers(const int32_t *x, size_t n)
{
	return page_indices((const uint32_t *)x, n, 4);
}

json_t *page_logarithms(const double *x, size_t n)
{
	unsigned char *bytes = xcalloc(n / 2 + 1, 3);

	for (size_t i = 0; i < n; i += 2) {
		uint32_t pair = logarithm(x[i]) | (i + 1 < n ? logarithm(x[i + 1]) : 0) << 12;

		for (size_t b = 0; b < 3; b++)
			bytes[i / 2 * 3 + b] = (unsigned char)(pair >> 8 * b);
	}
	json_t *array = base64(bytes, (n + 1) / 2 * 3);

	free(bytes);
	return array;
}
