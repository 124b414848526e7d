/* rms_norm, layer_norm and column_sum on a CUDA device, compared with the CPU. Sums have another
 * order on the device, so results may differ by the rounding of float32, and then by one unit in
 * the last place of a 16-bit dtype. */
#include "tests/cuda/conform.h"

typedef struct shape {
    int64_t rows, width;
} shape;

/* Empty, tiny, odd; a row for a warp and for a block; several slices of rows. The shapes from WIDE
 * on are for float32 only: two and four chunks a thread, and rows that are too wide for registers,
 * in backward (8200) and in forward (16388). */
static const shape shapes[] = {{0, 5},    {5, 0},    {1, 1},    {3, 7},    {5, 8},    {67, 16},
                               {130, 33}, {3, 1032}, {3, 2056}, {2, 4101}, {2, 4104}, {1, 16388}};
enum {
    N_SHAPES = sizeof shapes / sizeof *shapes,
    WIDE = 8,
    FORWARD_ONLY = 5000 /* wider rows take backward's plain kernels, as odd ones do */
};

typedef struct norm_case {
    shape s;
    fsdp_dtype dtype, w_dtype;
    bool layer;
    float beta;
} norm_case;

typedef struct norm_arrays {
    conform_array *x, *dy, *w, *bias, *mean, *rstd, *y, *dx, *dw, *dbias;
} norm_arrays;

static norm_arrays arrays_of(conform *x, const norm_case *k)
{
    const int64_t n = k->s.rows * k->s.width;
    return (norm_arrays){
        .x = conform_input(x, k->dtype, n, 1, -1.0, 3.0),
        .dy = conform_input(x, k->dtype, n, 2, -1.0, 1.0),
        .w = conform_input(x, k->w_dtype, k->s.width, 3, 0.5, 1.5),
        .bias = conform_input(x, k->w_dtype, k->s.width, 4, -1.0, 1.0),
        .mean = conform_output(x, FSDP_DTYPE_F32, k->s.rows),
        .rstd = conform_output(x, FSDP_DTYPE_F32, k->s.rows),
        .y = conform_output(x, k->dtype, n),
        .dx = conform_output(x, k->dtype, n),
        .dw = k->beta != 0.0f ? conform_input(x, k->w_dtype, k->s.width, 5, -1.0, 1.0)
                              : conform_output(x, k->w_dtype, k->s.width),
        .dbias = k->beta != 0.0f ? conform_input(x, k->w_dtype, k->s.width, 6, -1.0, 1.0)
                                 : conform_output(x, k->w_dtype, k->s.width),
    };
}

static void near(conform *x, conform_array *a, double absolute, const char *what)
{
    const double ulp = a->dtype == FSDP_DTYPE_F32 ? 1e-6 : 2.0 * rounding_of(a->dtype);
    conform_near(x, a, ulp, absolute, what);
}

static void run_forward(conform *x, const norm_case *k, const norm_arrays *a)
{
    const int64_t rows = k->s.rows, width = k->s.width;
    if (k->layer) {
        const bool biased = k->beta != 0.0f;
        x->k->layer_norm(x->c, a->y->host, a->mean->host, a->rstd->host, a->x->host, a->w->host,
                         biased ? a->bias->host : NULL, k->dtype, k->w_dtype, rows, width, 1e-5f);
        x->dk->layer_norm(x->dc, a->y->device, a->mean->device, a->rstd->device, a->x->device,
                          a->w->device, biased ? a->bias->device : NULL, k->dtype, k->w_dtype, rows,
                          width, 1e-5f);
        near(x, a->mean, 1e-6, "mean");
    } else {
        x->k->rms_norm(x->c, a->y->host, a->rstd->host, a->x->host, a->w->host, k->dtype,
                       k->w_dtype, rows, width, 1e-5f);
        x->dk->rms_norm(x->dc, a->y->device, a->rstd->device, a->x->device, a->w->device, k->dtype,
                        k->w_dtype, rows, width, 1e-5f);
    }
    near(x, a->rstd, 0.0, "rstd");
    near(x, a->y, 3e-6, "y");
}

/* Which gradients are computed. */
enum {
    DX = 1,
    DW = 2,
    DBIAS = 4,
    ALL = 7
};

