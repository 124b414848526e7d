/* Checkpoints of torch.distributed.checkpoint, written by any number of ranks and read back by any
 * other. The checkpoint of three ranks is tests/fixtures/dcp/written byte for byte, which PyTorch
 * loads: tests/fixtures/dcp/check_dcp.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/dcp/dcp_metadata_writer.h"
#include "tests/dcp/dcp_case.h"

enum {
    MAX_BYTES = 256, /* largest tensor that is written again */
    MAX_ITEMS = 40
};

static void check_written_and_read(fsdp_test *t)
{
    char dir[300];
    ASSERT_OK(dcp_case_path(t, "not/there/yet", dir));
    ASSERT_OK(dcp_case_save(dir, t->group, FSDP_EXISTING_REFUSE));
    dcp_case_check(t, dir);
    CHECK_HERE();
    ASSERT_ERROR(dcp_case_save(dir, t->group, FSDP_EXISTING_REFUSE), FSDP_ERR_INVALID,
                 "not/there/yet: the directory exists and is not empty");
    char stale[340], kept[340];
    snprintf(stale, sizeof stale, "%s/__77_0.distcp", dir);
    snprintf(kept, sizeof kept, "%s/model.safetensors", dir);
    if (!t->group || t->rank == 0) {
        ASSERT_OK(fsdp_file_write(stale, "1", 1));
        ASSERT_OK(fsdp_file_write(kept, "1", 1));
    }
    ASSERT_OK(dcp_case_save(dir, t->group, FSDP_EXISTING_UPDATE));
    ASSERT(!fsdp_path_is_file(stale) && fsdp_path_is_file(kept));
    dcp_case_check(t, dir);
}

TEST(one_process_writes_what_any_number_of_ranks_reads)
{
    check_written_and_read(t);
}

TEST_RANKS(one_rank_writes_what_any_number_reads, 1)
{
    check_written_and_read(t);
}

TEST_RANKS(two_ranks_write_what_any_number_reads, 2)
{
    check_written_and_read(t);
}

TEST_RANKS(three_ranks_write_what_any_number_reads, 3)
{
    check_written_and_read(t);
}

TEST_RANKS(four_ranks_write_what_any_number_reads, 4)
{
    check_written_and_read(t);
}

/* ---- layout ---------------------------------------------------------------------------------- */

static void check_chunks(fsdp_test *t, const fsdp_dcp_reader *reader, const char *fqn,
                         int64_t (*boxes)[2], size_t n)
{
    const fsdp_dcp_item *item = dcp_case_find(reader, fqn);
    ASSERT(item != NULL);
    ASSERT_INT(item->n_chunks, n);
    for (size_t i = 0; i < n; i++) {
        ASSERT_INT(item->chunks[i].offsets[0], boxes[i][0]);
        ASSERT_INT(item->chunks[i].sizes[0], boxes[i][1]);
    }
}

/* Chunks are in the order of ranks; empty rows are written once, at the end, and replicas once, by
 * rank 0. */
TEST_RANKS(chunks_are_those_of_torch, 4)
{
    char dir[300];
    fsdp_dcp_reader *reader;
    ASSERT_OK(dcp_case_path(t, "out", dir));
    ASSERT_OK(dcp_case_save(dir, t->group, FSDP_EXISTING_REFUSE));
    ASSERT_OK(fsdp_dcp_reader_open(dir, &reader));
    check_chunks(t, reader, "model.rows.weight", (int64_t[][2]){{0, 2}, {2, 2}, {4, 2}, {6, 1}}, 4);
    CHECK_HERE();
    check_chunks(t, reader, "model.one.weight", (int64_t[][2]){{0, 1}, {1, 0}}, 2);
    CHECK_HERE();
    check_chunks(t, reader, "model.cube", (int64_t[][2]){{0, 2}, {2, 2}, {4, 1}, {5, 0}}, 4);
    CHECK_HERE();
    check_chunks(t, reader, "model.no.rows", (int64_t[][2]){{0, 0}}, 1);
    CHECK_HERE();
    check_chunks(t, reader, "model.same", (int64_t[][2]){{0, 2}}, 1);
    CHECK_HERE();
    ASSERT_INT(dcp_case_find(reader, "model.scalar")->n_chunks, 1);
    ASSERT_STR(dcp_case_find(reader, "model.same")->chunks[0].file, "__0_0.distcp");
    ASSERT_STR(dcp_case_find(reader, "model.rows.weight")->chunks[3].file, "__3_0.distcp");
    fsdp_dcp_reader_close(reader);
}

