/* The only kernel of our own in a float8 product: it computes the reciprocals of the scales.
 * cublasLt does the rest. */
#pragma once
#include "src/kernels/cuda/context.h"

#ifdef __cplusplus
extern "C" {
#endif
enum {
    FSDP_FLOAT8_SCALE_STRIDE = 32 /* floats; so the scales of both operands are well aligned */
};
/* Set out[0] to 1 / *a_scale and out[FSDP_FLOAT8_SCALE_STRIDE] to 1 / *b_scale. All three are in
 * memory of the device. */
void fsdp_cuda_float8_reciprocals(fsdp_cuda_context *c, float *out, const float *a_scale,
                                  const float *b_scale);
#ifdef __cplusplus
}
#endif
