/* Training on a device whose kernels run late gives the bits of the CPU. Wherever the program
 * forgets to wait, results would differ. */
#include <stdio.h>

#include <fsdp/optim.h>

#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    WIDTH = 6,
    LEAVES = 4,
    STEPS = 3
};

typedef enum optimizer_kind {
    ADAMW,
    SGD,
    ADAFACTOR,
    N_OPTIMIZERS
} optimizer_kind;

typedef struct run {
    trainee m;
    fsdp_optimizer *optimizer;
    double norm; /* norm of the last step's gradients */
} run;

static fsdp_status create_optimizer(optimizer_kind kind, run *r)
{
    const fsdp_sgd_options sgd = {.lr = 0.1, .momentum = 0.9};
    if (kind == ADAMW)
        return fsdp_adamw_create(r->m.model, NULL, &r->optimizer);
    if (kind == SGD)
        return fsdp_sgd_create(r->m.model, &sgd, &r->optimizer);
    return fsdp_adafactor_create(r->m.model, NULL, &r->optimizer);
}

static fsdp_status run_open(fsdp_group *group, const char *device,
                            const fsdp_fully_shard_options *o, optimizer_kind kind, run *r)
{
    r->optimizer = NULL;
    FSDP_TRY(trainee_open(group, device, o->mp_policy.param_dtype, &r->m));
    FSDP_TRY(tree_example(WIDTH, &r->m.model));
    FSDP_TRY(tree_example_shard(r->m.model, group, r->m.device, o));
    FSDP_TRY(fsdp_module_init(r->m.model, 5));
    FSDP_TRY(fsdp_set_gradient_divide_factor(r->m.model, LEAVES));
    return create_optimizer(kind, r);
}

/* Odd steps scale the gradients themselves; in even steps the optimizer does. */
static fsdp_status run_step(run *r, int step)
{
    const int world_size = trainee_world_size(&r->m), micro_steps = LEAVES / world_size;
    fsdp_parameter_list list;
    float scale = 1.0f;
    for (int a = 0; a < micro_steps; a++)
        FSDP_TRY(
            tree_forward_backward(&r->m, r->m.model,
                                  &(tree_call){.step = step,
                                               .micro_batch = a * world_size + trainee_rank(&r->m),
                                               .micro_step = a,
                                               .n_micro_steps = micro_steps}));
    FSDP_TRY(fsdp_module_parameters(r->m.model, false, &list));
    fsdp_status status = fsdp_clip_grad_norm(&list, 0.1, NULL, &r->norm, step % 2 ? NULL : &scale);
    fsdp_parameter_list_free(&list);
    FSDP_TRY(status);
    FSDP_TRY(fsdp_optimizer_step(r->optimizer, scale));
    fsdp_optimizer_zero_grad(r->optimizer);
    return FSDP_OK;
}

static fsdp_status run_close(run *r)
{
    fsdp_optimizer_destroy(r->optimizer);
    return trainee_close(&r->m);
}

static void compare(fsdp_test *t, const fsdp_fully_shard_options *o, optimizer_kind kind)
{
    run late, cpu;
    ASSERT_OK(run_open(t->group, "fake", o, kind, &late));
    ASSERT_OK(run_open(t->group, "cpu", o, kind, &cpu));
    for (int step = 0; step < STEPS; step++) {
        ASSERT_OK(run_step(&late, step));
        ASSERT_OK(run_step(&cpu, step));
        ASSERT(late.norm == cpu.norm);
        ASSERT_OK(tree_same_params(&late.m, &cpu.m));
    }
    ASSERT_OK(run_close(&late));
    ASSERT_OK(run_close(&cpu));
}

TEST_RANKS(training_on_a_late_device_gives_the_cpus_bits, 2)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        for (int kind = 0; kind < N_OPTIMIZERS; kind++) {
            compare(t, &tree_variants[v], (optimizer_kind)kind);
            CHECK_HERE();
        }
    }
}

/* A unit of few parameters, and one of so many that its flags overlap the gradients that the first
 * unit had in the same gradient buffer. The kernels in between are delayed for longer than the
 * host, which pauses before it writes the flags. */
static fsdp_status many_add(fsdp_module *root)
{
    fsdp_module *many, *again, *between, *unused;
    fsdp_parameter *small;
    char name[16];
    FSDP_TRY(tree_add(root, "many", WIDTH, 1, &many));
    FSDP_TRY(tree_add(many, "again", WIDTH, 1, &again));
    fsdp_module_set_activation_checkpointing(again, true);
    tree_of(again)->pause_us = 1000;
    FSDP_TRY(tree_add(root, "between", WIDTH, 1, &between));
    for (int i = 0; i < 140; i++) {
        snprintf(name, sizeof name, "%d", i);
        FSDP_TRY(fsdp_module_add_parameter(many, name, 1, (int64_t[]){1}, (fsdp_init){.std = 0.1f},
                                           &small));
    }
    for (int i = 0; i < TREE_MAX_CHILDREN; i++) {
        snprintf(name, sizeof name, "child%d", i);
        FSDP_TRY(tree_add(between, name, WIDTH, 1, &unused));
    }
    return tree_add(root, "few", WIDTH, 390, &unused);
}

static fsdp_status many_open(const char *device, trainee *m)
{
    const char *const units[] = {"many", "between", "few", ""};
    FSDP_TRY(trainee_open(NULL, device, FSDP_DTYPE_F32, m));
    FSDP_TRY(tree_add(NULL, "", WIDTH, 5, &m->model));
    FSDP_TRY(many_add(m->model));
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        FSDP_TRY(fsdp_fully_shard(fsdp_module_find(m->model, units[i]), NULL, m->device, NULL));
    return fsdp_module_init(m->model, 5);
}

TEST(the_host_does_not_write_a_gradient_buffer_that_sums_still_read)
{
    trainee late, cpu;
    ASSERT_OK(many_open("fake", &late));
    ASSERT_OK(many_open("cpu", &cpu));
    for (int step = 0; step < 5 * STEPS; step++) {
        ASSERT_OK(tree_step(&late, step, 1));
        ASSERT_OK(tree_step(&cpu, step, 1));
        ASSERT_OK(tree_same_params(&late, &cpu));
    }
    ASSERT_OK(trainee_close(&late));
    ASSERT_OK(trainee_close(&cpu));
}
