/* Meshes, and changing tensors from any placement to any other. Element i of every whole tensor is
 * i; partial tensors add up to that. */
#include <stdio.h>
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/philox.h"
#include "src/tensor/tensor.h"
#include "tests/test.h"

enum {
    MAX_NUMEL = 7 * 5 * 3
};

static const char *const names[] = {"replicate", "shard", "third"};

/* --- meshes --- */

TEST_RANKS(a_mesh_places_its_ranks_row_by_row, 6)
{
    fsdp_device_mesh *mesh;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 3}, names, &mesh));
    ASSERT_INT(fsdp_device_mesh_ndim(mesh), 2);
    ASSERT_INT(fsdp_device_mesh_size(mesh, 1), 3);
    ASSERT_INT(fsdp_device_mesh_coordinate(mesh, 0), t->rank / 3);
    ASSERT_INT(fsdp_device_mesh_coordinate(mesh, 1), t->rank % 3);
    ASSERT_INT(fsdp_device_mesh_dim(mesh, "shard"), 1);
    ASSERT_INT(fsdp_device_mesh_dim(mesh, "rows"), -1);
    for (int d = 0; d < 2; d++) {
        fsdp_group *group = fsdp_device_mesh_group(mesh, d);
        int64_t sum = t->rank;
        ASSERT_INT(fsdp_group_world_size(group), d ? 3 : 2);
        ASSERT_INT(fsdp_group_rank(group), fsdp_device_mesh_coordinate(mesh, d));
        ASSERT_OK(fsdp_all_reduce(group, &sum, 1, FSDP_DTYPE_I64, FSDP_REDUCE_SUM));
        ASSERT_INT(sum, d ? t->rank / 3 * 9 + 3 : t->rank % 3 * 2 + 3);
    }
    fsdp_device_mesh_destroy(mesh);
}

/* mesh["pipe", "shard"] of (pipe 2, replicate 1, shard 2), and mesh["shard"] of the result. */
TEST_RANKS(a_slice_has_the_dimensions_that_it_names, 4)
{
    static const char *const three[] = {"pipe", "replicate", "shard"},
                             *const two[] = {"pipe", "shard"}, *const swapped[] = {"shard", "pipe"},
                             *const twice[] = {"pipe", "pipe"}, *const none[] = {"rows"};
    fsdp_device_mesh *mesh, *outer, *shard, *bad;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 3, (int[]){2, 1, 2}, three, &mesh));
    ASSERT_OK(fsdp_device_mesh_slice(mesh, two, 2, &outer));
    ASSERT_INT(fsdp_device_mesh_ndim(outer), 2);
    ASSERT_INT(fsdp_device_mesh_dim(outer, "shard"), 1);
    ASSERT_INT(fsdp_device_mesh_dim(outer, "replicate"), -1);
    ASSERT(fsdp_device_mesh_group(outer, 0) == fsdp_device_mesh_group(mesh, 0));
    ASSERT_OK(fsdp_device_mesh_slice(outer, two + 1, 1, &shard));
    ASSERT_INT(fsdp_device_mesh_ndim(shard), 1);
    ASSERT_INT(fsdp_device_mesh_size(shard, 0), 2);
    ASSERT_INT(fsdp_device_mesh_coordinate(shard, 0), t->rank % 2);
    ASSERT(fsdp_device_mesh_group(shard, 0) == fsdp_device_mesh_group(mesh, 2));
    ASSERT_ERROR(fsdp_device_mesh_slice(mesh, none, 1, &bad), FSDP_ERR_INVALID,
                 "no dimension 'rows'; its dimensions are 'pipe', 'replicate', 'shard'");
    ASSERT_ERROR(fsdp_device_mesh_slice(mesh, swapped, 2, &bad), FSDP_ERR_INVALID,
                 "'pipe' comes before 'shard'");
    ASSERT_ERROR(fsdp_device_mesh_slice(mesh, twice, 2, &bad), FSDP_ERR_INVALID,
                 "'pipe' is named twice");
    ASSERT_ERROR(fsdp_device_mesh_slice(shard, two, 2, &bad), FSDP_ERR_INVALID,
                 "2 dimensions of 1");
    fsdp_device_mesh_destroy(shard);
    fsdp_device_mesh_destroy(outer);
    fsdp_device_mesh_destroy(mesh);
}

