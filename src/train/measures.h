/* The measures of a classifier's validation. Classes: accuracy and F1 (classification.h).
 * Regression: mean squared error, Pearson's and Spearman's correlation, as for GLUE's STS-B. Rows
 * with several classes: F1 and accuracy, as transformers' run_classification computes them. */
#pragma once
#include <stddef.h>

#include <fsdp/batch.h>
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

#include "src/train/classification.h"

/* Measures that the problem type does not have are 0. */
typedef struct fsdp_measures {
    /* Share of the rows whose prediction is right. MULTI_LABEL: a row counts only if the prediction
     * of each class is right, as in sklearn's accuracy_score. */
    double accuracy;
    double f1; /* classification.h; MULTI_LABEL: F1 over all labels together (average="micro") */
    /* MULTI_LABEL: the mean of the F1 of each class; a class without labels counts as 0 */
    double f1_macro;
    double mse; /* REGRESSION: the mean squared error */
    /* REGRESSION: correlations, as in scipy; the mean over the columns if there are several labels.
     * NAN if all predictions or all labels are equal. */
    double pearson, spearmanr;
} fsdp_measures;

typedef struct fsdp_measure_field {
    const char *key;     /* name of the measure in JSON */
    const char *heading; /* name of the measure in printed texts and tables */
    size_t offset;       /* offset of the value in fsdp_measures */
} fsdp_measure_field;

enum {
    FSDP_MEASURE_FIELDS_MAX = 3
};

/* Return the measures of a problem type; *n is set to their number. */
const fsdp_measure_field *fsdp_measure_fields(fsdp_problem_type problem, size_t *n);
double fsdp_measure_get(const fsdp_measures *measures, const fsdp_measure_field *field);

/* A prediction and its label, for regression. */
typedef struct fsdp_sample {
    double column; /* index of this label among the labels of its row */
    double predicted, target;
} fsdp_sample;

/* Collects counts or samples over the batches of a validation. At the end of the validation, the
 * measures are computed from them. */
typedef struct fsdp_measurer {
    fsdp_problem_type problem;
    fsdp_class_counts counts; /* not used for REGRESSION */
    int64_t rows[2];          /* MULTI_LABEL: rows[0] is the number of all rows; rows[1] is the
                                 number of rows in which every class is predicted right */
    fsdp_sample *samples;     /* REGRESSION: [len]; owned */
    size_t len, cap;
} fsdp_measurer;

FSDP_MUST_CHECK fsdp_status fsdp_measurer_init(fsdp_measurer *m, fsdp_problem_type problem,
                                               int64_t num_labels);
void fsdp_measurer_fini(fsdp_measurer *m);
/* Add the rows of `batch` that have a label. *loss is set to the sum of their losses, computed in
 * double. smoothing: see fsdp_class_counts_add_batch().
 * @param logits [batch->rows, num_labels] */
FSDP_MUST_CHECK fsdp_status fsdp_measurer_add(fsdp_measurer *m, const fsdp_tensor *logits,
                                              const fsdp_batch *batch, double smoothing,
                                              double *loss);
/* Compute the measures of the rows of all ranks. The measures do not depend on how the rows are
 * split over ranks. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_measurer_finish(fsdp_measurer *m, fsdp_group *group,
                                                 fsdp_measures *measures);
