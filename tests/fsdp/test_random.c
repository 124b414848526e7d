/* Random trees of random units, trained in random ways, give the same results sharded as unsharded.
 * FSDP_TEST_SEED and FSDP_TEST_CASES choose the cases; a failure prints its seed. Some modules run
 * their forward a second time in backward, but never in the reference. */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/alloc.h"
#include "src/base/philox.h"
#include "src/comm/comm.h"
#include "src/comm/group_testing.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    MAX_MODULES = 12,
    STEPS = 3
};

typedef struct random_source {
    uint64_t seed, count;
} random_source;

static int below(random_source *r, int n)
{
    return (int)(fsdp_philox4x32(r->seed, r->count++, 0).v[0] % (uint32_t)n);
}

static bool one_in(random_source *r, int n)
{
    return below(r, n) == 0;
}

/* The test case of a seed; the same on all ranks and for the reference. */
typedef struct plan {
    uint64_t seed;
    int64_t width;
    int n_modules;
    int parent[MAX_MODULES], hidden[MAX_MODULES];
    int tied_to[MAX_MODULES]; /* -1: no tied matrix; i: its own; else that of a module around it */
    bool is_unit[MAX_MODULES];
    /* The reference does not checkpoint. */
    bool checkpointed[MAX_MODULES], keeps_results[MAX_MODULES];
    float dropout[MAX_MODULES];
    fsdp_fully_shard_options options[MAX_MODULES];
    int calls[STEPS][MAX_MODULES]; /* number of calls by its parent in each step */
    bool frozen[MAX_MODULES], evaluate[STEPS], fail[STEPS], forget[STEPS];
    int joined_to[MAX_MODULES]; /* this earlier module is in the same unit; 0: none */
    int leaves;
    bool by_columns;            /* matrices are sharded by columns, or some of them by rows */
    int replicas;               /* 1: FSDP; more: HSDP */
    const char *offload_dir;    /* the shards are in a file there; NULL: in memory */
    bool extended[MAX_MODULES]; /* matrices are communicated by an extension */
    bool loaded[MAX_MODULES];   /* `up`, if frozen, is from a bfloat16 file; `down` may be frozen */
    bool trains_in[STEPS][MAX_MODULES]; /* its frozen parameters train in this step */
    bool in_sections; /* gradient buffers of all units are in sections; those of the reference are
                         not */
} plan;

/* Is `above` around m, with no unit in between? Then both belong to the same unit. */
static bool same_unit_above(const plan *p, int above, int m)
{
    for (; m > above; m = p->parent[m])
        if (p->is_unit[m])
            return false;
    return m == above;
}

static void draw_module(plan *p, random_source *r, int i)
{
    int n_children = 0;
    do {
        p->parent[i] = i ? below(r, i) : -1;
        n_children = 0;
        for (int k = 1; k < i; k++)
            n_children += p->parent[k] == p->parent[i];
    } while (n_children >= TREE_MAX_CHILDREN);
    p->hidden[i] = one_in(r, 5) ? 0 : 1 + below(r, 9);
    p->is_unit[i] = i == 0 ? !one_in(r, 6) : !one_in(r, 3);
    p->frozen[i] = i && one_in(r, 8);
    p->tied_to[i] = one_in(r, 3) ? i : -1;
    /* The tied matrix may also be that of a module around this one, if no unit is in between. */
    if (i && one_in(r, 3)) {
        int owner = below(r, i);
        if (same_unit_above(p, owner, i) && p->tied_to[owner] == owner)
            p->tied_to[i] = owner;
    }
}

/* If the root is a unit, join some pairs of units, neither of which is inside the other, into one
 * unit each. The modules around the second of a pair must have lower numbers than the first, since
 * units are made in descending order. */
static void join_units(plan *p, random_source *r)
{
    bool joined[MAX_MODULES] = {0};
    for (int i = 1; i < p->n_modules && p->is_unit[0]; i++)
        for (int k = i + 1; k < p->n_modules; k++) {
            if (!p->is_unit[i] || !p->is_unit[k] || joined[i] || joined[k] || p->parent[k] >= i ||
                !one_in(r, 3))
                continue;
            joined[i] = joined[k] = true;
            p->joined_to[k] = i;
        }
}

