/* Checkpoints of torch.distributed.checkpoint. tests/fixtures/dcp: boxes (four ranks, element i is
 * i) and empty (uneven and empty shards) by PyTorch, hand by a writer that memoizes little. */
#include <stdio.h>
#include <string.h>

#include <fsdp/ckpt.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/dcp/dcp_reader.h"
#include "tests/test.h"

static const char *fixture(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_path("fixtures/dcp"), name);
    return path;
}

static const fsdp_dcp_item *find(const fsdp_dcp_reader *reader, const char *fqn)
{
    return fsdp_dcp_metadata_find(fsdp_dcp_reader_metadata(reader), fqn);
}

static double number_at(const char *dtype, const unsigned char *data, int64_t i)
{
    float f;
    int64_t whole;
    uint32_t bits;
    if (strcmp(dtype, "I64") == 0) {
        memcpy(&whole, data + 8 * i, 8);
        return (double)whole;
    }
    if (strcmp(dtype, "BF16") == 0) {
        bits = (uint32_t)(data[2 * i] | data[2 * i + 1] << 8) << 16;
        memcpy(&f, &bits, 4);
        return (double)f;
    }
    memcpy(&f, data + 4 * i, 4);
    return (double)f;
}

/* Every range of rows is read; bytes outside it are not written. */
static void check_counted(fsdp_test *t, const fsdp_dcp_reader *reader, const fsdp_dcp_item *item)
{
    unsigned char data[512];
    int64_t n = item->shape[0], row = item->numel / n, width = item->bytes / item->numel;
    ASSERT(item->bytes < (int64_t)sizeof data);
    for (int64_t begin = 0; begin <= n; begin++)
        for (int64_t end = begin; end <= n; end++) {
            memset(data, 0xEE, sizeof data);
            ASSERT_OK(fsdp_dcp_reader_rows(reader, item, begin, end, data));
            for (int64_t i = 0; i < (end - begin) * row; i++)
                if (number_at(item->dtype_name, data, i) != (double)(begin * row + i))
                    FAIL("%s [%lld, %lld): element %lld is %g", item->fqn, (long long)begin,
                         (long long)end, (long long)i, number_at(item->dtype_name, data, i));
            ASSERT_INT(data[(end - begin) * row * width], 0xEE);
        }
}

TEST(rows_are_put_together_from_any_boxes)
{
    static const struct {
        const char *fqn, *dtype;
        int64_t shape[3];
        int ndim;
        size_t chunks;
    } tensors[] = {
        {"model.rows", "F32", {7, 3}, 2, 4},  {"model.columns", "F32", {3, 7}, 2, 4},
        {"model.boxes", "F32", {5, 3}, 2, 4}, {"model.cube", "BF16", {3, 5, 2}, 3, 4},
        {"model.line", "I64", {6}, 1, 4},     {"model.same", "F32", {2, 2}, 2, 1},
    };
    fsdp_dcp_reader *reader;
    ASSERT_OK(fsdp_dcp_reader_open(fixture("boxes"), &reader));
    ASSERT_INT(fsdp_dcp_metadata_count(fsdp_dcp_reader_metadata(reader)), 13);
    for (size_t i = 0; i < FSDP_LENGTH(tensors); i++) {
        const fsdp_dcp_item *item = find(reader, tensors[i].fqn);
        ASSERT(item && item->ndim == tensors[i].ndim);
        ASSERT_STR(item->dtype_name, tensors[i].dtype);
        ASSERT(memcmp(item->shape, tensors[i].shape, (size_t)item->ndim * 8) == 0);
        ASSERT_INT(item->n_chunks, tensors[i].chunks);
        check_counted(t, reader, item);
        CHECK_HERE();
    }
    const fsdp_dcp_item *step = find(reader, "optim.state.rows.step");
    float value = 0;
    ASSERT(step && step->ndim == 0);
    ASSERT_OK(fsdp_dcp_reader_rows(reader, step, 0, 1, &value));
    ASSERT_F32(value, 2.0f);
    ASSERT_ERROR(fsdp_dcp_reader_rows(reader, step, 0, 2, &value), FSDP_ERR_INVALID,
                 "boxes: 'optim.state.rows.step' has no rows [0, 2)");
    ASSERT(!find(reader, "model"));
    fsdp_dcp_reader_close(reader);
}

static void check_value(fsdp_test *t, const fsdp_dcp_reader *reader, const char *fqn,
                        fsdp_pickle_kind kind)
{
    fsdp_torch_archive *archive;
    const fsdp_dcp_item *item = find(reader, fqn);
    ASSERT(item && !item->dtype_name);
    ASSERT_OK(fsdp_dcp_reader_value(reader, item, &archive));
    const fsdp_pickle_value *value = fsdp_torch_archive_root(archive);
    ASSERT(fsdp_pickle_is(value, kind));
    if (kind == FSDP_PICKLE_TUPLE)
        ASSERT(fsdp_pickle_at(value, 1)->number == 0.999);
    if (kind == FSDP_PICKLE_INT)
        ASSERT_INT(value->integer, 1LL << 33);
    fsdp_torch_archive_destroy(archive);
}

