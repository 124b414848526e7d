/* HSDP: parameters sharded over one dimension of a mesh and replicated over the other. Checks the
 * bits of one rank, the collectives of FSDP2, and DTensors on the mesh. */
#include <stdio.h>

#include <fsdp/ckpt.h>
#include <fsdp/dtensor.h>
#include <fsdp/optim.h>

#include "src/base/alloc.h"
#include "src/comm/comm.h"
#include "src/comm/group_testing.h"
#include "src/comm/network_testing.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    STEPS = 10,
    UNITS = 4
};

static const char *const names[] = {"replicate", "shard"};

static fsdp_status train(fsdp_group *group, int64_t width, const fsdp_fully_shard_options *options,
                         int steps, int leaves, trainee *m)
{
    FSDP_TRY(trainee_open(group, NULL, options->mp_policy.param_dtype, m));
    FSDP_TRY(tree_example(width, &m->model));
    FSDP_TRY(tree_example_shard(m->model, group, m->device, options));
    for (int step = 0; step < steps; step++) {
        FSDP_TRY(tree_step(m, step, leaves));
        if (step % 4 == 0)
            FSDP_TRY(tree_evaluate(m, m->model, step));
    }
    return FSDP_OK;
}

/* Compare ten steps over the mesh with ten steps of one rank. */
static void compare_with_one_rank(fsdp_test *t, const fsdp_device_mesh *mesh, int64_t width,
                                  const fsdp_fully_shard_options *options, int leaves)
{
    trainee many, one = {0};
    fsdp_fully_shard_options o = *options;
    o.mesh = mesh;
    ASSERT_OK(train(t->group, width, &o, STEPS, leaves, &many));
    if (t->rank == 0)
        ASSERT_OK(train(NULL, width, options, STEPS, leaves, &one));
    ASSERT_OK(tree_same_params(&many, t->rank == 0 ? &one : NULL));
    ASSERT_OK(trainee_close(&many));
    ASSERT_OK(trainee_close(&one));
}

static void compare_shape(fsdp_test *t, const int *shape, int micro_steps)
{
    static const int64_t widths[] = {7, 15, 16, 17};
    fsdp_device_mesh *mesh;
    fsdp_group_set_delay(t->group, 3, 50);
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, shape, names, &mesh));
    for (int v = 0; v < TREE_VARIANTS; v++) {
        const int64_t width = widths[v % 4];
        compare_with_one_rank(t, mesh, width, &tree_variants[v], t->world_size * micro_steps);
        CHECK_HERE();
    }
    fsdp_device_mesh_destroy(mesh);
}

TEST_RANKS(two_replicas_of_two_shards_train_to_the_bits_of_one_rank, 4)
{
    compare_shape(t, (int[]){2, 2}, 2);
}

TEST_RANKS(four_replicas_train_to_the_bits_of_one_rank, 4)
{
    compare_shape(t, (int[]){4, 1}, 1);
}

TEST_RANKS(a_mesh_of_one_replica_trains_to_the_bits_of_one_rank, 4)
{
    compare_shape(t, (int[]){1, 4}, 1);
}

TEST_RANKS(three_replicas_of_two_shards_train_to_the_bits_of_one_rank, 6)
{
    compare_shape(t, (int[]){3, 2}, 1);
}

TEST_RANKS(two_replicas_of_four_shards_train_to_the_bits_of_one_rank, 8)
{
    compare_shape(t, (int[]){2, 4}, 1);
}

/* On a network, here a simulated one, the sums over replicas are done in stages (Note [Lanes] in
 * src/fsdp/grad_lanes.h). */
static void compare_in_stages(fsdp_test *t, const int *shape, int micro_steps)
{
    fsdp_network network = {0};
    fsdp_group_set_network(t->group, &network);
    compare_shape(t, shape, micro_steps);
    fsdp_group_set_network(t->group, NULL);
}

TEST_RANKS(replicas_of_two_shards_on_a_network_train_to_the_bits_of_one_rank, 4)
{
    compare_in_stages(t, (int[]){2, 2}, 3);
}

TEST_RANKS(replicas_without_shards_on_a_network_train_to_the_bits_of_one_rank, 2)
{
    compare_in_stages(t, (int[]){2, 1}, 2);
}

TEST_RANKS(a_mesh_of_one_dimension_is_its_group, 2)
{
    fsdp_device_mesh *mesh;
    trainee m;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 1, (int[]){2}, NULL, &mesh));
    const fsdp_fully_shard_options o = {.mesh = mesh};
    ASSERT_OK(train(NULL, 7, &o, 0, 2, &m));
    const fsdp_tensor *up = fsdp_parameter_local(tree_of(m.model)->up);
    ASSERT(fsdp_dtensor_group(up) == t->group);
    ASSERT(fsdp_dtensor_device_mesh(up) == mesh);
    ASSERT_INT(up->shape[0], t->rank ? 2 : 3);
    ASSERT_OK(trainee_close(&m));
    fsdp_device_mesh_destroy(mesh);
}

