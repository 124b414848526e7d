/* Gradients of embeddings as tables of the rows that were looked up (Note [Gradients by row] in
 * src/fsdp/grad_rows.h). Every case must give the bits of whole gradients, computed by a model
 * without units and added over the ranks. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/bf16.h"
#include "src/base/philox.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    V = 501, /* not a multiple of any number of ranks */
    D = 6,
    MOST = 40, /* most ids of a lookup */
    MOST_LOOKUPS = 3
};

/* sum(w2 (w1 E[ids])) over the lookups; tied: w1 E[ids] E^T in place of w2. */
typedef struct lookup_model {
    fsdp_parameter *table, *w;
    int32_t padding_idx;
    bool tied;
    int lookups;
    int unused;     /* additional lookups that no operation reads */
    int empty_leaf; /* this leaf has no ids; 0: all have some */
    int64_t n[MOST_LOOKUPS];
    int32_t ids[MOST_LOOKUPS][MOST];
} lookup_model;

static void forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const lookup_model *m = self->impl;
    fsdp_tensor *sum = NULL;
    (void)in;
    for (int i = 0; i < m->lookups + m->unused; i++) {
        fsdp_tensor *x =
            fsdp_embedding(s, m->ids[i], m->n[i], fsdp_read(s, m->table), m->padding_idx);
        if (i >= m->lookups)
            continue;
        fsdp_tensor *y = fsdp_linear(s, x, fsdp_read(s, m->w), NULL);
        fsdp_tensor *z = m->tied ? fsdp_linear(s, y, fsdp_read(s, m->table), NULL) : y;
        fsdp_tensor *part = fsdp_sum(s, fsdp_mul(s, z, fsdp_gelu(s, z)));
        sum = sum ? fsdp_add(s, sum, part) : part;
    }
    out->t[out->n++] = sum;
}

static fsdp_status create(fsdp_module **out)
{
    fsdp_module *root;
    lookup_model *m = fsdp_calloc(1, sizeof *m);
    if (!m)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_module_create("Lookup", &root));
    fsdp_module_set_forward(root, forward, m, fsdp_free);
    m->padding_idx = -1;
    m->lookups = 1;
    *out = root;
    FSDP_TRY(fsdp_module_add_parameter(root, "table", 2, (int64_t[]){V, D},
                                       (fsdp_init){.mean = 0.0f, .std = 0.5f}, &m->table));
    return fsdp_module_add_parameter(root, "w", 2, (int64_t[]){D, D},
                                     (fsdp_init){.mean = 0.0f, .std = 0.5f}, &m->w);
}

static lookup_model *model_of(const trainee *m)
{
    return m->model->impl;
}

static fsdp_status open_model(fsdp_group *group, const fsdp_fully_shard_options *options,
                              trainee *m)
{
    FSDP_TRY(trainee_open(group, NULL, FSDP_DTYPE_F32, m));
    FSDP_TRY(create(&m->model));
    m->plain = !options;
    if (options)
        FSDP_TRY(fsdp_fully_shard(m->model, group, m->device, options));
    else
        FSDP_TRY(fsdp_module_to_empty(m->model, m->device));
    return fsdp_module_init(m->model, 3);
}

/* Draw the ids of a leaf. Ids and their number differ between ranks, some ids occur twice, and the
 * second lookup of rank 1 has none. */
static void draw(lookup_model *m, int step, int leaf)
{
    for (int i = 0; i < m->lookups + m->unused; i++) {
        const uint64_t key = fsdp_mix64((uint64_t)(step * 100 + leaf * 10 + i));
        const bool is_empty = (i == 1 && leaf % 4 == 1) || (leaf && leaf == m->empty_leaf);
        m->n[i] = is_empty ? 0 : 1 + (int64_t)(key % MOST);
        for (int64_t k = 0; k < m->n[i]; k++)
            m->ids[i][k] = (int32_t)(fsdp_mix64(key + (uint64_t)k / 2) % (uint64_t)V);
    }
}

static fsdp_status run(trainee *m, int step, int leaf, int micro_step, int micro_steps)
{
    fsdp_scope *s;
    draw(model_of(m), step, leaf);
    FSDP_TRY(tree_scope(m, m->tape,
                        &(tree_call){.step = step,
                                     .micro_batch = leaf,
                                     .micro_step = micro_step,
                                     .n_micro_steps = micro_steps},
                        &s));
    fsdp_tensor *loss = fsdp_module_call(s, m->model, NULL, (fsdp_args){.n = 0}).t[0];
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_backward(m->tape, &loss, NULL, 1);
    fsdp_scope_close(s);
    return status;
}

