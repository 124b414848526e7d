/* Converts a checkpoint to another format, to another dtype, or to files of another size. Tensors
 * are copied in pieces, so memory does not grow with their size. */
#pragma once
#include "src/hf/wrapped_names.h"
#include "src/source/source.h"

typedef enum fsdp_convert_format {
    /* The name of the target decides. Names in .pt, .pth and .bin mean TORCH, and names in
     * .safetensors mean SAFETENSORS. A target with any other name becomes a directory. If the
     * source is a file of torch.save, the format of the directory is DCP, because such a file may
     * contain more than a model, and HF cannot store that. Otherwise the format is HF. */
    FSDP_CONVERT_AUTO,
    FSDP_CONVERT_DCP,
    FSDP_CONVERT_TORCH,
    FSDP_CONVERT_SAFETENSORS,
    FSDP_CONVERT_HF,
} fsdp_convert_format;

/* {0}: all fields have their defaults. */
typedef struct fsdp_convert_options {
    fsdp_convert_format format;
    /* true: write only the model's state dict, without the keys that lead to it. The formats
     * SAFETENSORS and HF always contain only the model. false: TORCH and DCP contain the whole
     * checkpoint. */
    bool model_only;
    /* true: convert the model's floating-point tensors to `dtype`. Those with 8 bits or fewer are
     * not converted, and note() reports them. An optimizer's tensors are not converted either. */
    bool has_dtype;
    fsdp_dtype dtype;
    /* HF: maximum bytes of a file. A single tensor that is larger gets a larger file. 0: 50e9. */
    int64_t max_shard_bytes;
    /* HF: folder or hub name of the model whose config.json, generation_config.json and tokenizer
     * are copied. NULL: if the source has the format HF, its own files are copied. */
    const char *model;
    /* [n_used] the tensors of the model that are written: items of the source, sorted by address.
     * The other tensors are omitted, and note() reports them. NULL: all tensors are written. Used
     * only if the target contains just a model. */
    const fsdp_source_item *const *used;
    size_t n_used;
    /* What is removed from the names of tensors in addition to the parts that wrappers add. Allowed
     * only if the target contains just a model. NULL: only the parts of wrappers are removed. */
    const fsdp_name_change *names;
    /* true: replace an existing target. false: an existing target is an error, except an empty
     * directory. */
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
 * `to` must not be the source, contain it, or be a part of it. An existing `to` needs
 * options->overwrite. An existing directory must also be empty or contain a model or a checkpoint.
 *
 * @return FSDP_ERR_INVALID if `to` does not meet these conditions, or if two items would have the
 *         same name;
 *         FSDP_ERR_NOT_FOUND if the target needs a model and the source has none;
 *         FSDP_ERR_UNSUPPORTED if the format cannot contain an item, which the message names;
 *         FSDP_ERR_FORMAT if the source is damaged;
 *         FSDP_ERR_IO if the disk is full */
FSDP_MUST_CHECK fsdp_status fsdp_convert(fsdp_source *from, const char *to,
                                         const fsdp_convert_options *options,
                                         fsdp_convert_result *result);
