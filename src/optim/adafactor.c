/* Adafactor (Shazeer & Stern 2018), as transformers.optimization.Adafactor computes it.
 *
 * Every parameter is treated as rows of `cols` elements. A tensor of more than two dimensions is
 * treated as several matrices. In a vector, each element is a row of its own, and there is no
 * column state.
 *
 * The update u of a parameter p depends on statistics of whole tensors, such as RMS(p). These
 * statistics are computed in two rounds, as Note [Row sums] in row_sums.h describes. In each round,
 * the ranks of a process group exchange the sums of all their parameters by one gather. g is the
 * gradient:
 *
 *     begin    for each row: sum of p^2, and the new exp_avg_sq_row;
 *              for each column of a matrix: sum of (g^2 + eps1)
 *              first gather: gives RMS(p), exp_avg_sq_col and the mean of exp_avg_sq_row
 *              for each row: compute u from these, and the sum of u^2
 *              second gather: gives RMS(u)
 *     apply    compute u once more, and update p
 *
 * u is computed twice and never stored, since it would be as large as the gradients. */
#include <math.h>

#include "src/base/alloc.h"
#include "src/optim/optimizer.h"
#include "src/optim/row_sums.h"
#include "src/tensor/tensor.h"

enum { /* indices of state_names */
    EXP_AVG,
    EXP_AVG_SQ_ROW,
    EXP_AVG_SQ_COL,
    EXP_AVG_SQ,
    RMS
};
static const char *const state_names[FSDP_MAX_OPTIMIZER_STATE] = {
    "exp_avg", "exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq", "RMS"};

/* --- options --- */

fsdp_adafactor_options fsdp_adafactor_defaults(void)
{
    return (fsdp_adafactor_options){.eps1 = 1e-30,
                                    .eps2 = 1e-3,
                                    .clip_threshold = 1.0,
                                    .decay_rate = -0.8,
                                    .beta1 = -1.0,
                                    .scale_parameter = true,
                                    .relative_step = true};
}

static const char *name(const fsdp_optimizer_options *options)
{
    (void)options;
    return "adafactor";
}

static bool has_first_moment(const fsdp_adafactor_options *o)
{
    return o->beta1 >= 0.0;
}

static fsdp_status check_options(const fsdp_optimizer_options *options)
{
    const fsdp_adafactor_options *o = &options->adafactor;
    FSDP_TRY(fsdp_optimizer_check_range("adafactor", "lr", o->lr, (double)INFINITY));
    FSDP_TRY(fsdp_optimizer_check_range("adafactor", "eps1", o->eps1, (double)INFINITY));
    FSDP_TRY(fsdp_optimizer_check_range("adafactor", "eps2", o->eps2, (double)INFINITY));
    FSDP_TRY(
        fsdp_optimizer_check_range("adafactor", "weight_decay", o->weight_decay, (double)INFINITY));
    if (!(o->beta1 < 1.0)) /* a negative beta1 means that there is no first moment */
        return fsdp_error(FSDP_ERR_INVALID, "adafactor: beta1 is %g, not below 1", o->beta1);
    if (!(o->clip_threshold > 0.0))
        return fsdp_error(FSDP_ERR_INVALID, "adafactor: clip_threshold is %g, not above 0",
                          o->clip_threshold);
    if (!isfinite(o->decay_rate) || o->decay_rate > 0.0)
        return fsdp_error(FSDP_ERR_INVALID, "adafactor: decay_rate is %g, not at most 0",
                          o->decay_rate);
    if (o->relative_step && o->lr != 0.0)
        return fsdp_error(FSDP_ERR_INVALID, "adafactor: lr is %g, but relative_step sets it",
                          o->lr);
    if (o->warmup_init && !o->relative_step)
        return fsdp_error(FSDP_ERR_INVALID, "adafactor: warmup_init needs relative_step");
    return FSDP_OK;
}