/* The sum over leaves, in the order of the aligned tree. */
static void tree_add_leaves(float leaves[][V * D], int n)
{
    for (int width = 1; width < n; width *= 2)
        for (int i = 0; i + width < n; i += 2 * width)
            for (int e = 0; e < V * D; e++)
                leaves[i][e] += leaves[i + width][e];
}

static void configure(const trainee *m, bool tied, int lookups, int32_t padding_idx)
{
    model_of(m)->tied = tied;
    model_of(m)->lookups = lookups;
    model_of(m)->padding_idx = padding_idx;
}

/* The gradient that units must have after one step over `ranks`. Each rank first adds up its own
 * leaves, one for each entry of `tied` [micro_steps]. */
typedef struct expected {
    int step, ranks, micro_steps, lookups;
    int32_t padding_idx;
    bool tied[2];
    bool rounds;    /* the gradient of each rank is rounded to bfloat16 */
    int empty_leaf; /* as in lookup_model */
    bool freezes;   /* w is frozen between the micro-steps */
} expected;

static void want_gradient(fsdp_test *t, const expected *e, float *want)
{
    static _Thread_local float leaves[8][V * D];
    trainee plain;
    ASSERT_OK(open_model(NULL, NULL, &plain));
    for (int r = 0; r < e->ranks; r++) {
        fsdp_module_zero_grad(plain.model);
        for (int micro = 0; micro < e->micro_steps; micro++) {
            configure(&plain, e->tied[micro], e->lookups, e->padding_idx);
            model_of(&plain)->empty_leaf = e->empty_leaf;
            ASSERT_OK(run(&plain, e->step, micro * e->ranks + r, 0, 1));
        }
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_parameter_grad(model_of(&plain)->table), leaves[r]));
        for (int i = 0; i < V * D && e->rounds; i++)
            leaves[r][i] = fsdp_f32_from_bf16(fsdp_bf16_from_f32(leaves[r][i]));
    }
    tree_add_leaves(leaves, e->ranks);
    memcpy(want, leaves[0], sizeof leaves[0]);
    ASSERT_OK(trainee_close(&plain));
}

/* Check that this rank's rows of the embedding's gradient are those of `want` times scale. */
static void compare(fsdp_test *t, const trainee *m, const float *want, float scale)
{
    static _Thread_local float got[V * D];
    const fsdp_parameter *p = model_of(m)->table;
    const fsdp_tensor *grad = fsdp_parameter_grad(p);
    ASSERT(grad);
    ASSERT_OK(fsdp_tensor_to_floats(grad, got));
    for (int64_t e = 0; e < fsdp_tensor_numel(grad); e++)
        ASSERT(got[e] == want[fsdp_parameter_shard(p).begin * D + e] * scale);
}

/* Run and check three steps of one micro-step. */
static void check_steps(fsdp_test *t, const fsdp_fully_shard_options *options, expected e)
{
    static _Thread_local float want[V * D];
    trainee m;
    ASSERT_OK(open_model(t->group, options, &m));
    configure(&m, e.tied[0], e.lookups, e.padding_idx);
    for (e.step = 0; e.step < 3; e.step++) {
        fsdp_module_zero_grad(m.model);
        ASSERT_OK(run(&m, e.step, t->rank, 0, 1));
        want_gradient(t, &e, want);
        CHECK_HERE();
        compare(t, &m, want, 1.0f / (float)t->world_size);
        CHECK_HERE();
    }
    ASSERT_OK(trainee_close(&m));
}

static void check_ranks(fsdp_test *t, bool tied, int lookups, int32_t padding_idx)
{
    static const fsdp_fully_shard_options variants[] = {
        {.mp_policy = {.param_dtype = FSDP_DTYPE_F32}},
        {.no_shard = true},
        {.mp_policy = {.reduce_dtype = FSDP_DTYPE_BF16}}};
    for (size_t v = 0; v < FSDP_LENGTH(variants); v++) {
        check_steps(t, &variants[v],
                    (expected){.ranks = t->world_size,
                               .micro_steps = 1,
                               .lookups = lookups,
                               .padding_idx = padding_idx,
                               .tied = {tied},
                               .rounds = variants[v].mp_policy.reduce_dtype == FSDP_DTYPE_BF16});
        CHECK_HERE();
    }
}

