/* Writes the results of `fsdp classify`: JSON lines or CSV. */
#pragma once
#include <stdio.h>

#include "src/base/io.h"
#include "src/classify/class_items.h"

typedef struct fsdp_class_output fsdp_class_output;

/* Prepare the output of results for `items`. `labels` [n_labels] are the names of the classes.
 * Results are printed to `out` if config->output is NULL. All pointers are borrowed until the
 * output is closed. Returns FSDP_ERR_INVALID if the rows already have both the usual keys of the
 * results and the keys that would be used instead. */
FSDP_MUST_CHECK fsdp_status fsdp_class_output_open(const fsdp_classify_config *config,
                                                   const fsdp_class_items *items,
                                                   char *const *labels, size_t n_labels, FILE *out,
                                                   fsdp_class_output **output);
/* Write the result for the next item. `scores` [n_labels] are the scores of its classes. */
FSDP_MUST_CHECK fsdp_status fsdp_class_output_write(fsdp_class_output *output,
                                                    const double *scores);
/* If rows already have the usual keys of the results, return the keys that are used instead, as
 * text for a message. Otherwise return NULL. */
const char *fsdp_class_output_renamed(const fsdp_class_output *output);
/* Close the output. If `status` is FSDP_OK, the output file gets its final name. Otherwise, the
 * part that was written is removed. Returns `status`, or the error of writing. Accepts NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_class_output_close(fsdp_class_output *output, fsdp_status status);
