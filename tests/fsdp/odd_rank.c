/* See odd_rank.h. */
#include "tests/fsdp/odd_rank.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <fsdp/ckpt.h>
#include <fsdp/dtensor.h>

#include "src/base/alloc_testing.h"
#include "src/base/clock.h"
#include "src/comm/comm.h"
#include "src/fsdp/state.h"

enum {
    LEAVES = 12, /* divisible by 2, 3 and 4 ranks; each rank has several micro-steps */
    SOON_S = 60, /* enough on any machine; without an error a rank would wait for the timeout of ten
                    minutes */
};

/* ---- other control flow ---- */

static fsdp_status other_order(trainee *m)
{
    fsdp_scope *s;
    const tree_call call = {.step = 1, .n_micro_steps = 2};
    FSDP_TRY(tree_scope(m, m->tape, &call, &s));
    fsdp_tensor *y = tree_forward(m, s, trainee_unit(m, "second"), &call);
    y = fsdp_module_call1(s, trainee_unit(m, "first"), y);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = tree_backward(m, &y, &call, 1);
    fsdp_scope_close(s);
    return status == FSDP_OK ? tree_sgd(m->model, 0.1f) : status;
}

static fsdp_status call_first(trainee *m, int times)
{
    tree_of(m->model)->calls[0] = times;
    fsdp_status status = tree_step(m, 1, LEAVES);
    tree_of(m->model)->calls[0] = 1;
    return status;
}

static fsdp_status skip_first(trainee *m)
{
    return call_first(m, 0);
}

static fsdp_status use_first_twice(trainee *m)
{
    return call_first(m, 2);
}

static fsdp_status other_step(trainee *m)
{
    return tree_step(m, 7, LEAVES);
}

static fsdp_status one_micro_step_less(trainee *m)
{
    return tree_step(m, 1, LEAVES - trainee_world_size(m));
}

static fsdp_status evaluate_alone(trainee *m)
{
    FSDP_TRY(tree_evaluate(m, m->model, 1));
    return tree_step(m, 1, LEAVES);
}

/* A forward with a tape, without its backward. */
static fsdp_status skip_backward(trainee *m)
{
    fsdp_scope *s;
    const tree_call call = {.step = 1, .n_micro_steps = LEAVES / trainee_world_size(m)};
    FSDP_TRY(tree_scope(m, m->tape, &call, &s));
    tree_forward(m, s, m->model, &call);
    fsdp_status status = fsdp_scope_status(s);
    fsdp_scope_close(s);
    fsdp_tape_reset(m->tape);
    return status;
}

/* ---- other parameters ---- */

static fsdp_status freeze_one(trainee *m)
{
    fsdp_parameter_set_requires_grad(tree_of(trainee_unit(m, "second"))->up, false);
    return tree_step(m, 1, LEAVES);
}

/* The odd rank freezes another parameter of the same size, so collectives have the same bytes. */
static fsdp_status freeze_different_ones(trainee *m, bool odd)
{
    const tree *second = tree_of(trainee_unit(m, "second"));
    fsdp_parameter_set_requires_grad(odd ? second->down : second->up, false);
    return tree_step(m, 1, LEAVES);
}

/* Every rank builds one more model. That of the odd rank has another width or dtype. */
static fsdp_status build_another(trainee *m, int64_t width, fsdp_dtype param_dtype)
{
    const fsdp_fully_shard_options options = {.mp_policy = {.param_dtype = param_dtype}};
    trainee other = {.group = m->group, .device = m->device, .tape = m->tape};
    FSDP_TRY(tree_example(width, &other.model));
    fsdp_status status = tree_example_shard(other.model, m->group, m->device, &options);
    if (status == FSDP_OK)
        status = tree_evaluate(&other, other.model, 1);
    fsdp_module_destroy(other.model);
    return status;
}

static fsdp_status other_width(trainee *m, bool odd)
{
    return build_another(m, odd ? 8 : 9, FSDP_DTYPE_F32);
}

