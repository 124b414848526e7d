/* A model for train, generate, verify and bench: found by name, built, sharded, filled with values,
 * and saved. */
#pragma once
#include <fsdp/pretrained.h>
#include <fsdp/fsdp.h>
#include <fsdp/models.h>

#include "src/fsdp/default_policy.h"
#include "src/fsdp/named_sharding.h"

/* A field that is zero has its default. Exactly one of `name` and `config` is set. */
typedef struct fsdp_model_options {
    const char *name;                /* folder or hub name */
    const fsdp_model_config *config; /* a configuration without a folder; its weights are drawn */
    bool from_config;                /* draw the weights even if the folder has weights */
    uint64_t seed;                   /* seed of drawn weights, including those of a new head */
    bool set_dropout;                /* use `dropout` instead of the config's rates */
    double dropout;
    bool activation_checkpointing; /* checkpoint the blocks, with the options `checkpointing` */
    /* used if activation_checkpointing is set */
    fsdp_activation_checkpointing_options checkpointing;
    const fsdp_wrap_policy *wrap; /* policy that chooses units; NULL: as in fsdp_model_shard() */
    /* [n_frozen] Parameters whose names begin with one of these prefixes are not trained. A prefix
     * that matches no name is an error. */
    const char *const *frozen;
    size_t n_frozen;
    int64_t num_labels; /* make a classifier with this many classes; 0: from config.json */
    const char *const *label_names; /* [num_labels] names of classes; NULL: from config.json */
    bool ignore_mismatched_sizes;   /* draw weights that have another shape in the files */
    fsdp_fully_shard_options shard;
    int blocks_per_unit;               /* how many consecutive modules of `wrap` form one unit */
    fsdp_named_sharding_options named; /* options for modules and parameters given by name */
} fsdp_model_options;

typedef struct fsdp_model {
    char *dir;                /* NULL if the model has no folder */
    fsdp_model_config config; /* that of `module`; its tie_word_embeddings depends on the weights */
    fsdp_model_info info;     /* made from `config` */
    fsdp_module *module;
    fsdp_named_sharding *named; /* sharding options given by name, for `module` */
    fsdp_group *group;          /* borrowed; NULL: a single rank */
    fsdp_load_report report;    /* empty if the weights were drawn */
    int64_t n_label_names;
    /* [n_label_names] names of classes; an item is NULL if its class has no name. NULL if no class
     * has a name. */
    char **label_names;
    bool writes_label_names; /* save the names: they came from the options, not from config.json */
} fsdp_model;

/* Open a model. The root and the modules that options->wrap chooses become units over `group`
 * (NULL: of this rank only). Collective: if one rank fails, all fail. */
FSDP_MUST_CHECK fsdp_status fsdp_model_open(const fsdp_model_options *options, fsdp_group *group,
                                            fsdp_device *device, fsdp_model **model);
void fsdp_model_close(fsdp_model *model); /* accepts NULL */

/* Zero means default. */
typedef struct fsdp_model_save_options {
    fsdp_dtype dtype;        /* dtype of the weights in the files; default float32 */
    int64_t max_shard_bytes; /* see fsdp_save_options */
    bool overwrite;          /* replace files in an existing folder; other files in it are kept */
    const char *tokenizer;   /* file or folder of a tokenizer; NULL: the model's folder */
} fsdp_model_save_options;

/* Write `dir` so that transformers loads it: config.json, weights, generation_config.json,
 * tokenizer files. The folder appears complete or not at all. Collective; if one rank fails, all
 * fail. `options` may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_model_save(const fsdp_model *model, const char *dir,
                                            const fsdp_model_save_options *options);

/* Check that fsdp_model_save() with `overwrite` may write into this folder. FSDP_ERR_INVALID if the
 * folder is a checkpoint. Programs that save only after hours of work call this first. */
FSDP_MUST_CHECK fsdp_status fsdp_model_check_folder(const char *dir);

/* Gather all units and keep them gathered (on = true), or free them again. This saves time if many
 * forwards follow each other without a change of weights. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_model_hold_unsharded(const fsdp_model *model, bool on);
