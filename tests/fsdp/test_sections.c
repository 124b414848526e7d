/* Gradient buffers in sections (Note [Sections] in src/fsdp/grad_buffer.h): less memory, the same
 * bits. test_random.c and test_random_controls.c use sections as well. */
#include "src/comm/comm.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/reader.h"
#include "tests/test.h"

enum {
    STEPS = 3
};

/* The same program with sections and with whole buffers. */
typedef struct both {
    trainee sections, whole;
} both;

static fsdp_status open_both(fsdp_group *group, const fsdp_device_mesh *mesh, both *b)
{
    FSDP_TRY(reader_open(group, mesh, true, &b->sections));
    return reader_open(group, mesh, false, &b->whole);
}

static void set_both(const both *b, const char *program)
{
    reader_set(&b->sections, program, false);
    reader_set(&b->whole, program, false);
}

/* Update both models. An error unless their parameters are equal. */
static fsdp_status update_both(both *b)
{
    FSDP_TRY(reader_update(&b->sections));
    FSDP_TRY(reader_update(&b->whole));
    return tree_same_params(&b->sections, &b->whole);
}

static fsdp_status close_both(both *b)
{
    FSDP_TRY(trainee_close(&b->sections));
    return trainee_close(&b->whole);
}

typedef struct counts {
    uint64_t calls, bytes;
} counts;

/* Collectives since `before`, which is then set to the present counts. */
static counts since(const fsdp_group *group, fsdp_phase_kind kind, counts *before)
{
    const fsdp_comm_counters *c = fsdp_group_counters(group);
    const counts now = {c->calls[kind], c->logical_bytes[kind]};
    const counts d = {now.calls - before->calls, now.bytes - before->bytes};
    *before = now;
    return d;
}

static counts reduces(const fsdp_group *group, counts *before)
{
    return since(group, FSDP_KIND_REDUCE_SCATTER, before);
}

/* --- which gradients are reduced together --- */

/* Check that training `program` with sections gives the bits of training with whole buffers. In
 * each step there are `sections` reduces with sections, and one with whole buffers. */
static void check_reads_as(fsdp_test *t, const char *program, bool in_parts, bool as_one_part,
                           uint64_t sections)
{
    both b;
    counts before = {0};
    ASSERT_OK(open_both(t->group, NULL, &b));
    set_both(&b, program);
    reader_of(&b.sections)->checkpointed = in_parts;
    reader_of(&b.sections)->is_one_part = as_one_part;
    for (int step = 0; step < STEPS; step++) {
        reduces(t->group, &before);
        ASSERT_OK(reader_step(&b.sections, t->rank + step));
        const counts of_sections = reduces(t->group, &before);
        ASSERT_OK(reader_step(&b.whole, t->rank + step));
        const counts of_whole = reduces(t->group, &before);
        ASSERT_INT(of_sections.calls, sections);
        ASSERT_INT(of_whole.calls, 1);
        ASSERT_INT(of_sections.bytes, of_whole.bytes);
        ASSERT_OK(update_both(&b));
    }
    ASSERT_OK(close_both(&b));
}

/* A program, and the number of sections of its gradients. */
typedef struct expected {
    const char *program; /* NULL: end of the list */
    uint64_t sections;
} expected;

static void check_reads(fsdp_test *t, const expected *list)
{
    for (const expected *e = list; e->program; e++) {
        check_reads_as(t, e->program, false, false, e->sections);
        CHECK_HERE();
    }
}

TEST_RANKS(what_is_complete_is_reduced_before_the_next_begins, 3)
{
    check_reads(t, (const expected[]){{"abcd", 4}, {"efabcd", 5}, {"cab", 3}, {NULL, 0}});
}

TEST_RANKS(a_vector_comes_with_its_matrix, 2)
{
    check_reads(t, (const expected[]){{"ABCD", 4}, {"EFaBcD", 5}, {NULL, 0}});
}

/* If matrices used the room of vectors, "e", "f" and "a" would fit into a section, but not the
 * vector of "a". */
TEST_RANKS(matrices_do_not_take_the_room_of_vectors, 2)
{
    check_reads(t, (const expected[]){{"AEF", 2}, {NULL, 0}});
}