/* Draw which parameters have storages of the rarer kinds, and in which steps frozen parameters
 * train. */
static void draw_storages(plan *p, random_source *r, const char *dir)
{
    p->offload_dir = one_in(r, 4) ? dir : NULL;
    for (int i = 0; i < p->n_modules; i++) {
        p->loaded[i] = one_in(r, 3);
        p->extended[i] = !p->by_columns && one_in(r, 5);
        for (int s = 0; s < STEPS; s++)
            p->trains_in[s][i] = one_in(r, 3);
    }
}

static void draw_plan(uint64_t seed, int world_size, const char *dir, plan *p)
{
    random_source r = {.seed = seed};
    static const int64_t widths[] = {1, 2, 3, 7, 15, 16, 17};
    *p = (plan){.seed = seed, .width = widths[below(&r, 7)], .n_modules = 1 + below(&r, 11)};
    static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};
    fsdp_mp_policy mp = {.param_dtype = dtypes[below(&r, 3)],
                         .reduce_dtype = one_in(&r, 2) ? dtypes[below(&r, 3)] : FSDP_DTYPE_F32};
    for (int i = 0; i < p->n_modules; i++) {
        draw_module(p, &r, i);
        if (one_in(&r, 8)) /* a unit may keep its master in bfloat16 */
            mp.master_dtype = FSDP_DTYPE_BF16;
        p->options[i].mp_policy = mp;
        p->options[i].reshard_after_forward = (fsdp_reshard)below(&r, 3);
        p->options[i].no_shard = one_in(&r, 6);
        mp.master_dtype = FSDP_DTYPE_F32;
    }
    /* If the root is not a unit, its parameters would not be reduced, so it gets none. */
    if (!p->is_unit[0]) {
        p->hidden[0] = 0;
        p->tied_to[0] = -1;
        for (int i = 1; i < p->n_modules; i++) {
            p->is_unit[i] |= p->parent[i] == 0;
            if (p->tied_to[i] == 0)
                p->tied_to[i] = -1;
        }
    }
    join_units(p, &r);
    for (int s = 0; s < STEPS; s++) {
        for (int i = 0; i < p->n_modules; i++)
            p->calls[s][i] = one_in(&r, 6) ? below(&r, 3) : 1;
        p->evaluate[s] = one_in(&r, 3);
        p->fail[s] = one_in(&r, 4);
        p->forget[s] = one_in(&r, 4);
    }
    p->by_columns = one_in(&r, 3);
    p->leaves = world_size * (1 + below(&r, 3));
    p->replicas = 1 << below(&r, world_size == 4 ? 3 : 2);
    for (int i = 0; i < p->n_modules; i++)
        if (world_size == 4 && p->replicas == 1 && !p->options[i].no_shard && one_in(&r, 4)) {
            p->options[i].reshard_after_forward = FSDP_RESHARD_TO_SMALLER;
            p->options[i].reshard_ranks = 2;
        }
    for (int i = 0; i < p->n_modules; i++) {
        p->checkpointed[i] = one_in(&r, 3);
        p->keeps_results[i] = one_in(&r, 2);
        p->dropout[i] = one_in(&r, 3) ? 0.3f : 0.0f;
    }
    p->in_sections = one_in(&r, 2);
    if (world_size & (world_size - 1)) { /* only sums of one micro-step have the same bits */
        p->replicas = 1;
        p->leaves = world_size;
    }
    draw_storages(p, &r, dir);
}

/* --- a model by its plan --- */

