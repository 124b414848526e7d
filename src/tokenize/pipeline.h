/* Reads batches of records, works on them in several threads, and writes the results in the order
 * of the batches, whatever the number of threads. */
#pragma once
#include <stdatomic.h>

#include "src/tokenize/source.h"

typedef struct fsdp_pipeline_ops {
    /* Create and destroy the result of a batch, which is used again for other batches. */
    fsdp_status (*create)(void *self, void **result);
    void (*destroy)(void *result); /* accepts NULL */
    /* Work on a batch. Several threads call this at the same time. */
    fsdp_status (*work)(void *self, const fsdp_record_batch *batch, void *result);
    /* Write the result of a batch. Only one thread at a time calls this, in the order of batches,
     * and with the results of all batches before the first one that failed. */
    fsdp_status (*write)(void *self, const fsdp_record_batch *batch, void *result);
} fsdp_pipeline_ops;

/* Read, work on and write batches until the source ends, or until *interrupted is true.
 * `interrupted` may be NULL. In both cases, all batches that were read are written before this
 * function returns. Set *stopped to true if *interrupted ended the run. If batches fail, return the
 * error of the first of them, so that it does not depend on the number of threads. */
FSDP_MUST_CHECK fsdp_status fsdp_pipeline_run(const fsdp_pipeline_ops *ops, void *self,
                                              fsdp_record_source *source, int threads,
                                              const atomic_bool *interrupted, bool *stopped);
