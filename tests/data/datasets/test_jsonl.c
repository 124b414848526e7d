/* JSON lines of every task: ready-made ids, and texts for causal models. */
#include <fsdp/data.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/io.h"
#include "src/data/rows/rows_form.h"
#include "tests/test.h"

enum {
    X = FSDP_IGNORE_INDEX
};

static const char *write_text(fsdp_test *t, const char *name, const char *text)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), name);
    if (fsdp_file_write(path, text, strlen(text)) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return path;
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

TEST(rows_are_taken_as_they_are_and_masks_applied)
{
    const char *path = write_text(
        t, "a.jsonl",
        "\xEF\xBB\xBF{\"input_ids\": [5, 6, 1], \"labels\": [7, -100, 1]}\r\n"
        "\n"
        "{\"labels\": [], \"input_ids\": [9], \"other\": {\"kept\": [1.5]}}\n"
        "{\"input_ids\": [0, 0, 8, 1], \"attention_mask\": [0, 0, 1, 1], \"labels\": [-100]}\n"
        "{\"input_ids\": [8, 1, 0], \"attention_mask\": [1, 1, 0], \"labels\": [1],"
        " \"position_ids\": [4, 5, 0]}");
    fsdp_dataset *dataset;
    ASSERT_OK(fsdp_dataset_open(path, NULL, &dataset));
    ASSERT_INT(fsdp_dataset_len(dataset), 4);
    fsdp_example example = {0};
    ASSERT_OK(fsdp_dataset_get(dataset, 0, &example));
    CHECK_LIST(&example.source, 5, 6, 1);
    CHECK_LIST(&example.labels, 7, X, 1);
    ASSERT_OK(fsdp_dataset_get(dataset, 1, &example));
    CHECK_LIST(&example.source, 9);
    ASSERT_INT(example.labels.len, 0);
    ASSERT_OK(fsdp_dataset_get(dataset, 2, &example));
    CHECK_LIST(&example.source, 8, 1);
    CHECK_LIST(&example.labels, X);
    ASSERT_OK(fsdp_dataset_get(dataset, 3, &example));
    CHECK_LIST(&example.source, 8, 1);
    fsdp_example_fini(&example);
    char *source, *target;
    ASSERT_ERROR(fsdp_dataset_texts(dataset, 0, &source, &target), FSDP_ERR_UNSUPPORTED,
                 "tokenizer");
    fsdp_dataset_close(dataset);
}

TEST(a_tokenizer_gives_ready_made_ids_their_texts)
{
    NEEDS_SENTENCEPIECE();
    fsdp_tokenizer *tokenizer;
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("../data/tokenizers/t5"), &tokenizer));
    const char *path = write_text(
        t, "data", "\n {\"input_ids\": [37, 629, 1, 0], \"labels\": [37, -100, 1, -100]}\n");
    fsdp_dataset *dataset;
    const fsdp_dataset_options options = {.tokenizer = tokenizer};
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    char *source, *target;
    ASSERT_OK(fsdp_dataset_texts(dataset, 0, &source, &target));
    ASSERT_STR(source, "The house");
    ASSERT_STR(target, "The");
    fsdp_text_free(source);
    fsdp_text_free(target);
    ASSERT_OK(fsdp_dataset_texts(dataset, 0, NULL, NULL));
    fsdp_dataset_close(dataset);
    fsdp_tokenizer_close(tokenizer);
}

TEST(a_bad_row_is_an_error_with_its_line)
{
    static const struct {
        const char *row, *message;
    } cases[] = {
        {"{\"input_ids\": [1, 2", "line 3, column"},
        {"[1, 2]", "line 3: row: expected an object"},
        {"{\"labels\": [1]}", "line 3: row: expected input_ids and labels"},
        {"{\"text\": \"a\", \"headline\": \"b\"}",
         "expected input_ids and labels, or texts in all rows"},
        {"{\"input_ids\": [1]}", "line 3: row: labels"},
        {"{\"input_ids\": [], \"labels\": [1]}", "at least one id"},
        {"{\"input_ids\": [1, 100], \"labels\": [1]}", "line 3: row: input_ids[1]"},
        {"{\"input_ids\": [1, -1], \"labels\": [1]}", "input_ids[1]"},
        {"{\"input_ids\": [1, 2.5], \"labels\": [1]}", "input_ids[1]"},
        {"{\"input_ids\": [1, \"2\"], \"labels\": [1]}", "input_ids[1]"},
        {"{\"input_ids\": [1], \"labels\": [3, 100]}", "labels[1]"},
        {"{\"input_ids\": [1], \"labels\": [3, -99]}", "-100 for no loss (entry 1 is -99)"},
        {"{\"input_ids\": [1], \"labels\": [1], \"attention_mask\": [1, 1]}",
         "attention_mask: expected 1 entries, as in input_ids"},
        {"{\"input_ids\": [1, 2, 3], \"labels\": [1], \"attention_mask\": [1, 0, 1]}",
         "line 3: attention_mask: a hole at column 1"},
        {"{\"input_ids\": [1, 2], \"labels\": [1], \"attention_mask\": [0, 0]}", "0 everywhere"},
        {"{\"input_ids\": [1, 2], \"labels\": [1], \"attention_mask\": [0, 2]}", "column 1 is 2"},
        {"{\"input_ids\": [1, 2], \"labels\": [1], \"position_ids\": [0, 2]}",
         "count up by one (entry 1 does not)"},
    };
    const fsdp_dataset_options options = {.vocab_size = 100};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        snprintf(text, sizeof text, "{\"input_ids\": [99], \"labels\": [99]}\n\n%s\n",
                 cases[i].row);
        const char *path = write_text(t, "a.jsonl", text);
        fsdp_dataset *dataset = NULL;
        ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_FORMAT, "a.jsonl: ");
        if (!strstr(fsdp_last_error(), cases[i].message))
            FAIL("'%s' lacks '%s'", fsdp_last_error(), cases[i].message);
        ASSERT(dataset == NULL);
    }
}

