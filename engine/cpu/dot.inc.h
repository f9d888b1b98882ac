/* The kernels of one weight format.  Included by product.c once per format, with
 *   DOT(name)      name of this format's functions
 *   OPERAND        vector type of both factors;  MUL_ADD(acc, w, x) -> vf
 *   P, S           operands and scale vectors of a step (S: 0, or P is a multiple of it)
 *   UNIT           columns of a step;  W_BYTES, S_BYTES: what they take in memory
 *   EXPAND(w, s, weights, scales)   memory -> OPERAND w[P], vf s[S]
 *   EXPAND_TAIL(w, s, weights, scales, columns)   optional: the same for the last columns of a row
 *   HALF_STEP(acc, weights, scales, x)   optional: what the last columns add where they are half a step, bit for bit
 *   APART          optional: the products of a step are summed before they are added, without block scales too: a shorter
 *                  chain of dependent sums
 *   SUM_SCALE      optional: what a sum of these operands and scales is to be multiplied by, a power of two
 *   GEMV_ROWS      rows that a GEMV holds at once: enough independent sums to hide their latency
 *   GEMV_AHEAD     bytes, at least, from the rows that it holds to those that it asks for, or 0: one row after the
 *                  other is a stream that the hardware finds by itself, several side by side are not
 */

#ifndef APART
#define APART 0
#endif

ALWAYS vf DOT(step)(vf acc, const OPERAND *w, const vf *s, const OPERAND *x)
{
	if (S == 0 && !APART) {
#pragma GCC unroll 4
		for (int p = 0; p < P; p++)
			acc = MUL_ADD(acc, w[p], x[p]);
		return acc;
	}
#pragma GCC unroll 2
	for (int q = 0; q < S + !S; q++) {
		vf block = {0};

#pragma GCC unroll 4
		for (int p = q * (P / (S + !S)); p < (q + 1) * (P / (S + !S)); p++)
			block = MUL_ADD(block, w[p], x[p]);
		acc = S ? vf_fma(block, s[q], acc) : acc + block;
	}
	return acc;
}

/* The last columns of a row, zero-filled to a whole step: nothing beyond the row is read. */
#ifndef EXPAND_TAIL
#define EXPAND_TAIL DOT(expand_tail)
ALWAYS void DOT(expand_tail)(OPERAND *w, vf *s, const uint8_t *weights, const uint8_t *scales, int columns)
{
	uint8_t last[W_BYTES] = {0}, last_scales[S_BYTES + 1] = {0};

	memcpy(last, weights, (size_t)columns * W_BYTES / UNIT);
	memcpy(last_scales, scales, (size_t)columns * S_BYTES / UNIT);
	EXPAND(w, s, last, last_scales);
}
#endif

/* `rows` consecutive rows, a constant where this is inlined. */
ALWAYS void DOT(rows)(vf *acc, int rows, const struct linear *l, int r, const OPERAND *x)
{
	size_t ldw = (size_t)l->in * W_BYTES / UNIT, lds = (size_t)l->in * S_BYTES / UNIT;
	const uint8_t *w = (const uint8_t *)l->weight + (size_t)r * ldw;
	const uint8_t *s = S ? l->block_scale + (size_t)r * lds : w;
	/* whole groups of rows, line by line in the order in which they lie */
	size_t group = (size_t)rows * ldw;
	const uint8_t *ahead = w + (GEMV_AHEAD + group - 1) / group * group;
	int steps = l->in / UNIT, tail = l->in % UNIT;
	OPERAND wv[P];
	vf sv[S + !S];

#pragma GCC unroll 16
	for (int i = 0; i < rows; i++)
		acc[i] = (vf){0};
	for (int k = 0; k < steps; k++) {
#pragma GCC unroll 16
		for (int i = 0; i < rows; i++) {
			EXPAND(wv, sv, w + (size_t)i * ldw, s + (size_t)i * lds);
			acc[i] = DOT(step)(acc[i], wv, sv, x);
			if (GEMV_AHEAD)
				__builtin_prefetch(ahead + i * W_BYTES, 0, 2);
		}
		ahead += rows * W_BYTES;
		w += W_BYTES;
		s += S_BYTES;
		x += P;
	}
	if (tail && GEMV_AHEAD > 0)
#pragma GCC unroll 16
		for (int i = 0; i < rows; i++)
			__builtin_prefetch(ahead + i * W_BYTES, 0, 2);
#ifdef HALF_STEP
	if (tail == UNIT / 2) {
#pragma GCC unroll 16
		for (int i = 0; i < rows; i++)
			acc[i] = HALF_STEP(acc[i], w + (size_t)i * ldw, s + (size_t)i * lds, x);
		return;
	}
#endif
	if (tail) {
#pragma GCC unroll 16
		for (int i = 0; i < rows; i++) {
			EXPAND_TAIL(wv, sv, w + (size_t)i * ldw, s + (size_t)i * lds, tail);
			acc[i] = DOT(step)(acc[i], wv, sv, x);
		}
	}
}

