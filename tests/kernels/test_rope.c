/* rope: a naive loop in double, known values, the inverse rotation, and the bits of every
 * variant. */
#include "tests/kernels/operands.h"

typedef struct shape {
    int64_t tokens, heads, head_dim;
} shape;

/* No token, one pair, halves that are not a multiple of a vector, several blocks, several tasks. */
static const shape shapes[] = {{0, 2, 8},   {1, 1, 2},    {5, 3, 10},   {7, 1, 34}, {3, 2, 64},
                               {33, 4, 80}, {2, 1, 1030}, {300, 5, 64}, {3, 2, 0}};
enum {
    N_SHAPES = sizeof shapes / sizeof *shapes,
    POSITIONS = 40
};

/* Rows are unit vectors, as cosines and sines are. */
static void fill_table(float *table, int64_t head_dim)
{
    int64_t half = head_dim / 2;
    for (int64_t p = 0; p < POSITIONS; p++)
        for (int64_t j = 0; j < half; j++) {
            double angle = (double)p * pow(10000.0, -(double)j / (double)half);
            table[p * head_dim + j] = (float)cos(angle);
            table[p * head_dim + half + j] = (float)sin(angle);
        }
}

/* Element e of x after rotation. */
static double naive_rope(const void *x, fsdp_dtype dtype, const float *table,
                         const int32_t *positions, shape s, int64_t e, bool inverse)
{
    int64_t half = s.head_dim / 2, token = e / (s.heads * s.head_dim), d = e % s.head_dim;
    const float *row = table + positions[token] * s.head_dim;
    double cosine = (double)row[d % half], sine = (double)row[half + d % half];
    double pair = d < half ? -value_of(x, dtype, e + half) : value_of(x, dtype, e - half);
    return value_of(x, dtype, e) * cosine + pair * (inverse ? -sine : sine);
}

static void check_rope(fsdp_test *t, const variants *v, shape s, fsdp_dtype dtype, bool inverse)
{
    operands o = {.n = 0};
    int64_t n = s.tokens * s.heads * s.head_dim;
    size_t bytes = (size_t)n * fsdp_dtype_size(dtype);
    void *x = operand(&o, dtype, n), *first = operand(&o, dtype, n), *out = operand(&o, dtype, n);
    float *table = operand(&o, FSDP_DTYPE_F32, POSITIONS * s.head_dim);
    int32_t *positions = operand(&o, FSDP_DTYPE_I32, s.tokens);
    fill_uniform(x, dtype, n, 1, -3.0, 3.0);
    fill_table(table, s.head_dim);
    for (int64_t i = 0; i < s.tokens; i++)
        positions[i] = (int32_t)(i * 7 % POSITIONS);
    for (int j = 0; j < v->n; j++) {
        v->at[j].k->rope(v->at[j].c, j ? out : first, x, dtype, table, positions, s.tokens, s.heads,
                         s.head_dim, inverse);
        ASSERT(j == 0 || memcmp(out, first, bytes) == 0);
        memcpy(out, x, bytes);
        v->at[j].k->rope(v->at[j].c, out, out, dtype, table, positions, s.tokens, s.heads,
                         s.head_dim, inverse);
        ASSERT(memcmp(out, first, bytes) == 0); /* in place */
    }
    for (int64_t e = 0; e < n; e++) {
        double want = naive_rope(x, dtype, table, positions, s, e, inverse);
        ASSERT_NEAR(value_of(first, dtype, e), want,
                    rounding_of(dtype) * fabs(want) + 5e-7 + floor_of(dtype));
    }
    ASSERT(operands_close(&o));
}

TEST(rope_equals_the_naive_loop)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int s = 0; s < N_SHAPES; s++)
        for (int d = 0; d < 3; d++)
            for (int inverse = 0; inverse < 2; inverse++) {
                check_rope(t, &v, shapes[s], float_dtypes[d], inverse != 0);
                CHECK_HERE();
            }
    variants_close(&v);
}

/* Position 0 changes nothing; a rotation by 90 degrees turns (low, high) into (-high, low). */
TEST(rope_turns_pairs_of_halves)
{
    variants v = variants_open(t);
    CHECK_HERE();
    static const float table[] = {1, 1, 0, 0, 0, 1, 1, 0}; /* second row: pair 0 by 90 degrees */
    static const float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8};
    static const float want[] = {1, 2, 3, 4, 5, 6, 7, 8, -3, 2, 1, 4, -7, 6, 5, 8};
    static const int32_t positions[] = {0, 1};
    for (int j = 0; j < v.n; j++) {
        float y[16];
        v.at[j].k->rope(v.at[j].c, y, x, FSDP_DTYPE_F32, table, positions, 2, 2, 4, false);
        for (int i = 0; i < 16; i++)
            ASSERT_F32(y[i], want[i]);
    }
    variants_close(&v);
}

TEST(rope_there_and_back_is_the_identity)
{
    enum {
        TOKENS = 9,
        HEADS = 3,
        DIM = 26,
        N = TOKENS * HEADS * DIM
    };
    variants v = variants_open(t);
    CHECK_HERE();
    float x[N], y[N], table[POSITIONS * DIM];
    int32_t positions[TOKENS];
    fill_uniform(x, FSDP_DTYPE_F32, N, 1, -1.0, 1.0);
    fill_table(table, DIM);
    for (int i = 0; i < TOKENS; i++)
        positions[i] = POSITIONS - 1 - i;
    for (int j = 0; j < v.n; j++) {
        v.at[j].k->rope(v.at[j].c, y, x, FSDP_DTYPE_F32, table, positions, TOKENS, HEADS, DIM,
                        false);
        v.at[j].k->rope(v.at[j].c, y, y, FSDP_DTYPE_F32, table, positions, TOKENS, HEADS, DIM,
                        true);
        for (int i = 0; i < N; i++)
            ASSERT_NEAR(y[i], x[i], 3e-7);
    }
    variants_close(&v);
}

/* The purpose of rope (Su et al. 2021, equation 16): products of two rotated rows depend only on
 * the difference of their positions. */
TEST(rope_products_depend_on_distance_alone)
{
    enum {
        DIM = 16
    };
    variants v = variants_open(t);
    CHECK_HERE();
    float x[2 * DIM], y[2 * DIM], table[POSITIONS * DIM];
    double product[2] = {0.0, 0.0};
    fill_uniform(x, FSDP_DTYPE_F32, 2 * DIM, 1, -1.0, 1.0);
    fill_table(table, DIM);
    for (int i = 0; i < 2; i++) {
        v.at[0].k->rope(v.at[0].c, y, x, FSDP_DTYPE_F32, table,
                        (const int32_t[]){i * 30, i * 30 + 5}, 2, 1, DIM, false);
        for (int d = 0; d < DIM; d++)
            product[i] += (double)y[d] * (double)y[DIM + d];
    }
    ASSERT_NEAR(product[0], product[1], 1e-5);
    variants_close(&v);
}
