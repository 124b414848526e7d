/* The other controls of units: unshard and its handle, keeping parameters after forward and
 * backward, backwards that are not the last, units that backward need not gather, the all-reduce
 * hook, and queries about a unit. Each test fails if its control is ignored. */
#include "src/base/alloc.h"
#include "src/comm/group_testing.h"
#include "src/fsdp/state.h"
#include "tests/elements.h"
#include "tests/fsdp/chain.h"
#include "tests/test.h"

/* With these param_dtypes, operations read float32 masters as they are, their upper halves, or a
 * cast copy. */
static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};

static fsdp_fully_shard_options of_dtype(fsdp_dtype dtype)
{
    return (fsdp_fully_shard_options){.mp_policy = {.param_dtype = dtype}};
}

static bool has_data(const fsdp_module *m)
{
    return fsdp_tensor_has_data(fsdp_parameter_data(tree_of(m)->up));
}

/* Is every unit resharded? */
static bool is_resharded(const chain *c)
{
    for (int i = 0; i < CHAIN_UNITS; i++)
        if (((const fsdp_state *)c->units[i]->fsdp_state)->param_group->state != FSDP_STATE_SHARDED)
            return false;
    return true;
}

static bool info_of(const fsdp_module *m, fsdp_unit_info *info)
{
    return fsdp_unit_get_info(m, info) == FSDP_OK;
}

/* --- unshard and reshard --- */

