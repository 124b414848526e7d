/* Slots of sections (Note [Sections] in src/fsdp/slot.h): less memory, the same bits. Random trees
 * and controls are trained with them, too, in test_random.c and test_random_controls.c. */
#include <string.h>

#include "src/autograd/checkpoint.h"
#include "src/base/alloc.h"
#include "src/comm/comm.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    WIDTH = 32,
    LARGE = 4, /* matrices [WIDTH, WIDTH], each a section */
    MATRICES = 6,
    SMALL_ROWS = 4, /* of the others, which share one */
    MOST_READS = 8,
    STEPS = 3
};

/* A unit of matrices "abcdef", which its forward reads as the test says. */
typedef struct reader {
    fsdp_parameter *w[MATRICES];
    int reads[MOST_READS], n; /* in this order, backward in the other */
    bool checkpointed;        /* each read is a part of its own */
} reader;

typedef struct one_read {
    const reader *m;
    int matrix;
} one_read;

/* out: x + gelu(w x), or x and sum(w x). */
static void read_one(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    const one_read *r = self;
    fsdp_tensor *x = in->t[0], *y = fsdp_linear(s, x, fsdp_read(s, r->m->w[r->matrix]), NULL);
    const bool is_large = r->matrix < LARGE;
    out->t[out->n++] = is_large ? fsdp_add(s, x, fsdp_gelu(s, y)) : x;
    if (!is_large)
        out->t[out->n++] = fsdp_sum(s, y);
}

/* x -> a scalar */
static void reader_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const reader *m = self->impl;
    fsdp_args x = {.t = {in->t[0]}, .n = 1};
    fsdp_tensor *loss = NULL;
    for (int i = 0; i < m->n; i++) {
        const one_read r = {m, m->reads[i]};
        fsdp_args y = {.n = 0};
        if (m->checkpointed)
            fsdp_checkpoint(s, NULL, read_one, &r, sizeof r, &x, &y);
        else
            read_one(s, &r, &x, &y);
        x.t[0] = y.t[0];
        if (y.n > 1)
            loss = loss ? fsdp_add(s, loss, y.t[1]) : y.t[1];
    }
    fsdp_tensor *sum = fsdp_sum(s, x.t[0]);
    out->t[out->n++] = loss ? fsdp_add(s, sum, loss) : sum;
}

static fsdp_status add_reader(fsdp_module **module)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    reader *m = fsdp_calloc(1, sizeof *m);
    if (!m)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_module_create("Reader", module));
    fsdp_module_set_forward(*module, reader_forward, m, fsdp_free);
    for (int i = 0; i < MATRICES; i++)
        FSDP_TRY(fsdp_module_add_parameter(*module, names[i], 2,
                                           (int64_t[]){i < LARGE ? WIDTH : SMALL_ROWS, WIDTH},
                                           (fsdp_init){.mean = 0.0f, .std = 0.2f}, &m->w[i]));
    return FSDP_OK;
}

static void set_reads(const trainee *m, const char *text, bool checkpointed)
{
    reader *r = m->model->impl;
    r->n = (int)strlen(text);
    r->checkpointed = checkpointed;
    for (int i = 0; i < r->n; i++)
        r->reads[i] = text[i] - 'a';
}

static fsdp_status open_reader(fsdp_group *group, bool in_sections, trainee *m)
{
    const fsdp_fully_shard_options o = {0};
    FSDP_TRY(trainee_open(group, NULL, FSDP_DTYPE_F32, m));
    FSDP_TRY(add_reader(&m->model));
    FSDP_TRY(fsdp_fully_shard(m->model, m->group, m->device, &o));
    if (in_sections)
        FSDP_TRY(tree_in_sections(m->model));
    return fsdp_module_init(m->model, 5);
}

