/* Arrow files: every type, compression and format, as pyarrow and datasets wrote them
 * (tests/fixtures/arrow/make_arrow.py, which also wrote the expected rows), and files that are
 * damaged, or are of another kind. */
#include <fsdp/data.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/io.h"
#include "src/data/arrow/decompress.h"
#include "src/data/arrow/table.h"
#include "tests/test.h"

static const char *fixture(const char *name)
{
    static char path[600];
    char relative[200];
    snprintf(relative, sizeof relative, "fixtures/arrow/%s", name);
    snprintf(path, sizeof path, "%s", fsdp_test_path(relative));
    return path;
}

/* The rows of a table must be the lines of the file `expected`. */
static void check_rows(fsdp_test *t, const char *name, const char *expected)
{
    fsdp_arrow_table *table;
    char *lines, *row;
    size_t bytes;
    ASSERT_OK(fsdp_file_read(fixture(expected), 1 << 20, &lines, &bytes));
    ASSERT_OK(fsdp_arrow_table_open(fixture(name), FSDP_ARROW_SPLIT_TRAIN, &table));
    char *line = lines;
    int64_t n = 0;
    for (char *end; (end = strchr(line, '\n')); line = end + 1, n++) {
        fsdp_json *doc;
        *end = 0;
        ASSERT(n < fsdp_arrow_table_len(table));
        ASSERT_OK(fsdp_arrow_table_row(table, n, &doc));
        ASSERT_OK(fsdp_json_print(doc, FSDP_JSON_COMPACT, &row, NULL));
        ASSERT_STR(row, line);
        fsdp_free(row);
        fsdp_json_destroy(doc);
    }
    ASSERT_INT(fsdp_arrow_table_len(table), n);
    ASSERT(n > 0);
    fsdp_arrow_table_close(table);
    fsdp_free(lines);
}

/* A stream, the file format, and a stream as Arrow before 0.15 wrote it, with empty batches, and
 * with offsets that do not begin at 0. */
TEST(values_of_every_type_are_read)
{
    NEEDS_FLATBUFFERS();
    static const char *const names[] = {"types.arrow", "types_file.arrow", "types_old.arrow"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_rows(t, names[i], "types.jsonl");
        CHECK_HERE();
    }
    check_rows(t, "views.arrow", "views.jsonl");
}

TEST(columns_of_other_types_are_left_out_and_named)
{
    NEEDS_FLATBUFFERS();
    fsdp_arrow_table *table;
    ASSERT_OK(fsdp_arrow_table_open(fixture("types.arrow"), FSDP_ARROW_SPLIT_TRAIN, &table));
    ASSERT_STR(fsdp_arrow_table_left_out(table),
               "'when' (timestamp), 'bytes' (binary), 'price' (decimal), 'pairs' (map)");
    ASSERT(fsdp_arrow_table_has(table, "text"));
    ASSERT(!fsdp_arrow_table_has(table, "when"));
    ASSERT(!fsdp_arrow_table_has(table, "other"));
    fsdp_arrow_table_close(table);
}

/* In types_lz4.arrow, most buffers are stored as they are, since they are short. */
TEST(bodies_compressed_with_lz4_are_read)
{
    NEEDS_FLATBUFFERS();
#ifndef FSDP_HAVE_LZ4
    SKIP("built without lz4");
#endif
    check_rows(t, "types_lz4.arrow", "types.jsonl");
    CHECK_HERE();
    check_rows(t, "compressed_lz4.arrow", "compressed.jsonl");
}

TEST(bodies_compressed_with_zstd_are_read)
{
    NEEDS_FLATBUFFERS();
#ifndef FSDP_HAVE_ZSTD
    SKIP("built without zstd");
#endif
    check_rows(t, "types_zstd.arrow", "types.jsonl");
    CHECK_HERE();
    check_rows(t, "compressed_zstd.arrow", "compressed.jsonl");
}

/* Dictionaries that the next batch replaces, inside of lists as well; and dictionaries that grow.
 */
TEST(texts_in_dictionaries_are_read)
{
    NEEDS_FLATBUFFERS();
    check_rows(t, "dictionary.arrow", "dictionary.jsonl");
    CHECK_HERE();
    check_rows(t, "delta.arrow", "delta.jsonl");
    CHECK_HERE();
    check_rows(t, "delta_list.arrow", "delta_list.jsonl");
    CHECK_HERE();
    check_rows(t, "dictionary_nested.arrow", "dictionary_nested.jsonl");
}

