/* The table of the CUDA kernels. */
#include "src/kernels/cuda/slots.h"

#define SLOT(name) .name = fsdp_cuda_##name

const fsdp_kernels fsdp_kernels_cuda = {
    .name = "cuda",
    SLOT(fill),
    SLOT(copy),
    SLOT(rms_norm),
    SLOT(rms_norm_backward),
    SLOT(layer_norm),
    SLOT(layer_norm_backward),
    SLOT(rope),
    SLOT(embedding),
    SLOT(embedding_backward),
    SLOT(gather_rows),
    SLOT(scatter_rows),
    SLOT(split_columns),
    SLOT(join_columns),
    SLOT(segment_mean),
    SLOT(segment_mean_backward),
    SLOT(column_sum),
    SLOT(cross_entropy),
    SLOT(sum),
    SLOT(argmax),
};
