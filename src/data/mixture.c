/* A mixture is a dataset whose examples come from several datasets, its parts.
 *
 * Note [Mixtures]. An epoch of the mixture has N examples, n_c of them from part c. The part and
 * the row of each example are computed, without a table.
 *
 * The part of example j is found by trying the parts in turn. Part c gets b = floor(j n_c / N) of
 * the first j examples, and floor((j + 1) n_c / N) of the first j + 1 examples. If the second
 * number is greater than b, example j belongs to part c and is example b of part c in this epoch.
 * Otherwise the next part is tried as if the examples of part c did not exist: b is subtracted from
 * j, and n_c is subtracted from N. This spreads the examples of each part evenly over the epoch,
 * even without a shuffle.
 *
 * The row is found as follows. The sampler of a part gives an order of the part's rows for each
 * epoch of the part. These orders, put one after the other, form one sequence of rows. In epoch e
 * of the mixture, example k of part c is row e n_c + k of this sequence. */
#include "src/data/datasets/dataset.h"

#include <inttypes.h>
#include <math.h>

#include "src/base/alloc.h"
#include "src/base/philox.h"

typedef struct part {
    fsdp_dataset *dataset; /* owned */
    /* Different for each part, so that the random numbers of two parts are not the same. */
    uint64_t key;
    int64_t count; /* number of this part's examples in an epoch of the mixture */
} part;

typedef struct mixture {
    part *parts; /* [len] */
    size_t len;
    int64_t examples; /* sum of counts */
    bool no_shuffle;
} mixture;

static int64_t mixture_len(void *self)
{
    return ((const mixture *)self)->examples;
}

/* Return the part that example `index` comes from. Set *within to the number of earlier examples
 * from that part in the same epoch of the mixture (b in Note [Mixtures]). */
static const part *find_part(const mixture *m, int64_t index, int64_t *within)
{
    int64_t left = m->examples;
    for (size_t c = 0; c + 1 < m->len; c++) {
        const int64_t n = m->parts[c].count;
        const int64_t before = index * n / left, after = (index + 1) * n / left;
        if (after > before) {
            *within = before;
            return &m->parts[c];
        }
        index -= before;
        left -= n;
    }
    *within = index;
    return &m->parts[m->len - 1];
}

/* Return the part that has example `index` of the mixture, and set *row to the index of the
 * example's row in the dataset of this part. Also set *own to the seed and the epoch with which
 * this dataset must be read: a seed that no other part uses, and the part's own epoch, which counts
 * passes over the part's rows (Note [Mixtures]). */
static const part *locate(const mixture *m, int64_t index, const fsdp_draw *draw, int64_t *row,
                          fsdp_draw *own)
{
    int64_t within;
    const part *p = find_part(m, index, &within);
    const int64_t rows = fsdp_dataset_len(p->dataset);
    const int64_t number = draw->epoch * p->count + within;
    *own = (fsdp_draw){.seed = fsdp_mix64(draw->seed ^ p->key),
                       .epoch = number / rows,
                       .has_order_seed = draw->has_order_seed,
                       .order_seed = fsdp_mix64(draw->order_seed ^ p->key)};
    const fsdp_sampler order = {.samples = rows,
                                .seed = own->seed,
                                .has_order_seed = own->has_order_seed,
                                .order_seed = own->order_seed,
                                .no_shuffle = m->no_shuffle};
    *row = fsdp_sampler_order(&order, own->epoch, number % rows);
    return p;
}

static fsdp_status mixture_draw(void *self, int64_t index, const fsdp_draw *draw,
                                fsdp_example *example)
{
    int64_t row;
    fsdp_draw own;
    const part *p = locate(self, index, draw, &row, &own);
    return fsdp_dataset_draw(p->dataset, row, &own, example);
}

static fsdp_status mixture_left_out(void *self, const fsdp_row_range *range, fsdp_left_out *sum)
{
    const mixture *m = self;
    for (size_t c = 0; c < m->len; c++) {
        fsdp_left_out one;
        FSDP_TRY(fsdp_dataset_left_out(m->parts[c].dataset, range->len, &one));
        fsdp_left_out_add(sum, &one);
    }
    return FSDP_OK;
}

static void mixture_close(void *self)
{
    mixture *m = self;
    for (size_t c = 0; c < m->len; c++)
        fsdp_dataset_close(m->parts[c].dataset);
    fsdp_free(m->parts);
    fsdp_free(m);
}

