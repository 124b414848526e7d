/* Compares accuracy and F1 with tables worked out by hand from sklearn's definitions. */
#include <stdlib.h>

#include "src/train/classification.h"
#include "tests/test.h"

/* Add `table`, [classes, classes]: how many rows of class i were predicted as j. */
static void add_table(fsdp_class_counts *counts, const int *table)
{
    for (int i = 0; i < counts->classes; i++)
        for (int j = 0; j < counts->classes; j++)
            for (int k = 0; k < table[i * counts->classes + j]; k++)
                fsdp_class_counts_add(counts, i, j);
}

/* For class 1: TP 3, FP 2, FN 1; F1 6 / (6 + 2 + 1). */
TEST(f1_of_two_classes_is_that_of_class_1)
{
    static const int table[] = {4, 2, 1, 3};
    fsdp_class_counts counts;
    ASSERT_OK(fsdp_class_counts_init(&counts, 2));
    ASSERT_F32(fsdp_class_accuracy(&counts), 0);
    ASSERT_F32(fsdp_class_f1(&counts), 0);
    add_table(&counts, table);
    ASSERT_F32(fsdp_class_accuracy(&counts), 0.7);
    ASSERT_F32(fsdp_class_f1(&counts), 6.0 / 9.0);
    fsdp_class_counts_fini(&counts);
}

/* No row has class 1 as label or prediction: division by zero counts as 0. */
TEST(f1_without_class_1_is_0)
{
    static const int table[] = {4, 0, 0, 0};
    fsdp_class_counts counts;
    ASSERT_OK(fsdp_class_counts_init(&counts, 2));
    add_table(&counts, table);
    ASSERT_F32(fsdp_class_accuracy(&counts), 1);
    ASSERT_F32(fsdp_class_f1(&counts), 0);
    fsdp_class_counts_fini(&counts);
}

/* By class: 2*2/(4+3), 2*1/(2+3), and 0 for the class that was predicted once but never right.
 * Class 3 is in no row and does not count for the mean. */
TEST(f1_of_more_classes_is_the_mean_over_those_that_occur)
{
    static const int table[] = {2, 1, 0, 0, /**/ 1, 1, 1, 0, /**/ 1, 0, 0, 0, /**/ 0, 0, 0, 0};
    fsdp_class_counts counts;
    ASSERT_OK(fsdp_class_counts_init(&counts, 4));
    add_table(&counts, table);
    ASSERT_F32(fsdp_class_accuracy(&counts), 3.0 / 7.0);
    ASSERT_NEAR(fsdp_class_f1(&counts), (4.0 / 7.0 + 2.0 / 5.0 + 0.0) / 3.0, 1e-15);
    fsdp_class_counts_fini(&counts);
}

/* Rank r adds r + 1 correct rows of class 0 and one wrong row of class 1. */
TEST_RANKS(counts_of_ranks_are_added, 3)
{
    fsdp_class_counts counts;
    ASSERT_OK(fsdp_class_counts_init(&counts, 3));
    for (int i = 0; i <= t->rank; i++)
        fsdp_class_counts_add(&counts, 0, 0);
    fsdp_class_counts_add(&counts, 1, 2);
    ASSERT_OK(fsdp_class_counts_reduce(&counts, t->group));
    ASSERT_INT(counts.right[0], 6);
    ASSERT_INT(counts.predicted[0], 6);
    ASSERT_INT(counts.predicted[2], 3);
    ASSERT_INT(counts.labels[1], 3);
    ASSERT_F32(fsdp_class_accuracy(&counts), 6.0 / 9.0);
    fsdp_class_counts_fini(&counts);
}

/* Logits [4, 3]: the second row's label is ignored, and the third row has two largest logits, of
 * which the first counts. Losses are log(sum exp) - logit. */
TEST(logits_give_predictions_and_the_loss)
{
    static const float logits[] = {0, 0, 1000, /**/ 9, 9, 9, /**/ 1, 1, 0, /**/ -1, -2, -3};
    static const int64_t shape[] = {4, 3};
    static const int32_t labels[] = {2, FSDP_IGNORE_INDEX, 1, 0};
    const fsdp_batch batch = {.task = FSDP_TASK_CLASSIFICATION, .rows = 4, .labels = labels};
    fsdp_device *device;
    fsdp_tensor *tensor;
    fsdp_class_counts counts;
    double loss;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, shape, logits, FSDP_TAG_ACTIVATION,
                                    &tensor));
    ASSERT_OK(fsdp_class_counts_init(&counts, 3));
    ASSERT_OK(fsdp_class_counts_add_batch(&counts, tensor, &batch, 0.0, &loss));
    const double third = log(2.0 + exp(-1.0)), fourth = log(1.0 + exp(-1.0) + exp(-2.0));
    ASSERT_NEAR(loss, third + fourth, 1e-12);
    /* Each target moves a quarter of the way to the mean of its row: 1000/3, 2/3, -2. */
    fsdp_class_counts again;
    double smoothed;
    ASSERT_OK(fsdp_class_counts_init(&again, 3));
    ASSERT_OK(fsdp_class_counts_add_batch(&again, tensor, &batch, 0.25, &smoothed));
    fsdp_class_counts_fini(&again);
    ASSERT_NEAR(smoothed, third + fourth + 0.25 * (2000.0 / 3.0 + 1.0 / 3.0 + 1.0), 1e-9);
    ASSERT_F32(fsdp_class_accuracy(&counts), 2.0 / 3.0);
    ASSERT_INT(counts.predicted[0], 2);
    fsdp_class_counts_fini(&counts);
    fsdp_tensor_release(tensor);
    fsdp_device_destroy(device);
}
