/**
 * @file
 * LoRA adapters (Hu et al. 2021, arXiv 2106.09685), with PEFT's options and files.
 *
 * An adapter trains a low-rank update of some linear layers: y = x W^T + scaling * (x A^T) B^T,
 * with A [r, in] and B [out, r]. The base weights W are frozen. Only the parameters of the adapter
 * have gradients and optimizer state.
 *
 * With use_dora, the adapter is DoRA's (Liu et al. 2024, arXiv 2402.09353): each row of W + scaling
 * * B A is divided by its norm and multiplied by a trained number, the row's magnitude. The first
 * magnitudes are the norms of the rows of W, so the base model must be loaded first;
 * fsdp_lora_init_magnitudes() computes them.
 *
 *     fsdp_lora_config lora = {.r = 16, .lora_alpha = 32, .target_pattern = "all-linear"};
 *     FSDP_TRY(fsdp_model_create(&config, &model));
 *     FSDP_TRY(fsdp_lora_apply(model, &lora));
 *     FSDP_TRY(fsdp_fully_sharded_data_parallel(model, group, device, &options));
 *     FSDP_TRY(fsdp_pretrained_load(&weights, model, group, seed, NULL));
 *     ... train ...
 *     FSDP_TRY(fsdp_lora_save(model, &lora, &about, FSDP_DTYPE_F32, "adapter", group));
 *
 * fsdp_lora_load() and fsdp_lora_save() are in <fsdp/pretrained.h>.
 */
#pragma once
#include <fsdp/base.h>
#include <fsdp/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which bias vectors of the base model are trained: peft's `bias`. */
typedef enum fsdp_lora_bias {
    FSDP_LORA_BIAS_NONE,      /**< "none" */
    FSDP_LORA_BIAS_ALL,       /**< "all": every parameter called "bias" */
    FSDP_LORA_BIAS_LORA_ONLY, /**< "lora_only": the biases of the layers that have an adapter */
} fsdp_lora_bias;

/** Initial values of A. B is initially 0, so a new adapter does not change the model. */
typedef enum fsdp_lora_init {
    FSDP_LORA_INIT_KAIMING,  /**< peft's True: uniform in [-1 / sqrt(in), 1 / sqrt(in)] */
    FSDP_LORA_INIT_GAUSSIAN, /**< "gaussian": N(0, 1 / r), i.e. with standard deviation 1 / r */
} fsdp_lora_init;

/** An entry of rank_pattern or alpha_pattern. */
typedef struct fsdp_lora_pattern {
    /** Regular expression. It selects a layer if it matches the layer's path, or the end of the
     * path after a dot. */
    const char *key;
    double value;
} fsdp_lora_pattern;

/**
 * peft.LoraConfig. All pointers are borrowed. A list of names ends with NULL; a NULL list is empty.
 *
 * In `target_modules` and `exclude_modules`, a name selects the layer with this path, and the
 * layers whose path ends with a dot and this name: "q_proj" selects
 * model.layers.0.self_attn.q_proj.
 */
typedef struct fsdp_lora_config {
    int64_t r;         /**< rank of the update; 0: 8 */
    double lora_alpha; /**< 0: 8. The update is multiplied by lora_alpha / r */
    /** true: the update is multiplied by lora_alpha / sqrt(r) instead (rank-stabilized LoRA,
     * Kalajdzievski 2023, arXiv 2312.03732). */
    bool use_rslora;
    double lora_dropout; /**< probability of the dropout before A, in [0, 1) */
    const char *const *target_modules;
    /** Instead of target_modules: a regular expression that must match a layer's whole path, or
     * "all-linear", which selects all linear layers except the head. If target_modules and
     * target_pattern are both NULL, the adapter is for the layers that peft chooses for the model
     * type. */
    const char *target_pattern;
    const char *const *exclude_modules; /**< layers that get no adapter although they are targets */
    const char *exclude_pattern;        /**< instead of exclude_modules: a regular expression */
    /** [n_layers_to_transform] Only layers in a block with one of these indices get an adapter. A
     * block is an item of a ModuleList. For example, the layer model.layers.3.mlp.up_proj is in
     * block 3 of the ModuleList model.layers. It is an error to set this together with
     * target_pattern. If n_layers_to_transform is 0, the layers in all blocks get an adapter. */
    const int64_t *layers_to_transform;
    size_t n_layers_to_transform;
    /** The ModuleLists that layers_to_transform refers to: names, or regular expressions for their
     * paths. NULL: the first ModuleList on a layer's path. */
    const char *const *layers_pattern;
    const fsdp_lora_pattern *rank_pattern; /**< [n_rank_pattern] values of `r` for some layers */
    size_t n_rank_pattern;
    const fsdp_lora_pattern
        *alpha_pattern; /**< [n_alpha_pattern] values of lora_alpha for some layers */
    size_t n_alpha_pattern;
    fsdp_lora_bias bias;
    /** Modules that are trained whole and saved with the adapter, such as a new "classifier". A
     * name selects modules as in target_modules. */
    const char *const *modules_to_save;
    fsdp_lora_init init_lora_weights;
    /** true: DoRA. Each layer with an adapter gets the parameter lora_magnitude_vector [out]. */
    bool use_dora;
} fsdp_lora_config;

