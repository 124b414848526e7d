/* Rows that `fsdp tokenize` writes for each task: they train like the rows they were made of. */
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/data/arrow/table.h"
#include "tests/tokenize/runs.h"

/* ---- masked language models ---- */

static const fsdp_masking masking = {.mask_token_id = 3, .mlm_probability = 0.5};

static fsdp_status open_masked(fsdp_test *t, const char *name, fsdp_dataset **set)
{
    const fsdp_dataset_options options = {
        .task = FSDP_TASK_MASKED_LM, .vocab_size = 400, .masking = &masking};
    return fsdp_dataset_open(in_dir(t, name), &options, set);
}

/* Count the tokens of a row that have a loss. */
static size_t count_labels(const fsdp_example *e)
{
    size_t n = 0;
    for (size_t i = 0; i < e->labels.len; i++)
        n += e->labels.ids[i] != FSDP_IGNORE_INDEX;
    return n;
}

/* With labels of its own, a block would be taken for one that has been masked. */
TEST(blocks_of_a_masked_language_model_are_masked_when_they_are_read)
{
    NEEDS_FLATBUFFERS();
    fsdp_dataset *set;
    fsdp_example e = {0};
    size_t labels = 0, tokens = 0;
    put_corpus(t, "a.txt", 20000);
    CHECK_HERE();
    fsdp_tokenize_config config = config_of(t, "a.txt", "blocks");
    config.task = FSDP_TASK_MASKED_LM;
    config.block_size = 32;
    ASSERT_OK(run(&config));
    ASSERT_OK(open_masked(t, "blocks", &set));
    for (int64_t i = 0; i < fsdp_dataset_len(set); i++) {
        ASSERT_OK(fsdp_dataset_get(set, i, &e));
        ASSERT_INT(e.source.len, 32);
        ASSERT_INT(e.labels.len, 32);
        labels += count_labels(&e);
        tokens += 32;
    }
    ASSERT(tokens > 4000);
    ASSERT(labels > tokens * 4 / 10 && labels < tokens * 6 / 10);
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
}

/* Tokenizing may take hours. If the data have no whole block, the tokenized rows are used again by
 * a run with a smaller block. */
TEST(rows_are_kept_if_there_is_no_whole_block)
{
    NEEDS_FLATBUFFERS();
    char *lines;
    put(t, "rows.jsonl", "{\"input_ids\": [5, 3, 7]}\n{\"input_ids\": [5, 3]}\n");
    fsdp_tokenize_config config = config_of(t, "rows.jsonl", "rows");
    config.block_size = 8;
    ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "no block of 8 tokens: the training data");
    ASSERT(strstr(fsdp_last_error(), "have only 5 (the rows are kept: with --resume and a smaller "
                                     "--block-size, the same command goes on)"));
    config.block_size = 2;
    config.resume = true;
    ASSERT_OK(run_printing(&config, &lines));
    ASSERT(strstr(lines, "goes on after 2 rows"));
    ASSERT(strstr(lines, "1 tokens at the end do not fill a row of 2"));
    free(lines);
}

static const char masked_and_not[] =
    "{\"input_ids\": [5, 3, 7], \"labels\": [-100, 6, -100]}\n"
    "{\"input_ids\": [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26]}\n";

TEST(only_rows_without_labels_are_masked)
{
    NEEDS_FLATBUFFERS();
    fsdp_dataset *set;
    fsdp_example e = {0};
    put(t, "rows.jsonl", masked_and_not);
    fsdp_tokenize_config config = config_of(t, "rows.jsonl", "rows");
    config.task = FSDP_TASK_MASKED_LM;
    ASSERT_OK(run(&config));
    ASSERT_OK(open_masked(t, "rows", &set));
    ASSERT_OK(fsdp_dataset_get(set, 0, &e));
    ASSERT_INT(count_labels(&e), 1);
    ASSERT_INT(e.labels.ids[1], 6);
    ASSERT_OK(fsdp_dataset_get(set, 1, &e));
    ASSERT(count_labels(&e) > 0 && count_labels(&e) < 16);
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
}

