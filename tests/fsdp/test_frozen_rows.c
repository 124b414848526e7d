/* Note [Rows of tables] in src/fsdp/storage_rows.c: a frozen embedding is not gathered, ranks read
 * only the rows that they look up, and the results have the bits of one rank. */
#include "src/comm/comm.h"
#include "src/fsdp/state.h"
#include "tests/elements.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    VOCAB = 11, /* not a multiple of the number of ranks */
    WIDTH = 6,
    OUT = 5,
    TOKENS = 4
};

static const int32_t ids[TOKENS] = {10, 0, 3, 10};

/* [TOKENS] ids -> [TOKENS, OUT] */
static void forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    fsdp_tensor *x = fsdp_embedding_forward(s, fsdp_module_child(self, 0), ids, TOKENS);
    out->t[0] = fsdp_linear(
        s, x, fsdp_read(s, fsdp_module_parameter(fsdp_module_child(self, 1), "weight")), NULL);
    out->n = 1;
}

/* How the model differs from a frozen table and a trained Linear. */
typedef enum table_is {
    FROZEN,
    TRAINED,
    TIED /* frozen, and a Linear shares it */
} table_is;

static fsdp_parameter *table_of(const trainee *m)
{
    return fsdp_module_parameter(fsdp_module_child(m->model, 0), "weight");
}

static fsdp_status build(trainee *m, table_is is)
{
    fsdp_module *table, *head, *tied;
    FSDP_TRY(fsdp_module_create("Model", &m->model));
    FSDP_TRY(fsdp_embedding_create(VOCAB, WIDTH, (fsdp_init){.std = 1.0f}, &table));
    FSDP_TRY(fsdp_module_add_child(m->model, "table", table));
    FSDP_TRY(fsdp_linear_create(WIDTH, OUT, false, (fsdp_init){.std = 1.0f}, &head));
    FSDP_TRY(fsdp_module_add_child(m->model, "head", head));
    fsdp_parameter_set_requires_grad(table_of(m), is == TRAINED);
    fsdp_module_set_forward(m->model, forward, NULL, NULL);
    if (is != TIED)
        return FSDP_OK;
    FSDP_TRY(fsdp_module_create("Linear", &tied));
    FSDP_TRY(fsdp_module_share_parameter(tied, "weight", table_of(m)));
    return fsdp_module_add_child(m->model, "tied", tied);
}

static fsdp_status open_model(fsdp_group *group, table_is is, trainee *m)
{
    static const fsdp_fully_shard_options options = {.reshard_after_forward = FSDP_RESHARD_TRUE};
    FSDP_TRY(trainee_open(group, NULL, FSDP_DTYPE_F32, m));
    FSDP_TRY(build(m, is));
    FSDP_TRY(fsdp_fully_shard(m->model, group, m->device, &options));
    return fsdp_module_init(m->model, 3);
}

/* Run a forward, and a backward if `trains`. Set `y` to the result. */
static fsdp_status run(trainee *m, bool trains, float y[TOKENS * OUT])
{
    fsdp_scope *s;
    const tree_call call = {.micro_batch = trainee_rank(m), .n_micro_steps = 1};
    FSDP_TRY(tree_scope(m, trains ? m->tape : NULL, &call, &s));
    fsdp_tensor *out = fsdp_module_call(s, m->model, NULL, (fsdp_args){.n = 0}).t[0];
    fsdp_tensor *loss = out && trains ? fsdp_sum(s, out) : NULL;
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_tensor_to_floats(out, y);
    if (status == FSDP_OK && loss)
        status = fsdp_backward(m->tape, &loss, NULL, 1);
    fsdp_scope_close(s);
    return status;
}

/* Compare a forward of the sharded model with one of a model that only this rank has. `seed` is
 * that of the values of both. */
