/* How often ranks communicate while they save: Note [Ranks meet three times] in
 * src/dcp/dcp_writer.h. Each meeting is one collective; the path and the positions are two more. */
#include <stdio.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "tests/state_dict/state_case.h"
#include "tests/test.h"

enum {
    PATH = 300
};

static void path_of(fsdp_test *t, const char *name, char path[PATH])
{
    if (t->rank == 0)
        snprintf(path, PATH, "%s/%s", fsdp_test_dir(t), name);
    ASSERT_OK(fsdp_broadcast(t->group, path, PATH, 0));
}

/* Number of collectives of any kind that this rank has taken part in. */
static int64_t meetings(const fsdp_group *group)
{
    const fsdp_comm_counters counters = fsdp_group_get_counters(group);
    int64_t calls = 0;
    for (int kind = 0; kind < FSDP_KIND_COUNT; kind++)
        calls += (int64_t)counters.calls[kind];
    return calls;
}

/* Save in both ways: synchronously, and during a training step. */
static void check_meetings(fsdp_test *t, state_case_optimizer kind,
                           const fsdp_fully_shard_options *options)
{
    const int64_t alone = t->world_size == 1 ? 0 : 1;
    char at_once[PATH] = "", beside[PATH] = "";
    state_case f;
    fsdp_state_dict *all;
    fsdp_async_save *save;
    path_of(t, "at_once", at_once);
    path_of(t, "beside", beside);
    CHECK_HERE();
    ASSERT_OK(state_case_open_with(&f, t->group, kind, 3, options));
    ASSERT_OK(state_case_train(&f, 1));
    ASSERT_OK(state_case_get(&f, NULL, &all));
    int64_t before = meetings(t->group);
    ASSERT_OK(fsdp_dcp_save(all, at_once, t->group, NULL));
    ASSERT_INT(meetings(t->group) - before, (3 + 2) * alone);
    before = meetings(t->group);
    ASSERT_OK(fsdp_dcp_async_save(all, beside, t->group, NULL, &save));
    ASSERT_INT(meetings(t->group) - before, (1 + 1) * alone);
    ASSERT_OK(state_case_train(&f, 1));
    before = meetings(t->group);
    ASSERT_OK(fsdp_async_save_wait(save));
    ASSERT_INT(meetings(t->group) - before, 2 * alone);
    fsdp_async_save_destroy(save);
    fsdp_state_dict_destroy(all);
    state_case_close(&f);
}

TEST_RANKS(a_save_is_three_meetings_and_one_beside_training, 4)
{
    check_meetings(t, STATE_CASE_ADAMW, NULL);
}

TEST_RANKS(every_optimizers_state_is_planned_by_each_rank_alone, 3)
{
    check_meetings(t, STATE_CASE_ADAFACTOR, NULL);
}

TEST_RANKS(one_rank_meets_no_other, 1)
{
    check_meetings(t, STATE_CASE_ADAMW, NULL);
}

TEST_RANKS(replicas_are_known_without_a_word, 4)
{
    fsdp_device_mesh *mesh;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, NULL, &mesh));
    check_meetings(t, STATE_CASE_SGD, &(fsdp_fully_shard_options){.mesh = mesh});
    fsdp_device_mesh_destroy(mesh);
}

/* --- a mesh in another order --- */

enum {
    ROWS = 7,
    COLUMNS = 5
};

static void assert_whole(fsdp_test *t, const char *path, fsdp_device *device)
{
    fsdp_state_dict *dict;
    fsdp_tensor *x;
    float got[ROWS * COLUMNS] = {0};
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, (int64_t[]){ROWS, COLUMNS}, got,
                                    FSDP_TAG_DATA, &x));
    ASSERT_OK(fsdp_state_dict_create(&dict));
    ASSERT_OK(fsdp_state_dict_put_tensor(dict, (fsdp_state_key[]){{.name = "x"}}, 1, x));
    ASSERT_OK(fsdp_dcp_load(dict, path, t->group, NULL));
    ASSERT_OK(fsdp_tensor_to_floats(x, got));
    for (int i = 0; i < ROWS * COLUMNS; i++)
        ASSERT_F32(got[i], (float)(i + 1));
    fsdp_state_dict_destroy(dict);
    fsdp_tensor_release(x);
}

/* A matrix on a mesh of the ranks in the order of `keys` [4] is saved by the ranks in their own
 * order. */
static void check_order(fsdp_test *t, const int *keys, int ndim, const int *shape, int want)
{
    const fsdp_placement placements[] = {{FSDP_SHARD, 0}, {FSDP_SHARD, 1}};
    char path[PATH] = "";
    float values[ROWS * COLUMNS];
    fsdp_group *group;
    fsdp_device_mesh *mesh;
    fsdp_device *device;
    fsdp_tensor *whole, *part;
    fsdp_state_dict *dict;
    path_of(t, "other", path);
    CHECK_HERE();
    for (int i = 0; i < ROWS * COLUMNS; i++)
        values[i] = (float)(i + 1);
    ASSERT_OK(fsdp_group_split(t->group, 0, keys[t->rank], &group));
    ASSERT_OK(fsdp_device_mesh_create(group, ndim, shape, NULL, &mesh));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, (int64_t[]){ROWS, COLUMNS}, values,
                                    FSDP_TAG_DATA, &whole));
    ASSERT_OK(fsdp_distribute_tensor(whole, mesh, placements, &part));
    ASSERT_OK(fsdp_state_dict_create(&dict));
    ASSERT_OK(fsdp_state_dict_put_tensor(dict, (fsdp_state_key[]){{.name = "x"}}, 1, part));
    const int64_t before = meetings(t->group);
    ASSERT_OK(fsdp_dcp_save(dict, path, t->group, &(fsdp_dcp_save_options){.overwrite = true}));
    ASSERT_INT(meetings(t->group) - before, want);
    assert_whole(t, path, device);
    fsdp_state_dict_destroy(dict);
    fsdp_tensor_release(part);
    fsdp_tensor_release(whole);
    fsdp_device_destroy(device);
    fsdp_device_mesh_destroy(mesh);
    fsdp_destroy_process_group(group);
}

/* Ranks that do not know each other's parts, or compute wrong ones, exchange them. */
TEST_RANKS(a_mesh_in_another_order_costs_two_more_and_is_saved_right, 4)
{
    static const int same[] = {0, 1, 2, 3}, reversed[] = {3, 2, 1, 0}, crossed[] = {0, 1, 3, 2};
    check_order(t, same, 1, (int[]){4}, 3 + 2);
    CHECK_HERE();
    check_order(t, same, 2, (int[]){2, 2}, 3 + 2);
    CHECK_HERE();
    check_order(t, reversed, 1, (int[]){4}, 5 + 2);
    CHECK_HERE();
    check_order(t, reversed, 2, (int[]){2, 2}, 5 + 2);
    CHECK_HERE();
    check_order(t, crossed, 1, (int[]){4}, 5 + 2);
    CHECK_HERE();
    check_order(t, crossed, 2, (int[]){2, 2}, 5 + 2);
}
