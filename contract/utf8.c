#include "utf8.h"

#include <string.h>
#include "err.h"

/* Stand-ins: old characters of a category, by their length in bytes. */
enum {
	LU3 = 0x1e00, LU4 = 0x10400, LL3 = 0x1e01, LL4 = 0x10428, LM4 = 0x16b40, LO4 = 0x20000,
	MN3 = 0x0900, MN4 = 0x1d167, MC3 = 0x0903, MC4 = 0x11000, ND4 = 0x104a0, NO4 = 0x10107,
	PD4 = 0x10ead, PO3 = 0x2022, PO4 = 0x10100, SM4 = 0x1d6c1, SO3 = 0x2600, SO4 = 0x1f600,
	CF3 = 0x200b, CF4 = 0xe0001,
};

/* Assigned, or given another category, by Unicode 15.0, 15.1 or 16.0; ascending.  And U+180E. */
static const struct { uint32_t first, last, stand_in; } newer[] = {
	{ 0x897, 0x897, MN3 }, { 0xcf3, 0xcf3, MC3 }, { 0xece, 0xece, MN3 },
	{ 0x180e, 0x180e, CF3 }, { 0x1b4e, 0x1b4f, PO3 }, { 0x1b7f, 0x1b7f, PO3 },
	{ 0x1c89, 0x1c89, LU3 }, { 0x1c8a, 0x1c8a, LL3 }, { 0x2427, 0x2429, SO3 },
	{ 0x2ffc, 0x2fff, SO3 }, { 0x31e4, 0x31e5, SO3 }, { 0x31ef, 0x31ef, SO3 },
	{ 0xa7cb, 0xa7cc, LU3 }, { 0xa7cd, 0xa7cd, LL3 }, { 0xa7da, 0xa7da, LU3 },
	{ 0xa7db, 0xa7db, LL3 }, { 0xa7dc, 0xa7dc, LU3 }, { 0x105c0, 0x105f3, LO4 },
	{ 0x10d40, 0x10d49, ND4 }, { 0x10d4a, 0x10d4d, LO4 }, { 0x10d4e, 0x10d4e, LM4 },
	{ 0x10d4f, 0x10d4f, LO4 }, { 0x10d50, 0x10d65, LU4 }, { 0x10d69, 0x10d6d, MN4 },
	{ 0x10d6e, 0x10d6e, PD4 }, { 0x10d6f, 0x10d6f, LM4 }, { 0x10d70, 0x10d85, LL4 },
	{ 0x10d8e, 0x10d8f, SM4 }, { 0x10ec2, 0x10ec4, LO4 }, { 0x10efc, 0x10eff, MN4 },
	{ 0x1123f, 0x11240, LO4 }, { 0x11241, 0x11241, MN4 }, { 0x11380, 0x11389, LO4 },
	{ 0x1138b, 0x1138b, LO4 }, { 0x1138e, 0x1138e, LO4 }, { 0x11390, 0x113b5, LO4 },
	{ 0x113b7, 0x113b7, LO4 }, { 0x113b8, 0x113ba, MC4 }, { 0x113bb, 0x113c0, MN4 },
	{ 0x113c2, 0x113c2, MC4 }, { 0x113c5, 0x113c5, MC4 }, { 0x113c7, 0x113ca, MC4 },
	{ 0x113cc, 0x113cd, MC4 }, { 0x113ce, 0x113ce, MN4 }, { 0x113cf, 0x113cf, MC4 },
	{ 0x113d0, 0x113d0, MN4 }, { 0x113d1, 0x113d1, LO4 }, { 0x113d2, 0x113d2, MN4 },
	{ 0x113d3, 0x113d3, LO4 }, { 0x113d4, 0x113d5, PO4 }, { 0x113d7, 0x113d8, PO4 },
	{ 0x113e1, 0x113e2, MN4 }, { 0x116d0, 0x116e3, ND4 }, { 0x1171e, 0x1171e, MC4 },
	{ 0x11b00, 0x11b09, PO4 }, { 0x11bc0, 0x11be0, LO4 }, { 0x11be1, 0x11be1, PO4 },
	{ 0x11bf0, 0x11bf9, ND4 }, { 0x11f00, 0x11f01, MN4 }, { 0x11f02, 0x11f02, LO4 },
	{ 0x11f03, 0x11f03, MC4 }, { 0x11f04, 0x11f10, LO4 }, { 0x11f12, 0x11f33, LO4 },
	{ 0x11f34, 0x11f35, MC4 }, { 0x11f36, 0x11f3a, MN4 }, { 0x11f3e, 0x11f3f, MC4 },
	{ 0x11f40, 0x11f40, MN4 }, { 0x11f41, 0x11f41, MC4 }, { 0x11f42, 0x11f42, MN4 },
	{ 0x11f43, 0x11f4f, PO4 }, { 0x11f50, 0x11f59, ND4 }, { 0x11f5a, 0x11f5a, MN4 },
	{ 0x1342f, 0x1342f, LO4 }, { 0x13439, 0x1343f, CF4 }, { 0x13440, 0x13440, MN4 },
	{ 0x13441, 0x13446, LO4 }, { 0x13447, 0x13455, MN4 }, { 0x13460, 0x143fa, LO4 },
	{ 0x16100, 0x1611d, LO4 }, { 0x1611e, 0x16129, MN4 }, { 0x1612a, 0x1612c, MC4 },
	{ 0x1612d, 0x1612f, MN4 }, { 0x16130, 0x16139, ND4 }, { 0x16d40, 0x16d42, LM4 },
	{ 0x16d43, 0x16d6a, LO4 }, { 0x16d6b, 0x16d6c, LM4 }, { 0x16d6d, 0x16d6f, PO4 },
	{ 0x16d70, 0x16d79, ND4 }, { 0x18cff, 0x18cff, LO4 }, { 0x1b132, 0x1b132, LO4 },
	{ 0x1b155, 0x1b155, LO4 }, { 0x1cc00, 0x1ccef, SO4 }, { 0x1ccf0, 0x1ccf9, ND4 },
	{ 0x1cd00, 0x1ceb3, SO4 }, { 0x1d2c0, 0x1d2d3, NO4 }, { 0x1df25, 0x1df2a, LL4 },
	{ 0x1e030, 0x1e06d, LM4 }, { 0x1e08f, 0x1e08f, MN4 }, { 0x1e4d0, 0x1e4ea, LO4 },
	{ 0x1e4eb, 0x1e4eb, LM4 }, { 0x1e4ec, 0x1e4ef, MN4 }, { 0x1e4f0, 0x1e4f9, ND4 },
	{ 0x1e5d0, 0x1e5ed, LO4 }, { 0x1e5ee, 0x1e5ef, MN4 }, { 0x1e5f0, 0x1e5f0, LO4 },
	{ 0x1e5f1, 0x1e5fa, ND4 }, { 0x1e5ff, 0x1e5ff, PO4 }, { 0x1f6dc, 0x1f6dc, SO4 },
	{ 0x1f774, 0x1f776, SO4 }, { 0x1f77b, 0x1f77f, SO4 }, { 0x1f7d9, 0x1f7d9, SO4 },
	{ 0x1f8b2, 0x1f8bb, SO4 }, { 0x1f8c0, 0x1f8c1, SO4 }, { 0x1fa75, 0x1fa77, SO4 },
	{ 0x1fa87, 0x1fa89, SO4 }, { 0x1fa8f, 0x1fa8f, SO4 }, { 0x1faad, 0x1faaf, SO4 },
	{ 0x1fabb, 0x1fabf, SO4 }, { 0x1fac6, 0x1fac6, SO4 }, { 0x1face, 0x1facf, SO4 },
	{ 0x1fada, 0x1fadc, SO4 }, { 0x1fadf, 0x1fadf, SO4 }, { 0x1fae8, 0x1fae9, SO4 },
	{ 0x1faf7, 0x1faf8, SO4 }, { 0x1fbcb, 0x1fbef, SO4 }, { 0x2b739, 0x2b739, LO4 },
	{ 0x2ebf0, 0x2ee5d, LO4 }, { 0x31350, 0x323af, LO4 },
};

