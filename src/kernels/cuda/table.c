/* The table of the CUDA kernels. */
#include "src/kernels/cuda/slots.h"

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
    SLOT(sum),
    SLOT(clamp),
};
