/* The CSV reader, the cleaning of WikiHow's texts, and the dataset that uses both. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fsdp/data.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/io.h"
#include "src/base/philox.h"
#include "src/base/str.h"
#include "src/data/csv/csv.h"
#include "src/data/rows/wikihow.h"
#include "tests/test.h"

/* Write these bytes to a file in the test's folder and return its path, valid until the next
 * call. */
static const char *write_bytes(fsdp_test *t, const char *name, const char *bytes, size_t count)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), name);
    if (fsdp_file_write(path, bytes, count) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return path;
}
static const char *write_text(fsdp_test *t, const char *name, const char *text)
{
    return write_bytes(t, name, text, strlen(text));
}

/* The rows of a file as "a|b;c|d;" */
static void check_rows(fsdp_test *t, const char *text, size_t bytes, const char *expected)
{
    fsdp_csv *csv;
    ASSERT_OK(fsdp_csv_open(write_bytes(t, "a.csv", text, bytes), &csv));
    fsdp_csv_row row = {0};
    fsdp_str all = {0};
    for (;;) {
        ASSERT_OK(fsdp_csv_next(csv, &row));
        if (!row.line)
            break;
        for (size_t i = 0; i < row.fields; i++) {
            size_t length;
            const char *field = fsdp_csv_field(&row, i, &length);
            ASSERT_INT(strlen(field), length);
            fsdp_str_printf(&all, "%s%s", i ? "|" : "", field);
        }
        fsdp_str_append(&all, ";", 1);
    }
    fsdp_csv_row_fini(&row);
    fsdp_csv_close(csv);
    ASSERT_STR(all.data ? all.data : "", expected);
    fsdp_str_fini(&all);
}
#define CHECK_ROWS(text, expected)                                                                 \
    do {                                                                                           \
        check_rows(t, text, sizeof(text) - 1, expected);                                           \
        CHECK_HERE();                                                                              \
    } while (0)

TEST(rows_are_read_as_rfc_4180_has_them)
{
    NEEDS_LIBCSV();
    CHECK_ROWS("x,y\na,b\nc,d\n", "a|b;c|d;");
    CHECK_ROWS("x,y\na,b\nc,d", "a|b;c|d;");
    CHECK_ROWS("x,y\r\na,b\r\nc,d\r\n", "a|b;c|d;");
    CHECK_ROWS("x,y\ra,b\rc,d\r", "a|b;c|d;");
    CHECK_ROWS("\xEF\xBB\xBFx,y\na,b\n", "a|b;");
    CHECK_ROWS("x,y\n\n\r\na,b\n  \n\nc,d\n\n", "a|b;c|d;");
    CHECK_ROWS("x,y\n\"a,1\",\"say \"\"hi\"\"\"\n,\n\"\",\"\"\"\"\n", "a,1|say \"hi\";|;|\";");
    CHECK_ROWS("x,y\n\"a\nb\r\nc\rd\n\n\",e\n", "a\nb\r\nc\rd\n\n|e;");
    CHECK_ROWS("x,y\n a , b \n", " a | b ;");
    CHECK_ROWS("x,y\n\xC3\xA9,\xF0\x9F\x98\x80\n", "\xC3\xA9|\xF0\x9F\x98\x80;");
    CHECK_ROWS("x\na\n\nb\n", "a;b;");
    CHECK_ROWS("x,y\n", "");
    CHECK_ROWS("x,y", "");
}

TEST(rows_know_where_they_start)
{
    NEEDS_LIBCSV();
    static const char text[] = "x,y\r\n\r\n\"a\nb\",1\n\nc,\"2\r\n\"\r\nd,3";
    const int64_t lines[] = {3, 6, 8};
    fsdp_csv *csv;
    ASSERT_OK(fsdp_csv_open(write_text(t, "a.csv", text), &csv));
    fsdp_csv_row row = {0}, again = {0};
    for (int i = 0; i < 3; i++) {
        ASSERT_OK(fsdp_csv_next(csv, &row));
        ASSERT_INT(row.line, lines[i]);
        ASSERT_OK(fsdp_csv_parse_row(text + row.offset, row.size, NULL, &again));
        ASSERT_INT(again.fields, 2);
        ASSERT_INT(again.len, row.len);
        ASSERT(memcmp(again.bytes, row.bytes, row.len) == 0);
    }
    ASSERT_OK(fsdp_csv_next(csv, &row));
    ASSERT_INT(row.line, 0);
    ASSERT_OK(fsdp_csv_next(csv, &row));
    ASSERT_INT(row.line, 0);
    fsdp_csv_row_fini(&row);
    fsdp_csv_row_fini(&again);
    fsdp_csv_close(csv);
}

static fsdp_status read_all(const char *path)
{
    fsdp_csv *csv;
    fsdp_csv_row row = {0};
    FSDP_TRY(fsdp_csv_open(path, &csv));
    fsdp_status status;
    do
        status = fsdp_csv_next(csv, &row);
    while (status == FSDP_OK && row.line);
    fsdp_csv_row_fini(&row);
    fsdp_csv_close(csv);
    return status;
}