static fsdp_status build(const plan *p, fsdp_module **modules)
{
    for (int i = 0; i < p->n_modules; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        FSDP_TRY(
            tree_add(i ? modules[p->parent[i]] : NULL, name, p->width, p->hidden[i], &modules[i]));
        tree *t = tree_of(modules[i]);
        t->dropout = p->dropout[i];
        if (p->tied_to[i] == i)
            FSDP_TRY(fsdp_module_add_parameter(modules[i], "tied", 2,
                                               (int64_t[]){p->width, p->width},
                                               (fsdp_init){.mean = 0.0f, .std = 0.3f}, &t->tied));
        else if (p->tied_to[i] >= 0) {
            t->tied = tree_of(modules[p->tied_to[i]])->tied;
            FSDP_TRY(fsdp_module_share_parameter(modules[i], "tied", t->tied));
        }
    }
    return FSDP_OK;
}

/* An extension that packs rows in float32. */
static size_t packed_bytes(void *self, const fsdp_parameter *p, int64_t rows)
{
    (void)self;
    return (size_t)(rows * (fsdp_parameter_numel(p) / fsdp_parameter_shape(p)[0])) * sizeof(float);
}

static fsdp_status pack(void *self, const fsdp_parameter *p, const fsdp_tensor *local,
                        fsdp_group *group, void *packed, size_t bytes)
{
    (void)self, (void)p, (void)group;
    if (!bytes)
        return FSDP_OK;
    const fsdp_device *device = local->storage->device;
    FSDP_TRY(fsdp_tensor_check_data(local));
    device->kernels->cast(device->context, packed, FSDP_DTYPE_F32, fsdp_tensor_ptr(local),
                          local->dtype, fsdp_tensor_numel(local));
    return fsdp_device_synchronize(device);
}

static fsdp_status unpack(void *self, const fsdp_parameter *p, const void *packed, size_t bytes,
                          fsdp_tensor *rows)
{
    (void)self, (void)p, (void)bytes;
    return fsdp_tensor_from_host(rows, 0, packed, FSDP_DTYPE_F32, fsdp_tensor_numel(rows));
}

static fsdp_status choose_storages(const plan *p, fsdp_module *const *modules)
{
    const fsdp_all_gather_extension extension = {
        .packed_bytes = packed_bytes, .pre_all_gather = pack, .post_all_gather = unpack};
    for (int i = 0; i < p->n_modules; i++) {
        const tree *t = tree_of(modules[i]);
        if (!t->up)
            continue;
        if (p->extended[i])
            FSDP_TRY(fsdp_parameter_set_all_gather_extension(t->up, &extension));
        if (p->extended[i] && i % 2)
            FSDP_TRY(fsdp_parameter_set_all_gather_extension(t->down, &extension));
        t->up->loaded = p->loaded[i] && p->frozen[i];
        t->up->loaded_dtype = FSDP_DTYPE_BF16;
    }
    return FSDP_OK;
}

/* Freeze and unfreeze parameters for a step. */
static void freeze_for(const plan *p, fsdp_module *const *modules, int step)
{
    for (int i = 0; i < p->n_modules; i++) {
        const tree *t = tree_of(modules[i]);
        if (t->up)
            fsdp_parameter_set_requires_grad(t->up, p->trains_in[step][i] || !p->frozen[i]);
        if (t->down && p->loaded[i])
            fsdp_parameter_set_requires_grad(t->down, p->trains_in[step][i]);
    }
}

static void freeze(const plan *p, fsdp_module *const *modules)
{
    for (int i = 0; i < p->n_modules; i++) {
        const tree *t = tree_of(modules[i]);
        if (!p->frozen[i] || !t->up)
            continue;
        fsdp_parameter_set_requires_grad(t->up, false);
        fsdp_parameter_set_requires_grad(t->norm, i % 2);
    }
}

/* Shard by columns, except `up` of modules with long names, which is sharded by rows. */
static int cut_by_columns(const char *name, const fsdp_parameter *parameter, void *arg)
{
    (void)parameter, (void)arg;
    return strlen(name) > 5 && strstr(name, "up") ? 0 : -1;
}

/* Shard module i, together with the one that is joined to it. */
static fsdp_status shard_unit(const plan *p, fsdp_module *const *modules, int i,
                              const fsdp_fully_shard_options *options, const trainee *m)
{
    fsdp_module *both[2] = {modules[i], NULL};
    for (int k = i + 1; k < p->n_modules; k++)
        if (i && p->joined_to[k] == i)
            both[1] = modules[k];
    return fsdp_fully_shard_modules(both, both[1] ? 2 : 1, m->group, m->device, options);
}

