/* Arrow folders as data sets: the same examples as JSON lines with the same rows. The folders are
 * those that tests/fixtures/arrow/make_arrow.py made with datasets, and folders that the library's
 * own writer makes. */
#include <fsdp/data.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/data/arrow/table.h"
#include "src/data/arrow/write.h"
#include "src/data/datasets/dataset.h"
#include "src/data/labels/class_text.h"
#include "src/data/rows/dataset_options.h"
#include "src/data/rows/rows_form.h"
#include "tests/test.h"

enum {
    X = FSDP_IGNORE_INDEX
};

static const char *fixture(const char *name)
{
    static char path[600];
    char relative[200];
    snprintf(relative, sizeof relative, "fixtures/arrow/%s", name);
    snprintf(path, sizeof path, "%s", fsdp_test_path(relative));
    return path;
}

static const char *in_dir(fsdp_test *t, const char *name)
{
    static char paths[4][600];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", fsdp_test_dir(t), name);
    return path;
}

static void write_text(fsdp_test *t, const char *name, const char *text)
{
    ASSERT_OK(fsdp_file_write(in_dir(t, name), text, strlen(text)));
}

/* Copy a folder of files, as `name`. */
static void copy_folder(fsdp_test *t, const char *from, const char *name)
{
    char **files;
    size_t n;
    ASSERT_OK(fsdp_directory_list(from, &files, &n));
    ASSERT_OK(fsdp_directory_make(in_dir(t, name)));
    for (size_t i = 0; i < n; i++) {
        char *source = fsdp_path_join(from, files[i]);
        char *target = fsdp_path_join(in_dir(t, name), files[i]);
        ASSERT(source && target);
        ASSERT_OK(fsdp_file_copy(source, target));
        fsdp_free(source);
        fsdp_free(target);
    }
    fsdp_free(files);
}

static void check_list(fsdp_test *t, const fsdp_token_list *list, const int32_t *expected,
                       size_t count)
{
    ASSERT_INT(list->len, count);
    for (size_t i = 0; i < count; i++)
        ASSERT_INT(list->ids[i], expected[i]);
}
#define CHECK_LIST(list, ...)                                                                      \
    do {                                                                                           \
        const int32_t expected_[] = {__VA_ARGS__};                                                 \
        check_list(t, list, expected_, sizeof expected_ / sizeof *expected_);                      \
        CHECK_HERE();                                                                              \
    } while (0)

/* Both data sets must have the same examples. */
static void check_same(fsdp_test *t, const char *arrow, const char *jsonl,
                       const fsdp_dataset_options *options)
{
    fsdp_dataset *sets[2];
    fsdp_example examples[2] = {0};
    ASSERT_OK(fsdp_dataset_open(arrow, options, &sets[0]));
    ASSERT_OK(fsdp_dataset_open(jsonl, options, &sets[1]));
    ASSERT_INT(fsdp_dataset_len(sets[0]), fsdp_dataset_len(sets[1]));
    ASSERT_INT(fsdp_dataset_uses(sets[0]) | FSDP_USES_JSON, fsdp_dataset_uses(sets[1]));
    for (int64_t i = 0; i < fsdp_dataset_len(sets[0]); i++) {
        const fsdp_example *a = &examples[0], *b = &examples[1];
        ASSERT_OK(fsdp_dataset_get(sets[0], i, &examples[0]));
        ASSERT_OK(fsdp_dataset_get(sets[1], i, &examples[1]));
        check_list(t, &a->source, b->source.ids, b->source.len);
        check_list(t, &a->labels, b->labels.ids, b->labels.len);
        check_list(t, &a->token_type_ids, b->token_type_ids.ids, b->token_type_ids.len);
        check_list(t, &a->position_ids, b->position_ids.ids, b->position_ids.len);
        CHECK_HERE();
    }
    for (int k = 0; k < 2; k++) {
        fsdp_example_fini(&examples[k]);
        fsdp_dataset_close(sets[k]);
    }
}

/* ---- the rows of folders ---- */

