/* Writes the results of `fsdp classify`: JSON lines or CSV. */
#pragma once
#include <stdio.h>

#include "src/base/io.h"
#include "src/classify/class_items.h"

typedef struct fsdp_class_output fsdp_class_output;

/* Prepare the output of results for `items`. `labels` [n_labels] are the names of the classes.
 * `out` is used if config->output is NULL. Both are borrowed, as are `items` and `config`. Returns
 * FSDP_ERR_INVALID if a row has the keys that the results need. */
FSDP_MUST_CHECK fsdp_status fsdp_class_output_open(const fsdp_classify_config *config,
                                                   const fsdp_class_items *items,
                                                   char *const *labels, size_t n_labels, FILE *out,
                                                   fsdp_class_output **output);
/* Write the scores [n_labels] of the next item. */
FSDP_MUST_CHECK fsdp_status fsdp_class_output_write(fsdp_class_output *output,
                                                    const double *scores);
/* The keys of the results, if they are not the usual ones because rows have those; else NULL. */
const char *fsdp_class_output_renamed(const fsdp_class_output *output);
/* Let the file appear if `status` is FSDP_OK, else remove what was written. Returns `status`, or an
 * error of writing. Accepts NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_class_output_close(fsdp_class_output *output, fsdp_status status);
