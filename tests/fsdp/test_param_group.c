/* The parameters of one unit over ranks: rows, empty shards, values, and gradients, which must not
 * depend on the number of ranks. */
#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/comm/comm.h"
#include "src/comm/group_testing.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    N_ROWS = 7,
    STEPS = 3
};
static const int64_t rows[N_ROWS] = {0, 1, 2, 7, 15, 16, 17};

/* A unit with a vector and a matrix of each number of rows. */
static fsdp_status open_rows(fsdp_group *group, const fsdp_fully_shard_options *o, trainee *m)
{
    FSDP_TRY(trainee_open(group, NULL, o->mp_policy.param_dtype, m));
    FSDP_TRY(fsdp_module_create("Rows", &m->model));
    for (int i = 0; i < N_ROWS; i++) {
        char name[2] = {(char)('a' + i), 0}, matrix[2] = {(char)('A' + i), 0};
        const fsdp_init draw = {.std = 1.0f};
        FSDP_TRY(fsdp_module_add_parameter(m->model, name, 1, &rows[i], draw, NULL));
        FSDP_TRY(
            fsdp_module_add_parameter(m->model, matrix, 3, (int64_t[]){rows[i], 1, 3}, draw, NULL));
    }
    FSDP_TRY(fsdp_fully_shard(m->model, group, m->device, o));
    return fsdp_module_init(m->model, 8);
}

/* Local shapes follow FSDP2's rule, also for empty shards. The whole tensor, and what operations
 * read, are the same at any world size. */
static void check_rows(fsdp_test *t, const fsdp_fully_shard_options *o)
{
    trainee m, one;
    fsdp_parameter_list list, whole;
    ASSERT_OK(open_rows(t->group, o, &m));
    ASSERT_OK(open_rows(NULL, o, &one));
    ASSERT_OK(tree_same_params(&m, &one));
    ASSERT_OK(fsdp_module_parameters(m.model, false, &list));
    ASSERT_OK(fsdp_module_parameters(one.model, false, &whole));
    ASSERT_OK(fsdp_unit_unshard(m.model));
    ASSERT_OK(fsdp_unit_unshard(one.model));
    for (size_t i = 0; i < list.n; i++) {
        const fsdp_parameter *p = list.items[i].parameter;
        const fsdp_tensor *local = fsdp_parameter_local(p), *data = fsdp_parameter_data(p);
        int64_t begin, end, chunk, n = fsdp_parameter_shape(p)[0];
        float a[17 * 3], b[17 * 3];
        fsdp_parameter_rows(p, &begin, &end);
        chunk = o->no_shard ? n : (n + t->world_size - 1) / t->world_size;
        int64_t first = o->no_shard ? 0 : chunk * t->rank;
        ASSERT_INT(begin, first < n ? first : n);
        ASSERT_INT(end, first + chunk < n ? first + chunk : n);
        ASSERT_INT(fsdp_tensor_size(local, 0), end - begin);
        ASSERT_INT(fsdp_tensor_ndim(local), fsdp_parameter_ndim(p));
        ASSERT_INT(fsdp_tensor_dtype(local), o->mp_policy.master_dtype);
        ASSERT(fsdp_is_dtensor(local) == (t->world_size > 1 && !o->no_shard));
        ASSERT(!fsdp_is_dtensor(local) || fsdp_dtensor_shape(local)[0] == n);
        ASSERT(fsdp_parameter_group(p) == (fsdp_is_dtensor(local) ? t->group : NULL));
        ASSERT_INT(fsdp_tensor_size(data, 0), n);
        ASSERT_INT(fsdp_tensor_dtype(data), o->mp_policy.param_dtype);
        ASSERT_OK(fsdp_tensor_to_floats(data, a));
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_parameter_data(whole.items[i].parameter), b));
        for (int64_t k = 0; k < fsdp_tensor_numel(data); k++)
            ASSERT_F32(a[k], b[k]);
    }
    fsdp_parameter_list_free(&list);
    fsdp_parameter_list_free(&whole);
    ASSERT_OK(fsdp_unit_reshard(m.model));
    ASSERT_OK(trainee_close(&m));
    ASSERT_OK(trainee_close(&one));
}