/* The column type Json of datasets: texts with JSON in them, which become values. */
TEST(texts_of_the_type_json_become_values)
{
    NEEDS_FLATBUFFERS();
    check_rows(t, "json.arrow", "json.jsonl");
}

/* A buffer may claim any length, and a compressed text may have any length. */
TEST(compressed_buffers_have_the_length_that_they_say)
{
    static const fsdp_arrow_codec codecs[] = {FSDP_ARROW_LZ4_FRAME, FSDP_ARROW_ZSTD};
    unsigned char bytes[24] = {0};
    fsdp_arrow_buffer out;
    void *owned;
    for (size_t i = 0; i < 2; i++) {
        ASSERT_OK(fsdp_arrow_decompress(codecs[i], (fsdp_arrow_buffer){0}, 100, &out, &owned));
        ASSERT_INT(out.bytes, 0);
        memset(bytes, 255, 8); /* -1: the contents are stored as they are */
        ASSERT_OK(
            fsdp_arrow_decompress(codecs[i], (fsdp_arrow_buffer){bytes, 11}, 100, &out, &owned));
        ASSERT_INT(out.bytes, 3);
        ASSERT(out.data == bytes + 8 && !owned);
        ASSERT_ERROR(
            fsdp_arrow_decompress(codecs[i], (fsdp_arrow_buffer){bytes, 7}, 100, &out, &owned),
            FSDP_ERR_FORMAT, "too short");
        memset(bytes, 0, 8);
        bytes[0] = 101;
        ASSERT_ERROR(
            fsdp_arrow_decompress(codecs[i], (fsdp_arrow_buffer){bytes, 24}, 100, &out, &owned),
            FSDP_ERR_FORMAT, "a compressed buffer of 16 bytes with 101 bytes");
        bytes[7] = 128; /* negative */
        ASSERT_ERROR(
            fsdp_arrow_decompress(codecs[i], (fsdp_arrow_buffer){bytes, 24}, 1000, &out, &owned),
            FSDP_ERR_FORMAT, "a compressed buffer");
    }
#ifdef FSDP_HAVE_LZ4
    /* 40 times "a", as pyarrow.compress(b'a' * 40, 'lz4') has it, behind the length. */
    unsigned char lz4[] = {40, 0, 0,  0,  0, 0, 0,  0,  4,  34, 77, 24, 96, 64, 130, 11, 0,
                           0,  0, 31, 97, 1, 0, 15, 80, 97, 97, 97, 97, 97, 0,  0,   0,  0};
    const fsdp_arrow_buffer whole = {lz4, sizeof lz4};
    ASSERT_OK(fsdp_arrow_decompress(FSDP_ARROW_LZ4_FRAME, whole, 100, &out, &owned));
    ASSERT_INT(out.bytes, 40);
    for (size_t i = 0; i < out.bytes; i++)
        ASSERT_INT(out.data[i], 'a');
    fsdp_free(owned);
    for (unsigned char n = 39; n <= 41; n += 2) {
        lz4[0] = n;
        ASSERT_ERROR(fsdp_arrow_decompress(FSDP_ARROW_LZ4_FRAME, whole, 100, &out, &owned),
                     FSDP_ERR_FORMAT, "LZ4: the contents do not have the length");
    }
#endif
}

/* ---- damaged files ---- */

/* Written without sync, since some tests write hundreds of files. */
static const char *write_bytes(fsdp_test *t, const char *name, const void *data, size_t bytes)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), name);
    FILE *file = fopen(path, "wb");
    const bool written = file && fwrite(data, 1, bytes, file) == bytes;
    if (!file || fclose(file) != 0 || !written)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s cannot be written", path);
    return path;
}

/* Read all rows of a file. */
static fsdp_status read_all(const char *path)
{
    fsdp_arrow_table *table;
    FSDP_TRY(fsdp_arrow_table_open(path, FSDP_ARROW_SPLIT_TRAIN, &table));
    fsdp_status status = FSDP_OK;
    for (int64_t i = 0; status == FSDP_OK && i < fsdp_arrow_table_len(table); i++) {
        fsdp_json *doc;
        status = fsdp_arrow_table_row(table, i, &doc);
        if (status == FSDP_OK)
            fsdp_json_destroy(doc);
    }
    fsdp_arrow_table_close(table);
    return status;
}

