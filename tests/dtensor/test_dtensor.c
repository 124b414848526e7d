/* The rows of each rank, and gathering them. */
#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/json.h"
#include "src/comm/plan_group.h"
#include "tests/test.h"

/* Gather a tensor of 4 rows. Allocation number *arg of rank 1 within the call fails. */
static fsdp_status gather_short_of_memory(fsdp_group *group, void *arg)
{
    const long *n = arg;
    const float values[2] = {1, 2};
    fsdp_device *device;
    fsdp_tensor *local, *full = NULL;
    FSDP_TRY(fsdp_device_create(NULL, &device));
    FSDP_TRY(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 1, (int64_t[]){2}, values,
                                   FSDP_TAG_PARAM, &local));
    fsdp_status status =
        fsdp_dtensor_from_local(local, group, (fsdp_placement){FSDP_SHARD, 0}, (int64_t[]){4});
    if (status == FSDP_OK) {
        fsdp_alloc_fail_at(fsdp_group_rank(group) == 1 ? *n : 0);
        status = fsdp_full_tensor(local, &full);
        fsdp_alloc_fail_at(0);
    }
    fsdp_tensor_release(full);
    fsdp_tensor_release(local);
    fsdp_device_destroy(device);
    return status;
}

/* The chunks are in order and cover all rows: every rank has ceil(n / W) rows until none are
 * left. */
TEST(rows_are_cut_into_chunks_of_ceil_and_cover_all)
{
    for (int64_t n = 0; n < 70; n++)
        for (int world_size = 1; world_size <= 20; world_size++) {
            int64_t next = 0, chunk = (n + world_size - 1) / world_size;
            for (int r = 0; r < world_size; r++) {
                int64_t begin, end;
                fsdp_shard_rows(n, world_size, r, &begin, &end);
                ASSERT_INT(begin, next);
                ASSERT(end - begin == chunk || end == n);
                ASSERT(end >= begin && end <= n);
                next = end;
            }
            ASSERT_INT(next, n);
        }
}

/* Compared with PyTorch's fully_shard: shape, world size, and for each rank local shape and
 * offset. */
TEST(rows_are_cut_as_pytorch_cuts_them)
{
    fsdp_json *doc;
    ASSERT_OK(fsdp_json_read(fsdp_test_path("golden/shards/shards.json"), &doc));
    fsdp_json_node all = fsdp_json_root(doc);
    size_t n_cases = fsdp_json_len(all);
    ASSERT(n_cases > 10);
    for (size_t c = 0; c < n_cases; c++) {
        fsdp_json_node entry = fsdp_json_at(all, c), ranks;
        int64_t *shape, *padded, world_size;
        size_t ndim, padded_ndim;
        ASSERT_OK(fsdp_json_get_i64s(entry, "shape", 0, INT64_MAX, &shape, &ndim));
        ASSERT_OK(
            fsdp_json_get_i64s(entry, "padded_shard_shape", 0, INT64_MAX, &padded, &padded_ndim));
        ASSERT_OK(fsdp_json_get_i64(entry, "world", 1, 1024, &world_size));
        ASSERT_OK(fsdp_json_get_array(entry, "ranks", &ranks));
        ASSERT_INT(fsdp_json_len(ranks), world_size);
        ASSERT_INT(padded[0], (shape[0] + world_size - 1) / world_size);
        for (int r = 0; r < (int)world_size; r++) {
            int64_t *local, *offset, begin, end;
            size_t n;
            ASSERT_OK(fsdp_json_get_i64s(fsdp_json_at(ranks, (size_t)r), "local_shape", 0,
                                         INT64_MAX, &local, &n));
            ASSERT_OK(fsdp_json_get_i64s(fsdp_json_at(ranks, (size_t)r), "offset", 0, INT64_MAX,
                                         &offset, &n));
            fsdp_shard_rows(shape[0], (int)world_size, r, &begin, &end);
            ASSERT_INT(begin, offset[0]);
            ASSERT_INT(end - begin, local[0]);
            fsdp_free(local);
            fsdp_free(offset);
        }
        fsdp_free(shape);
        fsdp_free(padded);
    }
    fsdp_json_destroy(doc);
}