TEST(a_block_has_no_rows_that_are_masked_and_rows_that_are_not)
{
    NEEDS_FLATBUFFERS();
    fsdp_dataset *set;
    fsdp_example e = {0};
    put(t, "rows.jsonl", masked_and_not);
    fsdp_tokenize_config config = config_of(t, "rows.jsonl", "rows");
    config.task = FSDP_TASK_MASKED_LM;
    config.block_size = 3;
    ASSERT_ERROR(run(&config), FSDP_ERR_UNSUPPORTED, "row 2 has no labels, but other rows do");
    put(t, "rows.jsonl", "{\"input_ids\": [5, 3, 7, 8], \"labels\": [-100, 6, -100, -100]}\n");
    ASSERT_OK(run(&config));
    ASSERT_OK(open_masked(t, "rows", &set));
    ASSERT_OK(fsdp_dataset_get(set, 0, &e));
    ASSERT_INT(count_labels(&e), 1);
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
}

/* ---- the number of rows ---- */

/* --max-samples limits the training data, of all tasks. */
TEST(data_for_validation_are_whole)
{
    NEEDS_FLATBUFFERS();
    static const fsdp_task tasks[] = {FSDP_TASK_CAUSAL_LM, FSDP_TASK_MASKED_LM, FSDP_TASK_SEQ2SEQ,
                                      FSDP_TASK_CLASSIFICATION};
    fsdp_str rows = {0};
    for (int i = 0; i < 8; i++)
        fsdp_str_printf(&rows, "{\"text\": \"a\", \"headline\": \"b\", \"label\": %d}\n", i % 2);
    put(t, "rows.jsonl", rows.data);
    fsdp_str_fini(&rows);
    CHECK_HERE();
    for (int i = 0; i < 4; i++) {
        char *lines, name[20];
        snprintf(name, sizeof name, "rows%d", i);
        fsdp_tokenize_config config = config_of(t, "rows.jsonl", name);
        config.validation_data = config.data;
        config.task = tasks[i];
        config.max_samples = 3;
        ASSERT_OK(run_printing(&config, &lines));
        ASSERT(strstr(lines, "Arrow, 3 rows and 8 for validation"));
        free(lines);
    }
}

/* A folder with a folder for training has validation data only if it has a folder for them, too. */
TEST(a_folder_may_have_no_validation_data)
{
    NEEDS_FLATBUFFERS();
    char *lines;
    ASSERT_OK(fsdp_directory_make(in_dir(t, "data")));
    ASSERT_OK(fsdp_directory_make(in_dir(t, "data/train")));
    put(t, "data/train/a.jsonl", "{\"text\": \"hello\"}\n{\"text\": \"world\"}\n");
    CHECK_HERE();
    fsdp_tokenize_config config = config_of(t, "data", "rows");
    ASSERT_OK(run_printing(&config, &lines));
    ASSERT(strstr(lines, "Arrow, 2 rows") && !strstr(lines, "for validation"));
    free(lines);
    ASSERT_OK(fsdp_directory_make(in_dir(t, "data/dev")));
    put(t, "data/dev/dev.jsonl", "{\"text\": \"a\"}\n");
    CHECK_HERE();
    config.output = in_dir(t, "both");
    ASSERT_OK(run_printing(&config, &lines));
    ASSERT(strstr(lines, "Arrow, 2 rows and 1 for validation"));
    free(lines);
}

/* ---- labels of classifiers ---- */

/* Labels of each form, what `fsdp tokenize` says about them and how it writes the label of the
 * first row, and how a dataset of the texts must be opened to have the same labels. */
