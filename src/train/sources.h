/* The training data of a run: --data with --task, and the sources that --mix-data adds. */
#pragma once
#include "src/train/trainer_internal.h"

typedef struct fsdp_train_source {
    int task; /* fsdp_train_task */
    double weight;
    const char *path; /* borrowed */
} fsdp_train_source;

/* Parse a source of --mix-data: "span-corruption:0.7:corpus.txt". The path in *out points into
 * `text`. FSDP_ERR_INVALID, naming `text`, if it is not of this form. */
FSDP_MUST_CHECK fsdp_status fsdp_train_source_parse(const char *text, fsdp_train_source *out);

/* Check the sources and their options; called by fsdp_train_config_check(). */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_check(const fsdp_train_config *config,
                                                     const fsdp_options *options);
/* Called when the model's task is known: check that all sources are for this task. */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_check_task(const fsdp_train_config *config,
                                                          fsdp_task task);

/* Does any source have a task other than span corruption? Called after the checks; an error counts
 * as yes. */
bool fsdp_train_sources_have_pairs(const fsdp_train_config *config);
/* Return the number of tokens in the longest target that any source of a SEQ2SEQ model can have.
 * Called after the checks. */
int64_t fsdp_train_sources_target_length(const fsdp_train_config *config);

/* Open the data; the model, its task and its tokenizer must be open. If `training`, *set is one
 * dataset of all sources, and rank 0 prints the sources. Else *set is --validation-data. */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_open(const fsdp_trainer *t, bool training,
                                                    fsdp_dataset **set);
/* Called when the training rows are open, and the validation rows if there are any.
 * FSDP_ERR_INVALID if an option for texts was given and neither of these sets has texts that use
 * it. */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_check_texts(const fsdp_trainer *t);
