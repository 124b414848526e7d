/* Files written as torch.save writes them: containers are compared byte for byte, values after
 * reading them back. torch.load was tested by hand (weights_only=True, mmap=True; torch 2.15). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/ckpt.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/torchfile/torch_archive.h"
#include "src/torchfile/torch_file.h"
#include "src/torchfile/torch_writer.h"
#include "src/torchfile/zip_reader.h"
#include "src/torchfile/zip_writer.h"
#include "tests/test.h"
#include "tests/torchfile/torch_fixture.h"

static const char *scratch(fsdp_test *t)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/out.pt", fsdp_test_dir(t));
    return path;
}

/* ---- containers ------------------------------------------------------------------------------ */

static bool write_records(const fsdp_zip_reader *zip, const char *const *names, size_t n,
                          fsdp_zip_writer *w)
{
    for (size_t i = 0; i < n; i++) {
        const fsdp_zip_record *record = fsdp_zip_reader_find(zip, names[i]);
        if (!record || fsdp_zip_writer_put(w, names[i], record->data, record->bytes) != FSDP_OK)
            return false;
    }
    return fsdp_zip_writer_finish(w) == FSDP_OK;
}

/* Write torch's records again. The storages hold 24, 2304 and 0 bytes, among others. */
TEST(containers_are_those_of_torch_byte_for_byte)
{
    static const char *const names[] = {"data.pkl",  ".format_version", ".storage_alignment",
                                        "byteorder", "data/0",          "data/1",
                                        "data/2",    "data/3",          "data/4",
                                        "data/5",    "version",         ".data/serialization_id"};
    torch_bytes file = torch_fixture_bytes(t, "strides.pt");
    fsdp_zip_reader *zip;
    fsdp_atomic_file *out;
    fsdp_zip_writer *w;
    char *again;
    size_t bytes;
    CHECK_HERE();
    ASSERT_OK(fsdp_zip_reader_create("f", file.data, file.bytes, &zip));
    ASSERT_INT(fsdp_zip_reader_count(zip), FSDP_LENGTH(names));
    ASSERT_OK(fsdp_atomic_file_begin(scratch(t), 0, &out));
    ASSERT_OK(fsdp_zip_writer_create(out, "strides", &w));
    ASSERT(write_records(zip, names, FSDP_LENGTH(names), w));
    ASSERT_OK(fsdp_atomic_file_commit(out));
    ASSERT_OK(fsdp_file_read(scratch(t), 1 << 20, &again, &bytes));
    ASSERT_INT(bytes, file.bytes);
    ASSERT(memcmp(again, file.data, bytes) == 0);
    fsdp_zip_writer_destroy(w);
    fsdp_zip_reader_destroy(zip);
    fsdp_free(again);
    fsdp_free(file.data);
}

/* ---- state dicts ----------------------------------------------------------------------------- */

typedef struct tensor {
    const char *name, *dtype;
    int64_t shape[3];
    int ndim;
    size_t bytes;
} tensor;

static const tensor tensors[] = {
    {"first", "F32", {2, 3}, 2, 24},  {"empty", "BF16", {0, 4}, 2, 0},
    {"scalar", "F64", {0}, 0, 8},     {"bool", "BOOL", {3}, 1, 3},
    {"float8", "F8_E4M3", {5}, 1, 5}, {"uint16", "U16", {1, 1, 2}, 3, 4},
    {"long", "I64", {2}, 1, 16},      {"last, empty", "F16", {0}, 1, 0},
};

/* Byte `i` of all data. */
static char byte_at(size_t i)
{
    return (char)(unsigned char)(7 * i + 1);
}

static fsdp_status write_tensor_items(fsdp_torch_writer *w)
{
    size_t number = 0;
    fsdp_pickle_writer *pickle = fsdp_torch_writer_pickle(w);
    fsdp_pickle_begin(pickle, FSDP_PICKLE_DICT);
    for (size_t i = 0; i < FSDP_LENGTH(tensors); i++) {
        fsdp_pickle_put_str(pickle, tensors[i].name);
        FSDP_TRY(fsdp_torch_writer_tensor(w, tensors[i].dtype, tensors[i].shape, tensors[i].ndim,
                                          &number));
    }
    fsdp_pickle_put_str(pickle, "tied");
    fsdp_torch_writer_tied(w, 0);
    fsdp_pickle_end(pickle);
    return fsdp_torch_writer_begin_data(w);
}