/* A stream may end without its marker, but only at the end of a batch. */
TEST(a_truncated_file_is_an_error)
{
    NEEDS_FLATBUFFERS();
    fsdp_mapping file;
    const char *path;
    size_t whole = 0;
    ASSERT_OK(fsdp_file_map(fixture("delta.arrow"), &file));
    for (size_t n = 1; n < file.bytes; n++) {
        path = write_bytes(t, "a.arrow", file.data, n);
        CHECK_HERE();
        const fsdp_status status = read_all(path);
        whole += status == FSDP_OK;
        if (status != FSDP_OK &&
            (status != FSDP_ERR_FORMAT || !strstr(fsdp_last_error(), "a.arrow: ")))
            FAIL("%zu bytes: %s", n, fsdp_last_error());
    }
    /* After the schema, and after each of three batches and three dictionary batches; the last
     * four bytes of the marker may be missing, as they are zeros. */
    ASSERT_INT(whole, 7);
    ASSERT_ERROR(read_all(write_bytes(t, "a.arrow", file.data, file.bytes - 12)), FSDP_ERR_FORMAT,
                 "truncated: a body of");
    fsdp_file_unmap(&file);
    ASSERT_OK(fsdp_file_map(fixture("types_file.arrow"), &file));
    path = write_bytes(t, "b.arrow", file.data, file.bytes - 1);
    ASSERT_ERROR(read_all(path), FSDP_ERR_FORMAT,
                 "b.arrow: truncated: it begins like an Arrow file");
    fsdp_file_unmap(&file);
}

/* Return the offset of the `n`-th place, from 0, where `pattern` [bytes] is in a file. */
static size_t find_bytes(const fsdp_mapping *file, const void *pattern, size_t bytes, int n)
{
    for (size_t at = 0; at + bytes <= file->bytes; at++)
        if (memcmp(file->data + at, pattern, bytes) == 0 && n-- == 0)
            return at;
    return SIZE_MAX;
}