/* Element i of the whole tensor is i. full_tensor returns it on every rank, in the local tensor's
 * dtype. */
static void gather_all(fsdp_test *t, fsdp_device *device, int64_t rows, int64_t width,
                       fsdp_dtype dtype)
{
    int64_t begin, end;
    float values[17 * 3], whole[17 * 3];
    fsdp_tensor *f32, *local, *full;
    const int64_t shape[] = {rows, width};
    fsdp_shard_rows(rows, t->world_size, t->rank, &begin, &end);
    for (int64_t i = 0; i < (end - begin) * width; i++)
        values[i] = (float)(begin * width + i);
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, (int64_t[]){end - begin, width},
                                    values, FSDP_TAG_PARAM, &f32));
    ASSERT_OK(fsdp_tensor_to(f32, dtype, FSDP_TAG_PARAM, &local));
    ASSERT_OK(fsdp_dtensor_from_local(local, t->group, (fsdp_placement){FSDP_SHARD, 0}, shape));
    ASSERT(fsdp_is_dtensor(local));
    ASSERT(fsdp_dtensor_group(local) == t->group);
    ASSERT_INT(fsdp_dtensor_placement(local).kind, FSDP_SHARD);
    ASSERT_INT(fsdp_dtensor_shape(local)[0], rows);
    ASSERT_OK(fsdp_full_tensor(local, &full));
    ASSERT_INT(fsdp_tensor_dtype(full), dtype);
    ASSERT_INT(fsdp_tensor_size(full, 0), rows);
    ASSERT(!fsdp_is_dtensor(full));
    ASSERT_OK(fsdp_tensor_to_floats(full, whole));
    for (int64_t i = 0; i < rows * width; i++)
        ASSERT_F32(whole[i], (float)i);
    fsdp_tensor_release(full);
    fsdp_tensor_release(local);
    fsdp_tensor_release(f32);
}

static void gather_shapes(fsdp_test *t)
{
    static const int64_t rows[] = {0, 1, 2, 3, 7, 15, 16, 17};
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int64_t width = 0; width < 4; width++) {
            gather_all(t, device, rows[i], width, FSDP_DTYPE_F32);
            CHECK_HERE();
            gather_all(t, device, rows[i], width, FSDP_DTYPE_BF16);
            CHECK_HERE();
        }
    fsdp_device_destroy(device);
}

TEST_RANKS(full_tensor_at_1_rank, 1)
{
    gather_shapes(t);
}

TEST_RANKS(full_tensor_at_2_ranks, 2)
{
    gather_shapes(t);
}

TEST_RANKS(full_tensor_at_3_ranks, 3)
{
    gather_shapes(t);
}

TEST_RANKS(full_tensor_at_4_ranks, 4)
{
    gather_shapes(t);
}

/* Larger than one piece of the collectives' buffer. */
TEST_RANKS(full_tensor_of_megabytes, 3)
{
    enum {
        ROWS = 1000,
        WIDTH = 700
    };
    fsdp_device *device;
    fsdp_tensor *local, *full;
    int64_t begin, end;
    const int64_t shape[] = {ROWS, WIDTH};
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_shard_rows(ROWS, 3, t->rank, &begin, &end);
    ASSERT_OK(fsdp_tensor_create(device, FSDP_DTYPE_F32, 2, (int64_t[]){end - begin, WIDTH},
                                 FSDP_TAG_PARAM, &local));
    float *v = fsdp_tensor_data(local);
    for (int64_t i = 0; i < (end - begin) * WIDTH; i++)
        v[i] = (float)(begin * WIDTH + i);
    ASSERT_OK(fsdp_dtensor_from_local(local, t->group, (fsdp_placement){FSDP_SHARD, 0}, shape));
    ASSERT_OK(fsdp_full_tensor(local, &full));
    const float *whole = fsdp_tensor_data(full);
    for (int64_t i = 0; i < ROWS * WIDTH; i++)
        ASSERT_F32(whole[i], (float)i);
    fsdp_tensor_release(full);
    fsdp_tensor_release(local);
    fsdp_device_destroy(device);
}