/* Downloads that are not rows, or text that takes the place of the file. */
TEST(a_file_of_another_kind_is_named)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"version https://git-lfs.github.com/spec/v1\n",
         "a.jsonl: not rows of data, but a Git LFS"},
        {"<!DOCTYPE html>\n<html>", "a.jsonl: not JSON lines, but a web page (HTML)"},
        {"PAR1\x15\x04\xff", "a.jsonl: not text, but a Parquet file"},
        {"{\"input_ids\": <html>", "a.jsonl: row: line 1, column"},
    };
    const fsdp_dataset_options options = {.vocab_size = 100};
    fsdp_dataset *dataset = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ASSERT_ERROR(fsdp_dataset_open(write_text(t, "a.jsonl", cases[i].text), &options, &dataset),
                     FSDP_ERR_FORMAT, cases[i].message);
    ASSERT(dataset == NULL);
}

TEST(rows_behind_max_samples_are_not_read)
{
    const char *path = write_text(t, "a.jsonl",
                                  "{\"input_ids\": [1], \"labels\": [1]}\n"
                                  "{\"input_ids\": [2], \"labels\": [1]}\nbad\n");
    fsdp_dataset *dataset;
    const fsdp_dataset_options options = {.max_samples = 2};
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    ASSERT_INT(fsdp_dataset_len(dataset), 2);
    fsdp_dataset_close(dataset);
    ASSERT_ERROR(fsdp_dataset_open(path, NULL, &dataset), FSDP_ERR_FORMAT, "line 3");
    path = write_text(t, "a.jsonl", "\n");
    ASSERT_ERROR(fsdp_dataset_open(path, NULL, &dataset), FSDP_ERR_FORMAT, "no rows");
}

/* --- causal language modeling --- */