TEST_RANKS(a_mesh_that_does_not_fit_is_refused, 2)
{
    fsdp_device_mesh *mesh;
    ASSERT_ERROR(fsdp_device_mesh_create(t->group, 1, (int[]){3}, NULL, &mesh), FSDP_ERR_INVALID,
                 "dimension 0 has 3 ranks, there are 2");
    ASSERT_ERROR(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, NULL, &mesh), FSDP_ERR_INVALID,
                 "for 4 ranks, there are 2");
    ASSERT_ERROR(fsdp_device_mesh_create(t->group, 0, NULL, NULL, &mesh), FSDP_ERR_INVALID,
                 "0 dimensions");
    ASSERT_ERROR(
        fsdp_device_mesh_create(t->group, 2, (int[]){1, 2}, (const char *const[]){"a", "a"}, &mesh),
        FSDP_ERR_INVALID, "'a' of dimension 1");
}

/* --- tensors --- */

static void whole_tensor(fsdp_test *t, fsdp_device *device, fsdp_dtype dtype, int ndim,
                         const int64_t *shape, fsdp_tensor **whole)
{
    float values[MAX_NUMEL];
    fsdp_tensor *f32;
    for (int i = 0; i < MAX_NUMEL; i++)
        values[i] = (float)i;
    ASSERT_OK(
        fsdp_tensor_from_data(device, FSDP_DTYPE_F32, ndim, shape, values, FSDP_TAG_PARAM, &f32));
    ASSERT_OK(fsdp_tensor_to(f32, dtype, FSDP_TAG_PARAM, whole));
    fsdp_tensor_release(f32);
}

static void check_whole(fsdp_test *t, fsdp_tensor *dtensor, int ndim, const int64_t *shape)
{
    float values[MAX_NUMEL];
    fsdp_tensor *full;
    ASSERT_OK(fsdp_full_tensor(dtensor, &full));
    ASSERT_INT(fsdp_tensor_dtype(full), fsdp_tensor_dtype(dtensor));
    ASSERT(memcmp(fsdp_tensor_shape(full), shape, (size_t)ndim * sizeof *shape) == 0);
    ASSERT_OK(fsdp_tensor_to_floats(full, values));
    for (int64_t i = 0; i < fsdp_tensor_numel(full); i++)
        ASSERT_F32(values[i], (float)i);
    fsdp_tensor_release(full);
}

/* Shard(0) on both dimensions of a mesh: the first dimension cuts first. */
TEST_RANKS(two_dimensions_cut_the_same_rows, 4)
{
    fsdp_device *device;
    fsdp_device_mesh *mesh;
    fsdp_tensor *whole, *part;
    const int64_t shape[] = {7, 3};
    const fsdp_placement rows[] = {{FSDP_SHARD, 0}, {FSDP_SHARD, 0}};
    static const int64_t expected[] = {2, 2, 2, 1}, first[] = {0, 2, 4, 6};
    float values[MAX_NUMEL];
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, names, &mesh));
    whole_tensor(t, device, FSDP_DTYPE_F32, 2, shape, &whole);
    CHECK_HERE();
    ASSERT_OK(fsdp_distribute_tensor(whole, mesh, rows, &part));
    ASSERT_INT(fsdp_dtensor_mesh_ndim(part), 2);
    ASSERT(fsdp_dtensor_device_mesh(part) == mesh);
    ASSERT_INT(fsdp_dtensor_shape(part)[0], 7);
    ASSERT_INT(fsdp_tensor_size(part, 0), expected[t->rank]);
    ASSERT_OK(fsdp_tensor_to_floats(part, values));
    ASSERT_F32(values[0], (float)(first[t->rank] * 3));
    check_whole(t, part, 2, shape);
    CHECK_HERE();
    fsdp_tensor_release(part);
    fsdp_tensor_release(whole);
    fsdp_device_mesh_destroy(mesh);
    fsdp_device_destroy(device);
}

static fsdp_placement draw_placement(uint64_t key, uint64_t i, int ndim)
{
    fsdp_philox r = fsdp_philox4x32(key, i, 0);
    return (fsdp_placement){.kind = (fsdp_placement_kind)(r.v[0] % 3),
                            .dim = (int)(r.v[1] % (uint32_t)ndim)};
}