TEST(each_split_of_a_dict_is_read_where_it_belongs)
{
    NEEDS_FLATBUFFERS();
    fsdp_dataset *dataset;
    fsdp_example example = {0};
    ASSERT_OK(fsdp_dataset_open(fixture("splits"), NULL, &dataset));
    ASSERT_INT(fsdp_dataset_len(dataset), 5);
    ASSERT_OK(fsdp_dataset_get(dataset, 2, &example));
    CHECK_LIST(&example.source, 3, 1);
    CHECK_LIST(&example.labels, 7, X, 1);
    if (!strstr(fsdp_dataset_note(dataset), "arrow/splits/train: not used: 'idx'"))
        FAIL("note '%s'", fsdp_dataset_note(dataset));
    fsdp_dataset_close(dataset);
    /* Validation, by either option. */
    const fsdp_dataset_options options[] = {{.validation = true}, {.split = FSDP_SPLIT_VALIDATION}};
    for (size_t i = 0; i < 2; i++) {
        ASSERT_OK(fsdp_dataset_open(fixture("splits"), &options[i], &dataset));
        ASSERT_INT(fsdp_dataset_len(dataset), 2);
        ASSERT_OK(fsdp_dataset_get(dataset, 0, &example));
        CHECK_LIST(&example.source, 4, 4, 4, 1);
        fsdp_dataset_close(dataset);
    }
    fsdp_example_fini(&example);
    ASSERT(fsdp_arrow_has_validation(fixture("splits")));
    ASSERT(!fsdp_arrow_has_validation(fixture("pairs")));
    ASSERT(!fsdp_arrow_has_validation(fixture("shards")));
    ASSERT(!fsdp_arrow_has_validation(fixture("types.arrow")));
}

/* The trailing slash of a shell's completion changes nothing. */
TEST(shards_are_read_one_after_the_other)
{
    NEEDS_FLATBUFFERS();
    write_text(t, "rows.jsonl",
               "{\"input_ids\": [5, 6, 7, 1], \"labels\": [5, 1], \"idx\": 0}\n"
               "{\"input_ids\": [8, 9, 1], \"labels\": [6, 1], \"idx\": 1}\n"
               "{\"input_ids\": [3, 1], \"labels\": [7, -100, 1], \"idx\": 2}\n"
               "{\"input_ids\": [4, 4, 4, 1], \"labels\": [8, 1], \"idx\": 3}\n"
               "{\"input_ids\": [2, 1], \"labels\": [9, 1], \"idx\": 4}\n");
    const char *jsonl = in_dir(t, "rows.jsonl");
    static const fsdp_dataset_options options[] = {
        {.vocab_size = 10},
        {.max_samples = 3},
        {.validation = true},
        {.split = FSDP_SPLIT_TRAIN},
        {.split = FSDP_SPLIT_VALIDATION, .max_samples = 1},
        {.max_source_length = 2, .max_target_length = 2, .eos_id = 1},
        {.task = FSDP_TASK_SEQ2SEQ, .max_source_length = 1}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        check_same(t, fixture("shards/"), jsonl, &options[i]);
        CHECK_HERE();
    }
}

TEST(the_indices_of_select_are_honoured)
{
    NEEDS_FLATBUFFERS();
    fsdp_dataset *dataset;
    fsdp_example example = {0};
    ASSERT_OK(fsdp_dataset_open(fixture("indices"), NULL, &dataset));
    ASSERT_INT(fsdp_dataset_len(dataset), 3);
    ASSERT_OK(fsdp_dataset_get(dataset, 0, &example));
    CHECK_LIST(&example.source, 2, 1);
    ASSERT_OK(fsdp_dataset_get(dataset, 1, &example));
    CHECK_LIST(&example.source, 5, 6, 7, 1);
    ASSERT_OK(fsdp_dataset_get(dataset, 2, &example));
    CHECK_LIST(&example.source, 3, 1);
    fsdp_example_fini(&example);
    fsdp_dataset_close(dataset);
}

TEST(set_format_leaves_columns_out)
{
    NEEDS_FLATBUFFERS();
    fsdp_dataset *dataset;
    ASSERT_OK(fsdp_dataset_open(fixture("columns"), NULL, &dataset));
    ASSERT(fsdp_dataset_note(dataset) == NULL); /* 'idx' is not a column of the rows */
    fsdp_dataset_close(dataset);
    copy_folder(t, fixture("columns"), "all");
    CHECK_HERE();
    static const char state[] =
        "{\"_data_files\": [{\"filename\": \"data-00000-of-00001.arrow\"}], "
        "\"_format_columns\": [\"input_ids\"], "
        "\"_output_all_columns\": %s}";
    char text[300];
    snprintf(text, sizeof text, state, "true");
    write_text(t, "all/state.json", text);
    ASSERT_OK(fsdp_dataset_open(in_dir(t, "all"), NULL, &dataset));
    fsdp_dataset_close(dataset);
    snprintf(text, sizeof text, state, "false");
    write_text(t, "all/state.json", text);
    ASSERT_ERROR(
        fsdp_dataset_open(in_dir(t, "all"), NULL, &dataset), FSDP_ERR_FORMAT,
        "row: labels: missing, expected a list (rows have only the columns of '_format_columns'");
}