/* Rank 1 has no memory for the whole tensor or for the buffers of the all-gather. Rank 0 must not
 * wait for it. */
TEST(a_rank_without_memory_is_an_error_of_all)
{
    int failures = 0;
    for (long n = 1; n <= 20; n++) {
        fsdp_status status[2];
        if (fsdp_run_ranks(2, gather_short_of_memory, &n, status) == FSDP_OK)
            continue; /* no allocation failed, or the gather can do without it */
        ASSERT_INT(status[1], FSDP_ERR_NOMEM);
        ASSERT(status[0] != FSDP_OK);
        failures++;
    }
    ASSERT(failures > 2);
}

TEST_RANKS(a_local_tensor_of_another_shape_is_refused, 2)
{
    fsdp_device *device;
    fsdp_tensor *local, *scalar, *full;
    const fsdp_placement shard0 = {FSDP_SHARD, 0};
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(
        fsdp_tensor_create(device, FSDP_DTYPE_F32, 2, (int64_t[]){2, 3}, FSDP_TAG_PARAM, &local));
    ASSERT_OK(fsdp_tensor_create(device, FSDP_DTYPE_F32, 0, NULL, FSDP_TAG_PARAM, &scalar));
    const int64_t right[] = {4, 3}, wrong_rows[] = {6, 3}, wrong_width[] = {4, 2};
    ASSERT_ERROR(fsdp_dtensor_from_local(local, t->group, shard0, wrong_rows), FSDP_ERR_INVALID,
                 "[2, 3] of a DTensor with Shard(0) should be [3, 3]");
    ASSERT_ERROR(fsdp_dtensor_from_local(local, t->group, shard0, wrong_width), FSDP_ERR_INVALID,
                 "[2, 2]");
    ASSERT_ERROR(
        fsdp_dtensor_from_local(local, t->group, (fsdp_placement){FSDP_REPLICATE, 0}, right),
        FSDP_ERR_INVALID, "Replicate() should be [4, 3]");
    ASSERT_ERROR(fsdp_dtensor_from_local(local, t->group, (fsdp_placement){FSDP_SHARD, 2}, right),
                 FSDP_ERR_INVALID, "Shard(2) of a tensor of 2 dimensions");
    ASSERT_ERROR(fsdp_dtensor_from_local(local, t->group, shard0, (int64_t[]){-4, 3}),
                 FSDP_ERR_INVALID, "[-4, 3]");
    ASSERT_ERROR(fsdp_dtensor_from_local(scalar, t->group, shard0, right), FSDP_ERR_INVALID,
                 "scalar");
    ASSERT_ERROR(fsdp_dtensor_from_local(local, NULL, shard0, right), FSDP_ERR_INVALID, "group");
    ASSERT(!fsdp_is_dtensor(local));
    ASSERT_OK(fsdp_full_tensor(local, &full)); /* an ordinary tensor is whole */
    ASSERT(full == local);
    fsdp_tensor_release(full);
    ASSERT_OK(fsdp_dtensor_from_local(local, t->group, shard0, right));
    ASSERT_OK(fsdp_dtensor_from_local(local, t->group, shard0, right)); /* a second call replaces
                                                                         * the spec */
    fsdp_tensor_release(local);
    fsdp_tensor_release(scalar);
    fsdp_device_destroy(device);
}

/* A DTensor over a plain group has a mesh of one dimension, as do tensors that are derived from
 * it. */