static void check_async(fsdp_test *t, fsdp_dtype dtype)
{
    const fsdp_fully_shard_options o = of_dtype(dtype);
    const uint64_t copies = dtype == FSDP_DTYPE_F16;
    fsdp_unshard_handle *first, *second;
    fsdp_unit_info info;
    chain c;
    ASSERT_OK(chain_open(t->group, &o, &c));
    fsdp_module *a = c.units[0], *b = c.units[1];
    ASSERT_OK(fsdp_unit_unshard_async(a, &first));
    ASSERT_OK(fsdp_unit_unshard_async(b, &second));
    ASSERT(!has_data(a) && info_of(a, &info) && info.is_prefetched && !info.is_unsharded);
    fsdp_comm_counters n = chain_counts(&c);
    ASSERT_INT(n.calls[FSDP_KIND_ALL_GATHER], 0);
    ASSERT_INT(n.calls[FSDP_KIND_WRITE_SHARD], 2 * copies);
    ASSERT_OK(fsdp_unshard_handle_wait(first));
    ASSERT(has_data(a) && info_of(a, &info) && info.is_unsharded && !info.is_held);
    ASSERT(!has_data(b));
    n = chain_counts(&c);
    ASSERT_INT(n.calls[FSDP_KIND_ALL_GATHER], 1);
    ASSERT_INT(n.logical_bytes[FSDP_KIND_ALL_GATHER], chain_numel(&c, 0) * fsdp_dtype_size(dtype));
    /* Forward uses both, and reshards them as usual. */
    ASSERT_OK(chain_run(&c, 0));
    ASSERT_INT(chain_counts(&c).calls[FSDP_KIND_ALL_GATHER], 2 * CHAIN_UNITS - 2);
    ASSERT(is_resharded(&c));
    ASSERT_OK(fsdp_unshard_handle_wait(second)); /* too late: the unit was resharded meanwhile */
    ASSERT(is_resharded(&c));
    ASSERT_INT(chain_counts(&c).calls[FSDP_KIND_ALL_GATHER], 0);
    ASSERT_OK(tree_sgd(c.m.model, 0.1f));
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(unshard_async_begins_and_its_handle_waits, 2)
{
    for (int d = 0; d < 3; d++) {
        check_async(t, dtypes[d]);
        CHECK_HERE();
    }
}

/* A requested gather survives what other units do. Writing the unit is an error until reshard. */
TEST_RANKS(what_unshard_async_gathers_is_kept_until_its_own_forward, 2)
{
    for (int d = 0; d < 3; d++) {
        const fsdp_fully_shard_options o = of_dtype(dtypes[d]);
        chain c;
        ASSERT_OK(chain_open(t->group, &o, &c));
        ASSERT_OK(fsdp_unit_unshard_async(c.units[4], NULL));
        ASSERT_OK(tree_evaluate(&c.m, c.units[0], 0)); /* an outermost forward of another unit */
        ASSERT(!is_resharded(&c));
        ASSERT_ERROR(fsdp_module_init(c.m.model, 1), FSDP_ERR_STATE, "'e.unit' is unsharded");
        ASSERT_OK(chain_run(&c, 0));
        ASSERT(is_resharded(&c));
        ASSERT_OK(fsdp_unit_unshard_async(c.units[4], NULL));
        ASSERT_OK(fsdp_unit_reshard(c.units[4]));
        ASSERT_OK(fsdp_module_init(c.m.model, 1));
        ASSERT_OK(chain_close(&c));
    }
}

/* The unit stays gathered, also through a training step of the other units. */
TEST_RANKS(what_unshard_async_gathers_outlives_a_step_without_it, 2)
{
    for (int d = 0; d < 3; d++) {
        const fsdp_fully_shard_options o = of_dtype(dtypes[d]);
        fsdp_unshard_handle *handle;
        chain c;
        ASSERT_OK(chain_open(t->group, &o, &c));
        ASSERT_OK(fsdp_unit_unshard_async(c.units[4], &handle));
        tree_of(c.m.model)->calls[4] = 0;
        ASSERT_OK(chain_run(&c, 0));
        ASSERT_OK(fsdp_unshard_handle_wait(handle));
        ASSERT(has_data(c.units[4]));
        tree_of(c.m.model)->calls[4] = 1;
        chain_counts(&c);
        ASSERT_OK(chain_run(&c, 0));
        ASSERT_INT(chain_counts(&c).calls[FSDP_KIND_ALL_GATHER], 2 * CHAIN_UNITS - 2);
        ASSERT(is_resharded(&c));
        ASSERT_OK(chain_close(&c));
    }
}

static fsdp_status summon_and_end(chain *c)
{
    fsdp_full_params *full;
    FSDP_TRY(fsdp_summon_full_params_begin(c->m.model, NULL, &full));
    return fsdp_summon_full_params_end(full);
}

/* Frozen parameters of a bfloat16 file: the next forward may choose another storage. */
static fsdp_status freeze_loaded(chain *c)
{
    fsdp_parameter *up = tree_of(c->units[4])->up;
    up->loaded = true;
    up->loaded_dtype = FSDP_DTYPE_BF16;
    fsdp_parameter_set_requires_grad(up, false);
    return FSDP_OK;
}

/* After the request has ended, a later prefetch of the unit may be dropped like any other. */
TEST_RANKS(a_request_ends_with_what_was_gathered_for_it, 2)
{
    static fsdp_status (*const drops[])(chain *) = {summon_and_end, freeze_loaded};
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 2; i++) {
            const fsdp_fully_shard_options o = of_dtype(dtypes[d]);
            chain c;
            ASSERT_OK(chain_open(t->group, &o, &c));
            ASSERT_OK(chain_run(&c, 0));
            ASSERT_OK(fsdp_unit_unshard_async(c.units[4], NULL));
            ASSERT_OK(drops[i](&c));
            ASSERT_OK(fsdp_set_modules_to_forward_prefetch(c.units[0], &c.units[4], 1));
            tree_of(c.m.model)->calls[4] = 0;
            ASSERT_OK(chain_run(&c, 1));
            ASSERT(is_resharded(&c));
            ASSERT_OK(fsdp_module_init(c.m.model, 1));
            ASSERT_OK(chain_close(&c));
        }
}

/* requires_grad may change how a unit is stored. Unshard applies the pending dtypes first. */
TEST_RANKS(a_unit_may_be_unsharded_right_after_it_was_frozen, 2)
{
    for (int d = 0; d < 3; d++)
        for (int on = 0; on < 2; on++) {
            const fsdp_fully_shard_options o = of_dtype(dtypes[d]);
            fsdp_unshard_handle *handle;
            chain c;
            ASSERT_OK(chain_open(t->group, &o, &c));
            fsdp_parameter *up = tree_of(c.units[0])->up;
            fsdp_parameter_set_requires_grad(up, !on);
            ASSERT_OK(chain_run(&c, 0));
            fsdp_parameter_set_requires_grad(up, on);
            ASSERT_OK(fsdp_unit_unshard_async(c.units[0], &handle));
            ASSERT_OK(fsdp_unshard_handle_wait(handle));
            fsdp_module_zero_grad(c.m.model);
            ASSERT_OK(chain_run(&c, 1));
            ASSERT(!fsdp_parameter_grad(up) == !on);
            ASSERT_OK(tree_sgd(c.m.model, 0.1f));
            ASSERT_OK(chain_close(&c));
        }
}