TEST(a_bad_row_is_an_error_with_its_line)
{
    NEEDS_LIBCSV();
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"x,y\na,b\nc\n", "a.csv: line 3: 1 field, but the header has 2"},
        {"x,y\n\"a\n\nb\",c\nd,e,f\n", "line 5: 3 fields"},
        {"x,y\na,b\n\"c,d\ne,f\n", "line 3: a quoted field is never closed"},
        {"x,y\na,b\n\"c\"d,e\n", "line 3: a quote inside an unquoted field, or text after"},
        {"x,y\na,b\nc\"d,e\n", "line 3: a quote inside"},
        {"x,y\n\"a\n\"b,c\n", "line 2: (continued on line 3): a quote inside"},
        {"x,y\na,b\nc,\xC3(\n", "line 3: not UTF-8: byte 0xc3 at column 3"},
        {"x,y\n\"a\nb\n\xFF\",c\n", "row that starts on line 2"},
        {"x,y\n\"a\nb\n\xFF\",c\n", "line 4: not UTF-8: byte 0xff at column 1"},
        {"", "a.csv: empty"},
        {"\n\n", "a.csv: empty"},
        {"\xFF\xFEx", "UTF-16"},
        {"version https://git-lfs.github.com/spec/v1\n", "a.csv: not rows of data, but a Git LFS"},
        {"PAR1\x15\x04\xff", "a.csv: not text, but a Parquet file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ASSERT_ERROR(read_all(write_text(t, "a.csv", cases[i].text)), FSDP_ERR_FORMAT,
                     cases[i].message);
    ASSERT_ERROR(read_all(write_bytes(t, "a.csv", "x,y\na,\0\n", 8)), FSDP_ERR_FORMAT,
                 "line 2: NUL character at column 3");
    ASSERT_ERROR(read_all("/no/such.csv"), FSDP_ERR_NOT_FOUND, "/no/such.csv");
    ASSERT_ERROR(read_all(fsdp_test_dir(t)), FSDP_ERR_INVALID, "folder");
}

/* Random tables, written with every kind of line end and unneeded quotes, are read back. */
static void check_random_table(fsdp_test *t, uint64_t seed)
{
    static const char *const pieces[] = {"a", ",", "\"", "\n", "\xC3\xBC", " ", ".", "bc"};
    static const char *const ends[] = {"\n", "\r\n", "\r"};
    fsdp_philox r = fsdp_philox4x32(seed, 0, 0);
    const char *end = ends[r.v[0] % 3];
    unsigned columns = 1 + r.v[1] % 4, rows = r.v[2] % 6;
    fsdp_str file = {0}, expected = {0};
    for (unsigned c = 0; c < columns; c++)
        fsdp_str_printf(&file, "%scolumn", c ? "," : "");
    fsdp_str_printf(&file, "%s", end);
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t c = 0; c < columns; c++) {
            fsdp_str field = {0}, quoted = {0};
            fsdp_str_printf(&field, "f"); /* so that no row is blank */
            fsdp_str_printf(&quoted, "f");
            fsdp_philox q = fsdp_philox4x32(seed, 1 + i, c);
            for (unsigned k = 0; k < q.v[0] % 9; k++) {
                const char *piece = pieces[q.v[1] >> 3 * k & 7];
                fsdp_str_printf(&field, "%s", piece);
                fsdp_str_printf(&quoted, "%s", *piece == '"' ? "\"\"" : piece);
            }
            bool needed = strpbrk(field.data, ",\"\n") != NULL;
            bool quote = needed || q.v[2] % 2;
            fsdp_str_printf(&file, "%s%s%s%s", c ? "," : "", quote ? "\"" : "", quoted.data,
                            quote ? "\"" : "");
            fsdp_str_printf(&expected, "%s%s", c ? "|" : "", field.data);
            fsdp_str_fini(&field);
            fsdp_str_fini(&quoted);
        }
        fsdp_str_printf(&file, "%s", i + 1 < rows || r.v[3] % 2 ? end : "");
        fsdp_str_printf(&expected, ";");
    }
    check_rows(t, file.data, file.len, expected.data ? expected.data : "");
    fsdp_str_fini(&file);
    fsdp_str_fini(&expected);
}

TEST(what_was_written_is_read_back)
{
    NEEDS_LIBCSV();
    for (uint64_t seed = 1; seed <= 120 && !t->failed; seed++) {
        check_random_table(t, seed);
        if (t->failed)
            printf("seed %llu\n", (unsigned long long)seed);
    }
}

#ifndef FSDP_HAVE_CSV
TEST(without_libcsv_a_csv_file_is_an_error)
{
    const char *path = write_text(t, "a.csv", "text,headline\nx,y\n");
    fsdp_csv *csv = NULL;
    ASSERT_ERROR(fsdp_csv_open(path, &csv), FSDP_ERR_UNSUPPORTED,
                 "a.csv: CSV: this build has no libcsv");
    ASSERT(!csv);
}
#endif