static void DOT(gemv)(const struct product *g, int r0, int r1, int t)
{
	const OPERAND *x = packed_row(g, t);
	int r = r0;
	vf acc[VW];

	for (; r + VW <= r1; r += VW) {
		for (int i = 0; i < VW; i += GEMV_ROWS)
			DOT(rows)(acc + i, GEMV_ROWS, g->w, r + i, x);
		finish_rows(g, r, VW, t, vf_sum_each(acc));
	}
	if (r == r1)
		return;
	for (int i = 0; i < VW; i++)
		DOT(rows)(acc + i, 1, g->w, min_int(r + i, r1 - 1), x);
	finish_rows(g, r, r1 - r, t, vf_sum_each(acc));
}

/* Panel: operands [step][4 rows][P], then scales [step][4 rows][S]. */
static void DOT(expand_panel)(OPERAND *panel, vf *scales, const struct linear *l, int r, int end)
{
	int steps = l->in / UNIT, tail = l->in % UNIT;

	for (int i = 0; i < 4; i++) {
		size_t row = (size_t)min_int(r + i, end - 1);
		const uint8_t *w = (const uint8_t *)l->weight + row * ((size_t)l->in * W_BYTES / UNIT);
		const uint8_t *s = S ? l->block_scale + row * ((size_t)l->in * S_BYTES / UNIT) : w;
		int k = 0;

		for (; k < steps; k++)
			EXPAND(panel + (k * 4 + i) * P, scales + (k * 4 + i) * S, w + (size_t)k * W_BYTES,
			       s + (size_t)k * S_BYTES);
		if (tail)
			EXPAND_TAIL(panel + (k * 4 + i) * P, scales + (k * 4 + i) * S, w + (size_t)k * W_BYTES,
				    s + (size_t)k * S_BYTES, tail);
	}
}

/* acc[c * 4 + i] = dot of panel row i and token row c, `tokens` a constant where this is inlined. */
ALWAYS void DOT(tile)(vf *acc, int tokens, const OPERAND *panel, const vf *scales, const OPERAND *const *x, int steps)
{
	vf sum[TILE_TOKENS * 4];

#pragma GCC unroll 16
	for (int j = 0; j < tokens * 4; j++)
		sum[j] = (vf){0};
	for (int k = 0; k < steps; k++) {
		if (S == 0 && !APART) {
#pragma GCC unroll 4
			for (int p = 0; p < P; p++) {
#pragma GCC unroll 8
				for (int c = 0; c < tokens; c++) {
					OPERAND xv = x[c][k * P + p];

#pragma GCC unroll 4
					for (int i = 0; i < 4; i++)
						sum[c * 4 + i] = MUL_ADD(sum[c * 4 + i], panel[(k * 4 + i) * P + p], xv);
				}
			}
		} else {
#pragma GCC unroll 8
			for (int c = 0; c < tokens; c++) {
#pragma GCC unroll 4
				for (int i = 0; i < 4; i++)
					sum[c * 4 + i] = DOT(step)(sum[c * 4 + i], panel + (k * 4 + i) * P,
								   scales + (k * 4 + i) * S, x[c] + k * P);
			}
		}
	}
#pragma GCC unroll 16
	for (int j = 0; j < tokens * 4; j++)
		acc[j] = sum[j];
}

static void DOT(gemm)(const struct product *g, int r0, int r1, int t0, int t1, void *scratch)
{
	int steps = (g->w->in + UNIT - 1) / UNIT;
	OPERAND *panel = scratch;
	vf *scales = (vf *)(panel + (size_t)steps * 4 * P);

	for (int r = r0; r < r1; r += 4) {
		struct tile_end end = tile_end(g, r, min_int(4, r1 - r));
		float *y = g->y + (size_t)t0 * (size_t)g->ldy + r;

		DOT(expand_panel)(panel, scales, g->w, r, r1);
		if (r + 4 < r1)
			ask_for(g->w, r + 4, min_int(4, r1 - r - 4), (size_t)g->w->in * W_BYTES / UNIT);
		for (int t = t0; t < t1; t += TILE_TOKENS, y += TILE_TOKENS * (size_t)g->ldy) {
			int n = min_int(TILE_TOKENS, t1 - t);
			const OPERAND *x[TILE_TOKENS];
			vf acc[TILE_TOKENS * 4];

#pragma GCC unroll 8
			for (int c = 0; c < TILE_TOKENS; c++)
				x[c] = packed_row(g, min_int(t + c, t1 - 1));
			if (n <= TILE_TOKENS / 2) {
				DOT(tile)(acc, TILE_TOKENS / 2, panel, scales, x, steps);
				for (int j = TILE_TOKENS / 2 * 4; j < TILE_TOKENS * 4; j++)
					acc[j] = (vf){0};
			} else {
				DOT(tile)(acc, TILE_TOKENS, panel, scales, x, steps);
			}
			finish_tile(&end, y, (size_t)g->ldy, n, acc);
		}
	}
}

#ifndef SUM_SCALE
#define SUM_SCALE 1
#endif
static const struct product_kernel DOT(kernel) = {PACKING, UNIT, sizeof(OPERAND) * P, SUM_SCALE, DOT(gemv), DOT(gemm)};

#undef DOT
#undef OPERAND
#undef MUL_ADD
#undef P
#undef S
#undef UNIT
#undef W_BYTES
#undef S_BYTES
#undef SUM_SCALE
#undef EXPAND
#undef EXPAND_TAIL
#undef HALF_STEP
#undef APART
#undef PACKING
#undef GEMV_ROWS
#undef GEMV_AHEAD