TEST_RANKS(a_head_that_writes_in_forward_has_a_section, 2)
{
    check_reads(t, (const expected[]){{"abcH", 4}, {"EFaBcH", 5}, {NULL, 0}});
}

TEST_RANKS(a_unit_that_reads_something_twice_is_whole, 2)
{
    check_reads(t, (const expected[]){{"abcda", 1}, {"ABBC", 1}, {"daH", 1}, {NULL, 0}});
}

/* The head opens a section before the other reads are known. */
TEST_RANKS(what_was_not_foreseen_makes_a_section_whole, 2)
{
    check_reads(t, (const expected[]){{"Habc", 1}, {"Had", 1}, {"HAdB", 1}, {NULL, 0}});
}

static void check_parts(fsdp_test *t, const expected *list)
{
    for (const expected *e = list; e->program; e++)
        /* Checkpointed: each read, all together, parts within a part. */
        for (int how = 1; how < 4; how++) {
            check_reads_as(t, e->program, how & 1, how & 2, e->sections);
            CHECK_HERE();
        }
}

TEST_RANKS(checkpointed_parts_announce_what_they_will_read, 2)
{
    check_parts(t,
                (const expected[]){{"abcd", 4}, {"ABCD", 4}, {"abcH", 4}, {"abcda", 1}, {NULL, 0}});
}

/* --- with controls, and several tapes --- */

TEST_RANKS(what_adds_up_without_being_communicated_is_whole, 2)
{
    both b;
    counts before = {0};
    ASSERT_OK(open_both(t->group, NULL, &b));
    set_both(&b, "abcd");
    for (int micro = 0; micro < 3; micro++) {
        const tree_call call = {
            .micro_batch = t->rank + micro, .micro_step = micro, .n_micro_steps = 3};
        ASSERT_OK(fsdp_set_requires_gradient_sync(b.sections.model, micro != 1, true));
        ASSERT_OK(fsdp_set_requires_gradient_sync(b.whole.model, micro != 1, true));
        reduces(t->group, &before);
        ASSERT_OK(reader_micro_step(&b.sections, &call));
        ASSERT_INT(reduces(t->group, &before).calls, micro == 0 ? 4 : micro == 1 ? 0 : 1);
        ASSERT_OK(reader_micro_step(&b.whole, &call));
    }
    ASSERT_OK(update_both(&b));
    ASSERT_OK(close_both(&b));
}

static fsdp_status count_calls(fsdp_parameter *p, fsdp_tensor *grad, void *arg)
{
    (void)p, (void)grad;
    ++*(int *)arg;
    return FSDP_OK;
}

static fsdp_status hook_both(const both *b, int *of_sections, int *of_whole)
{
    FSDP_TRY(fsdp_set_all_reduce_hook(b->sections.model, count_calls, of_sections));
    return fsdp_set_all_reduce_hook(b->whole.model, count_calls, of_whole);
}

/* The controls ask for communication in forward, but not in backward. A section stays open until
 * the next backward. */
static fsdp_status change_mind(trainee *m, int rank)
{
    fsdp_scope *s = NULL;
    fsdp_tensor *loss;
    const tree_call call = {.micro_batch = rank, .micro_step = 0, .n_micro_steps = 2};
    reader_set(m, "gH", false);
    fsdp_status status = reader_forward_on(m, m->tape, &call, &s, &loss);
    if (status == FSDP_OK)
        status = fsdp_set_requires_gradient_sync(m->model, false, true);
    if (status == FSDP_OK)
        status = fsdp_backward(m->tape, &loss, NULL, 1);
    fsdp_scope_close(s);
    FSDP_TRY(status);
    FSDP_TRY(fsdp_set_requires_gradient_sync(m->model, true, true));
    reader_set(m, "gbaH", false);
    return reader_micro_step(
        m, &(tree_call){.micro_batch = rank + 4, .micro_step = 1, .n_micro_steps = 2});
}

