/* Forms of files: compression, arrays of JSON, translations, delimiters, and texts as they are. */
#include <stdio.h>
#include <string.h>

#ifdef FSDP_HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef FSDP_HAVE_ZSTD
#include <zstd.h>
#endif

#include <fsdp/data.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/data/files/input.h"
#include "src/data/json/json_rows.h"
#include "src/data/left_out.h"
#include "tests/test.h"

static const char *write_bytes(fsdp_test *t, const char *name, const void *bytes, size_t count)
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

static fsdp_tokenizer *open_tokenizer(fsdp_test *t)
{
    fsdp_tokenizer *tokenizer = NULL;
    if (fsdp_tokenizer_open(fsdp_test_path("../data/tokenizers/t5"), &tokenizer) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return tokenizer;
}

/* ---- JSON ---- */

/* Append the rows of a file to `all`, as "line:text;" or "line/number:text;". */
static fsdp_status list_rows(const char *path, const char *field, fsdp_str *all)
{
    fsdp_input *input;
    fsdp_json_rows *rows;
    fsdp_json_row row = {.text = ""};
    FSDP_TRY(fsdp_input_open(path, &input));
    fsdp_status status = fsdp_json_rows_open(input, path, field, &rows);
    if (status == FSDP_OK) {
        while ((status = fsdp_json_rows_next(rows, &row)) == FSDP_OK && row.text) {
            fsdp_str_printf(all, "%d", (int)row.line);
            if (row.number)
                fsdp_str_printf(all, "/%d", (int)row.number);
            fsdp_str_printf(all, ":%.*s;", (int)row.length, row.text);
        }
        fsdp_json_rows_close(rows);
    }
    fsdp_input_close(input);
    return status;
}

TEST(rows_of_json_are_found_in_every_form)
{
    static const struct {
        const char *text, *field, *rows;
    } cases[] = {
        {"{\"a\": 1}\n\n{\"a\": 2}\n", NULL, "1:{\"a\": 1};3:{\"a\": 2};"},
        {"[{\"a\": 1}, {\"a\": [1, \"]}\"]}]", NULL, "1/1:{\"a\": 1};1/2:{\"a\": [1, \"]}\"]};"},
        {"\xEF\xBB\xBF \n[\n {\"a\":\n1}\n,{}\n]\n", NULL, "3/1:{\"a\":\n1};5/2:{};"},
        {"[]", NULL, ""},
        {" [ ] ", NULL, ""},
        {"{\"version\": \"1\", \"data\": [{\"a\": 1}, {\"b\": \"\\\"\"}], \"n\": [1]}\n", NULL,
         "1/1:{\"a\": 1};1/2:{\"b\": \"\\\"\"};"},
        {"{\n\"rows\": [{\"a\": 1}],\n\"data\": []}", "rows", "2/1:{\"a\": 1};"},
        {"{\"data\": [{\"a\": 1}]}\n{\"data\": [{\"a\": 2}]}\n", NULL,
         "1:{\"data\": [{\"a\": 1}]};2:{\"data\": [{\"a\": 2}]};"},
        {"{\"data\": [1, 2]}", NULL, "1:{\"data\": [1, 2]};"},
        {"{\n \"a\": 1\n}\n{\n \"a\": 2}", NULL, "1/1:{\n \"a\": 1\n};4/2:{\n \"a\": 2};"},
        {"{\"a\": \"{\"}", NULL, "1:{\"a\": \"{\"};"},
        {"[1, \"x\", null]", NULL, "1/1:1;1/2:\"x\";1/3:null;"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_str all = {0};
        ASSERT_OK(list_rows(write_text(t, "a.json", cases[i].text), cases[i].field, &all));
        ASSERT_STR(all.data ? all.data : "", cases[i].rows);
        fsdp_str_fini(&all);
    }
}

TEST(an_array_without_an_end_is_an_error_with_row_and_line)
{
    static const struct {
        const char *text, *field, *message;
    } cases[] = {
        {"[{\"a\": 1},\n{\"a\": 2", NULL, "a.json: row 2 (line 2): the file ends too early"},
        {"[{\"a\": 1}\n", NULL, "row 2 (line 2): the file ends too early: a comma"},
        {"[{\"a\": 1} {\"a\": 2}]", NULL, "row 2 (line 1): unexpected '{': a comma"},
        {"[{\"a\": 1},]", NULL, "row 2 (line 1): unexpected ']': a value is missing"},
        {"[{\"a\": 1}] x", NULL, "unexpected 'x': nothing may follow"},
        {"{\n\"data\": [{\"a\": 1}]", NULL, "the file ends too early: nothing may follow"},
        {"{\"rows\": [{}]}", "data",
         "a.json: not one object with an array of objects under its key"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_str all = {0};
        fsdp_status status =
            list_rows(write_text(t, "a.json", cases[i].text), cases[i].field, &all);
        fsdp_str_fini(&all);
        ASSERT_ERROR(status, FSDP_ERR_FORMAT, cases[i].message);
    }
}

/* A row that begins in one buffer and ends in another one, in each form. */
/* Find "data" and then read beyond it: the NUL of the key is not the end of the name. */
TEST(a_key_with_nul_is_not_the_field)
{
    static const char file[] = "{\"data\0\": [\n{\"a\": 1}]}";
    fsdp_str rows = {0};
    const char *path = write_bytes(t, "a.json", file, sizeof file - 1);
    ASSERT_ERROR(list_rows(path, "data", &rows), FSDP_ERR_FORMAT, "not one object with an array");
    fsdp_str_fini(&rows);
}

TEST(long_rows_are_whole)
{
    const size_t n = 700000;
    char *text = fsdp_calloc(2 * n + 100, 1);
    ASSERT(text != NULL);
    strcpy(text, "[{\"a\": \"");
    memset(text + strlen(text), 'x', n);
    strcat(text, "\"},\n {\"a\": \"");
    memset(text + strlen(text), 'y', n);
    strcat(text, "\"}]");
    fsdp_str all = {0};
    ASSERT_OK(list_rows(write_text(t, "a.json", text), NULL, &all));
    ASSERT_INT(all.len, 2 * n + 2 * strlen("{\"a\": \"\"}") + strlen("1/1:;2/2:;"));
    fsdp_str_fini(&all);
    fsdp_free(text);
}

TEST(an_array_of_ids_is_a_dataset)
{
    const fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM, .vocab_size = 10};
    fsdp_dataset *set;
    fsdp_example e = {0};
    ASSERT_OK(fsdp_dataset_open(
        write_text(t, "a.json", "{\"data\": [{\"input_ids\": [1, 2]},\n {\"input_ids\": [3]}]}"),
        &options, &set));
    ASSERT_INT(fsdp_dataset_len(set), 2);
    ASSERT_OK(fsdp_dataset_get(set, 1, &e));
    ASSERT_INT(e.source.ids[0], 3);
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
    ASSERT_ERROR(
        fsdp_dataset_open(write_text(t, "a.json", "[{\"input_ids\": [1]},\n{\"input_ids\": [10]}]"),
                          &options, &set),
        FSDP_ERR_FORMAT, "a.json: row 2 (line 2): row: input_ids[0]");
}

/* ---- texts ---- */

static void check_texts(fsdp_test *t, const fsdp_dataset *set, int64_t index, const char *source,
                        const char *target)
{
    char *texts[2] = {NULL, NULL};
    ASSERT_OK(fsdp_dataset_texts(set, index, &texts[0], &texts[1]));
    ASSERT_STR(texts[0], source);
    ASSERT_STR(texts[1], target);
    fsdp_text_free(texts[0]);
    fsdp_text_free(texts[1]);
}

/* Texts of JSON give the same ids as the same texts of CSV. */
TEST(pairs_of_texts_in_json_are_those_of_csv)
{
    NEEDS_SENTENCEPIECE();
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    const fsdp_dataset_options options = {
        .tokenizer = tokenizer, .source_prefix = "sum: ", .max_source_length = 8};
    fsdp_dataset *csv, *json;
    ASSERT_OK(fsdp_dataset_open(
        write_text(t, "a.csv",
                   "text,headline\n\"Two\r\nlines of a text that is long\",\"a \"\"b\"\"\"\nc,d\n"),
        &options, &csv));
    ASSERT_OK(fsdp_dataset_open(write_text(t, "a.json",
                                           "[{\"text\": \"Two\\r\\nlines of a text that is long\","
                                           " \"headline\": \"a \\\"b\\\"\", \"id\": 7},\n"
                                           "{\"headline\": \"d\", \"text\": \"c\"}]"),
                                &options, &json));
    ASSERT_INT(fsdp_dataset_len(json), 2);
    ASSERT(strstr(fsdp_dataset_note(json), "a.json: not used: 'id' (line 1)") != NULL);
    check_texts(t, csv, 0, "sum: Two\r\nlines of a text that is long", "a \"b\"");
    check_texts(t, json, 0, "sum: Two\r\nlines of a text that is long", "a \"b\"");
    for (int64_t i = 0; i < 2; i++) {
        fsdp_example x = {0}, y = {0};
        ASSERT_OK(fsdp_dataset_get(csv, i, &x));
        ASSERT_OK(fsdp_dataset_get(json, i, &y));
        ASSERT_INT(x.source.len, y.source.len);
        ASSERT_INT(x.labels.len, y.labels.len);
        ASSERT(memcmp(x.source.ids, y.source.ids, x.source.len * sizeof(int32_t)) == 0);
        ASSERT(memcmp(x.labels.ids, y.labels.ids, x.labels.len * sizeof(int32_t)) == 0);
        fsdp_example_fini(&x);
        fsdp_example_fini(&y);
    }
    fsdp_left_out out;
    char line[200];
    ASSERT_OK(fsdp_dataset_left_out(json, 0, &out));
    ASSERT_INT(out.counted_rows, 2);
    ASSERT_INT(out.cut_rows, 1);
    ASSERT(out.cut_tokens >= 3);
    fsdp_left_out_text(&out, 2, "a.json", line, sizeof line);
    ASSERT(strncmp(line, "a.json: 1 of 2 rows are cut, by ", 32) == 0);
    ASSERT_OK(fsdp_dataset_left_out(json, 1, &out));
    ASSERT_INT(out.counted_rows, 1);
    fsdp_left_out_text(&out, 2, "a.json", line, sizeof line);
    ASSERT(strstr(line, "1 of the first 1 rows are cut") != NULL);
    fsdp_dataset_close(csv);
    fsdp_dataset_close(json);
    fsdp_tokenizer_close(tokenizer);
}

TEST(columns_are_found_by_name_language_and_option)
{
    NEEDS_SENTENCEPIECE();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    static const struct {
        const char *row;
        fsdp_dataset_options options;
        const char *source, *target, *note;
    } cases[] = {
        {"{\"article\": \"a\", \"highlights\": \"b\"}",
         {0},
         "a",
         "b",
         "the source is 'article', the target 'highlights'"},
        {"{\"dialogue\": \"a\", \"summary\": \"b\", \"x\": 1}",
         {0},
         "a",
         "b",
         "the source is 'dialogue', the target 'summary'; not used: 'x' (line 1)"},
        {"{\"document\": \"a\", \"summary\": \"b\", \"short\": \"c\"}",
         {.target_column = "short"},
         NULL,
         NULL,
         "text"},
        {"{\"document\": \"a\", \"summary\": \"b\"}",
         {.source_column = "document"},
         "a",
         "b",
         "the source"},
        {"{\"q\": \"a\", \"r\": \"b\"}",
         {.source_column = "r", .target_column = "q"},
         "b",
         "a",
         NULL},
        {"{\"translation\": {\"en\": \"a\", \"de\": \"b\"}}",
         {.source_lang = "de", .target_lang = "en"},
         "b",
         "a",
         NULL},
        {"{\"translation\": {\"en\": \"a\", \"de\": \"b\"}}",
         {.source_column = "translation.en", .target_column = "translation.de"},
         "a",
         "b",
         NULL},
        {"{\"translation\": {\"en\": \"a\", \"de\": \"b\"}}",
         {0},
         NULL,
         NULL,
         "translation has en, de: --source-lang and --target-lang say which"},
        {"{\"translation\": {\"en\": \"a\", \"de\": \"b\"}}",
         {.source_lang = "en", .target_lang = "fr"},
         NULL,
         NULL,
         "no key 'translation.fr'; the row has translation; --source-lang and --target-lang name "
         "the languages"},
        {"{\"en\": \"a\", \"de\": \"b\"}",
         {.source_lang = "en", .target_lang = "de"},
         "a",
         "b",
         NULL},
        {"{\"text\": \"a\", \"headline\": 5}", {0}, NULL, NULL, "headline: expected a string"},
        {"{\"text\": \"a\", \"headline\": null}", {0}, NULL, NULL, "headline: expected a text"},
        {"{\"text\": \"a\", \"headline\": \"b\", \"weight\": 2}", {0}, NULL, NULL, "weight"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_dataset_options options = cases[i].options;
        fsdp_dataset *set = NULL;
        options.tokenizer = tokenizer;
        const char *path = write_text(t, "a.jsonl", cases[i].row);
        if (!cases[i].source) {
            const fsdp_status status = fsdp_dataset_open(path, &options, &set);
            ASSERT(status == FSDP_ERR_FORMAT || status == FSDP_ERR_INVALID);
            ASSERT_ERROR(status, status, cases[i].note);
            ASSERT_ERROR(status, status, "a.jsonl: line 1: ");
            continue;
        }
        ASSERT_OK(fsdp_dataset_open(path, &options, &set));
        check_texts(t, set, 0, cases[i].source, cases[i].target);
        CHECK_HERE();
        const char *note = fsdp_dataset_note(set);
        ASSERT(!note == !cases[i].note);
        ASSERT(!note || strstr(note, cases[i].note));
        fsdp_dataset_close(set);
    }
    fsdp_dataset_options bad = {.source_lang = "en"};
    fsdp_dataset *set = NULL;
    ASSERT_ERROR(fsdp_dataset_open("a", &bad, &set), FSDP_ERR_INVALID, "without the other one");
    fsdp_tokenizer_close(tokenizer);
}

TEST(the_header_says_which_delimiter_separates_fields)
{
    NEEDS_SENTENCEPIECE();
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    static const struct {
        const char *name, *text;
        fsdp_dataset_options options;
        const char *source, *target, *note;
    } cases[] = {
        {"a.tsv", "text\theadline\na, b\t\"c\td\"\n", {0}, "a, b", "c\td", NULL},
        {"a.csv", "text\theadline\na, b\tc\n", {0}, "a, b", "c", "fields are separated by tabs"},
        {"a.csv", "text;headline\na, b;c\n", {0}, "a, b", "c", "separated by semicolons"},
        {"a.csv",
         "headline|text|x\nc|a, b|\n",
         {0},
         "a, b",
         "c",
         "separated by vertical bars; not used: 'x'"},
        {"a.csv", "text^headline\na, b^c\n", {.delimiter = '^'}, "a, b", "c", NULL},
        {"a.tsv", "text,headline\na,b\n", {0}, "a", "b", "fields are separated by commas"},
        {"a.tsv", "text\theadline\na \"b\t\"c\n", {.no_csv_quotes = true}, "a \"b", "\"c", NULL},
        /* The header fits with commas and with semicolons, and the row only with semicolons. */
        {"a.csv",
         "text,headline,x;text;headline\na,b;c;d\n",
         {0},
         "c",
         "d",
         "fields are separated by semicolons"},
        {"a.csv",
         "text,a b;headline\na,b;c\n",
         {.target_column = "a b;headline"},
         "a",
         "b;c",
         NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_dataset_options options = cases[i].options;
        fsdp_dataset *set = NULL;
        options.tokenizer = tokenizer;
        ASSERT_OK(fsdp_dataset_open(write_text(t, cases[i].name, cases[i].text), &options, &set));
        check_texts(t, set, 0, cases[i].source, cases[i].target);
        CHECK_HERE();
        const char *note = fsdp_dataset_note(set);
        ASSERT(!cases[i].note || (note && strstr(note, cases[i].note)));
        ASSERT(cases[i].note || !note || strstr(note, "commas") == NULL);
        fsdp_dataset_close(set);
    }
    fsdp_dataset *set = NULL;
    fsdp_dataset_options options = {.tokenizer = tokenizer};
    ASSERT_ERROR(
        fsdp_dataset_open(write_text(t, "a.csv", "a;b\nc;d\n"), &options, &set), FSDP_ERR_FORMAT,
        "a.csv: line 1: no column 'text'; the header has a, b; --text-column and --target-column");
    ASSERT_ERROR(
        fsdp_dataset_open(write_text(t, "a.csv", "<!DOCTYPE html>\n<html>\n"), &options, &set),
        FSDP_ERR_FORMAT, "a.csv: not CSV, but a web page (HTML)");
    options.delimiter = ',';
    ASSERT_ERROR(fsdp_dataset_open(write_text(t, "a.csv", "text;headline\nc;d\n"), &options, &set),
                 FSDP_ERR_FORMAT, "no column 'text'; the header has text;headline");
    options.delimiter = '"';
    ASSERT_ERROR(fsdp_dataset_open("a.csv", &options, &set), FSDP_ERR_INVALID, "delimiter 0x22");
    fsdp_tokenizer_close(tokenizer);
}

/* A column that an option names is the one that the error names, with the nearest column; without
 * options, the error says which options there are. For each form of a file and each task. */
TEST(a_missing_column_is_named_with_its_option)
{
    static const char csv[] = "id,question,answer\n1,a,b\n";
    static const char json[] = "{\"id\": 1, \"question\": \"a\", \"answer\": \"b\"}\n";
    const struct {
        fsdp_dataset_options options;
        const char *message[2]; /* after "column" or "key" */
    } cases[] = {
        {{.target_column = "anwser"},
         {"'anwser'; ", "--target-column anwser: did you mean 'answer'?"}},
        {{.source_column = "qestion"},
         {"'qestion'; ", "--text-column qestion: did you mean 'question'?"}},
        {{.source_column = "question", .target_column = "zzzzzz"},
         {"'zzzzzz'; ", "--target-column names it"}},
        {{.source_column = "question", .target_column = "headline2"},
         {"'headline2'; ", "has id, question, answer"}},
        {{.task = FSDP_TASK_CAUSAL_LM, .source_column = "anwser"},
         {"'anwser'; ", "did you mean 'answer'?"}},
        {{.task = FSDP_TASK_CAUSAL_LM, .source_column = "question", .target_column = "anwser"},
         {"'anwser'; ", "--target-column anwser: did you mean 'answer'?"}},
        {{.task = FSDP_TASK_CLASSIFICATION, .num_classes = 2, .source_column = "anwser"},
         {"'anwser'; ", "--text-column anwser: did you mean 'answer'?"}},
        {{.task = FSDP_TASK_CLASSIFICATION,
          .num_classes = 2,
          .source_column = "question",
          .text_pair_column = "anwser"},
         {"'anwser'; ", "--text-pair-column anwser: did you mean 'answer'?"}},
        {{.task = FSDP_TASK_CLASSIFICATION,
          .num_classes = 2,
          .source_column = "question",
          .label_column = "anwser"},
         {"'anwser'; ", "--label-column anwser: did you mean 'answer'?"}},
        {{.task = FSDP_TASK_CLASSIFICATION, .num_classes = 2},
         {"'label'; ", "--text-column and --label-column name the columns of text and label"}},
    };
    fsdp_tokenizer *tokenizer;
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("../data/tokenizers/t5"), &tokenizer));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int form = 0; form < 2; form++) {
            fsdp_dataset_options options = cases[i].options;
            fsdp_dataset *set;
            options.tokenizer = tokenizer;
            ASSERT_ERROR(
                fsdp_dataset_open(write_text(t, form ? "a.jsonl" : "a.csv", form ? json : csv),
                                  &options, &set),
                FSDP_ERR_FORMAT, cases[i].message[0]);
            ASSERT(strstr(fsdp_last_error(), form ? "line 1: no key '" : "line 1: no column '") !=
                   NULL);
            ASSERT(strstr(fsdp_last_error(), cases[i].message[1]) != NULL);
        }
    fsdp_tokenizer_close(tokenizer);
}

/* A delimiter that splits the header and most rows is found although no column is known: the error
 * lists the columns. A comma that does so, too, comes first. */
TEST(a_delimiter_is_found_by_how_it_splits_rows)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"\xEF\xBB\xBF"
         "Frage;Antwort\r\nWie, was?;gut\r\n",
         "has Frage, Antwort; --text-column and --target-column name the columns of source and "
         "target (fields are separated by semicolons)"},
        {"Frage\tAntwort\na, b\tc\n", "has Frage, Antwort; "},
        {"Frage|Antwort\na|c\n", "has Frage, Antwort; "},
        {"Frage;Antwort\n\"a;b\nc\";d\ne;f\n", "has Frage, Antwort; "},       /* quoted */
        {"Frage;Antwort\na;b\nc\nd;e\nf;g;h\ni;j\n", "has Frage, Antwort; "}, /* ragged */
        {"Frage;Antwort\n", "has Frage, Antwort; "},
        {"a;b,c\n1;2,3\n4,5\n", "has a;b, c; "},        /* the comma fits all rows */
        {"a;b,c\n1;2\n3;4\n5;6,7,8\n", "has a, b,c; "}, /* the semicolon fits all rows */
        {"review\na;b\nc;d\n", "has review; "},
        {"a;b\nc\nd\n", "has a;b; "}, /* no row is split */
    };
    fsdp_tokenizer *tokenizer;
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("../data/tokenizers/t5"), &tokenizer));
    const fsdp_dataset_options options = {.tokenizer = tokenizer};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_dataset *set;
        ASSERT_ERROR(fsdp_dataset_open(write_text(t, "a.csv", cases[i].text), &options, &set),
                     FSDP_ERR_FORMAT, cases[i].message);
    }
    fsdp_tokenizer_close(tokenizer);
}

