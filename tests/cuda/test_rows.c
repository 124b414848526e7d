/* rope, and the kernels that move rows, on a CUDA device: compared with the CPU. */
#include "tests/cuda/conform.h"

/* --- rope --- */

static void check_rope(conform *x, int64_t tokens, int64_t heads, int64_t head_dim,
                       fsdp_dtype dtype, bool inverse, bool in_place)
{
    enum {
        POSITIONS = 50
    };
    const int64_t n = tokens * heads * head_dim;
    conform_array *in = conform_input(x, dtype, n, 1, -2.0, 2.0);
    conform_array *out = in_place ? in : conform_output(x, dtype, n);
    conform_array *table = conform_input(x, FSDP_DTYPE_F32, POSITIONS * head_dim, 2, -1.0, 1.0);
    int32_t *positions = malloc((size_t)(tokens + 1) * sizeof *positions);
    for (int64_t i = 0; i < tokens; i++)
        positions[i] = (int32_t)(i * 7 % POSITIONS);
    x->dk->rope(x->dc, out->device, in->device, dtype, table->device, positions, tokens, heads,
                head_dim, inverse);
    x->k->rope(x->c, out->host, in->host, dtype, table->host, positions, tokens, heads, head_dim,
               inverse);
    free(positions);
    conform_near(x, out, dtype == FSDP_DTYPE_F32 ? 1e-6 : 2.0 * rounding_of(dtype), 1e-6, "rope");
    conform_free(x);
}

TEST(rope_equals_the_cpu)
{
    static const int64_t shapes[][3] = {{0, 2, 8},   {3, 0, 8},   {1, 1, 2},   {5, 3, 6},
                                        {9, 2, 16},  {33, 4, 32}, {7, 12, 64}, {3, 5, 128},
                                        {2, 1, 700}, {2, 3, 1600}};
    CONFORM_OPEN(x);
    for (int s = 0; s < 10; s++)
        for (int d = 0; d < 3; d++) {
            x.offset = (s + d) % 3 == 0 ? sizeof(float) : 0;
            check_rope(&x, shapes[s][0], shapes[s][1], shapes[s][2], float_dtypes[d], (s + d) % 2,
                       s % 2);
            CHECK_HERE();
        }
    conform_close(&x);
}

/* --- gather_rows, scatter_rows --- */

/* Bytes with values that differ. */
static conform_array *conform_bytes(conform *x, int64_t n)
{
    conform_array *a = conform_output(x, FSDP_DTYPE_U8, n);
    for (int64_t i = 0; i < n; i++)
        ((uint8_t *)a->host)[i] = (uint8_t)fsdp_mix64((uint64_t)i);
    conform_send(x, a);
    return a;
}

static const int64_t row_bytes[] = {0, 1, 2, 6, 7, 8, 12, 16, 48, 254, 1536, 8208};
enum {
    N_ROW_BYTES = sizeof row_bytes / sizeof *row_bytes
};