/* A line end occurs at every distance from the end of the reader's buffer. */
TEST(rows_may_be_anywhere_in_the_buffer)
{
    NEEDS_LIBCSV();
    enum {
        BUFFER = 1 << 18
    };
    char *text = fsdp_calloc(BUFFER + 64, 1);
    for (size_t length = BUFFER - 12; length < BUFFER + 4 && !t->failed; length++) {
        memcpy(text, "x,y\r\n", 5);
        memset(text + 5, 'a', length - 5);
        text[length - 2] = ',';
        memcpy(text + length, "\r\nb,c\r\n", 8);
        fsdp_csv *csv;
        fsdp_csv_row row = {0};
        ASSERT_OK(fsdp_csv_open(write_bytes(t, "a.csv", text, length + 7), &csv));
        ASSERT_OK(fsdp_csv_next(csv, &row));
        ASSERT_INT(row.size, length - 5 + 2);
        ASSERT_OK(fsdp_csv_next(csv, &row));
        ASSERT_INT(row.line, 3);
        ASSERT_INT(row.offset, length + 2);
        ASSERT_STR(row.bytes, "b");
        ASSERT_OK(fsdp_csv_next(csv, &row));
        ASSERT_INT(row.line, 0);
        fsdp_csv_row_fini(&row);
        fsdp_csv_close(csv);
    }
    fsdp_free(text);
}

/* ---- cleaning: expected values from the Python of the two scripts ---- */

static void check_cleaning(fsdp_test *t, size_t (*step)(char *, size_t), const char *text,
                           const char *expected)
{
    char buffer[256];
    snprintf(buffer, sizeof buffer, "%s", text);
    ASSERT_INT(step(buffer, strlen(buffer)), strlen(expected));
    ASSERT_STR(buffer, expected);
}

TEST(texts_are_cleaned_as_the_scripts_clean_them)
{
    check_cleaning(t, fsdp_wikihow_clean_summary, "\nA.,\nB..,,C.", "\nA.\nB..,C.");
    check_cleaning(t, fsdp_wikihow_clean_article, "a...\n\n,b.\n,,c. ,d.\ne\n,f.",
                   "a.\nb.\n,c. ,d.\ne\n,f.");
    check_cleaning(t, fsdp_wikihow_clean_article, "..\n.\n,", "..\n.\n");
    check_cleaning(t, fsdp_wikihow_clean_article, "", "");
    check_cleaning(t, fsdp_wikihow_clean_text,
                   "Example of text: a\nb``c\"d`\n`e Example of Summary:Example of\n text:",
                   " abcde Example of text:");
    char text[] = " \t\x1C a b\r\n", *start = text;
    ASSERT_INT(fsdp_wikihow_strip(&start, sizeof text - 1), 3);
    ASSERT_STR(start, "a b");
    ASSERT(fsdp_wikihow_is_summary(2, 3) && !fsdp_wikihow_is_summary(3, 4));
    ASSERT(!fsdp_wikihow_is_summary(0, 0));
}

/* ---- the dataset ---- */

static fsdp_tokenizer *open_tokenizer(fsdp_test *t)
{
    fsdp_tokenizer *tokenizer = NULL;
    if (fsdp_tokenizer_open(fsdp_test_path("../data/tokenizers/t5"), &tokenizer) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return tokenizer;
}

static void check_texts(fsdp_test *t, const fsdp_dataset *dataset, int64_t index,
                        const char *source, const char *target)
{
    char *actual_source = NULL, *actual_target = NULL;
    ASSERT_OK(fsdp_dataset_texts(dataset, index, &actual_source, &actual_target));
    ASSERT_STR(actual_source, source);
    ASSERT_STR(actual_target, target);
    fsdp_text_free(actual_source);
    fsdp_text_free(actual_target);
}

/* The columns of wikihowSep.csv: others around the two that are used. */
TEST(a_dataset_gives_cleaned_pairs_and_their_ids)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    const char *path =
        write_text(t, "wikihowSep.csv",
                   "\"overview\",\"headline\",\"text\",\"sectionLabel\",\"title\"\r\n"
                   "o,\"\nSell yourself first.,\n\",\" The house\nis \"\"nice\"\".\n\n,Yes. \","
                   "s,t\r\n"
                   "o,Two,Second,s,t\r\n");
    fsdp_dataset *dataset;
    fsdp_dataset_options options = {
        .tokenizer = tokenizer, .cleaning = FSDP_CLEANING_WIKIHOW, .source_prefix = "summarize: "};
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    ASSERT_INT(fsdp_dataset_len(dataset), 2);
    check_texts(t, dataset, 0, "summarize: The houseis nice.Yes.", "Sell yourself first.");
    CHECK_HERE();
    fsdp_example example = {0};
    fsdp_token_list expected = {0};
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, "summarize: Second", 17, 0, &expected));
    for (int again = 0; again < 2; again++) {
        ASSERT_OK(fsdp_dataset_get(dataset, 1, &example));
        ASSERT_INT(example.source.len, expected.len);
        ASSERT(memcmp(example.source.ids, expected.ids, expected.len * sizeof(int32_t)) == 0);
        ASSERT_INT(example.labels.len, 2);
        ASSERT_INT(example.labels.ids[1], 1);
    }
    ASSERT_ERROR(fsdp_dataset_get(dataset, 2, &example), FSDP_ERR_INVALID, "example 2 of");
    ASSERT_ERROR(fsdp_dataset_get(dataset, -1, &example), FSDP_ERR_INVALID, "example -1");
    fsdp_dataset_close(dataset);

    options = (fsdp_dataset_options){.tokenizer = tokenizer,
                                     .max_source_length = 3,
                                     .max_target_length = 2,
                                     .max_samples = 1,
                                     .source_column = "Overview",
                                     .target_column = "text"};
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    ASSERT_INT(fsdp_dataset_len(dataset), 1);
    check_texts(t, dataset, 0, "o", " The house\nis \"nice\".\n\n,Yes. ");
    ASSERT_OK(fsdp_dataset_get(dataset, 0, &example));
    ASSERT_INT(example.source.len, 3);
    ASSERT_INT(example.labels.len, 2);
    fsdp_dataset_close(dataset);
    fsdp_example_fini(&example);
    fsdp_token_list_fini(&expected);
    fsdp_tokenizer_close(tokenizer);
}

