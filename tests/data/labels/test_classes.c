/* Texts with classes: columns, pairs, labels, and the classes that a file says. */
#include <stdio.h>
#include <string.h>

#include <fsdp/data.h>

#include "src/base/alloc_testing.h"
#include "src/base/io.h"
#include "src/data/labels/class_text.h"
#include "src/data/rows/dataset_options.h"
#include "tests/test.h"

static const char *write_text(fsdp_test *t, const char *name, const char *text)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), name);
    if (fsdp_file_write(path, text, strlen(text)) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return path;
}

static fsdp_data_text text_of(const char *text)
{
    return (fsdp_data_text){text, text ? strlen(text) : 0};
}

static fsdp_tokenizer *open_tokenizer(fsdp_test *t)
{
    fsdp_tokenizer *tokenizer = NULL;
    if (fsdp_tokenizer_open(fsdp_test_path("../data/tokenizers/t5"), &tokenizer) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return tokenizer;
}

/* Check the text of row `index`, decoded with special tokens, and its class. */
static void check_row(fsdp_test *t, const fsdp_dataset *set, const fsdp_tokenizer *tokenizer,
                      int64_t index, const char *expected, int class)
{
    fsdp_example e = {0};
    char *text;
    ASSERT_OK(fsdp_dataset_get(set, index, &e));
    ASSERT_INT(e.labels.len, 1);
    ASSERT_INT(e.labels.ids[0], class);
    ASSERT_OK(fsdp_tokenizer_decode(tokenizer, e.source.ids, e.source.len, 0, &text));
    ASSERT_STR(text, expected);
    fsdp_text_free(text);
    fsdp_example_fini(&e);
}

TEST(texts_and_pairs_of_texts_have_classes)
{
    NEEDS_SENTENCEPIECE();
    NEEDS_LIBCSV();
    static const char *const names[] = {"bad", "good", NULL};
    static const struct {
        const char *name, *text;
        fsdp_dataset_options options;
        const char *expected;
        int class;
        const char *note;
    } cases[] = {
        {"a.csv", "text,label\none house,2\n", {0}, "one house</s>", 2, NULL},
        {"a.csv", "label,sentence\ngood,one house\n", {0}, "one house</s>", 1, NULL},
        {"a.csv",
         "sentence1,sentence2,label,idx\none,two,bad,7\n",
         {0},
         "one</s> two</s>",
         0,
         "the text is 'sentence1', the second text 'sentence2'; not used: 'idx'"},
        {"a.json",
         "[{\"premise\": \"one\", \"hypothesis\": \"two\", \"label\": 1}]",
         {0},
         "one</s> two</s>",
         1,
         "the text is 'premise', the second text 'hypothesis'"},
        {"a.jsonl", "{\"text\": \"one\", \"labels\": \"good\"}", {0}, "one</s>", 1, NULL},
        {"a.jsonl", "{\"text\": \"one\", \"label\": true}", {0}, "one</s>", 1, NULL},
        {"a.jsonl", "{\"text\": \"one\", \"labels\": 2}", {0}, "one</s>", 2, NULL},
        {"a.jsonl",
         "{\"a\": \"one\", \"b\": \"two\", \"c\": 2.0}",
         {.source_column = "b", .text_pair_column = "a", .label_column = "c"},
         "two</s> one</s>",
         2,
         NULL},
        {"a.jsonl",
         "{\"a\": \"one\", \"text\": \"two\", \"label\": 0}",
         {.source_column = "a"},
         "one</s>",
         0,
         "not used: 'text' (line 1)"},
    };
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_dataset_options o = cases[i].options;
        fsdp_dataset *set;
        o.task = FSDP_TASK_CLASSIFICATION;
        o.tokenizer = tokenizer;
        o.num_classes = 3;
        o.class_names = names;
        ASSERT_OK(fsdp_dataset_open(write_text(t, cases[i].name, cases[i].text), &o, &set));
        check_row(t, set, tokenizer, 0, cases[i].expected, cases[i].class);
        CHECK_HERE();
        const char *note = fsdp_dataset_note(set);
        ASSERT(!note == !cases[i].note);
        ASSERT(!note || strstr(note, cases[i].note));
        fsdp_dataset_close(set);
    }
    fsdp_tokenizer_close(tokenizer);
}

