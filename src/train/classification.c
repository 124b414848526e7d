/* See classification.h. */
#include "src/train/classification.h"

#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/agree.h"

enum {
    ARRAYS = 3 /* number of arrays of counts, all in one allocation */
};

fsdp_status fsdp_class_counts_init(fsdp_class_counts *counts, int64_t classes)
{
    int64_t *block = fsdp_calloc((size_t)classes * ARRAYS, sizeof *block);
    if (!block)
        return FSDP_ERR_NOMEM;
    *counts = (fsdp_class_counts){.classes = classes,
                                  .right = block,
                                  .predicted = block + classes,
                                  .labels = block + 2 * classes};
    return FSDP_OK;
}

void fsdp_class_counts_fini(fsdp_class_counts *counts)
{
    fsdp_free(counts->right);
    *counts = (fsdp_class_counts){0};
}

void fsdp_class_counts_add(fsdp_class_counts *counts, int32_t label, int64_t predicted)
{
    FSDP_ASSERT(label >= 0 && label < counts->classes);
    counts->right[label] += label == predicted;
    counts->predicted[predicted]++;
    counts->labels[label]++;
}

static int64_t largest(const float *row, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (row[i] > row[best])
            best = i;
    return best;
}

/* Return log(sum(exp(row))) - target. If `smoothing` is 0, target is row[label]; otherwise it is (1
 * - smoothing) row[label] + smoothing mean(row). row[best], the largest value, is subtracted from
 * all values first, so that exp() does not overflow. */
static double cross_entropy(const float *row, int64_t n, int64_t best, int32_t label,
                            double smoothing)
{
    double sum = 0, mean = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += exp((double)row[i] - (double)row[best]);
        mean += (double)row[i] / (double)n;
    }
    const double target = smoothing > 0
                              ? (double)row[label] + smoothing * (mean - (double)row[label])
                              : (double)row[label];
    return log(sum) + (double)row[best] - target;
}

fsdp_status fsdp_class_counts_add_batch(fsdp_class_counts *counts, const fsdp_tensor *logits,
                                        const fsdp_batch *batch, double smoothing, double *loss)
{
    const int64_t n = counts->classes;
    FSDP_ASSERT(fsdp_tensor_numel(logits) == batch->rows * n);
    float *values = fsdp_calloc((size_t)(batch->rows * n), sizeof *values);
    if (!values)
        return FSDP_ERR_NOMEM;
    fsdp_status status = batch->rows ? fsdp_tensor_to_floats(logits, values) : FSDP_OK;
    *loss = 0;
    for (int32_t i = 0; status == FSDP_OK && i < batch->rows; i++) {
        const float *row = values + i * n;
        int32_t label = batch->labels[i];
        if (label == FSDP_IGNORE_INDEX)
            continue;
        int64_t best = largest(row, n);
        *loss += cross_entropy(row, n, best, label, smoothing);
        fsdp_class_counts_add(counts, label, best);
    }
    fsdp_free(values);
    return status;
}

fsdp_status fsdp_class_counts_reduce(fsdp_class_counts *counts, fsdp_group *group)
{
    const size_t n = (size_t)counts->classes * ARRAYS;
    const int world_size = fsdp_group_world_size(group);
    int64_t *all = fsdp_calloc(n * (size_t)world_size, sizeof *all);
    fsdp_status status = fsdp_agree_gather(group, all ? FSDP_OK : FSDP_ERR_NOMEM, counts->right,
                                           n * sizeof *all, all);
    if (status == FSDP_OK) {
        memset(counts->right, 0, n * sizeof *all);
        for (size_t i = 0; i < n * (size_t)world_size; i++)
            counts->right[i % n] += all[i];
    }
    fsdp_free(all);
    return status;
}

double fsdp_class_accuracy(const fsdp_class_counts *counts)
{
    int64_t right = 0, rows = 0;
    for (int64_t i = 0; i < counts->classes; i++) {
        right += counts->right[i];
        rows += counts->labels[i];
    }
    return rows ? (double)right / (double)rows : 0.0;
}

/* Return the F1 of a class, 2 TP / (2 TP + FP + FN). The divisor is the number of predictions of
 * the class plus the number of its labels. */
static double f1_of(const fsdp_class_counts *counts, int64_t class)
{
    int64_t divisor = counts->predicted[class] + counts->labels[class];
    return divisor ? 2.0 * (double)counts->right[class] / (double)divisor : 0.0;
}

double fsdp_class_f1(const fsdp_class_counts *counts)
{
    double sum = 0;
    int64_t present = 0;
    if (counts->classes == 2)
        return f1_of(counts, 1);
    for (int64_t i = 0; i < counts->classes; i++) {
        present += counts->predicted[i] + counts->labels[i] > 0;
        sum += f1_of(counts, i);
    }
    return present ? sum / (double)present : 0.0;
}
