/* cross_entropy and argmax. */
#include "tests/kernels/operands.h"

static const int64_t vocabularies[] = {1, 2, 15, 16, 17, 255, 1000, 32128};
enum {
    N_VOCABULARIES = sizeof vocabularies / sizeof *vocabularies
};

static double log_sum_exp(const void *x, fsdp_dtype dtype, int64_t start, int64_t n)
{
    double most = value_of(x, dtype, start), sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, value_of(x, dtype, start + i));
    for (int64_t i = 0; i < n; i++)
        sum += exp(value_of(x, dtype, start + i) - most);
    return most + log(sum);
}

enum {
    LOSS_ROWS = 5
};
static const float factor = 0.25f;

/* Compares the losses [LOSS_ROWS] of logits x [LOSS_ROWS, vocab], and the gradients unless NULL,
 * with the naive loop. */
static void check_values(fsdp_test *t, const void *x, fsdp_dtype dtype, int64_t vocab,
                         const int32_t *labels, const float *losses, const void *gradient)
{
    for (int r = 0; r < LOSS_ROWS; r++) {
        double lse = log_sum_exp(x, dtype, r * vocab, vocab);
        double want = labels[r] < 0 ? 0.0 : lse - value_of(x, dtype, r * vocab + labels[r]);
        ASSERT_NEAR(losses[r], want, 1e-6 * (1.0 + fabs(want)));
        for (int64_t i = 0; gradient && i < vocab; i++) {
            double below = value_of(x, dtype, r * vocab + i) - lse;
            double p = exp(below) - (i == labels[r]);
            double slope = labels[r] < 0 ? 0.0 : p * (double)factor;
            ASSERT_NEAR(value_of(gradient, dtype, r * vocab + i), slope,
                        (rounding_of(dtype) + 1e-6 - 1e-7 * below) * fabs(slope) +
                            (i == labels[r] ? 5e-7 : 1e-36) + floor_of(dtype));
        }
    }
}

/* Rows: ordinary, ignored, a large label, one dominant logit, a wide spread. */
static void check_loss(fsdp_test *t, const variants *v, int64_t vocab, fsdp_dtype dtype,
                       bool gradient)
{
    operands o = {.n = 0};
    int64_t n = LOSS_ROWS * vocab;
    size_t bytes = (size_t)n * fsdp_dtype_size(dtype);
    void *x = operand(&o, dtype, n), *first = operand(&o, dtype, n),
         *logits = operand(&o, dtype, n);
    float *first_losses = operand(&o, FSDP_DTYPE_F32, LOSS_ROWS);
    float *losses = operand(&o, FSDP_DTYPE_F32, LOSS_ROWS);
    int32_t labels[LOSS_ROWS] = {0, -100, (int32_t)(vocab - 1), (int32_t)(vocab / 2), 0};
    fill_uniform(x, dtype, n, 1, -6.0, 6.0);
    set_value(x, dtype, 3 * vocab + vocab / 2, 50.0);
    for (int64_t i = 0; i < vocab; i++)
        set_value(x, dtype, 4 * vocab + i, -150.0 * (double)i / (double)vocab + 100.0);
    for (int j = 0; j < v->n; j++) {
        bool begins = variants_begins_isa(v, j);
        memcpy(begins ? first : logits, x, bytes);
        v->at[j].k->cross_entropy(v->at[j].c, begins ? first_losses : losses,
                                  begins ? first : logits, dtype, labels, LOSS_ROWS, vocab, vocab,
                                  gradient, factor);
        if (begins)
            check_values(t, x, dtype, vocab, labels, first_losses, gradient ? first : NULL);
        CHECK_HERE();
        ASSERT(begins || memcmp(logits, first, bytes) == 0);
        ASSERT(begins || memcmp(losses, first_losses, LOSS_ROWS * sizeof *losses) == 0);
        ASSERT(gradient || memcmp(first, x, bytes) == 0);
    }
    ASSERT(operands_close(&o));
}

TEST(cross_entropy_equals_the_naive_loop)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int i = 0; i < N_VOCABULARIES; i++)
        for (int d = 0; d < 3; d++)
            for (int gradient = 0; gradient < 2; gradient++) {
                check_loss(t, &v, vocabularies[i], float_dtypes[d], gradient);
                CHECK_HERE();
            }
    variants_close(&v);
}

/* A row stride above the vocabulary: the losses and gradients are the same, and what is between the
 * rows is neither read nor written. */