static fsdp_dataset *open_causal(fsdp_test *t, const char *path, int64_t max_length)
{
    const fsdp_dataset_options options = {
        .task = FSDP_TASK_CAUSAL_LM, .vocab_size = 100, .max_length = max_length};
    fsdp_dataset *dataset = NULL;
    if (fsdp_dataset_open(path, &options, &dataset) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return dataset;
}

TEST(causal_rows_have_labels_prompts_and_documents)
{
    const char *path =
        write_text(t, "a.jsonl",
                   "{\"input_ids\": [5, 6, 7]}\n"
                   "{\"input_ids\": [5, 6, 7], \"labels\": [-100, 6, 8]}\n"
                   "{\"input_ids\": [5, 6, 7], \"prompt_length\": 2}\n"
                   "{\"input_ids\": [0, 5, 6, 7, 8], \"attention_mask\": [0, 1, 1, 1, 1],"
                   " \"labels\": [-100, 1, 2, 3, 4], \"position_ids\": [9, 0, 1, 0, 1],"
                   " \"prompt_length\": 2}\n"
                   "{\"prompt_ids\": [1, 2], \"completion_ids\": [3, 4]}\n");
    fsdp_dataset *dataset = open_causal(t, path, 0);
    CHECK_HERE();
    ASSERT_INT(fsdp_dataset_len(dataset), 5);
    fsdp_example e = {0};
    ASSERT_OK(fsdp_dataset_get(dataset, 3, &e)); /* the fullest first: nothing of it may remain */
    CHECK_LIST(&e.source, 5, 6, 7, 8);
    CHECK_LIST(&e.labels, X, 2, 3, 4);
    CHECK_LIST(&e.position_ids, 0, 1, 0, 1);
    ASSERT_OK(fsdp_dataset_get(dataset, 0, &e));
    CHECK_LIST(&e.source, 5, 6, 7);
    ASSERT_INT(e.labels.len, 0);
    ASSERT_INT(e.position_ids.len, 0);
    ASSERT_OK(fsdp_dataset_get(dataset, 1, &e));
    CHECK_LIST(&e.labels, X, 6, 8);
    ASSERT_OK(fsdp_dataset_get(dataset, 2, &e));
    CHECK_LIST(&e.labels, X, X, 7);
    ASSERT_OK(fsdp_dataset_get(dataset, 4, &e));
    CHECK_LIST(&e.source, 1, 2, 3, 4);
    CHECK_LIST(&e.labels, X, X, 3, 4);
    fsdp_example_fini(&e);
    /* As a batch, the packed row is two sequences, and labels are shifted by one. */
    const int64_t indices[] = {3, 2};
    const fsdp_batch_format format = {.task = FSDP_TASK_CAUSAL_LM};
    fsdp_batch *batch;
    ASSERT_OK(fsdp_collate(dataset, indices, 2, &format, &batch));
    ASSERT_INT(batch->rows, 3);
    ASSERT_INT(batch->source_offsets[1], 2);
    const int32_t labels[] = {2, X, 4, X, X, 7, X};
    ASSERT(memcmp(batch->labels, labels, sizeof labels) == 0);
    fsdp_batch_release(batch);
    fsdp_dataset_close(dataset);
}

/* prompt_length includes the padding, whichever of the two is longer. */
TEST(prompts_begin_with_the_padding_on_their_left)
{
    const char *path = write_text(t, "a.jsonl",
                                  "{\"input_ids\": [0, 0, 6, 7], \"attention_mask\": [0, 0, 1, 1],"
                                  " \"prompt_length\": 3}\n"
                                  "{\"input_ids\": [0, 0, 6, 7], \"attention_mask\": [0, 0, 1, 1],"
                                  " \"prompt_length\": 1}\n");
    fsdp_dataset *dataset = open_causal(t, path, 0);
    CHECK_HERE();
    fsdp_example e = {0};
    ASSERT_OK(fsdp_dataset_get(dataset, 0, &e));
    CHECK_LIST(&e.source, 6, 7);
    CHECK_LIST(&e.labels, X, 7);
    ASSERT_OK(fsdp_dataset_get(dataset, 1, &e));
    CHECK_LIST(&e.labels, 6, 7);
    fsdp_example_fini(&e);
    fsdp_dataset_close(dataset);
}

/* The kind is not known from the name, but from the first byte after the mark. */
TEST(json_lines_may_begin_with_a_byte_order_mark)
{
    const char *path = write_text(t, "a.txt", "\xEF\xBB\xBF\n {\"input_ids\": [5, 6, 7]}\n");
    fsdp_dataset *dataset = open_causal(t, path, 0);
    CHECK_HERE();
    ASSERT_INT(fsdp_dataset_len(dataset), 1);
    fsdp_dataset_close(dataset);
}

TEST(a_text_may_begin_with_a_brace)
{
    bool jsonl = true;
    ASSERT_OK(fsdp_is_jsonl_path(write_text(t, "a.txt", "{{Infobox}} and more\n"), &jsonl));
    ASSERT(!jsonl);
    ASSERT_OK(fsdp_is_jsonl_path(write_text(t, "b.txt", "{ \n \"input_ids\": [5]}\n"), &jsonl));
    ASSERT(jsonl);
    ASSERT_OK(fsdp_is_jsonl_path(write_text(t, "c.jsonl", "{{}\n"), &jsonl));
    ASSERT(jsonl);
}

/* Determining the kind would consume data, and each rank would get only a part of it. */
TEST(a_pipe_is_refused)
{
    char path[600];
    fsdp_dataset *dataset;
    snprintf(path, sizeof path, "%s/pipe.jsonl", fsdp_test_dir(t));
    ASSERT_INT(mkfifo(path, 0600), 0);
    ASSERT_ERROR(
        fsdp_dataset_open(path, NULL, &dataset), FSDP_ERR_INVALID,
        "pipe.jsonl: neither a regular file nor a directory; data are read more than once");
}

/* "-" must not be looked for as a file or as the name of a data set. */
TEST(standard_input_is_refused)
{
    fsdp_dataset *dataset;
    ASSERT_ERROR(fsdp_dataset_open("-", NULL, &dataset), FSDP_ERR_INVALID,
                 "-: standard input; data are read more than once");
}

TEST(documents_are_split_in_token_files_only)
{
    const char *path = write_text(t, "a.jsonl", "{\"input_ids\": [5, 6, 7]}\n");
    const fsdp_dataset_options options = {
        .task = FSDP_TASK_CAUSAL_LM, .split_documents = true, .document_token = 6};
    fsdp_dataset *dataset = NULL;
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_INVALID,
                 "a.jsonl: documents are split at token 6");
    ASSERT(dataset == NULL);
}