static fsdp_state_shape state_shape(const fsdp_optimizer_options *options, const fsdp_tensor *local,
                                    int k)
{
    bool factored = fsdp_tensor_ndim(local) >= 2;
    switch (k) {
    case EXP_AVG:
        return has_first_moment(&options->adafactor) ? FSDP_STATE_SAME : FSDP_STATE_NONE;
    case EXP_AVG_SQ_ROW:
        return factored ? FSDP_STATE_ROWS : FSDP_STATE_NONE;
    case EXP_AVG_SQ_COL:
        return factored ? FSDP_STATE_COLUMNS : FSDP_STATE_NONE;
    case EXP_AVG_SQ:
        return factored ? FSDP_STATE_NONE : FSDP_STATE_SAME;
    default:
        return FSDP_STATE_SCALAR;
    }
}

/* Returns the learning rate, as _get_lr in transformers computes it. */
static double rate_of(const fsdp_adafactor_options *o, int64_t step, float rms)
{
    double rate = o->lr, t = (double)step;
    if (o->relative_step)
        rate = fmin(o->warmup_init ? 1e-6 * t : 1e-2, 1.0 / sqrt(t));
    return o->scale_parameter ? rate * fmax(o->eps2, (double)rms) : rate;
}

static double *lr(fsdp_optimizer_options *options)
{
    return options->adafactor.relative_step ? NULL : &options->adafactor.lr;
}

static double own_lr(const fsdp_optimizer_options *options, int64_t step, fsdp_tensor *const *state)
{
    double rms = 0.0;
    if (fsdp_tensor_has_data(state[RMS]) && fsdp_tensor_item(state[RMS], &rms) != FSDP_OK)
        rms = 0.0;
    return rate_of(&options->adafactor, step, (float)rms);
}

/* --- what a step needs --- */

/* A parameter that is updated in the current step. */
typedef struct part {
    const fsdp_step_item *item;
    const fsdp_adafactor_options *options;
    /* This rank's part of the parameter consists of n_matrices matrices of [rows, cols]. A vector
     * counts as one matrix with cols = 1. */
    int64_t n_matrices, rows, cols;
    int64_t numel;             /* number of elements of the whole parameter */
    bool is_vector, is_matrix; /* is_vector: 1 dimension; is_matrix: 2 dimensions */
    float rms;                 /* RMS(p) of the whole parameter */
    float row_mean;            /* if is_matrix: mean of exp_avg_sq_row over the whole
                                * parameter */
    float divisor;             /* max(1, RMS(u) / clip_threshold) */
} part;

typedef struct work {
    fsdp_device *device;
    part *parts;
    size_t n;
    float grad_scale;
    /* [n] each: `first` for the first round, `second` for the second */
    fsdp_row_sum *first, *second;
    fsdp_row_sums moments, updates;
    fsdp_tensor *row_values; /* F64; one value for each row of a parameter */
    fsdp_tensor *factors; /* F32: the row factors of one matrix, followed by its column factors */
    float *row_state;     /* in host memory: exp_avg_sq_row of one matrix */
} work;

/* A row contributes several numbers to the sums of the first round. These are their indices. Number
 * PARAM_SQUARES is the sum of p^2 over the row. Number ROW_MEANS is the row's element of
 * exp_avg_sq_row. Number COLUMNS + j is g^2 + eps1 in column j of the row. Rows of a parameter that
 * is not a matrix have only PARAM_SQUARES. */
enum {
    PARAM_SQUARES,
    ROW_MEANS,
    COLUMNS
};

