/* What a run of `fsdp tokenize` that goes on compares with the run that was interrupted. */
#include "src/base/alloc.h"
#include "tests/tokenize/runs.h"

/* Begin a run that is interrupted before it writes a row. */
static void interrupt(fsdp_test *t, fsdp_tokenize_config *config)
{
    static const atomic_bool interrupted = true;
    config->interrupted = &interrupted;
    ASSERT_ERROR(run(config), FSDP_ERR_STATE, "interrupted after 0 rows");
    config->interrupted = NULL;
    config->resume = true;
}

/* --resume takes the place of --overwrite, which the interrupted run had. */
TEST(a_run_that_overwrites_goes_on)
{
    static const char index[] = "of another file";
    put(t, "a.txt", "hello world\n");
    put(t, "a.bin", "old");
    put(t, "a.idx", index);
    fsdp_tokenize_config config = config_of(t, "a.txt", "a.bin");
    config.overwrite = true;
    interrupt(t, &config);
    CHECK_HERE();
    config.overwrite = false;
    ASSERT_OK(run(&config));
    ASSERT(!fsdp_path_exists(in_dir(t, "a.idx")));
    config.output = in_dir(t, "b.bin");
    config.resume = false;
    interrupt(t, &config);
    CHECK_HERE();
    put(t, "b.bin", "of another run");
    ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "b.bin: exists; --overwrite replaces it");
    ASSERT(fsdp_path_exists(in_dir(t, "b.bin.partial/journal.json")));
}

static const char classes[] =
    "{\"text\": \"hello\", \"label\": 0}\n{\"text\": \"a\", \"label\": 1}\n";

/* Rows of classes are read through a dataset, which opens a folder or a pattern as a whole. */
TEST(a_file_of_a_folder_or_a_pattern_may_not_change)
{
    NEEDS_FLATBUFFERS();
    static const char *const data[] = {"parts", "parts/*.jsonl"};
    ASSERT_OK(fsdp_directory_make(in_dir(t, "parts")));
    put(t, "parts/b.jsonl", classes);
    for (int i = 0; i < 2; i++) {
        put(t, "parts/a.jsonl", classes);
        fsdp_tokenize_config config = config_of(t, data[i], i ? "pattern" : "folder");
        config.task = FSDP_TASK_CLASSIFICATION;
        interrupt(t, &config);
        CHECK_HERE();
        put(t, "parts/a.jsonl", "{\"text\": \"other\", \"label\": 0}\n");
        ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "the interrupted run had another data");
        put(t, "parts/c.jsonl", classes);
        config.resume = false;
        config.overwrite = true;
        ASSERT_OK(run(&config));
        ASSERT_OK(fsdp_tree_remove(in_dir(t, "parts/c.jsonl")));
    }
}

/* --chat-template may be a file, and the folder of the tokenizer may have several templates. */
TEST(the_chat_template_may_not_change)
{
    static const char text[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    static const char other[] = "{% for m in messages %}{{ m.role }}{% endfor %}";
    static const char *const files[] = {"named.jinja", "own/additional_chat_templates/short.jinja"};
    put(t, "rows.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
    ASSERT_OK(fsdp_directory_make(in_dir(t, "own/additional_chat_templates")));
    ASSERT_OK(fsdp_file_copy(fsdp_test_path("fixtures/chat/tokenizer.json"),
                             in_dir(t, "own/tokenizer.json")));
    for (int i = 0; i < 2; i++) {
        put(t, files[i], text);
        fsdp_tokenize_config config = config_of(t, "rows.jsonl", i ? "b.bin" : "a.bin");
        config.tokenizer = in_dir(t, "own");
        config.chat.chat_template = i ? "short" : in_dir(t, files[i]);
        interrupt(t, &config);
        CHECK_HERE();
        put(t, files[i], other);
        ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "another checksum of the chat template");
        put(t, files[i], text);
        ASSERT_OK(run(&config));
    }
}

/* What a file cannot have is known before its first row: nothing is done, and a run that was
 * interrupted before keeps what it has written. */
TEST(options_for_other_files_are_refused_at_once)
{
    put(t, "a.txt", "hello world\n");
    fsdp_tokenize_config config = config_of(t, "a.txt", "a.bin");
    interrupt(t, &config);
    CHECK_HERE();
    fsdp_tokenize_config other = config;
    other.chat.assistant_only_loss = other.chat.asked_for.assistant_only_loss = true;
    ASSERT_ERROR(run(&other), FSDP_ERR_INVALID, "--assistant-only-loss is for rows that are");
    other = config;
    other.form.delimiter = ";";
    other.form.asked_for.delimiter = true;
    ASSERT_ERROR(run(&other), FSDP_ERR_INVALID, "--delimiter is for CSV");
    ASSERT_OK(run(&config));
}

/* Whether rows are texts or conversations is known after the last one. What was written is right
 * for a run without the option. */
TEST(an_option_without_an_effect_does_not_cost_the_rows)
{
    put(t, "a.jsonl", "{\"input_ids\": [5, 6]}\n{\"input_ids\": [7]}\n");
    fsdp_tokenize_config config = config_of(t, "a.jsonl", "a.bin"), other = config;
    other.text_column = "body";
    other.asked_for.text_column = true;
    ASSERT_ERROR(run(&other), FSDP_ERR_INVALID, "--text-column is for rows that are texts; ");
    ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "--resume goes on with it");
    other.resume = config.resume = true;
    ASSERT_ERROR(run(&other), FSDP_ERR_INVALID, "(the rows are kept: without the option, --resume");
    other = config;
    other.max_samples = 1;
    ASSERT_ERROR(run(&other), FSDP_ERR_INVALID, "another --max-samples");
    ASSERT_OK(run(&config));
    config.resume = false;
    config.output = in_dir(t, "b.bin");
    ASSERT_OK(run(&config));
    check_same_file(t, "a.bin", "b.bin");
    ASSERT(!fsdp_path_exists(in_dir(t, "a.bin.partial")));
}

/* The notes about texts are those of the whole run. A journal without them is of an older version.
 */
TEST(a_journal_keeps_the_unknown_characters)
{
    fsdp_json *settings;
    fsdp_tokenize_state read = {0};
    const fsdp_tokenize_state state = {.unknown_rows = 3,
                                       .unknown = "row 2 of a.csv",
                                       .unknown_examples = {.items = {"'\u00f8'", "U+200B"}}};
    const char *path = in_dir(t, "journal.json");
    ASSERT_OK(fsdp_json_create("settings", &settings));
    ASSERT_OK(fsdp_journal_write(path, fsdp_json_root(settings), &state));
    ASSERT_OK(fsdp_journal_read(path, fsdp_json_root(settings), &read));
    ASSERT_INT(read.unknown_rows, 3);
    ASSERT_STR(read.unknown, "row 2 of a.csv");
    ASSERT_STR(read.unknown_examples.items[0], "'\u00f8'");
    ASSERT_STR(read.unknown_examples.items[1], "U+200B");
    ASSERT_STR(read.unknown_examples.items[2], "");
    fsdp_json_destroy(settings);
}