/* --- parity with FSDP2 --- */

/* fully_shard(model, mesh=mesh["shard"]): rows of the mesh do not communicate with each other. */
TEST_RANKS(a_slice_of_a_mesh_is_what_a_module_is_sharded_over, 4)
{
    static const char *const shard[] = {"shard"};
    fsdp_device_mesh *mesh, *row;
    trainee m, one;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, names, &mesh));
    ASSERT_OK(fsdp_device_mesh_slice(mesh, shard, 1, &row));
    ASSERT_OK(train(fsdp_device_mesh_group(row, 0), 7, &(fsdp_fully_shard_options){.mesh = row}, 3,
                    2, &m));
    fsdp_unit_info info;
    ASSERT_OK(fsdp_unit_get_info(m.model, &info));
    ASSERT(info.group == fsdp_device_mesh_group(mesh, 1) && !info.replicate_group);
    ASSERT_INT(fsdp_dtensor_mesh_ndim(fsdp_parameter_local(tree_of(m.model)->up)), 1);
    ASSERT(fsdp_dtensor_device_mesh(fsdp_parameter_local(tree_of(m.model)->up)) == row);
    ASSERT_OK(train(NULL, 7, &(fsdp_fully_shard_options){0}, 3, 2, &one));
    ASSERT_OK(tree_same_params(&m, &one));
    ASSERT_OK(trainee_close(&one));
    ASSERT_OK(trainee_close(&m));
    fsdp_device_mesh_destroy(row);
    fsdp_device_mesh_destroy(mesh);
}

/* A mesh of one row, too: (Replicate(), Shard(0)) over 1 x 4. */
TEST_RANKS(a_mesh_of_one_replica_is_the_parameters_mesh, 4)
{
    fsdp_device_mesh *mesh;
    trainee m;
    fsdp_tensor *full;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){1, 4}, names, &mesh));
    ASSERT_OK(train(t->group, 7, &(fsdp_fully_shard_options){.mesh = mesh}, 1, 4, &m));
    fsdp_tensor *up = fsdp_parameter_local(tree_of(m.model)->up);
    ASSERT(fsdp_dtensor_device_mesh(up) == mesh);
    ASSERT_INT(fsdp_dtensor_placements(up)[0].kind, FSDP_REPLICATE);
    ASSERT_INT(fsdp_dtensor_placements(up)[1].kind, FSDP_SHARD);
    ASSERT_OK(fsdp_full_tensor(up, &full));
    ASSERT_INT(full->shape[0], 5);
    fsdp_tensor_release(full);
    ASSERT_OK(trainee_close(&m));
    fsdp_device_mesh_destroy(mesh);
}

TEST_RANKS(locals_gradients_and_moments_are_dtensors_on_the_mesh, 4)
{
    fsdp_device_mesh *mesh;
    trainee m;
    fsdp_optimizer *adamw;
    const fsdp_tensor *all[4];
    const fsdp_adamw_options defaults = fsdp_adamw_defaults();
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, names, &mesh));
    ASSERT_OK(train(t->group, 7, &(fsdp_fully_shard_options){.mesh = mesh}, 1, 4, &m));
    ASSERT_OK(fsdp_adamw_create(m.model, &defaults, &adamw));
    ASSERT_OK(fsdp_optimizer_step(adamw, 1.0f));
    fsdp_parameter *up = tree_of(m.model)->up;
    all[0] = fsdp_parameter_local(up);
    all[1] = fsdp_parameter_grad(up);
    all[2] = fsdp_optimizer_state(adamw, up, "exp_avg");
    all[3] = fsdp_optimizer_state(adamw, up, "exp_avg_sq");
    for (int i = 0; i < 4; i++) {
        const fsdp_placement *p = fsdp_dtensor_placements(all[i]);
        ASSERT(fsdp_dtensor_device_mesh(all[i]) == mesh);
        ASSERT_INT(fsdp_dtensor_mesh_ndim(all[i]), 2);
        ASSERT_INT(p[0].kind, FSDP_REPLICATE);
        ASSERT_INT(p[1].kind, FSDP_SHARD);
        ASSERT_INT(p[1].dim, 0);
        ASSERT_INT(all[i]->shape[0], t->rank % 2 ? 2 : 3); /* of 5 rows */
        ASSERT_INT(fsdp_dtensor_shape(all[i])[0], 5);
    }
    fsdp_unit_info info;
    ASSERT_OK(fsdp_unit_get_info(m.model, &info));
    ASSERT(info.mesh == mesh);
    ASSERT(info.group == fsdp_device_mesh_group(mesh, 1));
    ASSERT(info.replicate_group == fsdp_device_mesh_group(mesh, 0));
    ASSERT_INT(info.mesh_ndim, 2);
    ASSERT_INT(info.placements[0].kind, FSDP_REPLICATE);
    ASSERT_INT(info.placements[1].kind, FSDP_SHARD);
    fsdp_optimizer_destroy(adamw);
    ASSERT_OK(trainee_close(&m));
    fsdp_device_mesh_destroy(mesh);
}