/* Each case replaces the bytes `from` of a file by `to`. */
TEST(an_offset_outside_its_buffer_is_an_error_with_row_and_column)
{
    NEEDS_FLATBUFFERS();
#define BYTES(...)                                                                                 \
    (const unsigned char[]){__VA_ARGS__}, sizeof((const unsigned char[]){__VA_ARGS__})
    const struct {
        const char *file;
        const unsigned char *from;
        size_t from_bytes;
        const unsigned char *to;
        size_t to_bytes;
        const char *message;
    } cases[] = {
        /* The offsets of the first list: 0, 3, 3. */
        {"types.arrow", BYTES(0, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0), BYTES(0, 0, 0, 0, 4),
         "row 0: batch 0, row 0 of it: column 'list': a list of entries 0 to 4 of 3"},
        {"types.arrow", BYTES(0, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0), BYTES(255, 255, 255, 255),
         "column 'list': a list of entries -1 to 3 of 3"},
        {"types.arrow", BYTES(0, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0), BYTES(0, 0, 0, 0, 3, 0, 0, 0, 2),
         "row 1: batch 0, row 1 of it: column 'list': a list of entries 3 to 2 of 3"},
        /* Those of the first large list. */
        {"types.arrow", BYTES(0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3),
         BYTES(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 127),
         "column 'large_list': a list of entries 0 to 9151314442816847872 of 3"},
        /* Those of the texts "" and "ä €😀", which has 10 bytes. */
        {"types.arrow", BYTES(0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0),
         BYTES(0, 0, 0, 0, 0, 0, 0, 0, 99),
         "row 1: batch 0, row 1 of it: column 'text': a text from byte 0 to byte 99 of a buffer of "
         "47"
         " bytes"},
        {"types.arrow", BYTES(0xc3, 0xa4, ' '), BYTES(0xc3, 0xc3),
         "column 'text': not UTF-8: byte 0xc3 at byte 0 of the text"},
        /* A view of 24 bytes in data buffer 0, at offset 0. */
        {"views.arrow", BYTES(24, 0, 0, 0, 'l', 'o', 'n', 'g', 0, 0, 0, 0),
         BYTES(24, 0, 0, 0, 'l', 'o', 'n', 'g', 9),
         "row 3: batch 0, row 3 of it: column 'view': a text of 24 bytes in buffer 9 of 1"},
        {"views.arrow", BYTES(24, 0, 0, 0, 'l', 'o', 'n', 'g', 0, 0, 0, 0),
         BYTES(24, 0, 0, 0, 'l', 'o', 'n', 'g', 0, 0, 0, 0, 99),
         "column 'view': a text of 24 bytes at byte 99 of a buffer of"},
        {"views.arrow", BYTES(24, 0, 0, 0, 'l', 'o', 'n', 'g', 0, 0, 0, 0), BYTES(24, 0, 0, 128),
         "column 'view': a text of -2147483624 bytes"},
        /* Indices 2, 0 and null into a dictionary of three words. */
        {"delta.arrow", BYTES(2, 0, 0, 0, 0, 0, 0, 0), BYTES(3),
         "row 2: batch 1, row 0 of it: column 'label': value 3 of a dictionary of 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_mapping file;
        bool found = false;
        ASSERT_OK(fsdp_file_map(fixture(cases[i].file), &file));
        char *copy = fsdp_calloc(file.bytes, 1);
        ASSERT(copy);
        /* The same bytes may be in the metadata, so each place is tried. */
        for (int n = 0; !found; n++) {
            const size_t at = find_bytes(&file, cases[i].from, cases[i].from_bytes, n);
            if (at == SIZE_MAX)
                FAIL("case %zu: '%s' was not reported", i, cases[i].message);
            memcpy(copy, file.data, file.bytes);
            memcpy(copy + at, cases[i].to, cases[i].to_bytes);
            const char *path = write_bytes(t, "a.arrow", copy, file.bytes);
            found = read_all(path) == FSDP_ERR_FORMAT && strstr(fsdp_last_error(), "a.arrow: ") &&
                    strstr(fsdp_last_error(), cases[i].message);
        }
        fsdp_free(copy);
        fsdp_file_unmap(&file);
    }
#undef BYTES
}

/* A list of nulls has no bytes, so a small file may claim any number of entries. Each place with
 * the number of entries is changed: the length of the child, its null_count, and the offset. 4
 * bytes for each of 2^62 entries are 2^64 bytes. */
TEST(a_list_of_too_many_nulls_is_refused)
{
    NEEDS_FLATBUFFERS();
    static const int64_t counts[] = {INT64_C(1) << 62, (INT64_C(1) << 62) - 1, INT64_MAX,
                                     INT64_C(1) << 26};
    const int64_t entries = 123457;
    fsdp_mapping file;
    ASSERT_OK(read_all(fixture("nulls.arrow")));
    ASSERT_OK(fsdp_file_map(fixture("nulls.arrow"), &file));
    char *copy = fsdp_calloc(file.bytes, 1);
    ASSERT(copy);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        memcpy(copy, file.data, file.bytes);
        int places = 0;
        for (size_t at; (at = find_bytes(&file, &entries, sizeof entries, places)) != SIZE_MAX;
             places++)
            memcpy(copy + at, &counts[i], sizeof entries);
        ASSERT_INT(places, 3);
        ASSERT_ERROR(read_all(write_bytes(t, "a.arrow", copy, file.bytes)), FSDP_ERR_UNSUPPORTED,
                     "column 'list': the row is larger than");
    }
    fsdp_free(copy);
    fsdp_file_unmap(&file);
}

TEST(random_damage_is_an_error_or_another_row)
{
    NEEDS_FLATBUFFERS();
    static const char *const names[] = {"types.arrow", "types_zstd.arrow", "types_lz4.arrow",
                                        "dictionary.arrow", "views.arrow"};
    uint64_t state = 1;
    int errors = 0;
    for (size_t i = 0; i < 5; i++) {
        fsdp_mapping file;
        ASSERT_OK(fsdp_file_map(fixture(names[i]), &file));
        char *copy = fsdp_calloc(file.bytes, 1);
        ASSERT(copy);
        for (int k = 0; k < 100; k++) {
            memcpy(copy, file.data, file.bytes);
            for (int n = 0; n < 2; n++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                copy[(state >> 33) % file.bytes] = (char)(state >> 20);
            }
            errors += read_all(write_bytes(t, "a.arrow", copy, file.bytes)) != FSDP_OK;
        }
        fsdp_free(copy);
        fsdp_file_unmap(&file);
    }
    ASSERT(errors > 100 && errors < 500);
}

