/* Ready-made ids in JSON lines. */
#include <fsdp/data.h>

#include <stdio.h>
#include <string.h>

#include "src/base/io.h"
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
        {"{\"labels\": [1]}", "line 3: row: input_ids"},
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