static void check_all_rows(fsdp_test *t)
{
    const fsdp_fully_shard_options whole = {.no_shard = true},
                                   bf16 = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16,
                                                         .master_dtype = FSDP_DTYPE_BF16}};
    for (int i = 0; i < TREE_VARIANTS; i++) {
        check_rows(t, &tree_variants[i]);
        CHECK_HERE();
    }
    check_rows(t, &whole);
    CHECK_HERE();
    check_rows(t, &bf16);
}

TEST_RANKS(rows_and_values_at_1_rank, 1)
{
    check_all_rows(t);
}

TEST_RANKS(rows_and_values_at_2_ranks, 2)
{
    check_all_rows(t);
}

TEST_RANKS(rows_and_values_at_3_ranks, 3)
{
    check_all_rows(t);
}

TEST_RANKS(rows_and_values_at_4_ranks, 4)
{
    check_all_rows(t);
}

/* Writing a local tensor changes this rank's rows of what operations read, and no others. */
TEST_RANKS(a_written_local_is_what_all_ranks_gather, 3)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        trainee m;
        fsdp_parameter_list list;
        if (tree_variants[v].no_shard)
            continue;
        ASSERT_OK(open_rows(t->group, &tree_variants[v], &m));
        ASSERT_OK(fsdp_module_parameters(m.model, false, &list));
        for (int round = 0; round < 20; round++) {
            for (size_t i = 0; i < list.n; i++) {
                fsdp_tensor *local = fsdp_parameter_local(list.items[i].parameter);
                ASSERT_OK(fsdp_tensor_begin_write(local));
                float *values = fsdp_tensor_data(local);
                for (int64_t k = 0; k < fsdp_tensor_numel(local); k++)
                    values[k] = (float)(round + 10 * t->rank);
                fsdp_tensor_end_write(local);
            }
            ASSERT_OK(fsdp_unit_unshard(m.model));
            for (size_t i = 0; i < list.n; i++) {
                const fsdp_tensor *data = fsdp_parameter_data(list.items[i].parameter);
                int64_t n = fsdp_tensor_size(data, 0), numel = fsdp_tensor_numel(data);
                float values[17 * 3];
                ASSERT_OK(fsdp_tensor_to_floats(data, values));
                for (int64_t k = 0; k < numel; k++)
                    ASSERT_F32(values[k], (float)(round + 10 * (k * n / numel / ((n + 2) / 3))));
            }
            ASSERT_OK(fsdp_unit_reshard(m.model));
        }
        fsdp_parameter_list_free(&list);
        ASSERT_OK(trainee_close(&m));
    }
}

/* All parameters of a unit may be written at once, as a fused optimizer does. */
TEST_RANKS(locals_are_written_together_and_not_while_unsharded, 2)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        trainee m;
        fsdp_parameter_list list;
        ASSERT_OK(open_rows(t->group, &tree_variants[v], &m));
        ASSERT_OK(fsdp_module_parameters(m.model, false, &list));
        for (int round = 0; round < 3; round++) {
            for (size_t i = 0; i < list.n; i++)
                ASSERT_OK(fsdp_tensor_begin_write(fsdp_parameter_local(list.items[i].parameter)));
            ASSERT_ERROR(fsdp_unit_unshard(m.model), FSDP_ERR_STATE, "call end_write before");
            for (size_t i = 0; i < list.n; i++)
                fsdp_tensor_end_write(fsdp_parameter_local(list.items[i].parameter));
            ASSERT_OK(fsdp_unit_unshard(m.model));
            const fsdp_parameter *p = list.items[0].parameter;
            ASSERT_ERROR(fsdp_tensor_begin_write(fsdp_parameter_local(p)), FSDP_ERR_STATE,
                         "is unsharded");
            ASSERT_ERROR(fsdp_tensor_begin_write(fsdp_parameter_data(p)), FSDP_ERR_STATE,
                         "read only");
            ASSERT_OK(fsdp_unit_reshard(m.model));
        }
        fsdp_parameter_list_free(&list);
        ASSERT_OK(trainee_close(&m));
    }
}