TEST(plain_values_and_paths_are_read)
{
    static const char *const directories[] = {"boxes", "hand"};
    for (int i = 0; i < 2; i++) {
        fsdp_dcp_reader *reader;
        unsigned char byte;
        ASSERT_OK(fsdp_dcp_reader_open(fixture(directories[i]), &reader));
        check_value(t, reader, "step", FSDP_PICKLE_INT);
        check_value(t, reader, "optim.param_groups.0.lr", FSDP_PICKLE_FLOAT);
        check_value(t, reader, "optim.param_groups.0.betas", FSDP_PICKLE_TUPLE);
        check_value(t, reader, "optim.param_groups.0.foreach", FSDP_PICKLE_NONE);
        check_value(t, reader, "optim.param_groups.0.params", FSDP_PICKLE_LIST);
        CHECK_HERE();
        const fsdp_dcp_item *item = find(reader, "optim.param_groups.0.lr");
        ASSERT_STR(fsdp_pickle_text(fsdp_pickle_at(item->path, 1)), "param_groups");
        ASSERT_INT(fsdp_pickle_at(item->path, 2)->integer, 0);
        ASSERT_ERROR(fsdp_dcp_reader_rows(reader, item, 0, 1, &byte), FSDP_ERR_INVALID,
                     "has no rows");
        fsdp_torch_archive *archive;
        item = fsdp_dcp_metadata_at(fsdp_dcp_reader_metadata(reader), 0);
        ASSERT_ERROR(fsdp_dcp_reader_value(reader, item, &archive), FSDP_ERR_INVALID,
                     "is a tensor, no plain value");
        fsdp_dcp_reader_close(reader);
    }
}

TEST(uneven_and_empty_shards_are_put_together)
{
    fsdp_dcp_reader *reader;
    fsdp_safetensors *expected;
    char data[256];
    ASSERT_OK(fsdp_dcp_reader_open(fixture("empty"), &reader));
    ASSERT_OK(fsdp_safetensors_open(fixture("empty.safetensors"), &expected));
    ASSERT_INT(fsdp_safetensors_count(expected),
               fsdp_dcp_metadata_count(fsdp_dcp_reader_metadata(reader)));
    for (size_t i = 0; i < fsdp_safetensors_count(expected); i++) {
        const fsdp_checkpoint_entry *entry = fsdp_safetensors_at(expected, i);
        const fsdp_dcp_item *item = find(reader, entry->name);
        ASSERT(item && item->bytes == (int64_t)entry->bytes && entry->bytes <= sizeof data);
        ASSERT_OK(fsdp_dcp_reader_rows(reader, item, 0, item->shape[0], data));
        ASSERT(memcmp(data, entry->data, entry->bytes) == 0);
    }
    fsdp_safetensors_close(expected);
    fsdp_dcp_reader_close(reader);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static const char *in_dir(fsdp_test *t, const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), name);
    return path;
}

typedef struct change {
    const char *from, *to; /* [n] */
    size_t n;
    int nth; /* which occurrence; -1: all */
    fsdp_status status;
    const char *error;
} change;

#define CHANGE(from, to) from, to, sizeof(from) - 1

/* Write the metadata of `hand` with `change` into the test's directory; false if `change` does not
 * apply. */
static bool write_changed(fsdp_test *t, const change *c)
{
    char *text;
    size_t bytes;
    int seen = 0, made = 0;
    if (fsdp_file_read(fixture("hand/.metadata"), 1 << 20, &text, &bytes) != FSDP_OK)
        return false;
    for (size_t at = 0; at + c->n <= bytes; at++)
        if (memcmp(text + at, c->from, c->n) == 0 && (c->nth < 0 || seen++ == c->nth)) {
            memcpy(text + at, c->to, c->n);
            made++;
        }
    fsdp_status status = fsdp_file_write(in_dir(t, ".metadata"), text, bytes);
    fsdp_free(text);
    return status == FSDP_OK && made > 0;
}

static fsdp_status open_and_read(const char *path, const char *fqn)
{
    fsdp_dcp_reader *reader;
    char data[256];
    FSDP_TRY(fsdp_dcp_reader_open(path, &reader));
    const fsdp_dcp_item *item = find(reader, fqn);
    fsdp_status status = fsdp_dcp_reader_rows(reader, item, 0, item->shape[0], data);
    fsdp_dcp_reader_close(reader);
    return status;
}