TEST(longer_rows_lose_their_end)
{
    const char *path = write_text(
        t, "a.jsonl",
        "{\"input_ids\": [5, 6, 7, 8], \"labels\": [5, 6, 7, 8], \"position_ids\": [0, 1, 2, 3]}\n"
        "{\"input_ids\": [0, 6, 7, 8], \"attention_mask\": [0, 1, 1, 1], \"prompt_length\": 4}\n"
        "{\"prompt_ids\": [1, 2, 3], \"completion_ids\": [4]}\n");
    fsdp_dataset *dataset = open_causal(t, path, 2);
    CHECK_HERE();
    fsdp_example e = {0};
    ASSERT_OK(fsdp_dataset_get(dataset, 0, &e));
    CHECK_LIST(&e.source, 5, 6);
    CHECK_LIST(&e.labels, 5, 6);
    CHECK_LIST(&e.position_ids, 0, 1);
    ASSERT_OK(fsdp_dataset_get(dataset, 1, &e));
    CHECK_LIST(&e.source, 6, 7);
    CHECK_LIST(&e.labels, X, X);
    ASSERT_OK(fsdp_dataset_get(dataset, 2, &e));
    CHECK_LIST(&e.source, 1, 2);
    CHECK_LIST(&e.labels, X, X);
    fsdp_example_fini(&e);
    fsdp_dataset_close(dataset);
}

/* A list that ends with </s> still ends with it after truncation, like a truncated text. Ignored
 * labels after it are not its end. Without a length, ids are not truncated. */
TEST(seq2seq_ids_are_cut_to_the_lengths_that_are_given)
{
    const char *path =
        write_text(t, "a.jsonl",
                   "{\"input_ids\": [5, 6, 7, 8, 1], \"labels\": [9, 10, 11, 1, -100, -100],"
                   " \"attention_mask\": [1, 1, 1, 1, 1]}\n"
                   "{\"input_ids\": [5, 6, 7, 8], \"labels\": [9, 10, 11, 12]}\n"
                   "{\"input_ids\": [0, 5, 6, 1, 0], \"attention_mask\": [0, 1, 1, 1, 0],"
                   " \"labels\": [9, 1, -100]}\n");
    fsdp_dataset *dataset;
    fsdp_example e = {0};
    ASSERT_OK(fsdp_dataset_open(path, NULL, &dataset));
    ASSERT_OK(fsdp_dataset_get(dataset, 0, &e));
    CHECK_LIST(&e.source, 5, 6, 7, 8, 1);
    CHECK_LIST(&e.labels, 9, 10, 11, 1, X, X);
    fsdp_dataset_close(dataset);

    fsdp_dataset_options options = {.max_source_length = 3, .max_target_length = 2, .eos_id = 1};
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    ASSERT_OK(fsdp_dataset_get(dataset, 0, &e));
    CHECK_LIST(&e.source, 5, 6, 1);
    CHECK_LIST(&e.labels, 9, 1);
    ASSERT_OK(fsdp_dataset_get(dataset, 1, &e));
    CHECK_LIST(&e.source, 5, 6, 7);
    CHECK_LIST(&e.labels, 9, 10);
    ASSERT_OK(fsdp_dataset_get(dataset, 2, &e));
    CHECK_LIST(&e.source, 5, 6, 1);
    CHECK_LIST(&e.labels, 9, 1);
    fsdp_dataset_close(dataset);

    options = (fsdp_dataset_options){.max_target_length = 1, .eos_id = 1};
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    ASSERT_OK(fsdp_dataset_get(dataset, 1, &e));
    CHECK_LIST(&e.source, 5, 6, 7, 8);
    CHECK_LIST(&e.labels, 9);
    fsdp_dataset_close(dataset);
    fsdp_example_fini(&e);
}

static void check_note(fsdp_test *t, fsdp_task task, const char *text, const char *expected)
{
    const char *path = write_text(t, "a.jsonl", text);
    const fsdp_dataset_options options = {.task = task};
    fsdp_dataset *dataset;
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    const char *note = fsdp_dataset_note(dataset);
    if (!expected)
        ASSERT(!note);
    else if (!note || !strstr(note, expected))
        fsdp_test_fail(t, __FILE__, __LINE__, "'%s' instead of '%s'", note ? note : "", expected);
    fsdp_dataset_close(dataset);
}

TEST(keys_that_are_not_used_are_named)
{
    const fsdp_task pairs = FSDP_TASK_SEQ2SEQ, causal = FSDP_TASK_CAUSAL_LM;
    check_note(t, pairs, "{\"input_ids\": [5], \"labels\": [1], \"position_ids\": [0]}\n", NULL);
    check_note(t, pairs,
               "{\"input_ids\": [5], \"labels\": [1], \"url\": \"a\"}\n\n"
               "{\"input_ids\": [5], \"labels\": [1], \"url\": \"b\", \"id\": 3}\n",
               "a.jsonl: not used: 'url' (line 1), 'id' (line 3)");
    check_note(t, pairs,
               "{\"input_ids\": [5], \"labels\": [1], \"weight\": 1, \"loss_mask\": [1, true],"
               " \"token_type_ids\": [0]}\n",
               "'weight' (line 1), 'loss_mask' (line 1), 'token_type_ids' (line 1)");
    check_note(t, causal, "{\"input_ids\": [5], \"id\": null, \"prompt_length\": 1}\n", NULL);
    check_note(t, causal, "{\"prompt_ids\": [5], \"completion_ids\": [1], \"labels\": 4}\n",
               "not used: 'labels' (line 1)");
    check_note(t, FSDP_TASK_CLASSIFICATION, "{\"input_ids\": [5], \"label\": 0, \"labels\": 1}\n",
               "not used: 'label' (line 1)");
    check_note(t, causal,
               "{\"input_ids\": [5], \"a\": 1, \"b\": 1, \"c\": 1, \"d\": 1, \"e\": 1, \"f\": 1,"
               " \"g\": 1, \"h\": 1, \"i\": 1}\n",
               "'h' (line 1) and others");
}

