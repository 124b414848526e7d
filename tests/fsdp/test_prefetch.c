/* Which units are gathered ahead of time, and in which order units must run. Each expectation
 * gives, at every block, which units are Sharded, Gathering or Unsharded (chain.h). */
#include "src/comm/group_testing.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/chain.h"
#include "tests/test.h"

/* With these param_dtypes, operations read float32 masters as they are, their upper halves, or a
 * cast copy. */
static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};

static const char none_in_forward[] = "a:USSSS b:SUSSS c:SSUSS d:SSSUS e:SSSSU";
static const char one_in_forward[] = "a:UGSSS b:SUGSS c:SSUGS d:SSSUG e:SSSSU";
static const char none_in_backward[] = "e:SSSSU d:SSSUS c:SSUSS b:SUSSS a:USSSS";
static const char one_in_backward[] = "e:SSSGU d:SSGUS c:SGUSS b:GUSSS a:USSSS";
static const char nothing[] = "e:SSSSS d:SSSSS c:SSSSS b:SSSSS a:SSSSS";
static const char one_after_backward[] = "e:SSSGS d:SSGSS c:SGSSS b:GSSSS a:SSSSS";

#define ASSERT_TRACE(got, want)                                                                    \
    do {                                                                                           \
        if (strcmp(got, want) != 0)                                                                \
            FAIL("%s\n  expected %s", got, want);                                                  \
    } while (0)

/* Check the number of gathers. If gathers write copies, also check that all of them write, except
 * `kept` gathers of the root: the root keeps its copy, and no parameter was written before these
 * gathers. */
static void check_gathers(fsdp_test *t, chain *c, uint64_t gathers, uint64_t kept)
{
    const fsdp_comm_counters n = chain_counts(c);
    const bool copies = c->m.dtype == FSDP_DTYPE_F16;
    ASSERT_INT(n.calls[FSDP_KIND_ALL_GATHER], gathers);
    ASSERT_INT(n.calls[FSDP_KIND_WRITE_SHARD], copies ? gathers - kept : 0);
}

