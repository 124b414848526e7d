/* Parameters with an all-gather extension: all-gathered as 8-bit rows with a scale each. */
#include <math.h>

#include "src/comm/comm.h"
#include "src/fsdp/state.h"
#include "tests/elements.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

/* int8 with a float32 scale for each row. The result does not depend on how rows are sharded. */
typedef struct quantizer {
    int packs, unpacks; /* calls */
    bool fail;          /* pre_all_gather fails */
} quantizer;

static int64_t row_numel(const fsdp_parameter *p)
{
    return fsdp_parameter_numel(p) / fsdp_parameter_shape(p)[0];
}

static size_t quantized_bytes(void *self, const fsdp_parameter *p, int64_t rows)
{
    (void)self;
    return (size_t)(rows * ((int64_t)sizeof(float) + row_numel(p)));
}

static void quantize_row(const float *x, int64_t n, unsigned char *to)
{
    float largest = 0.0f, scale;
    for (int64_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    scale = largest > 0.0f ? largest / 127.0f : 1.0f;
    memcpy(to, &scale, sizeof scale);
    for (int64_t i = 0; i < n; i++)
        to[sizeof scale + (size_t)i] = (unsigned char)(signed char)lrintf(x[i] / scale);
}

static fsdp_status pack(void *self, const fsdp_parameter *p, const fsdp_tensor *local,
                        fsdp_group *group, void *packed, size_t bytes)
{
    quantizer *q = self;
    const int64_t n = row_numel(p), rows = fsdp_tensor_size(local, 0);
    (void)group;
    q->packs++;
    if (q->fail)
        return fsdp_error(FSDP_ERR_NUMERIC, "no scale fits");
    if (bytes != quantized_bytes(self, p, rows))
        return fsdp_error(FSDP_ERR_STATE, "%zu bytes for %lld rows", bytes, (long long)rows);
    const float *values = elements_of(local);
    for (int64_t r = 0; r < rows; r++)
        quantize_row(values + r * n, n, (unsigned char *)packed + quantized_bytes(self, p, r));
    return FSDP_OK;
}

static fsdp_status unpack(void *self, const fsdp_parameter *p, const void *packed, size_t bytes,
                          fsdp_tensor *to)
{
    quantizer *q = self;
    const int64_t n = row_numel(p), rows = fsdp_tensor_size(to, 0);
    float *out = elements_of(to), scale;
    q->unpacks++;
    if (bytes != quantized_bytes(self, p, rows))
        return fsdp_error(FSDP_ERR_STATE, "%zu bytes for %lld rows", bytes, (long long)rows);
    for (int64_t r = 0; r < rows; r++) {
        const unsigned char *row = (const unsigned char *)packed + quantized_bytes(self, p, r);
        memcpy(&scale, row, sizeof scale);
        for (int64_t i = 0; i < n; i++)
            out[r * n + i] = (float)(signed char)row[sizeof scale + (size_t)i] * scale;
    }
    elements_changed(to, out);
    return FSDP_OK;
}

static fsdp_all_gather_extension extension_of(quantizer *q)
{
    return (fsdp_all_gather_extension){.packed_bytes = quantized_bytes,
                                       .pre_all_gather = pack,
                                       .post_all_gather = unpack,
                                       .self = q};
}

/* Open the example with extensions on its matrices, or on some of them. */
static fsdp_status open_extended(fsdp_group *group, const fsdp_fully_shard_options *options,
                                 int every, quantizer *q, trainee *m)
{
    fsdp_parameter_list list;
    const fsdp_all_gather_extension extension = extension_of(q);
    FSDP_TRY(trainee_open(group, NULL, FSDP_DTYPE_F32, m));
    FSDP_TRY(tree_example(TREE_EXAMPLE_WIDTH, &m->model));
    FSDP_TRY(fsdp_module_parameters(m->model, false, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++)
        if (fsdp_parameter_ndim(list.items[i].parameter) == 2 && (int)i % every == 0)
            status = fsdp_parameter_set_all_gather_extension(list.items[i].parameter, &extension);
    fsdp_parameter_list_free(&list);
    return status == FSDP_OK ? tree_example_shard(m->model, group, m->device, options) : status;
}

static void check_steps(fsdp_test *t, const fsdp_fully_shard_options *options, int every)
{
    trainee many, one, plain;
    quantizer q = {0}, q_one = {0};
    ASSERT_OK(open_extended(t->group, options, every, &q, &many));
    ASSERT_OK(open_extended(NULL, options, every, &q_one, &one));
    ASSERT_OK(trainee_open_example(NULL, options, &plain));
    for (int step = 0; step < 4; step++) {
        ASSERT_OK(tree_step(&many, step, 4));
        ASSERT_OK(tree_step(&one, step, 4));
        ASSERT_OK(tree_step(&plain, step, 4));
        ASSERT_OK(tree_same_params(&many, &one));
    }
    ASSERT(q.packs && q.unpacks >= q.packs);
    ASSERT(tree_same_params(&one, &plain) != FSDP_OK); /* operations read rounded values */
    ASSERT_OK(trainee_close(&many));
    ASSERT_OK(trainee_close(&one));
    ASSERT_OK(trainee_close(&plain));
}

TEST_RANKS(sharded_extended_parameters_train_as_on_one_rank, 2)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        if (tree_variants[v].mp_policy.param_dtype != FSDP_DTYPE_F32 ||
            tree_variants[v].mp_policy.master_dtype != FSDP_DTYPE_F32)
            continue;
        check_steps(t, &tree_variants[v], 1);
        CHECK_HERE();
        check_steps(t, &tree_variants[v], 2); /* together with ordinary parameters in one unit */
        CHECK_HERE();
    }
}