TEST_RANKS(a_section_that_stays_open_ends_when_its_gradients_are_complete, 2)
{
    both b;
    int of_sections = 0, of_whole = 0;
    ASSERT_OK(open_both(t->group, NULL, &b));
    ASSERT_OK(hook_both(&b, &of_sections, &of_whole));
    ASSERT_OK(change_mind(&b.sections, t->rank));
    ASSERT_OK(change_mind(&b.whole, t->rank));
    ASSERT_INT(of_sections, of_whole);
    ASSERT_OK(update_both(&b));
    ASSERT_OK(close_both(&b));
}

/* Three micro-steps. With `once`, only the last one reduces over replicas. */
static fsdp_status train_replicas(trainee *m, int rank, bool once)
{
    for (int micro = 0; micro < 3; micro++) {
        FSDP_TRY(fsdp_set_requires_all_reduce(m->model, !once || micro == 2, true));
        FSDP_TRY(reader_micro_step(m, &(tree_call){.micro_batch = rank + 4 * micro,
                                                   .micro_step = micro,
                                                   .n_micro_steps = 3}));
    }
    return FSDP_OK;
}

static void check_replicas(fsdp_test *t, const fsdp_device_mesh *mesh, bool once, uint64_t sections)
{
    const fsdp_group *replicas = fsdp_device_mesh_group(mesh, 0);
    both b;
    counts before = {0};
    int of_sections = 0, of_whole = 0;
    ASSERT_OK(open_both(t->group, mesh, &b));
    set_both(&b, "aBcD");
    ASSERT_OK(hook_both(&b, &of_sections, &of_whole));
    since(replicas, FSDP_KIND_ALL_REDUCE, &before);
    ASSERT_OK(train_replicas(&b.sections, t->rank, once));
    const counts got = since(replicas, FSDP_KIND_ALL_REDUCE, &before);
    ASSERT_OK(train_replicas(&b.whole, t->rank, once));
    const counts want = since(replicas, FSDP_KIND_ALL_REDUCE, &before);
    ASSERT_INT(got.calls, sections * want.calls);
    ASSERT_INT(got.bytes, want.bytes);
    ASSERT_INT(of_sections, of_whole);
    ASSERT_OK(update_both(&b));
    ASSERT_OK(close_both(&b));
}

TEST_RANKS(replicas_add_each_gradient_once, 4)
{
    fsdp_device_mesh *mesh;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, NULL, &mesh));
    check_replicas(t, mesh, false, 4);
    CHECK_HERE();
    check_replicas(t, mesh, true, 1);
    fsdp_device_mesh_destroy(mesh);
}

/* Two forwards, each checkpointed and on its own tape, then their backwards. */
static fsdp_status run_two_tapes(trainee *m, int rank)
{
    fsdp_tape *tapes[2] = {m->tape, NULL};
    fsdp_scope *s[2] = {NULL, NULL};
    fsdp_tensor *loss[2];
    fsdp_status status = fsdp_tape_create(&tapes[1]);
    for (int i = 0; i < 2 && status == FSDP_OK; i++)
        status = reader_forward_on(m, tapes[i],
                                   &(tree_call){.micro_batch = rank + 5 * i, .n_micro_steps = 1},
                                   &s[i], &loss[i]);
    for (int i = 0; i < 2 && status == FSDP_OK; i++)
        status = fsdp_backward(tapes[i], &loss[i], NULL, 1);
    fsdp_scope_close(s[1]);
    fsdp_scope_close(s[0]);
    fsdp_tape_destroy(tapes[1]);
    return status;
}

TEST_RANKS(backward_of_one_tape_forgets_no_reader_of_another, 2)
{
    both b;
    int of_sections = 0, of_whole = 0;
    ASSERT_OK(open_both(t->group, NULL, &b));
    ASSERT_OK(hook_both(&b, &of_sections, &of_whole));
    for (int again = 0; again < 2; again++) {
        reader_set(&b.sections, again ? "abcda" : "abcd", true);
        reader_set(&b.whole, again ? "abcda" : "abcd", true);
        ASSERT_OK(run_two_tapes(&b.sections, t->rank));
        ASSERT_OK(run_two_tapes(&b.whole, t->rank));
        ASSERT_INT(of_sections, of_whole);
        ASSERT_OK(update_both(&b));
    }
    ASSERT_OK(close_both(&b));
}