/* Without options.cleaning the tokenizer gets the bytes of the fields: line ends (which T5 treats
 * as spaces), quotes, "., ", and spaces at the ends. */
TEST(texts_are_not_changed_unless_cleaning_is_asked_for)
{
    NEEDS_LIBCSV();
    static const char source[] = " one\ntwo \"three\"., four ``five``.\n\n,six ",
                      target[] = "\nA.,\"b\"\nExample of text: c\n";
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    const char *path = write_text(t, "a.csv",
                                  "text,headline\n"
                                  "\" one\ntwo \"\"three\"\"., four ``five``.\n\n,six \","
                                  "\"\nA.,\"\"b\"\"\nExample of text: c\n\"\n");
    fsdp_dataset *dataset;
    const fsdp_dataset_options options = {.tokenizer = tokenizer};
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    check_texts(t, dataset, 0, source, target);
    CHECK_HERE();
    fsdp_example example = {0};
    fsdp_token_list expected = {0};
    ASSERT_OK(fsdp_dataset_get(dataset, 0, &example));
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, source, strlen(source), 0, &expected));
    ASSERT_INT(example.source.len, expected.len);
    ASSERT(memcmp(example.source.ids, expected.ids, expected.len * sizeof(int32_t)) == 0);
    expected.len = 0;
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, target, strlen(target), 0, &expected));
    ASSERT_INT(example.labels.len, expected.len);
    ASSERT(memcmp(example.labels.ids, expected.ids, expected.len * sizeof(int32_t)) == 0);
    fsdp_dataset_close(dataset);
    fsdp_example_fini(&example);
    fsdp_token_list_fini(&expected);
    fsdp_tokenizer_close(tokenizer);
}

TEST(cleaning_of_what_has_no_pairs_of_texts_is_refused)
{
    fsdp_dataset *dataset;
    const char *rows = write_text(t, "rows.jsonl", "{\"input_ids\": [5], \"labels\": [1]}\n");
    fsdp_dataset_options options = {.cleaning = FSDP_CLEANING_WIKIHOW};
    ASSERT_ERROR(fsdp_dataset_open(rows, &options, &dataset), FSDP_ERR_INVALID,
                 "rows.jsonl: WikiHow's cleaning is for pairs of texts in CSV");
    options = (fsdp_dataset_options){.skip_long_summaries = true};
    ASSERT_ERROR(fsdp_dataset_open(rows, &options, &dataset), FSDP_ERR_INVALID,
                 "rows.jsonl: leaving out long summaries is for pairs");
    options =
        (fsdp_dataset_options){.task = FSDP_TASK_CAUSAL_LM, .cleaning = FSDP_CLEANING_WIKIHOW};
    ASSERT_ERROR(fsdp_dataset_open(rows, &options, &dataset), FSDP_ERR_INVALID,
                 "WikiHow's cleaning is for pairs");
}

/* Columns of causal models: prompt and completion if both exist, else text, or those that are
 * named. Texts are not changed, and the part before the completion has no loss. */
TEST(causal_models_take_prompts_and_completions_or_texts)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer;
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("fixtures/text/llama"), &tokenizer));
    const char *path = write_text(t, "a.csv", "text,completion,prompt\n\" all \",\" b\n\",a.\n");
    const fsdp_dataset_options options[] = {
        {.source_prefix = "see "},
        {.source_column = "text"},
        {.source_column = "completion", .target_column = "text"}};
    static const char *const sources[] = {"see a.", "", " b\n"}, *const targets[] = {
                                                                     " b\n", " all ", " all "};
    for (size_t i = 0; i < 3; i++) {
        fsdp_dataset_options o = options[i];
        fsdp_dataset *dataset;
        fsdp_example e = {0};
        o.task = FSDP_TASK_CAUSAL_LM;
        o.tokenizer = tokenizer;
        ASSERT_OK(fsdp_dataset_open(path, &o, &dataset));
        check_texts(t, dataset, 0, sources[i], targets[i]);
        CHECK_HERE();
        ASSERT_OK(fsdp_dataset_get(dataset, 0, &e));
        ASSERT_INT(e.source.ids[0], 1);
        ASSERT_INT(e.source.ids[e.source.len - 1], 2);
        ASSERT_INT(e.labels.len, *sources[i] ? e.source.len : 0);
        if (*sources[i]) {
            ASSERT_INT(e.labels.ids[1], FSDP_IGNORE_INDEX);
            ASSERT_INT(e.labels.ids[e.source.len - 1], 2);
        }
        fsdp_example_fini(&e);
        fsdp_dataset_close(dataset);
    }
    fsdp_tokenizer_close(tokenizer);
}

