/* Scratch of the chunk scan (ssm.c): what a chunk's heads share, and what one head needs. */
#ifndef ASSAY_ENGINE_CPU_SSM_H
#define ASSAY_ENGINE_CPU_SSM_H

#include "device.h"

/* Rows are padded so that vectors never cross into the next one. */
#define SSM_PAD(n) (((size_t)(n) + 63) / 64 * 64)

struct chunk_shared {
	char *B, *C;           /* per group: [Q][N], [Q][row], bf16 words or floats */
	size_t group;          /* bytes from one group to the next */
	size_t row;            /* elements of a row of C: N, zero-padded */
	float *CB;             /* [groups][Q][Q] */
	float *carry;          /* [heads][P][N]: the state in fp32 where its dtype is another */
	size_t bytes;
};

struct chunk_scratch {
	float *d, *cs, *ecs;   /* [Q]: step, its running sum times A, e to that */
	float *W;              /* [4][ldw] */
	float *y0;             /* [Q][P] */
	float *Bt;             /* [Q][ldb] */
	void *S;               /* [P][N], bf16 words or floats */
	int ldw, ldb;
	size_t floats;
};

/* Both lay out at `base`; NULL: only the size is wanted. */
static inline struct chunk_shared chunk_shared_layout(char *base, const struct ssm_shape *s)
{
	struct chunk_shared c = {.row = SSM_PAD(s->state)};
	size_t Q = (size_t)s->chunk_size, G = (size_t)s->groups;

	c.group = Q * c.row * sizeof(float);
	c.bytes = 2 * G * c.group + (SSM_PAD(G * Q * Q) + (size_t)s->heads * (size_t)s->head_dim * (size_t)s->state) *
		  sizeof(float);
	if (!base)
		return c;
	c.B = base;
	c.C = base + G * c.group;
	c.CB = (float *)(void *)(base + 2 * G * c.group);
	c.carry = c.CB + SSM_PAD(G * Q * Q);
	return c;
}

static inline struct chunk_scratch chunk_scratch_layout(float *base, const struct ssm_shape *s)
{
	size_t q = SSM_PAD(s->chunk_size + 4), P = (size_t)s->head_dim, N = (size_t)s->state;
	struct chunk_scratch c = {.ldw = (int)q, .ldb = (int)SSM_PAD(N)};

	c.floats = (7 * q + q * SSM_PAD(P) + q * (size_t)c.ldb + SSM_PAD(P * N));
	if (!base)
		return c;
	c.d = base;
	c.cs = base + q;
	c.ecs = base + 2 * q;
	c.W = base + 3 * q;
	c.y0 = base + 7 * q;
	c.Bt = c.y0 + q * SSM_PAD(P);
	c.S = c.Bt + q * (size_t)c.ldb;
	return c;
}

#endif
