/* Halved masters (Note [Halved masters] in src/fsdp/param_storage.h): operations read the upper
 * halves of float32 masters. Halved masters train to the same bits as masters that are cast, such
 * as masters in a file. They are never cast, gathered or stored twice. */
#include <string.h>

#include <fsdp/optim.h>
#include <fsdp/state_dict.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/comm.h"
#include "src/fsdp/state.h"
#include "src/tensor/halved.h"
#include "tests/elements.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    LEAVES = 12,
    STEPS = 3
};

static const fsdp_fully_shard_options bf16 = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}};

typedef enum optimizer_kind {
    ADAMW,
    ADAM,
    SGD,
    MOMENTUM,
    ADAFACTOR,
    N_OPTIMIZERS
} optimizer_kind;

typedef struct pupil {
    trainee m;
    fsdp_optimizer *optimizer;
} pupil;

static fsdp_status create_optimizer(optimizer_kind kind, fsdp_module *m, fsdp_optimizer **optimizer)
{
    const fsdp_sgd_options sgd = {.lr = 0.1, .momentum = kind == MOMENTUM ? 0.9 : 0.0};
    fsdp_adamw_options adam = fsdp_adamw_defaults();
    adam.l2 = kind == ADAM;
    if (kind == ADAMW || kind == ADAM)
        return fsdp_adamw_create(m, &adam, optimizer);
    if (kind == ADAFACTOR)
        return fsdp_adafactor_create(m, NULL, optimizer);
    return fsdp_sgd_create(m, &sgd, optimizer);
}

static fsdp_status pupil_open(fsdp_group *group, const fsdp_fully_shard_options *o,
                              optimizer_kind kind, pupil *p)
{
    p->optimizer = NULL;
    FSDP_TRY(trainee_open_example(group, o, &p->m));
    return create_optimizer(kind, p->m.model, &p->optimizer);
}

/* The reference has its masters in a file, so they are cast into a gathered copy. */
static fsdp_status reference_open(fsdp_test *t, const fsdp_fully_shard_options *o,
                                  optimizer_kind kind, pupil *p)
{
    fsdp_fully_shard_options cast = *o;
    cast.offload_policy = (fsdp_offload_policy){.kind = FSDP_OFFLOAD_DIR, .dir = fsdp_test_dir(t)};
    return pupil_open(t->group, &cast, kind, p);
}

static fsdp_status pupil_close(pupil *p)
{
    fsdp_optimizer_destroy(p->optimizer);
    return trainee_close(&p->m);
}

static fsdp_status clip(const pupil *p, float *scale)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(p->m.model, false, &list));
    fsdp_status status = fsdp_clip_grad_norm(&list, 0.5, NULL, NULL, scale);
    fsdp_parameter_list_free(&list);
    return status;
}

static fsdp_status pupil_step(pupil *p, int step)
{
    const int world_size = trainee_world_size(&p->m), micro_steps = LEAVES / world_size;
    float scale;
    FSDP_TRY(fsdp_set_gradient_divide_factor(p->m.model, LEAVES));
    for (int a = 0; a < micro_steps; a++)
        FSDP_TRY(
            tree_forward_backward(&p->m, p->m.model,
                                  &(tree_call){.step = step,
                                               .micro_batch = a * world_size + trainee_rank(&p->m),
                                               .micro_step = a,
                                               .n_micro_steps = micro_steps}));
    FSDP_TRY(clip(p, &scale));
    FSDP_TRY(fsdp_optimizer_step(p->optimizer, scale));
    fsdp_optimizer_zero_grad(p->optimizer);
    return FSDP_OK;
}

static fsdp_param_group *unit_of(const pupil *p, const char *path)
{
    return ((fsdp_state *)trainee_unit(&p->m, path)->fsdp_state)->param_group;
}

static size_t count_halved(const pupil *p)
{
    static const char *const units[] = {"", "first", "second", "second.inner"};
    size_t n = 0;
    for (size_t i = 0; i < FSDP_LENGTH(units); i++)
        for (size_t k = 0; k < unit_of(p, units[i])->n_params; k++)
            n += unit_of(p, units[i])->params[k].storage == &fsdp_storage_halved;
    return n;
}

/* --- where it applies --- */

static int last_dimension(const char *name, const fsdp_parameter *p, void *arg)
{
    (void)name, (void)arg;
    return fsdp_parameter_ndim(p) - 1;
}