TEST_RANKS(a_unit_that_is_written_cannot_be_unsharded, 2)
{
    chain c;
    fsdp_unshard_handle *handle = NULL;
    ASSERT_OK(chain_open(t->group, &tree_variants[0], &c));
    fsdp_tensor *local = fsdp_parameter_local(tree_of(c.units[0])->up);
    ASSERT_OK(fsdp_tensor_begin_write(local));
    ASSERT_ERROR(fsdp_unit_unshard_async(c.units[0], &handle), FSDP_ERR_STATE, "being written");
    fsdp_tensor_end_write(local);
    ASSERT(!handle);
    ASSERT_OK(fsdp_unshard_handle_wait(NULL));
    ASSERT_ERROR(fsdp_unit_unshard_async(fsdp_module_find(c.m.model, "a"), &handle),
                 FSDP_ERR_INVALID, "fully_shard");
    ASSERT_OK(chain_close(&c));
}

/* --- kept parameters --- */

TEST_RANKS(reshard_after_forward_can_be_set_and_set_back, 2)
{
    for (int d = 0; d < 3; d++) {
        const fsdp_fully_shard_options o = of_dtype(dtypes[d]);
        fsdp_unit_info info;
        chain c;
        ASSERT_OK(chain_open(t->group, &o, &c));
        ASSERT_OK(fsdp_set_reshard_after_forward(c.m.model, false, true));
        ASSERT(info_of(c.units[0], &info) && !info.reshard_after_forward);
        ASSERT_OK(chain_run(&c, 0));
        ASSERT_INT(chain_counts(&c).calls[FSDP_KIND_ALL_GATHER], CHAIN_UNITS);
        /* Without recurse: only the root. */
        ASSERT_OK(fsdp_set_reshard_after_forward(c.m.model, true, false));
        ASSERT_OK(chain_run(&c, 0));
        ASSERT_INT(chain_counts(&c).calls[FSDP_KIND_ALL_GATHER], CHAIN_UNITS + 1);
        ASSERT_OK(fsdp_set_reshard_after_forward(c.m.model, true, true));
        ASSERT_OK(chain_run(&c, 0));
        ASSERT_INT(chain_counts(&c).calls[FSDP_KIND_ALL_GATHER], 2 * CHAIN_UNITS);
        ASSERT(is_resharded(&c));
        ASSERT_OK(chain_close(&c));
    }
}

/* Three micro-steps gather once. Parameters cannot be written until they are resharded, by the last
 * backward or by fsdp_unit_reshard(). */
TEST_RANKS(parameters_kept_after_backward_are_gathered_once, 2)
{
    for (int d = 0; d < 3; d++) {
        fsdp_fully_shard_options o = of_dtype(dtypes[d]);
        chain c;
        o.reshard_after_forward = FSDP_RESHARD_FALSE;
        ASSERT_OK(chain_open(t->group, &o, &c));
        for (int step = 0; step < 2; step++) {
            ASSERT_OK(fsdp_set_reshard_after_backward(c.m.model, false, true));
            for (int a = 0; a < 3; a++) {
                if (a == 2)
                    ASSERT_OK(fsdp_set_reshard_after_backward(c.m.model, true, true));
                ASSERT_OK(chain_micro_step(&c, step, a, 3));
                ASSERT_INT(chain_counts(&c).calls[FSDP_KIND_ALL_GATHER], a ? 0 : CHAIN_UNITS);
                ASSERT(has_data(c.units[0]) == (a < 2));
            }
            ASSERT_OK(tree_sgd(c.m.model, 0.1f));
            chain_counts(&c);
        }
        ASSERT_OK(fsdp_set_reshard_after_backward(c.units[2], false, false));
        ASSERT_OK(chain_run(&c, 2));
        ASSERT(has_data(c.units[2]) && !has_data(c.units[1]));
        ASSERT_ERROR(tree_sgd(c.m.model, 0.1f), FSDP_ERR_STATE, "'c.unit' is unsharded");
        ASSERT_OK(fsdp_unit_reshard(c.units[2]));
        ASSERT(is_resharded(&c));
        ASSERT_OK(tree_sgd(c.units[2], 0.1f));
        ASSERT_OK(chain_close(&c));
    }
}