TEST_RANKS(a_checkpointed_forward_that_was_given_up_reads_nothing, 2)
{
    trainee m;
    fsdp_scope *s;
    fsdp_tensor *loss;
    counts before = {0};
    ASSERT_OK(reader_open(t->group, NULL, true, &m));
    reader_set(&m, "abcd", true);
    ASSERT_OK(reader_forward_on(&m, m.tape, &(tree_call){.n_micro_steps = 1}, &s, &loss));
    fsdp_scope_close(s);
    fsdp_tape_reset(m.tape);
    reduces(t->group, &before);
    ASSERT_OK(reader_step(&m, t->rank));
    ASSERT_INT(reduces(t->group, &before).calls, 4);
    ASSERT_OK(trainee_close(&m));
}

/* --- memory --- */

static int64_t peak_of_gradients(const trainee *m)
{
    fsdp_memory_stats stats;
    fsdp_device_memory(m->device, &stats);
    return stats.tag_peak[FSDP_TAG_GRAD];
}

/* Set *peak to the gradient memory of one step, as a number of matrices. */
static fsdp_status measure_peak(fsdp_test *t, const char *program, bool in_sections, double *peak)
{
    trainee m;
    FSDP_TRY(reader_open(t->group, NULL, in_sections, &m));
    reader_set(&m, program, false);
    fsdp_device_reset_peak_memory(m.device);
    FSDP_TRY(reader_step(&m, t->rank));
    *peak = (double)peak_of_gradients(&m) / (double)reader_matrix;
    return trainee_close(&m);
}

/* Check that a rank holds its part of two sections instead of all gradients, and its shard of all
 * gradients. */
static void check_peak(fsdp_test *t, const char *program)
{
    const double shard = (double)READER_LARGE / t->world_size;
    double whole, sections;
    ASSERT_OK(measure_peak(t, program, false, &whole));
    ASSERT_OK(measure_peak(t, program, true, &sections));
    ASSERT(whole >= READER_LARGE + shard);
    ASSERT(sections <= 2 + shard + 0.9);
}

TEST_RANKS(two_sections_are_there_at_a_time, 2)
{
    check_peak(t, "abcd");
    CHECK_HERE();
    check_peak(t, "ABCD");
    CHECK_HERE();
    check_peak(t, "abcH");
}

/* The gradients of one rank do not move: Note [Gradients of one rank] in src/fsdp/grad_own.h. */
TEST_RANKS(one_rank_alone_has_no_buffer, 1)
{
    for (int in_sections = 0; in_sections < 2; in_sections++) {
        double peak;
        ASSERT_OK(measure_peak(t, "abcd", in_sections, &peak));
        ASSERT(peak == READER_LARGE);
    }
}

/* The buffer must not be a section first and whole later. */
TEST_RANKS(what_is_read_twice_takes_no_more_than_a_whole_buffer, 2)
{
    const char *const programs[] = {"abcda", "ABBC", "abcdefab"};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        double whole, sections;
        ASSERT_OK(measure_peak(t, programs[i], false, &whole));
        ASSERT_OK(measure_peak(t, programs[i], true, &sections));
        ASSERT(sections <= whole);
    }
}

/* --- failures --- */