TEST(classes_are_those_of_a_jsonl_and_their_names_are_reported)
{
    NEEDS_FLATBUFFERS();
    static const char *const names[] = {"not_equivalent", "equivalent"};
    static const char *const others[] = {"no", "LABEL_1"};
    fsdp_dataset_options options = {.task = FSDP_TASK_CLASSIFICATION, .num_classes = 2};
    fsdp_dataset *dataset;
    write_text(t, "pairs.jsonl",
               "{\"input_ids\": [2, 5, 3, 6, 3], \"token_type_ids\": [0, 0, 0, 1, 1], "
               "\"attention_mask\": [1, 1, 1, 1, 1], \"sentence1\": \"five\", \"label\": 1}\n"
               "{\"input_ids\": [2, 7, 3, 3, 0], \"token_type_ids\": [0, 0, 0, 1, 0], "
               "\"attention_mask\": [1, 1, 1, 1, 0], \"sentence1\": \"seven\", \"label\": 0}\n");
    check_same(t, fixture("pairs"), in_dir(t, "pairs.jsonl"), &options);
    CHECK_HERE();
    ASSERT_OK(fsdp_dataset_open(fixture("pairs"), &options, &dataset));
    ASSERT(strstr(fsdp_dataset_note(dataset), "not used: 'sentence1'\n"));
    ASSERT(strstr(fsdp_dataset_note(dataset),
                  "classes of 'label': 0 'not_equivalent', 1 'equivalent'"));
    fsdp_dataset_close(dataset);
    options.class_names = names;
    ASSERT_OK(fsdp_dataset_open(fixture("pairs"), &options, &dataset));
    ASSERT(!strstr(fsdp_dataset_note(dataset), "classes"));
    fsdp_dataset_close(dataset);
    options.class_names = others;
    ASSERT_OK(fsdp_dataset_open(fixture("pairs"), &options, &dataset));
    ASSERT(strstr(fsdp_dataset_note(dataset),
                  "0 'not_equivalent', which the model calls 'no', 1 'equivalent'"));
    fsdp_dataset_close(dataset);
    /* There is no split for validation, so the one for tests is used, and this is said. */
    options.validation = true;
    ASSERT_OK(fsdp_dataset_open(fixture("pairs"), &options, &dataset));
    ASSERT_INT(fsdp_dataset_len(dataset), 1);
    ASSERT(strstr(fsdp_dataset_note(dataset), "the split 'test' is used"));
    fsdp_dataset_close(dataset);
    options.num_classes = 1;
    options.class_names = NULL;
    options.validation = false;
    options.class_hint = "HINT";
    ASSERT_ERROR(fsdp_dataset_open(fixture("pairs"), &options, &dataset), FSDP_ERR_FORMAT,
                 "row: label: expected an integer from 0 to 0: the model has 1 classes; HINT");
}

/* The type of the column says that lists of numbers are classes, where the numbers do not. */
TEST(lists_of_class_labels_have_indices)
{
    NEEDS_FLATBUFFERS();
    fsdp_found_labels found;
    fsdp_label_lists lists;
    fsdp_dataset_options options = {.task = FSDP_TASK_CLASSIFICATION}, full;
    ASSERT_OK(fsdp_labels_find(fixture("emotions"), &options, &found));
    ASSERT_INT(found.problem_type, FSDP_PROBLEM_MULTI_LABEL);
    ASSERT_INT(found.classes, 3);
    ASSERT_STR(found.names[2], "surprise");
    fsdp_found_labels_fini(&found);
    options.problem_type = FSDP_PROBLEM_MULTI_LABEL;
    options.num_classes = 2;
    ASSERT_OK(fsdp_dataset_complete_options(&options, &full));
    ASSERT_OK(fsdp_label_lists_find(fixture("emotions"), &full, &lists));
    ASSERT_INT(lists, FSDP_LABEL_LISTS_INDICES);
}

/* The names are also in the schema of each file. */
TEST(a_single_file_is_a_data_set)
{
    NEEDS_FLATBUFFERS();
    const fsdp_dataset_options options = {.task = FSDP_TASK_CLASSIFICATION, .num_classes = 2};
    fsdp_dataset *dataset;
    ASSERT_OK(
        fsdp_dataset_open(fixture("pairs/train/data-00000-of-00001.arrow"), &options, &dataset));
    ASSERT_INT(fsdp_dataset_len(dataset), 2);
    ASSERT(strstr(fsdp_dataset_note(dataset), "0 'not_equivalent', 1 'equivalent'"));
    fsdp_dataset_close(dataset);
}