TEST(long_summaries_are_left_out_on_request)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    /* 3 of 4 characters is too long, 2 of 4 is not. Characters are counted, not bytes. */
    const char *path = write_text(t, "a.csv",
                                  "headline,title,text\nabc,t,abcd\nab,t,abcd\n,t,abcd\n"
                                  "\xC3\xA4\xC3\xA4,t,abcd\nab,t,\nx,t,last one\n");
    fsdp_dataset *dataset;
    fsdp_dataset_options options = {.tokenizer = tokenizer};
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    ASSERT_INT(fsdp_dataset_len(dataset), 6);
    fsdp_dataset_close(dataset);
    options.skip_long_summaries = true;
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    ASSERT_INT(fsdp_dataset_len(dataset), 3);
    check_texts(t, dataset, 1, "abcd", "\xC3\xA4\xC3\xA4");
    check_texts(t, dataset, 2, "last one", "x");
    fsdp_dataset_close(dataset);
    fsdp_tokenizer_close(tokenizer);
}

/* Training and validation are shares of one file. What each leaves out is of its own rows, so that
 * no row is counted twice. Rows 1 and 7 of 10 are too long, and rows 2 and 9 are skipped. */
TEST(what_a_split_leaves_out_is_counted_once)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_str text = {0};
    fsdp_str_printf(&text, "headline,title,text\n");
    for (int i = 0; i < 10; i++)
        fsdp_str_printf(&text, "%s,t,%s\n", i == 2 || i == 9 ? "a long summary of it" : "a",
                        i == 1 || i == 7 ? "a package of a package of a package of files"
                                         : "a file");
    const char *path = write_text(t, "a.csv", text.data);
    fsdp_left_out all, train, validation;
    fsdp_dataset *set;
    fsdp_dataset_options options = {
        .tokenizer = tokenizer, .skip_long_summaries = true, .max_source_length = 8};
    fsdp_left_out *const sums[] = {&all, &train, &validation};
    const fsdp_split splits[] = {FSDP_SPLIT_ALL, FSDP_SPLIT_TRAIN, FSDP_SPLIT_VALIDATION};
    for (int i = 0; i < 3; i++) {
        options.split = splits[i];
        ASSERT_OK(fsdp_dataset_open(path, &options, &set));
        ASSERT_OK(fsdp_dataset_left_out(set, 0, sums[i]));
        fsdp_dataset_close(set);
    }
    ASSERT_INT(all.skipped_rows, 2);
    ASSERT_INT(all.cut_rows, 2);
    ASSERT_INT(train.skipped_rows + validation.skipped_rows, 2);
    ASSERT_INT(validation.skipped_rows, 1); /* the last row of the file */
    ASSERT_INT(train.cut_rows + validation.cut_rows, 2);
    ASSERT_INT(train.counted_rows + validation.counted_rows, 8);
    fsdp_str_fini(&text);
    fsdp_tokenizer_close(tokenizer);
}

TEST(a_folder_means_the_wikihow_file_in_it)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_dataset *dataset = NULL;
    const fsdp_dataset_options options = {.tokenizer = tokenizer};
    const char *dir = fsdp_test_dir(t);
    ASSERT_ERROR(fsdp_dataset_open(dir, &options, &dataset), FSDP_ERR_NOT_FOUND,
                 "neither wikihowAll.csv nor wikihowSep.csv");
    write_text(t, "wikihowSep.csv", "overview,headline,text,sectionLabel,title\no,h,sep,s,t\n");
    ASSERT_OK(fsdp_dataset_open(dir, &options, &dataset));
    check_texts(t, dataset, 0, "sep", "h");
    fsdp_dataset_close(dataset);
    write_text(t, "wikihowAll.csv", "headline,title,text\nh,t,all\n");
    ASSERT_OK(fsdp_dataset_open(dir, &options, &dataset));
    check_texts(t, dataset, 0, "all", "h");
    fsdp_dataset_close(dataset);
    fsdp_tokenizer_close(tokenizer);
}

/* The number of rows of a split, and its first one. */
static void check_split(fsdp_test *t, const char *path, const fsdp_dataset_options *options,
                        int64_t rows, const char *source, const char *target)
{
    fsdp_dataset *dataset;
    ASSERT_OK(fsdp_dataset_open(path, options, &dataset));
    ASSERT_INT(fsdp_dataset_len(dataset), rows);
    check_texts(t, dataset, 0, source, target);
    fsdp_dataset_close(dataset);
}

