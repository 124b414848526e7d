/* Declares the functions for the table fsdp_kernels: fsdp_cuda_fill() for the field `fill`, and so
 * on. Each .cu file includes this header, so that the compiler checks that its definitions have the
 * types of the fields. */
#pragma once
#include "src/kernels/cuda/context.h"

#define FSDP_CUDA_SLOT(name) extern __typeof__(*((fsdp_kernels *)0)->name) fsdp_cuda_##name

#ifdef __cplusplus
extern "C" {
#endif
FSDP_CUDA_SLOT(fill);
FSDP_CUDA_SLOT(copy);
FSDP_CUDA_SLOT(cast);
FSDP_CUDA_SLOT(join);
FSDP_CUDA_SLOT(split);
FSDP_CUDA_SLOT(normal);
FSDP_CUDA_SLOT(add);
FSDP_CUDA_SLOT(mul);
FSDP_CUDA_SLOT(scale);
FSDP_CUDA_SLOT(activation);
FSDP_CUDA_SLOT(activation_backward);
FSDP_CUDA_SLOT(gated);
FSDP_CUDA_SLOT(gated_backward);
FSDP_CUDA_SLOT(activated_backward);
FSDP_CUDA_SLOT(dropout);
FSDP_CUDA_SLOT(clamp_infinite);
FSDP_CUDA_SLOT(clamp_infinite_backward);
FSDP_CUDA_SLOT(rms_norm);
FSDP_CUDA_SLOT(rms_norm_backward);
FSDP_CUDA_SLOT(layer_norm);
FSDP_CUDA_SLOT(layer_norm_backward);
FSDP_CUDA_SLOT(rope);
FSDP_CUDA_SLOT(embedding);
FSDP_CUDA_SLOT(embedding_backward);
FSDP_CUDA_SLOT(gather_rows);
FSDP_CUDA_SLOT(gather_transposed);
FSDP_CUDA_SLOT(gather_transposed_backward);
FSDP_CUDA_SLOT(scatter_rows);
FSDP_CUDA_SLOT(split_columns);
FSDP_CUDA_SLOT(join_columns);
FSDP_CUDA_SLOT(segment_mean);
FSDP_CUDA_SLOT(segment_mean_backward);
FSDP_CUDA_SLOT(column_sum);
FSDP_CUDA_SLOT(scale_columns);
FSDP_CUDA_SLOT(column_dots);
FSDP_CUDA_SLOT(norms_of_squares);
FSDP_CUDA_SLOT(magnitude_factors);
FSDP_CUDA_SLOT(cross_entropy);
FSDP_CUDA_SLOT(smoothed_cross_entropy);
FSDP_CUDA_SLOT(target_loss);
FSDP_CUDA_SLOT(sum);
FSDP_CUDA_SLOT(argmax);
FSDP_CUDA_SLOT(gemm);
FSDP_CUDA_SLOT(attention);
FSDP_CUDA_SLOT(attention_backward);
FSDP_CUDA_SLOT(float8_scales);
FSDP_CUDA_SLOT(float8_cast);
FSDP_CUDA_SLOT(float8_decode);
FSDP_CUDA_SLOT(float8_gemm);
FSDP_CUDA_SLOT(float8_multiplies_codes);
FSDP_CUDA_SLOT(float8_descale);
FSDP_CUDA_SLOT(tree_sum);
FSDP_CUDA_SLOT(tree_sum_rows);
FSDP_CUDA_SLOT(row_power_sums);
FSDP_CUDA_SLOT(combine);
FSDP_CUDA_SLOT(clip_factor);
FSDP_CUDA_SLOT(clamp);
FSDP_CUDA_SLOT(adamw);
FSDP_CUDA_SLOT(sgd);
FSDP_CUDA_SLOT(schedule_free);
FSDP_CUDA_SLOT(square_row_sums);
FSDP_CUDA_SLOT(square_column_sums);
FSDP_CUDA_SLOT(moving_average);
FSDP_CUDA_SLOT(rsqrt);
FSDP_CUDA_SLOT(adafactor_square_sums);
FSDP_CUDA_SLOT(adafactor);
FSDP_CUDA_SLOT(nf4_dequantize);
#ifdef __cplusplus
}
#endif