TEST(gather_rows_equals_the_cpu)
{
    static const int64_t counts[] = {0, 1, 37};
    CONFORM_OPEN(x);
    for (int b = 0; b < N_ROW_BYTES; b++)
        for (int i = 0; i < 3; i++) {
            x.offset = b % 2 ? (size_t)b : 0;
            const int64_t n = counts[i], bytes = row_bytes[b];
            int32_t rows[37];
            for (int r = 0; r < 37; r++)
                rows[r] = r * 5 % 11;
            conform_array *in = conform_bytes(&x, 11 * bytes);
            conform_array *out = conform_output(&x, FSDP_DTYPE_U8, n * bytes);
            x.dk->gather_rows(x.dc, out->device, in->device, rows, n, (size_t)bytes);
            x.k->gather_rows(x.c, out->host, in->host, rows, n, (size_t)bytes);
            memset(rows, 0, sizeof rows); /* the call has copied them */
            conform_equal(&x, out, "gather_rows");
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}

TEST(scatter_rows_equals_the_cpu)
{
    static const int64_t counts[] = {0, 1, 29};
    CONFORM_OPEN(x);
    for (int b = 0; b < N_ROW_BYTES; b++)
        for (int i = 0; i < 3; i++) {
            x.offset = b % 2 ? (size_t)b : 0;
            const int64_t n = counts[i], bytes = row_bytes[b], out_rows = 31;
            int32_t rows[29];
            for (int r = 0; r < 29; r++)
                rows[r] = r * 7 % 31;
            conform_array *in = conform_bytes(&x, n * bytes);
            conform_array *out = conform_output(&x, FSDP_DTYPE_U8, out_rows * bytes);
            x.dk->scatter_rows(x.dc, out->device, out_rows, in->device, rows, n, (size_t)bytes);
            x.k->scatter_rows(x.c, out->host, out_rows, in->host, rows, n, (size_t)bytes);
            memset(rows, 0, sizeof rows);
            conform_equal(&x, out, "scatter_rows");
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}

/* --- split_columns, join_columns --- */

enum {
    MOST_PARTS = 70 /* more than one launch has */
};

static void check_columns(conform *x, int n, int64_t rows, int64_t bytes)
{
    fsdp_test *t = x->t;
    void *host[MOST_PARTS], *device[MOST_PARTS];
    conform_array *whole = conform_bytes(x, rows * n * bytes);
    conform_array *joined = conform_output(x, FSDP_DTYPE_U8, rows * n * bytes);
    conform_array *parts = conform_output(x, FSDP_DTYPE_U8, rows * n * bytes);
    for (int i = 0; i < n; i++) {
        host[i] = (char *)parts->host + rows * i * bytes;
        device[i] = (char *)parts->device + rows * i * bytes;
    }
    x->dk->split_columns(x->dc, device, whole->device, n, rows, (size_t)bytes);
    x->k->split_columns(x->c, host, whole->host, n, rows, (size_t)bytes);
    conform_equal(x, parts, "split_columns");
    CHECK_HERE();
    for (int i = 1; i < n; i += 3)
        host[i] = device[i] = NULL;
    x->dk->join_columns(x->dc, joined->device, (const void *const *)device, n, rows, (size_t)bytes);
    x->k->join_columns(x->c, joined->host, (const void *const *)host, n, rows, (size_t)bytes);
    conform_equal(x, joined, "join_columns");
    conform_free(x);
}

TEST(split_columns_and_join_columns_equal_the_cpu)
{
    static const int counts[] = {1, 2, 3, MOST_PARTS};
    static const int64_t row_counts[] = {0, 1, 19};
    CONFORM_OPEN(x);
    for (int i = 0; i < 4; i++)
        for (int r = 0; r < 3; r++)
            for (int b = 0; b < N_ROW_BYTES - (counts[i] == MOST_PARTS ? 2 : 0); b++) {
                x.offset = b % 3 == 1 ? (size_t)b : 0;
                check_columns(&x, counts[i], row_counts[r], row_bytes[b]);
                CHECK_HERE();
            }
    conform_close(&x);
}

/* --- segment_mean --- */

/* The CPU adds in the same order, so all bits are equal. */
TEST(segment_mean_and_its_gradient_equal_the_cpu)
{
    static const int32_t offsets[] = {0, 0, 1, 3, 3, 40, 49};
    static const int64_t widths[] = {0, 1, 7, 8, 33, 264, 1100};
    enum {
        SEGMENTS = 6,
        ROWS = 49
    };
    CONFORM_OPEN(x);
    for (int w = 0; w < 7; w++)
        for (int d = 0; d < 3; d++)
            for (int64_t n = 0; n <= SEGMENTS; n += SEGMENTS) {
                const int64_t width = widths[w], rows = offsets[n];
                const fsdp_dtype dtype = float_dtypes[d];
                int32_t sent[SEGMENTS + 1];
                memcpy(sent, offsets, sizeof sent);
                x.offset = (w + d) % 2 ? sizeof(float) : 0;
                conform_array *in = conform_input(&x, dtype, ROWS * width, 1, -2.0, 3.0);
                conform_array *out = conform_output(&x, dtype, n * width);
                conform_array *dy = conform_input(&x, dtype, n * width, 2, -2.0, 3.0);
                conform_array *dx = conform_output(&x, dtype, rows * width);
                x.dk->segment_mean(x.dc, out->device, in->device, dtype, sent, n, width);
                x.dk->segment_mean_backward(x.dc, dx->device, dy->device, dtype, sent, n, width);
                memset(sent, 0, sizeof sent);
                x.k->segment_mean(x.c, out->host, in->host, dtype, offsets, n, width);
                x.k->segment_mean_backward(x.c, dx->host, dy->host, dtype, offsets, n, width);
                conform_equal(&x, out, "segment_mean");
                conform_equal(&x, dx, "segment_mean_backward");
                conform_free(&x);
                CHECK_HERE();
            }
    conform_close(&x);
}
