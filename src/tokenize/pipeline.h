/* Reads batches of records, works on several batches at the same time in several threads, and
 * writes the results in the order of reading. */
#pragma once
#include <stdatomic.h>

#include "src/tokenize/source.h"

typedef struct fsdp_pipeline_ops {
    /* Create and destroy the object into which work() puts its result. The object is used for many
     * batches. */
    fsdp_status (*create)(void *self, void **result);
    void (*destroy)(void *result); /* accepts NULL */
    /* Work on a batch, and put the result into `result`. Several threads call this at the same
     * time. */
    fsdp_status (*work)(void *self, const fsdp_record_batch *batch, void *result);
    /* Write the result of a batch. Only one thread at a time calls this, in the order of the
     * batches. After the first failure of a batch, this is not called for later batches. */
    fsdp_status (*write)(void *self, const fsdp_record_batch *batch, void *result);
} fsdp_pipeline_ops;

/* Read batches, work on them and write the results, until the source has no more records or
 * *interrupted is true. In both cases, the function first writes all batches that it has read. Set
 * *stopped to true if *interrupted ended the run; `interrupted` may be NULL. If several batches
 * fail, the error of the first one in order is returned, so the error does not depend on the number
 * of threads. */
FSDP_MUST_CHECK fsdp_status fsdp_pipeline_run(const fsdp_pipeline_ops *ops, void *self,
                                              fsdp_record_source *source, int threads,
                                              const atomic_bool *interrupted, bool *stopped);
