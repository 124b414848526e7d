/* The table of the CUDA kernels. */
#include "src/kernels/cuda/slots.h"

#define SLOT(name) .name = fsdp_cuda_##name

const fsdp_kernels fsdp_kernels_cuda = {
    .name = "cuda",
    SLOT(fill),
    SLOT(copy),
    SLOT(sum),
    SLOT(attention),
    SLOT(attention_backward),
};