/* The bytes of the well-formed character at s, or 0 and the length of the maximal subpart (at least 1). */
static size_t char_length(const unsigned char *s, size_t left, size_t *bad)
{
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
	/* The second byte's range excludes overlong forms, surrogates and what is above U+10FFFF. */
	unsigned lowest = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
	unsigned highest = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;

	*bad = 1;
	for (size_t i = 1; i < n; i++) {
		*bad = i;
		if (i == left || s[i] < lowest || s[i] > highest)
			return 0;
		lowest = 0x80;
		highest = 0xbf;
	}
	return n;
}

char *utf8_lossy(const char *bytes, size_t size, size_t *out_size)
{
	const unsigned char *s = (const unsigned char *)bytes;
	char *out = xmalloc(3 * size + 1);  /* the worst: each byte becomes U+FFFD, of three */
	char *to = out;

	for (size_t i = 0; i < size; ) {
		size_t bad, n = char_length(s + i, size - i, &bad);

		if (n == 0) {
			to += utf8_put(to, 0xfffd);
			i += bad;
			continue;
		}
		memcpy(to, s + i, n);
		to += n;
		i += n;
	}
	*to = '\0';
	*out_size = (size_t)(to - out);
	return out;
}

size_t utf8_get(const char *s, uint32_t *code)
{
	const unsigned char *u = (const unsigned char *)s;
	size_t n = u[0] < 0x80 ? 1 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;

	*code = n == 1 ? u[0] : u[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++)
		*code = *code << 6 | (u[i] & 0x3f);
	return n;
}