/* ---- compression ---- */

typedef size_t compress_fn(const char *text, size_t n, unsigned char *out, size_t cap);

#ifdef FSDP_HAVE_ZLIB
static size_t gzip(const char *text, size_t n, unsigned char *out, size_t cap)
{
    z_stream z = {0};
    if (deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return 0;
    unsigned char *copy = fsdp_calloc(n + 1, 1);
    memcpy(copy, text, n);
    z.next_in = copy;
    z.avail_in = (unsigned)n;
    z.next_out = out;
    z.avail_out = (unsigned)cap;
    deflate(&z, Z_FINISH);
    const size_t size = cap - z.avail_out;
    deflateEnd(&z);
    fsdp_free(copy);
    return size;
}
#endif

#ifdef FSDP_HAVE_ZSTD
static size_t zstd(const char *text, size_t n, unsigned char *out, size_t cap)
{
    const size_t size = ZSTD_compress(out, cap, text, n, 3);
    return ZSTD_isError(size) ? 0 : size;
}
#endif

#if defined(FSDP_HAVE_ZLIB) || defined(FSDP_HAVE_ZSTD)
/* A text that does not compress well, of several buffers. */
static char *make_lines(size_t rows)
{
    fsdp_str s = {0};
    unsigned x = 1;
    for (size_t i = 0; i < rows; i++) {
        fsdp_str_printf(&s, "{\"input_ids\": [%zu", i % 1000);
        for (int k = 0; k < 8; k++) {
            x = x * 1664525u + 1013904223u;
            fsdp_str_printf(&s, ", %u", x >> 12 & 0xffff);
        }
        fsdp_str_printf(&s, "]}\n");
    }
    return fsdp_str_take(&s);
}

static void check_compression(fsdp_test *t, compress_fn *compress, const char *ending,
                              const char *kind)
{
    char *text = make_lines(6000), name[40], message[100];
    const size_t n = strlen(text), cap = n + 1000;
    unsigned char *bytes = fsdp_calloc(2 * cap, 1);
    const fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM};
    fsdp_dataset *set = NULL;
    fsdp_example e = {0};
    size_t size = compress(text, n / 2, bytes, cap);
    size += compress(text + n / 2, n - n / 2, bytes + size, cap); /* a file of two members */
    ASSERT(size > 70000);
    snprintf(name, sizeof name, "a.jsonl%s", ending);
    ASSERT_OK(fsdp_dataset_open(write_bytes(t, name, bytes, size), &options, &set));
    ASSERT_INT(fsdp_dataset_len(set), 6000);
    ASSERT_OK(fsdp_dataset_get(set, 5999, &e));
    ASSERT_INT(e.source.ids[0], 999);
    fsdp_dataset_close(set);
    /* The name does not matter: the same bytes without an ending, and text with the ending. */
    ASSERT_OK(fsdp_dataset_open(write_bytes(t, "a", bytes, size), &options, &set));
    ASSERT_INT(fsdp_dataset_len(set), 6000);
    fsdp_dataset_close(set);
    ASSERT_OK(fsdp_dataset_open(write_bytes(t, name, text, n), &options, &set));
    fsdp_dataset_close(set);
    snprintf(message, sizeof message, "%s: %s-compressed data are damaged", name, kind);
    for (size_t less = 1; less < size; less = less * 3 + 1)
        ASSERT_ERROR(fsdp_dataset_open(write_bytes(t, name, bytes, size - less), &options, &set),
                     FSDP_ERR_FORMAT, message);
    bytes[size / 3] ^= 0x55;
    bytes[size / 3 + 1] ^= 0xaa;
    ASSERT(fsdp_dataset_open(write_bytes(t, name, bytes, size), &options, &set) != FSDP_OK);
    fsdp_example_fini(&e);
    fsdp_free(bytes);
    fsdp_free(text);
}