/* Texts of causal models, with a prompt; also in batches that are decompressed. */
TEST(texts_are_tokenized_like_those_of_a_jsonl)
{
    NEEDS_FLATBUFFERS();
    NEEDS_SENTENCEPIECE();
    static const struct {
        const char *prompt, *completion;
    } rows[] = {{"Say: ", "the house"}, {"", "a b"}, {"x \n", ""}, {"The", " house is small."}};
    const fsdp_arrow_column columns[] = {{.name = "prompt", .type = FSDP_ARROW_COLUMN_TEXT},
                                         {.name = "completion", .type = FSDP_ARROW_COLUMN_TEXT}};
    fsdp_arrow_writer *writer;
    fsdp_tokenizer *tokenizer;
    char lines[600] = "";
    ASSERT_OK(fsdp_arrow_writer_begin(in_dir(t, "texts"), FSDP_EXISTING_REFUSE, NULL, &writer));
    ASSERT_OK(fsdp_arrow_writer_begin_split(writer, "train", columns, 2));
    for (size_t i = 0; i < 4; i++) {
        ASSERT_OK(fsdp_arrow_writer_set_text(writer, 0, rows[i].prompt, strlen(rows[i].prompt)));
        ASSERT_OK(
            fsdp_arrow_writer_set_text(writer, 1, rows[i].completion, strlen(rows[i].completion)));
        ASSERT_OK(fsdp_arrow_writer_end_row(writer));
        snprintf(lines + strlen(lines), sizeof lines - strlen(lines),
                 "{\"prompt\": \"%s\", \"completion\": \"%s\"}\n",
                 i == 2 ? "x \\n" : rows[i].prompt, rows[i].completion);
    }
    ASSERT_OK(fsdp_arrow_writer_commit(writer));
    write_text(t, "texts.jsonl", lines);
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("../data/tokenizers/t5"), &tokenizer));
    const fsdp_dataset_options options[] = {
        {.task = FSDP_TASK_CAUSAL_LM, .tokenizer = tokenizer, .source_prefix = "Q: "},
        {.task = FSDP_TASK_CAUSAL_LM, .tokenizer = tokenizer, .max_length = 3},
        {.task = FSDP_TASK_CAUSAL_LM, .tokenizer = tokenizer, .source_column = "completion"}};
    for (size_t i = 0; i < 3; i++) {
        check_same(t, in_dir(t, "texts"), in_dir(t, "texts.jsonl"), &options[i]);
        CHECK_HERE();
    }
    fsdp_dataset *dataset;
    char *source, *target;
    ASSERT_OK(fsdp_dataset_open(in_dir(t, "texts"), &options[0], &dataset));
    ASSERT_OK(fsdp_dataset_texts(dataset, 3, &source, &target));
    ASSERT_STR(source, "Q: The");
    ASSERT_STR(target, "house is small.");
    fsdp_text_free(source);
    fsdp_text_free(target);
    fsdp_dataset_close(dataset);
    fsdp_tokenizer_close(tokenizer);
}

/* Append rows of texts to the split, with integers in the third column. */
static void append_rows(fsdp_test *t, fsdp_arrow_writer *writer, const char *const rows[][3],
                        size_t n, bool numbers)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < 2; k++)
            ASSERT_OK(fsdp_arrow_writer_set_text(writer, k, rows[i][k], strlen(rows[i][k])));
        if (numbers)
            ASSERT_OK(fsdp_arrow_writer_set_i64(writer, 2, rows[i][2][0] - '0'));
        ASSERT_OK(fsdp_arrow_writer_end_row(writer));
    }
}

static void write_texts(fsdp_test *t, const char *name, const fsdp_arrow_column *columns,
                        size_t n_columns, const char *const rows[][3], size_t n)
{
    fsdp_arrow_writer *writer;
    const fsdp_arrow_write_options small = {.batch_rows = 2};
    ASSERT_OK(fsdp_arrow_writer_begin(in_dir(t, name), FSDP_EXISTING_REFUSE, &small, &writer));
    ASSERT_OK(fsdp_arrow_writer_begin_split(writer, "train", columns, n_columns));
    append_rows(t, writer, rows, n - 1, n_columns == 3);
    CHECK_HERE();
    ASSERT_OK(fsdp_arrow_writer_begin_split(writer, "validation", columns, n_columns));
    append_rows(t, writer, rows + n - 1, 1, n_columns == 3);
    CHECK_HERE();
    ASSERT_OK(fsdp_arrow_writer_commit(writer));
}