static void check_values(fsdp_test *t, trainee *m, uint64_t seed)
{
    trainee alone;
    float y[TOKENS * OUT], expected[TOKENS * OUT];
    ASSERT_OK(run(m, false, y));
    ASSERT_OK(open_model(NULL, FROZEN, &alone));
    ASSERT_OK(fsdp_module_init(alone.model, seed));
    ASSERT_OK(run(&alone, false, expected));
    ASSERT_OK(trainee_close(&alone));
    for (int i = 0; i < TOKENS * OUT; i++)
        ASSERT(y[i] == expected[i]);
}

static uint64_t gathered(const fsdp_test *t)
{
    return fsdp_group_counters(t->group)->logical_bytes[FSDP_KIND_ALL_GATHER];
}

static const char *storage_of_table(const trainee *m)
{
    return fsdp_param_of(table_of(m))->storage->name;
}

TEST_RANKS(a_frozen_embedding_is_read_row_by_row_with_the_bits_of_one_rank, 3)
{
    trainee m;
    float y[TOKENS * OUT];
    ASSERT_OK(open_model(t->group, FROZEN, &m));
    ASSERT_STR(storage_of_table(&m), "rows of a table");
    check_values(t, &m, 3);
    CHECK_HERE();
    for (int step = 0; step < 3; step++) {
        const bool trains = step > 0;
        const uint64_t before = gathered(t);
        ASSERT_OK(run(&m, trains, y));
        /* The head is gathered in forward, and again in backward. */
        ASSERT_INT(gathered(t) - before,
                   ((trains ? 2 : 1) * WIDTH * OUT + TOKENS * WIDTH) * (int64_t)sizeof(float));
    }
    ASSERT(!fsdp_parameter_grad(table_of(&m)));
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(the_rows_of_a_frozen_embedding_can_be_written_again, 2)
{
    trainee m;
    ASSERT_OK(open_model(t->group, FROZEN, &m));
    for (uint64_t seed = 4; seed < 7; seed++) {
        ASSERT_OK(fsdp_module_init(m.model, seed));
        check_values(t, &m, seed);
        CHECK_HERE();
    }
    ASSERT_OK(trainee_close(&m));
}

/* A table that trains is gathered, and its values do not change when it is frozen. */
TEST_RANKS(an_embedding_may_be_frozen_and_unfrozen_between_steps, 2)
{
    trainee m;
    float y[TOKENS * OUT], again[TOKENS * OUT];
    ASSERT_OK(open_model(t->group, FROZEN, &m));
    for (int i = 0; i < 2; i++) {
        fsdp_parameter_set_requires_grad(table_of(&m), true);
        ASSERT_OK(run(&m, true, y));
        ASSERT_STR(storage_of_table(&m), "in the master");
        ASSERT(fsdp_parameter_grad(table_of(&m)));
        ASSERT_OK(tree_sgd(m.model, 0.5f));
        fsdp_module_zero_grad(m.model);
        ASSERT_OK(run(&m, false, y));
        fsdp_parameter_set_requires_grad(table_of(&m), false);
        ASSERT_OK(run(&m, true, again));
        ASSERT_STR(storage_of_table(&m), "rows of a table");
        for (int k = 0; k < TOKENS * OUT; k++)
            ASSERT(y[k] == again[k]);
        fsdp_module_zero_grad(m.model);
    }
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(an_embedding_that_trains_or_is_tied_is_gathered, 2)
{
    for (table_is is = TRAINED; is <= TIED; is++) {
        trainee m;
        float y[TOKENS * OUT];
        ASSERT_OK(open_model(t->group, is, &m));
        ASSERT_STR(storage_of_table(&m), "in the master");
        const uint64_t before = gathered(t);
        ASSERT_OK(run(&m, false, y));
        ASSERT_INT(gathered(t) - before, (WIDTH * OUT + VOCAB * WIDTH) * (int64_t)sizeof(float));
        ASSERT_OK(trainee_close(&m));
    }
}

TEST(one_rank_counts_no_lookups)
{
    trainee m;
    float y[TOKENS * OUT];
    ASSERT_OK(open_model(NULL, FROZEN, &m));
    ASSERT_OK(run(&m, true, y));
    ASSERT_STR(storage_of_table(&m), "in the master");
    ASSERT_OK(trainee_close(&m));
}
