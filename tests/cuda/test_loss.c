/* cross_entropy and argmax on a CUDA device. */
#include "tests/cuda/conform.h"

enum {
    ROWS = 5
};

/* Rows: ordinary, ignored, a large label, one dominant logit, a wide spread. */
static void check_loss(conform *x, int64_t vocab, int64_t ld, fsdp_dtype dtype, bool gradient,
                       float smoothing)
{
    fsdp_test *t = x->t;
    int32_t labels[ROWS] = {0, -100, (int32_t)(vocab - 1), (int32_t)(vocab / 2), 0};
    conform_array *logits = conform_input(x, dtype, ROWS * ld, 1, -6.0, 6.0);
    conform_array *losses = conform_output(x, FSDP_DTYPE_F32, ROWS);
    set_value(logits->host, dtype, 3 * ld + vocab / 2, 50.0);
    for (int64_t i = 0; i < vocab; i++)
        set_value(logits->host, dtype, 4 * ld + i, -150.0 * (double)i / (double)vocab + 100.0);
    /* What is between rows is neither read nor written. */
    for (int r = 0; r < ROWS; r++)
        for (int64_t i = vocab; i < ld; i++)
            set_value(logits->host, dtype, r * ld + i, 60.0);
    conform_send(x, logits);
    if (smoothing > 0.0f) {
        x->k->smoothed_cross_entropy(x->c, losses->host, logits->host, dtype, labels, ROWS, vocab,
                                     ld, gradient, 0.25f, smoothing);
        x->dk->smoothed_cross_entropy(x->dc, losses->device, logits->device, dtype, labels, ROWS,
                                      vocab, ld, gradient, 0.25f, smoothing);
    } else {
        x->k->cross_entropy(x->c, losses->host, logits->host, dtype, labels, ROWS, vocab, ld,
                            gradient, 0.25f);
        x->dk->cross_entropy(x->dc, losses->device, logits->device, dtype, labels, ROWS, vocab, ld,
                             gradient, 0.25f);
    }
    memset(labels, 0, sizeof labels); /* the call has copied them */
    conform_near(x, losses, 1e-6, 2e-6, "loss");
    CHECK_HERE();
    if (gradient)
        conform_near(x, logits, dtype == FSDP_DTYPE_F32 ? 2e-5 : 2.0 * rounding_of(dtype),
                     dtype == FSDP_DTYPE_F16 ? 1e-7 : 1e-7, "gradient");
    else
        conform_equal(x, logits, "logits");
    conform_free(x);
}

/* Up to 113 KiB a row is kept in shared memory, the widest row is not. */
TEST(cross_entropy_equals_the_cpu)
{
    static const int64_t vocabularies[] = {1, 2, 7, 8, 17, 1000, 2049, 8192, 12345};
    CONFORM_OPEN(x);
    for (int i = 0; i < 9; i++)
        for (int d = 0; d < 3; d++)
            for (int gradient = 0; gradient < 2; gradient++) {
                x.offset = (i + d) % 3 == 1 ? sizeof(float) : 0;
                check_loss(&x, vocabularies[i], vocabularies[i], float_dtypes[d], gradient, 0.0f);
                CHECK_HERE();
                check_loss(&x, vocabularies[i], (vocabularies[i] + 64) / 64 * 64, float_dtypes[d],
                           gradient, 0.1f * (float)(i % 2));
                CHECK_HERE();
            }
    x.offset = 0;
    check_loss(&x, 50260, 50260, FSDP_DTYPE_F32, true, 0.1f);
    CHECK_HERE();
    check_loss(&x, 65001, 65024, FSDP_DTYPE_BF16, true, 0.0f);
    CHECK_HERE();
    conform_close(&x);
}

TEST(cross_entropy_of_no_rows_does_nothing)
{
    CONFORM_OPEN(x);
    x.dk->cross_entropy(x.dc, NULL, NULL, FSDP_DTYPE_F32, NULL, 0, 10, 10, true, 1.0f);
    ASSERT_OK(fsdp_device_synchronize(x.gpu));
    conform_close(&x);
}

/* The bits of a row do not depend on where it is: rows of odd width have other alignments. */
TEST(cross_entropy_of_a_row_has_the_same_bits_in_any_row)
{
    enum {
        V = 3001
    };
    CONFORM_OPEN(x);
    int32_t labels[ROWS] = {5, 5, 5, 5, 5};
    conform_array *logits = conform_input(&x, FSDP_DTYPE_BF16, ROWS * V, 1, -6.0, 6.0);
    conform_array *losses = conform_output(&x, FSDP_DTYPE_F32, ROWS);
    for (int r = 1; r < ROWS; r++)
        memcpy((uint16_t *)logits->host + r * V, logits->host, V * 2);
    conform_send(&x, logits);
    x.dk->cross_entropy(x.dc, losses->device, logits->device, FSDP_DTYPE_BF16, labels, ROWS, V, V,
                        true, 0.25f);
    conform_fetch(&x, logits);
    conform_fetch(&x, losses);
    for (int r = 1; r < ROWS; r++) {
        ASSERT(memcmp((uint16_t *)logits->result + r * V, logits->result, V * 2) == 0);
        ASSERT_F32(((float *)losses->result)[r], ((float *)losses->result)[0]);
    }
    conform_close(&x);
}