/* Arguments of models and weights of losses are not ignored silently. */
TEST(arguments_of_models_that_are_not_used_are_refused)
{
    static const struct {
        fsdp_task task;
        const char *row, *expected;
    } cases[] = {
        {FSDP_TASK_SEQ2SEQ, "{\"input_ids\": [5], \"labels\": [7, 1], \"weight\": 0.5}",
         "a.jsonl: line 1: row: weight: expected 1, or none"},
        {FSDP_TASK_SEQ2SEQ, "{\"input_ids\": [5], \"labels\": [7, 1], \"loss_mask\": [1, 0]}",
         "loss_mask: expected ones, or none"},
        {FSDP_TASK_SEQ2SEQ, "{\"input_ids\": [5], \"labels\": [7], \"token_type_ids\": [1]}",
         "token_type_ids: expected zeros, or none"},
        {FSDP_TASK_SEQ2SEQ,
         "{\"input_ids\": [5], \"labels\": [7, 1], \"decoder_input_ids\": [0, 8]}",
         "decoder_input_ids: expected the labels behind the start id"},
        {FSDP_TASK_SEQ2SEQ, "{\"input_ids\": [5], \"labels\": [7, 1], \"decoder_input_ids\": [0]}",
         "decoder_input_ids: expected 2 entries, as in labels"},
        {FSDP_TASK_SEQ2SEQ,
         "{\"input_ids\": [5], \"labels\": [7, 1], \"decoder_attention_mask\": [1, 0]}",
         "decoder_attention_mask: expected ones up to the last label"},
        {FSDP_TASK_CAUSAL_LM, "{\"input_ids\": [5], \"decoder_input_ids\": [0]}",
         "decoder_input_ids: expected none"},
        {FSDP_TASK_CAUSAL_LM, "{\"input_ids\": [5], \"inputs_embeds\": [[0.5]]}",
         "inputs_embeds: expected none"},
        {FSDP_TASK_CAUSAL_LM,
         "{\"prompt_ids\": [5], \"completion_ids\": [6], \"attention_mask\": [1, 0]}",
         "attention_mask: expected ones, or none"},
        {FSDP_TASK_CAUSAL_LM,
         "{\"prompt_ids\": [5], \"completion_ids\": [6], \"position_ids\": [0, 1]}",
         "position_ids: expected none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_dataset *dataset;
        const fsdp_dataset_options options = {.task = cases[i].task};
        const char *path = write_text(t, "a.jsonl", cases[i].row);
        ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_FORMAT,
                     cases[i].expected);
    }
    check_note(t, FSDP_TASK_SEQ2SEQ,
               "{\"input_ids\": [5], \"labels\": [7, 1, -100], \"decoder_input_ids\": [0, 7, 1],"
               " \"decoder_attention_mask\": [1, 1, 0]}\n",
               NULL);
}

TEST(a_bad_causal_row_is_an_error_with_its_line)
{
    static const struct {
        const char *row, *message;
    } cases[] = {
        {"{\"labels\": [1]}", "or the text \"text\"; found the keys labels (--text-column"},
        {"{\"input_ids\": [1, 2], \"labels\": [1]}", "labels: expected 2 entries"},
        {"{\"input_ids\": [1, 2], \"labels\": [1, -1]}", "-100 for no loss (entry 1 is -1)"},
        {"{\"input_ids\": [1, 100]}", "input_ids[1]"},
        {"{\"input_ids\": [1], \"labels\": [100]}", "labels[0]"},
        {"{\"input_ids\": [1], \"prompt_length\": 2}", "prompt_length"},
        {"{\"input_ids\": [1], \"prompt_length\": -1}", "prompt_length"},
        {"{\"input_ids\": [1, 2], \"position_ids\": [1, 2]}",
         "of each document (entry 0 does not)"},
        {"{\"input_ids\": [1, 2], \"position_ids\": [0, 2]}",
         "of each document (entry 1 does not)"},
        {"{\"prompt_ids\": [1]}", "completion_ids"},
        {"{\"completion_ids\": [1]}", "prompt_ids"},
        {"{\"prompt_ids\": [], \"completion_ids\": []}", "at least one id"},
        {"{\"prompt_ids\": [1], \"completion_ids\": [100]}", "completion_ids[0]"},
        {"{\"text\": 5}", "text"},
    };
    const fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM, .vocab_size = 100};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        snprintf(text, sizeof text, "{\"input_ids\": [99]}\n%s\n", cases[i].row);
        const char *path = write_text(t, "a.jsonl", text);
        fsdp_dataset *dataset = NULL;
        ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_FORMAT,
                     "a.jsonl: line 2");
        if (!strstr(fsdp_last_error(), cases[i].message))
            FAIL("'%s' lacks '%s'", fsdp_last_error(), cases[i].message);
        ASSERT(dataset == NULL);
    }
    const char *path = write_text(t, "a.jsonl", "{\"text\": \"words\"}\n");
    fsdp_dataset *dataset = NULL;
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_INVALID,
                 "line 1: row: a text needs a tokenizer");
    ASSERT(dataset == NULL);
}

