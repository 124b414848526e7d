/* See measures.h. */
#include "src/train/measures.h"
#include "src/comm/agree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"

/* ---- names ---- */

#define FIELD(name) offsetof(fsdp_measures, name)
static const fsdp_measure_field of_classes[] = {{"accuracy", "Accuracy", FIELD(accuracy)},
                                                {"f1", "F1", FIELD(f1)}},
                                of_numbers[] = {{"mse", "MSE", FIELD(mse)},
                                                {"pearson", "Pearson", FIELD(pearson)},
                                                {"spearmanr", "Spearman", FIELD(spearmanr)}},
                                of_sets[] = {{"accuracy", "Accuracy", FIELD(accuracy)},
                                             {"f1", "F1", FIELD(f1)},
                                             {"f1_macro", "F1 macro", FIELD(f1_macro)}};

const fsdp_measure_field *fsdp_measure_fields(fsdp_problem_type problem, size_t *n)
{
    switch (problem) {
    case FSDP_PROBLEM_REGRESSION:
        *n = FSDP_LENGTH(of_numbers);
        return of_numbers;
    case FSDP_PROBLEM_MULTI_LABEL:
        *n = FSDP_LENGTH(of_sets);
        return of_sets;
    case FSDP_PROBLEM_SINGLE_LABEL:
        break;
    }
    *n = FSDP_LENGTH(of_classes);
    return of_classes;
}

double fsdp_measure_get(const fsdp_measures *measures, const fsdp_measure_field *field)
{
    double value;
    memcpy(&value, (const char *)measures + field->offset, sizeof value);
    return value;
}

/* ---- collecting ---- */

fsdp_status fsdp_measurer_init(fsdp_measurer *m, fsdp_problem_type problem, int64_t num_labels)
{
    *m = (fsdp_measurer){.problem = problem};
    return problem == FSDP_PROBLEM_REGRESSION ? FSDP_OK
                                              : fsdp_class_counts_init(&m->counts, num_labels);
}

void fsdp_measurer_fini(fsdp_measurer *m)
{
    fsdp_class_counts_fini(&m->counts);
    fsdp_free(m->samples);
    *m = (fsdp_measurer){0};
}

/* Add a row of a regression, and return the loss of the row. */
static double add_numbers(fsdp_measurer *m, const float *logits, const float *targets, int32_t n)
{
    double loss = 0;
    for (int32_t i = 0; i < n; i++) {
        const double x = (double)logits[i], t = (double)targets[i];
        m->samples[m->len++] = (fsdp_sample){(double)i, x, t};
        loss += (x - t) * (x - t);
    }
    return loss / (double)n;
}

/* Add a row that may have several classes, and return the loss of the row: the mean over the
 * classes of max(x, 0) - x t + log(1 + exp(-|x|)), where x is the logit and t is 1 or 0. */
static double add_set(fsdp_measurer *m, const float *logits, const float *targets, int32_t n)
{
    double loss = 0;
    bool is_right = true;
    for (int32_t i = 0; i < n; i++) {
        const double x = (double)logits[i], t = (double)targets[i];
        const bool predicted = x > 0, label = t >= 0.5;
        m->counts.right[i] += predicted && label;
        m->counts.predicted[i] += predicted;
        m->counts.labels[i] += label;
        is_right = is_right && predicted == label;
        loss += fmax(x, 0) - x * t + log1p(exp(-fabs(x)));
    }
    m->rows[0]++;
    m->rows[1] += is_right;
    return loss / (double)n;
}

static fsdp_status add_targets(fsdp_measurer *m, const fsdp_tensor *logits, const fsdp_batch *batch,
                               double *loss)
{
    const int32_t n = batch->num_targets;
    const size_t size = (size_t)batch->rows * (size_t)n;
    FSDP_ASSERT(fsdp_tensor_numel(logits) == (int64_t)size);
    float *values = fsdp_calloc(size, sizeof *values);
    if (!values ||
        (m->problem == FSDP_PROBLEM_REGRESSION && !FSDP_GROW(m->samples, m->cap, m->len + size))) {
        fsdp_free(values);
        return FSDP_ERR_NOMEM;
    }
    fsdp_status status = batch->rows ? fsdp_tensor_to_floats(logits, values) : FSDP_OK;
    *loss = 0;
    for (int32_t row = 0; status == FSDP_OK && row < batch->rows; row++) {
        const float *x = values + (size_t)row * (size_t)n;
        const float *t = batch->targets + (size_t)row * (size_t)n;
        if (batch->labels[row] == FSDP_IGNORE_INDEX)
            continue;
        *loss +=
            m->problem == FSDP_PROBLEM_REGRESSION ? add_numbers(m, x, t, n) : add_set(m, x, t, n);
    }
    fsdp_free(values);
    return status;
}

