/* Conversations as rows for causal models. The ids and the assistant's masks in
 * tests/fixtures/chat/expected.jsonl are those of apply_chat_template() of transformers with the
 * tokenizer.json there (tests/text/chat/test_chat.c says how they were made). */
#include <fsdp/data.h>

#include <stdio.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/data/datasets/dataset.h"
#include "src/data/rows/rows_form.h"
#include "tests/test.h"

/* What a test needs to open rows. */
typedef struct setup {
    fsdp_tokenizer *tokenizer;
    fsdp_chat_template *chat;
    fsdp_dataset_options options;
    char rows[600]; /* path of the file of rows */
} setup;

static void begin(fsdp_test *t, const char *name, setup *s)
{
    char folder[600], path[700];
    *s = (setup){.options.task = FSDP_TASK_CAUSAL_LM};
    snprintf(folder, sizeof folder, "%s", fsdp_test_path("fixtures/chat"));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(s->rows, sizeof s->rows, "%s/rows.jsonl", fsdp_test_dir(t));
    ASSERT_OK(fsdp_tokenizer_open(folder, &s->tokenizer));
    ASSERT_OK(fsdp_chat_template_open(folder, fsdp_path_is_file(path) ? path : name, &s->chat));
    s->options.tokenizer = s->tokenizer;
    s->options.chat.chat_template = s->chat;
}

static void end(setup *s)
{
    fsdp_chat_template_close(s->chat);
    fsdp_tokenizer_close(s->tokenizer);
}

static void put_row(fsdp_test *t, const setup *s, const char *row)
{
    ASSERT_OK(fsdp_file_write(s->rows, row, strlen(row)));
}

/* ---- the ids and masks of transformers ---- */

static void check_case(fsdp_test *t, const setup *s, fsdp_json_node row)
{
    int64_t *ids, *mask;
    size_t n, n_mask;
    fsdp_dataset *set;
    fsdp_example example = {0};
    ASSERT_OK(fsdp_json_get_i64s(row, "ids", 0, INT32_MAX, &ids, &n));
    ASSERT_OK(fsdp_json_get_i64s(row, "mask", 0, 1, &mask, &n_mask));
    ASSERT_OK(fsdp_dataset_open(s->rows, &s->options, &set));
    ASSERT_OK(fsdp_dataset_get(set, 0, &example));
    ASSERT_INT(example.source.len, n);
    ASSERT_INT(example.labels.len, n);
    for (size_t i = 0; i < n; i++) {
        ASSERT_INT(example.source.ids[i], ids[i]);
        ASSERT_INT(example.labels.ids[i], mask[i] ? ids[i] : FSDP_IGNORE_INDEX);
    }
    ASSERT(fsdp_dataset_uses(set) & FSDP_USES_CHAT);
    fsdp_example_fini(&example);
    fsdp_dataset_close(set);
    fsdp_free(ids);
    fsdp_free(mask);
}

TEST(the_assistants_mask_is_that_of_transformers)
{
    setup s;
    char *lines, path[600];
    size_t bytes;
    int n = 0;
    begin(t, "tool_types.jinja", &s);
    CHECK_HERE();
    s.options.chat.assistant_only_loss = true;
    snprintf(path, sizeof path, "%s/expected.jsonl", fsdp_test_path("fixtures/chat"));
    ASSERT_OK(fsdp_file_read(path, 1 << 20, &lines, &bytes));
    for (char *line = lines, *stop; (stop = strchr(line, '\n')); line = stop + 1) {
        fsdp_json *doc;
        *stop = 0;
        ASSERT_OK(fsdp_json_parse(path, 1, line, (size_t)(stop - line), &doc));
        const fsdp_json_node row = fsdp_json_root(doc);
        bool prompt;
        ASSERT_OK(fsdp_json_get_bool(row, "generation_prompt", &prompt));
        const fsdp_json_node spans = fsdp_json_find(row, "spans");
        if (fsdp_json_has(row, "ids") && !prompt && fsdp_json_len(spans)) {
            put_row(t, &s, line);
            CHECK_HERE();
            check_case(t, &s, row);
            CHECK_HERE();
            n++;
        }
        fsdp_json_destroy(doc);
    }
    fsdp_free(lines);
    end(&s);
    ASSERT(n >= 2);
}

/* ---- what has a loss ---- */