static void describe_part(const fsdp_step_item *item, part *p, fsdp_row_sum *first,
                          fsdp_row_sum *second)
{
    const fsdp_tensor *local = item->local;
    const int64_t *shape = fsdp_parameter_shape(item->parameter);
    int64_t inner = 1; /* number of rows in each entry of dimension 0 */
    *p = (part){.item = item,
                .options = &item->options->adafactor,
                .n_matrices = 1,
                .rows = local->shape[0],
                .cols = 1,
                .numel = fsdp_parameter_numel(item->parameter),
                .is_vector = local->ndim == 1,
                .is_matrix = local->ndim == 2,
                .divisor = 1.0f};
    if (!p->is_vector)
        p->cols = shape[local->ndim - 1];
    if (local->ndim > 2) {
        p->rows = shape[local->ndim - 2];
        for (int d = 1; d < local->ndim - 1; d++)
            inner *= shape[d];
        p->n_matrices = p->rows ? local->shape[0] * inner / p->rows : 0;
    }
    *first = *second = (fsdp_row_sum){.group = fsdp_parameter_group(item->parameter),
                                      .rows = shape[0],
                                      .inner = inner,
                                      .width = 1};
    if (p->is_matrix)
        first->width = COLUMNS + p->cols;
}

static int64_t rows_of(const part *p)
{
    return p->n_matrices * p->rows;
}

/* Returns the RMS of a whole tensor, given the sum of its squares. The computation is that of _rms
 * in transformers. */
static float rms_of(const part *p, double squares)
{
    return p->numel ? (float)(sqrt(squares) / sqrt((double)p->numel)) : 0.0f;
}

static double beta2_of(const part *p)
{
    return 1.0 - pow((double)p->item->step, p->options->decay_rate);
}

static float *state_of(const part *p, int k)
{
    return fsdp_tensor_ptr(p->item->state[k]);
}

static const float *grad_of(const part *p, int64_t matrix)
{
    return (const float *)fsdp_tensor_ptr(p->item->grad) + matrix * p->rows * p->cols;
}

/* --- first round: moments --- */

static float *row_state_of(const part *p)
{
    return state_of(p, p->is_vector ? EXP_AVG_SQ : EXP_AVG_SQ_ROW);
}

/* Computes the column sums of a matrix for the first round. Each segment of this rank's rows (Note
 * [Row sums] in row_sums.h) gets separate column sums. */
static void put_columns(const work *w, size_t i)
{
    const part *p = &w->parts[i];
    const fsdp_row_sum *s = &w->first[i];
    double *own = fsdp_row_sums_on_device(&w->moments, s->own + COLUMNS);
    for (int64_t b = s->begin, e; b < s->end; b = e, own += s->width) {
        e = fsdp_row_segment_end(s, b);
        w->device->kernels->square_column_sums(w->device->context, own,
                                               grad_of(p, 0) + (b - s->begin) * p->cols, e - b,
                                               p->cols, w->grad_scale, (float)p->options->eps1);
    }
}

/* Adds up row_values over the rows of parameter i. The result is number `column` of this parameter
 * in `sums`. */
static void put_row_values(const work *w, const fsdp_row_sums *sums, size_t i, int64_t column)
{
    const fsdp_row_values values = {.item = i,
                                    .column = column,
                                    .rows = fsdp_tensor_ptr(w->row_values),
                                    .n = rows_of(&w->parts[i])};
    fsdp_row_sums_combine(sums, &values, 1);
}

static void start_power_sums(const work *w, double *sums, const void *x, fsdp_dtype dtype,
                             int64_t rows, int64_t cols, double power)
{
    const fsdp_row_powers powers = {x, dtype, rows, cols, sums};
    w->device->kernels->row_power_sums(w->device->context, &powers, 1, power);
}

/* Updates exp_avg_sq_col of a tensor that consists of several matrices. Each of these matrices is
 * complete on one rank, so this update needs no gather. */
static void average_columns(const work *w, const part *p, double *sums)
{
    const fsdp_kernels *k = w->device->kernels;
    for (int64_t m = 0; m < p->n_matrices; m++) {
        k->square_column_sums(w->device->context, sums, grad_of(p, m), p->rows, p->cols,
                              w->grad_scale, (float)p->options->eps1);
        k->moving_average(w->device->context, state_of(p, EXP_AVG_SQ_COL) + m * p->cols, sums,
                          (double)p->rows, beta2_of(p), p->cols);
    }
}