/* There are three parameters in each of four units. The norms are vectors, so they are always
 * sharded by rows. */
static void check_count(fsdp_test *t, const fsdp_fully_shard_options *o, size_t want)
{
    pupil p;
    ASSERT_OK(pupil_open(t->group, o, SGD, &p));
    ASSERT_INT(count_halved(&p), want);
    ASSERT_OK(pupil_step(&p, 0));
    ASSERT_INT(count_halved(&p), want);
    ASSERT_OK(pupil_close(&p));
}

TEST_RANKS(float32_masters_of_bfloat16_compute_are_halved, 2)
{
    const fsdp_fully_shard_options
        kept = {.mp_policy = bf16.mp_policy, .reshard_after_forward = FSDP_RESHARD_FALSE},
        whole = {.mp_policy = bf16.mp_policy, .no_shard = true},
        columns = {.mp_policy = bf16.mp_policy, .shard_placement_fn = last_dimension},
        f16 = {.mp_policy = {.param_dtype = FSDP_DTYPE_F16}},
        f32 = {.mp_policy = {.param_dtype = FSDP_DTYPE_F32}},
        halves = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16, .master_dtype = FSDP_DTYPE_BF16}},
        file = {.mp_policy = bf16.mp_policy,
                .offload_policy = {.kind = FSDP_OFFLOAD_DIR, .dir = fsdp_test_dir(t)}};
    const struct {
        const fsdp_fully_shard_options *options;
        size_t n;
    } cases[] = {{&bf16, 12}, {&kept, 12}, {&whole, 0},  {&columns, 4},
                 {&f16, 0},   {&f32, 0},   {&halves, 0}, {&file, 0}};
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        check_count(t, cases[i].options, cases[i].n);
        CHECK_HERE();
    }
}

TEST(a_rank_alone_has_halves_unless_it_is_not_to_shard)
{
    check_count(t, &bf16, 12);
    CHECK_HERE();
    check_count(t, &(fsdp_fully_shard_options){.mp_policy = bf16.mp_policy, .no_shard = true}, 0);
}

/* An element takes 4 bytes and a mark of one bit, plus alignment. Nothing is gathered. */
TEST_RANKS(nothing_is_cast_and_nothing_is_stored_twice, 2)
{
    const fsdp_comm_counters *n = fsdp_group_counters(t->group);
    pupil p;
    fsdp_memory_stats stats;
    int64_t numel = 0;
    size_t n_params = 0;
    ASSERT_OK(pupil_open(t->group, &bf16, ADAMW, &p));
    ASSERT_OK(pupil_step(&p, 0));
    fsdp_parameter_list list;
    ASSERT_OK(fsdp_module_parameters(p.m.model, false, &list));
    n_params = list.n;
    for (size_t i = 0; i < list.n; i++)
        numel += fsdp_tensor_numel(fsdp_parameter_local(list.items[i].parameter));
    fsdp_parameter_list_free(&list);
    const uint64_t writes = n->calls[FSDP_KIND_WRITE_SHARD];
    ASSERT_OK(tree_evaluate(&p.m, p.m.model, 0));
    ASSERT_INT(n->calls[FSDP_KIND_WRITE_SHARD], writes);
    ASSERT(!unit_of(&p, "")->memories.items[FSDP_MEMORY_COPY]);
    ASSERT_INT(unit_of(&p, "")->context.comm->gathered.n, 0);
    fsdp_device_memory(p.m.device, &stats);
    ASSERT(stats.tag_allocated[FSDP_TAG_PARAM] <=
           numel * 4 + numel / 8 + (int64_t)n_params * 3 * 64);
    ASSERT_OK(pupil_step(&p, 1)); /* AdamW writes each unit once */
    ASSERT_INT(n->calls[FSDP_KIND_WRITE_SHARD], writes + 4);
    ASSERT_OK(pupil_close(&p));
}

/* --- the same bits --- */

