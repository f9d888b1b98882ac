/* Number formats: bf16, fp16, e4m3, e2m1, and the activation quantisers.  docs/model.md, section 4.
 * The definition that every backend is held to; scalar and plain. */
#ifndef ASSAY_ENGINE_QUANT_H
#define ASSAY_ENGINE_QUANT_H

#include <stdbool.h>
#include <stdint.h>

extern const float e4m3_table[256];   /* value of each code; 0x7f and 0xff are NaN */
extern const float e2m1_table[16];

float bf16_to_float(uint16_t b);
uint16_t bf16_from_float(float x);     /* RNE; NaN stays NaN */
float bf16_round(float x);             /* bf16_to_float(bf16_from_float(x)) */
float fp16_to_float(uint16_t h);
uint16_t fp16_from_float(float x);     /* RNE, overflow to infinity */

uint8_t e4m3_encode(double x);         /* RNE, saturating at +-448; NaN -> 0x7f; -0.0 -> 0x80 */
double e4m3_round(double x);           /* the value of that code */
uint8_t e2m1_encode(double x);         /* RNE to the even code, saturating at +-6 */
double e2m1_round(double x);

/* W8A8 activation (4.2): codes of x * (1 / input_scale), the reciprocal taken in fp32.  `f64`: the
 * product in double (the arbiter), else in fp32 as the kernels do. */
void fp8_act(uint8_t *codes, const double *x, int n, float input_scale, bool f64);
/* W4A4 activation (4.5) of one row; n is a multiple of 16.  value[i] in e2m1, scale[i / 16] in e4m3, both
 * as numbers.  `f64` as above: real arithmetic, or the fp32 operation order of the kernels. */
void nvfp4_act(double *value, double *scale, const double *x, int n, float input_scale, bool f64);
/* Byte offset of (row, col) in the swizzled scale matrix of an FP4 tensor-core GEMM (4.6). */
int64_t scale_swizzle(int64_t row, int64_t col, int64_t cols);

#endif