static void compare_files(fsdp_test *t, const char *dir, const char *name)
{
    char path[600], *actual, *expected;
    size_t n_actual, n_expected;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    ASSERT_OK(fsdp_file_read(path, 1 << 20, &actual, &n_actual));
    snprintf(path, sizeof path, "%s/%s", fsdp_test_path("fixtures/dcp/written"), name);
    ASSERT_OK(fsdp_file_read(path, 1 << 20, &expected, &n_expected));
    bool same = n_actual == n_expected && memcmp(actual, expected, n_actual) == 0;
    fsdp_free(actual);
    fsdp_free(expected);
    if (!same)
        FAIL("%s is not as it was when PyTorch loaded it", name);
}

/* FSDP_DCP_OUT=tests/fixtures/dcp/written writes the fixture again; run check_dcp.py afterwards. */
TEST_RANKS(bytes_are_those_that_torch_was_seen_to_load, 3)
{
    char dir[300];
    const char *out = getenv("FSDP_DCP_OUT");
    if (out)
        ASSERT_OK(dcp_case_save(out, t->group, FSDP_EXISTING_UPDATE));
    ASSERT_OK(dcp_case_path(t, "out", dir));
    ASSERT_OK(dcp_case_save(dir, t->group, FSDP_EXISTING_REFUSE));
    if (t->rank == 0)
        compare_files(t, dir, ".metadata");
    char name[32];
    snprintf(name, sizeof name, "__%d_0.distcp", t->rank);
    compare_files(t, dir, name);
}

static bool same_item(const fsdp_dcp_item *a, const fsdp_dcp_item *b)
{
    size_t dims = (size_t)a->ndim * sizeof *a->shape;
    bool same = strcmp(a->fqn, b->fqn) == 0 && !a->dtype_name == !b->dtype_name &&
                a->ndim == b->ndim && a->n_chunks == b->n_chunks &&
                a->path->list.n == b->path->list.n;
    if (same && a->dtype_name)
        same = strcmp(a->dtype_name, b->dtype_name) == 0 && memcmp(a->shape, b->shape, dims) == 0;
    for (size_t i = 0; same && i < a->n_chunks; i++) {
        const fsdp_dcp_chunk *x = &a->chunks[i], *y = &b->chunks[i];
        same = strcmp(x->file, y->file) == 0 && x->offset == y->offset && x->length == y->length;
        if (same && dims)
            same =
                memcmp(x->offsets, y->offsets, dims) == 0 && memcmp(x->sizes, y->sizes, dims) == 0;
    }
    return same;
}

/* Metadata of PyTorch, with boxes in two dimensions, are written again. */
TEST(metadata_that_were_read_can_be_written)
{
    char path[600], *text, *again;
    size_t bytes, n_again;
    fsdp_dcp_metadata *from, *to;
    snprintf(path, sizeof path, "%s/.metadata", fsdp_test_path("fixtures/dcp/boxes"));
    ASSERT_OK(fsdp_file_read(path, 1 << 20, &text, &bytes));
    ASSERT_OK(fsdp_dcp_metadata_create("from", text, bytes, &from));
    again = fsdp_dcp_metadata_pickle(fsdp_dcp_metadata_at(from, 0), fsdp_dcp_metadata_count(from),
                                     "beside.json", &n_again);
    ASSERT(again != NULL);
    ASSERT_OK(fsdp_dcp_metadata_create("to", again, n_again, &to));
    ASSERT_INT(fsdp_dcp_metadata_count(to), fsdp_dcp_metadata_count(from));
    ASSERT(fsdp_dcp_metadata_companion(from) == NULL);
    ASSERT(strcmp(fsdp_dcp_metadata_companion(to), "beside.json") == 0);
    for (size_t i = 0; i < fsdp_dcp_metadata_count(to); i++)
        ASSERT(same_item(fsdp_dcp_metadata_at(from, i), fsdp_dcp_metadata_at(to, i)));
    fsdp_dcp_metadata_destroy(from);
    fsdp_dcp_metadata_destroy(to);
    fsdp_free(text);
    fsdp_free(again);
}

/* ---- writing again --------------------------------------------------------------------------- */

static int keys_of(const fsdp_pickle_value *path, fsdp_dcp_key keys[8])
{
    for (size_t i = 0; i < path->list.n; i++) {
        const fsdp_pickle_value *key = path->list.items[i];
        keys[i] = (fsdp_dcp_key){.name = fsdp_pickle_text(key)};
        if (!keys[i].name)
            keys[i].index = key->integer;
    }
    return (int)path->list.n;
}