static const fsdp_dataset_ops mixture_ops = {
    .len = mixture_len,
    .draw = mixture_draw,
    .close = mixture_close,
};

/* ---- opening ---- */

static fsdp_status check_parts(const fsdp_mixture_part *parts, size_t count, double *sum,
                               int64_t *examples)
{
    *sum = 0;
    *examples = 0;
    if (count == 0)
        return fsdp_error(FSDP_ERR_INVALID, "mixture: no parts");
    for (size_t c = 0; c < count; c++) {
        if (!(parts[c].weight >= 0 && isfinite(parts[c].weight)))
            return fsdp_error(FSDP_ERR_INVALID, "mixture: weight %g of part %zu", parts[c].weight,
                              c + 1);
        if (fsdp_dataset_len(parts[c].dataset) == 0)
            return fsdp_error(FSDP_ERR_INVALID, "mixture: part %zu has no rows", c + 1);
        *sum += parts[c].weight;
        *examples += fsdp_dataset_len(parts[c].dataset);
        if (*examples > INT32_MAX)
            return fsdp_error(FSDP_ERR_INVALID, "mixture: more than %d examples", INT32_MAX);
    }
    if (!isfinite(*sum * (double)*examples))
        return fsdp_error(FSDP_ERR_INVALID, "mixture: weights of %g in all are too large", *sum);
    return FSDP_OK;
}

/* Return by how many examples part c is below its share: the share before rounding, minus the
 * number of examples that part c has so far. */
static double missing_examples(const mixture *m, const fsdp_mixture_part *parts, double sum,
                               size_t c)
{
    return (double)m->examples * parts[c].weight / sum - (double)m->parts[c].count;
}

/* Round the shares down. Then give the remaining examples, one by one, to the part that is furthest
 * below its share. */
static void share_by_weight(mixture *m, const fsdp_mixture_part *parts, double sum)
{
    int64_t left = m->examples;
    for (size_t c = 0; c < m->len; c++) {
        m->parts[c].count = (int64_t)((double)m->examples * parts[c].weight / sum);
        left -= m->parts[c].count;
    }
    for (; left > 0; left--) {
        size_t best = 0;
        for (size_t c = 1; c < m->len; c++)
            if (missing_examples(m, parts, sum, c) > missing_examples(m, parts, sum, best))
                best = c;
        m->parts[best].count++;
    }
}

static fsdp_status distribute_examples(mixture *m, const fsdp_mixture_part *parts, double sum)
{
    for (size_t c = 0; c < m->len; c++)
        m->parts[c].count = fsdp_dataset_len(parts[c].dataset);
    if (sum > 0)
        share_by_weight(m, parts, sum);
    for (size_t c = 0; c < m->len; c++) {
        if (m->parts[c].count == 0)
            return fsdp_error(FSDP_ERR_INVALID,
                              "mixture: weight %g of part %zu, of all %g, gives it none of %" PRId64
                              " examples",
                              parts[c].weight, c + 1, sum, m->examples);
        m->parts[c].key = fsdp_mix64(c + 1);
        m->parts[c].dataset = parts[c].dataset;
    }
    return FSDP_OK;
}

fsdp_status fsdp_mixture_create(const fsdp_mixture_part *parts, size_t count, bool no_shuffle,
                                fsdp_dataset **out)
{
    double sum;
    int64_t examples;
    FSDP_TRY(check_parts(parts, count, &sum, &examples));
    mixture *m = fsdp_calloc(1, sizeof *m);
    part *own = fsdp_calloc(count, sizeof *own);
    fsdp_status status = m && own ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        *m = (mixture){.parts = own, .len = count, .examples = examples, .no_shuffle = no_shuffle};
        status = distribute_examples(m, parts, sum);
    }
    if (status == FSDP_OK)
        status = fsdp_dataset_create(&mixture_ops, m, out);
    if (status != FSDP_OK) { /* the caller still owns the datasets */
        fsdp_free(own);
        fsdp_free(m);
        return status;
    }
    unsigned uses = 0;
    for (size_t c = 0; c < count; c++)
        uses |= fsdp_dataset_uses(parts[c].dataset);
    fsdp_dataset_set_uses(*out, uses);
    fsdp_dataset_set_left_out(*out, mixture_left_out);
    return FSDP_OK;
}
