/* Accuracy and F1 of a classifier, from counts that are added over batches and ranks.
 *
 * F1 is sklearn's f1_score with zero_division=0. With two classes, it is the F1 of class 1. With
 * more classes, it is the mean of the F1 of each class (average="macro"). A class that is neither
 * the label nor the prediction of any row is left out of the mean. */
#pragma once
#include <fsdp/batch.h>
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

typedef struct fsdp_class_counts {
    int64_t classes;
    /* [classes]: for each class, the number of rows whose label and prediction are this class;
     * owned */
    int64_t *right;
    /* [classes]: for each class, the number of rows whose prediction is this class; part of the
     * allocation of `right` */
    int64_t *predicted;
    /* [classes]: for each class, the number of rows whose label is this class; part of the
     * allocation of `right` */
    int64_t *labels;
} fsdp_class_counts;

FSDP_MUST_CHECK fsdp_status fsdp_class_counts_init(fsdp_class_counts *counts, int64_t classes);
void fsdp_class_counts_fini(fsdp_class_counts *counts); /* free the arrays and set *counts to {0} */

/* Add one row, given its label and its predicted class. */
void fsdp_class_counts_add(fsdp_class_counts *counts, int32_t label, int64_t predicted);

/* Add the rows of `batch` that have a label. The prediction is the class with the largest logit;
 * among equal logits, the first class. *loss is set to the sum of the losses of these rows,
 * computed in double. The loss of a row is -log softmax(logits)[label]; for `smoothing`, see
 * fsdp_scope_options.label_smoothing.
 * @param logits [batch->rows, classes] */
FSDP_MUST_CHECK fsdp_status fsdp_class_counts_add_batch(fsdp_class_counts *counts,
                                                        const fsdp_tensor *logits,
                                                        const fsdp_batch *batch, double smoothing,
                                                        double *loss);
/* Replace the counts by their sums over all ranks. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_class_counts_reduce(fsdp_class_counts *counts, fsdp_group *group);

/* Return the accuracy; 0 if no rows were added. */
double fsdp_class_accuracy(const fsdp_class_counts *counts);
/* Return the F1 (see the top of this file); 0 if no rows were added. */
double fsdp_class_f1(const fsdp_class_counts *counts);