/* The pickle of a value that was read. */
static fsdp_status value_text(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                              fsdp_pickle_writer *w)
{
    fsdp_torch_archive *archive;
    FSDP_TRY(fsdp_dcp_reader_value(reader, item, &archive));
    fsdp_status status = fsdp_pickle_put_value(w, fsdp_torch_archive_root(archive));
    fsdp_torch_archive_destroy(archive);
    return status;
}

static fsdp_status add_again(fsdp_test *t, const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                             fsdp_dcp_manifest *manifest, unsigned char *rows)
{
    fsdp_dcp_key keys[8];
    int n_keys = keys_of(item->path, keys);
    fsdp_pickle_writer w = {0};
    if (!item->dtype_name) {
        FSDP_TRY(value_text(reader, item, &w));
        return fsdp_dcp_manifest_value(manifest, keys, n_keys, &w);
    }
    fsdp_dcp_tensor x = {
        .dtype_name = item->dtype_name, .shape = item->shape, .ndim = item->ndim, .data = rows};
    dcp_case_own_rows(item->ndim ? item->shape[0] : 1, t->rank, t->world_size, &x.begin, &x.end);
    FSDP_TRY(fsdp_dcp_reader_rows(reader, item, x.begin, x.end, rows));
    return fsdp_dcp_manifest_tensor(manifest, keys, n_keys, &x);
}

static fsdp_status save_again(fsdp_test *t, const fsdp_dcp_reader *reader, const char *dir)
{
    const fsdp_dcp_metadata *all = fsdp_dcp_reader_metadata(reader);
    unsigned char rows[MAX_ITEMS][MAX_BYTES];
    fsdp_dcp_manifest *manifest;
    FSDP_TRY(fsdp_dcp_manifest_create(&manifest));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < fsdp_dcp_metadata_count(all) && status == FSDP_OK; i++)
        status = add_again(t, reader, fsdp_dcp_metadata_at(all, i), manifest, rows[i]);
    status = fsdp_dcp_save_manifest(status, &(fsdp_group_place){.path = dir}, t->group, manifest);
    fsdp_dcp_manifest_destroy(manifest);
    return status;
}

static void compare_values(fsdp_test *t, const fsdp_dcp_reader *a, const fsdp_dcp_item *x,
                           const fsdp_dcp_reader *b, const fsdp_dcp_item *y)
{
    fsdp_pickle_writer was = {0}, is = {0};
    ASSERT_OK(value_text(a, x, &was));
    ASSERT_OK(value_text(b, y, &is));
    ASSERT_INT(is.text.len, was.text.len);
    ASSERT(memcmp(is.text.data, was.text.data, is.text.len) == 0);
    fsdp_pickle_fini(&was);
    fsdp_pickle_fini(&is);
}

static void compare_tensors(fsdp_test *t, const fsdp_dcp_reader *a, const fsdp_dcp_item *x,
                            const fsdp_dcp_reader *b, const fsdp_dcp_item *y)
{
    char was[MAX_BYTES], is[MAX_BYTES];
    int64_t rows = x->ndim ? x->shape[0] : 1;
    ASSERT_STR(y->dtype_name, x->dtype_name);
    ASSERT(x->ndim == y->ndim && memcmp(x->shape, y->shape, (size_t)x->ndim * 8) == 0);
    ASSERT_OK(fsdp_dcp_reader_rows(a, x, 0, rows, was));
    ASSERT_OK(fsdp_dcp_reader_rows(b, y, 0, rows, is));
    ASSERT(memcmp(was, is, (size_t)x->bytes) == 0);
}

static void compare(fsdp_test *t, const fsdp_dcp_reader *a, const fsdp_dcp_reader *b)
{
    const fsdp_dcp_metadata *all = fsdp_dcp_reader_metadata(a);
    ASSERT_INT(fsdp_dcp_metadata_count(fsdp_dcp_reader_metadata(b)), fsdp_dcp_metadata_count(all));
    for (size_t i = 0; i < fsdp_dcp_metadata_count(all); i++) {
        const fsdp_dcp_item *x = fsdp_dcp_metadata_at(all, i), *y = dcp_case_find(b, x->fqn);
        ASSERT(y && y->path->list.n == x->path->list.n);
        (x->dtype_name ? compare_tensors : compare_values)(t, a, x, b, y);
        CHECK_HERE();
    }
}

/* Four ranks of PyTorch wrote boxes in two dimensions; three write rows. */
TEST_RANKS(checkpoints_of_torch_are_written_again_by_other_ranks, 3)
{
    char dir[300];
    fsdp_dcp_reader *from, *to;
    ASSERT_OK(dcp_case_path(t, "out", dir));
    ASSERT_OK(fsdp_dcp_reader_open(fsdp_test_path("fixtures/dcp/boxes"), &from));
    ASSERT_OK(save_again(t, from, dir));
    ASSERT_OK(fsdp_dcp_reader_open(dir, &to));
    compare(t, from, to);
    fsdp_dcp_reader_close(from);
    fsdp_dcp_reader_close(to);
}

