/* A device: kernels, their context, an allocator. One per rank. */
#pragma once
#include <fsdp/tensor.h>

#include "src/kernels/kernels.h"
#include "src/tensor/allocator.h"

struct fsdp_device {
    const char *name;             /* "cpu" or "meta" */
    const fsdp_kernels *kernels;  /* NULL on meta: shapes and memory are counted, nothing runs */
    fsdp_kernel_context *context; /* NULL on meta */
    fsdp_allocator *allocator;
};
