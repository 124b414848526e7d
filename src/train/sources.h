/* What a run learns from: --data with --task, and what --mix-data adds to it. */
#pragma once
#include "src/train/trainer_internal.h"

typedef struct fsdp_train_source {
    int task; /* fsdp_train_task */
    double weight;
    const char *path; /* borrowed */
} fsdp_train_source;

/* "span-corruption:0.7:corpus.txt"; path is the end of `text`. FSDP_ERR_INVALID naming the text. */
FSDP_MUST_CHECK fsdp_status fsdp_train_source_parse(const char *text, fsdp_train_source *out);

/* For fsdp_train_config_check(). */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_check(const fsdp_train_config *config,
                                                     const fsdp_options *options);
/* Once the model's task is known: all sources are for it. */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_check_task(const fsdp_train_config *config,
                                                          fsdp_task task);

/* Is any source other than span corruption? The checks have passed, or errors count as yes. */
bool fsdp_train_sources_have_pairs(const fsdp_train_config *config);
/* Tokens of the longest target that any source of a SEQ2SEQ model has. The checks have passed. */
int64_t fsdp_train_sources_target_length(const fsdp_train_config *config);

/* The model, its task and tokenizer are open. Training: all sources as one dataset, told on rank 0;
 * else --validation-data. */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_open(const fsdp_trainer *t, bool training,
                                                    fsdp_dataset **set);
/* Once the training rows, and those for validation if there are any, are open: FSDP_ERR_INVALID if
 * an option of texts was given and none of them is one. */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_check_texts(const fsdp_trainer *t);