/* ---- files of other kinds ---- */

TEST(files_that_look_alike_are_named)
{
    NEEDS_FLATBUFFERS();
    static const struct {
        const char *name, *text;
        fsdp_status status;
        const char *message;
    } cases[] = {
        {"a.parquet", "PAR1\x15\x04", FSDP_ERR_FORMAT,
         "a.parquet: not an Arrow file, but a Parquet file: in Python, "
         "datasets.Dataset.from_parquet(FILE).save_to_disk(DIR)"},
        {"rows", "PAR1\x15\x04", FSDP_ERR_FORMAT, "a Parquet file"},
        {"a.feather", "FEA1\x15\x04", FSDP_ERR_FORMAT, "a Feather file of version 1"},
        {"a.arrow", "version https://git-lfs.github.com/spec/v1\noid", FSDP_ERR_FORMAT,
         "a.arrow: not an Arrow file, but a Git LFS pointer"},
        {"a.arrow", "<!DOCTYPE html>", FSDP_ERR_FORMAT, "a web page"},
        {"a.arrow", "", FSDP_ERR_FORMAT, "an empty file"},
        {"a.arrow", "{\"input_ids\": [1]}\n", FSDP_ERR_FORMAT, "but text that begins with"},
        {"a.arrow", "\x01\x02\x03\x04\x05\x06\x07\x08\x09", FSDP_ERR_FORMAT, "not an Arrow file"},
        {"a.arrow", "ARROW1", FSDP_ERR_FORMAT, "its footer is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = write_bytes(t, cases[i].name, cases[i].text, strlen(cases[i].text));
        fsdp_dataset *dataset;
        ASSERT(fsdp_is_arrow_path(path));
        ASSERT_ERROR(fsdp_dataset_open(path, NULL, &dataset), cases[i].status, cases[i].message);
    }
    ASSERT_ERROR(fsdp_arrow_table_open("/nowhere/a.arrow", FSDP_ARROW_SPLIT_TRAIN,
                                       &(fsdp_arrow_table *){NULL}),
                 FSDP_ERR_NOT_FOUND, "/nowhere/a.arrow");
}

/* A reader of streams stops at the end of the first one. */
TEST(two_streams_in_one_file_are_refused)
{
    NEEDS_FLATBUFFERS();
    fsdp_mapping file;
    ASSERT_OK(fsdp_file_map(fixture("delta.arrow"), &file));
    char *copy = fsdp_calloc(2, file.bytes);
    ASSERT(copy);
    memcpy(copy, file.data, file.bytes);
    ASSERT_OK(read_all(write_bytes(t, "a.arrow", copy, 2 * file.bytes))); /* zeros follow */
    memcpy(copy + file.bytes, file.data, file.bytes);
    ASSERT_ERROR(read_all(write_bytes(t, "a.arrow", copy, 2 * file.bytes)), FSDP_ERR_FORMAT,
                 "bytes after the end of the stream");
    fsdp_free(copy);
    fsdp_file_unmap(&file);
}

#ifndef FSDP_HAVE_FLATBUFFERS
TEST(without_flatbuffers_the_package_is_named)
{
    ASSERT_ERROR(read_all(fixture("types.arrow")), FSDP_ERR_UNSUPPORTED, "libflatbuffers-dev");
    ASSERT_ERROR(read_all(fixture("splits")), FSDP_ERR_UNSUPPORTED, "libflatbuffers-dev");
}
#endif

TEST(reading_survives_every_failed_allocation)
{
    NEEDS_FLATBUFFERS();
    static const char *const names[] = {"types_file.arrow", "dictionary.arrow", "splits", "indices",
                                        "types_zstd.arrow"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fsdp_status status = FSDP_ERR_NOMEM;
#ifndef FSDP_HAVE_ZSTD
        if (strstr(names[i], "zstd"))
            continue;
#endif
        const char *path = fixture(names[i]);
        for (long n = 1; status == FSDP_ERR_NOMEM; n++) {
            fsdp_alloc_fail_at(n);
            status = read_all(path);
            fsdp_alloc_fail_at(0);
            ASSERT(n < 10000);
        }
        if (status != FSDP_OK)
            FAIL("%s: %s", names[i], fsdp_last_error());
    }
}