/* `n` bytes of data, in pieces. */
static fsdp_status give_data(fsdp_torch_writer *w, size_t n, size_t piece)
{
    char data[64];
    for (size_t at = 0; at < n; at += piece) {
        size_t bytes = n - at < piece ? n - at : piece;
        for (size_t i = 0; i < bytes; i++)
            data[i] = byte_at(at + i);
        FSDP_TRY(fsdp_torch_writer_data(w, data, bytes));
    }
    return FSDP_OK;
}

enum {
    ALL_BYTES = 24 + 8 + 3 + 5 + 4 + 16
};

static void check_tensors(fsdp_test *t, const fsdp_torch_file *file)
{
    size_t at = 0;
    ASSERT_INT(fsdp_torch_file_count(file), FSDP_LENGTH(tensors) + 1);
    for (size_t i = 0; i < FSDP_LENGTH(tensors); i++) {
        const fsdp_checkpoint_entry *entry = fsdp_torch_file_find(file, tensors[i].name);
        ASSERT(entry != NULL);
        ASSERT_STR(entry->dtype_name, tensors[i].dtype);
        ASSERT_OK(fsdp_checkpoint_entry_check_shape(entry, tensors[i].shape, tensors[i].ndim));
        ASSERT_INT(entry->bytes, tensors[i].bytes);
        for (size_t k = 0; k < entry->bytes; k++, at++)
            ASSERT_INT(((const char *)entry->data)[k], byte_at(at));
    }
    ASSERT(fsdp_torch_file_find(file, "tied")->data == fsdp_torch_file_find(file, "first")->data);
}

TEST(state_dicts_are_read_back_whatever_the_pieces)
{
    static const size_t pieces[] = {1, 7, ALL_BYTES};
    for (size_t i = 0; i < FSDP_LENGTH(pieces); i++) {
        fsdp_torch_writer *w;
        fsdp_torch_file *file;
        ASSERT_OK(fsdp_torch_writer_create(scratch(t), &w));
        ASSERT_OK(write_tensor_items(w));
        ASSERT_OK(give_data(w, ALL_BYTES, pieces[i]));
        ASSERT(!fsdp_path_is_file(scratch(t)) || i > 0);
        ASSERT_OK(fsdp_torch_writer_finish(w));
        ASSERT_OK(fsdp_torch_file_open(scratch(t), &file));
        check_tensors(t, file);
        fsdp_torch_file_close(file);
        CHECK_HERE();
    }
}

/* A record and offsets beyond 4 GiB, in a file of holes. */
TEST(archives_beyond_4_GiB_are_zip64)
{
    enum {
        PIECE = 64 << 20
    };
    static const int64_t big = ((int64_t)4 << 30) + 100;
    const char tail[] = "12345678";
    fsdp_torch_writer *w;
    fsdp_torch_file *file;
    size_t numbers[2];
    if (UNDER_SANITIZER)
        SKIP("4 GiB of zeros take too long");
    char *zeros = calloc(PIECE, 1);
    ASSERT_OK(fsdp_torch_writer_create(scratch(t), &w));
    fsdp_torch_writer_keep_holes(w);
    fsdp_pickle_writer *pickle = fsdp_torch_writer_pickle(w);
    fsdp_pickle_begin(pickle, FSDP_PICKLE_DICT);
    fsdp_pickle_put_str(pickle, "big");
    ASSERT_OK(fsdp_torch_writer_tensor(w, "U8", &big, 1, &numbers[0]));
    fsdp_pickle_put_str(pickle, "far");
    ASSERT_OK(fsdp_torch_writer_tensor(w, "I64", (int64_t[]){1}, 1, &numbers[1]));
    fsdp_pickle_end(pickle);
    ASSERT_OK(fsdp_torch_writer_begin_data(w));
    for (int64_t at = 0; at < big; at += PIECE)
        ASSERT_OK(fsdp_torch_writer_data(w, zeros, (size_t)(big - at < PIECE ? big - at : PIECE)));
    ASSERT_OK(fsdp_torch_writer_data(w, tail, 8));
    free(zeros);
    if (fsdp_torch_writer_finish(w) != FSDP_OK)
        SKIP("the file system has no files of 4 GiB");
    ASSERT(fsdp_path_is_sparse(scratch(t)));
    ASSERT_OK(fsdp_torch_file_open(scratch(t), &file));
    const fsdp_checkpoint_entry *entry = fsdp_torch_file_find(file, "big");
    ASSERT(entry && entry->bytes == (size_t)big && ((const char *)entry->data)[big - 1] == 0);
    entry = fsdp_torch_file_find(file, "far");
    ASSERT(entry && memcmp(entry->data, tail, 8) == 0);
    fsdp_torch_file_close(file);
}

