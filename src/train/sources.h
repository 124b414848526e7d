/* Opens the data of a run: the sources of its training rows (config_sources.h), and the validation
 * rows. */
#pragma once
#include "src/train/trainer_internal.h"

/* If `training` is true, set *set to a dataset that contains the training rows of all sources, and
 * print the sources on rank 0. Otherwise, set *set to the dataset of --validation-data. The model
 * and the tokenizer must be open. */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_open(const fsdp_trainer *t, bool training,
                                                    fsdp_dataset **set);
/* Called when the training rows and, if the run has any, the validation rows are open. Some options
 * are only for texts. Return FSDP_ERR_INVALID if such an option was given, but neither the training
 * rows nor the validation rows use it. */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_check_texts(const fsdp_trainer *t);
/* Return true if --task-prefix is put before texts of the training rows, which must be open. */
bool fsdp_train_uses_prefix(const fsdp_trainer *t);