/* The output of a forward through equal blocks in float16, which take turns with the pool's
 * buffers. Rank 1 pauses for pause_us in each block. */
static fsdp_status slow_forward(fsdp_test *t, bool skip_wait, int pause_us, float *values)
{
    trainee m;
    fsdp_scope *s;
    const tree_call call = {0};
    const fsdp_fully_shard_options f16 = {.mp_policy = {.param_dtype = FSDP_DTYPE_F16}};
    FSDP_TRY(trainee_open(t->group, NULL, FSDP_DTYPE_F16, &m));
    FSDP_TRY(tree_add(NULL, "", 7, 0, &m.model));
    for (int i = 0; i < TREE_MAX_CHILDREN; i++) {
        fsdp_module *block;
        FSDP_TRY(tree_add(m.model, (char[]){(char)('a' + i), 0}, 7, 8, &block));
        FSDP_TRY(fsdp_fully_shard(block, t->group, m.device, &f16));
        tree_of(block)->pause_us = t->rank == 1 ? pause_us : 0;
    }
    FSDP_TRY(fsdp_fully_shard(m.model, t->group, m.device, &f16));
    FSDP_TRY(fsdp_module_init(m.model, 4));
    fsdp_group_test_skip_writer_wait(t->group, skip_wait);
    for (int round = 0; round < 3; round++) { /* prefetching begins with the second round */
        FSDP_TRY(tree_scope(&m, NULL, &call, &s));
        fsdp_tensor *y = tree_forward(&m, s, m.model, &call);
        fsdp_status status = fsdp_scope_status(s);
        if (status == FSDP_OK)
            status = fsdp_tensor_to_floats(y, values);
        fsdp_scope_close(s);
        FSDP_TRY(status);
    }
    fsdp_group_test_skip_writer_wait(t->group, false);
    FSDP_TRY(fsdp_barrier(t->group));
    return trainee_close(&m);
}

/* Results are correct on a slow rank only because writers wait for readers. The pause of rank 1
 * grows until it is the slowest rank, however busy the machine is. */
TEST_RANKS(without_the_writers_wait_a_slow_rank_reads_the_next_unit, 2)
{
#if UNDER_TSAN
    SKIP("it is a data race on purpose");
#endif
    float expected[TREE_ROWS * 7], values[TREE_ROWS * 7];
    ASSERT_OK(slow_forward(t, false, 0, expected));
    ASSERT_OK(slow_forward(t, false, 2000, values));
    ASSERT(memcmp(values, expected, sizeof values) == 0);
    int32_t wrong = 0;
    for (int pause_us = 2000; pause_us < 1000000 && !wrong; pause_us *= 2) {
        ASSERT_OK(slow_forward(t, true, pause_us, values));
        wrong = memcmp(values, expected, sizeof values) != 0;
        ASSERT_OK(fsdp_all_reduce(t->group, &wrong, 1, FSDP_DTYPE_I32, FSDP_REDUCE_MAX));
    }
    ASSERT(wrong);
}

/* --- training --- */

/* Train `leaves` sharded over the ranks and on one rank, and return the largest difference of a
 * parameter. */