TEST(values_that_are_not_plain_are_refused)
{
    fsdp_pickle_writer w = {0};
    fsdp_pickle_value storage = {.kind = FSDP_PICKLE_PERSISTENT}, *items[] = {&storage};
    fsdp_pickle_value list = {.kind = FSDP_PICKLE_LIST, .depth = 1, .list = {items, 1, 1}};
    ASSERT_ERROR(fsdp_pickle_put_value(&w, &list), FSDP_ERR_UNSUPPORTED,
                 "a storage cannot be written");
    fsdp_pickle_fini(&w);
    list.depth = FSDP_PICKLE_MAX_DEPTH;
    fsdp_pickle_begin(&w, FSDP_PICKLE_LIST);
    ASSERT_ERROR(fsdp_pickle_put_value(&w, &list), FSDP_ERR_INVALID, "more than 100 times");
    fsdp_pickle_fini(&w);
}

/* ---- large tensors and replicas of shards ---------------------------------------------------- */

enum {
    LARGE_ROWS = 9,
    LARGE_ROW_BYTES = 1 << 20,
};

typedef struct large_source {
    uint64_t first, next; /* in bytes: offset of the rows in the tensor; offset in the rows that
                             must be requested next */
    size_t most;          /* largest number of bytes of one call */
    bool in_order;
} large_source;

static unsigned char large_byte(uint64_t i)
{
    return (unsigned char)(i ^ i >> 8 ^ i >> 16);
}

static fsdp_status read_large(void *context, uint64_t offset, void *out, size_t bytes)
{
    large_source *from = context;
    from->in_order = from->in_order && offset == from->next;
    from->next = offset + bytes;
    from->most = bytes > from->most ? bytes : from->most;
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)out)[i] = large_byte(from->first + offset + i);
    return FSDP_OK;
}

static void check_large(fsdp_test *t, const char *dir)
{
    fsdp_dcp_reader *reader;
    ASSERT_OK(fsdp_dcp_reader_open(dir, &reader));
    const fsdp_dcp_item *item = dcp_case_find(reader, "x");
    ASSERT(item && item->bytes == LARGE_ROWS * LARGE_ROW_BYTES);
    ASSERT_INT(item->n_chunks, 2);
    unsigned char *data = fsdp_calloc((size_t)item->bytes, 1);
    ASSERT(data != NULL);
    ASSERT_OK(fsdp_dcp_reader_rows(reader, item, 0, LARGE_ROWS, data));
    int64_t i = 0;
    while (i < item->bytes && data[i] == large_byte((uint64_t)i))
        i++;
    ASSERT_INT(i, item->bytes);
    fsdp_free(data);
    fsdp_dcp_reader_close(reader);
}

/* As in HSDP, ranks 0 and 2 have the same rows, and so have ranks 1 and 3. One of each two
 * writes. */
TEST_RANKS(large_rows_are_read_in_pieces_by_one_of_their_replicas, 4)
{
    char dir[300];
    large_source from = {.in_order = true};
    fsdp_dcp_manifest *manifest;
    fsdp_dcp_tensor x = {.dtype_name = "U8",
                         .shape = (int64_t[]){LARGE_ROWS, LARGE_ROW_BYTES},
                         .ndim = 2,
                         .read = read_large,
                         .context = &from};
    dcp_case_own_rows(LARGE_ROWS, t->rank % 2, 2, &x.begin, &x.end);
    from.first = (uint64_t)x.begin * LARGE_ROW_BYTES;
    ASSERT_OK(dcp_case_path(t, "out", dir));
    ASSERT_OK(fsdp_dcp_manifest_create(&manifest));
    ASSERT_OK(fsdp_dcp_manifest_tensor(manifest, (fsdp_dcp_key[]){{.name = "x"}}, 1, &x));
    ASSERT_OK(
        fsdp_dcp_save_manifest(FSDP_OK, &(fsdp_group_place){.path = dir}, t->group, manifest));
    fsdp_dcp_manifest_destroy(manifest);
    ASSERT(from.in_order);
    ASSERT(from.most <= 4 << 20);
    ASSERT_INT(from.next, t->rank < 2 ? (x.end - x.begin) * LARGE_ROW_BYTES : 0);
    if (t->rank == 0)
        check_large(t, dir);
}