TEST(pairs_of_texts_are_sources_and_targets)
{
    NEEDS_FLATBUFFERS();
    const fsdp_arrow_column columns[] = {{.name = "document", .type = FSDP_ARROW_COLUMN_TEXT},
                                         {.name = "summary", .type = FSDP_ARROW_COLUMN_TEXT}};
    static const char *const rows[][3] = {
        {"The house is small.", "house"}, {"a\r\nb", ""}, {"one two three", "one"}, {"x", "y"}};
    fsdp_tokenizer *tokenizer;
    fsdp_dataset *dataset;
    fsdp_left_out left;
    char *source, *target;
    write_texts(t, "summaries", columns, 2, rows, 4);
    CHECK_HERE();
    write_text(t, "summaries.jsonl",
               "{\"document\": \"The house is small.\", \"summary\": \"house\"}\n"
               "{\"document\": \"a\\r\\nb\", \"summary\": \"\"}\n"
               "{\"document\": \"one two three\", \"summary\": \"one\"}\n");
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("../data/tokenizers/t5"), &tokenizer));
    fsdp_dataset_options options = {
        .tokenizer = tokenizer, .source_prefix = "summarize: ", .max_source_length = 6};
    check_same(t, in_dir(t, "summaries"), in_dir(t, "summaries.jsonl"), &options);
    CHECK_HERE();
    ASSERT_OK(fsdp_dataset_open(in_dir(t, "summaries"), &options, &dataset));
    ASSERT(strstr(fsdp_dataset_note(dataset), "the source is 'document', the target 'summary'"));
    ASSERT_OK(fsdp_dataset_left_out(dataset, 0, &left));
    ASSERT_INT(left.counted_rows, 3);
    ASSERT(left.cut_rows > 0 && left.cut_rows < 3);
    fsdp_dataset_close(dataset);
    options.validation = true;
    ASSERT_OK(fsdp_dataset_open(in_dir(t, "summaries"), &options, &dataset));
    ASSERT_OK(fsdp_dataset_texts(dataset, 0, &source, &target));
    ASSERT_STR(source, "summarize: x");
    ASSERT_STR(target, "y");
    fsdp_text_free(source);
    fsdp_text_free(target);
    fsdp_dataset_close(dataset);
    fsdp_tokenizer_close(tokenizer);
}

TEST(pairs_of_texts_have_classes_of_a_class_label)
{
    NEEDS_FLATBUFFERS();
    static const char *const names[] = {"same", "other", "unrelated"};
    const fsdp_arrow_column columns[] = {
        {.name = "sentence1", .type = FSDP_ARROW_COLUMN_TEXT},
        {.name = "sentence2", .type = FSDP_ARROW_COLUMN_TEXT},
        {.name = "label", .type = FSDP_ARROW_COLUMN_I64, .class_names = names, .n_classes = 3}};
    static const char *const rows[][3] = {{"a house", "the house", "0"},
                                          {"one", "two", "1"},
                                          {"one two three four five six", "one", "1"},
                                          {"x", "y", "1"}};
    fsdp_tokenizer *tokenizer;
    fsdp_dataset *dataset;
    fsdp_found_labels found;
    write_texts(t, "classes", columns, 3, rows, 4);
    CHECK_HERE();
    write_text(t, "classes.jsonl",
               "{\"sentence1\": \"a house\", \"sentence2\": \"the house\", \"label\": 0}\n"
               "{\"sentence1\": \"one\", \"sentence2\": \"two\", \"label\": 1}\n"
               "{\"sentence1\": \"one two three four five six\", \"sentence2\": \"one\", "
               "\"label\": 1}\n");
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("../data/tokenizers/t5"), &tokenizer));
    fsdp_dataset_options options = {.task = FSDP_TASK_CLASSIFICATION,
                                    .tokenizer = tokenizer,
                                    .num_classes = 3,
                                    .max_length = 8};
    check_same(t, in_dir(t, "classes"), in_dir(t, "classes.jsonl"), &options);
    CHECK_HERE();
    ASSERT_OK(fsdp_labels_find(in_dir(t, "classes"), &options, &found));
    ASSERT_INT(found.classes, 3);
    ASSERT_INT(found.rows, 3);
    ASSERT_STR(found.names[2], "unrelated");
    fsdp_found_labels_fini(&found);
    options.num_classes = 1;
    ASSERT_ERROR(fsdp_dataset_open(in_dir(t, "classes"), &options, &dataset), FSDP_ERR_FORMAT,
                 "data-00000-of-00001.arrow: row 1: label: expected an integer from 0 to 0");
    /* The same rows in a DatasetDict that has no split for training. */
    char from[600];
    bool any = false;
    ASSERT_OK(fsdp_directory_make(in_dir(t, "dict")));
    write_text(t, "dict/dataset_dict.json", "{\"splits\": [\"test\"]}");
    snprintf(from, sizeof from, "%s/classes/train", fsdp_test_dir(t));
    ASSERT(rename(from, in_dir(t, "dict/test")) == 0);
    options.num_classes = 3;
    options.validation = true;
    ASSERT_OK(fsdp_labels_find(in_dir(t, "dict"), &options, &found));
    ASSERT_INT(found.classes, 3);
    fsdp_found_labels_fini(&found);
    ASSERT_OK(fsdp_labels_exist(in_dir(t, "dict"), &options, &any));
    ASSERT(any);
    fsdp_tokenizer_close(tokenizer);
}