static uint64_t elements(fsdp_module *m, bool local)
{
    uint64_t n = 0;
    fsdp_parameter_list list;
    if (fsdp_module_parameters(m, false, &list) != FSDP_OK)
        return 0;
    for (size_t i = 0; i < list.n; i++)
        n += (uint64_t)(local ? fsdp_tensor_numel(fsdp_parameter_local(list.items[i].parameter))
                              : fsdp_parameter_numel(list.items[i].parameter));
    fsdp_parameter_list_free(&list);
    return n;
}

/* For each unit and micro-step there is one reduce of the whole unit over a row of the mesh, and
 * one all-reduce of own rows over a column. The world's group is not used. */
TEST_RANKS(one_reduce_scatter_and_one_all_reduce_a_unit_and_micro_step, 4)
{
    fsdp_device_mesh *mesh;
    trainee m;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, names, &mesh));
    const fsdp_fully_shard_options o = {.mp_policy = {.reduce_dtype = FSDP_DTYPE_BF16},
                                        .mesh = mesh};
    ASSERT_OK(train(t->group, 7, &o, 0, 0, &m));
    fsdp_comm_counters world = *fsdp_group_counters(t->group);
    fsdp_comm_counters row = *fsdp_group_counters(fsdp_device_mesh_group(mesh, 1));
    fsdp_comm_counters column = *fsdp_group_counters(fsdp_device_mesh_group(mesh, 0));
    for (int a = 0; a < 3; a++)
        ASSERT_OK(tree_forward_backward(
            &m, m.model, &(tree_call){.step = 1, .micro_step = a, .n_micro_steps = 3}));
    const fsdp_comm_counters *after = fsdp_group_counters(fsdp_device_mesh_group(mesh, 1));
    ASSERT_INT(after->calls[FSDP_KIND_REDUCE_SCATTER] - row.calls[FSDP_KIND_REDUCE_SCATTER],
               3 * UNITS);
    ASSERT_INT(after->logical_bytes[FSDP_KIND_REDUCE_SCATTER] -
                   row.logical_bytes[FSDP_KIND_REDUCE_SCATTER],
               3 * 2 * elements(m.model, false));
    ASSERT_INT(after->calls[FSDP_KIND_ALL_REDUCE], row.calls[FSDP_KIND_ALL_REDUCE]);
    after = fsdp_group_counters(fsdp_device_mesh_group(mesh, 0));
    ASSERT_INT(after->calls[FSDP_KIND_ALL_REDUCE] - column.calls[FSDP_KIND_ALL_REDUCE], 3 * UNITS);
    ASSERT_INT(after->logical_bytes[FSDP_KIND_ALL_REDUCE] -
                   column.logical_bytes[FSDP_KIND_ALL_REDUCE],
               3 * 2 * elements(m.model, true));
    after = fsdp_group_counters(t->group);
    for (int kind = 0; kind < 8; kind++)
        ASSERT_INT(after->calls[kind], world.calls[kind]);
    ASSERT_OK(trainee_close(&m));
    fsdp_device_mesh_destroy(mesh);
}

/* --- the rest of a training program --- */

/* The default is the mean over all four ranks. */
TEST_RANKS(gradients_are_divided_by_the_ranks_of_the_whole_mesh, 4)
{
    fsdp_device_mesh *mesh;
    trainee hybrid, sharded;
    float *a, *b;
    const tree_call call = {.micro_batch = t->rank, .n_micro_steps = 1};
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, names, &mesh));
    ASSERT_OK(train(t->group, 7, &(fsdp_fully_shard_options){.mesh = mesh}, 0, 0, &hybrid));
    ASSERT_OK(train(t->group, 7, &(fsdp_fully_shard_options){0}, 0, 0, &sharded));
    ASSERT_OK(tree_forward_backward(&hybrid, hybrid.model, &call));
    ASSERT_OK(tree_forward_backward(&sharded, sharded.model, &call));
    ASSERT_OK(tree_full_grad(tree_of(hybrid.model)->up, &a));
    ASSERT_OK(tree_full_grad(tree_of(sharded.model)->up, &b));
    for (int i = 0; i < 5 * 7; i++)
        ASSERT_F32(a[i], b[i]);
    fsdp_free(a);
    fsdp_free(b);
    ASSERT_OK(trainee_close(&hybrid));
    ASSERT_OK(trainee_close(&sharded));
    fsdp_device_mesh_destroy(mesh);
}

