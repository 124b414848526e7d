/* A device: kernels, their context, an allocator. One per rank. */
#pragma once
#include <fsdp/tensor.h>

#include "src/base/trace.h"
#include "src/kernels/kernels.h"
#include "src/tensor/allocator.h"

struct fsdp_device {
    const char *name;             /* "cpu" or "meta" */
    const fsdp_kernels *kernels;  /* NULL on meta: shapes and memory are counted, nothing runs */
    fsdp_kernel_context *context; /* NULL on meta */
    fsdp_allocator *allocator;
    struct fsdp_offload
        *offload; /* borrowed from the units in it: offload.h; NULL: there are none */
};

/* Memory by purpose into the thread's trace, if there is one. */
static inline void fsdp_device_trace_memory(const fsdp_device *device)
{
    if (fsdp_trace_current)
        fsdp_trace_add_sample(fsdp_trace_current,
                              fsdp_allocator_stats(device->allocator)->tag_allocated,
                              FSDP_TAG_COUNT);
}
