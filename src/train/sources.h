/* The training data of a run: --data with --task, and the sources that --mix-data adds. */
#pragma once
#include "src/train/trainer_internal.h"

typedef struct fsdp_train_source {
    int task; /* fsdp_train_task */
    double weight;
    const char *path; /* borrowed */
} fsdp_train_source;

/* Parses "span-corruption:0.7:corpus.txt". `path` points into `text`. FSDP_ERR_INVALID naming the
 * text. */
FSDP_MUST_CHECK fsdp_status fsdp_train_source_parse(const char *text, fsdp_train_source *out);

/* For fsdp_train_config_check(). */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_check(const fsdp_train_config *config,
                                                     const fsdp_options *options);
/* Once the model's task is known: check that all sources suit it. */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_check_task(const fsdp_train_config *config,
                                                          fsdp_task task);

/* Is any source other than span corruption? Called after the checks; an error counts as yes. */
bool fsdp_train_sources_have_pairs(const fsdp_train_config *config);
/* Tokens of the longest target of any source of a SEQ2SEQ model. Called after the checks. */
int64_t fsdp_train_sources_target_length(const fsdp_train_config *config);

/* Opens the data; the model, its task and tokenizer must be open. Training: all sources as one
 * dataset, printed on rank 0. Otherwise --validation-data. */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_open(const fsdp_trainer *t, bool training,
                                                    fsdp_dataset **set);
/* Called when the training rows, and any validation rows, are open. FSDP_ERR_INVALID if an option
 * for texts was given and no source has texts. */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_check_texts(const fsdp_trainer *t);