/* A compressed CSV is read again by places, so it is decompressed to a file. */
static void check_compressed_csv(fsdp_test *t, compress_fn *compress, const char *name)
{
    static const char text[] = "text,headline\n\"a\nb\",c\nd,e\n";
    unsigned char bytes[400];
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    const fsdp_dataset_options options = {.tokenizer = tokenizer};
    fsdp_dataset *set;
    const size_t size = compress(text, sizeof text - 1, bytes, sizeof bytes);
    ASSERT_OK(fsdp_dataset_open(write_bytes(t, name, bytes, size), &options, &set));
    check_texts(t, set, 1, "d", "e");
    check_texts(t, set, 0, "a\nb", "c");
    fsdp_dataset_close(set);
    fsdp_tokenizer_close(tokenizer);
}
#endif

#ifdef FSDP_HAVE_ZLIB
/* Two members with zeros after each, which are more than the buffer of the reader has. Other bytes
 * after a member are an error. */
static void check_padded_gzip(fsdp_test *t)
{
    enum {
        ZEROS = 100000
    };
    static const char text[] = "{\"input_ids\": [5], \"labels\": [6]}\n";
    static unsigned char bytes[2 * ZEROS + 400];
    const fsdp_dataset_options options = {0};
    fsdp_dataset *set;
    const size_t first = gzip(text, sizeof text - 1, bytes, 200);
    const size_t size = first + ZEROS + gzip(text, sizeof text - 1, bytes + first + ZEROS, 200);
    ASSERT_OK(fsdp_dataset_open(write_bytes(t, "a.jsonl.gz", bytes, size + ZEROS), &options, &set));
    ASSERT_INT(fsdp_dataset_len(set), 2);
    fsdp_dataset_close(set);
    bytes[size + 3] = 1;
    ASSERT_ERROR(
        fsdp_dataset_open(write_bytes(t, "a.jsonl.gz", bytes, size + ZEROS), &options, &set),
        FSDP_ERR_FORMAT, "gzip-compressed data are damaged");
}
#endif