/* Write a folder with BERT's tokenizer and return its path. `config` is tokenizer_config.json, or
 * NULL. Ids of the words: [CLS] 2, [SEP] 3, a 5, b 6, c 7, d 8. */
static const char *write_bert(fsdp_test *t, const char *config)
{
    static char folder[500];
    char path[600];
    static const char vocab[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n";
    snprintf(folder, sizeof folder, "%s/bert", fsdp_test_dir(t));
    if (fsdp_directory_make(folder) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    snprintf(path, sizeof path, "%s/vocab.txt", folder);
    if (fsdp_file_write(path, vocab, sizeof vocab - 1) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    if (config && fsdp_file_write(path, config, strlen(config)) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return folder;
}

static void check_list(fsdp_test *t, const fsdp_token_list *list, const int32_t *expected,
                       size_t count)
{
    ASSERT_INT(list->len, count);
    for (size_t i = 0; i < count; i++)
        ASSERT_INT(list->ids[i], expected[i]);
}

/* The expected ids are those of BertTokenizer of transformers 5 with this vocabulary, for
 * tokenizer(text, pair, truncation=True, max_length=N). */
TEST(pairs_are_encoded_and_cut_as_the_tokenizer_says)
{
    static const struct {
        const char *text, *pair;
        int64_t max_length;
        int32_t ids[10];
        size_t first, count, cut; /* ids of segment 0, all ids, ids that are cut off */
    } cases[] = {
        {"a b", "c", 0, {2, 5, 6, 3, 7, 3}, 4, 6, 0},
        {"a b", NULL, 0, {2, 5, 6, 3}, 4, 4, 0},
        {"a b c d", NULL, 3, {2, 5, 3}, 3, 3, 3},
        {"a b c d a", "d", 7, {2, 5, 6, 7, 3, 8, 3}, 5, 7, 2},
        {"d", "a b c d a", 7, {2, 8, 3, 5, 6, 7, 3}, 3, 7, 2},
        {"a b c d", "d c b a", 8, {2, 5, 6, 3, 8, 7, 6, 3}, 4, 8, 3},
        {"a b", "[SEP] c", 0, {2, 5, 6, 3, 3, 7, 3}, 4, 7, 0},
        {"", "", 0, {2, 3, 3}, 2, 3, 0},
    };
    fsdp_tokenizer *tokenizer;
    NEEDS_SENTENCEPIECE(); /* utf8proc */
    ASSERT_OK(fsdp_tokenizer_open(write_bert(t, NULL), &tokenizer));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fsdp_dataset_options o = {.tokenizer = tokenizer,
                                        .type_vocab_size = 2,
                                        .max_length =
                                            cases[i].max_length ? cases[i].max_length : INT64_MAX};
        fsdp_example e = {0};
        int64_t cut;
        ASSERT_OK(
            fsdp_class_text_encode(&o, text_of(cases[i].text), text_of(cases[i].pair), &e, &cut));
        ASSERT_INT(cut, cases[i].cut);
        check_list(t, &e.source, cases[i].ids, cases[i].count);
        ASSERT_INT(e.token_type_ids.len, cases[i].pair ? cases[i].count : 0);
        for (size_t k = 0; k < e.token_type_ids.len; k++)
            ASSERT_INT(e.token_type_ids.ids[k], k >= cases[i].first);
        CHECK_HERE();
        fsdp_example_fini(&e);
    }
    fsdp_example e = {0};
    const fsdp_dataset_options o = {.tokenizer = tokenizer, .type_vocab_size = 2, .max_length = 2};
    ASSERT_ERROR(fsdp_class_text_encode(&o, text_of("a"), text_of("b"), &e, NULL), FSDP_ERR_INVALID,
                 "max_length 2: the special tokens alone are 3 ids");
    fsdp_example_fini(&e);
    fsdp_tokenizer_close(tokenizer);
}

TEST(segments_are_there_if_the_tokenizer_returns_them)
{
    static const struct {
        const char *config;
        int64_t type_vocab_size;
        bool segments;
    } cases[] = {
        {"{\"tokenizer_class\": \"BertTokenizerFast\"}", 2, true},
        {"{\"tokenizer_class\": \"BertTokenizer\"}", 1, false},
        {"{\"tokenizer_class\": \"BertTokenizer\", \"model_input_names\": [\"input_ids\"]}", 2,
         false},
        {"{\"tokenizer_class\": \"DistilBertTokenizer\"}", 2, false},
        {"{\"tokenizer_class\": \"DistilBertTokenizer\", \"model_input_names\": [\"input_ids\", "
         "\"token_type_ids\"]}",
         2, true},
    };
    NEEDS_SENTENCEPIECE(); /* utf8proc */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_tokenizer *tokenizer;
        fsdp_example e = {0};
        ASSERT_OK(fsdp_tokenizer_open(write_bert(t, cases[i].config), &tokenizer));
        const fsdp_dataset_options o = {.tokenizer = tokenizer,
                                        .type_vocab_size = cases[i].type_vocab_size,
                                        .max_length = INT64_MAX};
        ASSERT_OK(fsdp_class_text_encode(&o, text_of("a"), text_of("b"), &e, NULL));
        ASSERT_INT(e.source.len, 5);
        ASSERT_INT(e.token_type_ids.len, cases[i].segments ? 5 : 0);
        fsdp_example_fini(&e);
        fsdp_tokenizer_close(tokenizer);
    }
}

TEST(cut_rows_of_pairs_are_counted)
{
    NEEDS_SENTENCEPIECE();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_dataset_options o = {.task = FSDP_TASK_CLASSIFICATION,
                              .tokenizer = tokenizer,
                              .num_classes = 2,
                              .type_vocab_size = 2,
                              .max_length = 6};
    fsdp_dataset *set;
    fsdp_left_out out;
    ASSERT_OK(fsdp_dataset_open(
        write_text(
            t, "a.jsonl",
            "{\"sentence1\": \"the the the the the the\", \"sentence2\": \"one the\", "
            "\"label\": 0}\n{\"sentence1\": \"the\", \"sentence2\": \"one\", \"label\": 1}\n"),
        &o, &set));
    check_row(t, set, tokenizer, 0, "the the</s> one the</s>", 0);
    check_row(t, set, tokenizer, 1, "the</s> one</s>", 1);
    CHECK_HERE();
    ASSERT_OK(fsdp_dataset_left_out(set, 0, &out));
    ASSERT_INT(out.cut_rows, 1);
    ASSERT_INT(out.cut_tokens, 4);
    fsdp_dataset_close(set);
    fsdp_tokenizer_close(tokenizer);
}

TEST(a_label_that_is_no_class_is_an_error_with_its_line)
{
    NEEDS_SENTENCEPIECE();
    NEEDS_LIBCSV();
    static const char *const names[] = {"bad", "good"};
    static const struct {
        const char *label, *message;
    } cases[] = {
        {"2", "a.csv: line 3: label: expected one of \"bad\", \"good\", or an integer from 0 to 1: "
              "the model has 2 classes; more: --x, found \"2\""},
        {"-1", "found \"-1\""},
        {"0.5", "found \"0.5\""},
        {"Good", "found \"Good\""},
        {"", "found \"\""},
        {"nan", "found \"nan\""},
    };
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    const fsdp_dataset_options o = {.task = FSDP_TASK_CLASSIFICATION,
                                    .tokenizer = tokenizer,
                                    .num_classes = 2,
                                    .class_names = names,
                                    .class_hint = "more: --x"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[100];
        fsdp_dataset *set;
        snprintf(text, sizeof text, "text,label\na,1\nb,%s\n", cases[i].label);
        ASSERT_ERROR(fsdp_dataset_open(write_text(t, "a.csv", text), &o, &set), FSDP_ERR_FORMAT,
                     cases[i].message);
    }
    fsdp_dataset *set;
    ASSERT_ERROR(fsdp_dataset_open(write_text(t, "a.csv", "text,class\na,1\n"), &o, &set),
                 FSDP_ERR_FORMAT, "no column 'label'; the header has text, class");
    ASSERT_ERROR(
        fsdp_dataset_open(write_text(t, "a.jsonl", "{\"text\": \"a\"}\n"), &o, &set),
        FSDP_ERR_FORMAT,
        "a.jsonl: line 1: no key 'label'; the row has text; --text-column and --label-column name");
    const fsdp_dataset_options without = {.task = FSDP_TASK_CLASSIFICATION, .num_classes = 2};
    ASSERT_ERROR(fsdp_dataset_open(write_text(t, "a.jsonl", "{\"text\": \"a\"}\n"), &without, &set),
                 FSDP_ERR_INVALID, "a.jsonl: a text needs a tokenizer");
    fsdp_tokenizer_close(tokenizer);
}

/* Lists of titles are for pairs. A classification beside them is split into shares of its rows. */
TEST(lists_of_titles_do_not_choose_rows_of_classes)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    fsdp_dataset_options o = {
        .task = FSDP_TASK_CLASSIFICATION, .tokenizer = tokenizer, .num_classes = 2};
    write_text(t, "all_train.txt", "T\n");
    write_text(t, "all_val.txt", "V\n");
    for (int i = 0; i < 2; i++) {
        fsdp_dataset *set;
        o.split = i ? FSDP_SPLIT_VALIDATION : FSDP_SPLIT_TRAIN;
        ASSERT_OK(fsdp_dataset_open(
            write_text(t, "a.csv", "text,title,label\na,T,1\nb,T,0\nc,V,1\n"), &o, &set));
        ASSERT_INT(fsdp_dataset_len(set), i ? 1 : 2);
        fsdp_dataset_close(set);
    }
    fsdp_tokenizer_close(tokenizer);
}

/* Labels that are numbers, of rows of texts and of rows of ids. */
/* What lists of numbers are is a property of the file, not of a row. */
TEST(lists_of_numbers_are_indices_or_multi_hot)
{
    static const struct {
        const char *labels[3]; /* three rows */
        int64_t classes;       /* 0: found by fsdp_labels_find() */
        int64_t found;         /* classes that it finds */
        fsdp_label_lists asked, lists;
        const char *message; /* NULL: no error */
    } cases[] = {
        {{"[3]", "[0, 1]", "[]"}, 0, 4, 0, FSDP_LABEL_LISTS_INDICES, NULL},
        {{"[0]", "[0, 1]", "[1]"}, 0, 2, 0, FSDP_LABEL_LISTS_INDICES, NULL},
        {{"[0, 1]", "[0, 0]", "[]"}, 0, 2, 0, FSDP_LABEL_LISTS_MULTI_HOT, NULL},
        {{"[0, 1]", "[1, 0.5]", "[0, 1]"}, 0, 2, 0, FSDP_LABEL_LISTS_MULTI_HOT, NULL},
        {{"[1, 0, 1]", "[0, 0, 1]", "[]"}, 0, 3, 0, FSDP_LABEL_LISTS_MULTI_HOT, NULL},
        {{"[\"b\"]", "[\"a\", \"c\"]", "[]"}, 0, 3, 0, FSDP_LABEL_LISTS_MULTI_HOT, NULL},
        {{"[0, 1]", "[1, 0]", "[]"},
         0,
         0,
         0,
         0,
         "a.jsonl: label: lists such as that of line 1 may"},
        {{"[]", "[1]", "[0]"}, 0, 0, 0, 0, "lists such as that of line 2 may be the classes of a "},
        {{"[0, 1]", "[1, 0]", "[]"},
         0,
         2,
         FSDP_LABEL_LISTS_INDICES,
         FSDP_LABEL_LISTS_INDICES,
         NULL},
        {{"[1]", "[0]", "[1]"}, 0, 1, FSDP_LABEL_LISTS_MULTI_HOT, FSDP_LABEL_LISTS_MULTI_HOT, NULL},
        {{"[5, 2]", "[]", "[0, 0]"}, 0, 0, 0, 0, "the list of line 1 has classes (its length"},
        {{"[0, 0]", "[0, 1]", "[5, 2]"}, 0, 0, 0, 0, "but that of line 1 a number for each class"},
        {{"[0, 1]", "[1, 0]", "[]"}, 3, 0, 0, FSDP_LABEL_LISTS_INDICES, NULL},
        {{"[0, 1]", "[1, 0]", "[]"}, 2, 0, 0, 0, "--label-lists indices or multi-hot"},
        {{"[1]", "[0]", "[]"}, 1, 0, 0, FSDP_LABEL_LISTS_MULTI_HOT, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fsdp_dataset_options o = {.task = FSDP_TASK_CLASSIFICATION,
                                        .problem_type = FSDP_PROBLEM_MULTI_LABEL,
                                        .num_classes = cases[i].classes,
                                        .label_lists = cases[i].asked};
        fsdp_dataset_options full;
        fsdp_found_labels found;
        fsdp_label_lists lists;
        char text[400];
        snprintf(text, sizeof text,
                 "{\"text\": \"a\", \"label\": %s}\n{\"text\": \"b\", \"label\": %s}\n"
                 "{\"text\": \"c\", \"label\": %s}\n",
                 cases[i].labels[0], cases[i].labels[1], cases[i].labels[2]);
        const char *path = write_text(t, "a.jsonl", text);
        if (!cases[i].classes && !cases[i].message) {
            ASSERT_OK(fsdp_labels_find(path, &o, &found));
            ASSERT_INT(found.classes, cases[i].found);
            ASSERT_INT(found.problem_type, FSDP_PROBLEM_MULTI_LABEL);
            fsdp_found_labels_fini(&found);
            continue;
        }
        if (!cases[i].classes) {
            ASSERT_ERROR(fsdp_labels_find(path, &o, &found), FSDP_ERR_FORMAT, cases[i].message);
            continue;
        }
        ASSERT_OK(fsdp_dataset_complete_options(&o, &full));
        if (cases[i].message) {
            ASSERT_ERROR(fsdp_label_lists_find(path, &full, &lists), FSDP_ERR_FORMAT,
                         cases[i].message);
            continue;
        }
        ASSERT_OK(fsdp_label_lists_find(path, &full, &lists));
        ASSERT_INT(lists, cases[i].lists);
    }
    const fsdp_dataset_options single = {.task = FSDP_TASK_CLASSIFICATION,
                                         .label_lists = FSDP_LABEL_LISTS_INDICES};
    fsdp_dataset *set;
    ASSERT_ERROR(fsdp_dataset_open("a.jsonl", &single, &set), FSDP_ERR_INVALID, "--label-lists");
}

/* CSV has no lists: "3,14" is one only if the problem type says so, and never a name by silence. */
TEST(numbers_with_commas_are_classes_if_the_problem_type_says_so)
{
    fsdp_found_labels found;
    fsdp_dataset_options o = {.task = FSDP_TASK_CLASSIFICATION};
    NEEDS_LIBCSV();
    const char *path = write_text(t, "a.csv", "text,label\na,27\nb,\"3,14\"\nc,[5]\n");
    ASSERT_OK(fsdp_labels_find(path, &o, &found)); /* a list in brackets says so, too */
    ASSERT_INT(found.classes, 28);
    ASSERT(!found.names);
    fsdp_found_labels_fini(&found);
    path = write_text(t, "a.csv", "text,label\na,27\nb,\"3,14\"\n");
    ASSERT_ERROR(fsdp_labels_find(path, &o, &found), FSDP_ERR_FORMAT,
                 "a.csv: line 3: label: expected one class, found \"3,14\": --problem-type "
                 "multi_label_classification");
    o.problem_type = FSDP_PROBLEM_MULTI_LABEL;
    ASSERT_OK(fsdp_labels_find(path, &o, &found));
    ASSERT_INT(found.classes, 28);
    fsdp_found_labels_fini(&found);
    o.problem_type = FSDP_PROBLEM_SINGLE_LABEL;
    path = write_text(t, "a.csv", "text,label\na,other\nb,\"3,14\"\n");
    ASSERT_OK(fsdp_labels_find(path, &o, &found));
    ASSERT_INT(found.classes, 2);
    ASSERT_STR(found.names[0], "3,14");
    fsdp_found_labels_fini(&found);
}

TEST(labels_that_are_numbers_are_read)
{
    static const char *const names[] = {"x", "y", "z"};
    static const struct {
        const char *label; /* in JSON */
        fsdp_problem_type problem;
        int64_t classes;
        float targets[3];
        const char *message; /* NULL: the label is right */
    } cases[] = {
        {"2.5", FSDP_PROBLEM_REGRESSION, 1, {2.5f}, NULL},
        {"-3", FSDP_PROBLEM_REGRESSION, 1, {-3}, NULL},
        {"\"4.25\"", FSDP_PROBLEM_REGRESSION, 1, {4.25f}, NULL},
        {"[1, -2.5]", FSDP_PROBLEM_REGRESSION, 2, {1, -2.5f}, NULL},
        {"[1, 0, 1]", FSDP_PROBLEM_MULTI_LABEL, 3, {1, 0, 1}, NULL},
        {"[true, false, 0.5]", FSDP_PROBLEM_MULTI_LABEL, 3, {1, 0, 0.5f}, NULL},
        {"[\"z\", \"x\"]", FSDP_PROBLEM_MULTI_LABEL, 3, {1, 0, 1}, NULL},
        {"[]", FSDP_PROBLEM_MULTI_LABEL, 3, {0, 0, 0}, NULL},
        {"\"y\"", FSDP_PROBLEM_MULTI_LABEL, 3, {0, 1, 0}, NULL},
        {"\"good\"",
         FSDP_PROBLEM_REGRESSION,
         1,
         {0},
         "label: expected a number: the problem type is regression; do this, found "
         "\"good\""},
        {"1e60", FSDP_PROBLEM_REGRESSION, 1, {0}, "found 1e+60"},
        {"[1, 2]", FSDP_PROBLEM_REGRESSION, 1, {0}, "found a list of 2"},
        {"1", FSDP_PROBLEM_REGRESSION, 2, {0}, "expected a list of 2 numbers"},
        {"[\"x\"]", FSDP_PROBLEM_REGRESSION, 2, {0}, "found x"},
        {"[2]", FSDP_PROBLEM_MULTI_LABEL, 3, {0, 0, 1}, NULL},
        {"[1, 0]", FSDP_PROBLEM_MULTI_LABEL, 3, {1, 1, 0}, NULL},
        {"[1, 2, 0]", FSDP_PROBLEM_MULTI_LABEL, 3, {1, 1, 1}, NULL},
        {"2", FSDP_PROBLEM_MULTI_LABEL, 3, {0, 0, 1}, NULL},
        {"\"2, 0\"", FSDP_PROBLEM_MULTI_LABEL, 3, {1, 0, 1}, NULL},
        {"\"0,1,0\"", FSDP_PROBLEM_MULTI_LABEL, 3, {0, 1, 0}, NULL},
        {"\"[2, 0]\"", FSDP_PROBLEM_MULTI_LABEL, 3, {1, 0, 1}, NULL},
        {"[1, 2, 2]", FSDP_PROBLEM_MULTI_LABEL, 3, {0}, "found 2"},
        {"[3]", FSDP_PROBLEM_MULTI_LABEL, 3, {0}, "a list of classes from 0 to 2"},
        {"[-1]", FSDP_PROBLEM_MULTI_LABEL, 3, {0}, "do this, found -1"},
        {"[1, 2.5]", FSDP_PROBLEM_MULTI_LABEL, 3, {0}, "found a list of 2"},
        {"[4000000000000, 2]", FSDP_PROBLEM_MULTI_LABEL, 3, {0}, "found 4000000000000"},
        {"1000000000000000000000", FSDP_PROBLEM_MULTI_LABEL, 3, {0}, "found "},
        {"[0.0, 0.0]",
         FSDP_PROBLEM_MULTI_LABEL,
         3,
         {0},
         "expected a list of 3 numbers from 0 to 1, one for each class, or a list of names of "
         "classes: the problem type is multi_label_classification; do this, found a list of 2"},
        {"[\"x\", 1]", FSDP_PROBLEM_MULTI_LABEL, 3, {0}, "other than names"},
        {"[1, \"x\", 0]", FSDP_PROBLEM_MULTI_LABEL, 3, {0}, "other than numbers"},
        {"[\"w\"]", FSDP_PROBLEM_MULTI_LABEL, 3, {0}, "found w"},
    };
    NEEDS_SENTENCEPIECE();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        const size_t k = i / 2;
        const fsdp_dataset_options o = {.task = FSDP_TASK_CLASSIFICATION,
                                        .tokenizer = tokenizer,
                                        .problem_type = cases[k].problem,
                                        .num_classes = cases[k].classes,
                                        .class_names = names,
                                        .class_hint = "do this"};
        fsdp_example e = {0};
        fsdp_dataset *set;
        char text[200];
        snprintf(text, sizeof text, "{\"%s\": %s, \"label\": %s}\n", i % 2 ? "text" : "input_ids",
                 i % 2 ? "\"one\"" : "[5]", cases[k].label);
        const char *path = write_text(t, "a.jsonl", text);
        if (cases[k].message) {
            ASSERT_ERROR(fsdp_dataset_open(path, &o, &set), FSDP_ERR_FORMAT, cases[k].message);
            continue;
        }
        ASSERT_OK(fsdp_dataset_open(path, &o, &set));
        ASSERT_OK(fsdp_dataset_get(set, 0, &e));
        ASSERT_INT(e.labels.len, 0);
        ASSERT_INT(e.num_targets, cases[k].classes);
        for (size_t c = 0; c < e.num_targets; c++)
            ASSERT_F32(e.targets[c], cases[k].targets[c]);
        fsdp_example_fini(&e);
        fsdp_dataset_close(set);
    }
    const fsdp_dataset_options without = {.task = FSDP_TASK_CLASSIFICATION,
                                          .problem_type = FSDP_PROBLEM_REGRESSION};
    fsdp_dataset *set;
    ASSERT_ERROR(fsdp_dataset_open("a.jsonl", &without, &set), FSDP_ERR_INVALID,
                 "need the number of labels of a row");
    fsdp_tokenizer_close(tokenizer);
}

static fsdp_status open_and_get(const char *path, const fsdp_dataset_options *o)
{
    fsdp_dataset *set;
    fsdp_example e = {0};
    FSDP_TRY(fsdp_dataset_open(path, o, &set));
    fsdp_status status = fsdp_dataset_get(set, 0, &e);
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
    return status;
}

static fsdp_status find_labels(const char *path, const fsdp_dataset_options *o)
{
    fsdp_found_labels found;
    FSDP_TRY(fsdp_labels_find(path, o, &found));
    fsdp_found_labels_fini(&found);
    return FSDP_OK;
}

/* The classes of a model are rows of its head, so an index is not taken for a number of classes
 * without a limit. */
TEST(lists_of_indices_are_bounded)
{
    static const char *const rows[] = {"{\"text\": \"a\", \"label\": [2, 16777216]}\n",
                                       "{\"text\": \"a\", \"label\": [9223372036854775807]}\n",
                                       "{\"input_ids\": [1], \"labels\": [3, 3000000000]}\n"};
    const fsdp_dataset_options o = {.task = FSDP_TASK_CLASSIFICATION,
                                    .problem_type = FSDP_PROBLEM_MULTI_LABEL,
                                    .label_lists = FSDP_LABEL_LISTS_INDICES};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ASSERT_ERROR(find_labels(write_text(t, "a.jsonl", rows[i]), &o), FSDP_ERR_FORMAT,
                     "expected lists of classes from 0 to 16777215");
}

/* Each allocation fails once, until one more than there are is asked for. */
TEST(lists_of_names_survive_that_memory_runs_out)
{
    static const char *const names[] = {"x", "y"};
    static const char rows[] = "{\"text\": \"a b\", \"label\": [\"y\"]}\n"
                               "{\"text\": \"c\", \"label\": [\"y\", \"x\"]}\n";
    NEEDS_SENTENCEPIECE(); /* utf8proc */
    fsdp_tokenizer *tokenizer;
    ASSERT_OK(fsdp_tokenizer_open(write_bert(t, NULL), &tokenizer));
    const fsdp_dataset_options o = {.task = FSDP_TASK_CLASSIFICATION,
                                    .tokenizer = tokenizer,
                                    .problem_type = FSDP_PROBLEM_MULTI_LABEL,
                                    .num_classes = 2,
                                    .class_names = names};
    const char *path = write_text(t, "a.jsonl", rows);
    for (int kind = 0; kind < 2; kind++) {
        fsdp_status status = FSDP_ERR_NOMEM;
        for (long n = 1; status != FSDP_OK; n++) {
            fsdp_alloc_fail_at(n);
            status = kind ? find_labels(path, &o) : open_and_get(path, &o);
            fsdp_alloc_fail_at(0);
            ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
            ASSERT(n < 5000);
        }
    }
    fsdp_tokenizer_close(tokenizer);
}

TEST(a_file_says_which_classes_it_has)
{
    NEEDS_LIBCSV();
    static const struct {
        const char *name, *text;
        int64_t classes;
        const char *first, *last;
        fsdp_problem_type problem;
    } cases[] = {
        {"a.csv", "text,label\na,0\nb,4\n", 5, NULL, NULL, FSDP_PROBLEM_SINGLE_LABEL},
        {"a.csv", "text,label\na,0.0\nb,2.0\n", 3, NULL, NULL, FSDP_PROBLEM_SINGLE_LABEL},
        {"a.csv", "text,label\na,sports\nb,arts\nc,sports\n", 2, "arts", "sports",
         FSDP_PROBLEM_SINGLE_LABEL},
        {"a.csv", "text,label\na,1\nb,x\n", 2, "1", "x", FSDP_PROBLEM_SINGLE_LABEL},
        {"a.csv", "text,label\na,1\nb,0.5\n", 1, NULL, NULL, FSDP_PROBLEM_REGRESSION},
        {"a.jsonl", "{\"input_ids\": [1], \"label\": 3}\n{\"input_ids\": [1], \"label\": 1}\n", 4,
         NULL, NULL, FSDP_PROBLEM_SINGLE_LABEL},
        {"a.json",
         "[{\"input_ids\": [1], \"labels\": \"b\"}, {\"input_ids\": [1], "
         "\"labels\": \"a\"}]",
         2, "a", "b", FSDP_PROBLEM_SINGLE_LABEL},
        {"a.csv", "text,label\na,\"[0, 1, 1]\"\nb,\"[1, 0, 0]\"\n", 3, NULL, NULL,
         FSDP_PROBLEM_MULTI_LABEL},
        {"a.json",
         "[{\"text\": \"x\", \"label\": [\"b\", \"c\"]}, {\"text\": \"x\", \"label\": []},"
         "{\"text\": \"x\", \"label\": [\"a\"]}]",
         3, "a", "c", FSDP_PROBLEM_MULTI_LABEL},
        {"a.jsonl", "{\"input_ids\": [1], \"label\": 3.5}\n{\"input_ids\": [1], \"label\": 1}\n", 1,
         NULL, NULL, FSDP_PROBLEM_REGRESSION},
        {"a.jsonl", "{\"input_ids\": [1], \"labels\": [0.5, 2]}\n", 2, NULL, NULL,
         FSDP_PROBLEM_MULTI_LABEL},
        {"a.json", "[{\"sentence\": \"x\", \"label\": \"b\"}]", 1, "b", "b",
         FSDP_PROBLEM_SINGLE_LABEL},
    };
    const fsdp_dataset_options o = {.task = FSDP_TASK_CLASSIFICATION};
    fsdp_found_labels found;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ASSERT_OK(fsdp_labels_find(write_text(t, cases[i].name, cases[i].text), &o, &found));
        ASSERT_INT(found.classes, cases[i].classes);
        ASSERT_INT(found.problem_type, cases[i].problem);
        ASSERT(!found.names == !cases[i].first);
        if (found.names) {
            ASSERT_STR(found.names[0], cases[i].first);
            ASSERT_STR(found.names[found.classes - 1], cases[i].last);
        }
        fsdp_found_labels_fini(&found);
    }
    ASSERT_ERROR(fsdp_labels_find(write_text(t, "a.csv", "text,label\na,-1\nb,1\n"), &o, &found),
                 FSDP_ERR_FORMAT,
                 "a.csv: line 2: label: expected a class, 0 or more, or a name, found -1, which");
}