static void trains_alike(fsdp_test *t, const fsdp_fully_shard_options *o, optimizer_kind kind)
{
    pupil halved, cast;
    ASSERT_OK(pupil_open(t->group, o, kind, &halved));
    ASSERT_OK(reference_open(t, o, kind, &cast));
    ASSERT(count_halved(&halved) && !count_halved(&cast));
    ASSERT_OK(tree_same_params(&halved.m, &cast.m));
    for (int step = 0; step < STEPS; step++) {
        ASSERT_OK(pupil_step(&halved, step));
        ASSERT_OK(pupil_step(&cast, step));
        ASSERT_OK(tree_same_params(&halved.m, &cast.m));
    }
    ASSERT_OK(pupil_close(&halved));
    ASSERT_OK(pupil_close(&cast));
}

static void all_train_alike(fsdp_test *t)
{
    for (int kind = 0; kind < N_OPTIMIZERS; kind++)
        for (int keeps = 0; keeps < 2; keeps++) {
            fsdp_fully_shard_options o = bf16;
            o.reshard_after_forward = keeps ? FSDP_RESHARD_FALSE : FSDP_RESHARD_TRUE;
            trains_alike(t, &o, (optimizer_kind)kind);
            CHECK_HERE();
        }
}

TEST_RANKS(halved_masters_train_in_the_same_bits_at_2_ranks, 2)
{
    all_train_alike(t);
}

/* Rows do not divide evenly, and shards end within a word of marks. */
TEST_RANKS(halved_masters_train_in_the_same_bits_at_3_ranks, 3)
{
    all_train_alike(t);
}

TEST_RANKS(halved_masters_train_in_the_same_bits_at_4_ranks, 4)
{
    all_train_alike(t);
}

TEST_RANKS(halved_masters_train_in_the_same_bits_over_replicas, 4)
{
    fsdp_device_mesh *mesh;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, NULL, &mesh));
    const fsdp_fully_shard_options o = {.mp_policy = bf16.mp_policy, .mesh = mesh};
    trains_alike(t, &o, ADAMW);
    CHECK_HERE();
    trains_alike(t, &o, ADAFACTOR);
    CHECK_HERE();
    fsdp_device_mesh_destroy(mesh);
}

/* --- every bit is kept --- */

static const uint32_t hard[] = {0x00018000, 0x00008000, 0x7f7f8000, 0xff7f8000, 0x7f800001,
                                0x7fc00001, 0xffbfffff, 0x3f818000, 0x3f808000, 0x3f808001,
                                0x80000000, 0x00000001, 0x7f800000, 0xff7fffff};

static float hard_value(const fsdp_parameter *p, int64_t i)
{
    int64_t begin, end;
    fsdp_parameter_rows(p, &begin, &end);
    return fsdp_f32_from_bits(hard[(size_t)(begin * 5 + i) % FSDP_LENGTH(hard)]);
}

/* Write the hard values to own rows, or check that they are there. */
static fsdp_status hard_rows(fsdp_parameter *p, bool writes)
{
    fsdp_tensor *local = fsdp_parameter_local(p);
    fsdp_status status = FSDP_OK;
    FSDP_TRY(writes ? fsdp_tensor_begin_write(local) : fsdp_tensor_begin_read(local));
    float *at = elements_of(local);
    for (int64_t i = 0; i < fsdp_tensor_numel(local) && status == FSDP_OK; i++) {
        const float want = hard_value(p, i);
        if (writes)
            at[i] = want;
        else if (memcmp(&at[i], &want, sizeof want) != 0)
            status = fsdp_error(FSDP_ERR_STATE, "element %lld is %08x, not %08x", (long long)i,
                                fsdp_bits_from_f32(at[i]), fsdp_bits_from_f32(want));
    }
    if (writes) {
        elements_changed(local, at);
        fsdp_tensor_end_write(local);
    } else {
        fsdp_tensor_end_read(local);
    }
    return status;
}

static fsdp_status hard_model(const pupil *p, bool writes)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(p->m.model, false, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++)
        status = hard_rows(list.items[i].parameter, writes);
    fsdp_parameter_list_free(&list);
    return status;
}

TEST_RANKS(values_keep_their_bits_in_other_memory, 3)
{
    pupil p;
    ASSERT_OK(pupil_open(t->group, &bf16, SGD, &p));
    ASSERT_OK(hard_model(&p, true));
    ASSERT_OK(hard_model(&p, false));
    fsdp_param_group *root = unit_of(&p, "");
    fsdp_dtype dtypes[3];
    ASSERT_INT(root->n_params, 3);
    for (size_t i = 0; i < root->n_params; i++)
        dtypes[i] = root->params[i].dtype;
    ASSERT_OK(fsdp_param_group_store_as(root, dtypes));
    ASSERT_OK(hard_model(&p, false));
    fsdp_full_params *full;
    ASSERT_OK(fsdp_summon_full_params_begin(p.m.model, NULL, &full));
    ASSERT_OK(fsdp_summon_full_params_end(full)); /* writes back the summoned values */
    ASSERT_OK(hard_model(&p, false));
    ASSERT_OK(pupil_close(&p));
}