/* --- texts of causal models --- */

static fsdp_tokenizer *open_llama(fsdp_test *t)
{
    fsdp_tokenizer *tokenizer = NULL;
    if (fsdp_tokenizer_open(fsdp_test_path("fixtures/text/llama"), &tokenizer) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return tokenizer;
}

/* The example is bos, the ids of `whole`, and eos; the first `prompt` of them have no loss. */
static void check_text(fsdp_test *t, const fsdp_tokenizer *tokenizer, const fsdp_example *e,
                       const char *whole, size_t prompt)
{
    fsdp_token_list ids = {0};
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, whole, strlen(whole), 0, &ids));
    ASSERT_INT(e->source.len, ids.len + 1);
    ASSERT_INT(e->source.ids[0], 1);
    ASSERT_INT(e->source.ids[e->source.len - 1], 2);
    ASSERT(memcmp(e->source.ids, ids.ids, ids.len * sizeof(int32_t)) == 0);
    ASSERT_INT(e->labels.len, prompt ? e->source.len : 0);
    for (size_t i = 0; i < e->labels.len; i++)
        ASSERT_INT(e->labels.ids[i], i < prompt ? X : e->source.ids[i]);
    fsdp_token_list_fini(&ids);
}

/* "A package" and "A packages": the prompt's last piece may be different in the whole text. */
TEST(texts_get_bos_and_eos_and_prompts_no_loss)
{
    NEEDS_SENTENCEPIECE();
    fsdp_tokenizer *tokenizer = open_llama(t);
    CHECK_HERE();
    const char *path = write_text(t, "a.jsonl",
                                  "{\"text\": \"This package contains files.\"}\n"
                                  "{\"prompt\": \"This is\", \"completion\": \" a package.\"}\n"
                                  "{\"prompt\": \"\", \"completion\": \"files\"}\n");
    const fsdp_dataset_options options = {
        .task = FSDP_TASK_CAUSAL_LM, .tokenizer = tokenizer, .vocab_size = 520};
    fsdp_dataset *dataset;
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    fsdp_example e = {0};
    fsdp_token_list prompt = {0};
    ASSERT_OK(fsdp_dataset_get(dataset, 0, &e));
    check_text(t, tokenizer, &e, "This package contains files.", 0);
    CHECK_HERE();
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, "This is", 7, 0, &prompt));
    ASSERT_OK(fsdp_dataset_get(dataset, 1, &e));
    check_text(t, tokenizer, &e, "This is a package.", prompt.len);
    CHECK_HERE();
    ASSERT_OK(fsdp_dataset_get(dataset, 2, &e));
    check_text(t, tokenizer, &e, "files", 0);
    CHECK_HERE();
    char *source, *target;
    ASSERT_OK(fsdp_dataset_texts(dataset, 1, &source, &target));
    ASSERT_STR(source, "This is");
    ASSERT(strstr(target, "a package."));
    fsdp_text_free(source);
    fsdp_text_free(target);
    ASSERT_OK(fsdp_dataset_texts(dataset, 0, &source, &target));
    ASSERT_STR(source, "");
    ASSERT_STR(target, "This package contains files.");
    fsdp_text_free(source);
    fsdp_text_free(target);
    fsdp_token_list_fini(&prompt);
    fsdp_example_fini(&e);
    fsdp_dataset_close(dataset);
    fsdp_tokenizer_close(tokenizer);
}

/* As datasets reads it: U+0000 is a character of the text. The second row has a key with an escape,
 * so it is parsed as a document. Half of a surrogate pair is refused. */
TEST(texts_may_have_nul_characters)
{
    NEEDS_SENTENCEPIECE();
    static const char text[] = "This\0is a \0package";
    fsdp_tokenizer *tokenizer = open_llama(t);
    fsdp_token_list whole = {0}, cut = {0};
    CHECK_HERE();
    const char *path =
        write_text(t, "a.jsonl",
                   "{\"id\": 1, \"text\": \"This\\u0000is a \\u0000package\"}\n"
                   "{\"i\\u0064\": 2, \"text\": \"This\\u0000is a \\u0000package\"}\n"
                   "{\"prompt\": \"This\\u0000\", \"completion\": \"is a \\u0000package\"}\n");
    const fsdp_dataset_options options = {
        .task = FSDP_TASK_CAUSAL_LM, .tokenizer = tokenizer, .vocab_size = 520};
    fsdp_dataset *dataset;
    fsdp_example e = {0};
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, text, sizeof text - 1, 0, &whole));
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, text, strlen(text), 0, &cut));
    ASSERT(whole.len > cut.len);
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    for (int64_t i = 0; i < 3; i++) {
        ASSERT_OK(fsdp_dataset_get(dataset, i, &e));
        ASSERT_INT(e.source.len, whole.len + 1); /* eos */
        ASSERT(memcmp(e.source.ids, whole.ids, whole.len * sizeof *whole.ids) == 0);
    }
    ASSERT(e.labels.ids[0] == FSDP_IGNORE_INDEX && e.labels.len == e.source.len);
    fsdp_dataset_close(dataset);
    path = write_text(t, "a.jsonl", "{\"text\": \"a\"}\n{\"id\": 1, \"text\": \"b \\ud83d\"}\n");
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_FORMAT,
                 "a.jsonl: row: line 2, column 22: text: \"\\ud83d\" is half of a surrogate pair");
    fsdp_token_list_fini(&whole);
    fsdp_token_list_fini(&cut);
    fsdp_example_fini(&e);
    fsdp_tokenizer_close(tokenizer);
}

