/* Arrow folders that are written. tools/check_arrow.py shows that datasets.load_from_disk() reads
 * them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io_testing.h"
#include "src/base/str.h"
#include "src/data/arrow/file.h"
#include "src/data/arrow/table.h"
#include "src/data/arrow/write.h"
#include "tests/test.h"

static const char *in_dir(fsdp_test *t, const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), name);
    return path;
}

static const char *const classes[] = {"no", "yes, \"really\""};
static const fsdp_arrow_column columns[] = {
    {.name = "input_ids", .type = FSDP_ARROW_COLUMN_I32_LIST},
    {.name = "text", .type = FSDP_ARROW_COLUMN_TEXT},
    {.name = "mask", .type = FSDP_ARROW_COLUMN_I8_LIST},
    {.name = "label", .type = FSDP_ARROW_COLUMN_I64, .class_names = classes, .n_classes = 2},
    {.name = "score", .type = FSDP_ARROW_COLUMN_F64},
    {.name = "classes", .type = FSDP_ARROW_COLUMN_I64_LIST, .class_names = classes, .n_classes = 2},
    {.name = "numbers", .type = FSDP_ARROW_COLUMN_F32_LIST},
    {.name = "number", .type = FSDP_ARROW_COLUMN_F32}};

enum {
    N_COLUMNS = FSDP_LENGTH(columns)
};

/* Every fifth value of each column is null, at different rows. */
static fsdp_status write_row(fsdp_arrow_writer *w, int i)
{
    int32_t ids[8];
    int8_t mask[8];
    char text[40];
    const size_t n = (size_t)i % 8;
    for (size_t k = 0; k < n; k++) {
        ids[k] = 1000 * i + (int32_t)k - 100;
        mask[k] = (int8_t)(k % 2);
    }
    snprintf(text, sizeof text, "row %d ä\n", i);
    if (i % 5 != 0)
        FSDP_TRY(fsdp_arrow_writer_set_ids(w, 0, ids, n));
    if (i % 5 != 1)
        FSDP_TRY(fsdp_arrow_writer_set_text(w, 1, text, i % 3 ? strlen(text) : 0));
    if (i % 5 != 2)
        FSDP_TRY(fsdp_arrow_writer_set_mask(w, 2, mask, n));
    if (i % 5 != 3)
        FSDP_TRY(fsdp_arrow_writer_set_i64(w, 3, i % 2));
    if (i % 5 != 4)
        FSDP_TRY(fsdp_arrow_writer_set_f64(w, 4, i / 4.0));
    if (i % 5 != 0)
        FSDP_TRY(fsdp_arrow_writer_set_i64s(w, 5, (int64_t[]){0, 1}, n % 3));
    if (i % 5 != 1)
        FSDP_TRY(fsdp_arrow_writer_set_f32s(w, 6, (float[]){0.5f, -1, 3e9f}, n % 4));
    if (i % 5 != 2)
        FSDP_TRY(fsdp_arrow_writer_set_f32(w, 7, (float)-i));
    return fsdp_arrow_writer_end_row(w);
}

/* What write_row() wrote, as JSON. */
static void print_row(int i, char *text, size_t size)
{
    fsdp_text at = {text, size};
    const int n = i % 8;
    fsdp_text_printf(&at, "{\"input_ids\":%s", i % 5 != 0 ? "[" : "null");
    for (int k = 0; i % 5 != 0 && k < n; k++)
        fsdp_text_printf(&at, "%s%d", k ? "," : "", 1000 * i + k - 100);
    fsdp_text_printf(&at, "%s,\"text\":", i % 5 != 0 ? "]" : "");
    if (i % 5 == 1)
        fsdp_text_printf(&at, "null");
    else if (i % 3)
        fsdp_text_printf(&at, "\"row %d ä\\n\"", i);
    else
        fsdp_text_printf(&at, "\"\"");
    fsdp_text_printf(&at, ",\"mask\":%s", i % 5 != 2 ? "[" : "null");
    for (int k = 0; i % 5 != 2 && k < n; k++)
        fsdp_text_printf(&at, "%s%d", k ? "," : "", k % 2);
    fsdp_text_printf(&at, "%s,\"label\":", i % 5 != 2 ? "]" : "");
    if (i % 5 == 3)
        fsdp_text_printf(&at, "null");
    else
        fsdp_text_printf(&at, "%d", i % 2);
    if (i % 5 == 4)
        fsdp_text_printf(&at, ",\"score\":null");
    else
        fsdp_text_printf(&at, ",\"score\":%.*f", i % 4 == 0 ? 1 : i % 2 ? 2 : 1, i / 4.0);
    static const char *const lists[] = {"[]", "[0]", "[0,1]"};
    static const char *const reals[] = {"[]", "[0.5]", "[0.5,-1.0]", "[0.5,-1.0,3000000000.0]"};
    fsdp_text_printf(&at, ",\"classes\":%s", i % 5 != 0 ? lists[n % 3] : "null");
    fsdp_text_printf(&at, ",\"numbers\":%s", i % 5 != 1 ? reals[n % 4] : "null");
    if (i % 5 == 2)
        fsdp_text_printf(&at, ",\"number\":null}");
    else
        fsdp_text_printf(&at, ",\"number\":%d.0}", -i);
}

