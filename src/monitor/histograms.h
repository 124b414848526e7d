/* Histograms of the weights and gradients of a sharded model, by unit. Each rank counts what it
 * has, and the counts are added. A value that several ranks have is counted once, so the histograms
 * have the same bits on any number of ranks. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/nn.h>

#include "src/report/histogram.h"

typedef struct fsdp_histograms fsdp_histograms;

typedef enum fsdp_histograms_of {
    FSDP_HISTOGRAMS_OF_WEIGHTS,
    FSDP_HISTOGRAMS_OF_GRADIENTS
} fsdp_histograms_of;

/* Make empty histograms for the units of `module`, whose parameters are `list`. The arguments are
 * borrowed. Not collective. */
FSDP_MUST_CHECK fsdp_status fsdp_histograms_create(fsdp_module *module,
                                                   const fsdp_parameter_list *list,
                                                   fsdp_group *group, fsdp_histograms **out);
void fsdp_histograms_destroy(fsdp_histograms *histograms); /* accepts NULL */
/* Count the weights, or the gradients that there are now. Needs host memory for the largest
 * parameter of this rank, as float32. Collective; if one rank fails, all fail. */
FSDP_MUST_CHECK fsdp_status fsdp_histograms_update(fsdp_histograms *histograms,
                                                   fsdp_histograms_of what);
size_t fsdp_histograms_n_units(const fsdp_histograms *histograms);
/* The name of unit i: the path of its first module, or "root". */
const char *fsdp_histograms_unit(const fsdp_histograms *histograms, size_t i);
/* The histogram of unit i. */
const fsdp_histogram *fsdp_histograms_get(const fsdp_histograms *histograms, size_t i);
