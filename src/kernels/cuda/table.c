/* The table of the CUDA kernels, and fsdp_kernels_cuda_open(), which opens a device. */
#include "src/kernels/cuda/slots.h"
#include "src/kernels/cuda/tables.h"
#include "src/kernels/cuda/uploads.h"

#define SLOT(name) .name = fsdp_cuda_##name

const fsdp_kernels fsdp_kernels_cuda = {
    .name = "cuda",
    SLOT(fill),
    SLOT(copy),
    SLOT(cast),
    SLOT(join),
    SLOT(split),
    SLOT(normal),
    SLOT(add),
    SLOT(mul),
    SLOT(scale),
    SLOT(activation),
    SLOT(activation_backward),
    SLOT(gated),
    SLOT(gated_backward),
    SLOT(activated_backward),
    SLOT(dropout),
    SLOT(clamp_infinite),
    SLOT(clamp_infinite_backward),
    SLOT(rms_norm),
    SLOT(rms_norm_backward),
    SLOT(layer_norm),
    SLOT(layer_norm_backward),
    SLOT(rope),
    SLOT(embedding),
    SLOT(embedding_backward),
    SLOT(gather_rows),
    SLOT(gather_transposed),
    SLOT(gather_transposed_backward),
    SLOT(scatter_rows),
    SLOT(split_columns),
    SLOT(join_columns),
    SLOT(segment_mean),
    SLOT(segment_mean_backward),
    SLOT(column_sum),
    SLOT(scale_columns),
    SLOT(column_dots),
    SLOT(norms_of_squares),
    SLOT(magnitude_factors),
    SLOT(cross_entropy),
    SLOT(smoothed_cross_entropy),
    SLOT(target_loss),
    SLOT(sum),
    SLOT(argmax),
    SLOT(gemm),
    SLOT(attention),
    SLOT(attention_backward),
    SLOT(float8_scales),
    SLOT(float8_cast),
    SLOT(float8_decode),
    SLOT(float8_gemm),
    SLOT(float8_multiplies_codes),
    SLOT(float8_descale),
    SLOT(tree_sum),
    SLOT(tree_sum_rows),
    SLOT(row_power_sums),
    SLOT(combine),
    SLOT(clip_factor),
    SLOT(clamp),
    SLOT(adamw),
    SLOT(sgd),
    SLOT(schedule_free),
    SLOT(square_row_sums),
    SLOT(square_column_sums),
    SLOT(moving_average),
    SLOT(rsqrt),
    SLOT(adafactor_square_sums),
    SLOT(adafactor),
    SLOT(nf4_dequantize),
};

fsdp_status fsdp_kernels_cuda_open(int device, fsdp_kernel_context **context,
                                   const fsdp_kernels **kernels)
{
    fsdp_kernel_context *opened;
    FSDP_TRY(fsdp_cuda_context_open(device, &opened));
    fsdp_status status = fsdp_cuda_tables_create(fsdp_cuda_of(opened));
    if (status == FSDP_OK)
        status = fsdp_cuda_uploads_create(fsdp_cuda_of(opened));
    if (status != FSDP_OK) {
        fsdp_kernels_cuda_close(opened);
        return status;
    }
    *context = opened;
    *kernels = &fsdp_kernels_cuda;
    return FSDP_OK;
}