static const char conversation[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
    "\"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", "
    "\"content\": \"d\"}]}\n";
static const char parts[] =
    "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
    "\"content\": "
    "\"b\"}, {\"role\": \"user\", \"content\": \"c\"}], \"completion\": [{\"role\": \"assistant\", "
    "\"content\": \"d\"}, {\"role\": \"user\", \"content\": \"e\"}, {\"role\": \"assistant\", "
    "\"content\": \"f\"}]}\n";

/* Check the text of the tokens that have a loss; `wanted` is NULL if labels are to be empty. */
static void check_loss(fsdp_test *t, const setup *s, const char *wanted)
{
    fsdp_dataset *set;
    fsdp_example example = {0};
    char *text;
    ASSERT_OK(fsdp_dataset_open(s->rows, &s->options, &set));
    ASSERT_OK(fsdp_dataset_get(set, 0, &example));
    ASSERT(example.source.len > 0);
    ASSERT_INT(example.labels.len, wanted ? example.source.len : 0);
    size_t n = 0;
    for (size_t i = 0; i < example.labels.len; i++)
        if (example.labels.ids[i] != FSDP_IGNORE_INDEX)
            example.labels.ids[n++] = example.labels.ids[i];
    ASSERT_OK(fsdp_tokenizer_decode(s->tokenizer, example.labels.ids, n, 0, &text));
    ASSERT_STR(text, wanted ? wanted : "");
    fsdp_text_free(text);
    fsdp_example_fini(&example);
    fsdp_dataset_close(set);
}

/* Check that both files give the same ids. */
static void check_same_ids(fsdp_test *t, setup *s, const char *one, const char *other)
{
    fsdp_dataset *set;
    fsdp_example a = {0}, b = {0};
    put_row(t, s, one);
    ASSERT_OK(fsdp_dataset_open(s->rows, &s->options, &set));
    ASSERT_OK(fsdp_dataset_get(set, 0, &a));
    fsdp_dataset_close(set);
    put_row(t, s, other);
    ASSERT_OK(fsdp_dataset_open(s->rows, &s->options, &set));
    ASSERT_OK(fsdp_dataset_get(set, 0, &b));
    ASSERT(!fsdp_dataset_note(set));
    fsdp_dataset_close(set);
    ASSERT_INT(a.source.len, b.source.len);
    for (size_t i = 0; i < a.source.len; i++)
        ASSERT_INT(a.source.ids[i], b.source.ids[i]);
    fsdp_example_fini(&a);
    fsdp_example_fini(&b);
}

static void check_choice(fsdp_test *t, setup *s, bool assistant, fsdp_completion_loss completion,
                         const char *wanted)
{
    s->options.chat.assistant_only_loss = assistant;
    s->options.chat.completion_loss = completion;
    check_loss(t, s, wanted);
}

TEST(the_loss_is_on_what_was_asked_for)
{
    setup s;
    begin(t, "llama3", &s);
    CHECK_HERE();
    put_row(t, &s, conversation);
    check_choice(t, &s, false, FSDP_COMPLETION_LOSS_DEFAULT, NULL);
    check_choice(t, &s, false, FSDP_COMPLETION_LOSS_ALL, NULL);
    check_choice(t, &s, true, FSDP_COMPLETION_LOSS_DEFAULT, "b<|eot_id|>d<|eot_id|>");
    check_choice(t, &s, false, FSDP_COMPLETION_LOSS_ONLY, "d<|eot_id|>");
    check_choice(t, &s, true, FSDP_COMPLETION_LOSS_ONLY, "d<|eot_id|>");
    CHECK_HERE();
    put_row(t, &s, parts);
    check_choice(t, &s, false, FSDP_COMPLETION_LOSS_ALL, NULL);
    check_choice(t, &s, false, FSDP_COMPLETION_LOSS_DEFAULT,
                 "d<|eot_id|><|start_header_id|>user<|end_header_id|>\n\ne<|eot_id|>"
                 "<|start_header_id|>assistant<|end_header_id|>\n\nf<|eot_id|>");
    check_choice(t, &s, true, FSDP_COMPLETION_LOSS_DEFAULT, "d<|eot_id|>f<|eot_id|>");
    check_choice(t, &s, true, FSDP_COMPLETION_LOSS_ALL, "b<|eot_id|>d<|eot_id|>f<|eot_id|>");
    CHECK_HERE();
    put_row(t, &s, "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
    check_choice(t, &s, false, FSDP_COMPLETION_LOSS_ALL, NULL);
    check_choice(t, &s, false, FSDP_COMPLETION_LOSS_DEFAULT, "b</s>");
    end(&s);
}

TEST(conversations_of_sharegpt_are_messages)
{
    setup s;
    fsdp_dataset *set = NULL;
    begin(t, "chatml", &s);
    CHECK_HERE();
    check_same_ids(
        t, &s,
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
        "\"value\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}], \"system\": \"s\"}\n",
        "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
        "\"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}, {\"role\": "
        "\"user\", \"content\": \"c\"}]}\n");
    CHECK_HERE();
    put_row(t, &s,
            "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
            "\"value\": \"b\"}]}\n");
    check_choice(t, &s, true, FSDP_COMPLETION_LOSS_DEFAULT, "b<|im_end|>\n");
    CHECK_HERE();
    put_row(t, &s, "{\"conversations\": [{\"value\": \"a\"}]}\n");
    ASSERT_ERROR(fsdp_dataset_open(s.rows, &s.options, &set), FSDP_ERR_FORMAT,
                 "line 1: row: conversations[0].role: missing");
    end(&s);
}

/* The text that the template writes is not given special tokens again, and is cut at max_length. */
TEST(a_conversation_is_tokenized_as_it_is_written)
{
    setup s;
    fsdp_dataset *set;
    fsdp_example example = {0};
    char *text;
    begin(t, "mistral", &s);
    CHECK_HERE();
    put_row(t, &s, conversation);
    ASSERT_OK(fsdp_dataset_open(s.rows, &s.options, &set));
    ASSERT_OK(fsdp_dataset_get(set, 0, &example));
    ASSERT_OK(fsdp_tokenizer_decode(s.tokenizer, example.source.ids, example.source.len, 0, &text));
    ASSERT_STR(text, "<s>[INST] a[/INST] b</s>[INST] c[/INST] d</s>");
    fsdp_text_free(text);
    fsdp_dataset_close(set);
    s.options.max_length = 5;
    s.options.chat.assistant_only_loss = true;
    ASSERT_OK(fsdp_dataset_open(s.rows, &s.options, &set));
    fsdp_example_fini(&example);
    ASSERT_OK(fsdp_dataset_get(set, 0, &example));
    ASSERT_INT(example.source.len, 5);
    ASSERT_INT(example.labels.len, 5);
    fsdp_example_fini(&example);
    fsdp_dataset_close(set);
    end(&s);
}

TEST(errors_of_conversations_name_the_line)
{
    setup s;
    fsdp_dataset *set = NULL;
    begin(t, "chatml", &s);
    CHECK_HERE();
    put_row(t, &s, "\n{\"messages\": [{\"role\": \"user\"}, 5]}\n");
    ASSERT_ERROR(fsdp_dataset_open(s.rows, &s.options, &set), FSDP_ERR_FORMAT,
                 "rows.jsonl: line 2: chat template chatml: row: messages[1]: expected an object");
    s.options.chat.assistant_only_loss = true;
    put_row(t, &s, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
    ASSERT_ERROR(fsdp_dataset_open(s.rows, &s.options, &set), FSDP_ERR_FORMAT,
                 "line 1: nothing in this row has a loss");
    s.options.chat.chat_template = NULL;
    s.options.chat.why_no_template = "because";
    ASSERT_ERROR(fsdp_dataset_open(s.rows, &s.options, &set), FSDP_ERR_INVALID,
                 "line 1: a conversation needs a chat template (because)");
    s.options.tokenizer = NULL;
    ASSERT_ERROR(fsdp_dataset_open(s.rows, &s.options, &set), FSDP_ERR_INVALID,
                 "a conversation needs a tokenizer");
    ASSERT(set == NULL);
    end(&s);
}

TEST(no_memory_leaks_when_an_allocation_fails)
{
    setup s;
    fsdp_status status = FSDP_ERR_NOMEM;
    begin(t, "zephyr", &s);
    CHECK_HERE();
    put_row(t, &s, parts);
    s.options.chat.assistant_only_loss = true;
    for (long n = 1; status == FSDP_ERR_NOMEM; n++) {
        fsdp_dataset *set = NULL;
        fsdp_alloc_fail_at(n);
        status = fsdp_dataset_open(s.rows, &s.options, &set);
        fsdp_alloc_fail_at(0);
        fsdp_dataset_close(set);
        ASSERT(n < 100000);
    }
    ASSERT_OK(status);
    end(&s);
}
