/* Compares the measures of regression and of several classes a row with scipy and sklearn. */
#include <math.h>
#include <string.h>

#include "src/train/measures.h"
#include "tests/test.h"

/* Add logits [rows, n] with their targets as one batch. */
static void add_rows(fsdp_test *t, fsdp_measurer *m, fsdp_device *device, const float *logits,
                     const float *targets, const int32_t *labels, int32_t rows, int32_t n,
                     double *loss)
{
    const fsdp_batch batch = {.task = FSDP_TASK_CLASSIFICATION,
                              .rows = rows,
                              .labels = labels,
                              .targets = targets,
                              .num_targets = n};
    const int64_t shape[] = {rows, n};
    fsdp_tensor *tensor;
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, shape, logits, FSDP_TAG_ACTIVATION,
                                    &tensor));
    ASSERT_OK(fsdp_measurer_add(m, tensor, &batch, 0.0, loss));
    fsdp_tensor_release(tensor);
}

/* Rank r has rows r, r + 3, ... The expected values are those of numpy's mean, scipy's pearsonr()
 * and spearmanr(); two predictions are equal. */
TEST_RANKS(correlations_are_those_of_scipy_whatever_rank_has_a_row, 3)
{
    static const float predicted[] = {1.5f, 2, 2, -1, 4, 0.25f, 77};
    static const float targets[] = {1, 3, 2.5f, 0, 5, 0, 0};
    static const int32_t labels[] = {0, 0, 0, 0, 0, 0, FSDP_IGNORE_INDEX};
    fsdp_measurer m;
    fsdp_measures measures;
    fsdp_device *device;
    double loss, sum = 0;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_measurer_init(&m, FSDP_PROBLEM_REGRESSION, 1));
    for (int i = t->rank; i < 7; i += 3) {
        add_rows(t, &m, device, &predicted[i], &targets[i], &labels[i], 1, 1, &loss);
        CHECK_HERE();
        sum += loss;
    }
    ASSERT_OK(fsdp_all_reduce(t->group, &sum, 1, FSDP_DTYPE_F64, FSDP_REDUCE_SUM));
    ASSERT_NEAR(sum, 6 * 0.59375, 1e-12);
    ASSERT_OK(fsdp_measurer_finish(&m, t->group, &measures));
    ASSERT_NEAR(measures.mse, 0.59375, 1e-12);
    ASSERT_NEAR(measures.pearson, 0.9408021167647439, 1e-12);
    ASSERT_NEAR(measures.spearmanr, 0.9705882352941178, 1e-12);
    fsdp_measurer_fini(&m);
    fsdp_device_destroy(device);
}

TEST(without_variance_there_is_no_correlation)
{
    static const float predicted[] = {1, 1}, targets[] = {0, 2};
    static const int32_t labels[] = {0, 0};
    fsdp_measurer m;
    fsdp_measures measures;
    fsdp_device *device;
    fsdp_group *alone;
    double loss;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_init_process_group(NULL, &alone));
    ASSERT_OK(fsdp_measurer_init(&m, FSDP_PROBLEM_REGRESSION, 1));
    add_rows(t, &m, device, predicted, targets, labels, 2, 1, &loss);
    CHECK_HERE();
    ASSERT_OK(fsdp_measurer_finish(&m, alone, &measures));
    ASSERT_F32(measures.mse, 1);
    ASSERT(isnan(measures.pearson) && isnan(measures.spearmanr));
    fsdp_measurer_fini(&m);
    fsdp_destroy_process_group(alone);
    fsdp_device_destroy(device);
}

/* The mean of 24 labels of 0.3 is not 0.3, because it is rounded. */
TEST(equal_labels_have_no_variance_whatever_their_mean_is)
{
    enum {
        ROWS = 24
    };
    float predicted[ROWS], targets[ROWS];
    int32_t labels[ROWS] = {0};
    fsdp_measurer m;
    fsdp_measures measures;
    fsdp_device *device;
    fsdp_group *alone;
    double loss;
    for (int constant = 0; constant < 2; constant++) { /* the labels alone, then both */
        for (int i = 0; i < ROWS; i++) {
            predicted[i] = constant ? 0.7f : (float)i;
            targets[i] = 0.3f;
        }
        ASSERT_OK(fsdp_device_create(NULL, &device));
        ASSERT_OK(fsdp_init_process_group(NULL, &alone));
        ASSERT_OK(fsdp_measurer_init(&m, FSDP_PROBLEM_REGRESSION, 1));
        add_rows(t, &m, device, predicted, targets, labels, ROWS, 1, &loss);
        CHECK_HERE();
        ASSERT_OK(fsdp_measurer_finish(&m, alone, &measures));
        ASSERT(isnan(measures.pearson) && isnan(measures.spearmanr));
        fsdp_measurer_fini(&m);
        fsdp_destroy_process_group(alone);
        fsdp_device_destroy(device);
    }
}

/* sklearn: accuracy_score 1/3, f1_score(average="micro") 2*3/(4+4), and "macro" with
 * zero_division=0: classes 2*1/(2+1), 2*2/(2+2), 0/1. The loss is that of
 * binary_cross_entropy_with_logits(), the mean over classes. */
TEST_RANKS(rows_with_several_classes_are_measured_as_by_sklearn, 2)
{
    static const float logits[] = {1, 2, -1, /**/ -1, 3, -2, /**/ 0.5f, -3, -1};
    static const float targets[] = {1, 1, 0, /**/ 0, 1, 1, /**/ 0, 0, 0};
    static const int32_t labels[] = {0, 0, 0};
    fsdp_measurer m;
    fsdp_measures measures;
    fsdp_device *device;
    double loss, expected = 0, sum = 0;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_measurer_init(&m, FSDP_PROBLEM_MULTI_LABEL, 3));
    if (t->rank == 0)
        add_rows(t, &m, device, logits, targets, labels, 2, 3, &loss);
    else
        add_rows(t, &m, device, logits + 6, targets + 6, labels, 1, 3, &loss);
    CHECK_HERE();
    sum = loss;
    ASSERT_OK(fsdp_all_reduce(t->group, &sum, 1, FSDP_DTYPE_F64, FSDP_REDUCE_SUM));
    for (int i = 0; i < 9; i++) {
        const double p = 1 / (1 + exp(-(double)logits[i]));
        expected -= log(targets[i] > 0 ? p : 1 - p) / 3;
    }
    ASSERT_NEAR(sum, expected, 1e-12);
    ASSERT_OK(fsdp_measurer_finish(&m, t->group, &measures));
    ASSERT_NEAR(measures.accuracy, 1.0 / 3.0, 1e-12);
    ASSERT_NEAR(measures.f1, 6.0 / 8.0, 1e-12);
    ASSERT_NEAR(measures.f1_macro, (2.0 / 3.0 + 1.0 + 0.0) / 3.0, 1e-12);
    fsdp_measurer_fini(&m);
    fsdp_device_destroy(device);
}