static fsdp_status shard(const plan *p, fsdp_module *const *modules, const fsdp_device_mesh *mesh,
                         trainee *m)
{
    for (int i = p->n_modules; i-- > 0;) {
        fsdp_fully_shard_options options = p->options[i];
        options.mesh = mesh;
        if (p->offload_dir && m->group)
            options.offload_policy =
                (fsdp_offload_policy){.kind = FSDP_OFFLOAD_DIR, .dir = p->offload_dir};
        if (p->by_columns)
            options.shard_placement_fn = cut_by_columns;
        if (!m->group && options.reshard_ranks)
            options.reshard_after_forward = FSDP_RESHARD_TRUE;
        if (p->is_unit[i] && !p->joined_to[i])
            FSDP_TRY(shard_unit(p, modules, i, &options, m));
    }
    return FSDP_OK;
}

static void set_calls(const plan *p, fsdp_module *const *modules, int step)
{
    int next[MAX_MODULES] = {0};
    for (int i = 1; i < p->n_modules; i++)
        tree_of(modules[p->parent[i]])->calls[next[p->parent[i]]++] = p->calls[step][i];
}

static bool is_called(const plan *p, int step, int i)
{
    for (; i > 0; i = p->parent[i])
        if (!p->calls[step][i])
            return false;
    return true;
}

/* Does the step use any parameter that trains? Otherwise there is no backward. */
static bool trains(const plan *p, int step)
{
    for (int i = 0; i < p->n_modules; i++)
        if ((p->hidden[i] || p->tied_to[i] >= 0) && is_called(p, step, i))
            return true;
    return false;
}

static fsdp_status fail_in(trainee *m, fsdp_module *module, const tree_call *call)
{
    tree_of(module)->fail_forward = true;
    fsdp_status status = tree_forward_backward(m, m->model, call);
    tree_of(module)->fail_forward = false;
    if (status != FSDP_OK && strstr(fsdp_last_error(), "on purpose"))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_STATE, "no failure on purpose but: %s", fsdp_last_error());
}

/* Events that must not change the result. The reference runs without them. */
static fsdp_status disturb(const plan *p, fsdp_module *const *modules, trainee *m, int step)
{
    const tree_call call = {.step = step + 500, .n_micro_steps = 2};
    if (p->evaluate[step])
        FSDP_TRY(tree_evaluate(m, m->model, step));
    const int last = p->n_modules - 1;
    if (p->fail[step] && is_called(p, step, last))
        FSDP_TRY(fail_in(m, modules[last], &call));
    if (p->forget[step]) {
        fsdp_scope *s;
        FSDP_TRY(tree_scope(m, m->tape, &call, &s));
        tree_forward(m, s, m->model, &call);
        fsdp_scope_close(s);
        fsdp_tape_reset(m->tape);
    }
    return FSDP_OK;
}

/* Train over the group (as `mesh`, unless NULL), on one rank (`group` is NULL), or without units
 * (`plain`). Set *params to all parameters after the training. */
static fsdp_status train(const plan *p, fsdp_group *group, const fsdp_device_mesh *mesh, bool plain,
                         float **params, size_t *n)
{
    trainee m;
    fsdp_module *modules[MAX_MODULES];
    FSDP_TRY(trainee_open(group, NULL, p->options[0].mp_policy.param_dtype, &m));
    FSDP_TRY(build(p, modules));
    m.model = modules[0];
    freeze(p, modules);
    FSDP_TRY(choose_storages(p, modules));
    for (int i = 0; i < p->n_modules; i++)
        if (group && p->checkpointed[i])
            fsdp_module_set_activation_checkpointing_options(
                modules[i],
                &(fsdp_activation_checkpointing_options){
                    .kind = p->keeps_results[i] ? FSDP_CHECKPOINT_OP : FSDP_CHECKPOINT_FULL});
    m.plain = plain;
    FSDP_TRY(plain ? fsdp_module_to_empty(m.model, m.device) : shard(p, modules, mesh, &m));
    if (group && p->in_sections)
        FSDP_TRY(tree_in_sections(m.model));
    FSDP_TRY(fsdp_module_init(m.model, p->seed));
    for (int step = 0; step < STEPS; step++) {
        set_calls(p, modules, step);
        freeze_for(p, modules, step);
        if (group)
            FSDP_TRY(disturb(p, modules, &m, step));
        if (trains(p, step))
            FSDP_TRY(tree_step(&m, step, p->leaves));
    }
    FSDP_TRY(tree_params(m.model, params, n));
    return trainee_close(&m);
}