static fsdp_status write_rows(fsdp_arrow_writer *w, const char *split, int rows)
{
    FSDP_TRY(fsdp_arrow_writer_begin_split(w, split, columns, N_COLUMNS));
    for (int i = 0; i < rows; i++)
        FSDP_TRY(write_row(w, i));
    return FSDP_OK;
}

static void check_rows(fsdp_test *t, const char *path, fsdp_arrow_split split, int rows)
{
    fsdp_arrow_table *table;
    ASSERT_OK(fsdp_arrow_table_open(path, split, &table));
    ASSERT_INT(fsdp_arrow_table_len(table), rows);
    for (int i = 0; i < rows; i++) {
        fsdp_json *doc;
        char expected[600], *found;
        print_row(i, expected, sizeof expected);
        ASSERT_OK(fsdp_arrow_table_row(table, i, &doc));
        ASSERT_OK(fsdp_json_print(doc, FSDP_JSON_COMPACT, &found, NULL));
        ASSERT_STR(found, expected);
        fsdp_free(found);
        fsdp_json_destroy(doc);
    }
    const fsdp_json_node names = fsdp_arrow_table_class_names(table, "label");
    ASSERT_INT(fsdp_json_len(names), 2);
    ASSERT_INT(fsdp_json_len(fsdp_arrow_table_class_names(table, "classes")), 2);
    ASSERT_INT(fsdp_json_len(fsdp_arrow_table_class_names(table, "text")), 0);
    fsdp_arrow_table_close(table);
}

static void read_fingerprint(fsdp_test *t, const char *path, char fingerprint[17])
{
    fsdp_json *state;
    const char *text;
    char *name = fsdp_path_join(path, "state.json");
    ASSERT(name);
    ASSERT_OK(fsdp_json_read(name, &state));
    ASSERT_OK(fsdp_json_get_str(fsdp_json_root(state), "_fingerprint", &text));
    ASSERT_INT(strlen(text), 16);
    strcpy(fingerprint, text);
    fsdp_json_destroy(state);
    fsdp_free(name);
}

/* ---- tests ---- */