/** A configuration that was read from a file, with the memory of its lists. */
typedef struct fsdp_lora_file fsdp_lora_file;
/**
 * Read `dir`/adapter_config.json. It is an error if a value would change the results and this
 * library does not support it, for example use_qalora or a peft_type other than LORA.
 * @param file out: owned by the caller, freed with fsdp_lora_file_destroy()
 * @return FSDP_ERR_NOT_FOUND if there is no such file; FSDP_ERR_FORMAT for an impossible value;
 *         FSDP_ERR_UNSUPPORTED; the message names the file, the key and the value
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_lora_file_read(const char *dir, fsdp_lora_file **file);
FSDP_API void fsdp_lora_file_destroy(fsdp_lora_file *file); /**< accepts NULL */
/** Get the configuration. It is valid until the file is destroyed. */
FSDP_API const fsdp_lora_config *fsdp_lora_file_config(const fsdp_lora_file *file);
/** Get base_model_name_or_path; NULL if the file does not have it. */
FSDP_API const char *fsdp_lora_file_base_model(const fsdp_lora_file *file);

/** What adapter_config.json says in addition to the configuration. Fields that are NULL are null in
 * the file. */
typedef struct fsdp_lora_about {
    const char *base_model; /**< base_model_name_or_path: folder or hub name of the base model */
    const char *task_type;  /**< "CAUSAL_LM", "SEQ_2_SEQ_LM", "SEQ_CLS" */
} fsdp_lora_about;
/** Write an adapter_config.json that peft reads. The file appears complete or not at all. If the
 * configuration names no target, the file contains the names that peft chooses for `model`. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_lora_config_write(const fsdp_lora_config *config,
                                                            const fsdp_module *model,
                                                            const fsdp_lora_about *about,
                                                            const char *path);

/**
 * peft.get_peft_model(): add an adapter to the layers that `config` selects, and freeze all other
 * parameters except those that `bias` and `modules_to_save` select. As in peft, a module
 * "classifier" of the model is always trained whole. A layer's matrices are the parameters
 * lora_A.weight [r, in] and lora_B.weight [out, r] below the layer. Call this before sharding and
 * before memory is allocated, and once for a model.
 *
 * @param config read during the call only
 * @return FSDP_ERR_INVALID if the configuration selects no layer or has an impossible value, or if
 *         no module has a name of modules_to_save; FSDP_ERR_UNSUPPORTED if the configuration
 *         selects a layer that cannot have an adapter (the message names the layer and says what to
 *         use); FSDP_ERR_STATE if the model has memory or an adapter already
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_lora_apply(fsdp_module *model,
                                                     const fsdp_lora_config *config);

/**
 * Set the magnitudes of an adapter with use_dora to the norms of the rows of W + scaling * B A.
 * fsdp_pretrained_load() does this for a new adapter; a program that fills the weights in another
 * way calls this function afterwards. The units of `model` are gathered one after the other.
 * Collective. Without use_dora, nothing changes.
 * @return FSDP_ERR_UNSUPPORTED on a device that does not compute DoRA (cuda); FSDP_ERR_STATE if the
 *         model has no memory
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_lora_init_magnitudes(fsdp_module *model);
/**
 * For an adapter with use_dora, compute the norms of the rows of W + scaling * B A now. All later
 * forwards use these norms and do not compute them again. Each rank keeps a float32 for each row.
 * Call this for a model that is not trained any more, such as for generation. Without use_dora,
 * nothing changes. Collective.
 * @param keep false: forwards compute the norms again
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_lora_keep_norms(fsdp_module *model, bool keep);

#ifdef __cplusplus
}
#endif