fsdp_status fsdp_measurer_add(fsdp_measurer *m, const fsdp_tensor *logits, const fsdp_batch *batch,
                              double smoothing, double *loss)
{
    return m->problem == FSDP_PROBLEM_SINGLE_LABEL
               ? fsdp_class_counts_add_batch(&m->counts, logits, batch, smoothing, loss)
               : add_targets(m, logits, batch, loss);
}

/* ---- several classes ---- */

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0.0;
}

static fsdp_status finish_sets(fsdp_measurer *m, fsdp_group *group, fsdp_measures *out)
{
    const int world_size = fsdp_group_world_size(group);
    int64_t right = 0, divisor = 0, rows[2] = {0, 0};
    FSDP_TRY(fsdp_class_counts_reduce(&m->counts, group));
    int64_t(*all)[2] = fsdp_calloc((size_t)world_size, sizeof *all);
    fsdp_status status =
        fsdp_agree_gather(group, all ? FSDP_OK : FSDP_ERR_NOMEM, m->rows, sizeof m->rows, all);
    for (int r = 0; status == FSDP_OK && r < world_size; r++) {
        rows[0] += all[r][0];
        rows[1] += all[r][1];
    }
    fsdp_free(all);
    for (int64_t i = 0; i < m->counts.classes; i++) {
        const int64_t of_class = m->counts.predicted[i] + m->counts.labels[i];
        right += m->counts.right[i];
        divisor += of_class;
        out->f1_macro +=
            ratio(2.0 * (double)m->counts.right[i], (double)of_class) / (double)m->counts.classes;
    }
    out->f1 = ratio(2.0 * (double)right, (double)divisor);
    out->accuracy = ratio((double)rows[1], (double)rows[0]);
    return status;
}

/* ---- regression ---- */

/* Compare for qsort(), which needs a total order: NaN comes after all numbers. */
static int compare(double a, double b)
{
    if (isnan(a) || isnan(b))
        return (isnan(a) != 0) - (isnan(b) != 0);
    return (a > b) - (a < b);
}

static int by_prediction(const void *a, const void *b)
{
    const fsdp_sample *x = a, *y = b;
    const int column = compare(x->column, y->column);
    const int predicted = compare(x->predicted, y->predicted);
    return column ? column : predicted ? predicted : compare(x->target, y->target);
}

static int by_target(const void *a, const void *b)
{
    const fsdp_sample *x = a, *y = b;
    const int target = compare(x->target, y->target);
    return target ? target : compare(x->predicted, y->predicted);
}

/* Return true if all predictions of samples [n], or all their targets, are equal. */
static bool is_constant(const fsdp_sample *s, size_t n, bool targets)
{
    size_t i = 1;
    while (i < n && (targets ? s[i].target == s[0].target : s[i].predicted == s[0].predicted))
        i++;
    return i >= n;
}

/* Return Pearson's correlation of the samples [n] of a column, or NaN if all predictions or all
 * targets are equal. Equality is tested with is_constant(), not by whether the variance is 0: since
 * the mean is rounded, the computed variance of equal values may be greater than 0. */
static double correlate(const fsdp_sample *s, size_t n)
{
    double mean[2] = {0, 0}, xx = 0, yy = 0, xy = 0;
    if (is_constant(s, n, false) || is_constant(s, n, true))
        return (double)NAN;
    for (size_t i = 0; i < n; i++) {
        mean[0] += s[i].predicted / (double)n;
        mean[1] += s[i].target / (double)n;
    }
    for (size_t i = 0; i < n; i++) {
        const double x = s[i].predicted - mean[0], y = s[i].target - mean[1];
        xx += x * x;
        yy += y * y;
        xy += x * y;
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx) / sqrt(yy) : (double)NAN;
}

/* Replace the predictions of sorted samples [n] (or their targets, if `targets` is true) by their
 * positions in the order. Equal values get the mean of their positions. */
