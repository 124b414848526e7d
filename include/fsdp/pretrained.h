/**
 * @file
 * A model opened from a folder: its files found by name, its parameters loaded, sharded or not,
 * and saved again.
 *
 *     fsdp_pretrained weights;
 *     FSDP_TRY(fsdp_pretrained_open("t5-base", false, &weights));
 *     FSDP_TRY(fsdp_model_create(&weights.config, &model));
 *     FSDP_TRY(fsdp_fully_sharded_data_parallel(model, group, device, &options));
 *     FSDP_TRY(fsdp_pretrained_load(&weights, model, group, seed, NULL));
 *     fsdp_pretrained_close(&weights);
 */
#pragma once
#include <fsdp/base.h>
#include <fsdp/comm.h>
#include <fsdp/hf.h>
#include <fsdp/models.h>
#include <fsdp/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Zero means default. */
typedef struct fsdp_load_options {
    /** Name of the module that holds the model without its head, e.g. "bert": transformers'
     * base_model_prefix. Parameter "bert.x" is also looked for as "x", for files of the bare model;
     * parameter "x" as "bert.x", for files of a model with a head. NULL: none. */
    const char *base_prefix;
    /** Paths of modules whose parameters are drawn where the file lacks them: a new head, e.g.
     * "classifier". NULL-terminated; NULL: none. */
    const char *const *fresh_modules;
    uint64_t seed; /**< of what is drawn: the values that fsdp_module_init() gives */
    /** Draw a parameter whose tensor has another shape, and list it as mismatched; default: an
     * error. As from_pretrained(ignore_mismatched_sizes=True). */
    bool ignore_mismatched_sizes;
} fsdp_load_options;

/** In what a file and the module differ. */
typedef struct fsdp_load_report {
    char **unexpected; /**< [n_unexpected] names of tensors that no parameter has */
    size_t n_unexpected;
    char **fresh; /**< [n_fresh] names of parameters that were not in the file, but drawn */
    size_t n_fresh;
    char **mismatched; /**< [n_mismatched] names of parameters whose tensors have another shape */
    size_t n_mismatched;
} fsdp_load_report;
FSDP_API void fsdp_load_report_free(fsdp_load_report *report);

/**
 * Read every parameter of `module` from a checkpoint, converting dtypes. Each rank touches only its
 * own rows. A parameter is found under any of its names, and as transformers finds them: with the
 * prefix of `options` or without, and LayerNorm's weight and bias under their old names gamma and
 * beta. A tensor that is there under several of a tied parameter's names must be the same under
 * each.
 *
 * Collective. Everything is checked on every rank before the first value changes: if one rank
 * fails, all do and the module is as it was.
 *
 * @param group   the ranks that load; NULL: this one alone
 * @param options NULL: all defaults
 * @param report  out: freed with fsdp_load_report_free(); NULL if not wanted. Buffers that old
 *                versions of transformers stored are not listed.
 * @return FSDP_ERR_NOT_FOUND naming a parameter that is not in the file; FSDP_ERR_FORMAT naming
 *         file, tensor and both shapes; FSDP_ERR_UNSUPPORTED for a dtype that is no float;
 *         FSDP_ERR_STATE if the module has no memory.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_load(fsdp_module *module,
                                                      const fsdp_checkpoint_reader *reader,
                                                      fsdp_group *group,
                                                      const fsdp_load_options *options,
                                                      fsdp_load_report *report);
/**
 * Before fully_shard: tell frozen parameters of `module` the dtypes in which the checkpoint has
 * them, so that they get memory in these at once. fsdp_module_load() does it too, but a module that
 * is sharded already then has its memory made anew, unit by unit.
 *
 * @param options as of the load to come; NULL: all defaults
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_note_dtypes(fsdp_module *module,
                                                             const fsdp_checkpoint_reader *reader,
                                                             const fsdp_load_options *options);

/** Zero means default. */
typedef struct fsdp_save_options {
    fsdp_dtype dtype;        /**< of the file; default float32 */
    int64_t max_shard_bytes; /**< of one file, unless a single tensor is larger; 0: 50e9 */
    const char *also_as;     /**< a further name under which a tied parameter is written too */
} fsdp_save_options;

/**
 * Write the parameters of `module` as Hugging Face does: model.safetensors, or
 * model-00001-of-0000N.safetensors with model.safetensors.index.json. A parameter of several names
 * is written once, under its first.
 *
 * Collective. Parameters are gathered one at a time, and rank 0 writes. A failure on one rank is
 * one on all.
 *
 * @param dir     an existing directory, used by rank 0 alone
 * @param group   the ranks that hold the module; NULL: this one alone
 * @param options NULL: all defaults
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_save(fsdp_module *module, const char *dir,
                                                      fsdp_group *group,
                                                      const fsdp_save_options *options);

/** @name Models by name
 * from_pretrained() in steps, between which the module is sharded: no rank ever holds the whole
 * model. @{ */
/** A model's files; fields are read, not changed. Ended by fsdp_pretrained_close(). */
typedef struct fsdp_pretrained {
    char *dir; /**< where it was found: config.json, the weights, the tokenizer's files */
    fsdp_model_config config;        /**< tie_word_embeddings is what the weights say */
    fsdp_checkpoint_reader *weights; /**< NULL with from_config */
    /** Draw what has another shape in the weights; set between open and load. */
    bool ignore_mismatched_sizes;
    char *name_prefix; /**< that all names in the files begin with and that was taken off, so that
                            they are the model's: "model." of a LightningModule; NULL: none. What
                            DistributedDataParallel, torch.compile, FSDP1 and activation
                            checkpointing put into names is always taken off. */
} fsdp_pretrained;

/**
 * Find a model and read its configuration and the headers of its weights. Nothing is downloaded.
 *
 * @param name        a directory, or a hub name ("t5-base", "org/name") that lies in the local
 *                    Hugging Face cache: $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub,
 *                    $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub, in this order
 * @param from_config AutoModel.from_config(): weights are not looked for, load draws them
 * @param pretrained  out: the caller's memory
 * @return FSDP_ERR_NOT_FOUND naming the folders searched, or a missing file; else as
 *         fsdp_model_config_read() and fsdp_checkpoint_open()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_pretrained_open(const char *name, bool from_config,
                                                          fsdp_pretrained *pretrained);
/**
 * Give the parameters of a module that fsdp_model_create() made of `config` their values, sharded
 * or not. Collective.
 *
 * @param group  the ranks that load; NULL: this one alone
 * @param seed   of what is not in the files but drawn: a fresh head, with from_config everything
 * @param report out: freed with fsdp_load_report_free(), empty with from_config; NULL: not wanted
 * @return as fsdp_module_load()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_pretrained_load(const fsdp_pretrained *pretrained,
                                                          fsdp_module *module, fsdp_group *group,
                                                          uint64_t seed, fsdp_load_report *report);
/** Accepts what was zero-initialised and never opened. */
FSDP_API void fsdp_pretrained_close(fsdp_pretrained *pretrained);
/** @} */

#ifdef __cplusplus
}
#endif
