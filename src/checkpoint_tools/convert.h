/* Converts a checkpoint to another format, to another dtype, or to files of another size. Tensors
 * are copied in pieces, so memory does not grow with their size. */
#pragma once
#include "src/hf/wrapped_names.h"
#include "src/source/source.h"

typedef enum fsdp_convert_format {
    /* Choose the format by the name of the target. A name that ends in .pt, .pth or .bin means
     * TORCH, and a name that ends in .safetensors means SAFETENSORS. Any other target becomes a
     * directory. If the source is a torch.save file, the format of the directory is DCP: a
     * torch.save file may contain more than a model, and HF can store only a model. If the source
     * is anything else, the format is HF. */
    FSDP_CONVERT_AUTO,
    FSDP_CONVERT_DCP,
    FSDP_CONVERT_TORCH,
    FSDP_CONVERT_SAFETENSORS,
    FSDP_CONVERT_HF,
} fsdp_convert_format;

/* {0}: all fields have their defaults. */
typedef struct fsdp_convert_options {
    fsdp_convert_format format;
    /* Used only for TORCH and DCP, because SAFETENSORS and HF always contain only the model. true:
     * write only the model's state dict. In the source, this dict may be below keys; the target
     * does not have these keys. false: write the whole checkpoint. */
    bool model_only;
    /* true: convert the model's floating-point tensors to `dtype`. Tensors of floating-point types
     * of 8 bits or fewer keep their dtype, and note() reports them. The tensors of an optimizer
     * also keep their dtype. */
    bool has_dtype;
    fsdp_dtype dtype;
    /* HF: maximum bytes of a file. A single tensor that is larger gets a larger file. 0: 50e9. */
    int64_t max_shard_bytes;
    /* Used only for HF: folder or hub name of a model. Its config.json, generation_config.json and
     * tokenizer are copied to the target. NULL: if the source is a Hugging Face folder, these files
     * are copied from the source. */
    const char *model;
    /* [n_used] The tensors to write, if the target contains just a model. The array is sorted by
     * the pointers in it. Tensors of the model that are not in the array are left out, and note()
     * reports them. NULL: all tensors of the model are written. */
    const fsdp_source_item *const *used;
    size_t n_used;
    /* What is removed from the names of tensors, in addition to the parts that wrappers add. NULL:
     * only those parts are removed. If `names` removes anything, only a model may be converted: the
     * source must contain nothing else, or model_only must be set. */
    const fsdp_name_change *names;
    /* false: an existing target is an error, unless it is an empty directory. true: an existing
     * target is replaced. */
    bool overwrite;
    fsdp_source_progress_fn *progress; /* may be NULL */
    /* Called with a message for the user, before the first or after the last call of progress().
     * May be NULL. */
    void (*note)(const char *note, void *context);
    void *context; /* passed to progress() and note() */
} fsdp_convert_options;

typedef struct fsdp_convert_result {
    fsdp_convert_format format; /* the format that was written; never AUTO */
    size_t tensors, values;
    int64_t bytes; /* total size of the written tensors */
} fsdp_convert_result;

/* Return the format in which fsdp_convert() writes `to`: `wanted`, or the format that AUTO
 * chooses. */
fsdp_convert_format fsdp_convert_format_of(const fsdp_source *from, const char *to,
                                           fsdp_convert_format wanted);
/* Convert the checkpoint `from` and write the result to `to`, which appears complete or not at all.
 * The checksums of all data that are read are verified.
 *
 * `to` must not be the source, contain it, or be a part of it. If the source is a folder, any
 * existing file or folder in it is a part of it, but `to` may be a new one. An existing `to` needs
 * options->overwrite. An existing directory must also be empty or contain a model or a checkpoint.
 *
 * @return FSDP_ERR_INVALID if `to` does not meet these conditions, or if two items would have the
 *         same name;
 *         FSDP_ERR_NOT_FOUND if the target needs a model and the source has none;
 *         FSDP_ERR_UNSUPPORTED if the format cannot contain one of the items; the message names it;
 *         FSDP_ERR_FORMAT if the source is damaged;
 *         FSDP_ERR_IO if the disk is full */
FSDP_MUST_CHECK fsdp_status fsdp_convert(fsdp_source *from, const char *to,
                                         const fsdp_convert_options *options,
                                         fsdp_convert_result *result);
