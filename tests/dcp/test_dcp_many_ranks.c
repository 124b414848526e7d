/* What rank 0 does in a save of 512 ranks: it plans which rank writes what, and writes .metadata.
 * The other ranks do not exist (src/comm/plan_group.h). */
#include <stdio.h>

#include "src/base/io.h"
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/plan_group.h"
#include "src/dcp/dcp_metadata.h"
#include "src/dcp/dcp_writer.h"
#include "tests/test.h"

enum {
    RANKS = 512,
    SPLIT_ROWS = 1000, /* the last ranks have no rows */
    WIDTH = 3
};

typedef struct tensor_case {
    const char *name;
    bool replicated, by_columns;
} tensor_case;

static const tensor_case cases[] = {
    {"rows", false, false}, {"same", true, false}, {"columns", false, true}};

/* Box of a rank, as fully_shard cuts a dimension. */
static void cut(int64_t n, int rank, int64_t *begin, int64_t *size)
{
    const int64_t part = (n + RANKS - 1) / RANKS, at = part * rank;
    *begin = at < n ? at : n;
    *size = *begin + part < n ? part : n - *begin;
}

static bool part_of(const void *owner, const fsdp_group *group, int rank, int64_t *offsets,
                    int64_t *sizes)
{
    const tensor_case *c = owner;
    (void)group;
    offsets[0] = offsets[1] = 0;
    sizes[0] = c->by_columns ? WIDTH : SPLIT_ROWS;
    sizes[1] = c->by_columns ? SPLIT_ROWS : WIDTH;
    if (!c->replicated)
        cut(SPLIT_ROWS, rank, &offsets[c->by_columns], &sizes[c->by_columns]);
    return true;
}

static fsdp_status add(fsdp_dcp_manifest *manifest, const tensor_case *c)
{
    static const float data[SPLIT_ROWS * WIDTH];
    const int64_t shape[] = {c->by_columns ? WIDTH : SPLIT_ROWS,
                             c->by_columns ? SPLIT_ROWS : WIDTH};
    const fsdp_dcp_key key = {.name = c->name};
    int64_t offsets[2], sizes[2];
    part_of(c, NULL, 0, offsets, sizes);
    return fsdp_dcp_manifest_tensor(manifest, &key, 1,
                                    &(fsdp_dcp_tensor){.dtype_name = "F32",
                                                       .shape = shape,
                                                       .ndim = 2,
                                                       .offsets = offsets,
                                                       .sizes = sizes,
                                                       .part_of = part_of,
                                                       .owner = c,
                                                       .data = data});
}

static fsdp_status save(const char *dir, fsdp_group *group, const fsdp_dcp_manifest *manifest)
{
    const fsdp_group_place place = {.path = dir};
    fsdp_dcp_job *job;
    size_t bytes;
    FSDP_TRY(fsdp_dcp_job_create(FSDP_OK, &place, group, manifest, &job));
    fsdp_status status = fsdp_dcp_job_write_file(job);
    const void *own = fsdp_dcp_job_own_positions(job, &bytes);
    for (int r = 1; r < RANKS; r++)
        memcpy(fsdp_dcp_job_positions(job, r), own, bytes);
    memcpy(fsdp_dcp_job_positions(job, 0), own, bytes);
    if (status == FSDP_OK)
        status = fsdp_dcp_job_complete(job);
    fsdp_dcp_job_destroy(job);
    return status;
}

static void check_item(fsdp_test *t, const fsdp_dcp_item *item, const tensor_case *c)
{
    /* 500 ranks have two rows each; the others' empty boxes are equal and are written once. */
    ASSERT(item != NULL);
    ASSERT_INT(item->n_chunks, c->replicated ? 1 : 501);
    for (size_t i = 0; i < item->n_chunks; i++) {
        int64_t offsets[2], sizes[2];
        char file[32];
        part_of(c, NULL, (int)i, offsets, sizes);
        snprintf(file, sizeof file, "__%zu_0.distcp", i);
        ASSERT(memcmp(item->chunks[i].offsets, offsets, sizeof offsets) == 0);
        ASSERT(memcmp(item->chunks[i].sizes, sizes, sizeof sizes) == 0);
        ASSERT_STR(item->chunks[i].file, file);
    }
}

static void check_metadata(fsdp_test *t, const char *dir)
{
    char path[400], *text;
    size_t bytes;
    fsdp_dcp_metadata *md;
    snprintf(path, sizeof path, "%s/.metadata", dir);
    ASSERT_OK(fsdp_file_read(path, SIZE_MAX, &text, &bytes));
    ASSERT(bytes < 1024 * 110); /* about 110 bytes a chunk: names are written once */
    ASSERT_OK(fsdp_dcp_metadata_create(path, text, bytes, &md));
    fsdp_free(text);
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        check_item(t, fsdp_dcp_metadata_find(md, cases[i].name), &cases[i]);
        CHECK_HERE();
    }
    fsdp_dcp_metadata_destroy(md);
}

TEST(the_index_of_512_ranks_has_the_rows_of_each)
{
    char dir[300];
    fsdp_group *group;
    fsdp_dcp_manifest *manifest;
    snprintf(dir, sizeof dir, "%s/saved", fsdp_test_dir(t));
    ASSERT_OK(fsdp_plan_group_create(0, RANKS, 8, &group));
    ASSERT_OK(fsdp_dcp_manifest_create(&manifest));
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++)
        ASSERT_OK(add(manifest, &cases[i]));
    const fsdp_status status = save(dir, group, manifest);
    fsdp_dcp_manifest_destroy(manifest);
    fsdp_destroy_process_group(group);
    ASSERT_OK(status);
    check_metadata(t, dir);
}