/* ---- errors ---- */

/* Rows are counted through all files, as datasets counts them. */
TEST(a_row_of_a_later_file_also_has_its_number_there)
{
    NEEDS_FLATBUFFERS();
    fsdp_arrow_table *table;
    ASSERT_OK(fsdp_arrow_table_open(fixture("shards"), FSDP_ARROW_SPLIT_TRAIN, &table));
    fsdp_status status = fsdp_error(FSDP_ERR_FORMAT, "wrong");
    fsdp_arrow_table_add_context(table, 3, status);
    ASSERT(
        strstr(fsdp_last_error(), "data-00001-of-00003.arrow: row 3 (row 1 of this file): wrong"));
    status = fsdp_error(FSDP_ERR_FORMAT, "wrong");
    fsdp_arrow_table_add_context(table, 1, status);
    ASSERT(strstr(fsdp_last_error(), "data-00000-of-00003.arrow: row 1: wrong"));
    fsdp_arrow_table_close(table);
}

TEST(a_row_that_does_not_fit_is_an_error_with_file_and_row)
{
    NEEDS_FLATBUFFERS();
    fsdp_dataset *dataset;
    const fsdp_dataset_options small = {.vocab_size = 9};
    ASSERT_ERROR(fsdp_dataset_open(fixture("shards"), &small, &dataset), FSDP_ERR_FORMAT,
                 "shards/data-00000-of-00003.arrow: row 1: row: input_ids[1]: expected an integer "
                 "from 0 to 8, found 9");
    const fsdp_dataset_options smaller = {.vocab_size = 9, .max_samples = 1};
    ASSERT_OK(fsdp_dataset_open(fixture("shards"), &smaller, &dataset));
    fsdp_dataset_close(dataset);
    const fsdp_dataset_options classes = {.task = FSDP_TASK_CLASSIFICATION};
    ASSERT_ERROR(fsdp_dataset_open(fixture("shards"), &classes, &dataset), FSDP_ERR_FORMAT,
                 "row 0: row: labels: expected an integer");
    fsdp_tokenizer *tokenizer;
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("../data/tokenizers/t5"), &tokenizer));
    const fsdp_dataset_options pairs = {
        .tokenizer = tokenizer, .source_column = "article", .target_column = "when"};
    ASSERT_ERROR(fsdp_dataset_open(fixture("types.arrow"), &pairs, &dataset), FSDP_ERR_FORMAT,
                 "types.arrow: row 0: no column 'article'; the table has int8, ");
    ASSERT(strstr(fsdp_last_error(), "(columns whose types are not read: 'when' (timestamp), "));
    fsdp_tokenizer_close(tokenizer);
    const fsdp_dataset_options cleaned = {.cleaning = FSDP_CLEANING_WIKIHOW};
    ASSERT_ERROR(fsdp_dataset_open(fixture("shards"), &cleaned, &dataset), FSDP_ERR_INVALID,
                 "WikiHow's cleaning");
}