/* Through any series of placements the whole tensor stays the same. */
static void check_walk(fsdp_test *t, fsdp_device *device, const fsdp_device_mesh *mesh,
                       uint64_t seed)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 7};
    static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F64};
    const fsdp_philox r = fsdp_philox4x32(seed, 99, 0);
    const int ndim = 1 + (int)(r.v[0] % 3);
    const int64_t shape[] = {sizes[r.v[1] % 6], ndim > 1 ? sizes[r.v[2] % 5] : 1,
                             ndim > 2 ? sizes[r.v[3] % 4] : 1};
    fsdp_placement placements[FSDP_MAX_MESH_DIMS];
    fsdp_tensor *now, *next;
    whole_tensor(t, device, dtypes[seed % 3], ndim, shape, &now);
    CHECK_HERE();
    for (uint64_t step = 0; step < 6; step++) {
        for (int d = 0; d < fsdp_device_mesh_ndim(mesh); d++)
            placements[d] = draw_placement(seed, step * 8 + (uint64_t)d, ndim);
        if (step == 0)
            ASSERT_OK(fsdp_distribute_tensor(now, mesh, placements, &next));
        else
            ASSERT_OK(fsdp_redistribute(now, placements, &next));
        fsdp_tensor_release(now);
        now = next;
        ASSERT_INT(fsdp_dtensor_placements(now)[0].kind, placements[0].kind);
        check_whole(t, now, ndim, shape);
        CHECK_HERE();
    }
    fsdp_tensor_release(now);
}

static void check_walks_on(fsdp_test *t, int ndim, const int *shape)
{
    fsdp_device *device;
    fsdp_device_mesh *mesh;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_device_mesh_create(t->group, ndim, shape, names, &mesh));
    for (uint64_t seed = 0; seed < 60; seed++) {
        check_walk(t, device, mesh, seed);
        if (t->failed)
            FAIL("seed %llu", (unsigned long long)seed);
    }
    fsdp_device_mesh_destroy(mesh);
    fsdp_device_destroy(device);
}

TEST_RANKS(any_placement_becomes_any_other_on_1_rank, 1)
{
    check_walks_on(t, 1, (int[]){1});
}
TEST_RANKS(any_placement_becomes_any_other_on_3_ranks, 3)
{
    check_walks_on(t, 1, (int[]){3});
}
TEST_RANKS(any_placement_becomes_any_other_on_2x2_ranks, 4)
{
    check_walks_on(t, 2, (int[]){2, 2});
}
TEST_RANKS(any_placement_becomes_any_other_on_2x1x3_ranks, 6)
{
    check_walks_on(t, 3, (int[]){2, 1, 3});
}

/* The same memory, without the parts of other ranks. */
TEST_RANKS(a_local_tensor_is_an_ordinary_one_over_the_same_memory, 3)
{
    static const fsdp_placement rows = {FSDP_SHARD, 0};
    fsdp_device *device;
    fsdp_device_mesh *mesh;
    fsdp_tensor *whole, *part, *local, *again;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_device_mesh_create(t->group, 1, (int[]){3}, NULL, &mesh));
    ASSERT_OK(
        fsdp_tensor_create(device, FSDP_DTYPE_F32, 2, (int64_t[]){4, 5}, FSDP_TAG_DATA, &whole));
    fsdp_device_memset(device, fsdp_tensor_ptr(whole), 0, 4 * 5 * sizeof(float));
    ASSERT_OK(fsdp_distribute_tensor(whole, mesh, &rows, &part));
    ASSERT_OK(fsdp_dtensor_to_local(part, &local));
    ASSERT(fsdp_is_dtensor(part) && !fsdp_is_dtensor(local));
    ASSERT_INT(fsdp_tensor_shape(local)[0], t->rank < 2 ? 2 : 0); /* the last rank's part is
                                                                   * empty */
    ASSERT(fsdp_tensor_ptr(local) == fsdp_tensor_ptr(part));
    ASSERT_OK(fsdp_dtensor_to_local(local, &again));
    ASSERT(again == local);
    fsdp_tensor_release(again);
    fsdp_tensor_release(local);
    fsdp_tensor_release(part);
    fsdp_tensor_release(whole);
    fsdp_device_mesh_destroy(mesh);
    fsdp_device_destroy(device);
}