static const struct {
    const char *rows, *notice, *first;
    fsdp_problem_type problem_type;
    fsdp_label_lists lists;
    int64_t num_classes;
    const char *names[3];
} label_forms[] = {
    {"{\"text\": \"a\", \"labels\": [\"y\", \"z\"]}\n{\"text\": \"hello\", \"labels\": []}\n"
     "{\"text\": \"world\", \"labels\": [\"x\"]}\n",
     "3 classes, several a row: labels are a list of the row's classes (ClassLabel)",
     "[1,2]",
     FSDP_PROBLEM_MULTI_LABEL,
     FSDP_LABEL_LISTS_AUTO,
     3,
     {"x", "y", "z"}},
    {"{\"text\": \"a\", \"labels\": [4, 0]}\n{\"text\": \"hello\", \"labels\": []}\n"
     "{\"text\": \"world\", \"labels\": [1]}\n",
     "5 classes, several a row: labels are a list of a 0.0 or 1.0 for each class",
     "[1.0,0.0,0.0,0.0,1.0]",
     FSDP_PROBLEM_MULTI_LABEL,
     FSDP_LABEL_LISTS_INDICES,
     5,
     {NULL}},
    {"{\"text\": \"a\", \"labels\": [0.25, 1, 1]}\n{\"text\": \"hello\", \"labels\": [0, 0, 0]}\n",
     "3 classes, several a row",
     "[0.25,1.0,1.0]",
     FSDP_PROBLEM_MULTI_LABEL,
     FSDP_LABEL_LISTS_MULTI_HOT,
     3,
     {NULL}},
    {"{\"text\": \"a\", \"label\": -1.5}\n{\"text\": \"hello\", \"label\": 3}\n",
     "labels are numbers, for regression",
     "-1.5",
     FSDP_PROBLEM_REGRESSION,
     FSDP_LABEL_LISTS_AUTO,
     1,
     {NULL}},
    {"{\"input_ids\": [5, 6], \"labels\": [\"no\"]}\n{\"input_ids\": [7], \"labels\": [\"yes\", "
     "\"no\"]}\n",
     "2 classes, several a row",
     "[0]",
     FSDP_PROBLEM_MULTI_LABEL,
     FSDP_LABEL_LISTS_AUTO,
     2,
     {"no", "yes"}},
};

/* Check the label of the first row of the Arrow folder rows<i>, and the names of its classes. */
static void check_first_label(fsdp_test *t, const char *name, size_t i)
{
    fsdp_arrow_table *table;
    fsdp_json *row;
    char *text, expected[80];
    ASSERT_OK(fsdp_arrow_table_open(in_dir(t, name), FSDP_ARROW_SPLIT_TRAIN, &table));
    ASSERT_OK(fsdp_arrow_table_row(table, 0, &row));
    ASSERT_OK(fsdp_json_print(row, FSDP_JSON_COMPACT, &text, NULL));
    snprintf(expected, sizeof expected, "\"labels\":%s}", label_forms[i].first);
    if (!strstr(text, expected))
        fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s instead of %s", name, text, expected);
    fsdp_free(text);
    fsdp_json_destroy(row);
    const size_t n = label_forms[i].names[0] ? (size_t)label_forms[i].num_classes : 0;
    ASSERT_INT(fsdp_json_len(fsdp_arrow_table_class_names(table, "labels")), n);
    fsdp_arrow_table_close(table);
}