/* The unit that backward leaves last is reduced in the next backward. */
TEST_RANKS(a_backward_that_is_not_the_last_leaves_one_reduce_to_the_next, 2)
{
    for (int d = 0; d < 3; d++) {
        const fsdp_fully_shard_options o = of_dtype(dtypes[d]);
        fsdp_unit_info info;
        chain c, plain;
        ASSERT_OK(chain_open(t->group, &o, &c));
        ASSERT_OK(chain_open(t->group, &o, &plain));
        for (int step = 0; step < 3; step++) {
            for (int a = 0; a < 3; a++) {
                /* Applies to the whole tree. */
                ASSERT_OK(fsdp_set_is_last_backward(c.units[2], a == 2));
                ASSERT(info_of(c.m.model, &info) && info.is_last_backward == (a == 2));
                chain_counts(&c);
                ASSERT_OK(chain_micro_step(&c, step, a, 3));
                ASSERT_INT(chain_counts(&c).calls[FSDP_KIND_REDUCE_SCATTER],
                           a == 0   ? CHAIN_UNITS - 1
                           : a == 1 ? CHAIN_UNITS
                                    : CHAIN_UNITS + 1);
                ASSERT_OK(chain_micro_step(&plain, step, a, 3));
            }
            ASSERT_OK(tree_sgd(c.m.model, 0.1f));
            ASSERT_OK(tree_sgd(plain.m.model, 0.1f));
            fsdp_module_zero_grad(c.m.model);
            fsdp_module_zero_grad(plain.m.model);
        }
        ASSERT_OK(tree_same_params(&c.m, &plain.m)); /* bit for bit */
        ASSERT_OK(chain_close(&c));
        ASSERT_OK(chain_close(&plain));
    }
}

/* The only unit is left last and entered first, so its gradient buffer is reduced before it is
 * written again. */
TEST_RANKS(a_posted_buffer_is_reduced_before_the_next_backward_writes_it, 2)
{
    for (int d = 0; d < 3; d++) {
        const fsdp_fully_shard_options o = of_dtype(dtypes[d]);
        trainee m[2];
        for (int defers = 0; defers < 2; defers++) {
            trainee *who = &m[defers];
            ASSERT_OK(trainee_open(t->group, NULL, dtypes[d], who));
            ASSERT_OK(tree_example(7, &who->model));
            ASSERT_OK(fsdp_fully_shard(who->model, t->group, who->device, &o));
            ASSERT_OK(fsdp_module_init(who->model, 5));
            for (int a = 0; a < 4; a++) {
                ASSERT_OK(fsdp_set_is_last_backward(who->model, !defers || a == 3));
                ASSERT_OK(
                    tree_forward_backward(who, who->model, &(tree_call){0, 2 * a + t->rank, a, 4}));
            }
            ASSERT_OK(tree_sgd(who->model, 0.1f));
        }
        ASSERT_OK(tree_same_params(&m[0], &m[1]));
        ASSERT_OK(trainee_close(&m[0]));
        ASSERT_OK(trainee_close(&m[1]));
    }
}

/* As in a pipeline: forwards of two micro-batches, each on its own tape, then their backwards. */
static fsdp_status two_in_flight(chain *c, fsdp_tape *second, bool defers)
{
    fsdp_tape *const tapes[2] = {c->m.tape, second};
    fsdp_scope *s[2] = {NULL, NULL};
    fsdp_tensor *y[2];
    tree_call calls[2];
    fsdp_status status = FSDP_OK;
    for (int a = 0; a < 2 && status == FSDP_OK; a++) {
        calls[a] = (tree_call){.micro_batch = 2 * a + trainee_rank(&c->m)};
        status = tree_scope(&c->m, tapes[a], &calls[a], &s[a]);
        if (status == FSDP_OK) {
            y[a] = tree_forward(&c->m, s[a], c->m.model, &calls[a]);
            status = fsdp_scope_status(s[a]);
        }
    }
    for (int a = 0; a < 2 && status == FSDP_OK; a++) {
        c->m.tape = tapes[a];
        status = fsdp_set_is_last_backward(c->m.model, a == 1 || !defers);
        if (status == FSDP_OK)
            status = tree_backward(&c->m, &y[a], &calls[a], 1);
    }
    c->m.tape = tapes[0];
    fsdp_scope_close(s[0]);
    fsdp_scope_close(s[1]);
    return status;
}