static fsdp_status put_moments(const work *w, size_t i)
{
    const part *p = &w->parts[i];
    const fsdp_kernels *k = w->device->kernels;
    const fsdp_tensor *local = p->item->local;
    double *values = fsdp_tensor_ptr(w->row_values);
    int64_t rows = rows_of(p);
    if (p->is_matrix)
        put_columns(w, i);
    start_power_sums(w, values, fsdp_tensor_ptr(local), local->dtype, rows, p->cols, 2.0);
    put_row_values(w, &w->moments, i, PARAM_SQUARES);
    k->square_row_sums(w->device->context, values, grad_of(p, 0), rows, p->cols, w->grad_scale,
                       (float)p->options->eps1);
    k->moving_average(w->device->context, row_state_of(p), values, (double)p->cols, beta2_of(p),
                      rows);
    if (p->is_matrix) {
        start_power_sums(w, values, row_state_of(p), FSDP_DTYPE_F32, rows, 1, 1.0);
        put_row_values(w, &w->moments, i, ROW_MEANS);
    } else if (!p->is_vector) {
        average_columns(w, p, values);
    }
    return FSDP_OK;
}

/* Computes RMS(p) from the totals of the first round. For a matrix, also computes the mean of
 * exp_avg_sq_row and updates exp_avg_sq_col. Every rank stores RMS(p) as a state and, for a matrix,
 * the whole exp_avg_sq_col. So this function must also run on ranks that have no rows of the
 * parameter. */
static fsdp_status take_moments(const work *w, size_t i)
{
    part *p = &w->parts[i];
    const double *total = w->first[i].total;
    p->rms = rms_of(p, total[PARAM_SQUARES]);
    fsdp_device_from_host(w->device, state_of(p, RMS), &p->rms, sizeof p->rms);
    if (!p->is_matrix || !p->numel)
        return FSDP_OK;
    double rows = (double)w->first[i].rows;
    p->row_mean = (float)(total[ROW_MEANS] / rows);
    w->device->kernels->moving_average(w->device->context, state_of(p, EXP_AVG_SQ_COL),
                                       fsdp_row_sums_send_total(&w->moments, i) + COLUMNS, rows,
                                       beta2_of(p), p->cols);
    return FSDP_OK;
}

/* --- second round: updates --- */

static float mean_of(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    return (float)(sum / (double)n);
}

/* Sets *mean to the mean of exp_avg_sq_row over the rows of one matrix. The row factors are
 * computed from exp_avg_sq_row divided by this mean. If the parameter is a single matrix, the mean
 * was computed in the first round. If the parameter consists of several matrices, this function
 * computes the mean now. For a vector, *mean is 1. */
static fsdp_status mean_of_rows(const work *w, const part *p, int64_t matrix, float *mean)
{
    *mean = p->is_matrix ? p->row_mean : 1.0f;
    if (p->is_vector || p->is_matrix)
        return FSDP_OK;
    FSDP_TRY(fsdp_device_to_host(w->device, w->row_state, row_state_of(p) + matrix * p->rows,
                                 (size_t)p->rows * sizeof *w->row_state));
    *mean = mean_of(w->row_state, p->rows);
    return FSDP_OK;
}

/* Computes the row factors and column factors of a matrix (_approx_sq_grad in transformers). Sets
 * the fields of `args` from which a kernel computes u. */
static fsdp_status compute_factors(const work *w, const part *p, int64_t matrix,
                                   fsdp_adafactor_args *args)
{
    const fsdp_kernels *k = w->device->kernels;
    const float *row_state = row_state_of(p) + matrix * p->rows;
    float *rows = fsdp_tensor_ptr(w->factors), *cols = rows + p->rows;
    float mean;
    FSDP_TRY(mean_of_rows(w, p, matrix, &mean));
    k->rsqrt(w->device->context, rows, row_state, mean, p->rows);
    if (p->is_vector)
        k->fill(w->device->context, cols, FSDP_DTYPE_F32, 1.0, 1);
    else
        k->rsqrt(w->device->context, cols, state_of(p, EXP_AVG_SQ_COL) + matrix * p->cols, 1.0f,
                 p->cols);
    *args = (fsdp_adafactor_args){.rows = p->rows,
                                  .cols = p->cols,
                                  .grad = grad_of(p, matrix),
                                  .row_factor = rows,
                                  .col_factor = cols,
                                  .grad_scale = w->grad_scale};
    return FSDP_OK;
}

