/* Accuracy and F1 of a classifier, from counts that are added over batches and ranks.
 *
 * F1 is sklearn's f1_score with zero_division=0. With two classes it is the F1 of class 1; with
 * more, the mean over the classes that are the label or the prediction of some row
 * (average="macro"). */
#pragma once
#include <fsdp/batch.h>
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

typedef struct fsdp_class_counts {
    int64_t classes;
    int64_t *right;     /* [classes]: rows of the class that were predicted as it; owned */
    int64_t *predicted; /* [classes]: rows predicted as the class; in the block of `right` */
    int64_t *labels;    /* [classes]: rows labelled with the class; in the block of `right` */
} fsdp_class_counts;

FSDP_MUST_CHECK fsdp_status fsdp_class_counts_init(fsdp_class_counts *counts, int64_t classes);
void fsdp_class_counts_fini(fsdp_class_counts *counts); /* all zero afterwards */

/* Add one row with a label. */
void fsdp_class_counts_add(fsdp_class_counts *counts, int32_t label, int64_t predicted);

/* Add the rows of `batch` that have a label. The prediction is the largest logit, the first among
 * equals. *loss becomes the sum of -log softmax(logits)[label], in double.
 * @param logits [batch->rows, classes] */
FSDP_MUST_CHECK fsdp_status fsdp_class_counts_add_batch(fsdp_class_counts *counts,
                                                        const fsdp_tensor *logits,
                                                        const fsdp_batch *batch, double *loss);
/* Add the counts of all ranks. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_class_counts_reduce(fsdp_class_counts *counts, fsdp_group *group);

/* Both are 0 without rows. */
double fsdp_class_accuracy(const fsdp_class_counts *counts);
double fsdp_class_f1(const fsdp_class_counts *counts);