TEST_RANKS(two_forwards_in_flight_are_both_reduced, 2)
{
    for (int d = 0; d < 3; d++)
        for (int defers = 0; defers < 2; defers++) {
            const fsdp_fully_shard_options o = of_dtype(dtypes[d]);
            fsdp_tape *second;
            chain c, plain;
            ASSERT_OK(fsdp_tape_create(&second));
            ASSERT_OK(chain_open(t->group, &o, &c));
            ASSERT_OK(chain_open(t->group, &o, &plain));
            chain_counts(&c);
            ASSERT_OK(two_in_flight(&c, second, defers));
            ASSERT_INT(chain_counts(&c).calls[FSDP_KIND_REDUCE_SCATTER], 2 * CHAIN_UNITS);
            ASSERT(is_resharded(&c));
            for (int a = 0; a < 2; a++)
                ASSERT_OK(tree_forward_backward(&plain.m, plain.m.model,
                                                &(tree_call){.micro_batch = 2 * a + t->rank}));
            ASSERT_OK(tree_sgd(c.m.model, 0.1f));
            ASSERT_OK(tree_sgd(plain.m.model, 0.1f));
            ASSERT_OK(tree_same_params(&c.m, &plain.m));
            fsdp_tape_destroy(second);
            ASSERT_OK(chain_close(&c));
            ASSERT_OK(chain_close(&plain));
        }
}

/* --- backward without a gather --- */

typedef struct table {
    fsdp_parameter *weight;
} table;

/* Rows of a matrix by id: its backward does not read it. */
static void embed(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    static const int32_t ids[TREE_ROWS] = {2, 0, 2};
    const table *m = self->impl;
    (void)in;
    out->t[out->n++] = fsdp_embedding(s, ids, TREE_ROWS, fsdp_read(s, m->weight), -1);
}

static void add_embedding(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    fsdp_tensor *rows =
        fsdp_module_call(s, fsdp_module_child(self, 0), NULL, (fsdp_args){.n = 0}).t[0];
    fsdp_tensor *x = fsdp_add(s, in->t[0], rows);
    out->t[out->n++] = fsdp_module_call1(s, fsdp_module_child(self, 1), x);
}

static fsdp_status open_embedding(fsdp_test *t, const char *device,
                                  const fsdp_fully_shard_options *o, trainee *m)
{
    fsdp_module *embedding, *linear;
    FSDP_TRY(trainee_open(t->group, device, o->mp_policy.param_dtype, m));
    FSDP_TRY(tree_add(NULL, "", 7, 0, &m->model));
    m->model->forward = add_embedding;
    FSDP_TRY(fsdp_module_create("Embed", &embedding));
    FSDP_TRY(fsdp_module_add_child(m->model, "embedding", embedding));
    table *impl = fsdp_calloc(1, sizeof *impl);
    if (!impl)
        return FSDP_ERR_NOMEM;
    fsdp_module_set_forward(embedding, embed, impl, fsdp_free);
    FSDP_TRY(fsdp_module_add_parameter(embedding, "weight", 2, (int64_t[]){3, 7},
                                       (fsdp_init){.std = 0.5f}, &impl->weight));
    FSDP_TRY(tree_add(m->model, "linear", 7, 3, &linear));
    FSDP_TRY(fsdp_fully_shard(embedding, t->group, m->device, o));
    FSDP_TRY(fsdp_fully_shard(linear, t->group, m->device, o));
    FSDP_TRY(fsdp_fully_shard(m->model, t->group, m->device, o));
    return fsdp_module_init(m->model, 3);
}

TEST_RANKS(a_unit_that_backward_does_not_read_need_not_be_gathered_for_it, 2)
{
    for (int d = 0; d < 3; d++) {
        const fsdp_fully_shard_options o = of_dtype(dtypes[d]);
        const tree_call call = {.micro_batch = t->rank};
        trainee m, same;
        ASSERT_OK(open_embedding(t, NULL, &o, &m));
        ASSERT_OK(open_embedding(t, NULL, &o, &same));
        ASSERT_OK(fsdp_set_unshard_in_backward(trainee_unit(&m, "embedding"), false));
        const fsdp_comm_counters *n = fsdp_group_counters(t->group);
        for (int step = 0; step < 2; step++) {
            const uint64_t before = n->calls[FSDP_KIND_ALL_GATHER];
            const uint64_t written = n->calls[FSDP_KIND_WRITE_SHARD];
            ASSERT_OK(tree_forward_backward(&m, m.model, &call));
            /* The root has no parameters, so it does not gather. */
            const uint64_t gathers = n->calls[FSDP_KIND_ALL_GATHER] - before;
            const bool copies = dtypes[d] == FSDP_DTYPE_F16;
            ASSERT_INT(n->calls[FSDP_KIND_WRITE_SHARD] - written, copies ? gathers : 0);
            ASSERT_OK(tree_forward_backward(&same, same.model, &call));
            ASSERT_INT(n->calls[FSDP_KIND_ALL_GATHER] - before, 2 * gathers + 1);
            ASSERT_OK(tree_sgd(m.model, 0.1f));
            ASSERT_OK(tree_sgd(same.model, 0.1f));
        }
        ASSERT_OK(tree_same_params(&m, &same));
        ASSERT_OK(trainee_close(&m));
        ASSERT_OK(trainee_close(&same));
    }
}