static fsdp_tensor *input(fsdp_scope *s, const trainee *m, int leaf)
{
    float values[TREE_ROWS * WIDTH];
    fsdp_tensor *x;
    for (int i = 0; i < TREE_ROWS * WIDTH; i++)
        values[i] = (float)((i * 7 + leaf * 13) % 11) / 11.0f - 0.4f;
    const fsdp_status status =
        fsdp_tensor_from_data(m->device, FSDP_DTYPE_F32, 2, (int64_t[]){TREE_ROWS, WIDTH}, values,
                              FSDP_TAG_ACTIVATION, &x);
    return fsdp_scope_check(s, status) ? fsdp_own(s, x) : NULL;
}

static fsdp_status run_micro_step(trainee *m, int leaf, int micro_step, int n)
{
    fsdp_scope *s;
    const tree_call call = {.micro_step = micro_step, .n_micro_steps = n};
    FSDP_TRY(tree_scope(m, m->tape, &call, &s));
    const fsdp_args in = {.t = {input(s, m, leaf)}, .n = 1};
    fsdp_tensor *loss = fsdp_module_call(s, m->model, NULL, in).t[0];
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_backward(m->tape, &loss, NULL, 1);
    fsdp_scope_close(s);
    return status;
}

static fsdp_status run(trainee *m, int leaf)
{
    return run_micro_step(m, leaf, 0, 1);
}

static fsdp_status update(trainee *m)
{
    fsdp_status status = tree_sgd(m->model, 0.1f);
    fsdp_module_zero_grad(m->model);
    return status;
}

/* --- which gradients are reduced together --- */

typedef struct counts {
    uint64_t calls, bytes;
} counts;

/* Of reduces since `before`, which is now from here on. */
static counts since(const fsdp_group *group, counts *before)
{
    const fsdp_comm_counters *c = fsdp_group_counters(group);
    const counts now = {c->calls[FSDP_KIND_REDUCE_SCATTER],
                        c->logical_bytes[FSDP_KIND_REDUCE_SCATTER]};
    const counts d = {now.calls - before->calls, now.bytes - before->bytes};
    *before = now;
    return d;
}

/* Sections of `reads` give the bits of whole slots, which are reduced once. */
static void check_reads(fsdp_test *t, const char *reads, bool checkpointed, uint64_t sections)
{
    trainee m, whole;
    counts before = {0};
    ASSERT_OK(open_reader(t->group, true, &m));
    ASSERT_OK(open_reader(t->group, false, &whole));
    set_reads(&m, reads, checkpointed);
    set_reads(&whole, reads, false);
    for (int step = 0; step < STEPS; step++) {
        since(t->group, &before);
        ASSERT_OK(run(&m, t->rank + step));
        const counts of_sections = since(t->group, &before);
        ASSERT_OK(run(&whole, t->rank + step));
        const counts of_whole = since(t->group, &before);
        ASSERT_INT(of_sections.calls, sections);
        ASSERT_INT(of_whole.calls, 1);
        ASSERT_INT(of_sections.bytes, of_whole.bytes);
        ASSERT_OK(update(&m));
        ASSERT_OK(update(&whole));
        ASSERT_OK(tree_same_params(&m, &whole));
    }
    ASSERT_OK(trainee_close(&m));
    ASSERT_OK(trainee_close(&whole));
}

TEST_RANKS(what_is_complete_is_reduced_before_the_next_begins, 3)
{
    check_reads(t, "abcd", false, 4);
    check_reads(t, "efabcd", false, 5);
    check_reads(t, "cab", false, 3);
}

TEST_RANKS(what_will_be_read_again_is_reduced_when_it_was, 2)
{
    check_reads(t, "aabcc", false, 3);
    check_reads(t, "abcda", false, 1); /* a second time when there is room for it no more */
    check_reads(t, "dabcb", false, 1); /* and then all that follows is in the whole slot */
}

TEST_RANKS(so_is_what_a_checkpointed_part_will_read_again, 2)
{
    check_reads(t, "abcd", true, 4);
    check_reads(t, "aabcc", true, 3);
    check_reads(t, "abcda", true, 1);
}