size_t utf8_put(char *s, uint32_t code)
{
	size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	static const unsigned char lead[5] = { 0, 0, 0xc0, 0xe0, 0xf0 };

	for (size_t i = n - 1; i > 0; i--) {
		s[i] = (char)(0x80 | (code & 0x3f));
		code >>= 6;
	}
	s[0] = (char)(lead[n] | code);
	return n;
}

size_t utf8_read(const char *s, size_t size, uint32_t *code)
{
	size_t bad, n = size ? char_length((const unsigned char *)s, size, &bad) : 0;

	if (n > 0)
		utf8_get(s, code);
	return n;
}

bool unicode_is_hidden(uint32_t code)
{
	static const struct { uint32_t first, last; } hidden[] = {
		{ 0x00, 0x1f }, { 0x7f, 0x9f }, { 0xad, 0xad }, { 0x61c, 0x61c }, { 0x180e, 0x180e }, { 0x200b, 0x200f },
		{ 0x2028, 0x202e }, { 0x2060, 0x206f }, { 0xfeff, 0xfeff }, { 0xfff9, 0xfffb }, { 0xfffe, 0xffff },
		{ 0xe0000, 0xe0fff },
	};

	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		if (code >= hidden[i].first && code <= hidden[i].last)
			return true;
	return false;
}

bool unicode_is_space(uint32_t code)
{
	return (code >= 0x09 && code <= 0x0d) || code == 0x20 || code == 0x85 || code == 0xa0 ||
	       code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
	       code == 0x202f || code == 0x205f || code == 0x3000;
}

static uint32_t stand_in(uint32_t code)
{
	size_t low = 0, high = sizeof(newer) / sizeof(newer[0]);

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (code < newer[mid].first)
			high = mid;
		else if (code > newer[mid].last)
			low = mid + 1;
		else
			return newer[mid].stand_in;
	}
	return code;
}

void utf8_stand_in(char *text, size_t size)
{
	for (size_t i = 0; i < size; ) {
		uint32_t code;
		size_t n = utf8_get(text + i, &code);

		if (n >= 3)
			utf8_put(text + i, stand_in(code));
		i += n;
	}
}