TEST(gzip_is_read_as_the_text_in_it)
{
#ifdef FSDP_HAVE_ZLIB
    check_compression(t, gzip, ".gz", "gzip");
    CHECK_HERE();
    NEEDS_SENTENCEPIECE();
    NEEDS_LIBCSV();
    check_compressed_csv(t, gzip, "a.csv.gz");
    CHECK_HERE();
    check_padded_gzip(t);
#else
    fsdp_dataset *set;
    ASSERT_ERROR(fsdp_dataset_open(write_bytes(t, "a.jsonl", "\x1f\x8b\x08\0", 4), NULL, &set),
                 FSDP_ERR_UNSUPPORTED, "built without zlib: decompress it first, with gunzip");
#endif
}

TEST(zstd_is_read_as_the_text_in_it)
{
#ifdef FSDP_HAVE_ZSTD
    check_compression(t, zstd, ".zst", "zstd");
    CHECK_HERE();
    NEEDS_SENTENCEPIECE();
    NEEDS_LIBCSV();
    check_compressed_csv(t, zstd, "a.tsv.zst");
#else
    fsdp_dataset *set;
    ASSERT_ERROR(fsdp_dataset_open(write_bytes(t, "a.jsonl", "\x28\xb5\x2f\xfd", 4), NULL, &set),
                 FSDP_ERR_UNSUPPORTED, "built without libzstd: decompress it first, with unzstd");
#endif
}

