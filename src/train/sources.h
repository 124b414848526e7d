/* Opens the data of a run: the sources of its training rows (config_sources.h), and the validation
 * rows. */
#pragma once
#include "src/train/trainer_internal.h"

/* Open the data; the model, its task and its tokenizer must be open. If `training`, *set is one
 * dataset of all sources, and rank 0 prints the sources. Else *set is --validation-data. */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_open(const fsdp_trainer *t, bool training,
                                                    fsdp_dataset **set);
/* Called when the training rows are open, and the validation rows if there are any.
 * FSDP_ERR_INVALID if an option for texts was given and neither of these sets has texts that use
 * it. */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_check_texts(const fsdp_trainer *t);
