/* Opens a model for `fsdp train`, `fsdp generate`, `fsdp verify` and `fsdp bench`: finds it by
 * name, builds and shards its modules, and loads its values. Also saves the model. */
#pragma once
#include <fsdp/pretrained.h>
#include <fsdp/float8.h>
#include <fsdp/fsdp.h>
#include <fsdp/models.h>

#include "src/fsdp/default_policy.h"
#include "src/fsdp/named_sharding.h"
#include "src/pretrained/quantize.h"

/* A field that is 0 or NULL has its default. Exactly one of `name` and `config` is set. */
typedef struct fsdp_model_options {
    const char *name; /* folder or hub name */
    /* The configuration of the model, if it has no folder. Its weights are then drawn at random. */
    const fsdp_model_config *config;
    bool from_config; /* draw the weights at random even if the folder has weights */
    uint64_t seed;    /* seed for weights that are initialized at random, such as those of a new
                         head */
    bool set_dropout; /* use `dropout` instead of the configuration's rates */
    double dropout;
    bool activation_checkpointing; /* checkpoint the activations of the blocks */
    /* how activations are checkpointed; used only if activation_checkpointing is true */
    fsdp_activation_checkpointing_options checkpointing;
    /* The policy that chooses units. NULL: the default policy of fsdp_model_shard(). */
    const fsdp_wrap_policy *wrap;
    /* [n_frozen] Prefixes. A parameter is not trained if its name begins with one of them. Each
     * prefix must match a name. */
    const char *const *frozen;
    size_t n_frozen;
    /* Add this new adapter, whose matrices are initialized at random. Must be NULL if `adapter` or
     * `name` is the folder of an adapter. NULL: no new adapter. */
    const fsdp_lora_config *lora;
    const char *adapter; /* the folder of an adapter, which is added to the model; NULL: none */
    /* The model will not be trained, so the norms that DoRA needs are computed only once
     * (fsdp_lora_keep_norms()). */
    bool keeps_norms;
    /* Compute linear layers in float8. NULL: no layers. */
    const fsdp_float8_linear_config *float8;
    /* Store weights in NF4, whatever dtype they have in the files. NULL: store in NF4 only the
     * weights that are in NF4 in the files. */
    const fsdp_quantize_options *quantize;
    int64_t num_labels;    /* number of classes of a classifier; 0: the number in config.json */
    int problem_type;      /* 1 + fsdp_problem_type; 0: problem_type of config.json or, if it is
                              missing there, the type that num_labels implies */
    const char *labels_of; /* for messages: the path of the data whose labels determined num_labels;
                              NULL if num_labels comes from an option */
    const char *const *label_names; /* [num_labels] names of classes; NULL: as in config.json */
    bool masked_lm; /* open a masked language model, whatever head config.json describes */
    /* Open a masked language model if config.json describes one. Without this flag, such a model is
     * opened as a classifier, because a pretrained BERT is usually fine-tuned as one. */
    bool keep_lm_head;
    bool ignore_mismatched_sizes; /* initialize a weight at random if its shape in the files is
                                     not its shape in the model */
    fsdp_fully_shard_options shard;
    /* A unit consists of this number of consecutive modules that `wrap` chooses. 0 or 1: each
     * module that `wrap` chooses is a unit of its own. */
    int blocks_per_unit;
    fsdp_named_sharding_options named; /* sharding options for named modules and parameters */
} fsdp_model_options;

typedef struct fsdp_model {
    char *dir;  /* the folder of the model or, if there is an adapter, of the base model; NULL if
                   the model has no folder */
    char *name; /* the name with which `dir` was found; NULL if the model has no folder */
    /* The configuration of `module`. Its tie_word_embeddings says whether the head is tied in the
     * loaded weights (Note [Tied heads] in registry.c). */
    fsdp_model_config config;
    fsdp_model_info info; /* made from `config` */
    fsdp_module *module;
    fsdp_named_sharding *named; /* what options->named selects in `module` */
    fsdp_group *group;          /* borrowed; NULL: a single rank */
    fsdp_load_report report;    /* empty if the weights were initialized at random */
    /* The configuration of the model's adapter; NULL: none. It is borrowed from the options, or
     * from adapter_file. */
    const fsdp_lora_config *lora;
    fsdp_lora_file *adapter_file; /* NULL: the adapter was not read from a folder */
    char *adapter_dir;            /* folder of adapter_file; NULL: none */
    size_t n_float8;              /* number of linear layers that are computed in float8 */
    int64_t n_label_names;
    /* [n_label_names] Names of classes. NULL for a class without a name. The array itself is NULL
     * if no class has a name. */
    char **label_names;
    /* true: label_names came from the options, so fsdp_model_save() writes them to config.json. */
    bool writes_label_names;
    /* A seq2seq model: the text that is put before each source text, from config.json
     * (text_prefix.h). "": no text. NULL: config.json does not say. */
    char *text_prefix;
} fsdp_model;

/* Open a model. Its root, and the modules that options->wrap chooses, become units over `group`
 * (NULL: this rank alone). Collective: if one rank fails, all fail. */
FSDP_MUST_CHECK fsdp_status fsdp_model_open(const fsdp_model_options *options, fsdp_group *group,
                                            fsdp_device *device, fsdp_model **model);
void fsdp_model_close(fsdp_model *model); /* accepts NULL */

/* Zero means default. */
typedef struct fsdp_model_save_options {
    fsdp_dtype dtype;        /* dtype of the weights in the files; default float32 */
    int64_t max_shard_bytes; /* see fsdp_save_options */
    /* Allow the folder to exist already. The old model in it is replaced, and its other files are
     * kept. */
    bool overwrite;
    /* The tokenizer to copy: a file or a folder. NULL: copy the tokenizer of the model's folder. */
    const char *tokenizer;
    /* A seq2seq model: the text that was put before each source text in training, for config.json.
     * NULL: keep the text that is in the config.json of the model's folder. */
    const char *text_prefix;
} fsdp_model_save_options;

/* Write the model to the folder `dir`, so that transformers can load it: config.json, weights,
 * generation_config.json and the tokenizer's files. The folder appears complete or not at all.
 * Collective: if one rank fails, all fail. `options` may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_model_save(const fsdp_model *model, const char *dir,
                                            const fsdp_model_save_options *options);

/* Check that fsdp_model_save() with `overwrite` may write into the folder `dir`. Return
 * FSDP_ERR_INVALID if the folder is a checkpoint. A program that saves only after hours of work
 * should call this at the start. */
FSDP_MUST_CHECK fsdp_status fsdp_model_check_folder(const char *dir);

/* If `on` is true, gather all units and keep them gathered. If `on` is false, free all units.
 * Keeping units gathered saves time in a sequence of forwards with the same weights. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_model_hold_unsharded(const fsdp_model *model, bool on);