TEST(metadata_that_do_not_fit_are_refused_by_name)
{
    static const change cases[] = {
        {CHANGE("(K\3K\0t", "(K\2K\0t"), -1, FSDP_ERR_FORMAT, "two of its chunks overlap"},
        {CHANGE("(K\3K\0t", "(K\4K\0t"), -1, FSDP_ERR_FORMAT, "a chunk reaches beyond its tensor"},
        {CHANGE("(K\2K\4t", "(K\1K\4t"), 0, FSDP_ERR_FORMAT,
         ".metadata: 'model.w': a part of it is in no chunk"},
        {CHANGE("(K\5K\4t", "(K\6K\4t"), 0, FSDP_ERR_FORMAT, "'model.w': a part of it is in no"},
        {CHANGE("(K\5K\4t", "(K\4\x89t\x94"), 0, FSDP_ERR_FORMAT,
         "is not a number, or is negative"},
        {CHANGE("(K\3K\0t", "(K\3\x94\x94t"), 0, FSDP_ERR_FORMAT,
         "a chunk has not as many dimensions as its tensor"},
        {CHANGE("model.pos", "model.pox"), 2, FSDP_ERR_FORMAT,
         "'model.pos': a chunk of it is stored nowhere"},
        {CHANGE("model.pos", "model.w\0\0"), 0, FSDP_ERR_FORMAT, "a key is not a text"},
        {CHANGE("model.pos", "model.one"), -1, FSDP_ERR_FORMAT, "'model.one': "},
        {CHANGE("__1_0.distcp", "../_0.distcp"), -1, FSDP_ERR_FORMAT,
         "a chunk of it is not in a file in the folder of .metadata"},
        {CHANGE("__1_0.distcp", "__9_0.distcp"), -1, FSDP_ERR_NOT_FOUND,
         "__9_0.distcp: cannot open"},
        {CHANGE("relative_path", "Relative_path"), -1, FSDP_ERR_FORMAT, "is not recorded"},
        {CHANGE("storage_data", "Storage_data"), -1, FSDP_ERR_FORMAT,
         ".metadata: not the metadata of a checkpoint"},
        {CHANGE("torch\nint64\n", "torch\nint32\n"), 0, FSDP_ERR_FORMAT,
         "__1_0.distcp: tensor 'model.pos' is of I64, but its metadata say I32"},
        {CHANGE("TensorStorageMetadata\n", "TensorStorageMetadate\n"), -1, FSDP_ERR_FORMAT,
         "it is neither a tensor nor a value"},
    };
    ASSERT_OK(fsdp_file_copy(fixture("hand/__0_0.distcp"), in_dir(t, "__0_0.distcp")));
    ASSERT_OK(fsdp_file_copy(fixture("hand/__1_0.distcp"), in_dir(t, "__1_0.distcp")));
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        ASSERT(write_changed(t, &cases[i]));
        fsdp_status status = open_and_read(fsdp_test_dir(t), "model.pos");
        if (status != cases[i].status || !strstr(fsdp_last_error(), cases[i].error))
            FAIL("case %zu: %s: %s: %s", i, cases[i].error, fsdp_status_name(status),
                 status ? fsdp_last_error() : "");
    }
}

TEST(checkpoints_that_lack_something_are_refused)
{
    char *text;
    size_t bytes;
    ASSERT_ERROR(open_and_read(fsdp_test_dir(t), "x"), FSDP_ERR_NOT_FOUND,
                 "no .metadata there: no checkpoint of torch.distributed.checkpoint, or one that "
                 "was never completed");
    ASSERT_OK(fsdp_file_write(in_dir(t, "__0.metadata"), "", 0));
    ASSERT_ERROR(open_and_read(fsdp_test_dir(t), "x"), FSDP_ERR_UNSUPPORTED,
                 "each rank has its own metadata");
    ASSERT_OK(fsdp_file_copy(fixture("hand/.metadata"), in_dir(t, ".metadata")));
    ASSERT_ERROR(open_and_read(fsdp_test_dir(t), "x"), FSDP_ERR_NOT_FOUND, "__0_0.distcp: cannot");
    ASSERT_OK(fsdp_file_copy(fixture("hand/__1_0.distcp"), in_dir(t, "__1_0.distcp")));
    ASSERT_OK(fsdp_file_read(fixture("hand/__0_0.distcp"), 1 << 20, &text, &bytes));
    fsdp_status status = fsdp_file_write(in_dir(t, "__0_0.distcp"), text, bytes - 1);
    fsdp_free(text);
    ASSERT_OK(status);
    ASSERT_ERROR(open_and_read(fsdp_test_dir(t), "x"), FSDP_ERR_FORMAT,
                 "__0_0.distcp: truncated: '");
}

TEST(metadata_cut_at_any_byte_are_refused)
{
    char *text;
    size_t bytes;
    ASSERT_OK(fsdp_file_read(fixture("boxes/.metadata"), 1 << 20, &text, &bytes));
    for (size_t n = 0; n < bytes; n++) {
        fsdp_dcp_metadata *metadata;
        ASSERT_ERROR(fsdp_dcp_metadata_create("f", text, n, &metadata), FSDP_ERR_FORMAT, "f: ");
    }
    fsdp_free(text);
}

TEST(running_out_of_memory_is_an_error)
{
    for (long n = 1; n < 2000; n++) {
        fsdp_alloc_fail_at(n);
        fsdp_status status = open_and_read(fixture("boxes"), "model.boxes");
        fsdp_alloc_fail_at(0);
        if (status == FSDP_OK) {
            ASSERT(n > 20);
            return;
        }
        ASSERT_INT(status, FSDP_ERR_NOMEM);
    }
    FAIL("it never succeeds");
}