TEST(cross_entropy_of_rows_with_a_stride)
{
    enum {
        V = 37,
        LD = 64,
        R = 3
    };
    variants v = variants_open(t);
    CHECK_HERE();
    const int32_t labels[R] = {36, -1, 0};
    for (int j = 0; j < v.n; j++) {
        float x[R * LD], packed[R * V], losses[R], packed_losses[R];
        fill_uniform(packed, FSDP_DTYPE_F32, R * V, 3, -6.0, 6.0);
        for (int i = 0; i < R * LD; i++)
            x[i] = i % LD < V ? packed[i / LD * V + i % LD] : 90.0f;
        v.at[j].k->cross_entropy(v.at[j].c, losses, x, FSDP_DTYPE_F32, labels, R, V, LD, true,
                                 0.5f);
        v.at[j].k->cross_entropy(v.at[j].c, packed_losses, packed, FSDP_DTYPE_F32, labels, R, V, V,
                                 true, 0.5f);
        ASSERT(memcmp(losses, packed_losses, sizeof losses) == 0);
        for (int i = 0; i < R * LD; i++)
            ASSERT_F32(x[i], i % LD < V ? packed[i / LD * V + i % LD] : 90.0f);
    }
    variants_close(&v);
}

/* -infinity is a masked word. A NaN or +infinity anywhere makes the loss NaN. */
TEST(cross_entropy_of_special_logits)
{
    enum {
        V = 600
    };
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++) {
        float x[V], loss;
        int32_t label = 599;
        for (int i = 0; i < V; i++)
            x[i] = i < 598 ? -INFINITY : 1.0f;
        v.at[j].k->cross_entropy(v.at[j].c, &loss, x, FSDP_DTYPE_F32, &label, 1, V, V, true, 1.0f);
        ASSERT_NEAR(loss, log(2.0), 1e-6);
        ASSERT_F32(x[0], 0.0);
        ASSERT_NEAR(x[598], 0.5, 1e-6);
        ASSERT_NEAR(x[599], -0.5, 1e-6);
        for (int at = 0; at < V; at += 299)
            for (int kind = 0; kind < 2; kind++) {
                for (int i = 0; i < V; i++)
                    x[i] = 0.0f;
                x[at] = kind ? INFINITY : NAN;
                v.at[j].k->cross_entropy(v.at[j].c, &loss, x, FSDP_DTYPE_F32, &label, 1, V, V,
                                         false, 1.0f);
                ASSERT(isnan(loss));
            }
    }
    variants_close(&v);
}

/* The gradient is the slope of the loss. */
TEST(cross_entropy_gradient_is_the_slope_of_the_loss)
{
    enum {
        V = 40
    };
    variants v = variants_open(t);
    CHECK_HERE();
    const variant *at = &v.at[0];
    float x[V], gradient[V], loss[2], h = 1e-2f;
    int32_t label = 17;
    fill_uniform(x, FSDP_DTYPE_F32, V, 1, -2.0, 2.0);
    memcpy(gradient, x, sizeof x);
    at->k->cross_entropy(at->c, loss, gradient, FSDP_DTYPE_F32, &label, 1, V, V, true, 1.0f);
    for (int i = 0; i < V; i++) {
        float was = x[i];
        for (int side = 0; side < 2; side++) {
            x[i] = was + (side ? h : -h);
            at->k->cross_entropy(at->c, &loss[side], x, FSDP_DTYPE_F32, &label, 1, V, V, false,
                                 1.0f);
        }
        x[i] = was;
        ASSERT_NEAR(gradient[i], (double)(loss[1] - loss[0]) / (2.0 * (double)h), 1e-4);
    }
    variants_close(&v);
}

TEST(argmax_is_the_first_of_the_largest)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (int d = 0; d < 3; d++)
            for (int s = 0; s < N_VOCABULARIES; s++) {
                enum {
                    ROWS = 4
                };
                int64_t width = vocabularies[s];
                operands o = {.n = 0};
                void *x = operand(&o, float_dtypes[d], ROWS * width);
                int32_t *index = operand(&o, FSDP_DTYPE_I32, ROWS);
                fill_uniform(x, float_dtypes[d], ROWS * width, 5, -9.0, -8.0);
                for (int64_t i = 0; i < width; i++)
                    set_value(x, float_dtypes[d], 2 * width + i, -(double)INFINITY);
                set_value(x, float_dtypes[d], 3 * width + width / 3, (double)NAN);
                v.at[j].k->argmax(v.at[j].c, index, x, float_dtypes[d], ROWS, width);
                for (int r = 0; r < 2; r++) {
                    int64_t want = 0;
                    for (int64_t i = 1; i < width; i++)
                        if (value_of(x, float_dtypes[d], r * width + i) >
                            value_of(x, float_dtypes[d], r * width + want))
                            want = i;
                    ASSERT_INT(index[r], want);
                }
                ASSERT_INT(index[2], 0);
                ASSERT_INT(index[3], width / 3);
                ASSERT(operands_close(&o));
            }
    variants_close(&v);
}