/* The rows of the folder have the ids and the labels of the rows that the folder was made of. */
TEST(labels_of_each_form_are_kept)
{
    NEEDS_FLATBUFFERS();
    fsdp_tokenizer *tokenizer;
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("fixtures/chat"), &tokenizer));
    for (size_t i = 0; i < FSDP_LENGTH(label_forms); i++) {
        const fsdp_dataset_options options = {
            .task = FSDP_TASK_CLASSIFICATION,
            .tokenizer = tokenizer,
            .problem_type = label_forms[i].problem_type,
            .label_lists = label_forms[i].lists,
            .num_classes = label_forms[i].num_classes,
            .class_names = label_forms[i].names[0] ? label_forms[i].names : NULL};
        char *lines, name[20];
        snprintf(name, sizeof name, "rows%zu", i);
        put(t, "rows.jsonl", label_forms[i].rows);
        fsdp_tokenize_config config = config_of(t, "rows.jsonl", name);
        config.task = FSDP_TASK_CLASSIFICATION;
        config.form.label_lists = (int)label_forms[i].lists;
        ASSERT_OK(run_printing(&config, &lines));
        if (!strstr(lines, label_forms[i].notice))
            fsdp_test_fail(t, __FILE__, __LINE__, "%zu: %s", i, lines);
        free(lines);
        check_first_label(t, name, i);
        CHECK_HERE();
        fsdp_dataset_options of_folder = options;
        if (options.problem_type == FSDP_PROBLEM_MULTI_LABEL)
            of_folder.label_lists = FSDP_LABEL_LISTS_AUTO; /* the folder says what its lists are */
        check_rows_with(t, "rows.jsonl", &options, name, &of_folder);
        CHECK_HERE();
    }
    fsdp_tokenizer_close(tokenizer);
}

/* A list of the validation data that could be classes or numbers is what those of the training data
 * are; a class that only the validation data have is an error. */
TEST(labels_of_validation_data_are_read_like_those_of_the_training_data)
{
    NEEDS_FLATBUFFERS();
    char *lines;
    put(t, "rows.jsonl",
        "{\"text\": \"a\", \"labels\": [1]}\n{\"text\": \"b\", \"labels\": [0, 1]}\n");
    put(t, "more.jsonl", "{\"text\": \"a\", \"labels\": [0, 1]}\n");
    fsdp_tokenize_config config = config_of(t, "rows.jsonl", "rows");
    config.task = FSDP_TASK_CLASSIFICATION;
    config.validation_data = in_dir(t, "more.jsonl");
    ASSERT_OK(run_printing(&config, &lines));
    ASSERT(strstr(lines, "2 classes, several a row"));
    free(lines);
    put(t, "more.jsonl", "{\"text\": \"a\", \"labels\": [2]}\n");
    config.output = in_dir(t, "other");
    ASSERT_ERROR(run(&config), FSDP_ERR_FORMAT,
                 "more.jsonl: line 1: label: expected a list of classes from 0 to 1");
}

/* Labels that are lists or fractions make a multi-label problem or a regression only if the user
 * does not ask for one class a row. */
TEST(labels_that_do_not_fit_the_problem_type_are_errors)
{
    NEEDS_FLATBUFFERS();
    put(t, "lists.jsonl",
        "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": [0, 1]}\n");
    put(t, "ids.jsonl", "{\"input_ids\": [5], \"label\": [0, 1]}\n");
    put(t, "fractions.csv", "text,label\na,1\nb,0.5\n");
    CHECK_HERE();
    fsdp_tokenize_config config = config_of(t, "lists.jsonl", "rows");
    config.task = FSDP_TASK_CLASSIFICATION;
    config.problem_type = 1 + FSDP_PROBLEM_SINGLE_LABEL;
    ASSERT_ERROR(run(&config), FSDP_ERR_FORMAT,
                 "lists.jsonl: line 2: label: expected an integer, 0 or more; without "
                 "--problem-type, the labels determine the problem type, found \"[0");
    config.data = in_dir(t, "ids.jsonl");
    ASSERT_ERROR(run(&config), FSDP_ERR_FORMAT,
                 "ids.jsonl: line 1: row: label: expected an integer");
    config.data = in_dir(t, "fractions.csv");
    ASSERT_ERROR(run(&config), FSDP_ERR_FORMAT,
                 "fractions.csv: line 3: label: expected an integer, 0 or more");
    config.problem_type = 0;
    ASSERT_OK(run(&config));
}

/* ---- token types and positions ---- */