/* Operations read the values that the optimizer updates, cast to bfloat16. */
TEST_RANKS(operations_read_the_rounded_values, 3)
{
    pupil p;
    ASSERT_OK(pupil_open(t->group, &bf16, SGD, &p));
    fsdp_parameter *up = tree_of(trainee_unit(&p.m, "second"))->up;
    float *want = NULL;
    fsdp_tensor *full;
    ASSERT_OK(hard_rows(up, true));
    ASSERT_OK(fsdp_full_tensor(fsdp_parameter_local(up), &full));
    const size_t n = (size_t)fsdp_tensor_numel(full);
    want = fsdp_calloc(n, sizeof *want);
    ASSERT(want);
    ASSERT_OK(fsdp_tensor_to_floats(full, want));
    fsdp_tensor_release(full);
    ASSERT_OK(fsdp_unit_unshard(trainee_unit(&p.m, "second")));
    const uint16_t *got = elements_of(fsdp_parameter_data(up));
    for (size_t i = 0; i < n; i++)
        ASSERT_INT(got[i], fsdp_bf16_from_f32(want[i]));
    ASSERT_ERROR(fsdp_tensor_begin_write(fsdp_parameter_local(up)), FSDP_ERR_STATE, "is unsharded");
    ASSERT_OK(fsdp_unit_reshard(trainee_unit(&p.m, "second")));
    fsdp_free(want);
    ASSERT_OK(pupil_close(&p));
}

/* --- state --- */

static fsdp_status save_or_load(const pupil *p, const char *dir, bool loads)
{
    fsdp_state_dict *dict;
    FSDP_TRY(fsdp_get_model_state_dict(p->m.model, NULL, &dict));
    fsdp_status status = loads ? fsdp_dcp_load(dict, dir, p->m.group, NULL)
                               : fsdp_dcp_save(dict, dir, p->m.group, NULL);
    fsdp_state_dict_destroy(dict);
    return status;
}

TEST_RANKS(checkpoints_keep_the_bits, 3)
{
    char dir[300] = "";
    pupil from, to;
    if (t->rank == 0)
        snprintf(dir, sizeof dir, "%s/dcp", fsdp_test_dir(t));
    ASSERT_OK(fsdp_broadcast(t->group, dir, sizeof dir, 0));
    ASSERT_OK(pupil_open(t->group, &bf16, SGD, &from));
    ASSERT_OK(pupil_open(t->group, &bf16, SGD, &to));
    ASSERT_OK(hard_model(&from, true));
    ASSERT_OK(save_or_load(&from, dir, false));
    ASSERT_OK(save_or_load(&to, dir, true));
    ASSERT_OK(hard_model(&to, false));
    ASSERT_OK(pupil_close(&from));
    ASSERT_OK(pupil_close(&to));
}

/* Between steps, parameters of a bfloat16 file are frozen, which stores them in bfloat16, and
 * unfrozen to float32. */
TEST_RANKS(freezing_gives_the_same_bits, 3)
{
    pupil halved, cast;
    ASSERT_OK(pupil_open(t->group, &bf16, ADAMW, &halved));
    ASSERT_OK(reference_open(t, &bf16, ADAMW, &cast));
    pupil *const both[] = {&halved, &cast};
    for (int step = 0; step < 4; step++) {
        for (int i = 0; i < 2; i++) {
            fsdp_parameter *up = tree_of(trainee_unit(&both[i]->m, "first"))->up;
            up->loaded = true;
            up->loaded_dtype = step < 2 ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32;
            fsdp_parameter_set_requires_grad(up, step % 2);
            ASSERT_OK(pupil_step(both[i], step));
        }
        ASSERT_OK(tree_same_params(&halved.m, &cast.m));
    }
    ASSERT_INT(count_halved(&halved), 12);
    ASSERT_OK(pupil_close(&halved));
    ASSERT_OK(pupil_close(&cast));
}