/* 7 rows: a sixth of them, rounded up, is 2. */
TEST(without_lists_a_split_is_all_but_the_last_sixth_or_that)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_dataset *dataset = NULL;
    fsdp_dataset_options o = {.tokenizer = tokenizer, .split = FSDP_SPLIT_TRAIN};
    const char *path =
        write_text(t, "a.csv", "headline,text\n0,t0\n1,t1\n2,t2\n3,t3\n4,t4\n5,t5\n6,t6\n");
    check_split(t, path, &o, 5, "t0", "0");
    o.max_samples = 3;
    check_split(t, path, &o, 3, "t0", "0");
    o.split = FSDP_SPLIT_VALIDATION;
    check_split(t, path, &o, 2, "t5", "5");
    o.max_samples = 1;
    check_split(t, path, &o, 1, "t5", "5");
    CHECK_HERE();
    path = write_text(t, "a.jsonl",
                      "{\"input_ids\": [5], \"labels\": [1]}\n"
                      "{\"input_ids\": [6], \"labels\": [1]}\n");
    fsdp_example example = {0};
    ASSERT_OK(fsdp_dataset_open(path, &o, &dataset));
    ASSERT_OK(fsdp_dataset_get(dataset, 0, &example));
    ASSERT_INT(example.source.ids[0], 6);
    ASSERT_ERROR(fsdp_dataset_get(dataset, 1, &example), FSDP_ERR_INVALID, "example 1 of a");
    fsdp_example_fini(&example);
    fsdp_dataset_close(dataset);
    ASSERT_ERROR(fsdp_dataset_open(write_text(t, "a.csv", "headline,text\na,b\n"), &o, &dataset),
                 FSDP_ERR_INVALID, "1 row, which cannot be split");
    fsdp_tokenizer_close(tokenizer);
}

/* Titles in all_train.txt and all_val.txt have no spaces. Any kind of line end is accepted. */
TEST(with_lists_a_split_is_the_rows_with_their_titles)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_dataset *dataset = NULL;
    fsdp_dataset_options o = {.tokenizer = tokenizer, .split = FSDP_SPLIT_TRAIN};
    write_text(t, "wikihowAll.csv",
               "headline,title,text\na,How to Rest1,ta\nb,How to Rest2,tb\nc,How to Sing1,tc\n"
               "d,\" How to  Rest1 \",td\ne,How to Rest,te\n");
    write_text(t, "all_val.txt", "HowtoSing1\n");
    ASSERT_ERROR(fsdp_dataset_open(fsdp_test_dir(t), &o, &dataset), FSDP_ERR_NOT_FOUND,
                 "all_train.txt: missing, though there is all_val.txt");
    write_text(t, "all_train.txt", "HowtoRest2\r\n HowtoRest1\r\nHowtoDrive1");
    check_split(t, fsdp_test_dir(t), &o, 3, "ta", "a");
    o.max_samples = 2;
    check_split(t, fsdp_test_dir(t), &o, 2, "ta", "a");
    o.split = FSDP_SPLIT_VALIDATION;
    check_split(t, fsdp_test_dir(t), &o, 1, "tc", "c");
    o = (fsdp_dataset_options){.tokenizer = tokenizer};
    check_split(t, fsdp_test_dir(t), &o, 5, "ta", "a");
    CHECK_HERE();
    o.split = FSDP_SPLIT_VALIDATION;
    write_text(t, "all_val.txt", "");
    ASSERT_ERROR(fsdp_dataset_open(fsdp_test_dir(t), &o, &dataset), FSDP_ERR_FORMAT,
                 "no rows with a title of the split's list");
    write_text(t, "wikihowAll.csv", "headline,text\na,b\n");
    ASSERT_ERROR(fsdp_dataset_open(fsdp_test_dir(t), &o, &dataset), FSDP_ERR_FORMAT,
                 "wikihowAll.csv: line 1: no column 'title'; the header has headline, text");
    fsdp_tokenizer_close(tokenizer);
}

/* Two files of a pattern, whose rows lists choose, have no more rows together than max_samples. */
TEST(max_samples_limits_the_rows_that_lists_choose_from_several_files)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_dataset_options o = {.tokenizer = tokenizer, .split = FSDP_SPLIT_TRAIN};
    char pattern[600];
    snprintf(pattern, sizeof pattern, "%s/part*", fsdp_test_dir(t));
    write_text(t, "part1.csv", "headline,title,text\na,T,ta\nb,V,tb\nc,T,tc\n");
    write_text(t, "part2.csv", "headline,title,text\nd,V,td\ne,T,te\nf,T,tf\n");
    write_text(t, "all_train.txt", "T\n");
    write_text(t, "all_val.txt", "V\n");
    check_split(t, pattern, &o, 4, "ta", "a");
    o.max_samples = 3;
    check_split(t, pattern, &o, 3, "ta", "a");
    o.split = FSDP_SPLIT_VALIDATION;
    check_split(t, pattern, &o, 2, "tb", "b");
    fsdp_tokenizer_close(tokenizer);
}

/* Lists of titles are beside one of two files. The rows of the other file would be in no split, or
 * in both, so the two files are refused. */