static void check_mode(fsdp_test *t, const fsdp_fully_shard_options *o, const char *forward,
                       const char *backward, const char *after_backward)
{
    chain c;
    ASSERT_OK(chain_open(t->group, o, &c));
    ASSERT_OK(chain_run(&c, 0));
    ASSERT_TRACE(c.forward, none_in_forward); /* the first forward has no earlier order */
    for (int step = 1; step < 3; step++) {
        ASSERT_OK(chain_run(&c, step));
        ASSERT_TRACE(c.forward, forward);
        ASSERT_TRACE(c.backward, backward);
        ASSERT_TRACE(c.after_backward, after_backward);
    }
    check_gathers(t, &c, 3 * (2 * CHAIN_UNITS - 1), 2);
    const fsdp_comm_counters again = chain_counts(&c);
    ASSERT_INT(again.calls[FSDP_KIND_ALL_GATHER], 0);
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(backward_prefetch_is_before_or_after_the_unit_or_not_at_all, 2)
{
    for (int d = 0; d < 3; d++) {
        fsdp_fully_shard_options o = {.mp_policy = {.param_dtype = dtypes[d]}};
        check_mode(t, &o, one_in_forward, one_in_backward, one_after_backward);
        o.backward_prefetch = FSDP_BACKWARD_POST;
        check_mode(t, &o, one_in_forward, none_in_backward, one_after_backward);
        o.backward_prefetch = FSDP_BACKWARD_NONE;
        check_mode(t, &o, one_in_forward, none_in_backward, nothing);
    }
}

TEST_RANKS(forward_prefetch_goes_by_the_last_order_or_is_off, 2)
{
    for (int d = 0; d < 3; d++) {
        fsdp_fully_shard_options o = {.mp_policy = {.param_dtype = dtypes[d]},
                                      .forward_prefetch = FSDP_FORWARD_NONE};
        check_mode(t, &o, none_in_forward, one_in_backward, one_after_backward);
        o.forward_prefetch = FSDP_FORWARD_STRICT;
        check_mode(t, &o, one_in_forward, one_in_backward, one_after_backward);
    }
}

/* --- explicit lists --- */

typedef fsdp_status set_fn(fsdp_module *module, fsdp_module *const *modules, size_t n);

/* Make unit `of` prefetch the units with these letters. */
static fsdp_status set_letters(chain *c, set_fn *set, int of, const char *letters)
{
    fsdp_module *modules[CHAIN_BLOCKS];
    size_t n = 0;
    for (; letters[n]; n++)
        modules[n] = c->units[letters[n] - 'a'];
    return set(c->units[of], modules, n);
}

static void check_explicit(fsdp_test *t, fsdp_dtype dtype)
{
    const fsdp_fully_shard_options o = {.mp_policy = {.param_dtype = dtype}};
    set_fn *const forward = fsdp_set_modules_to_forward_prefetch,
                  *const backward = fsdp_set_modules_to_backward_prefetch;
    chain c;
    ASSERT_OK(chain_open(t->group, &o, &c));
    /* As in PyTorch's tutorial: two units ahead, in both directions. */
    static const char *const next[] = {"bc", "cd", "de", "e", ""}, *const previous[] = {
                                                                       "", "a", "ba", "cb", "dc"};
    for (int i = 0; i < CHAIN_BLOCKS; i++) {
        ASSERT_OK(set_letters(&c, forward, i, next[i]));
        ASSERT_OK(set_letters(&c, backward, i, previous[i]));
    }
    ASSERT_OK(chain_run(&c, 0)); /* needs no earlier order */
    ASSERT_TRACE(c.forward, "a:UGGSS b:SUGGS c:SSUGG d:SSSUG e:SSSSU");
    ASSERT_TRACE(c.backward, "e:SSGGU d:SGGUS c:GGUSS b:GUSSS a:USSSS");
    check_gathers(t, &c, 2 * CHAIN_UNITS - 1, 0);
    /* The list of one unit replaces implicit prefetching for that unit only. */
    for (int i = 0; i < CHAIN_BLOCKS; i++) {
        ASSERT_OK(set_letters(&c, forward, i, i == 0 ? "d" : ""));
        ASSERT_OK(set_letters(&c, backward, i, i == 4 ? "b" : ""));
    }
    ASSERT_OK(chain_run(&c, 1));
    ASSERT_TRACE(c.forward, "a:USSGS b:SUGGS c:SSUGS d:SSSUG e:SSSSU");
    ASSERT_TRACE(c.backward, "e:SGSSU d:SGGUS c:SGUSS b:GUSSS a:USSSS");
    check_gathers(t, &c, 2 * CHAIN_UNITS - 1, 1);
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(explicit_prefetch_replaces_the_implicit_one, 2)
{
    for (int d = 0; d < 3; d++)
        check_explicit(t, dtypes[d]);
}

static void check_depth(fsdp_test *t, fsdp_dtype dtype, bool unlimited)
{
    const fsdp_fully_shard_options o = {.mp_policy = {.param_dtype = dtype},
                                        .no_limit_all_gathers = unlimited};
    const int root = CHAIN_BLOCKS;
    chain c;
    ASSERT_OK(chain_open(t->group, &o, &c));
    ASSERT_OK(set_letters(&c, fsdp_set_modules_to_forward_prefetch, root, "abcde"));
    ASSERT_OK(set_letters(&c, fsdp_set_modules_to_backward_prefetch, root, "edcba"));
    ASSERT_OK(chain_run(&c, 0));
    ASSERT_TRACE(c.forward, unlimited ? "a:UGGGG b:SUGGG c:SSUGG d:SSSUG e:SSSSU"
                                      : "a:UGGSS b:SUGGS c:SSUGG d:SSSUG e:SSSSU");
    ASSERT_TRACE(c.backward, unlimited ? "e:GGGGU d:GGGUS c:GGUSS b:GUSSS a:USSSS"
                                       : "e:SSGGU d:SGGUS c:GGUSS b:GUSSS a:USSSS");
    check_gathers(t, &c, 2 * CHAIN_UNITS - 1, 0);
    fsdp_unit_info info;
    ASSERT_OK(fsdp_unit_get_info(c.units[0], &info));
    ASSERT(info.limit_all_gathers == !unlimited);
    ASSERT_INT(info.n_forward_prefetch, 0);
    ASSERT_OK(fsdp_unit_get_info(c.units[root], &info));
    ASSERT_INT(info.n_forward_prefetch, CHAIN_BLOCKS);
    ASSERT_INT(info.n_backward_prefetch, CHAIN_BLOCKS);
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(at_most_two_units_are_gathered_ahead_unless_unlimited, 2)
{
    for (int d = 0; d < 3; d++)
        for (int unlimited = 0; unlimited < 2; unlimited++) {
            check_depth(t, dtypes[d], unlimited);
            CHECK_HERE();
        }
}

/* "a" is entered before its turn in the queue. It must be gathered once, and not again later. */
TEST_RANKS(a_unit_that_is_entered_before_its_turn_leaves_the_queue, 2)
{
    for (int d = 0; d < 3; d++) {
        const fsdp_fully_shard_options o = {.mp_policy = {.param_dtype = dtypes[d]}};
        chain c;
        ASSERT_OK(chain_open(t->group, &o, &c));
        ASSERT_OK(set_letters(&c, fsdp_set_modules_to_forward_prefetch, CHAIN_BLOCKS, "bcade"));
        ASSERT_OK(set_letters(&c, fsdp_set_modules_to_backward_prefetch, CHAIN_BLOCKS, "dceba"));
        ASSERT_OK(chain_run(&c, 0));
        ASSERT_TRACE(c.forward, "a:UGGSS b:SUGGS c:SSUGG d:SSSUG e:SSSSU");
        ASSERT_TRACE(c.backward, "e:SSGGU d:SGGUS c:GGUSS b:GUSSS a:USSSS");
        check_gathers(t, &c, 2 * CHAIN_UNITS - 1, 0);
        ASSERT_OK(chain_close(&c));
    }
}

/* A wrong prefetch costs a copy and is freed. */
TEST_RANKS(what_is_prefetched_in_vain_is_freed, 2)
{
    const fsdp_fully_shard_options o = {.mp_policy = {.param_dtype = FSDP_DTYPE_F16}};
    chain c;
    ASSERT_OK(chain_open(t->group, &o, &c));
    tree_of(c.m.model)->calls[4] = 0; /* e is not called, but prefetched */
    ASSERT_OK(set_letters(&c, fsdp_set_modules_to_forward_prefetch, 3, "e"));
    for (int step = 0; step < 3; step++) {
        ASSERT_OK(chain_run(&c, step));
        ASSERT(strstr(c.forward, "d:SSSUG"));
        const fsdp_comm_counters n = chain_counts(&c);
        ASSERT_INT(n.calls[FSDP_KIND_ALL_GATHER], 2 * CHAIN_UNITS - 3);
        /* The root keeps its copy. After the first step, the write below opens the phase that its
         * gather ends. */
        ASSERT_INT(n.calls[FSDP_KIND_WRITE_SHARD], 2 * CHAIN_UNITS - 3 + 1 - (step > 0));
        ASSERT_OK(tree_sgd(c.m.model, 0.1f));
        chain_counts(&c);
    }
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(lists_name_units_of_one_tree, 2)
{
    chain c, other;
    fsdp_module *around, *list[1];
    ASSERT_OK(chain_open(t->group, &tree_variants[0], &c));
    ASSERT_OK(chain_open(t->group, &tree_variants[0], &other));
    around = fsdp_module_find(c.m.model, "b");
    list[0] = around;
    ASSERT_ERROR(fsdp_set_modules_to_forward_prefetch(c.units[0], list, 1), FSDP_ERR_INVALID,
                 "forward prefetch: module 'b' (Tree) was not given to fsdp_fully_shard");
    ASSERT_ERROR(fsdp_set_modules_to_backward_prefetch(around, c.units, 1), FSDP_ERR_INVALID,
                 "'b'");
    list[0] = NULL;
    ASSERT_ERROR(fsdp_set_modules_to_backward_prefetch(c.units[0], list, 1), FSDP_ERR_INVALID,
                 "NULL");
    ASSERT_ERROR(fsdp_set_modules_to_forward_prefetch(c.units[0], other.units, 1), FSDP_ERR_INVALID,
                 "no common unit");
    ASSERT_OK(chain_run(&c, 0));
    ASSERT_OK(chain_close(&c));
    ASSERT_OK(chain_close(&other));
}

/* --- the order of the first iteration --- */

static void set_calls(chain *c, const char *letters)
{
    for (int i = 0; i < CHAIN_BLOCKS; i++)
        tree_of(c->m.model)->calls[i] = strchr(letters, 'a' + i) != NULL;
}

static void check_strict(fsdp_test *t, const fsdp_fully_shard_options *o)
{
    chain c;
    ASSERT_OK(chain_open(t->group, o, &c));
    set_calls(&c, "abde");
    ASSERT_OK(tree_evaluate(&c.m, c.m.model, 0)); /* does not count as an iteration */
    set_calls(&c, "abcd");
    ASSERT_OK(chain_micro_step(&c, 0, 0, 2));
    ASSERT_OK(chain_micro_step(&c, 0, 1, 2));
    set_calls(&c, "acd");
    ASSERT_ERROR(chain_run(&c, 1), FSDP_ERR_STATE,
                 "unit 'c.unit' is number 3 that this iteration enters, in the first iteration it "
                 "was unit 'b.unit'");
    set_calls(&c, "abcde");
    ASSERT_ERROR(chain_run(&c, 1), FSDP_ERR_STATE,
                 "unit 'e.unit' is number 6 that this iteration enters, in the first iteration it "
                 "was none");
    set_calls(&c, "abc");
    ASSERT_ERROR(chain_run(&c, 1), FSDP_ERR_STATE,
                 "unit 'd.unit' was not entered in this iteration, in the first one it was number "
                 "5");
    ASSERT_OK(tree_evaluate(&c.m, c.m.model, 0));
    set_calls(&c, "abcd");
    fsdp_module_zero_grad(c.m.model);
    ASSERT_OK(chain_run(&c, 1));
    ASSERT_OK(tree_sgd(c.m.model, 0.1f));
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(a_strict_order_is_that_of_the_first_iteration, 2)
{
    for (int d = 0; d < 3; d++)
        check_strict(t, &(fsdp_fully_shard_options){.mp_policy = {.param_dtype = dtypes[d]},
                                                    .forward_prefetch = FSDP_FORWARD_STRICT});
}

/* A single rank that departs from the order fails before it communicates. The others get the error
 * from its abort, and name that rank. */
TEST_RANKS(a_strict_order_that_one_rank_leaves_fails_on_all, 3)
{
    chain c;
    ASSERT_OK(chain_open(t->group,
                         &(fsdp_fully_shard_options){.mp_policy = {.param_dtype = FSDP_DTYPE_F16},
                                                     .forward_prefetch = FSDP_FORWARD_STRICT},
                         &c));
    ASSERT_OK(chain_run(&c, 0));
    set_calls(&c, t->rank == 1 ? "acde" : "abcde");
    fsdp_status status = chain_run(&c, 1);
    if (t->rank == 1)
        fsdp_group_abort(t->group, status);
    ASSERT_INT(status, t->rank == 1 ? FSDP_ERR_STATE : FSDP_ERR_COMM);
    ASSERT(strstr(fsdp_last_error(), "unit 'c.unit' is number 3 that this iteration enters"));
    ASSERT(t->rank == 1 || strstr(fsdp_last_error(), "rank 1 failed in step 2"));
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(an_unknown_kind_of_prefetch_is_refused, 1)
{
    chain c;
    fsdp_fully_shard_options o = {.backward_prefetch = FSDP_BACKWARD_NONE + 1};
    ASSERT_ERROR(chain_open(t->group, &o, &c), FSDP_ERR_INVALID, "backward_prefetch 3");
    ASSERT_OK(chain_close(&c));
    o = (fsdp_fully_shard_options){.forward_prefetch = FSDP_FORWARD_NONE + 1};
    ASSERT_ERROR(chain_open(t->group, &o, &c), FSDP_ERR_INVALID, "forward_prefetch 3");
    ASSERT_OK(chain_close(&c));
}

/* Results do not depend on when units are gathered. */
TEST_RANKS(prefetch_changes_no_bit, 2)
{
    for (int d = 0; d < 3; d++)
        for (int backward = 0; backward <= FSDP_BACKWARD_NONE; backward++)
            for (int forward = 0; forward <= FSDP_FORWARD_NONE; forward++) {
                trainee m, one;
                fsdp_fully_shard_options o = {.mp_policy = {.param_dtype = dtypes[d]},
                                              .backward_prefetch = (fsdp_backward_prefetch)backward,
                                              .forward_prefetch = (fsdp_forward_prefetch)forward};
                fsdp_group_set_delay(t->group, 9, 100);
                ASSERT_OK(trainee_open_example(t->group, &o, &m));
                ASSERT_OK(trainee_open_example(NULL, &o, &one));
                for (int step = 0; step < 3; step++) {
                    ASSERT_OK(tree_step(&m, step, 4));
                    ASSERT_OK(tree_step(&one, step, 4));
                }
                ASSERT_OK(tree_same_params(&m, &one));
                ASSERT_OK(trainee_close(&m));
                ASSERT_OK(trainee_close(&one));
            }
}
