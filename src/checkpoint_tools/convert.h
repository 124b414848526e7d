/* A checkpoint as one of another format, other files, another dtype: tensors pass through in
 * pieces, so that memory does not grow with them. */
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
    bool model_only; /* the model's state dict, its names at the top. SAFETENSORS and HF have
                        nothing else; default of the others: all there is */
    bool has_dtype;  /* floating-point tensors of the model become `dtype`; what an optimizer has
                        stays as it is, and types of 8 bits and fewer do, which is noted */
    fsdp_dtype dtype;
    int64_t max_shard_bytes; /* HF: of one file, unless a single tensor is larger; 0: 50e9 */
    const char *model;       /* HF: folder or hub name whose config.json, generation_config.json and
                                tokenizer are copied; NULL: those beside the source, if it is HF */
    /* [n_used] by address: tensors that are not among them are left out of the model, which is
     * noted. NULL: all are written */
    const fsdp_source_item *const *used;
    size_t n_used;
    const fsdp_name_change *names;     /* where all there is is a model: what its names lose besides
                                           the prefixes of wrappers; NULL: nothing */
    bool overwrite;                    /* replace what is there; default: refuse */
    fsdp_source_progress_fn *progress; /* NULL: nobody asks */
    void (*note)(const char *note, void *context); /* before or after progress; NULL: nobody asks */
    void *context;                                 /* of both */
} fsdp_convert_options;

typedef struct fsdp_convert_result {
    fsdp_convert_format format; /* not AUTO */
    size_t tensors, values;
    int64_t bytes; /* of the tensors that were written */
} fsdp_convert_result;

/* What `to` would become: `wanted`, or what AUTO is for it. */
fsdp_convert_format fsdp_convert_format_of(const fsdp_source *from, const char *to,
                                           fsdp_convert_format wanted);
/* Write `from` as `to`, which appears whole or not at all. Checksums of what is read are compared.
 *
 * @return FSDP_ERR_INVALID if `to` exists and may not be replaced, holds the source, is a directory
 *         that is no checkpoint, or if two items have one name; FSDP_ERR_NOT_FOUND if there is no
 *         model; FSDP_ERR_UNSUPPORTED naming an item that the format cannot hold; FSDP_ERR_FORMAT
 *         for damage; FSDP_ERR_IO if the disk is full */
FSDP_MUST_CHECK fsdp_status fsdp_convert(fsdp_source *from, const char *to,
                                         const fsdp_convert_options *options,
                                         fsdp_convert_result *result);