TEST_RANKS(a_table_has_the_bits_of_a_whole_gradient_on_one_rank, 1)
{
    check_ranks(t, false, 2, -1);
}

TEST_RANKS(a_table_has_the_bits_of_a_whole_gradient_on_two_ranks, 2)
{
    check_ranks(t, false, 1, -1);
    CHECK_HERE();
    check_ranks(t, false, MOST_LOOKUPS, 17);
}

TEST_RANKS(a_table_has_the_bits_of_a_whole_gradient_on_three_ranks, 3)
{
    check_ranks(t, false, 2, -1);
}

TEST_RANKS(a_table_has_the_bits_of_a_whole_gradient_on_eight_ranks, 8)
{
    check_ranks(t, false, 2, 3);
}

/* Add leaves 4 to 4n - 1 to leaves 0 to 3, block by block, in the order of Note [Same bits at any
 * world size] in src/fsdp/grad_sums.h. */
static void add_blocks(float leaves[][V * D], int n)
{
    for (int block = 0; block < n; block++) {
        tree_add_leaves(leaves + 4 * block, 4);
        for (int e = 0; e < V * D && block; e++)
            leaves[0][e] += leaves[4 * block][e];
    }
}

/* The temporary memory of a sum has room for a few rows only, so a table is summed in chunks. */
TEST_RANKS(tables_of_many_micro_steps_have_the_bits_of_whole_gradients, 2)
{
    enum {
        BLOCKS = 3,
        MICRO_STEPS = BLOCKS * 4 / 2
    };
    static _Thread_local float leaves[BLOCKS * 4][V * D];
    trainee plain, m;
    ASSERT_OK(open_model(NULL, NULL, &plain));
    configure(&plain, false, 2, 3);
    for (int leaf = 0; leaf < BLOCKS * 4; leaf++) {
        fsdp_module_zero_grad(plain.model);
        ASSERT_OK(run(&plain, 0, leaf, 0, 1));
        ASSERT_OK(
            fsdp_tensor_to_floats(fsdp_parameter_grad(model_of(&plain)->table), leaves[leaf]));
    }
    ASSERT_OK(trainee_close(&plain));
    add_blocks(leaves, BLOCKS);
    ASSERT_OK(open_model(t->group, &(fsdp_fully_shard_options){0}, &m));
    fsdp_device_traits few_rows = *m.device->traits;
    few_rows.sum_numel = 5 * D + 1;
    m.device->traits = &few_rows;
    configure(&m, false, 2, 3);
    for (int micro = 0; micro < MICRO_STEPS; micro++)
        ASSERT_OK(run(&m, 0, 2 * micro + t->rank, micro, MICRO_STEPS));
    compare(t, &m, leaves[0], 0.5f);
    ASSERT_OK(trainee_close(&m));
}

/* The product is recorded after the lookup, so it is known before backward begins. */
TEST_RANKS(a_weight_that_is_read_whole_too_has_both_gradients, 2)
{
    check_ranks(t, true, 2, -1);
}

TEST_RANKS(replicas_add_what_their_shards_have_summed, 4)
{
    fsdp_device_mesh *mesh;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, NULL, &mesh));
    check_steps(t, &(fsdp_fully_shard_options){.mesh = mesh},
                (expected){.ranks = 4, .micro_steps = 1, .lookups = 2, .padding_idx = -1});
    fsdp_device_mesh_destroy(mesh);
}

/* Without communication the second micro-step adds to an open gradient buffer, which has room only
 * for the rows of the first one, and may read the whole weight. Each micro-step announces rows that
 * do not arrive. `declared`: the scope gives the number of micro-steps. */
