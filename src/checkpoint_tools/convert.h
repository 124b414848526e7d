/* Converts a checkpoint to another format, to another dtype, or to files of another size. Tensors
 * are copied in pieces, so memory does not grow with their size. */
#pragma once
#include "src/hf/wrapped_names.h"
#include "src/source/source.h"

typedef enum fsdp_convert_format {
    FSDP_CONVERT_AUTO, /* choose the format by the target's name: TORCH for .pt, .pth and .bin,
                          SAFETENSORS for .safetensors. Any other name is that of a directory. The
                          format is then DCP, which keeps everything, if the source is a file of
                          torch.save, and otherwise HF */
    FSDP_CONVERT_DCP,
    FSDP_CONVERT_TORCH,
    FSDP_CONVERT_SAFETENSORS,
    FSDP_CONVERT_HF,
} fsdp_convert_format;

/* A field that is zero has its default value. */
typedef struct fsdp_convert_options {
    fsdp_convert_format format;
    bool model_only; /* write only the model's state dict, without the keys above it. SAFETENSORS
                        and HF always do this. By default, TORCH and DCP contain the whole
                        checkpoint */
    bool has_dtype; /* convert the model's floating-point tensors to `dtype`. An optimizer's tensors
                       keep their dtype. Floating-point tensors of 8 bits or fewer keep it too, and
                       note() reports them */
    fsdp_dtype dtype;
    int64_t max_shard_bytes; /* HF: largest size of a file, unless a single tensor is larger
                                (default: 50e9) */
    const char *model;       /* HF: folder or hub name whose config.json, generation_config.json and
                                tokenizer are copied; NULL: copy the source's files if it is HF */
    /* [n_used] sorted by address: the tensors of the model that are written. All other tensors are
     * omitted, and note() reports them. NULL: all tensors are written. */
    const fsdp_source_item *const *used;
    size_t n_used;
    /* Changes of the tensors' names, in addition to removing the prefixes of wrappers. Allowed only
     * if the target contains just a model. NULL: no changes. */
    const fsdp_name_change *names;
    bool overwrite; /* replace an existing target; by default, an existing target is an error */
    fsdp_source_progress_fn *progress;             /* may be NULL */
    void (*note)(const char *note, void *context); /* called before the first or after the last call
                                                      of progress(); may be NULL */
    void *context;                                 /* argument of progress and note */
} fsdp_convert_options;

typedef struct fsdp_convert_result {
    fsdp_convert_format format; /* the format that was written; never AUTO */
    size_t tensors, values;
    int64_t bytes; /* total size of the written tensors */
} fsdp_convert_result;

/* Return the format in which `to` will be written: `wanted`, unless that is AUTO. */
fsdp_convert_format fsdp_convert_format_of(const fsdp_source *from, const char *to,
                                           fsdp_convert_format wanted);
/* Convert `from` and write the result to `to`, which appears complete or not at all. All data that
 * are read are verified with their checksums.
 *
 * @return FSDP_ERR_INVALID if two items would have the same name or if `to` must not be written: it
 *         exists and options->overwrite is false, it is a directory without a checkpoint, or it
 *         contains the source or is a part of it;
 *         FSDP_ERR_NOT_FOUND if a model is needed and the source has none;
 *         FSDP_ERR_UNSUPPORTED if the format cannot contain an item, which the message names;
 *         FSDP_ERR_FORMAT if the source is damaged;
 *         FSDP_ERR_IO if the disk is full */
FSDP_MUST_CHECK fsdp_status fsdp_convert(fsdp_source *from, const char *to,
                                         const fsdp_convert_options *options,
                                         fsdp_convert_result *result);
