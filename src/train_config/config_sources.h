/* The sources of the training rows: --data with --task, and the sources that --mix-data adds. */
#pragma once
#include "src/train_config/config.h"

typedef struct fsdp_train_source {
    int task; /* fsdp_train_task */
    double weight;
    const char *path; /* borrowed */
} fsdp_train_source;

/* Parse a source of --mix-data, such as "span-corruption:0.7:corpus.txt". out->path points into
 * `text`. Return FSDP_ERR_INVALID if `text` does not have the form TASK:WEIGHT:PATH; the message
 * contains `text`. */
FSDP_MUST_CHECK fsdp_status fsdp_train_source_parse(const char *text, fsdp_train_source *out);

/* Return the number of sources: --data and those of --mix-data. */
size_t fsdp_train_sources_count(const fsdp_train_config *config);
/* Set *out to source `i`. Source 0 is --data; the sources of --mix-data follow. This cannot fail
 * after fsdp_train_sources_check() has succeeded. */
FSDP_MUST_CHECK fsdp_status fsdp_train_source_get(const fsdp_train_config *config, size_t i,
                                                  fsdp_train_source *out);
/* Return the options of --task span-corruption. */
fsdp_span_corruption fsdp_train_span_corruption(const fsdp_train_config *config);

/* Called by fsdp_train_config_check(). Check the sources, --data-weight, and the options of span
 * corruption. */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_check(const fsdp_train_config *config,
                                                     const fsdp_options *options);
/* Called when the model's task is known. Return FSDP_ERR_INVALID if a source of --mix-data is for
 * models of another task. */
FSDP_MUST_CHECK fsdp_status fsdp_train_sources_check_task(const fsdp_train_config *config,
                                                          fsdp_task task);

/* Return true if at least one source has a task other than span corruption. The rows of such a
 * source may be pairs. Also return true if a source cannot be parsed. */
bool fsdp_train_sources_have_pairs(const fsdp_train_config *config);
/* Return the number of tokens in the longest target that any source can have. Called for a SEQ2SEQ
 * model, after fsdp_train_sources_check(). */
int64_t fsdp_train_sources_target_length(const fsdp_train_config *config);