static fsdp_status put_updates(const work *w, size_t i)
{
    const part *p = &w->parts[i];
    double *values = fsdp_tensor_ptr(w->row_values);
    for (int64_t m = 0; m < p->n_matrices; m++) {
        fsdp_adafactor_args args;
        FSDP_TRY(compute_factors(w, p, m, &args));
        w->device->kernels->adafactor_square_sums(w->device->context, values + m * p->rows, &args);
    }
    put_row_values(w, &w->updates, i, 0);
    return FSDP_OK;
}

static fsdp_status take_updates(const work *w, size_t i)
{
    part *p = &w->parts[i];
    double ratio = (double)rms_of(p, w->second[i].total[0]) / p->options->clip_threshold;
    p->divisor = ratio <= 1.0 ? 1.0f : (float)ratio; /* NaN stays NaN */
    return FSDP_OK;
}

/* --- the functions of fsdp_whole_step --- */

static void end(void *arg)
{
    work *w = arg;
    if (!w)
        return;
    fsdp_free(w->row_state);
    fsdp_tensor_release(w->factors);
    fsdp_tensor_release(w->row_values);
    fsdp_row_sums_close(&w->updates);
    fsdp_row_sums_close(&w->moments);
    fsdp_free(w->second);
    fsdp_free(w->first);
    fsdp_free(w->parts);
    fsdp_free(w);
}

/* Allocates row_values, factors and row_state, large enough for any of the parameters. */
static fsdp_status create_scratch(work *w)
{
    int64_t values = 0, factors = 0, rows_of_matrix = 0;
    for (size_t i = 0; i < w->n; i++) {
        const part *p = &w->parts[i];
        int64_t rows = rows_of(p);
        values = rows > values ? rows : values;
        values = p->cols > values ? p->cols : values;
        factors = p->rows + p->cols > factors ? p->rows + p->cols : factors;
        if (!p->is_vector && !p->is_matrix)
            rows_of_matrix = p->rows > rows_of_matrix ? p->rows : rows_of_matrix;
    }
    w->row_state = fsdp_calloc((size_t)rows_of_matrix + 1, sizeof *w->row_state);
    if (!w->row_state)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_tensor_create(w->device, FSDP_DTYPE_F64, 1, (int64_t[]){values}, FSDP_TAG_OPTIM,
                                &w->row_values));
    return fsdp_tensor_create(w->device, FSDP_DTYPE_F32, 1, (int64_t[]){factors}, FSDP_TAG_OPTIM,
                              &w->factors);
}

static fsdp_status open_work(const fsdp_step_item *items, size_t n, work *w)
{
    w->parts = fsdp_calloc(n, sizeof *w->parts);
    w->first = fsdp_calloc(n, sizeof *w->first);
    w->second = fsdp_calloc(n, sizeof *w->second);
    if (!w->parts || !w->first || !w->second)
        return FSDP_ERR_NOMEM;
    w->n = n;
    w->device = items[0].local->storage->device;
    for (size_t i = 0; i < n; i++)
        describe_part(&items[i], &w->parts[i], &w->first[i], &w->second[i]);
    FSDP_TRY(create_scratch(w));
    FSDP_TRY(fsdp_row_sums_open(&w->moments, w->first, n, FSDP_REDUCE_SUM, w->device));
    return fsdp_row_sums_open(&w->updates, w->second, n, FSDP_REDUCE_SUM, w->device);
}

typedef fsdp_status round_fn(const work *w, size_t i);

/* Calls `write` for parameter i. During this call, all states of the parameter except exp_avg are
 * open for writing. apply() later writes exp_avg and the parameter itself. */