TEST_RANKS(ranks_whose_gradients_come_in_another_order_get_an_error, 2)
{
    trainee m;
    ASSERT_OK(reader_open(t->group, NULL, true, &m));
    reader_set(&m, t->rank ? "abcdef" : "abcdfe", false);
    ASSERT_ERROR(reader_step(&m, t->rank), FSDP_ERR_COMM, "ranks diverged");
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(and_ranks_with_gradients_of_other_matrices, 2)
{
    trainee m;
    ASSERT_OK(reader_open(t->group, NULL, true, &m));
    reader_set(&m, t->rank ? "abcd" : "acbd", false);
    ASSERT_ERROR(reader_step(&m, t->rank), FSDP_ERR_COMM, "ranks diverged");
    ASSERT_OK(trainee_close(&m));
}

/* The parameters that are frozen here have no gradients. A posted buffer keeps its layout. */
TEST_RANKS(a_posted_buffer_does_not_move_when_parameters_are_frozen, 2)
{
    for (int which = 0; which < 2; which++) {
        both b;
        ASSERT_OK(open_both(t->group, NULL, &b));
        set_both(&b, "BaCGH");
        for (int i = 0; i < 2; i++) {
            trainee *m = i ? &b.whole : &b.sections;
            const reader *r = reader_of(m);
            fsdp_scope *s;
            fsdp_tensor *loss;
            const tree_call call = {.micro_batch = t->rank, .n_micro_steps = 1};
            ASSERT_OK(reader_forward_on(m, m->tape, &call, &s, &loss));
            fsdp_parameter_set_requires_grad(which ? r->w[READER_LARGE] : r->bias[0], false);
            ASSERT_OK(fsdp_backward(m->tape, &loss, NULL, 1));
            fsdp_scope_close(s);
        }
        ASSERT_OK(update_both(&b));
        ASSERT_OK(close_both(&b));
    }
}

/* After `good` steps in which all ranks read the same, rank 0 reads a parameter twice. If there
 * were such steps, the pools already have all their buffers. */
static void check_other_reads(fsdp_test *t, int good)
{
    trainee m;
    ASSERT_OK(reader_open(t->group, NULL, true, &m));
    reader_set(&m, "abcd", false);
    for (int i = 0; i < good; i++) {
        ASSERT_OK(reader_step(&m, t->rank));
        ASSERT_OK(reader_update(&m));
    }
    reader_set(&m, t->rank ? "abcd" : "abcda", false);
    ASSERT_ERROR(reader_step(&m, t->rank), FSDP_ERR_COMM, "ranks diverged");
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(ranks_that_read_something_another_number_of_times_get_an_error, 2)
{
    check_other_reads(t, 0);
}

TEST_RANKS(and_in_a_later_step, 2)
{
    check_other_reads(t, 2);
}

/* The section that the head has opened has no room for the frozen parameter, and the next one has
 * no place for it. */
TEST_RANKS(what_was_frozen_after_its_forward_is_refused, 2)
{
    trainee m;
    fsdp_scope *s;
    fsdp_tensor *loss;
    ASSERT_OK(reader_open(t->group, NULL, true, &m));
    reader_set(&m, "baH", false);
    ASSERT_OK(reader_forward_on(&m, m.tape, &(tree_call){.n_micro_steps = 1}, &s, &loss));
    fsdp_parameter_set_requires_grad(reader_of(&m)->w[0], false);
    ASSERT_ERROR(fsdp_backward(m.tape, &loss, NULL, 1), FSDP_ERR_STATE,
                 "'a' of unit '' was frozen between a forward and its backward");
    fsdp_scope_close(s);
    ASSERT_OK(trainee_close(&m));
}

/* Backward fails in the middle of a section. The next step must equal a first step. */
TEST_RANKS(a_backward_that_fails_leaves_nothing, 2)
{
    static const char *const programs[] = {"abcXd", "abXcd", "AXBcH"};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        both b;
        ASSERT_OK(open_both(t->group, NULL, &b));
        reader_set(&b.sections, programs[i], false);
        ASSERT_ERROR(reader_step(&b.sections, t->rank), FSDP_ERR_INVALID, "on purpose");
        fsdp_module_zero_grad(b.sections.model);
        set_both(&b, "abcd");
        ASSERT_OK(reader_step(&b.sections, t->rank));
        ASSERT_OK(reader_step(&b.whole, t->rank));
        ASSERT_OK(update_both(&b));
        ASSERT_OK(close_both(&b));
    }
}

TEST_RANKS(a_unit_may_be_destroyed_with_a_posted_section, 2)
{
    trainee m;
    ASSERT_OK(reader_open(t->group, NULL, true, &m));
    reader_set(&m, "abcd", false);
    ASSERT_OK(fsdp_set_is_last_backward(m.model, false));
    ASSERT_OK(reader_step(&m, t->rank));
    ASSERT_OK(trainee_close(&m)); /* checks for leaks */
}
