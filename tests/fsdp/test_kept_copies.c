/* Note [Kept copies] in src/fsdp/param_storage.h: a copy that is kept from step to step never
 * differs from one that a gather would cast. */
#include <fsdp/optim.h>

#include "src/base/alloc.h"
#include "src/comm/comm.h"
#include "src/fsdp/state.h"
#include "src/fsdp/storage_copy.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    STEPS = 4
};

typedef enum writer {
    BY_ADAMW,
    BY_ADAFACTOR, /* does not write the copy */
    BY_HAND,
    BY_TURNS, /* the optimizer, then by hand a part of what it wrote */
    WRITERS
} writer;

typedef struct pupil {
    trainee m;
    fsdp_optimizer *optimizer;
} pupil;

static fsdp_status pupil_open(fsdp_group *group, const fsdp_fully_shard_options *o, writer by,
                              pupil *p)
{
    FSDP_TRY(trainee_open_example(group, o, &p->m));
    return by == BY_ADAFACTOR ? fsdp_adafactor_create(p->m.model, NULL, &p->optimizer)
                              : fsdp_adamw_create(p->m.model, NULL, &p->optimizer);
}

static fsdp_status pupil_close(pupil *p)
{
    fsdp_optimizer_destroy(p->optimizer);
    return trainee_close(&p->m);
}

static fsdp_status pupil_write(pupil *p, writer by, int step)
{
    if (by != BY_HAND)
        FSDP_TRY(fsdp_optimizer_step(p->optimizer, 1.0f));
    if (by == BY_HAND || (by == BY_TURNS && step % 2)) {
        fsdp_module *part = by == BY_HAND ? p->m.model : trainee_unit(&p->m, "second");
        FSDP_TRY(tree_sgd(part, 0.1f));
    }
    fsdp_optimizer_zero_grad(p->optimizer);
    return FSDP_OK;
}

static fsdp_param_group *unit_of(const fsdp_module *m)
{
    return ((fsdp_state *)m->fsdp_state)->param_group;
}

/* Train one model that keeps its copies and one that casts at each gather, and compare them. */
static void check_same(fsdp_test *t, fsdp_fully_shard_options o, writer by, bool new_memory)
{
    pupil keeps, casts;
    o.reshard_after_forward = FSDP_RESHARD_TRUE;
    ASSERT_OK(pupil_open(t->group, &o, by, &casts));
    o.reshard_after_forward = FSDP_RESHARD_FALSE;
    ASSERT_OK(pupil_open(t->group, &o, by, &keeps));
    for (int step = 0; step < STEPS; step++) {
        const tree_call call = {.step = step, .micro_batch = trainee_rank(&keeps.m)};
        pupil *const both[] = {&keeps, &casts};
        for (int i = 0; i < 2; i++) {
            ASSERT_OK(tree_forward_backward(&both[i]->m, both[i]->m.model, &call));
            ASSERT_OK(pupil_write(both[i], by, step));
        }
        fsdp_param_group *root = unit_of(keeps.m.model);
        if (new_memory) {
            fsdp_dtype dtypes[TREE_MAX_CHILDREN];
            for (size_t i = 0; i < root->n_params; i++)
                dtypes[i] = root->params[i].dtype;
            ASSERT_OK(fsdp_param_group_store_as(root, dtypes));
        }
        ASSERT_OK(tree_evaluate(&keeps.m, keeps.m.model, step));
        ASSERT_OK(tree_same_params(&keeps.m, &casts.m));
    }
    ASSERT_OK(pupil_close(&keeps));
    ASSERT_OK(pupil_close(&casts));
}

static void check_all(fsdp_test *t)
{
    static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};
    for (int d = 0; d < 3; d++)
        for (int by = 0; by < WRITERS; by++)
            for (int whole = 0; whole < 2; whole++) {
                const fsdp_fully_shard_options o = {.mp_policy = {.param_dtype = dtypes[d]},
                                                    .no_shard = whole};
                check_same(t, o, (writer)by, false);
                check_same(t, o, (writer)by, true);
                CHECK_HERE();
            }
}

TEST_RANKS(training_with_kept_copies_gives_the_same_bits, 2)
{
    check_all(t);
}

/* Rows do not divide evenly, so some ranks have no rows of a parameter. */
TEST_RANKS(training_with_kept_copies_gives_the_same_bits_over_odd_ranks, 5)
{
    check_all(t);
}

TEST_RANKS(training_with_kept_copies_gives_the_same_bits_alone, 1)
{
    check_all(t);
}

static int last_dimension(const char *name, const fsdp_parameter *p, void *arg)
{
    (void)name, (void)arg;
    return fsdp_parameter_ndim(p) - 1;
}

/* Own columns are not contiguous in the copy, so the optimizer cannot write them there. */
TEST_RANKS(columns_are_cast, 3)
{
    const fsdp_fully_shard_options o = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16},
                                        .shard_placement_fn = last_dimension};
    check_same(t, o, BY_ADAMW, false);
    check_same(t, o, BY_TURNS, true);
}

/* AdamW writes the copy itself, so the next gather casts nothing. If the masters are not written,
 * the copy is not written either, for any number of micro-steps. */
TEST_RANKS(what_adamw_wrote_is_not_cast_again, 2)
{
    const fsdp_fully_shard_options o = {.mp_policy = {.param_dtype = FSDP_DTYPE_F16},
                                        .reshard_after_forward = FSDP_RESHARD_FALSE};
    const fsdp_comm_counters *n = fsdp_group_counters(t->group);
    pupil p;
    ASSERT_OK(pupil_open(t->group, &o, BY_ADAMW, &p));
    const fsdp_param_group *root = unit_of(p.m.model);
    const fsdp_copy_memory *copy = (const void *)root->memories.items[FSDP_MEMORY_COPY];
    ASSERT_OK(tree_forward_backward(&p.m, p.m.model, &(tree_call){.n_micro_steps = 2}));
    const uint64_t once = n->calls[FSDP_KIND_WRITE_SHARD];
    ASSERT_OK(
        tree_forward_backward(&p.m, p.m.model, &(tree_call){.micro_step = 1, .n_micro_steps = 2}));
    ASSERT_INT(n->calls[FSDP_KIND_WRITE_SHARD], once);
    ASSERT_OK(pupil_write(&p, BY_ADAMW, 0));
    ASSERT(copy->is_open);
    ASSERT_INT(copy->unwritten, 0);
    ASSERT_OK(pupil_write(&p, BY_HAND, 0)); /* without gradients it writes nothing */
    ASSERT_INT(copy->unwritten, 0);
    ASSERT_OK(tree_evaluate(&p.m, p.m.model, 0));
    ASSERT(!copy->is_open);
    ASSERT_INT(n->calls[FSDP_KIND_WRITE_SHARD], 2 * once);
    ASSERT_OK(fsdp_tensor_begin_write(root->params[0].local));
    fsdp_tensor_end_write(root->params[0].local);
    ASSERT_INT(copy->unwritten, 1);
    ASSERT_OK(pupil_close(&p)); /* while the copy is open */
}
