/* embedding, gather_rows and segment_mean: see gradcheck.h for what each op_check tests. */
#include "src/tensor/tensor.h"
#include "tests/autograd/gradcheck.h"

/* Row 2 occurs three times, rows 1 and 4 never. */
static const int32_t ids[] = {2, 0, 2, 5, 3, 2};
enum {
    N_IDS = 6
};

static fsdp_tensor *run_embedding(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_embedding(s, ids, N_IDS, in[0], -1);
}

static void naive_embedding(const op_case *c, const double *const *in, double *out)
{
    const int64_t width = op_size(c, 0, 1);
    for (int64_t t = 0; t < N_IDS; t++)
        for (int64_t d = 0; d < width; d++)
            out[t * width + d] = in[0][ids[t] * width + d];
}

TEST(embedding_equals_loops_and_differences)
{
    op_check(t, &(op_case){.name = "embedding",
                           .run = run_embedding,
                           .naive = naive_embedding,
                           .n_in = 1,
                           .in = {{2, {6, 5}}}});
}

/* The rows that are read are the same; row 2 gets no gradient, and the others do. */
TEST(embedding_gives_padding_idx_no_gradient)
{
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    fsdp_tensor *w = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){6, 2}, 2);
    ASSERT_OK(fsdp_tensor_set_requires_grad(w, true));
    fsdp_tensor *y = fsdp_embedding(s, ids, N_IDS, w, 2);
    ASSERT_OK(fsdp_scope_status(s));
    float got[2 * N_IDS], values[12];
    ASSERT_OK(fsdp_tensor_to_floats(y, got));
    ASSERT_OK(fsdp_tensor_to_floats(w, values));
    for (int i = 0; i < 2 * N_IDS; i++)
        ASSERT_F32(got[i], values[ids[i / 2] * 2 + i % 2]);
    ASSERT_OK(fsdp_backward(tape, &y, &y, 1));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(w), got));
    for (int i = 0; i < 12; i++) {
        bool comes_once = i / 2 == 0 || i / 2 == 5 || i / 2 == 3;
        ASSERT_F32(got[i], comes_once ? values[i] : 0.0f);
    }
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(w);
    fsdp_device_destroy(device);
}

TEST(embedding_refuses_a_padding_idx_outside_of_the_table)
{
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_tensor *w = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){6, 2}, 2);
    for (int i = 0; i < 2; i++) {
        fsdp_scope *s;
        ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
        ASSERT(!fsdp_embedding(s, ids, N_IDS, w, i ? 6 : -2));
        ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID,
                     i ? "embedding: padding_idx is 6, not in [-1, 6)"
                       : "embedding: padding_idx is -2, not in [-1, 6)");
        fsdp_scope_close(s);
    }
    fsdp_tensor_release(w);
    fsdp_device_destroy(device);
}

static const int32_t rows[] = {4, 0, 3};

static fsdp_tensor *run_gather(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_gather_rows(s, in[0], rows, 3);
}

static void naive_gather(const op_case *c, const double *const *in, double *out)
{
    const int64_t width = op_numel(c, 0) / op_size(c, 0, 0);
    for (int64_t i = 0; i < 3; i++)
        for (int64_t d = 0; d < width; d++)
            out[i * width + d] = in[0][rows[i] * width + d];
}

TEST(gather_rows_equals_loops_and_differences)
{
    op_check(t, &(op_case){.name = "gather_rows",
                           .run = run_gather,
                           .naive = naive_gather,
                           .n_in = 1,
                           .in = {{2, {5, 3}}}});
    CHECK_HERE();
    op_check(t, &(op_case){.name = "gather_rows of three dimensions",
                           .run = run_gather,
                           .naive = naive_gather,
                           .n_in = 1,
                           .in = {{3, {5, 3, 2}}}});
}

/* For calls without ids or rows, both gradients are zero, not undefined. */
TEST(no_ids_and_no_rows_give_zero_gradients)
{
    fsdp_device *device;
    fsdp_tape *tape;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    fsdp_tensor *w = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){3, 4}, 2);
    ASSERT_OK(fsdp_tensor_set_requires_grad(w, true));
    for (int gather = 0; gather < 2; gather++) {
        fsdp_scope *s;
        ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
        fsdp_tensor *y =
            gather ? fsdp_gather_rows(s, w, NULL, 0) : fsdp_embedding(s, NULL, 0, w, -1);
        ASSERT_OK(fsdp_scope_status(s));
        ASSERT_INT(fsdp_tensor_size(y, 0), 0);
        ASSERT_OK(fsdp_backward(tape, &y, &y, 1));
        float values[12];
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(w), values));
        for (int i = 0; i < 12; i++)
            ASSERT_F32(values[i], 0.0f);
        fsdp_tensor_zero_grad(w);
        fsdp_scope_close(s);
    }
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(w);
    fsdp_device_destroy(device);
}