TEST(token_types_of_more_than_a_byte_are_refused)
{
    NEEDS_FLATBUFFERS();
    char *lines;
    put(t, "rows.jsonl",
        "{\"input_ids\": [5, 6], \"token_type_ids\": [0, 127]}\n"
        "{\"input_ids\": [5, 6, 7], \"token_type_ids\": [0, 1, 128]}\n");
    CHECK_HERE();
    fsdp_tokenize_config config = config_of(t, "rows.jsonl", "rows");
    config.task = FSDP_TASK_MASKED_LM;
    ASSERT_ERROR(run(&config), FSDP_ERR_UNSUPPORTED, "row 2: token_type_ids[2]: 128: ");
    config.overwrite = true;
    config.block_size = 2;
    ASSERT_OK(run_printing(&config, &lines));
    ASSERT(strstr(lines,
                  "rows.jsonl: 1 tokens at the end do not fill a row of 2; token_type_ids of "
                  "the rows are left out, because --block-size joins rows\n"));
    free(lines);
    put(t, "rows.jsonl", "{\"input_ids\": [5, 6], \"position_ids\": [0, 0]}\n");
    config = config_of(t, "rows.jsonl", "packed");
    config.block_size = 2;
    ASSERT_OK(run_printing(&config, &lines));
    ASSERT(strstr(lines, "rows.jsonl: position_ids of the rows are left out, because"));
    free(lines);
}

/* A token file has only ids. What else the rows have is lost, and the printed lines say so. */
TEST(what_token_files_cannot_have_is_reported)
{
    char *lines;
    put(t, "rows.jsonl",
        "{\"input_ids\": [5, 3], \"labels\": [-100, 6], \"token_type_ids\": [0, 1]}\n"
        "{\"input_ids\": [5, 6], \"position_ids\": [0, 0]}\n");
    CHECK_HERE();
    fsdp_tokenize_config config = config_of(t, "rows.jsonl", "rows.bin");
    config.task = FSDP_TASK_MASKED_LM;
    ASSERT_OK(run_printing(&config, &lines));
    ASSERT(strstr(lines, "rows.jsonl: token_type_ids and position_ids of the rows are left out, "
                         "because token files have only ids; --format arrow keeps them\n"));
    ASSERT(strstr(lines, "rows.jsonl: in 1 rows there are labels, which token files cannot have: "
                         "'fsdp train' masks all rows"));
    free(lines);
}

/* ---- texts that are cut ---- */