static fsdp_status clipped_norm(trainee *m, double *norm)
{
    fsdp_parameter_list list;
    float scale;
    FSDP_TRY(fsdp_module_parameters(m->model, false, &list));
    fsdp_status status = fsdp_clip_grad_norm(&list, 1.0, NULL, norm, &scale);
    fsdp_parameter_list_free(&list);
    return status;
}

TEST_RANKS(the_global_norm_is_that_of_one_rank, 4)
{
    fsdp_device_mesh *mesh;
    trainee many, one;
    double norm = 0, alone = 1;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, names, &mesh));
    ASSERT_OK(train(t->group, 15, &(fsdp_fully_shard_options){.mesh = mesh}, 2, 4, &many));
    ASSERT_OK(train(NULL, 15, &(fsdp_fully_shard_options){0}, 2, 4, &one));
    ASSERT_OK(clipped_norm(&many, &norm));
    ASSERT_OK(clipped_norm(&one, &alone));
    ASSERT(norm > 0);
    ASSERT_F32(norm, alone);
    ASSERT_OK(trainee_close(&many));
    ASSERT_OK(trainee_close(&one));
    fsdp_device_mesh_destroy(mesh);
}

/* Rank 0 writes a file of all parameters; a single rank reads the same values from it. */
TEST_RANKS(one_file_is_written_and_read_back, 4)
{
    char dir[512] = "";
    fsdp_device_mesh *mesh;
    trainee many, again, one;
    fsdp_checkpoint_reader *reader;
    if (t->rank == 0)
        snprintf(dir, sizeof dir, "%s", fsdp_test_dir(t));
    ASSERT_OK(fsdp_broadcast(t->group, dir, sizeof dir, 0));
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, names, &mesh));
    const fsdp_fully_shard_options o = {.mesh = mesh};
    ASSERT_OK(train(t->group, 7, &o, 2, 4, &many));
    ASSERT_OK(fsdp_module_save(many.model, dir, t->group, NULL));
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT_OK(train(t->group, 7, &o, 0, 4, &again));
    ASSERT_OK(train(NULL, 7, &(fsdp_fully_shard_options){0}, 0, 4, &one));
    ASSERT_OK(fsdp_checkpoint_open(dir, &reader));
    ASSERT_OK(fsdp_module_load(again.model, reader, t->group, NULL, NULL));
    ASSERT_OK(fsdp_module_load(one.model, reader, NULL, NULL, NULL));
    fsdp_checkpoint_close(reader);
    ASSERT_OK(tree_same_params(&many, &again));
    ASSERT_OK(tree_same_params(&many, &one));
    ASSERT_OK(trainee_close(&many));
    ASSERT_OK(trainee_close(&again));
    ASSERT_OK(trainee_close(&one));
    fsdp_device_mesh_destroy(mesh);
}

/* --- errors --- */

/* The second row of the mesh leaves a unit out, so ranks differ across rows but not within one. */
TEST_RANKS(replicas_that_ran_different_code_get_an_error, 4)
{
    fsdp_device_mesh *mesh;
    trainee m;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, names, &mesh));
    ASSERT_OK(train(t->group, 7, &(fsdp_fully_shard_options){.mesh = mesh}, 1, 4, &m));
    if (t->rank >= 2)
        tree_of(m.model)->calls[0] = 0;
    ASSERT_ERROR(tree_step(&m, 1, 4), FSDP_ERR_COMM, "ranks diverged");
    ASSERT_OK(trainee_close(&m));
    fsdp_device_mesh_destroy(mesh);
}

TEST_RANKS(meshes_that_are_not_for_a_unit_are_refused, 4)
{
    fsdp_device_mesh *mesh;
    trainee m;
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(7, &m.model));
    ASSERT_OK(fsdp_device_mesh_create(t->group, 3, (int[]){2, 1, 2}, NULL, &mesh));
    ASSERT_ERROR(
        fsdp_fully_shard(m.model, NULL, m.device, &(fsdp_fully_shard_options){.mesh = mesh}),
        FSDP_ERR_INVALID, "a mesh of 3 dimensions");
    fsdp_device_mesh_destroy(mesh);
    ASSERT_OK(fsdp_device_mesh_create(NULL, 1, (int[]){1}, NULL, &mesh));
    ASSERT_ERROR(
        fsdp_fully_shard(m.model, t->group, m.device, &(fsdp_fully_shard_options){.mesh = mesh}),
        FSDP_ERR_INVALID, "the mesh is of 1 ranks, the group of 4");
    ASSERT(!fsdp_module_is_unit(m.model));
    fsdp_device_mesh_destroy(mesh);
    ASSERT_OK(trainee_close(&m));
}