static double train_both(fsdp_test *t, int64_t width, const fsdp_fully_shard_options *o, int leaves)
{
    trainee m, one;
    float *a = NULL, *b = NULL;
    size_t n = 0, n_one = 0;
    double largest = -1.0;
    fsdp_group_set_delay(t->group, 7, 100);
    fsdp_status status = trainee_open(t->group, NULL, o->mp_policy.param_dtype, &m);
    if (status == FSDP_OK)
        status = trainee_open(NULL, NULL, o->mp_policy.param_dtype, &one);
    for (int i = 0; i < 2 && status == FSDP_OK; i++) {
        trainee *who = i ? &one : &m;
        status = tree_example(width, &who->model);
        if (status == FSDP_OK)
            status = tree_example_shard(who->model, who->group, who->device, o);
        for (int step = 0; step < STEPS && status == FSDP_OK; step++)
            status = tree_step(who, step, leaves);
    }
    if (status == FSDP_OK)
        status = tree_params(m.model, &a, &n);
    if (status == FSDP_OK)
        status = tree_params(one.model, &b, &n_one);
    for (size_t i = 0; i < n && n == n_one; i++)
        largest = fmax(largest, fabs((double)a[i] - (double)b[i]));
    fsdp_free(a);
    fsdp_free(b);
    if (status == FSDP_OK)
        status = trainee_close(&m);
    if (status == FSDP_OK)
        status = trainee_close(&one);
    if (status != FSDP_OK) {
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
        return (double)NAN;
    }
    return largest;
}

/* If the world size is a power of two, it divides the tree of leaves, and every bit agrees. */
static void trains_alike(fsdp_test *t, int leaves, double tolerance)
{
    for (int i = 1; i < N_ROWS; i++)
        for (int v = 0; v < TREE_VARIANTS; v++) {
            bool bf16 = tree_variants[v].mp_policy.param_dtype == FSDP_DTYPE_BF16;
            ASSERT_NEAR(train_both(t, rows[i], &tree_variants[v], leaves), 0.0,
                        bf16 ? 1000.0 * tolerance : tolerance);
        }
}

TEST_RANKS(two_ranks_train_as_one_in_every_bit, 2)
{
    trains_alike(t, 6, 0.0);
}

TEST_RANKS(four_ranks_train_as_one_in_every_bit, 4)
{
    trains_alike(t, 4, 0.0);
}

/* Partial sums of three leaves are not those of the aligned tree, so the results are equal only up
 * to rounding. */
TEST_RANKS(three_ranks_train_as_one_to_rounding, 3)
{
    trains_alike(t, 3, 0.0);
    CHECK_HERE();
    trains_alike(t, 6, 2e-5);
}

TEST_RANKS(eight_ranks_train_as_one, 8)
{
    ASSERT_NEAR(train_both(t, 17, &tree_variants[0], 8), 0.0, 0.0);
    ASSERT_NEAR(train_both(t, 7, &tree_variants[1], 16), 0.0, 0.0);
}

/* bfloat16 reduction: each gradient is rounded once, so the result is near that of float32, and the
 * same at every world size. */
TEST_RANKS(gradients_rounded_to_bfloat16_add_up_in_float32, 2)
{
    const fsdp_fully_shard_options o = {.mp_policy = {.reduce_dtype = FSDP_DTYPE_BF16}};
    trainee rounded, exact;
    float *a = NULL, *b = NULL;
    double largest = 0.0, difference = 0.0;
    ASSERT_NEAR(train_both(t, 15, &o, 8), 0.0, 0.0);
    ASSERT_OK(trainee_open_example(t->group, &o, &rounded));
    ASSERT_OK(trainee_open_example(t->group, &tree_variants[0], &exact));
    const tree_call call = {.micro_batch = t->rank};
    ASSERT_OK(tree_forward_backward(&rounded, rounded.model, &call));
    ASSERT_OK(tree_forward_backward(&exact, exact.model, &call));
    ASSERT_OK(tree_full_grad(tree_of(rounded.model)->up, &a));
    ASSERT_OK(tree_full_grad(tree_of(exact.model)->up, &b));
    for (int i = 0; i < 5 * TREE_EXAMPLE_WIDTH; i++) {
        largest = fmax(largest, fabs((double)b[i]));
        difference = fmax(difference, fabs((double)a[i] - (double)b[i]));
    }
    fsdp_free(a);
    fsdp_free(b);
    ASSERT(difference > 0.0);
    ASSERT(difference < largest / 128.0);
    ASSERT_OK(trainee_close(&rounded));
    ASSERT_OK(trainee_close(&exact));
}