/* ---- what is left out ---- */

TEST(ids_that_are_cut_are_counted)
{
    fsdp_dataset *set;
    fsdp_left_out out;
    fsdp_dataset_options options = {.max_source_length = 2, .max_target_length = 1};
    ASSERT_OK(fsdp_dataset_open(write_text(t, "a.jsonl",
                                           "{\"input_ids\": [1, 2, 3, 4], \"labels\": [5, 6]}\n"
                                           "{\"input_ids\": [1, 2], \"labels\": [5]}\n"),
                                &options, &set));
    ASSERT_OK(fsdp_dataset_left_out(set, 0, &out));
    ASSERT_INT(out.counted_rows, 2);
    ASSERT_INT(out.cut_rows, 1);
    ASSERT_INT(out.cut_tokens, 3);
    fsdp_dataset_close(set);
    options = (fsdp_dataset_options){.task = FSDP_TASK_CAUSAL_LM, .max_length = 3};
    ASSERT_OK(fsdp_dataset_open(
        write_text(t, "a.jsonl",
                   "{\"input_ids\": [1, 2, 3, 4, 5], \"attention_mask\": [0, 1, 1, 1, 1]}\n"
                   "{\"input_ids\": [1, 2, 3]}\n"
                   "{\"prompt_ids\": [1, 2], \"completion_ids\": [3, 4, 5]}\n"),
        &options, &set));
    ASSERT_OK(fsdp_dataset_left_out(set, 0, &out));
    ASSERT_INT(out.cut_rows, 2);
    ASSERT_INT(out.cut_tokens, 1 + 2);
    fsdp_dataset_close(set);
    ASSERT_OK(fsdp_dataset_open(write_bytes(t, "a.bin", "\1\0\2\0\3\0\4\0\5\0\6\0\7\0", 14),
                                &options, &set));
    ASSERT_OK(fsdp_dataset_left_out(set, 0, &out));
    ASSERT_INT(fsdp_dataset_len(set), 2);
    ASSERT_INT(out.unused_tokens, 1);
    fsdp_dataset_close(set);
}

