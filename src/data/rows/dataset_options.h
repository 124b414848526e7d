/* Checks the options of a dataset and fills in their defaults. */
#pragma once
#include <fsdp/data.h>

/* Check the options `given`, which may be NULL, and copy them to *full with defaults filled in.
 * Three options do not get their defaults here: max_length, max_source_length and
 * max_target_length. */
FSDP_MUST_CHECK fsdp_status fsdp_dataset_complete_options(const fsdp_dataset_options *given,
                                                          fsdp_dataset_options *full);

/* Check `cleaning` and `skip_long_summaries`, two options from WikiHow's scripts that are only for
 * pairs of texts. Return FSDP_ERR_INVALID if one of the two options is set and `pairs` is false.
 * `pairs` says whether the rows of the dataset are pairs of texts. */
FSDP_MUST_CHECK fsdp_status fsdp_dataset_check_has_pairs(const fsdp_dataset_options *options,
                                                         bool pairs);
/* Fill in the defaults of max_source_length and max_target_length. Datasets of JSON lines do not
 * get these defaults: their ids are truncated only if the caller gave a length. */
void fsdp_dataset_complete_lengths(fsdp_dataset_options *options);