TEST(lists_of_titles_choose_the_rows_of_all_files_or_of_none)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_dataset *dataset;
    fsdp_dataset_options o = {.tokenizer = tokenizer, .split = FSDP_SPLIT_TRAIN};
    char pattern[600], folder[600];
    snprintf(pattern, sizeof pattern, "%s/*/rows.csv", fsdp_test_dir(t));
    for (int i = 0; i < 2; i++) {
        snprintf(folder, sizeof folder, "%s/%s", fsdp_test_dir(t), i ? "b" : "a");
        ASSERT(mkdir(folder, 0700) == 0);
    }
    write_text(t, "a/rows.csv", "headline,title,text\na,T,ta\nb,V,tb\n");
    write_text(t, "b/rows.csv", "headline,title,text\nc,T,tc\nd,V,td\n");
    for (int i = 0; i < 2; i++) {
        write_text(t, i ? "b/all_train.txt" : "a/all_train.txt", "T\n");
        write_text(t, i ? "b/all_val.txt" : "a/all_val.txt", "V\n");
        if (i == 0)
            ASSERT_ERROR(fsdp_dataset_open(pattern, &o, &dataset), FSDP_ERR_INVALID,
                         "a/rows.csv: a list of titles (all_train.txt, all_val.txt) beside this "
                         "file chooses its rows, but no list chooses those of");
    }
    check_split(t, pattern, &o, 2, "ta", "a");
    o.validation_percent = 25;
    check_split(t, pattern, &o, 3, "tb", "b");
    fsdp_tokenizer_close(tokenizer);
}

/* Rows that lists of titles choose, of which two have a summary that is too long. Rows that the
 * list leaves out do not count. */
TEST(skipped_rows_are_counted_with_lists_of_titles)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_dataset *dataset;
    fsdp_left_out sum;
    const fsdp_dataset_options o = {
        .tokenizer = tokenizer, .split = FSDP_SPLIT_TRAIN, .skip_long_summaries = true};
    write_text(t, "all_train.txt", "T\n");
    write_text(t, "all_val.txt", "V\n");
    const char *path = write_text(t, "a.csv",
                                  "headline,title,text\na,T,a text\nlonger than it,T,b\n"
                                  "longer than it,V,c\nlonger than it,T,d\ne,V,a text\n");
    ASSERT_OK(fsdp_dataset_open(path, &o, &dataset));
    ASSERT_INT(fsdp_dataset_len(dataset), 1);
    ASSERT_OK(fsdp_dataset_left_out(dataset, 0, &sum));
    ASSERT_INT(sum.skipped_rows, 2);
    fsdp_dataset_close(dataset);
    fsdp_tokenizer_close(tokenizer);
}

TEST(targets_are_padded_on_request)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_dataset *dataset;
    fsdp_example example = {0};
    const fsdp_dataset_options o = {
        .tokenizer = tokenizer, .pad_targets = true, .max_target_length = 4};
    const char *path = write_text(t, "a.csv", "headline,text\nTwo,text\nt w o t w o t,text\n");
    ASSERT_OK(fsdp_dataset_open(path, &o, &dataset));
    const int32_t ends[2][4] = {{2759, 1, 0, 0},
                                {3, 17, 3, 1}}; /* a truncated list keeps its </s> */
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(fsdp_dataset_get(dataset, i, &example));
        ASSERT_INT(example.labels.len, 4);
        ASSERT_INT(example.labels.ids[3], ends[i][3]);
    }
    ASSERT_OK(fsdp_dataset_get(dataset, 0, &example));
    ASSERT(memcmp(example.labels.ids, ends[0], sizeof ends[0]) == 0);
    fsdp_example_fini(&example);
    fsdp_dataset_close(dataset);
    fsdp_tokenizer_close(tokenizer);
}

TEST(a_dataset_that_cannot_be_opened_says_why)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_dataset *dataset = NULL;
    fsdp_dataset_options options = {.tokenizer = tokenizer};
    ASSERT_ERROR(fsdp_dataset_open("/no/such", &options, &dataset), FSDP_ERR_NOT_FOUND, "/no/such");
    ASSERT_ERROR(fsdp_dataset_open("/no/such.csv", &options, &dataset), FSDP_ERR_NOT_FOUND,
                 "/no/such.csv");
    const char *path = write_text(t, "a.csv", "headline,title,body\na,b,c\n");
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_FORMAT,
                 "a.csv: line 1: no column 'text'; the header has headline, title, body");
    options.source_column = "title";
    options.target_column = "TITLE";
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_INVALID, "both");
    options.target_column = NULL;
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    fsdp_dataset_close(dataset);
    options.vocab_size = 32099;
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_INVALID,
                 "has 32100 ids, but the model's vocab_size is 32099");
    options.vocab_size = 32128;
    options.max_samples = -1;
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_INVALID, "max samples -1");
    ASSERT_ERROR(fsdp_dataset_open(path, NULL, &dataset), FSDP_ERR_INVALID, "needs a tokenizer");
    options = (fsdp_dataset_options){.tokenizer = tokenizer};
    path = write_text(t, "a.csv", "headline,title,text\n");
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_FORMAT, "no rows");
    path = write_text(t, "a.csv", "headline,text,text\na,b,c\n");
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_FORMAT, "two columns");
    /* A malformed row after max_samples is not read. */
    path = write_text(t, "a.csv", "headline,title,text\na,b,c\nd\n");
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_FORMAT, "line 3: 1 field");
    options.max_samples = 1;
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    fsdp_dataset_close(dataset);
    fsdp_tokenizer_close(tokenizer);
}

