/**
 * @file
 * Opens a model by name, loads its parameters (whole or sharded), and saves them.
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
#include <fsdp/lora.h>
#include <fsdp/models.h>
#include <fsdp/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Zero means default. */
typedef struct fsdp_load_options {
    /** transformers' base_model_prefix, e.g. "bert". A model with a head has a submodule of this
     * name, which is the model without its head. So a tensor that is called "bert.x" in the file of
     * a model with a head is called "x" in the file of a model without a head. The module may have
     * a head although the file has none, or the other way round. Therefore, if the file has no
     * tensor "bert.x", parameter "bert.x" is read from tensor "x". If the file has no tensor "x",
     * parameter "x" is read from tensor "bert.x". If base_prefix is NULL, names are not changed in
     * this way. */
    const char *base_prefix;
    /** Paths of modules, e.g. "classifier" for a new head. If the file has no tensor for a
     * parameter of such a module, the parameter is initialized at random. NULL-terminated; NULL:
     * none. */
    const char *const *fresh_modules;
    uint64_t seed; /**< seed of parameters that are initialized at random; they get the values that
                        fsdp_module_init() gives with this seed */
    /** Like from_pretrained(ignore_mismatched_sizes=True): if a parameter's tensor in the file does
     * not have the parameter's shape, initialize the parameter at random and list its name in
     * fsdp_load_report.mismatched. Default: such a tensor is an error. */
    bool ignore_mismatched_sizes;
    /** true: read only the parameters that require a gradient, and leave the others as they are.
     * Default: read all parameters. */
    bool only_trained;
    /** true: it is an error if the checkpoint lacks a matrix of the model's adapter. Default:
     * matrices that the checkpoint lacks get initial values, because the files of a base model
     * contain no adapter. */
    bool complete_adapter;
} fsdp_load_options;

/** Differences between a checkpoint and the module into which it was loaded. */
typedef struct fsdp_load_report {
    char **unexpected; /**< [n_unexpected] names of tensors that belong to no parameter */
    size_t n_unexpected;
    char **fresh; /**< [n_fresh] names of parameters that were initialized at random, because the
                     file has no tensors for them */
    size_t n_fresh;
    char **mismatched; /**< [n_mismatched] names of parameters that were initialized at random,
                            because their tensors in the file have different shapes */
    size_t n_mismatched;
} fsdp_load_report;
FSDP_API void fsdp_load_report_free(fsdp_load_report *report);

/**
 * Read every parameter of `module` from a checkpoint. Values are converted to the parameter's
 * dtype, with one exception: a frozen parameter of a unit gets the dtype that its tensor has in the
 * checkpoint. A rank reads only the rows that it needs for its own part of a parameter. In the
 * checkpoint, the tensor of a parameter may have any of the parameter's names, with or without
 * options->base_prefix. As in transformers, the weight and the bias of a LayerNorm may have their
 * old names, gamma and beta. If the checkpoint has several tensors for a tied parameter, their
 * values must be equal.
 *
 * Collective. Everything is checked on every rank before the first value changes: if one rank
 * fails, all fail and the module is unchanged.
 *
 * @param group   the ranks that load; NULL: this rank alone
 * @param options NULL: all defaults
 * @param report  out: freed with fsdp_load_report_free(); NULL if not wanted. The report does not
 *                list buffers that old versions of transformers saved with the weights.
 * @return FSDP_ERR_NOT_FOUND if the file has no tensor for a parameter; FSDP_ERR_FORMAT if the
 *         shapes of a tensor and its parameter differ, or if the tensors of a tied parameter
 *         differ; FSDP_ERR_UNSUPPORTED if a tensor's dtype is not floating-point; FSDP_ERR_STATE if
 *         the module has no memory. The message names the parameter or tensor.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_load(fsdp_module *module,
                                                      const fsdp_checkpoint_reader *reader,
                                                      fsdp_group *group,
                                                      const fsdp_load_options *options,
                                                      fsdp_load_report *report);
/**
 * Record the dtypes that frozen parameters of `module` have in the checkpoint, before the module is
 * sharded. fsdp_fully_shard() then allocates these parameters in the recorded dtypes. Without this
 * call, fsdp_module_load() must allocate their memory a second time, unit by unit.
 *
 * @param options the options of the load that follows; NULL: all defaults
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_note_dtypes(fsdp_module *module,
                                                             const fsdp_checkpoint_reader *reader,
                                                             const fsdp_load_options *options);

/** Zero means default. */
typedef struct fsdp_save_options {
    fsdp_dtype dtype;        /**< dtype in the file; default float32 */
    int64_t max_shard_bytes; /**< largest size of a file; a larger tensor gets a file of its own; 0:
                                  50e9 */
    /** Another name of a tied parameter. If it is set, the parameter is written under its first
     * name and under this name. NULL: every parameter is written under its first name only. */
    const char *also_as;
    /** true: write only the parameters that require a gradient. Default: write all parameters. */
    bool only_trained;
    /** true: name the tensors as PEFT does in the file of an adapter: with the prefix
     * "base_model.model.", and with "base_layer." before the bias of a layer that has an adapter.
     */
    bool adapter_names;
    const char *file_stem; /**< the file is called `file_stem`.safetensors; NULL: "model" */
} fsdp_save_options;

