/* Rows by index: embedding, its gradient, gather_rows and scatter_rows. */
#include "tests/kernels/operands.h"

static const int64_t widths[] = {1, 7, 16, 48, 300};
enum {
    N_WIDTHS = sizeof widths / sizeof *widths
};

/* Half the tokens have one id, as padding or a frequent word would. */
static void draw_ids(int32_t *ids, int64_t tokens, int64_t vocab)
{
    for (int64_t i = 0; i < tokens; i++)
        ids[i] = uniform_of(7, i) < 0.5 ? (int32_t)(vocab - 1)
                                        : (int32_t)((double)vocab * uniform_of(8, i));
}

TEST(embedding_copies_and_casts_rows)
{
    enum {
        VOCAB = 300,
        TOKENS = 777
    };
    variants v = variants_open(t);
    CHECK_HERE();
    for (int w = 0; w < N_WIDTHS; w++)
        for (int d = 0; d < 9; d++) {
            fsdp_dtype to = float_dtypes[d % 3], from = float_dtypes[d / 3];
            int64_t width = widths[w];
            operands o = {.n = 0};
            int32_t *ids = operand(&o, FSDP_DTYPE_I32, TOKENS);
            void *weight = operand(&o, from, VOCAB * width), *out = operand(&o, to, TOKENS * width);
            draw_ids(ids, TOKENS, VOCAB);
            fill_uniform(weight, from, VOCAB * width, 1, -2.0, 2.0);
            for (int j = 0; j < v.n; j++) {
                memset(out, 0xff, (size_t)(TOKENS * width) * fsdp_dtype_size(to));
                v.at[j].k->embedding(v.at[j].c, out, to, weight, from, ids, TOKENS, width);
                for (int64_t i = 0; i < TOKENS * width; i++) {
                    double rounded[1] = {0.0}; /* large enough for any dtype */
                    int64_t at = ids[i / width] * width + i % width;
                    set_value(rounded, to, 0, value_of(weight, from, at));
                    ASSERT_F32(value_of(out, to, i), value_of(rounded, to, 0));
                }
            }
            ASSERT(operands_close(&o));
        }
    variants_close(&v);
}

/* Compares with a loop over tokens in double: the sum is rounded once, no matter how often a row
 * occurs. 40,000 tokens are more than one batch. */
static void check_backward(fsdp_test *t, const variants *v, int64_t tokens, int64_t vocab,
                           int64_t width, fsdp_dtype dtype, fsdp_dtype to, float beta,
                           int32_t padding_idx)
{
    operands o = {.n = 0};
    int64_t n = vocab * width;
    size_t bytes = (size_t)n * fsdp_dtype_size(to);
    int32_t *ids = operand(&o, FSDP_DTYPE_I32, tokens);
    void *dy = operand(&o, dtype, tokens * width), *old = operand(&o, to, n);
    void *first = operand(&o, to, n), *dw = operand(&o, to, n);
    double *want = operand(&o, FSDP_DTYPE_F64, n), *size = operand(&o, FSDP_DTYPE_F64, n);
    draw_ids(ids, tokens, vocab);
    fill_uniform(dy, dtype, tokens * width, 1, -1.0, 1.0);
    if (beta != 0.0f)
        fill_uniform(old, to, n, 2, -1.0, 1.0);
    for (int64_t i = 0; i < n; i++) {
        want[i] = beta != 0.0f ? value_of(old, to, i) : 0.0;
        size[i] = fabs(want[i]);
    }
    for (int64_t i = 0; i < tokens * width; i++) {
        if (ids[i / width] == padding_idx)
            continue;
        want[ids[i / width] * width + i % width] += value_of(dy, dtype, i);
        size[ids[i / width] * width + i % width] += fabs(value_of(dy, dtype, i));
    }
    for (int j = 0; j < v->n; j++) {
        memcpy(j ? dw : first, old, bytes);
        v->at[j].k->embedding_backward(v->at[j].c, j ? dw : first, to, beta, dy, dtype, ids, tokens,
                                       width, vocab, padding_idx);
        ASSERT(j == 0 || memcmp(dw, first, bytes) == 0);
    }
    for (int64_t i = 0; i < n; i++)
        ASSERT_NEAR(value_of(first, to, i), want[i],
                    rounding_of(to) * fabs(want[i]) + 2e-6 * size[i] + floor_of(to));
    ASSERT(operands_close(&o));
}

