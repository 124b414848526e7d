/* Converts the weights in a model's folder to NF4, in the layout of bitsandbytes. Also does the
 * reverse: converts weights in NF4 to floating-point weights. Tensors are read and written in
 * pieces, so memory does not grow with the model, except for the scales of one weight. */
#pragma once
#include "src/pretrained/quantize.h"
#include "src/source/source.h"

typedef struct fsdp_quantize_folder_options {
    /* Which weights become NF4. NULL: weights in NF4 become floating-point numbers. */
    const fsdp_quantize_options *quantize;
    /* true: floating-point tensors that do not become NF4 are written in `dtype`, and so are
     * weights that were in NF4. false: tensors keep their dtype, and weights that were in NF4 get
     * the dtype that they had before they were quantized. */
    bool has_dtype;
    fsdp_dtype dtype;
    int64_t max_shard_bytes;           /* maximum bytes of a file; 0: 50e9 */
    bool overwrite;                    /* replace the model in an existing folder */
    fsdp_source_progress_fn *progress; /* may be NULL */
    /* Called with a message for the user, for example if elements are too large for `dtype`. May be
     * NULL. */
    void (*note)(const char *note, void *context);
    void *context; /* passed to progress() and note() */
} fsdp_quantize_folder_options;

typedef struct fsdp_quantize_folder_result {
    size_t tensors; /* tensors that were written */
    size_t changed; /* weights that are in NF4 now, or were before */
    int64_t bytes;
} fsdp_quantize_folder_result;

/* Write the folder `to` from the Hugging Face folder or hub name `from`. The folder appears
 * complete or not at all. `to` must not be `from`, contain it, or exist inside it. Return
 * FSDP_ERR_INVALID if this is not so, if options->quantize is set and `from` has
 * weights in NF4 already, or if options->quantize is NULL and `from` has no weights in NF4. */
FSDP_MUST_CHECK fsdp_status fsdp_quantize_folder(const char *from, const char *to,
                                                 const fsdp_quantize_folder_options *options,
                                                 fsdp_quantize_folder_result *result);
