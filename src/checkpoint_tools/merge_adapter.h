/* Merges adapters into the weights of their base model, as PEFT's merge_and_unload() does. Tensors
 * are copied in pieces, so memory does not grow with the model. */
#pragma once
#include <fsdp/tensor.h>

#include "src/source/source.h"

/* {0}: all fields have their defaults. */
typedef struct fsdp_merge_options {
    const char *model; /* folder or hub name of the base model; NULL: the model that
                          adapter_config.json names */
    /* [n_adapters] Factors of the adapters' updates. NULL: 1 for each. */
    const double *weights;
    /* Subtract the updates. This undoes a merge, up to rounding. */
    bool subtract;
    /* true: floating-point tensors are written in `dtype`. false: in the dtypes that they have in
     * the base model. */
    bool has_dtype;
    fsdp_dtype dtype;
    int64_t max_shard_bytes;           /* maximum bytes of a file; 0: 50e9 */
    bool overwrite;                    /* replace the model in an existing folder */
    fsdp_source_progress_fn *progress; /* may be NULL */
    /* Called with a message for the user, for example if elements are too large for `dtype`. May be
     * NULL. */
    void (*note)(const char *note, void *context);
    void *context; /* passed to progress() and note() */
} fsdp_merge_options;

typedef struct fsdp_merge_result {
    size_t tensors;  /* tensors that were written */
    size_t merged;   /* tensors to which an update was added */
    size_t replaced; /* tensors that come from an adapter: biases and modules_to_save */
} fsdp_merge_result;

/* Merge the adapters in the folders `adapters` [n_adapters] into their base model, and write the
 * result to the folder `to`. Sums are computed in float32, and rounded once. The folder appears
 * complete or not at all. */
FSDP_MUST_CHECK fsdp_status fsdp_merge_adapters(const char *const *adapters, size_t n_adapters,
                                                const char *to, const fsdp_merge_options *options,
                                                fsdp_merge_result *result);