/* The caller may reuse its arrays between forward and backward. */
TEST(ids_and_rows_are_copied)
{
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    fsdp_tensor *w = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){3, 1}, 2);
    ASSERT_OK(fsdp_tensor_set_requires_grad(w, true));
    int32_t mine[2] = {2, 0}, row = 1;
    fsdp_tensor *y = fsdp_embedding(s, mine, 2, w, -1), *z = fsdp_gather_rows(s, y, &row, 1);
    mine[0] = mine[1] = row = 999;
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_backward(tape, &z, NULL, 1));
    float grad[3];
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(w), grad));
    ASSERT_F32(grad[0], 1.0f);
    ASSERT_F32(grad[1], 0.0f);
    ASSERT_F32(grad[2], 0.0f);
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(w);
    fsdp_device_destroy(device);
}

TEST(embedding_and_gather_rows_name_the_wrong_index)
{
    static const struct {
        bool gather;
        int32_t ids[3];
        const char *message;
    } cases[] = {
        {false, {0, 6, 1}, "embedding: id 6 at token 1 is outside of [0, 6)"},
        {false, {0, 5, -1}, "embedding: id -1 at token 2 is outside of [0, 6)"},
        {true, {6, 0, 1}, "gather_rows: row 6 at 0 is outside of [0, 6)"},
        {true, {0, -2, 1}, "gather_rows: row -2 at 1 is outside of [0, 6)"},
        {true, {3, 0, 3}, "gather_rows: row 3 occurs again at 2"},
    };
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_tensor *w = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){6, 2}, 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_scope *s;
        ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
        ASSERT(!(cases[i].gather ? fsdp_gather_rows(s, w, cases[i].ids, 3)
                                 : fsdp_embedding(s, cases[i].ids, 3, w, -1)));
        ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, cases[i].message);
        fsdp_scope_close(s);
    }
    fsdp_tensor_release(w);
    fsdp_device_destroy(device);
}

/* --- segment_mean --- */

typedef struct segments {
    int64_t n;
    int32_t offsets[5];
} segments;

static fsdp_tensor *run_segment_mean(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    const segments *a = arg;
    return fsdp_segment_mean(s, in[0], a->offsets, a->n);
}

static void naive_segment_mean(const op_case *c, const double *const *in, double *out)
{
    const segments *a = c->arg;
    const int64_t width = op_size(c, 0, 1);
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t d = 0; d < width; d++) {
            out[i * width + d] = 0.0;
            for (int64_t r = a->offsets[i]; r < a->offsets[i + 1]; r++)
                out[i * width + d] +=
                    in[0][r * width + d] / (double)(a->offsets[i + 1] - a->offsets[i]);
        }
}

/* Segments of several rows, one row and none, at the ends and in between. */
TEST(segment_mean_equals_loops_and_differences)
{
    static const segments cases[] = {
        {4, {0, 3, 3, 4, 9}}, {3, {0, 0, 9, 9}}, {1, {0, 9}}, {4, {0, 1, 2, 3, 9}}};
    for (int i = 0; i < 4; i++) {
        op_check(t, &(op_case){.name = "segment_mean",
                               .run = run_segment_mean,
                               .naive = naive_segment_mean,
                               .arg = &cases[i],
                               .n_in = 1,
                               .in = {{2, {9, i < 3 ? 5 : 17}}}});
        CHECK_HERE();
    }
}

TEST(segment_mean_names_wrong_offsets)
{
    static const struct {
        segments a;
        const char *message;
    } cases[] = {
        {{2, {0, 3, 7}}, "segment_mean: offsets go from 0 to 7, not from 0 to the 6 rows"},
        {{2, {1, 3, 6}}, "segment_mean: offsets go from 1 to 6"},
        {{3, {0, 4, 3, 6}}, "segment_mean: offset 3 at 2 is below 4 before it"},
        {{-1, {0}}, "segment_mean: -1 segments of x [6, 2]"},
    };
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){6, 2}, 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_scope *s;
        ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
        ASSERT(!fsdp_segment_mean(s, x, cases[i].a.offsets, cases[i].a.n));
        ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, cases[i].message);
        fsdp_scope_close(s);
    }
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}