/**
 * Write the parameters of `module` as Hugging Face does: model.safetensors, or
 * model-00001-of-0000N.safetensors with model.safetensors.index.json. A parameter with several
 * names is written once, under its first name.
 *
 * Collective. Parameters are gathered one at a time, and rank 0 writes. If one rank fails, all
 * ranks fail.
 *
 * @param dir     an existing directory, used by rank 0 only
 * @param group   the ranks that hold the module; NULL: this rank alone
 * @param options NULL: all defaults
 * @return FSDP_ERR_STATE if a parameter has no values; FSDP_ERR_UNSUPPORTED if a parameter that is
 *         written is stored in NF4; FSDP_ERR_IO
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_save(fsdp_module *module, const char *dir,
                                                      fsdp_group *group,
                                                      const fsdp_save_options *options);

/** @name Adapters
 * The folder of an adapter is peft's: adapter_config.json and adapter_model.safetensors. @{ */
/**
 * Read the values of an adapter from the folder `dir` into a model to which fsdp_lora_apply() has
 * added the adapter. The values are lora_A and lora_B of each layer, and the biases and modules
 * that are saved with them. adapter_model.bin is read if there is no adapter_model.safetensors.
 * Collective.
 * @return as fsdp_module_load(); FSDP_ERR_FORMAT also if a tensor of the file belongs to no
 *         parameter of the model
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_lora_load(fsdp_module *model, const char *dir,
                                                    fsdp_group *group);
/**
 * Write the adapter of a model to the existing folder `dir`, with its configuration. Collective.
 * @param dtype dtype of the tensors in the file
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_lora_save(fsdp_module *model,
                                                    const fsdp_lora_config *config,
                                                    const fsdp_lora_about *about, fsdp_dtype dtype,
                                                    const char *dir, fsdp_group *group);
/** @} */

/** @name Models by name
 * from_pretrained() in two steps: open and load. The caller shards the module between the two
 * steps, so that no rank ever holds the whole model. @{ */
/** An open model: its configuration and weights. All fields but ignore_mismatched_sizes are
 * read-only. fsdp_pretrained_close() frees what they point to. */
typedef struct fsdp_pretrained {
    char *dir; /**< folder where the model was found, with config.json, weights and the tokenizer's
                    files */
    fsdp_model_config config;        /**< as in config.json, but tie_word_embeddings agrees with the
                                          weights */
    fsdp_checkpoint_reader *weights; /**< NULL with from_config */
    /** Like fsdp_load_options.ignore_mismatched_sizes. Set this between open and load. */
    bool ignore_mismatched_sizes;
    /** A prefix that was removed from all names in the files, because the model's names do not have
     * it, e.g. "model." if a LightningModule was saved; NULL: none. */
    char *name_prefix;
    /** Wrappers (DistributedDataParallel, torch.compile, FSDP1, activation checkpointing, PEFT) add
     * parts to the names of tensors, and fsdp_pretrained_open() removes these parts. wrapped_name
     * is one of the names in the files that had such a part, as the file spells it; NULL: no name
     * had such a part. */
    char *wrapped_name;
    /** "Lit-LLaMA" or "LitGPT" if that program wrote the files. Their tensors then have other names
     * and rows than the model's parameters, and fsdp_pretrained_open() has translated them. NULL:
     * nothing was translated. A static string. */
    const char *translated_from;
} fsdp_pretrained;

/**
 * Find a model and read its configuration and the headers of its weights. Nothing is downloaded.
 *
 * @param name        a directory, or a hub name ("t5-base", "org/name") in the local Hugging Face
 *                    cache: $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub,
 *                    $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub, in this order
 * @param from_config AutoModel.from_config(): ignore the weights; fsdp_pretrained_load() then
 *                    initializes all parameters at random
 * @param pretrained  out: owned by the caller, closed with fsdp_pretrained_close()
 * @return FSDP_ERR_NOT_FOUND if the model or one of its files is missing; the message names the
 *         folders that were searched. Also the errors of fsdp_model_config_read() and
 *         fsdp_checkpoint_open()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_pretrained_open(const char *name, bool from_config,
                                                          fsdp_pretrained *pretrained);
/**
 * Load the parameters of a module that fsdp_model_create() created from pretrained->config. The
 * module may be sharded. Collective.
 *
 * @param group  the ranks that load; NULL: this rank alone
 * @param seed   seed of parameters that are initialized at random: those of a new head, or all
 *               parameters if the model was opened with from_config
 * @param report out: freed with fsdp_load_report_free(); empty with from_config; NULL if not wanted
 * @return as fsdp_module_load()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_pretrained_load(const fsdp_pretrained *pretrained,
                                                          fsdp_module *module, fsdp_group *group,
                                                          uint64_t seed, fsdp_load_report *report);
/** Free everything that `pretrained` points to, and set *pretrained to zeros. A zero-initialized
 * struct that was never opened is allowed. */
FSDP_API void fsdp_pretrained_close(fsdp_pretrained *pretrained);
/** @} */

#ifdef __cplusplus
}
#endif
