/* Histograms of the weights and gradients of a sharded model, one for each unit. Each rank counts
 * the values in its parts of the parameters, and the counts of all ranks are added. A value that
 * several ranks have is counted once, so the histograms are identical on any number of ranks. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/nn.h>

#include "src/report/histogram.h"

typedef struct fsdp_histograms fsdp_histograms;

typedef enum fsdp_histograms_of {
    FSDP_HISTOGRAMS_OF_WEIGHTS,
    FSDP_HISTOGRAMS_OF_GRADIENTS
} fsdp_histograms_of;

/* Create empty histograms for the units of `module`. `list` has the parameters of `module`. The
 * arguments are borrowed. Not collective. */
FSDP_MUST_CHECK fsdp_status fsdp_histograms_create(fsdp_module *module,
                                                   const fsdp_parameter_list *list,
                                                   fsdp_group *group, fsdp_histograms **out);
void fsdp_histograms_destroy(fsdp_histograms *histograms); /* accepts NULL */
/* Fill the histograms with the current weights or the current gradients. This function needs host
 * memory for a float32 copy of the largest part of a parameter on this rank. Collective; if one
 * rank fails, all ranks return an error. */
FSDP_MUST_CHECK fsdp_status fsdp_histograms_update(fsdp_histograms *histograms,
                                                   fsdp_histograms_of what);
size_t fsdp_histograms_n_units(const fsdp_histograms *histograms);
/* Return the name of unit i: the path of the unit's first module, or "root". */
const char *fsdp_histograms_unit(const fsdp_histograms *histograms, size_t i);
/* Return the histogram of unit i. */
const fsdp_histogram *fsdp_histograms_get(const fsdp_histograms *histograms, size_t i);
