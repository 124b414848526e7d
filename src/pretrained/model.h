/* A model as train, generate, verify and bench use it: found, built, sharded, filled with values,
 * and saved. */
#pragma once
#include <fsdp/pretrained.h>
#include <fsdp/fsdp.h>
#include <fsdp/models.h>

#include "src/fsdp/default_policy.h"
#include "src/fsdp/named_sharding.h"

/* Zero means default. One of name and config is given. */
typedef struct fsdp_model_options {
    const char *name;                /* folder or hub name */
    const fsdp_model_config *config; /* a shape without a folder; its weights are drawn */
    bool from_config;                /* draw the weights, also where the folder has some */
    uint64_t seed;                   /* of drawn weights, a fresh head's too */
    bool set_dropout;                /* `dropout` in place of the config's rates */
    double dropout;
    bool activation_checkpointing;                       /* of blocks, */
    fsdp_activation_checkpointing_options checkpointing; /* as this says */
    const fsdp_wrap_policy *wrap;                        /* NULL: fsdp_model_shard() */
    const char *const *frozen;      /* [n_frozen] parameters whose names begin so do not train; */
    size_t n_frozen;                /* an error if none does */
    int64_t num_labels;             /* make it a classifier of so many classes; 0: config.json's */
    const char *const *label_names; /* [num_labels] of the classes; NULL: config.json's */
    bool ignore_mismatched_sizes;   /* draw weights that have another shape in the files */
    fsdp_fully_shard_options shard;
    int blocks_per_unit;               /* so many neighbours that `wrap` chooses are one unit */
    fsdp_named_sharding_options named; /* what is said of parts by name */
} fsdp_model_options;

typedef struct fsdp_model {
    char *dir;                /* the folder; NULL if there is none */
    fsdp_model_config config; /* as built: tie_word_embeddings is what the weights say */
    fsdp_model_info info;     /* of config */
    fsdp_module *module;
    fsdp_named_sharding *named; /* of module */
    fsdp_group *group;          /* borrowed; NULL: alone */
    fsdp_load_report report;    /* empty if the weights were drawn */
    int64_t n_label_names;
    char **label_names;      /* [n_label_names] NULL where a class has none; NULL: no names */
    bool writes_label_names; /* they are not config.json's */
} fsdp_model;

/* What options->wrap chooses and the root become units over `group` (NULL: of this rank alone).
 * Collective: if one rank fails, all do. */
FSDP_MUST_CHECK fsdp_status fsdp_model_open(const fsdp_model_options *options, fsdp_group *group,
                                            fsdp_device *device, fsdp_model **model);
void fsdp_model_close(fsdp_model *model); /* accepts NULL */

/* Zero means default. */
typedef struct fsdp_model_save_options {
    fsdp_dtype dtype;        /* of the weights; default float32 */
    int64_t max_shard_bytes; /* see fsdp_save_options */
    bool overwrite;          /* replace files of a folder that exists; others in it are kept */
    const char *tokenizer;   /* a tokenizer's file or folder; NULL: the model's folder */
} fsdp_model_save_options;

/* Write `dir` so that transformers loads it: config.json, weights, generation_config.json,
 * tokenizer files. It appears whole or not at all. Collective; a failure on one rank is one on all.
 * options NULL: all defaults. */
FSDP_MUST_CHECK fsdp_status fsdp_model_save(const fsdp_model *model, const char *dir,
                                            const fsdp_model_save_options *options);

/* Could fsdp_model_save() with `overwrite` write into this folder? FSDP_ERR_INVALID if it is a
 * checkpoint that is no model's folder. For programs that save after hours: they ask before. */
FSDP_MUST_CHECK fsdp_status fsdp_model_check_place(const char *dir);

/* Gather all units and keep them (on = true), or let them go: for many forwards in a row without a
 * change of weights. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_model_hold_unsharded(const fsdp_model *model, bool on);