/* bfloat16 masters: operations in bfloat16 read them without a copy. */
TEST_RANKS(bfloat16_masters_train_alike, 2)
{
    const fsdp_fully_shard_options both = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16,
                                                         .master_dtype = FSDP_DTYPE_BF16}},
                                   wide = {.mp_policy = {.master_dtype = FSDP_DTYPE_BF16}};
    ASSERT_NEAR(train_both(t, 17, &both, 4), 0.0, 0.0);
    ASSERT_NEAR(train_both(t, 15, &wide, 4), 0.0, 0.0);
}

/* 70 ranks are more than any table of sources of fixed size has room for. */
static fsdp_status one_step(fsdp_group *group, void *arg)
{
    trainee m;
    (void)arg;
    FSDP_TRY(trainee_open_example(group, &tree_variants[0], &m));
    FSDP_TRY(tree_step(&m, 0, fsdp_group_world_size(group)));
    return trainee_close(&m);
}

TEST(seventy_ranks_reduce)
{
    ASSERT_OK(fsdp_run_ranks(70, one_step, NULL, NULL));
}

static fsdp_status write(fsdp_parameter *p)
{
    FSDP_TRY(fsdp_tensor_begin_write(fsdp_parameter_local(p)));
    fsdp_tensor_end_write(fsdp_parameter_local(p));
    return FSDP_OK;
}

/* A unit needs values for every parameter, whether its parameters are in one memory or not, and
 * also after new memory was allocated. */
TEST_RANKS(every_parameter_needs_values, 2)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        trainee m;
        fsdp_fully_shard_options o = {0};
        o.mp_policy.param_dtype = bf16 ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32;
        ASSERT_OK(trainee_open(t->group, NULL, o.mp_policy.param_dtype, &m));
        ASSERT_OK(tree_add(NULL, "", TREE_EXAMPLE_WIDTH, 4, &m.model));
        const tree *unit = tree_of(m.model);
        unit->up->loaded = true;
        unit->up->loaded_dtype = FSDP_DTYPE_BF16;
        fsdp_parameter_set_requires_grad(unit->up, false);
        ASSERT_OK(fsdp_fully_shard(m.model, t->group, m.device, &o));
        ASSERT_OK(write(unit->norm));
        ASSERT_ERROR(tree_evaluate(&m, m.model, 0), FSDP_ERR_STATE, "('up' and so on)");
        fsdp_parameter_set_requires_grad(unit->up, true);
        ASSERT_ERROR(tree_evaluate(&m, m.model, 0), FSDP_ERR_STATE, "('up' and so on)");
        ASSERT_OK(write(unit->up));
        ASSERT_ERROR(tree_evaluate(&m, m.model, 0), FSDP_ERR_STATE, "('down' and so on)");
        ASSERT_OK(fsdp_module_init(m.model, 1));
        ASSERT_OK(tree_evaluate(&m, m.model, 0));
        ASSERT_OK(trainee_close(&m));
    }
}

TEST_RANKS(memory_without_values_is_not_computed_with, 2)
{
    trainee m;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        fsdp_fully_shard_options o = {0};
        o.mp_policy.param_dtype = bf16 ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32;
        ASSERT_OK(trainee_open(t->group, NULL, o.mp_policy.param_dtype, &m));
        fsdp_module_destroy(m.model);
        ASSERT_OK(tree_add(NULL, "", TREE_EXAMPLE_WIDTH, 4, &m.model));
        ASSERT_OK(fsdp_fully_shard(m.model, t->group, m.device, &o));
        ASSERT_ERROR(tree_evaluate(&m, m.model, 0), FSDP_ERR_STATE,
                     "('norm' and so on) have memory but no values: load a checkpoint, or draw "
                     "them with fsdp_module_init()");
        ASSERT_OK(fsdp_module_init(m.model, 1));
        ASSERT_OK(tree_evaluate(&m, m.model, 0));
        ASSERT_OK(trainee_close(&m));
    }
}