/* The error is the same on every device, so a plan fails wherever its run fails. The unit has both
 * kinds of parameters: in the master buffer and cast. */
TEST_RANKS(an_operation_that_reads_what_is_not_gathered_says_so_on_meta_too, 2)
{
    for (int d = 0; d < 4; d++) {
        const bool meta = d / 2;
        const fsdp_fully_shard_options o = of_dtype(dtypes[d % 2]);
        const tree_call call = {.micro_batch = t->rank};
        trainee m;
        ASSERT_OK(open_embedding(t, meta ? "meta" : NULL, &o, &m));
        ASSERT_OK(tree_forward_backward(&m, m.model, &call));
        fsdp_module *linear = trainee_unit(&m, "linear");
        ASSERT_OK(fsdp_set_unshard_in_backward(linear, false));
        ASSERT_ERROR(
            tree_forward_backward(&m, m.model, &call), FSDP_ERR_STATE,
            "backward of linear: linear: 'down' of unit 'linear' is resharded: "
            "call fsdp_unit_unshard() before reading it outside of its module's forward and "
            "backward; in backward, too, after set_unshard_in_backward(false) "
            "(--no-unshard-in-backward)");
        /* After unshard the operation succeeds. */
        ASSERT_OK(fsdp_unit_unshard(linear));
        ASSERT_OK(tree_forward_backward(&m, m.model, &call));
        ASSERT_OK(fsdp_unit_reshard(linear));
        ASSERT_OK(fsdp_set_unshard_in_backward(linear, true));
        ASSERT_OK(tree_forward_backward(&m, m.model, &call));
        /* An operation outside of its module cannot read it either. */
        fsdp_scope *s;
        ASSERT_OK(tree_scope(&m, NULL, &call, &s));
        fsdp_tensor *up = fsdp_read(s, tree_of(linear)->up);
        ASSERT(!fsdp_linear(s, up, up, NULL));
        ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_STATE,
                     "linear: 'up' of unit 'linear' is resharded");
        ASSERT(!strstr(fsdp_last_error(), "in backward, too"));
        fsdp_scope_close(s);
        ASSERT_OK(trainee_close(&m));
    }
}

/* --- the hook --- */

typedef struct hook_log {
    int calls;
    bool fail;
} hook_log;

static fsdp_status double_rows(fsdp_parameter *p, fsdp_tensor *rows, void *arg)
{
    hook_log *log = arg;
    float *values = elements_of(rows);
    log->calls++;
    if (log->fail)
        return fsdp_error(FSDP_ERR_INVALID, "the hook fails on purpose");
    for (int64_t i = 0; i < fsdp_tensor_numel(rows); i++)
        values[i] *= 2.0f;
    elements_changed(rows, values);
    return fsdp_tensor_numel(rows) == fsdp_tensor_numel(fsdp_parameter_local(p))
               ? FSDP_OK
               : fsdp_error(FSDP_ERR_STATE, "rows of another shape");
}

TEST_RANKS(the_all_reduce_hook_sees_each_gradient_once_a_step, 2)
{
    chain c;
    hook_log log = {0};
    float *once = NULL, *twice = NULL;
    ASSERT_OK(chain_open(t->group, &tree_variants[0], &c));
    const fsdp_parameter *up = tree_of(c.units[1])->up;
    for (int a = 0; a < 2; a++)
        ASSERT_OK(chain_micro_step(&c, 0, a, 2));
    ASSERT_OK(tree_full_grad(up, &once));
    fsdp_module_zero_grad(c.m.model);
    ASSERT_OK(fsdp_set_all_reduce_hook(c.units[1], double_rows, &log));
    for (int a = 0; a < 2; a++) {
        ASSERT_OK(chain_micro_step(&c, 0, a, 2));
        ASSERT_INT(log.calls, a ? 3 : 0); /* norm, up, down; when the step's sum is complete */
    }
    ASSERT_OK(tree_full_grad(up, &twice));
    for (int i = 0; i < 4 * 7; i++)
        ASSERT_F32(twice[i], 2.0f * once[i]);
    fsdp_free(once);
    fsdp_free(twice);
    ASSERT_OK(fsdp_set_all_reduce_hook(c.units[1], NULL, NULL));
    ASSERT_OK(chain_run(&c, 1));
    ASSERT_INT(log.calls, 3);
    ASSERT_OK(chain_close(&c));
}

