/* A file's tensors into parameters: dtypes, unaligned data, tied names, what is missing or too
 * much. */
#include <stdio.h>

#include <fsdp/ckpt.h>
#include <fsdp/fsdp.h>
#include <fsdp/nn.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "tests/test.h"

/* A file from Python's point of view: header and data, byte by byte. */
static void write_file(fsdp_test *t, const char *header, const void *data, size_t bytes,
                       char path[300])
{
    if (t->rank == 0) {
        snprintf(path, 300, "%s/model.safetensors", fsdp_test_dir(t));
        uint64_t length = strlen(header);
        FILE *file = fopen(path, "wb");
        ASSERT(file);
        ASSERT(fwrite(&length, sizeof length, 1, file) == 1);
        ASSERT(fwrite(header, length, 1, file) == 1);
        ASSERT(!bytes || fwrite(data, bytes, 1, file) == 1);
        ASSERT(fclose(file) == 0);
    }
    if (t->group)
        ASSERT_OK(fsdp_broadcast(t->group, path, 300, 0));
}

typedef struct fixture {
    fsdp_device *device;
    fsdp_module *root;
    fsdp_parameter *a, *b; /* a.weight [3, 2], also tied.weight; b.weight [2] */
} fixture;

static void open_fixture(fsdp_test *t, fixture *f)
{
    fsdp_module *a, *b, *tied;
    ASSERT_OK(fsdp_device_create(NULL, &f->device));
    ASSERT_OK(fsdp_module_create("Root", &f->root));
    ASSERT_OK(fsdp_embedding_create(3, 2, (fsdp_init){0}, &a));
    ASSERT_OK(fsdp_module_add_child(f->root, "a", a));
    ASSERT_OK(fsdp_norm_create("Norm", 2, (fsdp_init){.mean = 1.0f}, &b));
    ASSERT_OK(fsdp_module_add_child(f->root, "b", b));
    ASSERT_OK(fsdp_module_create("Linear", &tied));
    ASSERT_OK(fsdp_module_add_child(f->root, "tied", tied));
    f->a = fsdp_module_parameter(a, "weight");
    f->b = fsdp_module_parameter(b, "weight");
    ASSERT_OK(fsdp_module_share_parameter(tied, "weight", f->a));
    if (t->group)
        ASSERT_OK(fsdp_fully_shard(f->root, t->group, f->device, NULL));
    else
        ASSERT_OK(fsdp_module_to_empty(f->root, f->device));
    ASSERT_OK(fsdp_module_init(f->root, 1));
}

static void close_fixture(fixture *f)
{
    fsdp_module_destroy(f->root);
    fsdp_device_destroy(f->device);
}

static fsdp_status load(const fixture *f, fsdp_group *group, const char *path,
                        fsdp_load_report *report)
{
    fsdp_checkpoint_reader *reader;
    FSDP_TRY(fsdp_checkpoint_open(path, &reader));
    fsdp_status status = fsdp_module_load(f->root, reader, group, report);
    fsdp_checkpoint_close(reader);
    return status;
}

/* Own rows of a.weight are 1, 2 | 3, 4 | 5, 6 and those of b.weight 7 | 8. */
static void assert_values(fsdp_test *t, const fixture *f)
{
    int64_t begin, end;
    const float *values;
    fsdp_parameter_rows(f->a, &begin, &end);
    values = end > begin ? fsdp_tensor_data(fsdp_parameter_local(f->a)) : NULL;
    for (int64_t i = 0; i < (end - begin) * 2; i++)
        ASSERT_F32(values[i], (float)(1 + begin * 2 + i));
    fsdp_parameter_rows(f->b, &begin, &end);
    values = end > begin ? fsdp_tensor_data(fsdp_parameter_local(f->b)) : NULL;
    for (int64_t i = 0; i < end - begin; i++)
        ASSERT_F32(values[i], (float)(7 + begin + i));
}

static const float floats[] = {1, 2, 3, 4, 5, 6, 7, 8};

/* float16, then float32 at an odd address: the bytes between are another tensor's. */
static void check_mixed(fsdp_test *t)
{
    static const char header[] =
        "{\"a.weight\": {\"dtype\": \"F16\", \"shape\": [3, 2], \"data_offsets\": [0, 12]}, "
        "\"extra\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [12, 13]}, "
        "\"h.0.attn.bias\": {\"dtype\": \"U8\", \"shape\": [0], \"data_offsets\": [13, 13]}, "
        "\"b.weight\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [13, 21]}}";
    static const uint16_t halves[] = {0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600};
    unsigned char data[21] = {0};
    char path[300];
    fixture f;
    fsdp_load_report report;
    memcpy(data, halves, 12);
    memcpy(data + 13, floats + 6, 8);
    write_file(t, header, data, sizeof data, path);
    open_fixture(t, &f);
    CHECK_HERE();
    ASSERT_OK(load(&f, t->group, path, &report));
    assert_values(t, &f);
    CHECK_HERE();
    ASSERT_INT(report.n_unexpected, 1);
    ASSERT_STR(report.unexpected[0], "extra");
    fsdp_load_report_free(&report);
    close_fixture(&f);
}