TEST_RANKS(sharded_extended_parameters_train_as_on_one_rank_on_4, 4)
{
    check_steps(t, &tree_variants[0], 1);
}

TEST_RANKS(the_packed_form_is_what_travels, 3)
{
    trainee m;
    quantizer q = {0};
    const fsdp_fully_shard_options options = {0};
    ASSERT_OK(open_extended(t->group, &options, 1, &q, &m));
    fsdp_module *inner = trainee_unit(&m, "second.inner");
    const tree *unit = tree_of(inner);
    const fsdp_comm_counters before = *fsdp_group_counters(t->group);
    ASSERT_OK(fsdp_unit_unshard(inner));
    const fsdp_comm_counters *after = fsdp_group_counters(t->group);
    const uint64_t packed = quantized_bytes(&q, unit->up, fsdp_parameter_shape(unit->up)[0]) +
                            quantized_bytes(&q, unit->down, fsdp_parameter_shape(unit->down)[0]);
    ASSERT_INT(after->logical_bytes[FSDP_KIND_ALL_GATHER] -
                   before.logical_bytes[FSDP_KIND_ALL_GATHER],
               packed + (uint64_t)fsdp_parameter_numel(unit->norm) * sizeof(float));
    ASSERT(fsdp_tensor_has_data(fsdp_parameter_data(unit->up)));
    ASSERT_OK(fsdp_unit_reshard(inner));
    ASSERT(!fsdp_tensor_has_data(fsdp_parameter_data(unit->up)));
    ASSERT_OK(trainee_close(&m));
}

TEST(a_failing_extension_names_the_unit_and_the_next_step_is_right)
{
    trainee m, calm;
    quantizer q = {.fail = true}, q_calm = {0};
    const fsdp_fully_shard_options options = {0};
    ASSERT_OK(open_extended(NULL, &options, 1, &q, &m));
    ASSERT_OK(open_extended(NULL, &options, 1, &q_calm, &calm));
    ASSERT_ERROR(tree_step(&m, 0, 1), FSDP_ERR_NUMERIC, "all_gather extension of unit '");
    ASSERT(strstr(fsdp_last_error(), "no scale fits"));
    q.fail = false;
    ASSERT_OK(tree_step(&m, 0, 1));
    ASSERT_OK(tree_step(&calm, 0, 1));
    ASSERT_OK(tree_same_params(&m, &calm));
    ASSERT_OK(trainee_close(&m));
    ASSERT_OK(trainee_close(&calm));
}

TEST(an_extension_is_whole_and_comes_before_the_unit)
{
    trainee m;
    quantizer q = {0};
    const fsdp_fully_shard_options options = {0};
    fsdp_all_gather_extension half = extension_of(&q);
    half.post_all_gather = NULL;
    ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(TREE_EXAMPLE_WIDTH, &m.model));
    fsdp_parameter *p = tree_of(m.model)->up;
    ASSERT_ERROR(fsdp_parameter_set_all_gather_extension(p, &half), FSDP_ERR_INVALID,
                 "must all be given");
    ASSERT_OK(tree_example_shard(m.model, NULL, m.device, &options));
    half = extension_of(&q);
    ASSERT_ERROR(fsdp_parameter_set_all_gather_extension(p, &half), FSDP_ERR_STATE,
                 "set it before fully_shard");
    ASSERT_OK(trainee_close(&m));
}

/* No rank computes with a buffer that was not packed. */
TEST_RANKS(an_extension_that_fails_on_one_rank_fails_on_all, 3)
{
    trainee m;
    quantizer q = {.fail = t->rank == 1};
    const fsdp_fully_shard_options options = {0};
    ASSERT_OK(open_extended(t->group, &options, 1, &q, &m));
    fsdp_status status = fsdp_barrier(t->group); /* may fail already, if the peer failed quickly */
    if (status == FSDP_OK)
        status = fsdp_unit_unshard(trainee_unit(&m, "first"));
    ASSERT_ERROR(status, t->rank == 1 ? FSDP_ERR_NUMERIC : FSDP_ERR_COMM, "no scale fits");
    ASSERT_OK(trainee_close(&m));
}

/* A peer is lost before the gather: nothing is packed, and the buffer is given back. */
TEST_RANKS(what_cannot_begin_to_pack_gives_its_buffer_back, 2)
{
    trainee m;
    quantizer q = {0};
    const fsdp_fully_shard_options options = {0};
    ASSERT_OK(open_extended(t->group, &options, 1, &q, &m));
    fsdp_module *first = trainee_unit(&m, "first");
    ASSERT_OK(fsdp_unit_unshard(first)); /* creates the buffer, which is collective */
    ASSERT_OK(fsdp_unit_reshard(first));
    /* May fail already, if the peer's abort is quick. */
    fsdp_status status = fsdp_barrier(t->group);
    if (status != FSDP_OK)
        ASSERT_ERROR(status, FSDP_ERR_COMM, "lost on purpose");
    fsdp_param_group *group = ((fsdp_state *)first->fsdp_state)->param_group;
    const int packs = q.packs;
    fsdp_group_abort(t->group, fsdp_error(FSDP_ERR_COMM, "lost on purpose"));
    for (int again = 0; again < 2; again++) {
        ASSERT_ERROR(fsdp_param_group_prefetch(group), FSDP_ERR_COMM, "lost on purpose");
        ASSERT_INT(group->state, FSDP_STATE_SHARDED);
        ASSERT_INT(q.packs, packs);
        for (size_t i = 0; i < group->context.comm->gathered.n; i++)
            ASSERT(!group->context.comm->gathered.items[i].taken);
    }
    ASSERT_OK(trainee_close(&m));
}