TEST(texts_may_have_other_keys_a_prefix_and_a_longest_length)
{
    NEEDS_SENTENCEPIECE();
    fsdp_tokenizer *tokenizer = open_llama(t);
    CHECK_HERE();
    const char *path = write_text(t, "a.jsonl", "{\"q\": \"is\", \"a\": \" a package\"}\n");
    fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM,
                                    .tokenizer = tokenizer,
                                    .source_prefix = "This ",
                                    .source_column = "q",
                                    .target_column = "a"};
    fsdp_dataset *dataset;
    fsdp_example e = {0};
    fsdp_token_list prompt = {0};
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, "This is", 7, 0, &prompt));
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    ASSERT_OK(fsdp_dataset_get(dataset, 0, &e));
    check_text(t, tokenizer, &e, "This is a package", prompt.len);
    CHECK_HERE();
    fsdp_dataset_close(dataset);
    options.max_length = 3;
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    ASSERT_OK(fsdp_dataset_get(dataset, 0, &e));
    ASSERT_INT(e.source.len, 3);
    ASSERT_INT(e.labels.len, 3);
    fsdp_dataset_close(dataset);
    options.source_column = NULL;
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_INVALID,
                 "target column 'a' without a source column");
    options.source_column = "q";
    options.vocab_size = 519;
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_INVALID, "has 520 ids");
    fsdp_token_list_fini(&prompt);
    fsdp_example_fini(&e);
    fsdp_tokenizer_close(tokenizer);
}

/* --- classification --- */

TEST(classified_rows_have_a_class_and_types)
{
    const char *path = write_text(
        t, "a.jsonl",
        "{\"input_ids\": [5, 6, 0], \"attention_mask\": [1, 1, 0], \"token_type_ids\": [0, 1, 0],"
        " \"label\": 2}\n"
        "{\"input_ids\": [7], \"labels\": 0, \"position_ids\": [0]}\n");
    const fsdp_dataset_options options = {
        .task = FSDP_TASK_CLASSIFICATION, .vocab_size = 100, .num_classes = 3};
    fsdp_dataset *dataset;
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    fsdp_example e = {0};
    ASSERT_OK(fsdp_dataset_get(dataset, 0, &e));
    CHECK_LIST(&e.source, 5, 6);
    CHECK_LIST(&e.labels, 2);
    CHECK_LIST(&e.token_type_ids, 0, 1);
    ASSERT_OK(fsdp_dataset_get(dataset, 1, &e));
    CHECK_LIST(&e.labels, 0);
    ASSERT_INT(e.token_type_ids.len, 0);
    ASSERT_INT(e.position_ids.len, 0);
    fsdp_example_fini(&e);
    const int64_t indices[] = {1, 0};
    const fsdp_batch_format format = {.task = FSDP_TASK_CLASSIFICATION};
    fsdp_batch *batch;
    ASSERT_OK(fsdp_collate(dataset, indices, 2, &format, &batch));
    ASSERT_INT(batch->n_labels, 2);
    ASSERT_INT(batch->labels[1], 2);
    ASSERT_INT(batch->token_type_ids[0], 0);
    ASSERT_INT(batch->token_type_ids[2], 1);
    fsdp_batch_release(batch);
    char *text;
    ASSERT_ERROR(fsdp_dataset_texts(dataset, 0, &text, NULL), FSDP_ERR_UNSUPPORTED, "no texts");
    fsdp_dataset_close(dataset);
}