TEST_RANKS(one_rank_alone_has_sections_too, 1)
{
    trainee m, whole;
    ASSERT_OK(open_reader(t->group, true, &m));
    ASSERT_OK(open_reader(t->group, false, &whole));
    set_reads(&m, "abcd", false);
    set_reads(&whole, "abcd", false);
    ASSERT_OK(run(&m, 1));
    ASSERT_OK(run(&whole, 1));
    ASSERT_OK(update(&m));
    ASSERT_OK(update(&whole));
    ASSERT_OK(tree_same_params(&m, &whole));
    ASSERT_OK(trainee_close(&m));
    ASSERT_OK(trainee_close(&whole));
}

/* --- with controls --- */

TEST_RANKS(what_adds_up_without_being_communicated_is_whole, 2)
{
    trainee m, whole;
    counts before = {0};
    ASSERT_OK(open_reader(t->group, true, &m));
    ASSERT_OK(open_reader(t->group, false, &whole));
    set_reads(&m, "abcd", false);
    set_reads(&whole, "abcd", false);
    for (int micro = 0; micro < 3; micro++) {
        for (int i = 0; i < 2; i++)
            ASSERT_OK(fsdp_set_requires_gradient_sync((i ? &m : &whole)->model, micro != 1, true));
        since(t->group, &before);
        ASSERT_OK(run_micro_step(&m, t->rank + micro, micro, 3));
        ASSERT_INT(since(t->group, &before).calls, micro == 0 ? 4 : micro == 1 ? 0 : 1);
        ASSERT_OK(run_micro_step(&whole, t->rank + micro, micro, 3));
    }
    ASSERT_OK(update(&m));
    ASSERT_OK(update(&whole));
    ASSERT_OK(tree_same_params(&m, &whole));
    ASSERT_OK(trainee_close(&m));
    ASSERT_OK(trainee_close(&whole));
}

/* --- memory --- */

static int64_t peak_of_gradients(const trainee *m)
{
    fsdp_memory_stats stats;
    fsdp_device_memory(m->device, &stats);
    return stats.tag_peak[FSDP_TAG_GRAD];
}

/* A rank's part of two sections, rather than of all. */
TEST_RANKS(two_sections_are_there_at_a_time, 2)
{
    const int64_t matrix = WIDTH * WIDTH * (int64_t)sizeof(float);
    int64_t peak[2];
    for (int in_sections = 0; in_sections < 2; in_sections++) {
        trainee m;
        ASSERT_OK(open_reader(t->group, in_sections, &m));
        set_reads(&m, "abcd", false);
        fsdp_device_reset_peak_memory(m.device);
        ASSERT_OK(run(&m, t->rank));
        peak[in_sections] = peak_of_gradients(&m);
        ASSERT_OK(trainee_close(&m));
    }
    ASSERT(peak[0] >= LARGE * matrix + LARGE * matrix / 2);
    ASSERT(peak[1] <= 2 * matrix + LARGE * matrix / 2 + matrix / 2);
}

/* --- failures --- */

TEST_RANKS(ranks_whose_gradients_come_in_another_order_are_told, 2)
{
    trainee m;
    ASSERT_OK(open_reader(t->group, true, &m));
    set_reads(&m, t->rank ? "abcdef" : "abcdfe", false);
    ASSERT_ERROR(run(&m, t->rank), FSDP_ERR_COMM, "ranks diverged");
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(and_ranks_with_gradients_of_other_matrices, 2)
{
    trainee m;
    ASSERT_OK(open_reader(t->group, true, &m));
    set_reads(&m, t->rank ? "abcd" : "acbd", false);
    ASSERT_ERROR(run(&m, t->rank), FSDP_ERR_COMM, "ranks diverged");
    ASSERT_OK(trainee_close(&m));
}