TEST(other_dtypes_and_unaligned_data_are_converted)
{
    check_mixed(t);
}
/* 3 rows and 2 rows on 4 ranks: some hold none */
TEST_RANKS(other_dtypes_and_unaligned_data_are_converted_on_4_ranks, 4)
{
    check_mixed(t);
}

static const char both_names[] =
    "{\"a.weight\": {\"dtype\": \"F32\", \"shape\": [3, 2], \"data_offsets\": [0, 24]}, "
    "\"b.weight\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [24, 32]}, "
    "\"tied.weight\": {\"dtype\": \"F32\", \"shape\": [3, 2], \"data_offsets\": [32, 56]}}";

static void check_tied(fsdp_test *t)
{
    float data[14];
    char path[300];
    fixture f;
    memcpy(data, floats, sizeof floats);
    memcpy(data + 8, floats, 6 * sizeof *floats);
    write_file(t, both_names, data, sizeof data, path);
    open_fixture(t, &f);
    CHECK_HERE();
    ASSERT_OK(load(&f, t->group, path, NULL));
    assert_values(t, &f);
    CHECK_HERE();
    if (t->group)
        ASSERT_OK(fsdp_barrier(t->group));
    data[13] = 9; /* the last row: on two ranks, rank 1's */
    write_file(t, both_names, data, sizeof data, path);
    CHECK_HERE();
    ASSERT_ERROR(load(&f, t->group, path, NULL), FSDP_ERR_FORMAT,
                 "'a.weight' and 'tied.weight' are tied in this model, but differ");
    assert_values(t, &f);
    CHECK_HERE();
    close_fixture(&f);
}

TEST(a_tied_parameter_may_be_there_twice_if_it_is_the_same)
{
    check_tied(t);
}
TEST_RANKS(a_tied_parameter_that_differs_in_one_ranks_rows_is_refused_on_all, 2)
{
    check_tied(t);
}

TEST(a_tied_parameter_is_found_under_its_other_name)
{
    static const char header[] =
        "{\"tied.weight\": {\"dtype\": \"F32\", \"shape\": [3, 2], \"data_offsets\": [0, 24]}, "
        "\"b.weight\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [24, 32]}}";
    char path[300];
    fixture f;
    write_file(t, header, floats, sizeof floats, path);
    open_fixture(t, &f);
    CHECK_HERE();
    ASSERT_OK(load(&f, NULL, path, NULL));
    assert_values(t, &f);
    close_fixture(&f);
}

/* What is wrong is found before anything is written: b comes first in the file, but stays. */
static void assert_refused(fsdp_test *t, const char *header, fsdp_status status, const char *text)
{
    char path[300];
    fixture f;
    write_file(t, header, floats, sizeof floats, path);
    open_fixture(t, &f);
    CHECK_HERE();
    ASSERT_ERROR(load(&f, NULL, path, NULL), status, text);
    ASSERT_F32(*(const float *)fsdp_tensor_data(fsdp_parameter_local(f.b)), 1.0);
    close_fixture(&f);
}

TEST(a_missing_parameter_is_named_with_all_its_names)
{
    assert_refused(
        t, "{\"b.weight\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}}",
        FSDP_ERR_NOT_FOUND, "there is no tensor 'a.weight', nor 'tied.weight'");
}

TEST(a_wrong_shape_is_named_with_both)
{
    assert_refused(t,
                   "{\"b.weight\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, "
                   "\"a.weight\": {\"dtype\": \"F32\", \"shape\": [2, 3], \"data_offsets\": "
                   "[8, 32]}}",
                   FSDP_ERR_FORMAT, "'a.weight' has shape [2, 3], expected [3, 2]");
}

TEST(integers_are_no_parameter)
{
    assert_refused(t,
                   "{\"b.weight\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, "
                   "\"a.weight\": {\"dtype\": \"I32\", \"shape\": [3, 2], \"data_offsets\": "
                   "[8, 32]}}",
                   FSDP_ERR_UNSUPPORTED, "a parameter of int32");
}

TEST(an_unknown_dtype_is_named)
{
    assert_refused(
        t,
        "{\"b.weight\": {\"dtype\": \"F32\", \"shape\": [6], \"data_offsets\": [0, 24]}, "
        "\"a.weight\": {\"dtype\": \"F8_E4M3\", \"shape\": [4, 2], \"data_offsets\": "
        "[24, 32]}}",
        FSDP_ERR_UNSUPPORTED, "F8_E4M3");
}

TEST(a_module_without_memory_is_refused)
{
    char path[300];
    fsdp_module *m;
    fsdp_checkpoint_reader *reader;
    write_file(t, "{\"weight\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}}",
               floats, sizeof floats, path);
    ASSERT_OK(fsdp_norm_create("Norm", 8, (fsdp_init){0}, &m));
    ASSERT_OK(fsdp_checkpoint_open(path, &reader));
    ASSERT_ERROR(fsdp_module_load(m, reader, NULL, NULL), FSDP_ERR_STATE, "no memory");
    fsdp_checkpoint_close(reader);
    fsdp_module_destroy(m);
}
