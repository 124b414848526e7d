/* Converting a checkpoint to another format, other files or another dtype. Tensors are copied in
 * pieces, so memory does not grow with their size. */
#pragma once
#include "src/source/source.h"
#include "src/hf/wrapped_names.h"

typedef enum fsdp_convert_format {
    FSDP_CONVERT_AUTO, /* by the name of the target: FSDP_CONVERT_TORCH for .pt, .pth and .bin,
                          SAFETENSORS for .safetensors; else a directory: DCP from a file of
                          torch.save, so that all of it is kept, HF from all others */
    FSDP_CONVERT_DCP,
    FSDP_CONVERT_TORCH,
    FSDP_CONVERT_SAFETENSORS,
    FSDP_CONVERT_HF,
} fsdp_convert_format;

/* Zero means default. */
typedef struct fsdp_convert_options {
    fsdp_convert_format format;
    bool model_only; /* only the model's state dict, with its names at the top. Always so for
                        SAFETENSORS and HF; default of the others: everything */
    bool has_dtype;  /* convert floating-point tensors of the model to `dtype`. Tensors of an
                        optimizer keep their dtype, and so do types of 8 bits and fewer, which is
                        reported by note() */
    fsdp_dtype dtype;
    int64_t max_shard_bytes; /* HF: size of one file, unless a single tensor is larger; 0: 50e9 */
    const char *model;       /* HF: folder or hub name whose config.json, generation_config.json and
                                tokenizer are copied; NULL: those of the source, if it is HF */
    /* [n_used] sorted by address: other tensors are omitted from the model, which is reported by
     * note(). NULL: write all. */
    const fsdp_source_item *const *used;
    size_t n_used;
    const fsdp_name_change *names;     /* if everything is a model: changes of its names besides
                                          removing the prefixes of wrappers; NULL: none */
    bool overwrite;                    /* replace an existing target; default: an error */
    fsdp_source_progress_fn *progress; /* may be NULL */
    void (*note)(const char *note,
                 void *context); /* called before or after all progress; may be NULL */
    void *context;               /* argument of progress and note */
} fsdp_convert_options;

typedef struct fsdp_convert_result {
    fsdp_convert_format format; /* not AUTO */
    size_t tensors, values;
    int64_t bytes; /* of the written tensors */
} fsdp_convert_result;

/* The format of the target `to`: `wanted`, or the one that AUTO means for it. */
fsdp_convert_format fsdp_convert_format_of(const fsdp_source *from, const char *to,
                                           fsdp_convert_format wanted);
/* Write `from` as `to`, which appears whole or not at all. Checksums of items that are read are
 * compared.
 *
 * @return FSDP_ERR_INVALID if `to` exists and may not be replaced, holds the source, is a directory
 *         that is no checkpoint, or if two items have one name; FSDP_ERR_NOT_FOUND if there is no
 *         model; FSDP_ERR_UNSUPPORTED naming an item that the format cannot hold; FSDP_ERR_FORMAT
 *         for damage; FSDP_ERR_IO if the disk is full */
FSDP_MUST_CHECK fsdp_status fsdp_convert(fsdp_source *from, const char *to,
                                         const fsdp_convert_options *options,
                                         fsdp_convert_result *result);