static fsdp_status write_averages(const work *w, size_t i, round_fn *write)
{
    const unsigned averages = FSDP_ALL_STATES & ~(1u << EXP_AVG);
    const fsdp_step_item *item = w->parts[i].item;
    FSDP_TRY(fsdp_step_item_begin_state(item, averages));
    fsdp_status status = write(w, i);
    fsdp_step_item_end_state(item, averages);
    return status;
}

/* Runs one of the two rounds for all parameters. First `put` stores the sums of this rank's rows.
 * Then one gather adds up the sums of all ranks, and `take` reads the totals. */
static fsdp_status run_round(const work *w, fsdp_row_sums *sums, round_fn *put, round_fn *take)
{
    bool computes = w->device->kernels;
    for (size_t i = 0; computes && i < w->n; i++) {
        const fsdp_tensor *local = w->parts[i].item->local;
        if (!fsdp_tensor_numel(local))
            continue;
        FSDP_TRY(fsdp_tensor_begin_read(local));
        fsdp_status status = write_averages(w, i, put);
        fsdp_tensor_end_read(local);
        FSDP_TRY(status);
    }
    FSDP_TRY(fsdp_row_sums_gather(sums));
    for (size_t i = 0; computes && i < w->n; i++)
        FSDP_TRY(write_averages(w, i, take));
    return FSDP_OK;
}

static fsdp_status begin_step(const fsdp_step_item *items, size_t n, float grad_scale, void **out)
{
    work *w = fsdp_calloc(1, sizeof *w);
    if (!w)
        return FSDP_ERR_NOMEM;
    *out = w;
    w->grad_scale = grad_scale;
    FSDP_TRY(open_work(items, n, w));
    FSDP_TRY(run_round(w, &w->moments, put_moments, take_moments));
    return run_round(w, &w->updates, put_updates, take_updates);
}

static fsdp_status apply(void *arg, size_t i)
{
    const work *w = arg;
    const part *p = &w->parts[i];
    const fsdp_adafactor_options *o = p->options;
    fsdp_tensor *local = p->item->local;
    if (!w->device->kernels || !fsdp_tensor_numel(local))
        return FSDP_OK;
    for (int64_t m = 0; m < p->n_matrices; m++) {
        int64_t at = m * p->rows * p->cols;
        fsdp_adafactor_args args;
        FSDP_TRY(compute_factors(w, p, m, &args));
        args.param = (char *)fsdp_tensor_ptr(local) + (size_t)at * fsdp_dtype_size(local->dtype);
        args.param_dtype = local->dtype;
        args.exp_avg = has_first_moment(o) ? state_of(p, EXP_AVG) + at : NULL;
        args.divisor = p->divisor;
        args.lr = rate_of(o, p->item->step, p->rms);
        args.beta1 = has_first_moment(o) ? o->beta1 : 0.0;
        args.weight_decay = o->weight_decay;
        w->device->kernels->adafactor(w->device->context, &args);
    }
    return FSDP_OK;
}

static const fsdp_whole_step whole = {.begin = begin_step, .apply = apply, .end = end};

static const fsdp_optimizer_class adafactor = {.state_names = state_names,
                                               .name = name,
                                               .check = check_options,
                                               .state_shape = state_shape,
                                               .lr = lr,
                                               .own_lr = own_lr,
                                               .whole = &whole};

static fsdp_optimizer_options options_of(const fsdp_adafactor_options *options)
{
    return (fsdp_optimizer_options){.adafactor = options ? *options : fsdp_adafactor_defaults()};
}

fsdp_status fsdp_adafactor_create(fsdp_module *module, const fsdp_adafactor_options *options,
                                  fsdp_optimizer **optimizer)
{
    fsdp_optimizer_options o = options_of(options);
    return fsdp_optimizer_create(&adafactor, module, &o, optimizer);
}

fsdp_status fsdp_adafactor_add_group(fsdp_optimizer *optimizer,
                                     const fsdp_parameter_list *parameters,
                                     const fsdp_adafactor_options *options)
{
    fsdp_optimizer_options o = options_of(options);
    return fsdp_optimizer_add_group(&adafactor, optimizer, parameters, &o);
}