/* Write a tokenizer as BERT has it, which ends each text with [SEP] and has no eos. */
static void put_bert(fsdp_test *t, const char *dir, const char *config)
{
    char name[300];
    ASSERT_OK(fsdp_directory_make(in_dir(t, dir)));
    snprintf(name, sizeof name, "%s/vocab.txt", dir);
    put(t, name, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\none\ntwo\nthree\nfour\nfive\nsix\nseven\n");
    snprintf(name, sizeof name, "%s/tokenizer_config.json", dir);
    put(t, name, config);
}

static const char pairs[] = "{\"text\": \"one two three four five six\", \"headline\": \"two\"}\n"
                            "{\"text\": \"one\", \"headline\": \"one two three four five six\"}\n"
                            "{\"text\": \"one\", \"headline\": \"two\"}\n";

/* The ids that a text is cut to are those of the tokenizer: special tokens are kept, and
 * truncation_side says which end is cut. */
TEST(pairs_are_cut_by_the_tokenizer)
{
    NEEDS_FLATBUFFERS();
    static const char *const configs[] = {"{\"tokenizer_class\": \"BertTokenizer\"}",
                                          "{\"tokenizer_class\": \"BertTokenizer\", "
                                          "\"truncation_side\": \"left\"}"};
    put(t, "rows.jsonl", pairs);
    for (int i = 0; i < 2; i++) {
        const char *dir = i ? "left" : "right", *output = i ? "left_rows" : "right_rows";
        char *lines;
        fsdp_tokenizer *tokenizer;
        put_bert(t, dir, configs[i]);
        CHECK_HERE();
        fsdp_tokenize_config config = config_of(t, "rows.jsonl", output);
        config.tokenizer = in_dir(t, dir);
        config.task = FSDP_TASK_SEQ2SEQ;
        config.task_prefix = "";
        config.max_source_length = 5;
        config.max_target_length = 6;
        config.given.max_source_length = config.given.max_target_length = true;
        ASSERT_OK(run_printing(&config, &lines));
        ASSERT(strstr(lines, "2 of 3 rows are cut, by 5 tokens"));
        free(lines);
        ASSERT_OK(fsdp_tokenizer_open(config.tokenizer, &tokenizer));
        const fsdp_dataset_options options = {.task = FSDP_TASK_SEQ2SEQ,
                                              .tokenizer = tokenizer,
                                              .source_prefix = "",
                                              .max_source_length = 5,
                                              .max_target_length = 6};
        check_rows(t, "rows.jsonl", output, &options);
        fsdp_tokenizer_close(tokenizer);
        CHECK_HERE();
    }
}

/* Rows of ids are cut only if a length was given, in JSON and in Arrow. */
TEST(ids_of_pairs_are_cut_and_counted_on_request)
{
    NEEDS_FLATBUFFERS();
    char *lines;
    put(t, "rows.jsonl", "{\"input_ids\": [5, 6, 7, 8], \"labels\": [9, 10, 11]}\n");
    fsdp_tokenize_config config = config_of(t, "rows.jsonl", "whole");
    config.task = FSDP_TASK_SEQ2SEQ;
    config.max_source_length = config.max_target_length = 2;
    ASSERT_OK(run_printing(&config, &lines));
    ASSERT(!strstr(lines, "cut"));
    free(lines);
    config.given.max_source_length = true;
    for (int arrow = 0; arrow < 2; arrow++) {
        config.data = in_dir(t, arrow ? "whole" : "rows.jsonl");
        config.output = in_dir(t, arrow ? "arrow_cut" : "cut");
        ASSERT_OK(run_printing(&config, &lines));
        ASSERT(strstr(lines, "1 of 1 rows are cut, by 2 tokens"));
        free(lines);
    }
    const fsdp_dataset_options options = {.task = FSDP_TASK_SEQ2SEQ, .max_source_length = 2};
    check_rows(t, "rows.jsonl", "arrow_cut", &options);
}

/* The rows of a class fit into the limit of a file, but the folder that is made of them does not:
 * so the run goes on with a journal of all rows, which has counted the cut ones. */
TEST(cut_rows_of_classes_are_kept_in_the_journal)
{
    NEEDS_FLATBUFFERS();
    enum {
        ROWS = 1000
    };
    char *lines, expected[80];
    fsdp_str rows = {0};
    for (int i = 0; i < ROWS; i++)
        fsdp_str_printf(&rows, "{\"text\": \"hello world in Paris, hello %s\", \"label\": %d}\n",
                        i % 4 ? "world in Paris, hello world in Paris" : "", i % 2);
    put(t, "rows.jsonl", rows.data);
    fsdp_str_fini(&rows);
    CHECK_HERE();
    fsdp_tokenize_config config = config_of(t, "rows.jsonl", "rows");
    config.task = FSDP_TASK_CLASSIFICATION;
    config.max_seq_length = 24;
    ASSERT_ERROR(run_limited(&config, ROWS * 118), FSDP_ERR_IO, "");
    config.resume = true;
    ASSERT_OK(run_printing(&config, &lines));
    snprintf(expected, sizeof expected, "%d of %d rows are cut, by ", ROWS / 4 * 3, ROWS);
    ASSERT(strstr(lines, expected));
    ASSERT(strstr(lines, "goes on after 1000 rows"));
    free(lines);
}