/* The rows of a DTensor are not the whole tensor, so they must not be cut again. */
TEST_RANKS(a_dtensor_is_not_distributed_again, 4)
{
    static const fsdp_placement rows[] = {{FSDP_REPLICATE, 0}, {FSDP_SHARD, 0}},
                                columns[] = {{FSDP_REPLICATE, 0}, {FSDP_SHARD, 1}};
    fsdp_device *device;
    fsdp_device_mesh *mesh, *line;
    fsdp_tensor *whole, *part, *grouped[2], *out;
    const int64_t shape[] = {5, 3};
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, names, &mesh));
    ASSERT_OK(fsdp_device_mesh_create(t->group, 1, (int[]){4}, NULL, &line));
    whole_tensor(t, device, FSDP_DTYPE_F32, 2, shape, &whole);
    CHECK_HERE();
    ASSERT_OK(fsdp_distribute_tensor(whole, mesh, rows, &part));
    ASSERT_OK(fsdp_distribute_tensor(part, mesh, rows, &out));
    ASSERT(out == part);
    fsdp_tensor_release(out);
    ASSERT_ERROR(fsdp_distribute_tensor(part, mesh, columns, &out), FSDP_ERR_INVALID,
                 "another placement on dimension 1 of the mesh");
    ASSERT_ERROR(fsdp_distribute_tensor(part, line, &rows[1], &out), FSDP_ERR_INVALID,
                 "a DTensor on another mesh");
    fsdp_tensor_release(part);
    /* A plain group counts as a mesh; each tensor has its own, and they are equal. */
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(fsdp_tensor_to(whole, FSDP_DTYPE_F32, FSDP_TAG_DATA, &grouped[i]));
        ASSERT_OK(fsdp_dtensor_from_local(grouped[i], t->group, rows[0], shape));
    }
    ASSERT_OK(
        fsdp_distribute_tensor(grouped[0], fsdp_dtensor_device_mesh(grouped[1]), &rows[0], &out));
    ASSERT(out == grouped[0]);
    fsdp_tensor_release(out);
    fsdp_tensor_release(grouped[0]);
    fsdp_tensor_release(grouped[1]);
    fsdp_tensor_release(whole);
    fsdp_device_mesh_destroy(line);
    fsdp_device_mesh_destroy(mesh);
    fsdp_device_destroy(device);
}

TEST_RANKS(invalid_placements_are_refused, 2)
{
    fsdp_device *device;
    fsdp_device_mesh *mesh;
    fsdp_tensor *whole, *part, *out;
    const int64_t shape[] = {5, 3};
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_device_mesh_create(t->group, 1, (int[]){2}, NULL, &mesh));
    whole_tensor(t, device, FSDP_DTYPE_F32, 2, shape, &whole);
    CHECK_HERE();
    const fsdp_placement third = {FSDP_SHARD, 2}, columns = {FSDP_SHARD, 1};
    ASSERT_ERROR(fsdp_distribute_tensor(whole, mesh, &third, &out), FSDP_ERR_INVALID,
                 "Shard(2) of a tensor of 2 dimensions");
    ASSERT_ERROR(fsdp_redistribute(whole, &columns, &out), FSDP_ERR_INVALID, "no mesh");
    ASSERT_OK(fsdp_distribute_tensor(whole, mesh, &columns, &part));
    ASSERT_INT(fsdp_tensor_size(part, 1), t->rank ? 1 : 2);
    ASSERT_ERROR(fsdp_dtensor_from_local_on_mesh(part, mesh, &columns, (int64_t[]){5, 5}),
                 FSDP_ERR_INVALID, "of a DTensor with Shard(1) should be [5, ");
    ASSERT_OK(fsdp_redistribute(part, &columns, &out)); /* nothing changes */
    ASSERT(out == part);
    fsdp_tensor_release(out);
    fsdp_tensor_release(part);
    fsdp_tensor_release(whole);
    fsdp_device_mesh_destroy(mesh);
    fsdp_device_destroy(device);
}