TEST(a_file_that_changes_underneath_is_an_error)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    const fsdp_dataset_options options = {.tokenizer = tokenizer};
    const char *path = write_text(t, "a.csv", "headline,text\na,bbbbb\nc,d\n");
    fsdp_dataset *dataset;
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    FILE *file = fopen(path, "r+");
    ASSERT(file != NULL);
    fputs("headline,text\na bbbbb\n", file);
    ASSERT(ftruncate(fileno(file), 23) == 0);
    fclose(file);
    fsdp_example example = {0};
    ASSERT_ERROR(fsdp_dataset_get(dataset, 0, &example), FSDP_ERR_FORMAT,
                 "line 2: the file has changed");
    ASSERT_ERROR(fsdp_dataset_get(dataset, 1, &example), FSDP_ERR_IO, "shorter");
    fsdp_example_fini(&example);
    fsdp_dataset_close(dataset);
    fsdp_tokenizer_close(tokenizer);
}

/* Each allocation fails in turn. The call returns an error and leaks nothing (checked by ASan).
 * libcsv retries with a smaller size, so some failures have no effect. */
static int count_failures(fsdp_test *t, const char *path, const fsdp_dataset_options *options)
{
    const int64_t indices[] = {1, 0};
    const fsdp_batch_format format = {.task = options->task};
    int failures = 0;
    for (long n = 1; n <= 150; n++) {
        fsdp_dataset *dataset = NULL;
        fsdp_batch *batch = NULL;
        char *source = NULL, *target = NULL;
        fsdp_alloc_fail_at(n);
        fsdp_status status = fsdp_dataset_open(path, options, &dataset);
        if (status == FSDP_OK)
            status = fsdp_collate(dataset, indices, 2, &format, &batch);
        if (status == FSDP_OK && options->tokenizer)
            status = fsdp_dataset_texts(dataset, 0, &source, &target);
        fsdp_alloc_fail_at(0);
        bool done = status == FSDP_OK;
        if (!done && (status != FSDP_ERR_NOMEM || source || target))
            fsdp_test_fail(t, __FILE__, __LINE__, "allocation %ld: %s", n, fsdp_last_error());
        fsdp_text_free(source);
        fsdp_text_free(target);
        fsdp_batch_release(batch);
        fsdp_dataset_close(dataset);
        if (t->failed)
            break;
        failures += !done;
    }
    return failures;
}

TEST(running_out_of_memory_is_an_error_like_any_other)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_dataset_options options = {.tokenizer = tokenizer, .source_prefix = "a: "};
    const char *path =
        write_text(t, "a.csv", "headline,text\na <extra_id_1> b,\"words, words\n\"\nc,d\n");
    ASSERT(count_failures(t, path, &options) > 20);
    CHECK_HERE();
    path = write_text(t, "a.jsonl",
                      "{\"input_ids\": [1, 2], \"labels\": [3], \"attention_mask\": [1, 0]}\n"
                      "{\"input_ids\": [1], \"labels\": [4], \"position_ids\": [1]}\n");
    ASSERT(count_failures(t, path, &options) > 10);
    CHECK_HERE();
    options.task = FSDP_TASK_CAUSAL_LM;
    path = write_text(t, "a.jsonl",
                      "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
                      "{\"input_ids\": [1, 2], \"prompt_length\": 1, \"position_ids\": [0, 0]}\n");
    ASSERT(count_failures(t, path, &options) > 10);
    CHECK_HERE();
    options = (fsdp_dataset_options){
        .task = FSDP_TASK_CAUSAL_LM, .max_length = 2, .split_documents = true};
    path = write_text(t, "a.bin", "abababababab");
    ASSERT(count_failures(t, path, &options) > 8);
    ASSERT(count_failures(t, fsdp_test_dir(t), &options) > 10);
    CHECK_HERE();
    fsdp_tokenizer_close(tokenizer);
}

TEST(the_demo_s_files_are_whole)
{
    NEEDS_LIBCSV();
    static const struct {
        const char *path;
        int rows;
    } files[] = {{"../data/debian/train.csv", 2700},
                 {"../data/debian/validation.csv", 100},
                 {"../data/debian/test.csv", 200}};
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    const fsdp_dataset_options options = {.tokenizer = tokenizer, .skip_long_summaries = true};
    for (int i = 0; i < 3; i++) {
        fsdp_dataset *dataset;
        ASSERT_OK(fsdp_dataset_open(fsdp_test_path(files[i].path), &options, &dataset));
        ASSERT_INT(fsdp_dataset_len(dataset), files[i].rows);
        fsdp_dataset_close(dataset);
    }
    fsdp_tokenizer_close(tokenizer);
}