/* The share for validation is of the rows of all files together: those before it are not counted
 * again. Rows 0 and 9 of 10 are cut. */
TEST(a_share_of_several_files_counts_its_own_rows)
{
    fsdp_dataset *set;
    fsdp_left_out out;
    fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM, .max_length = 3};
    char pattern[600];
    int64_t cut = 0, counted = 0;
    for (int file = 0; file < 2; file++) {
        fsdp_str text = {0};
        for (int i = 0; i < 5; i++)
            fsdp_str_printf(&text, "{\"input_ids\": [1, 2, 3%s]}\n",
                            (file == 0 && i == 0) || (file == 1 && i == 4) ? ", 4" : "");
        snprintf(pattern, sizeof pattern, "%s",
                 write_text(t, file ? "s1.jsonl" : "s0.jsonl", text.data));
        fsdp_str_fini(&text);
    }
    snprintf(pattern + strlen(pattern) - strlen("1.jsonl"), 9, "?.jsonl");
    for (int i = 0; i < 2; i++) {
        options.split = i ? FSDP_SPLIT_VALIDATION : FSDP_SPLIT_TRAIN;
        ASSERT_OK(fsdp_dataset_open(pattern, &options, &set));
        ASSERT_OK(fsdp_dataset_left_out(set, 0, &out));
        ASSERT_INT(out.counted_rows, fsdp_dataset_len(set));
        ASSERT_INT(out.cut_rows, 1);
        cut += out.cut_rows;
        counted += out.counted_rows;
        ASSERT_OK(fsdp_dataset_left_out(set, 1, &out));
        ASSERT_INT(out.counted_rows, 1);
        fsdp_dataset_close(set);
    }
    ASSERT_INT(cut, 2);
    ASSERT_INT(counted, 10);
}