static fsdp_status other_dtype(trainee *m, bool odd)
{
    return build_another(m, 8, odd ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32);
}

/* ---- failures in the middle ---- */

static fsdp_status fail_in_forward(trainee *m)
{
    tree_of(trainee_unit(m, "second.inner"))->fail_forward = true;
    return tree_step(m, 1, LEAVES);
}

static fsdp_status fail_in_backward(trainee *m)
{
    tree_of(trainee_unit(m, "second.inner"))->fail_backward = true;
    return tree_step(m, 1, LEAVES);
}

static fsdp_status failing_hook(fsdp_parameter *parameter, fsdp_tensor *rows, void *arg)
{
    (void)parameter, (void)rows, (void)arg;
    return fsdp_error(FSDP_ERR_NUMERIC, "fails in the reduce on purpose");
}

static fsdp_status fail_in_reduce(trainee *m)
{
    FSDP_TRY(fsdp_set_all_reduce_hook(trainee_unit(m, "second"), failing_hook, NULL));
    return tree_step(m, 1, LEAVES);
}

static fsdp_status fail_if(bool odd)
{
    return odd ? fsdp_error(FSDP_ERR_NUMERIC, "fails outside of all units on purpose") : FSDP_OK;
}

static fsdp_status fail_between(trainee *m, bool after_forward, bool after_backward)
{
    fsdp_scope *s;
    const tree_call call = {.step = 1};
    FSDP_TRY(tree_scope(m, m->tape, &call, &s));
    fsdp_tensor *y = tree_forward(m, s, m->model, &call);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fail_if(after_forward);
    if (status == FSDP_OK)
        status = tree_backward(m, &y, &call, 1);
    if (status == FSDP_OK)
        status = fail_if(after_backward);
    fsdp_scope_close(s);
    fsdp_tape_reset(m->tape);
    return status == FSDP_OK ? tree_sgd(m->model, 0.1f) : status;
}

static fsdp_status fail_after_forward(trainee *m, bool odd)
{
    return fail_between(m, odd, false);
}

static fsdp_status fail_after_backward(trainee *m, bool odd)
{
    return fail_between(m, false, odd);
}

/* Fail between backward and the update, at the location that a trainer sets. */
static fsdp_status fail_in_optimizer(trainee *m, bool odd)
{
    FSDP_TRY(tree_forward_backward(m, m->model, &(tree_call){.step = 1}));
    fsdp_group_at(m->group, 2, "", "optimizer step");
    if (odd)
        return fsdp_error(FSDP_ERR_NUMERIC, "the update fails on purpose");
    return tree_sgd(m->model, 0.1f);
}

/* The odd rank has no memory for its part of a parameter that is gathered for saving. */
static fsdp_status fail_in_save(trainee *m, bool odd)
{
    char dir[] = "/tmp/fsdp-odd-XXXXXX", path[64];
    if (!mkdtemp(dir))
        return fsdp_error(FSDP_ERR_IO, "mkdtemp");
    fsdp_group_at(m->group, 2, "", "save");
    fsdp_alloc_fail_at(odd ? 4 : 0);
    fsdp_status status = fsdp_module_save(m->model, dir, m->group, NULL);
    fsdp_alloc_fail_at(0);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    rmdir(dir);
    return status;
}

/* ---- leaving ---- */

static fsdp_status one_step_more(trainee *m, bool odd)
{
    FSDP_TRY(tree_step(m, 1, LEAVES));
    return odd ? tree_step(m, 2, LEAVES) : FSDP_OK;
}

static fsdp_status exit_early(trainee *m)
{
    (void)m;
    _exit(0);
}

static fsdp_status killed(trainee *m)
{
    (void)m;
    raise(SIGKILL);
    return FSDP_OK;
}

static fsdp_status killed_in_backward(trainee *m)
{
    tree_of(trainee_unit(m, "second.inner"))->die_backward = true;
    return tree_step(m, 1, LEAVES);
}