static float loss_of(conform *x, conform_array *logits, conform_array *loss, int32_t label,
                     bool gradient)
{
    conform_send(x, logits);
    x->dk->cross_entropy(x->dc, loss->device, logits->device, FSDP_DTYPE_F32, &label, 1, logits->n,
                         logits->n, gradient, 1.0f);
    conform_fetch(x, loss);
    conform_fetch(x, logits);
    return *(float *)loss->result;
}

/* -infinity is a masked word. A NaN or +infinity anywhere makes the loss NaN. */
TEST(cross_entropy_of_special_logits)
{
    enum {
        V = 600
    };
    CONFORM_OPEN(x);
    conform_array *logits = conform_output(&x, FSDP_DTYPE_F32, V);
    conform_array *loss = conform_output(&x, FSDP_DTYPE_F32, 1);
    float *l = logits->host, *gradient = logits->result;
    for (int i = 0; i < V; i++)
        l[i] = i < 598 ? -INFINITY : 1.0f;
    ASSERT_NEAR(loss_of(&x, logits, loss, 599, true), log(2.0), 1e-6);
    ASSERT_F32(gradient[0], 0.0);
    ASSERT_NEAR(gradient[598], 0.5, 1e-6);
    ASSERT_NEAR(gradient[599], -0.5, 1e-6);
    for (int at = 0; at < V; at += 299)
        for (int kind = 0; kind < 2; kind++) {
            for (int i = 0; i < V; i++)
                l[i] = 0.0f;
            l[at] = kind ? INFINITY : NAN;
            ASSERT(isnan(loss_of(&x, logits, loss, 599, false)));
        }
    conform_close(&x);
}

/* --- targets that are numbers --- */

/* Rows of one and of many numbers; the second row is ignored. */
TEST(target_loss_equals_the_cpu)
{
    static const int64_t widths[] = {1, 3, 32, 77};
    CONFORM_OPEN(x);
    x.dk->target_loss(x.dc, NULL, NULL, NULL, 0, 3, false, true, 1.0f);
    for (int i = 0; i < 16; i++) {
        const int64_t width = widths[i / 4], n = ROWS * width;
        const bool binary = i % 2, gradient = i / 2 % 2;
        float targets[ROWS * 77];
        conform_array *logits = conform_input(&x, FSDP_DTYPE_F32, n, 1, -40.0, 40.0);
        conform_array *losses = conform_output(&x, FSDP_DTYPE_F32, ROWS);
        fill_uniform(targets, FSDP_DTYPE_F32, n, 2, 0.0, 1.0);
        targets[width] = NAN;
        x.k->target_loss(x.c, losses->host, logits->host, targets, ROWS, width, binary, gradient,
                         0.25f);
        x.dk->target_loss(x.dc, losses->device, logits->device, targets, ROWS, width, binary,
                          gradient, 0.25f);
        memset(targets, 0, sizeof targets);
        conform_near(&x, losses, 1e-6, 0.0, "loss");
        CHECK_HERE();
        conform_near(&x, logits, 1e-6, 1e-12, "gradient");
        conform_free(&x);
        CHECK_HERE();
    }
    conform_close(&x);
}

/* --- argmax --- */

/* Rows: ordinary, many equal, -infinity, NaN, zeros of both signs, NaNs of both signs. */
TEST(argmax_equals_the_cpu)
{
    static const int64_t widths[] = {1, 2, 7, 8, 33, 255, 2049, 4104};
    enum {
        KINDS = 6
    };
    CONFORM_OPEN(x);
    for (int w = 0; w < 8; w++)
        for (int d = 0; d < 3; d++) {
            const int64_t n = widths[w];
            const fsdp_dtype dtype = float_dtypes[d];
            x.offset = (w + d) % 3 == 1 ? sizeof(float) : 0;
            conform_array *in = conform_input(&x, dtype, KINDS * n, 5, -9.0, -8.0);
            conform_array *index = conform_output(&x, FSDP_DTYPE_I32, KINDS);
            for (int64_t i = 0; i < n; i++) {
                set_value(in->host, dtype, n + i, (double)(i * 7 % 5));
                set_value(in->host, dtype, 2 * n + i, -(double)INFINITY);
                set_value(in->host, dtype, 4 * n + i, i % 2 ? 0.0 : -0.0);
            }
            set_value(in->host, dtype, 3 * n + n / 3, (double)NAN);
            set_value(in->host, dtype, 5 * n + n / 2, (double)INFINITY);
            set_value(in->host, dtype, 5 * n + n / 3, -(double)NAN);
            set_value(in->host, dtype, 5 * n + n - 1, n > 2 ? (double)NAN : -(double)NAN);
            conform_send(&x, in);
            x.k->argmax(x.c, index->host, in->host, dtype, KINDS, n);
            x.dk->argmax(x.dc, index->device, in->device, dtype, KINDS, n);
            conform_equal(&x, index, "argmax");
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}