/* Masking changes no row's length: what the rows lose is said. */
TEST(masked_rows_that_are_cut_are_counted)
{
    fsdp_dataset *set;
    fsdp_left_out out;
    const fsdp_masking masking = {.mlm_probability = 0.5, .mask_token_id = 4};
    const fsdp_dataset_options options = {
        .task = FSDP_TASK_MASKED_LM, .max_length = 3, .vocab_size = 9, .masking = &masking};
    ASSERT_OK(fsdp_dataset_open(write_text(t, "a.jsonl",
                                           "{\"input_ids\": [1, 2, 3, 5, 5]}\n"
                                           "{\"input_ids\": [1, 2, 3]}\n"),
                                &options, &set));
    ASSERT_OK(fsdp_dataset_left_out(set, 0, &out));
    ASSERT_INT(out.cut_rows, 1);
    ASSERT_INT(out.cut_tokens, 2);
    ASSERT_INT(out.counted_rows, 2);
    fsdp_dataset_close(set);
}

/* Each allocation fails in turn: an error, and no leak (checked by ASan). */
TEST(no_allocation_is_taken_for_granted)
{
    static const char rows[] = "{\"data\": [{\"input_ids\": [1, 2]}, {\"input_ids\": [3, 4]}]}";
    const fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM};
    const char *path = write_text(t, "a.json", rows);
    int failures = 0;
    for (long n = 1; n <= 60; n++) {
        fsdp_dataset *set = NULL;
        fsdp_alloc_fail_at(n);
        const fsdp_status status = fsdp_dataset_open(path, &options, &set);
        fsdp_alloc_fail_at(0);
        ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
        failures += status != FSDP_OK;
        fsdp_dataset_close(set);
    }
    ASSERT(failures > 8 && failures < 60);
}
