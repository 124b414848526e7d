/* A model as train, generate, verify and bench use it: found, built, sharded, filled with values,
 * and saved. */
#pragma once
#include <fsdp/ckpt.h>
#include <fsdp/fsdp.h>
#include <fsdp/models.h>

/* Zero means default. One of name and config is given. */
typedef struct fsdp_model_options {
    const char *name;             /* folder or hub name */
    const fsdp_t5_config *config; /* a shape without a folder; its weights are drawn */
    bool from_config;             /* draw the weights, also where the folder has some */
    uint64_t seed;                /* of drawn weights */
    bool set_dropout;             /* `dropout` in place of the config's dropout_rate */
    double dropout;
    fsdp_fully_shard_options shard;
} fsdp_model_options;

typedef struct fsdp_model {
    char *dir;             /* the folder; NULL if there is none */
    fsdp_t5_config config; /* as built: tie_word_embeddings is what the weights say */
    fsdp_module *module;
    fsdp_group *group;       /* borrowed; NULL: alone */
    fsdp_load_report report; /* empty if the weights were drawn */
} fsdp_model;

/* Each T5Block and the root become units over `group` (NULL: of this rank alone). Collective: if
 * one rank fails, all do. */
FSDP_MUST_CHECK fsdp_status fsdp_model_open(const fsdp_model_options *options, fsdp_group *group,
                                            fsdp_device *device, fsdp_model **model);
void fsdp_model_close(fsdp_model *model); /* accepts NULL */

/* Zero means default. */
typedef struct fsdp_model_save_options {
    fsdp_dtype dtype;        /* of the weights; default float32 */
    int64_t max_shard_bytes; /* see fsdp_save_options */
    bool overwrite;          /* replace files of a folder that exists; others in it are kept */
    const char *tokenizer;   /* spiece.model or a folder; NULL: the model's folder */
} fsdp_model_save_options;

/* Write `dir` so that transformers loads it: config.json, weights, generation_config.json,
 * tokenizer files. It appears whole or not at all. Collective; a failure on one rank is one on all.
 * options NULL: all defaults. */
FSDP_MUST_CHECK fsdp_status fsdp_model_save(const fsdp_model *model, const char *dir,
                                            const fsdp_model_save_options *options);

/* The units of a T5, for who shards by hand: blocks, then the root. */
FSDP_MUST_CHECK fsdp_status fsdp_model_shard(fsdp_module *module, fsdp_group *group,
                                             fsdp_device *device,
                                             const fsdp_fully_shard_options *options);
/* Gather all units and keep them (on = true), or let them go: for many forwards in a row without a
 * change of weights. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_model_hold_unsharded(const fsdp_model *model, bool on);