TEST(a_bad_classified_row_is_an_error_with_its_line)
{
    static const struct {
        const char *row, *message;
    } cases[] = {
        {"{\"input_ids\": [1]}", "label"},
        {"{\"input_ids\": [1], \"label\": 3}", "label: expected an integer from 0 to 2"},
        {"{\"input_ids\": [1], \"labels\": -1}", "labels"},
        {"{\"input_ids\": [1], \"label\": \"good\"}", "label"},
        {"{\"input_ids\": [1], \"label\": 1, \"token_type_ids\": [0, 0]}", "token_type_ids"},
        {"{\"input_ids\": [1, 5], \"label\": 1, \"token_type_ids\": [0, 2]}",
         "token_type_ids[1]: expected an integer from 0 to 1"},
        {"{\"input_ids\": [1, 2], \"label\": 1, \"position_ids\": [0, 0]}",
         "from 0 (entry 1 does not)"},
        {"{\"label\": 1}", "input_ids"},
    };
    const fsdp_dataset_options options = {.task = FSDP_TASK_CLASSIFICATION,
                                          .vocab_size = 100,
                                          .type_vocab_size = 2,
                                          .num_classes = 3};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = write_text(t, "a.jsonl", cases[i].row);
        fsdp_dataset *dataset = NULL;
        ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_FORMAT,
                     "a.jsonl: line 1");
        if (!strstr(fsdp_last_error(), cases[i].message))
            FAIL("'%s' lacks '%s'", fsdp_last_error(), cases[i].message);
    }
    const char *path = write_text(t, "a.csv", "text,label\ngood,1\n");
    fsdp_dataset *dataset = NULL;
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_INVALID,
                 "a text needs a tokenizer");
    ASSERT(dataset == NULL);
}

/* A class without a name is given by its number. */
TEST(a_class_may_be_given_by_its_name)
{
    static const char *const names[] = {"no", NULL, "\xC3\xA9t\xC3\xA9"};
    fsdp_dataset_options options = {.task = FSDP_TASK_CLASSIFICATION,
                                    .vocab_size = 100,
                                    .num_classes = 3,
                                    .class_names = names,
                                    .class_hint = "there is no more"};
    const char *path = write_text(t, "a.jsonl",
                                  "{\"input_ids\": [5], \"label\": \"\xC3\xA9t\xC3\xA9\"}\n"
                                  "{\"input_ids\": [5], \"label\": 1}\n"
                                  "{\"input_ids\": [5], \"labels\": \"no\"}\n");
    fsdp_dataset *dataset = NULL;
    fsdp_example e = {0};
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    static const int32_t want[] = {2, 1, 0};
    for (int i = 0; i < 3; i++) {
        ASSERT_OK(fsdp_dataset_get(dataset, i, &e));
        ASSERT_INT(e.labels.ids[0], want[i]);
    }
    fsdp_example_fini(&e);
    fsdp_dataset_close(dataset);
    dataset = NULL;
    path = write_text(t, "a.jsonl", "{\"input_ids\": [5], \"label\": \"No\"}\n");
    ASSERT_ERROR(
        fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_FORMAT,
        "label: expected one of \"no\", \"\xC3\xA9t\xC3\xA9\", or an integer from 0 to 2, found");
    static const char *const unnamed[] = {NULL, NULL, NULL}, *const * none[] = {unnamed, NULL};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        options.class_names = none[i];
        ASSERT_ERROR(
            fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_FORMAT,
            "id2label of the model's config.json gives no names to its classes; there is no more");
    }
    path = write_text(t, "a.jsonl", "{\"input_ids\": [5], \"label\": 3}\n");
    ASSERT_ERROR(
        fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_FORMAT,
        "label: expected an integer from 0 to 2: the model has 3 classes; there is no more");
    ASSERT(dataset == NULL);
}

/* --- anything --- */

/* Lines with random bytes changed, for each task: never a crash, and an error names the file. */
TEST(random_lines_are_rows_or_errors)
{
    static const char *const seeds[] = {
        "{\"input_ids\": [5, 6, 7], \"labels\": [-100, 6, 8], \"attention_mask\": [0, 1, 1]}",
        "{\"input_ids\": [5, 6], \"position_ids\": [0, 1], \"prompt_length\": 1, \"label\": 1}",
        "{\"prompt_ids\": [1, 2], \"completion_ids\": [3], \"token_type_ids\": [0]}",
    };
    static const char bytes[] = "0123456789-.,:[]{}\"\\eE nulltrue\n\xff\x01";
    uint32_t state = 1;
    int rows = 0;
    for (int i = 0; i < 900; i++) {
        char text[200];
        snprintf(text, sizeof text, "%s", seeds[i % 3]);
        for (int change = i % 7; change >= 0; change--) {
            state = state * 1664525 + 1013904223;
            text[(state >> 8) % strlen(seeds[i % 3])] = bytes[(state >> 20) % (sizeof bytes - 1)];
        }
        const char *path = write_text(t, "a.jsonl", text);
        const fsdp_dataset_options options = {
            .task = (fsdp_task)(i / 3 % 3), .vocab_size = 100, .num_classes = 3, .max_length = 2};
        fsdp_dataset *dataset = NULL;
        if (fsdp_dataset_open(path, &options, &dataset) != FSDP_OK) {
            ASSERT(strstr(fsdp_last_error(), "a.jsonl"));
            continue;
        }
        fsdp_example e = {0};
        ASSERT_OK(fsdp_dataset_get(dataset, 0, &e));
        fsdp_example_fini(&e);
        fsdp_dataset_close(dataset);
        rows++;
    }
    ASSERT(rows > 10 && rows < 600);
}
