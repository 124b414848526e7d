/* The table of the CUDA kernels. */
#include "src/kernels/cuda/slots.h"

#define SLOT(name) .name = fsdp_cuda_##name

const fsdp_kernels fsdp_kernels_cuda = {
    .name = "cuda",
    SLOT(fill),
    SLOT(copy),
    SLOT(sum),
    SLOT(gemm),
    SLOT(tree_sum),
    SLOT(row_power_sums),
    SLOT(adamw),
    SLOT(sgd),
    SLOT(square_row_sums),
    SLOT(square_column_sums),
    SLOT(moving_average),
    SLOT(rsqrt),
    SLOT(adafactor_square_sums),
    SLOT(adafactor),
};