/* After a failure in the middle of a reduce, the next step is correct and keeps no more memory than
 * the one before. */
TEST_RANKS(a_reduce_that_fails_is_cancelled, 2)
{
    for (int d = 0; d < 3; d++)
        for (int unit = 0; unit < CHAIN_UNITS; unit += 2) {
            const fsdp_fully_shard_options o = of_dtype(dtypes[d]);
            chain c, plain;
            hook_log log = {.fail = true};
            fsdp_memory_stats before, after;
            ASSERT_OK(chain_open(t->group, &o, &c));
            ASSERT_OK(chain_open(t->group, &o, &plain));
            ASSERT_OK(chain_run(&c, 0));
            fsdp_device_memory(c.m.device, &before);
            fsdp_module_zero_grad(c.m.model);
            ASSERT_OK(fsdp_set_all_reduce_hook(c.units[unit], double_rows, &log));
            ASSERT_ERROR(chain_run(&c, 0), FSDP_ERR_INVALID, "the hook fails");
            ASSERT(is_resharded(&c));
            ASSERT_OK(fsdp_set_all_reduce_hook(c.units[unit], NULL, NULL));
            fsdp_module_zero_grad(c.m.model);
            ASSERT_OK(chain_run(&c, 0));
            fsdp_device_memory(c.m.device, &after);
            ASSERT_INT(after.allocated, before.allocated);
            ASSERT_OK(chain_run(&plain, 0));
            ASSERT_OK(tree_sgd(c.m.model, 0.1f));
            ASSERT_OK(tree_sgd(plain.m.model, 0.1f));
            ASSERT_OK(tree_same_params(&c.m, &plain.m));
            ASSERT_OK(chain_close(&c));
            ASSERT_OK(chain_close(&plain));
        }
}

/* --- the time of a reduce --- */

typedef struct place {
    fsdp_region_hooks hooks;
    const fsdp_group *group;
    uint64_t seen[CHAIN_BLOCKS]; /* reduces that were done when backward had left block i */
    int n;
} place;

static fsdp_status count_reduces(void *self, bool last)
{
    place *p = self;
    (void)last;
    if (p->n < CHAIN_BLOCKS)
        p->seen[p->n++] = fsdp_group_counters(p->group)->calls[FSDP_KIND_REDUCE_SCATTER];
    return FSDP_OK;
}

/* When backward has left the k-th unit, k - 1 reduces are done, however slow the peers are. */
TEST_RANKS(a_unit_is_reduced_when_the_next_one_is_left, 4)
{
    chain c;
    place p = {.group = t->group};
    p.hooks = (fsdp_region_hooks){.post_backward = count_reduces, .self = &p};
    ASSERT_OK(chain_open(t->group, &tree_variants[1], &c));
    for (int i = 0; i < CHAIN_BLOCKS; i++)
        ASSERT_OK(fsdp_module_add_hooks(fsdp_module_parent(c.units[i]), &p.hooks, NULL));
    for (int step = 0; step < 3; step++) {
        fsdp_group_set_delay(t->group, 11 + step, step ? 2000 : 0);
        uint64_t before = fsdp_group_counters(t->group)->calls[FSDP_KIND_REDUCE_SCATTER];
        p.n = 0;
        tree_of(c.units[2])->pause_us = t->rank == step ? 20000 : 0;
        ASSERT_OK(chain_run(&c, step));
        ASSERT_INT(p.n, CHAIN_BLOCKS);
        for (int k = 0; k < CHAIN_BLOCKS; k++)
            ASSERT_INT(p.seen[k] - before, k);
    }
    ASSERT_OK(chain_close(&c));
}

/* --- queries and refused calls --- */