TEST(rows_are_read_as_they_were_written)
{
    NEEDS_FLATBUFFERS();
    static const struct {
        int rows;
        fsdp_arrow_write_options options;
        size_t files;
    } cases[] = {{0, {0}, 1},
                 {1, {0}, 1},
                 {2100, {0}, 1},
                 {40, {.batch_rows = 7, .shard_bytes = 1}, 6},
                 {40, {.batch_rows = 1}, 1},
                 {35, {.batch_rows = 7, .shard_bytes = 1}, 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[20];
        fsdp_arrow_writer *writer;
        fsdp_arrow_folder folder;
        snprintf(name, sizeof name, "rows%zu", i);
        ASSERT_OK(fsdp_arrow_writer_begin(in_dir(t, name), FSDP_EXISTING_REFUSE, &cases[i].options,
                                          &writer));
        ASSERT_OK(write_rows(writer, NULL, cases[i].rows));
        ASSERT(!fsdp_path_exists(in_dir(t, name))); /* until it is whole */
        ASSERT_OK(fsdp_arrow_writer_commit(writer));
        check_rows(t, in_dir(t, name), FSDP_ARROW_SPLIT_TRAIN, cases[i].rows);
        CHECK_HERE();
        ASSERT_OK(fsdp_arrow_folder_open(in_dir(t, name), FSDP_ARROW_SPLIT_TRAIN, &folder));
        ASSERT_INT(folder.n_files, cases[i].files);
        fsdp_arrow_folder_fini(&folder);
    }
    char first[17], second[17];
    read_fingerprint(t, in_dir(t, "rows3"), first);
    read_fingerprint(t, in_dir(t, "rows4"), second);
    ASSERT(strcmp(first, second) != 0);
}

TEST(a_dict_has_a_folder_for_each_split)
{
    NEEDS_FLATBUFFERS();
    const char *path = in_dir(t, "dict");
    fsdp_arrow_writer *writer;
    ASSERT_OK(fsdp_arrow_writer_begin(path, FSDP_EXISTING_REFUSE, NULL, &writer));
    ASSERT_OK(write_rows(writer, "train", 12));
    ASSERT_OK(write_rows(writer, "validation", 3));
    ASSERT_ERROR(fsdp_arrow_writer_begin_split(writer, "train", columns, N_COLUMNS),
                 FSDP_ERR_INVALID, "two splits are named 'train'");
    fsdp_arrow_writer_discard(writer);
    ASSERT(!fsdp_path_exists(path));
    ASSERT_OK(fsdp_arrow_writer_begin(path, FSDP_EXISTING_REFUSE, NULL, &writer));
    ASSERT_OK(write_rows(writer, "train", 12));
    ASSERT_OK(write_rows(writer, "validation", 3));
    ASSERT_OK(fsdp_arrow_writer_commit(writer));
    check_rows(t, path, FSDP_ARROW_SPLIT_TRAIN, 12);
    check_rows(t, path, FSDP_ARROW_SPLIT_VALIDATION, 3);
    ASSERT(fsdp_arrow_has_validation(path));
}

/* The old files of the data set go, files of the user stay. */
TEST(a_folder_is_replaced_as_a_whole)
{
    NEEDS_FLATBUFFERS();
    const fsdp_arrow_write_options many = {.batch_rows = 1, .shard_bytes = 1};
    fsdp_arrow_writer *writer;
    ASSERT_OK(fsdp_arrow_writer_begin(in_dir(t, "out"), FSDP_EXISTING_REFUSE, &many, &writer));
    ASSERT_OK(write_rows(writer, NULL, 4));
    ASSERT_OK(fsdp_arrow_writer_commit(writer));
    ASSERT_OK(fsdp_file_write(in_dir(t, "out/notes.txt"), "x", 1));
    ASSERT_ERROR(fsdp_arrow_writer_begin(in_dir(t, "out"), FSDP_EXISTING_REFUSE, NULL, &writer),
                 FSDP_ERR_INVALID, "out");
    ASSERT_OK(fsdp_arrow_writer_begin(in_dir(t, "out"), FSDP_EXISTING_UPDATE, NULL, &writer));
    ASSERT_OK(write_rows(writer, NULL, 2));
    fsdp_arrow_writer_discard(writer);
    check_rows(t, in_dir(t, "out"), FSDP_ARROW_SPLIT_TRAIN, 4);
    CHECK_HERE();
    ASSERT_OK(fsdp_arrow_writer_begin(in_dir(t, "out"), FSDP_EXISTING_UPDATE, NULL, &writer));
    ASSERT_OK(write_rows(writer, NULL, 2));
    ASSERT_OK(fsdp_arrow_writer_commit(writer));
    check_rows(t, in_dir(t, "out"), FSDP_ARROW_SPLIT_TRAIN, 2);
    ASSERT(fsdp_path_is_file(in_dir(t, "out/data-00000-of-00001.arrow")));
    ASSERT(!fsdp_path_exists(in_dir(t, "out/data-00003-of-00004.arrow")));
    ASSERT(fsdp_path_is_file(in_dir(t, "out/notes.txt")));
}

TEST(wrong_use_of_the_writer_is_an_error)
{
    NEEDS_FLATBUFFERS();
    static const fsdp_arrow_column twins[] = {{.name = "a"}, {.name = "a"}};
    const int32_t ids[] = {1, 2};
    fsdp_arrow_writer *writer;
    ASSERT_OK(fsdp_arrow_writer_begin(in_dir(t, "out"), FSDP_EXISTING_REFUSE, NULL, &writer));
    ASSERT_ERROR(fsdp_arrow_writer_end_row(writer), FSDP_ERR_INVALID, "a row without a split");
    ASSERT_ERROR(fsdp_arrow_writer_begin_split(writer, NULL, twins, 2), FSDP_ERR_INVALID,
                 "two columns are named 'a'");
    ASSERT_ERROR(fsdp_arrow_writer_begin_split(writer, NULL, twins, 0), FSDP_ERR_INVALID,
                 "without columns");
    ASSERT_ERROR(fsdp_arrow_writer_begin_split(writer, "../up", columns, N_COLUMNS),
                 FSDP_ERR_INVALID, "cannot be the name of a split");
    ASSERT_OK(fsdp_arrow_writer_begin_split(writer, NULL, columns, N_COLUMNS));
    ASSERT_ERROR(fsdp_arrow_writer_set_ids(writer, 8, ids, 2), FSDP_ERR_INVALID, "column 8 of 8");
    ASSERT_ERROR(fsdp_arrow_writer_set_ids(writer, 1, ids, 2), FSDP_ERR_INVALID,
                 "column 1: a value of another type");
    ASSERT_ERROR(fsdp_arrow_writer_set_text(writer, 1, "\xff", 1), FSDP_ERR_INVALID, "not UTF-8");
    ASSERT_OK(fsdp_arrow_writer_set_ids(writer, 0, ids, 2));
    ASSERT_ERROR(fsdp_arrow_writer_set_ids(writer, 0, ids, 2), FSDP_ERR_INVALID, "a second value");
    ASSERT_ERROR(fsdp_arrow_writer_begin_split(writer, "b", columns, N_COLUMNS), FSDP_ERR_INVALID,
                 "a second split without a name");
    fsdp_arrow_writer_discard(writer);
    ASSERT_OK(fsdp_arrow_writer_begin(in_dir(t, "out"), FSDP_EXISTING_REFUSE, NULL, &writer));
    ASSERT_ERROR(fsdp_arrow_writer_commit(writer), FSDP_ERR_INVALID, "without a split");
    ASSERT(!fsdp_path_exists(in_dir(t, "out")));
}

/* A batch of long rows is written before it has as many rows as asked for, so memory is bounded. */
TEST(long_rows_make_short_batches)
{
    NEEDS_FLATBUFFERS();
    enum {
        LONG = 5 << 20 /* ids of a row, 20 MiB */
    };
    const fsdp_arrow_column column = {.name = "input_ids", .type = FSDP_ARROW_COLUMN_I32_LIST};
    fsdp_arrow_writer *writer;
    fsdp_arrow_file *file;
    int32_t *ids = fsdp_calloc(LONG, sizeof *ids);
    ASSERT(ids);
    ASSERT_OK(fsdp_arrow_writer_begin(in_dir(t, "out"), FSDP_EXISTING_REFUSE, NULL, &writer));
    ASSERT_OK(fsdp_arrow_writer_begin_split(writer, NULL, &column, 1));
    for (int i = 0; i < 5; i++) {
        ASSERT_OK(fsdp_arrow_writer_set_ids(writer, 0, ids, LONG));
        ASSERT_OK(fsdp_arrow_writer_end_row(writer));
    }
    ASSERT_OK(fsdp_arrow_writer_commit(writer));
    fsdp_free(ids);
    ASSERT_OK(fsdp_arrow_file_open(in_dir(t, "out/data-00000-of-00001.arrow"), &file));
    int64_t first;
    ASSERT_INT(fsdp_arrow_file_find(file, 3, &first), 0); /* four rows have 80 MiB */
    ASSERT_INT(fsdp_arrow_file_find(file, 4, &first), 1);
    ASSERT_INT(first, 4);
    fsdp_arrow_file_close(file);
}

static fsdp_status write_all(const char *path)
{
    const fsdp_arrow_write_options options = {.batch_rows = 3, .shard_bytes = 1};
    fsdp_arrow_writer *writer;
    FSDP_TRY(fsdp_arrow_writer_begin(path, FSDP_EXISTING_REFUSE, &options, &writer));
    const fsdp_status status = write_rows(writer, "train", 5);
    if (status == FSDP_OK)
        return fsdp_arrow_writer_commit(writer);
    fsdp_arrow_writer_discard(writer);
    return status;
}

TEST(a_failed_write_leaves_nothing_behind)
{
    NEEDS_FLATBUFFERS();
    fsdp_status status = FSDP_ERR_NOMEM;
    char **names;
    size_t n_names;
    for (long n = 1; status == FSDP_ERR_NOMEM; n++) {
        fsdp_alloc_fail_at(n);
        status = write_all(in_dir(t, "out"));
        fsdp_alloc_fail_at(0);
        ASSERT_OK(fsdp_directory_list(fsdp_test_dir(t), &names, &n_names));
        ASSERT_INT(n_names, status == FSDP_OK);
        fsdp_free(names);
        ASSERT(n < 10000);
    }
    ASSERT_OK(status);
    check_rows(t, in_dir(t, "out"), FSDP_ARROW_SPLIT_TRAIN, 5);
    CHECK_HERE();
    status = FSDP_ERR_IO;
    for (long n = 1; status == FSDP_ERR_IO; n++) {
        fsdp_io_fail_at(FSDP_IO_WRITE, n, ENOSPC);
        status = write_all(in_dir(t, "second"));
        fsdp_io_fail_at(FSDP_IO_WRITE, 0, 0);
        ASSERT_OK(fsdp_directory_list(fsdp_test_dir(t), &names, &n_names));
        ASSERT_INT(n_names, 1 + (status == FSDP_OK));
        fsdp_free(names);
        ASSERT(n < 1000);
    }
    ASSERT_OK(status);
}