TEST_RANKS(a_dtensor_of_a_group_is_on_a_mesh_of_it, 3)
{
    fsdp_device *device;
    fsdp_tensor *local, *replicated, *ordinary;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tensor_create(device, FSDP_DTYPE_F32, 1, (int64_t[]){t->rank == 2 ? 1 : 2},
                                 FSDP_TAG_PARAM, &local));
    ASSERT(!fsdp_dtensor_device_mesh(local));
    ASSERT_OK(
        fsdp_dtensor_from_local(local, t->group, (fsdp_placement){FSDP_SHARD, 0}, (int64_t[]){5}));
    ASSERT_OK(fsdp_redistribute(local, &(fsdp_placement){.kind = FSDP_REPLICATE}, &replicated));
    for (int i = 0; i < 2; i++) {
        const fsdp_device_mesh *mesh = fsdp_dtensor_device_mesh(i ? replicated : local);
        ASSERT(mesh);
        ASSERT_INT(fsdp_device_mesh_ndim(mesh), 1);
        ASSERT_INT(fsdp_device_mesh_size(mesh, 0), 3);
        ASSERT_INT(fsdp_device_mesh_coordinate(mesh, 0), t->rank);
        ASSERT(fsdp_device_mesh_group(mesh, 0) == t->group);
        ASSERT_INT(fsdp_device_mesh_dim(mesh, "shard"), -1);
        fsdp_tensor_release(i ? NULL : local); /* each has its own mesh */
    }
    /* Other DTensors can be created on that mesh. */
    ASSERT_OK(fsdp_dtensor_to_local(replicated, &ordinary));
    ASSERT_OK(fsdp_distribute_tensor(ordinary, fsdp_dtensor_device_mesh(replicated),
                                     &(fsdp_placement){FSDP_SHARD, 0}, &local));
    ASSERT(fsdp_dtensor_device_mesh(local) == fsdp_dtensor_device_mesh(replicated));
    ASSERT_INT(fsdp_tensor_size(local, 0), t->rank == 2 ? 1 : 2);
    fsdp_tensor_release(local);
    fsdp_tensor_release(ordinary);
    fsdp_tensor_release(replicated);
    fsdp_device_destroy(device);
}

TEST_RANKS(full_tensor_on_meta_has_the_shape_alone, 2)
{
    fsdp_device *meta;
    fsdp_tensor *local, *full;
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "meta"}, &meta));
    ASSERT_OK(fsdp_tensor_create(meta, FSDP_DTYPE_F32, 1, (int64_t[]){t->rank ? 2 : 3},
                                 FSDP_TAG_PARAM, &local));
    ASSERT_OK(
        fsdp_dtensor_from_local(local, t->group, (fsdp_placement){FSDP_SHARD, 0}, (int64_t[]){5}));
    ASSERT_OK(fsdp_full_tensor(local, &full));
    ASSERT_INT(fsdp_tensor_size(full, 0), 5);
    ASSERT(!fsdp_tensor_has_data(full));
    fsdp_tensor_release(full);
    fsdp_tensor_release(local);
    fsdp_device_destroy(meta);
}

/* Whether groups of a mesh have equally many ranks on each host, seen by a rank of a plan. */
TEST(a_mesh_whose_groups_are_unequal_on_hosts_is_refused)
{
    static const struct {
        int ranks, local, shape[2];
        bool fits;
    } cases[] = {
        {6, 3, {3, 2}, false}, /* ranks 2 and 3 are on different hosts, 0 and 1 are not */
        {6, 3, {2, 3}, true},  /* a replica on each host */
        {8, 2, {2, 4}, true},  /* a replica on two hosts */
        {8, 4, {4, 2}, true},  /* two replicas on each host */
        {12, 4, {2, 6}, false}, {4, 1, {2, 2}, true}, {6, 6, {3, 2}, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_group *group = NULL;
        fsdp_device_mesh *mesh = NULL;
        ASSERT_OK(fsdp_plan_group_create(0, cases[i].ranks, cases[i].local, &group));
        if (cases[i].fits)
            ASSERT_OK(fsdp_device_mesh_create(group, 2, cases[i].shape, NULL, &mesh));
        else
            ASSERT_ERROR(fsdp_device_mesh_create(group, 2, cases[i].shape, NULL, &mesh),
                         FSDP_ERR_UNSUPPORTED, "must divide the ranks of a host");
        fsdp_device_mesh_destroy(mesh);
        fsdp_destroy_process_group(group);
    }
}