static void check_adding_up(fsdp_test *t, bool declared, expected e)
{
    static _Thread_local float want[V * D];
    trainee m;
    ASSERT_OK(open_model(t->group, &(fsdp_fully_shard_options){0}, &m));
    for (e.step = 0; e.step < 4; e.step++) {
        fsdp_module_zero_grad(m.model);
        configure(&m, e.tied[0], e.lookups, e.padding_idx);
        model_of(&m)->unused = e.lookups > 1;
        model_of(&m)->empty_leaf = e.empty_leaf;
        ASSERT_OK(fsdp_no_sync_begin(m.model));
        ASSERT_OK(run(&m, e.step, t->rank, 0, declared ? 2 : 0));
        ASSERT_OK(fsdp_no_sync_end(m.model));
        configure(&m, e.tied[1], e.lookups, e.padding_idx);
        fsdp_parameter_set_requires_grad(model_of(&m)->w, !e.freezes);
        ASSERT_OK(run(&m, e.step, t->world_size + t->rank, declared ? 1 : 0, declared ? 2 : 0));
        fsdp_parameter_set_requires_grad(model_of(&m)->w, true);
        want_gradient(t, &e, want);
        CHECK_HERE();
        compare(t, &m, want, 1.0f / (float)t->world_size);
        CHECK_HERE();
    }
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(micro_steps_that_add_up_in_the_gradient_buffer_find_room, 3)
{
    for (int i = 0; i < 8; i++) {
        check_adding_up(t, i & 4,
                        (expected){.ranks = t->world_size,
                                   .micro_steps = 2,
                                   .lookups = 2,
                                   .padding_idx = 5,
                                   .tied = {i & 1, i & 2}});
        CHECK_HERE();
    }
}

/* The second micro-batch of one rank is empty. This rank moves to the new gradient buffer as the
 * others do. */
TEST_RANKS(micro_steps_that_add_up_may_be_empty_on_a_rank, 3)
{
    for (int declared = 0; declared < 2; declared++) {
        check_adding_up(t, declared,
                        (expected){.ranks = t->world_size,
                                   .micro_steps = 2,
                                   .lookups = 1,
                                   .padding_idx = -1,
                                   .empty_leaf = t->world_size + 1});
        CHECK_HERE();
    }
}

/* A gradient in the buffer keeps a place in the new layout, even if its parameter does not train
 * now. */
TEST_RANKS(freezing_between_micro_steps_spoils_no_gradient, 2)
{
    check_adding_up(t, true,
                    (expected){.ranks = t->world_size,
                               .micro_steps = 2,
                               .lookups = 2,
                               .padding_idx = -1,
                               .freezes = true});
}

/* A forward without backward announces rows that do not arrive, different ones on each rank. The
 * next step plans its tables again. */
TEST_RANKS(a_forward_without_its_backward_leaves_nothing_behind, 2)
{
    static _Thread_local float want[V * D];
    expected e = {.ranks = 2, .micro_steps = 1, .lookups = 2, .padding_idx = -1};
    trainee m;
    ASSERT_OK(open_model(t->group, &(fsdp_fully_shard_options){0}, &m));
    configure(&m, false, e.lookups, e.padding_idx);
    for (e.step = 0; e.step < 3; e.step++) {
        fsdp_scope *s;
        fsdp_module_zero_grad(m.model);
        draw(model_of(&m), e.step + 50, t->rank);
        ASSERT_OK(
            tree_scope(&m, m.tape, &(tree_call){.micro_batch = t->rank, .n_micro_steps = 1}, &s));
        (void)fsdp_module_call(s, m.model, NULL, (fsdp_args){.n = 0});
        ASSERT_OK(fsdp_scope_status(s));
        fsdp_scope_close(s);
        fsdp_tape_reset(m.tape);
        ASSERT_OK(run(&m, e.step, t->rank, 0, 1));
        want_gradient(t, &e, want);
        CHECK_HERE();
        compare(t, &m, want, 0.5f);
        CHECK_HERE();
    }
    ASSERT_OK(trainee_close(&m));
}

/* The peak of gradient memory, in bytes of this rank's part. */
static void find_grad_peak(fsdp_test *t, bool tied, int64_t *bytes)
{
    trainee m;
    fsdp_memory_stats stats;
    ASSERT_OK(open_model(t->group, &(fsdp_fully_shard_options){0}, &m));
    configure(&m, tied, 1, -1);
    for (int step = 0; step < 3; step++) {
        fsdp_module_zero_grad(m.model);
        ASSERT_OK(run(&m, step, t->rank, 0, 1));
    }
    fsdp_device_memory(m.device, &stats);
    *bytes = stats.tag_peak[FSDP_TAG_GRAD];
    ASSERT_OK(trainee_close(&m));
}

/* A rank's part of the gradient buffer has 65 rows (a table of 64 and row 0) and their ids, instead
 * of V rows. */
TEST_RANKS(a_gradient_buffer_has_no_place_for_rows_that_are_not_looked_up, 2)
{
    int64_t whole = 0, table = 0;
    find_grad_peak(t, true, &whole);
    CHECK_HERE();
    find_grad_peak(t, false, &table);
    CHECK_HERE();
    const int64_t saved = (int64_t)sizeof(float) * (V * D - 65 * D - 65);
    ASSERT(whole - table >= saved - 512);
    ASSERT(whole - table <= saved + 512);
}