static fsdp_status return_early(trainee *m, bool odd)
{
    return odd ? FSDP_OK : tree_step(m, 1, LEAVES);
}

const odd_case odd_cases[] = {
    {.name = "another order of units", .odd = other_order, .text = "ranks diverged"},
    {.name = "a skipped unit", .odd = skip_first, .text = "ranks diverged"},
    {.name = "a unit used twice",
     .odd = use_first_twice,
     .text = "ranks diverged",
     .sharded_only = true,
     .resharded_only = true},
    {.name = "another step number", .odd = other_step, .text = "in step 8"},
    {.name = "a micro-step less", .odd = one_micro_step_less, .text = "ranks diverged"},
    {.name = "an evaluation alone",
     .odd = evaluate_alone,
     .text = "ranks diverged",
     .sharded_only = true},
    {.name = "no backward", .odd = skip_backward, .text = "ranks diverged"},
    {.name = "one parameter frozen", .odd = freeze_one, .text = "ranks diverged"},
    {.name = "another parameter frozen", .all = freeze_different_ones, .text = "ranks diverged"},
    {.name = "another width", .all = other_width, .text = "ranks diverged"},
    {.name = "another dtype", .all = other_dtype, .text = "ranks diverged"},
    {.name = "fails in forward",
     .odd = fail_in_forward,
     .text = "fails in forward on purpose",
     .peers = " failed in step 2, unit second.inner, forward"},
    {.name = "fails in backward",
     .odd = fail_in_backward,
     .text = "fails in backward on purpose",
     .peers = " failed in step 2, unit second.inner, backward"},
    {.name = "fails in the reduce",
     .odd = fail_in_reduce,
     .text = "fails in the reduce on purpose",
     .peers = " failed in step 2, unit second, reduce_scatter"},
    {.name = "fails after forward",
     .all = fail_after_forward,
     .text = "fails outside of all units on purpose",
     .peers = " failed in step 2: fails outside"},
    {.name = "fails after backward",
     .all = fail_after_backward,
     .text = "fails outside of all units on purpose",
     .peers = " failed in step 2: fails outside"},
    {.name = "fails in the optimizer",
     .all = fail_in_optimizer,
     .text = "the update fails on purpose",
     .peers = " failed in step 2, optimizer step"},
    {.name = "fails in save", .all = fail_in_save, .text = "out of host memory", .agreed = true},
    {.name = "a step more", .all = one_step_more, .text = "has left the group", .world_only = true},
    {.name = "returns early",
     .all = return_early,
     .text = "has left the group",
     .world_only = true},
    {.name = "exits early",
     .odd = exit_early,
     .text = "ended without leaving its process group",
     .processes_only = true},
    {.name = "killed", .odd = killed, .text = "signal 9, Killed", .processes_only = true},
    {.name = "killed in backward",
     .odd = killed_in_backward,
     .text = "signal 9, Killed",
     .processes_only = true},
};
const size_t n_odd_cases = sizeof odd_cases / sizeof *odd_cases;

bool odd_applies(const odd_case *kase, odd_layout layout, const fsdp_fully_shard_options *options)
{
    return !(kase->sharded_only && options->no_shard) &&
           !(kase->resharded_only && options->reshard_after_forward == FSDP_RESHARD_FALSE) &&
           !(kase->world_only && layout != ODD_WORLD) && !(options->no_shard && layout == ODD_MESH);
}

/* ---- ranks ---- */

/* All ranks run the first step. A rank that does not notice the error in its second step notices it
 * later. */
static fsdp_status train(odd_job *job, fsdp_group *world, trainee *m, double *start)
{
    const odd_case *c = job->kase;
    const bool odd = fsdp_group_rank(world) == fsdp_group_world_size(world) - 1;
    FSDP_TRY(tree_step(m, 0, LEAVES));
    FSDP_TRY(fsdp_barrier(world));
    *start = fsdp_clock_s();
    if (c->all)
        FSDP_TRY(c->all(m, odd));
    else
        FSDP_TRY(odd ? c->odd(m) : tree_step(m, 1, LEAVES));
    if (c->world_only)
        return FSDP_OK;
    for (int step = 2; fsdp_clock_s() - *start < 2 * SOON_S; step++)
        FSDP_TRY(tree_step(m, step, LEAVES));
    return FSDP_OK;
}