static void rank_values(fsdp_sample *s, size_t n, bool targets)
{
    for (size_t begin = 0, end; begin < n; begin = end) {
        const double value = targets ? s[begin].target : s[begin].predicted;
        for (end = begin + 1; end < n && (targets ? s[end].target : s[end].predicted) == value;)
            end++;
        for (size_t i = begin; i < end; i++) {
            double *to = targets ? &s[i].target : &s[i].predicted;
            *to = (double)(begin + end - 1) / 2.0;
        }
    }
}

/* Add the measures of a column to *out. The samples [n] of the column must be sorted with
 * by_prediction(), and are overwritten. */
static void add_column(fsdp_sample *s, size_t n, fsdp_measures *out)
{
    for (size_t i = 0; i < n; i++)
        out->mse += (s[i].predicted - s[i].target) * (s[i].predicted - s[i].target) / (double)n;
    out->pearson += correlate(s, n);
    rank_values(s, n, false);
    qsort(s, n, sizeof *s, by_target);
    rank_values(s, n, true);
    out->spearmanr += correlate(s, n);
}

static void measure_samples(fsdp_sample *s, size_t n, fsdp_measures *out)
{
    double columns = 0;
    /* After sorting, the sums below do not depend on which rank had which row. */
    qsort(s, n, sizeof *s, by_prediction);
    for (size_t begin = 0, end; begin < n; begin = end, columns++) {
        for (end = begin + 1; end < n && s[end].column == s[begin].column;)
            end++;
        add_column(s + begin, end - begin, out);
    }
    out->mse = ratio(out->mse, columns);
    out->pearson = columns > 0 ? out->pearson / columns : (double)NAN;
    out->spearmanr = columns > 0 ? out->spearmanr / columns : (double)NAN;
}

/* Gather the samples of all ranks in *all [*len]. All ranks must send the same number of samples.
 * So ranks with fewer samples append zeros, which are removed after the gather. */
static fsdp_status gather_samples(fsdp_measurer *m, fsdp_group *group, fsdp_sample **all,
                                  size_t *len)
{
    const size_t ranks = (size_t)fsdp_group_world_size(group);
    size_t most = 0;
    size_t *lens = fsdp_calloc(ranks, sizeof *lens);
    *all = NULL;
    fsdp_status status =
        fsdp_agree_gather(group, lens ? FSDP_OK : FSDP_ERR_NOMEM, &m->len, sizeof m->len, lens);
    for (size_t r = 0; status == FSDP_OK && r < ranks; r++)
        most = lens[r] > most ? lens[r] : most;
    if (status == FSDP_OK) {
        const bool has_room =
            FSDP_GROW(m->samples, m->cap, most) && (*all = fsdp_calloc(ranks * most, sizeof **all));
        status = fsdp_agree(group, has_room ? FSDP_OK : FSDP_ERR_NOMEM);
    }
    if (status == FSDP_OK && most) {
        memset(m->samples + m->len, 0, (most - m->len) * sizeof *m->samples);
        status = fsdp_all_gather(group, m->samples, most * sizeof *m->samples, *all);
    }
    *len = 0;
    for (size_t r = 0; status == FSDP_OK && r < ranks; r++) {
        memmove(*all + *len, *all + r * most, lens[r] * sizeof **all);
        *len += lens[r];
    }
    fsdp_free(lens);
    return status;
}

fsdp_status fsdp_measurer_finish(fsdp_measurer *m, fsdp_group *group, fsdp_measures *measures)
{
    fsdp_sample *all;
    size_t n;
    fsdp_measures out = {0};
    fsdp_status status = FSDP_OK;
    if (m->problem == FSDP_PROBLEM_SINGLE_LABEL) {
        status = fsdp_class_counts_reduce(&m->counts, group);
        out.accuracy = fsdp_class_accuracy(&m->counts);
        out.f1 = fsdp_class_f1(&m->counts);
    } else if (m->problem == FSDP_PROBLEM_MULTI_LABEL) {
        status = finish_sets(m, group, &out);
    } else {
        status = gather_samples(m, group, &all, &n);
        if (status == FSDP_OK)
            measure_samples(all, n, &out);
        fsdp_free(all);
    }
    if (status == FSDP_OK)
        *measures = out;
    return status;
}