TEST_RANKS(the_info_of_a_unit_has_its_controls, 2)
{
    const fsdp_fully_shard_options o = {.backward_prefetch = FSDP_BACKWARD_POST,
                                        .forward_prefetch = FSDP_FORWARD_NONE};
    fsdp_unit_info info;
    chain c;
    ASSERT_OK(chain_open(t->group, &o, &c));
    ASSERT(info_of(c.units[0], &info));
    ASSERT_INT(info.backward_prefetch, FSDP_BACKWARD_POST);
    ASSERT_INT(info.forward_prefetch, FSDP_FORWARD_NONE);
    ASSERT(info.limit_all_gathers && info.requires_gradient_sync && info.requires_all_reduce);
    ASSERT(info.reshard_after_backward && info.unshard_in_backward && info.is_last_backward);
    ASSERT(!info.is_unsharded && !info.is_prefetched && !info.is_held);
    ASSERT_OK(fsdp_unit_unshard(c.units[0]));
    ASSERT(info_of(c.units[0], &info) && info.is_unsharded && info.is_held);
    ASSERT_OK(fsdp_unit_reshard(c.units[0]));
    ASSERT_OK(fsdp_set_requires_all_reduce(c.units[0], false, false));
    ASSERT_OK(fsdp_set_unshard_in_backward(c.units[0], false));
    ASSERT_OK(fsdp_set_gradient_divide_factor(c.m.model, 3.0));
    ASSERT(info_of(c.units[0], &info));
    ASSERT(!info.requires_all_reduce && info.requires_gradient_sync && !info.unshard_in_backward);
    ASSERT_NEAR(info.gradient_divide_factor, 3.0, 0.0);
    ASSERT(info_of(c.units[1], &info) && info.requires_all_reduce && info.unshard_in_backward);
    ASSERT_OK(chain_close(&c));
}

typedef fsdp_status control(fsdp_module *module, bool value, bool recurse);

/* Is control k on in this unit? */
static bool is_on(const fsdp_module *unit, int k)
{
    fsdp_unit_info info = {0};
    const bool known = info_of(unit, &info);
    const bool on[] = {info.requires_gradient_sync, info.requires_all_reduce,
                       info.reshard_after_backward, info.reshard_after_forward};
    return known && on[k];
}

TEST_RANKS(controls_reach_below_only_if_they_recurse, 2)
{
    static control *const controls[] = {
        fsdp_set_requires_gradient_sync, fsdp_set_requires_all_reduce,
        fsdp_set_reshard_after_backward, fsdp_set_reshard_after_forward};
    chain c;
    ASSERT_OK(chain_open(t->group, &(fsdp_fully_shard_options){0}, &c));
    for (int k = 0; k < 4; k++) {
        for (int recurse = 0; recurse < 2; recurse++) {
            ASSERT_OK(controls[k](c.m.model, true, true));
            ASSERT(is_on(c.m.model, k) && is_on(c.units[1], k));
            ASSERT_OK(controls[k](c.m.model, false, recurse));
            ASSERT(!is_on(c.m.model, k));
            ASSERT(is_on(c.units[1], k) == !recurse);
        }
    }
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(controls_are_for_units, 1)
{
    fsdp_module *plain;
    ASSERT_OK(fsdp_linear_create(3, 3, true, (fsdp_init){0}, &plain));
    ASSERT_ERROR(fsdp_set_requires_gradient_sync(plain, true, true), FSDP_ERR_INVALID,
                 "is no unit and has none below it");
    ASSERT_ERROR(fsdp_set_requires_gradient_sync(plain, true, false), FSDP_ERR_INVALID,
                 "was not given to fsdp_fully_shard");
    ASSERT_ERROR(fsdp_set_requires_all_reduce(plain, true, true), FSDP_ERR_INVALID, "no unit");
    ASSERT_ERROR(fsdp_set_reshard_after_forward(plain, true, true), FSDP_ERR_INVALID, "no unit");
    ASSERT_ERROR(fsdp_set_reshard_after_backward(plain, true, true), FSDP_ERR_INVALID, "no unit");
    ASSERT_ERROR(fsdp_set_is_last_backward(plain, true), FSDP_ERR_INVALID, "fully_shard");
    ASSERT_ERROR(fsdp_set_unshard_in_backward(plain, true), FSDP_ERR_INVALID, "fully_shard");
    ASSERT_ERROR(fsdp_set_all_reduce_hook(plain, NULL, NULL), FSDP_ERR_INVALID, "fully_shard");
    ASSERT_ERROR(fsdp_no_sync_begin(plain), FSDP_ERR_INVALID, "no unit");
    ASSERT_ERROR(fsdp_set_gradient_divide_factor(plain, 4.0), FSDP_ERR_INVALID, "no unit");
    fsdp_module_destroy(plain);
}