static void run_backward_on(const fsdp_kernels *kernels, fsdp_kernel_context *c, bool host,
                            const norm_case *k, const norm_arrays *a, int which)
{
#define AT(name) (host ? a->name->host : a->name->device)
    if (!k->layer) {
        kernels->rms_norm_backward(c, which & DX ? AT(dx) : NULL, which & DW ? AT(dw) : NULL,
                                   k->w_dtype, k->beta, AT(dy), AT(x), AT(rstd), AT(w), k->dtype,
                                   k->w_dtype, k->s.rows, k->s.width);
        return;
    }
    kernels->layer_norm_backward(
        c, &(fsdp_layer_norm_backward_args){
               .dy = AT(dy),
               .x = AT(x),
               .w = AT(w),
               .mean = AT(mean),
               .rstd = AT(rstd),
               .dtype = k->dtype,
               .w_dtype = k->w_dtype,
               .rows = k->s.rows,
               .width = k->s.width,
               .dx = which & DX ? AT(dx) : NULL,
               .dw = {which & DW ? AT(dw) : NULL, k->w_dtype, k->beta},
               .dbias = {which & DBIAS ? AT(dbias) : NULL, k->w_dtype, k->beta}});
#undef AT
}

/* The device gets the CPU's mean and rstd. */
static void run_backward(conform *x, const norm_case *k, const norm_arrays *a)
{
    conform_send(x, a->mean);
    conform_send(x, a->rstd);
    run_backward_on(x->k, x->c, true, k, a, ALL);
    run_backward_on(x->dk, x->dc, false, k, a, ALL);
    const double sum = 1e-6 * sqrt((double)k->s.rows) + 2e-6;
    near(x, a->dx, 3e-6 * (k->s.width == 1 ? 300.0 : 1.0), "dx");
    near(x, a->dw, sum, "dw");
    if (k->layer)
        near(x, a->dbias, sum, "dbias");
}

static void check_norm(conform *x, norm_case k)
{
    fsdp_test *t = x->t;
    const norm_arrays a = arrays_of(x, &k);
    if (k.s.width)
        run_forward(x, &k, &a);
    CHECK_HERE();
    if (k.s.width <= FORWARD_ONLY)
        run_backward(x, &k, &a);
    conform_free(x);
}

static void check_norms(conform *x, bool layer)
{
    fsdp_test *t = x->t;
    for (int s = 0; s < N_SHAPES; s++)
        for (int d = 0; d < (s < WIDE ? 3 : 1); d++)
            for (int w = 0; w < 2; w++) {
                if (s < WIDE && d != s % 3 && w != (s + d) % 2)
                    continue;
                const fsdp_dtype w_dtype = float_dtypes[w ? (d + s) % 3 : 0];
                x->offset = w ? fsdp_dtype_size(FSDP_DTYPE_F32) : 0;
                check_norm(x, (norm_case){shapes[s], float_dtypes[d], w_dtype, layer, (float)w});
                CHECK_HERE();
            }
}

TEST(rms_norm_and_its_gradient_equal_the_cpu)
{
    CONFORM_OPEN(x);
    check_norms(&x, false);
    conform_close(&x);
}

TEST(layer_norm_and_its_gradient_equal_the_cpu)
{
    CONFORM_OPEN(x);
    check_norms(&x, true);
    conform_close(&x);
}

/* The mean is many deviations from zero, where E[x^2] - mean^2 would cancel. */
TEST(layer_norm_of_rows_far_from_zero_equals_the_cpu)
{
    CONFORM_OPEN(x);
    conform_array *in = conform_input(&x, FSDP_DTYPE_F32, 4 * 100, 1, 99.0, 101.0);
    conform_array *w = conform_input(&x, FSDP_DTYPE_F32, 100, 2, 0.5, 1.5);
    conform_array *mean = conform_output(&x, FSDP_DTYPE_F32, 4);
    conform_array *rstd = conform_output(&x, FSDP_DTYPE_F32, 4);
    x.k->layer_norm(x.c, NULL, mean->host, rstd->host, in->host, w->host, NULL, FSDP_DTYPE_F32,
                    FSDP_DTYPE_F32, 4, 100, 1e-5f);
    x.dk->layer_norm(x.dc, NULL, mean->device, rstd->device, in->device, w->device, NULL,
                     FSDP_DTYPE_F32, FSDP_DTYPE_F32, 4, 100, 1e-5f);
    conform_near(&x, mean, 1e-6, 0.0, "mean");
    conform_near(&x, rstd, 1e-4, 0.0, "rstd");
    conform_close(&x);
}