TEST(data_that_lack_or_are_too_many_leave_no_file)
{
    fsdp_torch_writer *w;
    char **names;
    size_t count;
    ASSERT_OK(fsdp_torch_writer_create(scratch(t), &w));
    ASSERT_OK(write_tensor_items(w));
    ASSERT_OK(give_data(w, ALL_BYTES - 20, 5));
    ASSERT_ERROR(fsdp_torch_writer_finish(w), FSDP_ERR_STATE,
                 "out.pt: tensor 5 of 8 lacks 4 bytes");
    ASSERT_OK(fsdp_torch_writer_create(scratch(t), &w));
    ASSERT_OK(write_tensor_items(w));
    ASSERT_OK(give_data(w, ALL_BYTES, 5));
    ASSERT_ERROR(fsdp_torch_writer_data(w, "x", 1), FSDP_ERR_STATE,
                 "out.pt: 1 bytes more than all tensors have");
    fsdp_torch_writer_discard(w);
    ASSERT_OK(fsdp_torch_writer_create(scratch(t), &w));
    ASSERT_ERROR(fsdp_torch_writer_finish(w), FSDP_ERR_STATE, "tensor 0 of 0 lacks 0 bytes");
    ASSERT_OK(fsdp_directory_list(fsdp_test_dir(t), &names, &count));
    ASSERT_INT(count, 0);
    fsdp_free(names);
    ASSERT_ERROR(fsdp_torch_writer_create("/nowhere/out.pt", &w), FSDP_ERR_NOT_FOUND, "/nowhere/");
}

TEST(tensors_that_torch_has_not_are_refused)
{
    fsdp_torch_writer *w;
    size_t number = 9;
    ASSERT_OK(fsdp_torch_writer_create(scratch(t), &w));
    ASSERT_ERROR(fsdp_torch_writer_tensor(w, "F6_E2M3", (int64_t[]){4}, 1, &number),
                 FSDP_ERR_UNSUPPORTED, "out.pt: tensor 0: torch has no dtype F6_E2M3");
    ASSERT_ERROR(fsdp_torch_writer_tensor(w, "F31", (int64_t[]){4}, 1, &number),
                 FSDP_ERR_UNSUPPORTED, "torch has no dtype F31");
    ASSERT_ERROR(fsdp_torch_writer_tensor(w, "F32", (int64_t[]){1LL << 40, 1LL << 40}, 2, &number),
                 FSDP_ERR_INVALID, "more elements than a file can hold");
    ASSERT_INT(number, 9);
    fsdp_torch_writer_discard(w);
}

/* ---- optimizers ------------------------------------------------------------------------------ */

/* {"state": {0: {"step": tensor}}, "param_groups": [{"lr", "betas", ...}]} */
static fsdp_status write_optimizer_items(fsdp_torch_writer *w)
{
    size_t number;
    fsdp_pickle_writer *p = fsdp_torch_writer_pickle(w);
    fsdp_pickle_begin(p, FSDP_PICKLE_DICT);
    fsdp_pickle_put_str(p, "state");
    fsdp_pickle_begin(p, FSDP_PICKLE_DICT);
    fsdp_pickle_put_int(p, 0);
    fsdp_pickle_begin(p, FSDP_PICKLE_DICT);
    fsdp_pickle_put_str(p, "step");
    FSDP_TRY(fsdp_torch_writer_tensor(w, "F32", NULL, 0, &number));
    fsdp_pickle_end(p);
    fsdp_pickle_end(p);
    fsdp_pickle_put_str(p, "param_groups");
    fsdp_pickle_begin(p, FSDP_PICKLE_LIST);
    fsdp_pickle_begin(p, FSDP_PICKLE_DICT);
    fsdp_pickle_put_str(p, "lr");
    fsdp_pickle_put_float(p, 0.1);
    fsdp_pickle_put_str(p, "foreach");
    fsdp_pickle_put_none(p);
    fsdp_pickle_put_str(p, "amsgrad");
    fsdp_pickle_put_bool(p, true);
    fsdp_pickle_put_str(p, "ints");
    fsdp_pickle_put_ints(p,
                         (int64_t[]){0, 255, 256, 65535, 65536, -1, INT32_MIN, 1LL << 31,
                                     INT32_MIN - 1LL, INT64_MAX, INT64_MIN},
                         11);
    fsdp_pickle_end(p);
    fsdp_pickle_end(p);
    fsdp_pickle_end(p);
    return fsdp_torch_writer_begin_data(w);
}