/* --- the calls --- */

TEST_RANKS(halves_have_data_between_begin_and_end, 2)
{
    pupil p;
    ASSERT_OK(pupil_open(t->group, &bf16, SGD, &p));
    fsdp_memory_stats before, after;
    fsdp_tensor *local = fsdp_parameter_local(tree_of(trainee_unit(&p.m, "first"))->up);
    ASSERT(!fsdp_tensor_data(local));
    ASSERT(strstr(fsdp_last_error(), "in halves: fsdp_tensor_begin_read() first"));
    fsdp_device_memory(p.m.device, &before);
    ASSERT_OK(fsdp_tensor_begin_read(local));
    ASSERT_OK(fsdp_tensor_begin_write(local));
    float *values = elements_of(local);
    const float next = *values + 1.0f;
    *values = next;
    elements_changed(local, values);
    fsdp_tensor_end_write(local);
    ASSERT_F32(*(const float *)elements_of(local), next);
    fsdp_tensor_end_read(local);
    ASSERT(!fsdp_tensor_has_data(local));
    fsdp_device_memory(p.m.device, &after);
    ASSERT_INT(after.allocated, before.allocated);
    ASSERT_OK(fsdp_tensor_begin_read(local));
    ASSERT_F32(*(const float *)elements_of(local), next);
    fsdp_tensor_end_read(local);
    ASSERT_OK(pupil_close(&p));
}

/* A write that fails for lack of memory has not begun. The unit can be gathered, then written. */
TEST_RANKS(a_write_without_memory_does_not_begin, 2)
{
    pupil p;
    ASSERT_OK(pupil_open(t->group, &bf16, SGD, &p));
    fsdp_tensor *local = fsdp_parameter_local(tree_of(trainee_unit(&p.m, "first"))->up);
    fsdp_allocator_set_limit(p.m.device->allocator, 1);
    ASSERT_ERROR(fsdp_tensor_begin_write(local), FSDP_ERR_NOMEM, "limit");
    ASSERT_ERROR(fsdp_tensor_begin_read(local), FSDP_ERR_NOMEM, "limit");
    fsdp_allocator_set_limit(p.m.device->allocator, 0);
    ASSERT_OK(pupil_step(&p, 0));
    ASSERT_OK(pupil_close(&p));
}

/* A local tensor that is kept longer than its module is empty, as always with shared memory. */
TEST_RANKS(a_local_that_outlives_its_unit_is_empty, 2)
{
    pupil p;
    ASSERT_OK(pupil_open(t->group, &bf16, SGD, &p));
    fsdp_tensor *local =
        fsdp_tensor_retain(fsdp_parameter_local(tree_of(trainee_unit(&p.m, "first"))->up));
    fsdp_optimizer_destroy(p.optimizer);
    fsdp_module_destroy(p.m.model);
    p.m.model = NULL;
    ASSERT_OK(fsdp_tensor_begin_read(local));
    ASSERT(!fsdp_tensor_data(local));
    fsdp_tensor_end_read(local);
    fsdp_tensor_release(local);
    ASSERT_OK(trainee_close(&p.m));
}

/* On meta the same memory is counted. */
TEST_RANKS(meta_counts_halves_alike, 2)
{
    fsdp_memory_stats stats[2];
    for (int i = 0; i < 2; i++) {
        trainee m;
        fsdp_optimizer *optimizer;
        ASSERT_OK(trainee_open(t->group, i ? "meta" : NULL, FSDP_DTYPE_BF16, &m));
        ASSERT_OK(tree_example(64, &m.model));
        ASSERT_OK(tree_example_shard(m.model, t->group, m.device, &bf16));
        ASSERT_OK(create_optimizer(ADAFACTOR, m.model, &optimizer));
        pupil p = {m, optimizer};
        ASSERT_OK(pupil_step(&p, 0));
        fsdp_device_memory(m.device, &stats[i]);
        ASSERT_OK(pupil_close(&p));
    }
    ASSERT_INT(stats[1].tag_peak[FSDP_TAG_PARAM], stats[0].tag_peak[FSDP_TAG_PARAM]);
    ASSERT_INT(stats[1].tag_allocated[FSDP_TAG_PARAM], stats[0].tag_allocated[FSDP_TAG_PARAM]);
}