TEST(embedding_backward_adds_every_token_to_its_row)
{
    static const int64_t token_counts[] = {0, 1, 31, 1000};
    variants v = variants_open(t);
    CHECK_HERE();
    for (int w = 0; w < N_WIDTHS; w++)
        for (int n = 0; n < 4; n++)
            for (int d = 0; d < 12; d++) {
                fsdp_dtype dtype = float_dtypes[d % 3];
                check_backward(t, &v, token_counts[n], 70, widths[w], dtype,
                               d < 6 ? FSDP_DTYPE_F32 : dtype, (float)(d / 3 % 2), n == 3 ? 5 : -1);
                CHECK_HERE();
            }
    check_backward(t, &v, 40000, 70000, 3, FSDP_DTYPE_BF16, FSDP_DTYPE_F32, 0.0f, 69999);
    CHECK_HERE();
    check_backward(t, &v, 100, 1, 3, FSDP_DTYPE_F32, FSDP_DTYPE_F32, 1.0f, -1);
    CHECK_HERE();
    check_backward(t, &v, 100, 1, 3, FSDP_DTYPE_F32, FSDP_DTYPE_F32, 1.0f, 0);
    variants_close(&v);
}

/* In float32 the result has the same bits as a plain loop, since tokens are added in order. */
TEST(embedding_backward_adds_in_token_order)
{
    enum {
        TOKENS = 500,
        VOCAB = 11,
        WIDTH = 18
    };
    variants v = variants_open(t);
    CHECK_HERE();
    static float dy[TOKENS * WIDTH], dw[VOCAB * WIDTH], want[VOCAB * WIDTH];
    int32_t ids[TOKENS];
    draw_ids(ids, TOKENS, VOCAB);
    fill_uniform(dy, FSDP_DTYPE_F32, TOKENS * WIDTH, 1, -1.0, 1.0);
    for (int i = 0; i < TOKENS * WIDTH; i++)
        want[ids[i / WIDTH] * WIDTH + i % WIDTH] += dy[i];
    for (int j = 0; j < v.n; j++) {
        v.at[j].k->embedding_backward(v.at[j].c, dw, FSDP_DTYPE_F32, 0.0f, dy, FSDP_DTYPE_F32, ids,
                                      TOKENS, WIDTH, VOCAB, -1);
        ASSERT(memcmp(dw, want, sizeof dw) == 0);
    }
    variants_close(&v);
}

/* scatter_rows undoes gather_rows of distinct rows and zeroes the others. */
TEST(scatter_rows_is_the_transpose_of_gather_rows)
{
    static const size_t row_sizes[] = {2, 6, 64, 1030};
    enum {
        ROWS = 500
    };
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (int s = 0; s < 4; s++) {
            operands o = {.n = 0};
            size_t bytes = row_sizes[s];
            unsigned char *x = operand_bytes(&o, ROWS * bytes),
                          *back = operand_bytes(&o, ROWS * bytes);
            unsigned char *picked = operand_bytes(&o, ROWS / 2 * bytes);
            int32_t *rows = operand(&o, FSDP_DTYPE_I32, ROWS / 2);
            for (size_t i = 0; i < ROWS * bytes; i++)
                x[i] = (unsigned char)(i * 7 + i / 251);
            for (int i = 0; i < ROWS / 2; i++)
                rows[i] = (i * 6 + 3) % ROWS; /* the greatest common divisor of 6 and 500 is 2 */
            v.at[j].k->gather_rows(v.at[j].c, picked, x, rows, ROWS / 2, bytes);
            for (int i = 0; i < ROWS / 2; i++)
                ASSERT(memcmp(picked + (size_t)i * bytes, x + (size_t)rows[i] * bytes, bytes) == 0);
            v.at[j].k->scatter_rows(v.at[j].c, back, ROWS, picked, rows, ROWS / 2, bytes);
            for (int i = 0; i < ROWS; i++)
                for (size_t b = 0; b < bytes; b++)
                    ASSERT_INT(back[(size_t)i * bytes + b], i % 2 ? x[(size_t)i * bytes + b] : 0);
            v.at[j].k->scatter_rows(v.at[j].c, back, ROWS, picked, rows, 0, bytes);
            for (size_t b = 0; b < ROWS * bytes; b++)
                ASSERT_INT(back[b], 0);
            ASSERT(operands_close(&o));
        }
    variants_close(&v);
}