static bool all_float32(const plan *p)
{
    bool all = true;
    for (int i = 0; i < p->n_modules; i++)
        all &= !p->loaded[i] && p->options[i].mp_policy.param_dtype == FSDP_DTYPE_F32 &&
               p->options[i].mp_policy.reduce_dtype == FSDP_DTYPE_F32 &&
               p->options[i].mp_policy.master_dtype == FSDP_DTYPE_F32;
    return all;
}

/* Compare with one rank, bit for bit, and up to rounding with a module without units, whose
 * gradients accumulate in one buffer. */
static fsdp_status compare(const plan *p, const float *many, size_t n)
{
    for (int plain = 0; plain < 1 + all_float32(p); plain++) {
        float *one = NULL;
        size_t n_one = 0;
        double difference = 0.0, largest = 1.0;
        FSDP_TRY(train(p, NULL, NULL, plain, &one, &n_one));
        for (size_t i = 0; i < n && n == n_one; i++) {
            difference = fmax(difference, fabs((double)many[i] - (double)one[i]));
            largest = fmax(largest, fabs((double)one[i]));
        }
        bool same =
            n == n_one && (plain ? difference < 1e-3 * largest : memcmp(many, one, n * 4) == 0);
        fsdp_free(one);
        if (!same)
            return fsdp_error(FSDP_ERR_STATE, "sharded and %s parameters differ by up to %g",
                              plain ? "plain" : "one rank's", difference);
    }
    return FSDP_OK;
}

/* meshes[i] has 2^i replicas. It is NULL if i is 0, or if the number of ranks is not a multiple of
 * 2^i. The caller creates the meshes, because a group can be split only a few times. */
static void run_case(fsdp_test *t, uint64_t seed, fsdp_device_mesh *const *meshes)
{
    plan p;
    float *many = NULL;
    size_t n = 0;
    draw_plan(seed, t->world_size, fsdp_test_dir(t), &p);
    fsdp_group_set_delay(t->group, seed, 50);
    fsdp_status status = train(&p, t->group, meshes[p.replicas / 2], false, &many, &n);
    if (status == FSDP_OK)
        status = compare(&p, many, n);
    fsdp_free(many);
    if (status != FSDP_OK)
        FAIL("seed %llu: %s", (unsigned long long)seed, fsdp_last_error());
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void run_cases(fsdp_test *t)
{
    uint64_t first = from_environment("FSDP_TEST_SEED", 1);
    uint64_t n = from_environment("FSDP_TEST_CASES", 60);
    fsdp_device_mesh *meshes[3] = {0};
    for (int i = 1; i < 3 && t->world_size % (1 << i) == 0; i++)
        ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){1 << i, t->world_size >> i}, NULL,
                                          &meshes[i]));
    for (uint64_t seed = first; seed < first + n; seed++) {
        run_case(t, seed, meshes);
        CHECK_HERE();
    }
    for (int i = 1; i < 3; i++)
        fsdp_device_mesh_destroy(meshes[i]);
}

TEST_RANKS(random_trees_at_1_rank, 1)
{
    run_cases(t);
}

TEST_RANKS(random_trees_at_2_ranks, 2)
{
    run_cases(t);
}

TEST_RANKS(random_trees_at_3_ranks, 3)
{
    run_cases(t);
}

TEST_RANKS(random_trees_at_4_ranks, 4)
{
    run_cases(t);
}

TEST_RANKS(random_trees_at_5_ranks, 5)
{
    run_cases(t);
}