/* Each gradient has the same bits if it is computed alone. */
static void check_subsets(conform *x, bool layer, int64_t rows, int64_t width)
{
    fsdp_test *t = x->t;
    const norm_case k = {{rows, width}, FSDP_DTYPE_BF16, FSDP_DTYPE_F32, layer, 0.0f};
    norm_arrays a[2];
    for (int i = 0; i < 2; i++) {
        a[i] = arrays_of(x, &k);
        run_forward(x, &k, &a[i]);
        CHECK_HERE();
    }
    run_backward_on(x->dk, x->dc, false, &k, &a[0], ALL);
    for (int which = DX; which <= DBIAS; which *= 2)
        run_backward_on(x->dk, x->dc, false, &k, &a[1], which);
    conform_array *pairs[][2] = {{a[0].dx, a[1].dx}, {a[0].dw, a[1].dw}, {a[0].dbias, a[1].dbias}};
    for (int i = 0; i < (layer ? 3 : 2); i++) {
        conform_fetch(x, pairs[i][0]);
        memcpy(pairs[i][1]->host, pairs[i][0]->result,
               (size_t)pairs[i][0]->n * fsdp_dtype_size(pairs[i][0]->dtype));
        conform_equal(x, pairs[i][1], "computed alone");
        CHECK_HERE();
    }
    conform_free(x);
}

TEST(gradients_of_norms_have_the_same_bits_alone)
{
    CONFORM_OPEN(x);
    for (int layer = 0; layer < 2; layer++) {
        check_subsets(&x, layer, 37, 520);
        CHECK_HERE();
        check_subsets(&x, layer, 37, 31);
        CHECK_HERE();
    }
    conform_close(&x);
}

/* dx may be the same array as x. */
TEST(norm_gradients_may_overwrite_x)
{
    CONFORM_OPEN(x);
    for (int wide = 0; wide < 2; wide++) {
        const norm_case k = {{5, wide ? 8200 : 40}, FSDP_DTYPE_F16, FSDP_DTYPE_F32, true, 0.0f};
        norm_arrays a = arrays_of(&x, &k);
        run_forward(&x, &k, &a);
        conform_send(&x, a.mean);
        conform_send(&x, a.rstd);
        run_backward_on(x.k, x.c, true, &k, &a, ALL);
        void *dx = a.dx->device;
        a.dx->device = a.x->device;
        run_backward_on(x.dk, x.dc, false, &k, &a, ALL);
        near(&x, a.dx, 3e-6, "dx");
        near(&x, a.dw, 1e-5, "dw");
        a.dx->device = dx;
        conform_free(&x);
        CHECK_HERE();
    }
    conform_close(&x);
}

TEST(column_sum_equals_the_cpu)
{
    CONFORM_OPEN(x);
    for (int s = 0; s < N_SHAPES; s++)
        for (int d = 0; d < (s < WIDE ? 9 : shapes[s].width <= FORWARD_ONLY); d++) {
            const int64_t rows = shapes[s].rows * (s < WIDE ? 4 : 1), width = shapes[s].width;
            const fsdp_dtype dtype = float_dtypes[d % 3], to = float_dtypes[d / 3];
            const float beta = (float)((s + d) % 2);
            x.offset = d % 2 ? fsdp_dtype_size(FSDP_DTYPE_F32) : 0;
            conform_array *dy = conform_input(&x, dtype, rows * width, 1, -1.0, 1.0);
            conform_array *sum = beta != 0.0f ? conform_input(&x, to, width, 2, -1.0, 1.0)
                                              : conform_output(&x, to, width);
            x.k->column_sum(x.c, sum->host, to, beta, dy->host, dtype, rows, width);
            x.dk->column_sum(x.dc, sum->device, to, beta, dy->device, dtype, rows, width);
            near(&x, sum, 1e-6 * sqrt((double)rows) + 1e-7, "column_sum");
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}
