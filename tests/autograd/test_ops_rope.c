/* rope: see gradcheck.h for what each op_check tests. */
#include "src/tensor/tensor.h"
#include "tests/autograd/gradcheck.h"

enum {
    POSITIONS = 12, /* rows of the table */
    MAX_DIM = 34
};

typedef struct rope_arg {
    int64_t heads, head_dim;
    const int32_t *positions;
} rope_arg;

static double angle(const rope_arg *a, int64_t position, int64_t j)
{
    return (double)position * pow(10000.0, -2.0 * (double)j / (double)a->head_dim);
}

/* The table as a model makes it, to be released by the caller; NULL if out of memory. */
static fsdp_tensor *make_table(fsdp_device *device, const rope_arg *a)
{
    float values[POSITIONS * MAX_DIM];
    fsdp_tensor *table;
    for (int64_t p = 0; p < POSITIONS; p++)
        for (int64_t j = 0; j < a->head_dim / 2; j++) {
            values[p * a->head_dim + j] = (float)cos(angle(a, p, j));
            values[p * a->head_dim + a->head_dim / 2 + j] = (float)sin(angle(a, p, j));
        }
    fsdp_status status =
        fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, (const int64_t[]){POSITIONS, a->head_dim},
                              values, FSDP_TAG_DATA, &table);
    return status == FSDP_OK ? table : NULL;
}

static fsdp_tensor *run_rope(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    const rope_arg *a = arg;
    fsdp_tensor *table = make_table(fsdp_scope_device(s), a);
    if (!table)
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
    fsdp_tensor *out = fsdp_rope(s, in[0], table, a->positions, a->heads);
    fsdp_tensor_release(table);
    return out;
}

/* Pair (j, j + K/2) as a complex number times e^(i angle). */
static void naive_rope(const op_case *c, const double *const *in, double *out)
{
    const rope_arg *a = c->arg;
    const int64_t half = a->head_dim / 2;
    for (int64_t e = 0; e < op_numel(c, 0); e++) {
        int64_t row = e / (a->heads * a->head_dim), d = e % a->head_dim, j = d % half;
        double turn = angle(a, a->positions[row], j);
        out[e] = d < half ? in[0][e] * cos(turn) - in[0][e + half] * sin(turn)
                          : in[0][e] * cos(turn) + in[0][e - half] * sin(turn);
    }
}

TEST(rope_equals_loops_and_differences)
{
    static const int32_t packed[] = {0, 1, 2, 0, 1}, any[] = {11, 3, 3, 0, 7};
    static const rope_arg args[] = {{2, 6, packed}, {1, 2, any}, {3, 34, any}};
    for (int i = 0; i < 3; i++) {
        op_check(t, &(op_case){.name = "rope",
                               .run = run_rope,
                               .naive = naive_rope,
                               .arg = &args[i],
                               .n_in = 1,
                               .in = {{2, {5, args[i].heads * args[i].head_dim}}}});
        CHECK_HERE();
    }
}

TEST(rope_copies_positions_and_takes_no_rows)
{
    static const rope_arg arg = {.heads = 1, .head_dim = 2};
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    fsdp_tensor *table = make_table(device, &arg);
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){1, 2}, 2);
    fsdp_tensor *none = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){0, 2}, 2);
    ASSERT_OK(fsdp_tensor_set_requires_grad(x, true));
    int32_t position = 3;
    fsdp_tensor *y = fsdp_rope(s, x, table, &position, 1);
    position = 999;
    ASSERT_INT(fsdp_tensor_size(fsdp_rope(s, none, table, NULL, 1), 0), 0);
    ASSERT_OK(fsdp_scope_status(s));
    /* Backward, applied to the rotated tensor, rotates it back to x. */
    ASSERT_OK(fsdp_backward(tape, &y, &y, 1));
    float grad[2], values[2];
    ASSERT_OK(fsdp_tensor_to_floats(x, values));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(x), grad));
    ASSERT_NEAR(grad[0], values[0], 1e-6);
    ASSERT_NEAR(grad[1], values[1], 1e-6);
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(x);
    fsdp_tensor_release(none);
    fsdp_tensor_release(table);
    fsdp_device_destroy(device);
}

typedef struct misuse {
    int64_t x[2], table[2], heads;
    int32_t positions[2];
    fsdp_dtype table_dtype;
    const char *message;
} misuse;

TEST(rope_names_what_does_not_fit)
{
    static const misuse cases[] = {
        {{2, 8}, {5, 4}, 3, {0, 1}, FSDP_DTYPE_F32, "rope: x is [2, 8], not [T, heads * K] with 3"},
        {{2, 8}, {5, 4}, 0, {0, 1}, FSDP_DTYPE_F32, "rope: x is [2, 8], not [T, heads * K] with 0"},
        {{2, 6}, {5, 3}, 2, {0, 1}, FSDP_DTYPE_F32, "rope: x is [2, 6]: heads of 3 elements"},
        {{2, 8}, {5, 8}, 2, {0, 1}, FSDP_DTYPE_F32, "rope: x is [2, 8] of 2 heads but table is [5"},
        {{2, 8}, {5, 4}, 2, {0, 5}, FSDP_DTYPE_F32, "rope: position 5 at token 1 is outside of [0"},
        {{2, 8}, {5, 4}, 2, {-1, 0}, FSDP_DTYPE_F32, "rope: position -1 at token 0 is outside"},
        {{2, 8}, {5, 4}, 2, {0, 1}, FSDP_DTYPE_BF16, "rope: table is bfloat16, not float32"},
    };
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const misuse *m = &cases[i];
        fsdp_scope *s;
        ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
        fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, m->x, 1);
        fsdp_tensor *table = op_random_tensor(t, device, m->table_dtype, 2, m->table, 2);
        ASSERT(!fsdp_rope(s, x, table, m->positions, m->heads));
        ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, m->message);
        fsdp_scope_close(s);
        fsdp_tensor_release(x);
        fsdp_tensor_release(table);
    }
    fsdp_device_destroy(device);
}