static fsdp_status open_and_train(odd_job *job, fsdp_group *world, fsdp_group *group,
                                  const fsdp_device_mesh *mesh, double *start)
{
    fsdp_fully_shard_options options = *job->options;
    const int rank = fsdp_group_rank(world);
    trainee m;
    options.mesh = mesh;
    FSDP_TRY(trainee_open_example(group, &options, &m));
    fsdp_status status = train(job, world, &m, start);
    job->ranks[rank].status = status;
    job->ranks[rank].seconds = fsdp_clock_s() - *start;
    if (status != FSDP_OK)
        snprintf(job->ranks[rank].message, sizeof job->ranks[rank].message, "%s",
                 fsdp_last_error());
    fsdp_group_abort(group, status);
    fsdp_status closed = trainee_close(&m);
    if (closed != FSDP_OK)
        return closed;
    return status == FSDP_OK ? FSDP_OK : fsdp_error(status, "%s", job->ranks[rank].message);
}

fsdp_status odd_rank(fsdp_group *world, void *arg)
{
    odd_job *job = arg;
    fsdp_group *group = world;
    fsdp_device_mesh *mesh = NULL;
    double start = fsdp_clock_s();
    if (job->layout == ODD_PAIRS)
        FSDP_TRY(fsdp_group_split(world, fsdp_group_rank(world) / 2, 0, &group));
    if (job->layout == ODD_MESH)
        FSDP_TRY(fsdp_device_mesh_create(world, 2, (int[]){2, 2},
                                         (const char *const[]){"replicate", "shard"}, &mesh));
    fsdp_status status = open_and_train(job, world, group, mesh, &start);
    fsdp_device_mesh_destroy(mesh);
    if (group != world)
        fsdp_destroy_process_group(group);
    return status;
}

/* The message of the odd rank may differ from that of the others. */
static void check_rank(fsdp_test *t, const odd_job *job, int rank, bool odd)
{
    const odd_case *c = job->kase;
    const char *message = job->ranks[rank].message;
    const bool own = odd && job->ranks[rank].status != FSDP_ERR_COMM;
    bool is_complete = strstr(message, c->text) != NULL;
    if (!own)
        is_complete &= strstr(message, "rank ") && (c->agreed || strstr(message, " in step "));
    if (!own && c->peers)
        is_complete &= strstr(message, c->peers) != NULL;
    if (job->ranks[rank].status == FSDP_OK || !is_complete)
        FAIL("%s: layout %d: rank %d: %s: %s", c->name, (int)job->layout, rank,
             fsdp_status_name(job->ranks[rank].status), message);
    if (job->ranks[rank].seconds > SOON_S)
        FAIL("%s: rank %d got the error after %.1f s", c->name, rank, job->ranks[rank].seconds);
}

void odd_check(fsdp_test *t, const odd_job *job, int world_size)
{
    const odd_case *c = job->kase;
    const char *first = NULL;
    for (int r = 0; r < world_size; r++) {
        const bool odd = r == world_size - 1;
        if ((odd && c->processes_only) || (c->world_only && job->ranks[r].status == FSDP_OK))
            continue;
        check_rank(t, job, r, odd);
        CHECK_HERE();
        if (job->ranks[r].status != FSDP_ERR_COMM)
            continue;
        /* The message may begin with what this rank was doing: "backward of linear: ranks
         * diverged". */
        const char *message = strstr(job->ranks[r].message, "rank");
        if (first && strcmp(first, message) != 0)
            FAIL("%s: layout %d: rank %d says '%s' and another '%s'", c->name, (int)job->layout, r,
                 message, first);
        first = message;
    }
    if (!first && !c->agreed)
        FAIL("%s: no rank got an error", c->name);
}