static void check_optimizer(fsdp_test *t, fsdp_torch_archive *archive)
{
    static const int64_t ints[] = {
        0, 255, 256, 65535, 65536, -1, INT32_MIN, 1LL << 31, INT32_MIN - 1LL, INT64_MAX, INT64_MIN};
    const fsdp_pickle_value *root = fsdp_torch_archive_root(archive);
    const fsdp_pickle_value *state = fsdp_pickle_find(root, "state");
    ASSERT(fsdp_pickle_is(state, FSDP_PICKLE_DICT) && state->list.n == 2);
    ASSERT(fsdp_pickle_is(state->list.items[0], FSDP_PICKLE_INT));
    fsdp_checkpoint_entry entry;
    ASSERT_OK(fsdp_torch_archive_tensor(archive, fsdp_pickle_find(state->list.items[1], "step"),
                                        "step", &entry));
    ASSERT(entry.ndim == 0 && entry.bytes == 4 && memcmp(entry.data, "\0\0\x80?", 4) == 0);
    const fsdp_pickle_value *group = fsdp_pickle_at(fsdp_pickle_find(root, "param_groups"), 0);
    ASSERT(fsdp_pickle_find(group, "lr")->number == 0.1);
    ASSERT(fsdp_pickle_is(fsdp_pickle_find(group, "foreach"), FSDP_PICKLE_NONE));
    ASSERT(fsdp_pickle_find(group, "amsgrad")->boolean);
    for (size_t i = 0; i < FSDP_LENGTH(ints); i++)
        ASSERT_INT(fsdp_pickle_at(fsdp_pickle_find(group, "ints"), i)->integer, ints[i]);
}

TEST(nested_values_are_read_back)
{
    fsdp_torch_writer *w;
    fsdp_torch_archive *archive;
    char *text;
    size_t bytes;
    ASSERT_OK(fsdp_torch_writer_create(scratch(t), &w));
    ASSERT_OK(write_optimizer_items(w));
    ASSERT_OK(fsdp_torch_writer_data(w, "\0\0\x80?", 4));
    ASSERT_OK(fsdp_torch_writer_finish(w));
    ASSERT_OK(fsdp_file_read(scratch(t), 1 << 20, &text, &bytes));
    ASSERT_OK(fsdp_torch_archive_create("f", (const unsigned char *)text, bytes, &archive));
    check_optimizer(t, archive);
    fsdp_torch_archive_destroy(archive);
    fsdp_free(text);
}

/* A value that is nested as deeply as the reader allows, with an innermost value that opens a
 * container in the writer: an empty list, and a bytes object, which is written as a call. */
TEST(the_deepest_nesting_that_is_read_is_written)
{
    fsdp_pickle_value levels[FSDP_PICKLE_MAX_DEPTH + 1] = {0};
    fsdp_pickle_value *items[FSDP_PICKLE_MAX_DEPTH];
    for (int i = 0; i < FSDP_PICKLE_MAX_DEPTH; i++) {
        items[i] = &levels[i + 1];
        levels[i].kind = FSDP_PICKLE_LIST;
        levels[i].depth = (uint16_t)(FSDP_PICKLE_MAX_DEPTH - i);
        levels[i].list.items = &items[i];
        levels[i].list.n = 1;
    }
    fsdp_pickle_value *innermost = &levels[FSDP_PICKLE_MAX_DEPTH];
    for (int i = 0; i < 2; i++) {
        fsdp_pickle_writer w = {0};
        size_t bytes;
        innermost->kind = i == 0 ? FSDP_PICKLE_LIST : FSDP_PICKLE_BYTES;
        innermost->text.data = "x";
        innermost->text.bytes = i == 0 ? 0 : 1; /* for a list, this is the number of items */
        ASSERT_OK(fsdp_pickle_put_value(&w, &levels[0]));
        char *text = fsdp_pickle_take(&w, &bytes);
        ASSERT(text);
        ASSERT(bytes > 2 * FSDP_PICKLE_MAX_DEPTH);
        fsdp_free(text);
    }
}

TEST(running_out_of_memory_is_an_error_and_leaves_no_file)
{
    for (long n = 1; n < 300; n++) {
        fsdp_torch_writer *w = NULL;
        fsdp_alloc_fail_at(n);
        fsdp_status status = fsdp_torch_writer_create(scratch(t), &w);
        if (status == FSDP_OK) {
            status = write_tensor_items(w);
            if (status == FSDP_OK)
                status = give_data(w, ALL_BYTES, 64);
            if (status == FSDP_OK)
                status = fsdp_torch_writer_finish(w);
            else
                fsdp_torch_writer_discard(w);
        }
        fsdp_alloc_fail_at(0);
        ASSERT(fsdp_path_is_file(scratch(t)) == (status == FSDP_OK));
        if (status == FSDP_OK) {
            ASSERT(n > 20);
            return;
        }
        ASSERT_INT(status, FSDP_ERR_NOMEM);
    }
    FAIL("it never succeeds");
}