TEST(a_folder_that_is_not_whole_is_an_error)
{
    NEEDS_FLATBUFFERS();
    static const struct {
        const char *file, *text; /* written into a copy of the folder "indices" */
        fsdp_status status;
        const char *message;
    } cases[] = {
        {"state.json", "{}", FSDP_ERR_NOT_FOUND, "state.json: _data_files"},
        {"state.json", "{\"_data_files\": []}", FSDP_ERR_FORMAT, "state.json names no data files"},
        {"state.json", "{\"_data_files\": [{\"filename\": \"gone.arrow\"}]}", FSDP_ERR_NOT_FOUND,
         "gone.arrow"},
        {"state.json", "{\"_data_files\": [{}]}", FSDP_ERR_NOT_FOUND, "filename"},
        {"state.json", "{\"_data_files\": [{\"filename\": \"a.arrow\", \"skip\": 1}]}",
         FSDP_ERR_FORMAT, "only a part is used are not supported"},
        {"state.json", "{\"_data_files\": [{\"filename\": \"state.json\"}]}", FSDP_ERR_FORMAT,
         "state.json: not an Arrow file, but text"},
        {"state.json",
         "{\"_data_files\": [{\"filename\": \"data-00000-of-00001.arrow\"}, "
         "{\"filename\": \"indices.arrow\"}]}",
         FSDP_ERR_FORMAT,
         "indices.arrow: the columns are not those of the first file: 'indices' where that has "
         "'idx'"},
        {"state.json",
         "{\"_data_files\": [{\"filename\": \"indices.arrow\"}], "
         "\"_indices_files\": [{\"filename\": \"data-00000-of-00001.arrow\"}]}",
         FSDP_ERR_FORMAT, "not a file of indices"},
        {"dataset_info.json", "[", FSDP_ERR_FORMAT, "dataset_info.json"},
        {"data-00000-of-00001.arrow", "version https://git-lfs.github.com/spec/v1\noid",
         FSDP_ERR_FORMAT, "data-00000-of-00001.arrow: not an Arrow file, but a Git LFS pointer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[100];
        fsdp_dataset *dataset;
        ASSERT_OK(fsdp_tree_remove(in_dir(t, "folder")));
        copy_folder(t, fixture("indices"), "folder");
        snprintf(name, sizeof name, "folder/%s", cases[i].file);
        write_text(t, name, cases[i].text);
        CHECK_HERE();
        ASSERT_ERROR(fsdp_dataset_open(in_dir(t, "folder"), NULL, &dataset), cases[i].status,
                     cases[i].message);
    }
}

/* Indices 4, 0 and 2 are in a file of their own. */
TEST(an_index_outside_the_rows_is_an_error)
{
    NEEDS_FLATBUFFERS();
    fsdp_mapping file;
    fsdp_dataset *dataset;
    copy_folder(t, fixture("indices"), "folder");
    CHECK_HERE();
    ASSERT_OK(fsdp_file_map(in_dir(t, "folder/indices.arrow"), &file));
    char *copy = fsdp_calloc(file.bytes, 1);
    ASSERT(copy);
    memcpy(copy, file.data, file.bytes);
    static const char pattern[24] = {4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
    char *at = memmem(copy, file.bytes, pattern, sizeof pattern);
    ASSERT(at);
    *at = 5;
    ASSERT_OK(fsdp_file_write(in_dir(t, "folder/indices.arrow"), copy, file.bytes));
    ASSERT_ERROR(fsdp_dataset_open(in_dir(t, "folder"), NULL, &dataset), FSDP_ERR_FORMAT,
                 "indices.arrow: row 0: row: indices: expected an integer from 0 to 4, found 5");
    at[7] = -1; /* beyond int64 */
    ASSERT_OK(fsdp_file_write(in_dir(t, "folder/indices.arrow"), copy, file.bytes));
    ASSERT_ERROR(fsdp_dataset_open(in_dir(t, "folder"), NULL, &dataset), FSDP_ERR_FORMAT,
                 "indices.arrow: row 0: row: indices: expected an integer from 0 to 4, found 18");
    fsdp_free(copy);
    fsdp_file_unmap(&file);
}

TEST(a_missing_split_is_named_with_those_that_exist)
{
    fsdp_dataset *dataset;
    const fsdp_dataset_options validation = {.validation = true};
    ASSERT_OK(fsdp_directory_make(in_dir(t, "dict")));
    write_text(t, "dict/dataset_dict.json", "{\"splits\": [\"a\", \"b\"]}");
    ASSERT_ERROR(
        fsdp_dataset_open(in_dir(t, "dict"), NULL, &dataset), FSDP_ERR_NOT_FOUND,
        "dict: a DatasetDict without a split 'train'; its splits are: a, b. Name the folder");
    ASSERT_ERROR(fsdp_dataset_open(in_dir(t, "dict"), &validation, &dataset), FSDP_ERR_NOT_FOUND,
                 "without a split 'validation'");
    write_text(t, "dict/dataset_dict.json", "{\"splits\": [\"train\", 3]}");
    ASSERT_ERROR(fsdp_dataset_open(in_dir(t, "dict"), NULL, &dataset), FSDP_ERR_NOT_FOUND,
                 "names the split 'train', but");
    write_text(t, "dict/dataset_dict.json", "{\"train\": {}}");
    ASSERT_ERROR(fsdp_dataset_open(in_dir(t, "dict"), NULL, &dataset), FSDP_ERR_NOT_FOUND,
                 "dataset_dict.json: splits");
    write_text(t, "dict/dataset_dict.json", "{\"splits\": [\"train\"]}");
    ASSERT_OK(fsdp_directory_make(in_dir(t, "dict/train")));
    ASSERT_ERROR(fsdp_dataset_open(in_dir(t, "dict"), NULL, &dataset), FSDP_ERR_NOT_FOUND,
                 "dict/train: a folder of datasets.save_to_disk() that lacks state.json");
}

/* A folder of the cache of datasets, and a clone of a data set on the hub. */
TEST(other_folders_of_arrow_and_parquet_files_are_refused_with_what_helps)
{
    fsdp_dataset *dataset;
    ASSERT_OK(fsdp_directory_make(in_dir(t, "cache")));
    write_text(t, "cache/glue-train.arrow", "");
    ASSERT_ERROR(fsdp_dataset_open(in_dir(t, "cache"), NULL, &dataset), FSDP_ERR_INVALID,
                 "cache: has no state.json");
    ASSERT_OK(fsdp_directory_make(in_dir(t, "clone/data")));
    write_text(t, "clone/data/train-00000-of-00001.parquet", "PAR1");
    ASSERT_ERROR(fsdp_dataset_open(in_dir(t, "clone"), NULL, &dataset), FSDP_ERR_INVALID,
                 "datasets.load_dataset('parquet', data_dir=");
}

/* ---- threads ---- */

typedef struct reader {
    const fsdp_arrow_table *table;
    fsdp_json *expected; /* rows of the table */
    uint64_t state;
    bool same;
} reader;

static void *read_at_random(void *argument)
{
    reader *r = argument;
    r->same = true;
    for (int i = 0; i < 500 && r->same; i++) {
        fsdp_json *doc;
        int64_t *ids = NULL, *expected = NULL;
        size_t n, n_expected;
        r->state = r->state * 6364136223846793005u + 1442695040888963407u;
        const size_t row = (r->state >> 33) % (size_t)fsdp_arrow_table_len(r->table);
        r->same = fsdp_arrow_table_row(r->table, (int64_t)row, &doc) == FSDP_OK;
        if (!r->same)
            break;
        const fsdp_json_node known = fsdp_json_at(fsdp_json_root(r->expected), row);
        r->same =
            fsdp_json_get_i64s(fsdp_json_root(doc), "input_ids", 0, 999, &ids, &n) == FSDP_OK &&
            fsdp_json_get_i64s(known, "input_ids", 0, 999, &expected, &n_expected) == FSDP_OK &&
            n == n_expected && memcmp(ids, expected, n * sizeof *ids) == 0;
        fsdp_free(ids);
        fsdp_free(expected);
        fsdp_json_destroy(doc);
    }
    return NULL;
}

/* Four threads share the batches that were decompressed. */
TEST(threads_read_rows_of_compressed_batches_at_random)
{
    NEEDS_FLATBUFFERS();
#ifndef FSDP_HAVE_ZSTD
    SKIP("built without zstd");
#endif
    fsdp_arrow_table *table;
    fsdp_json *expected;
    char *lines, *text;
    size_t bytes;
    ASSERT_OK(fsdp_file_read(fixture("compressed.jsonl"), 1 << 20, &lines, &bytes));
    for (size_t i = 0; i + 1 < bytes; i++)
        if (lines[i] == '\n')
            lines[i] = ',';
    ASSERT((text = fsdp_strdup_printf("[%s]", lines)));
    ASSERT_OK(fsdp_json_parse("rows", 1, text, strlen(text), &expected));
    fsdp_free(text);
    fsdp_free(lines);
    ASSERT_OK(
        fsdp_arrow_table_open(fixture("compressed_zstd.arrow"), FSDP_ARROW_SPLIT_TRAIN, &table));
    pthread_t threads[4];
    reader readers[4];
    for (unsigned i = 0; i < 4; i++) {
        readers[i] = (reader){.table = table, .expected = expected, .state = i};
        ASSERT(pthread_create(&threads[i], NULL, read_at_random, &readers[i]) == 0);
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < 4; i++)
        ASSERT(readers[i].same);
    fsdp_arrow_table_close(table);
    fsdp_json_destroy(expected);
}

/* A folder of texts of any ending stays one with a dataset_info.json or a README.md in it. */
TEST(what_a_folder_is_depends_on_all_endings)
{
    static const char *const rows[] = {
        "a.csv",  "a.tsv", "a.tab", "a.JSON", "a.jsonl",    "a.ndjson",  "a.tokens",
        "a.text", "a.raw", "a.txt", "a.md",   "a.jsonl.gz", "a.csv.zst", "a.tab.zstd"};
    static const char *const others[] = {"a.png", "README.md", "tokenizer.json", "a.jsonl.bz2"};
    write_text(t, "dataset_info.json", "{}");
    ASSERT(fsdp_is_arrow_path(fsdp_test_dir(t)));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_text(t, rows[i], "x");
        ASSERT(!fsdp_is_arrow_path(fsdp_test_dir(t)));
        ASSERT(!fsdp_is_arrow_path(in_dir(t, rows[i])));
        ASSERT_OK(fsdp_tree_remove(in_dir(t, rows[i])));
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        write_text(t, others[i], "x");
        ASSERT(fsdp_is_arrow_path(fsdp_test_dir(t)));
    }
}
