/* Runs of `fsdp tokenize`: what they write is what 'fsdp train' makes of the same texts, for any
 * number of threads, and whatever interrupts them. The ids in `first_ids` are those of the
 * tokenizers library for fixtures/chat/tokenizer.json. */
#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/data/arrow/table.h"
#include "tests/tokenize/runs.h"

/* ---- token files ---- */

static const uint16_t first_ids[] = {323, 79,  82,  224, 90,  82,  85,  79, 71,
                                     202, 278, 224, 51,  317, 305, 2,   58, 75,
                                     68,  87,  224, 305, 224, 131, 106, 34, 2};

TEST(documents_are_separated_by_eos)
{
    fsdp_mapping file;
    put(t, "a.txt", "hello world\nin Paris\n\n \nWhat is \u00e9?\r\n");
    const fsdp_tokenize_config config = config_of(t, "a.txt", "a.bin");
    ASSERT_OK(run(&config));
    ASSERT_OK(fsdp_file_map(config.output, &file));
    ASSERT_INT(file.bytes, sizeof first_ids);
    ASSERT(memcmp(file.data, first_ids, sizeof first_ids) == 0);
    fsdp_file_unmap(&file);
    ASSERT(!fsdp_path_exists(in_dir(t, "a.bin.partial")));
}

TEST(eos_is_left_out_on_request)
{
    fsdp_mapping with, without;
    put(t, "a.txt", "hello\n\nworld\n\na\n");
    fsdp_tokenize_config config = config_of(t, "a.txt", "a.bin");
    ASSERT_OK(run(&config));
    config.output = in_dir(t, "b.bin");
    config.append_eos = false;
    ASSERT_OK(run(&config));
    ASSERT_OK(fsdp_file_map(in_dir(t, "a.bin"), &with));
    ASSERT_OK(fsdp_file_map(in_dir(t, "b.bin"), &without));
    ASSERT_INT(with.bytes, without.bytes + 3 * 2);
    fsdp_file_unmap(&with);
    fsdp_file_unmap(&without);
}

TEST(threads_do_not_change_the_output)
{
    put_corpus(t, "a.txt", UNDER_SANITIZER ? 3 << 20 : 5 << 20);
    CHECK_HERE();
    fsdp_tokenize_config config = config_of(t, "a.txt", "1.bin");
    ASSERT_OK(run(&config));
    config.threads = 4;
    config.output = in_dir(t, "4.bin");
    ASSERT_OK(run(&config));
    check_same_file(t, "1.bin", "4.bin");
}

/* Read the tokens of a file as 'fsdp train' does, without its last ones, and compare them with
 * those of plain text. */
static void check_tokens(fsdp_test *t, const char *name, fsdp_token_dtype dtype,
                         fsdp_dataset *plain)
{
    const fsdp_dataset_options options = {
        .task = FSDP_TASK_CAUSAL_LM, .max_length = 50, .token_dtype = dtype};
    fsdp_dataset *set;
    fsdp_example a = {0}, b = {0};
    ASSERT_OK(fsdp_dataset_open(in_dir(t, name), &options, &set));
    ASSERT_INT(fsdp_dataset_len(set), fsdp_dataset_len(plain));
    for (int64_t i = 0; i < fsdp_dataset_len(set); i++) {
        ASSERT_OK(fsdp_dataset_get(set, i, &a));
        ASSERT_OK(fsdp_dataset_get(plain, i, &b));
        ASSERT_INT(a.source.len, 50);
        ASSERT(memcmp(a.source.ids, b.source.ids, 50 * sizeof(int32_t)) == 0);
    }
    fsdp_example_fini(&a);
    fsdp_example_fini(&b);
    fsdp_dataset_close(set);
}

TEST(train_reads_each_format_as_it_reads_the_text)
{
    static const struct {
        const char *name;
        fsdp_tokenize_format format;
        fsdp_token_dtype dtype;
    } kinds[] = {{"n2.bin", FSDP_TOKENIZE_AUTO, FSDP_TOKENS_DEFAULT},
                 {"n4.bin", FSDP_TOKENIZE_NANOGPT, FSDP_TOKENS_I32},
                 {"n8.bin", FSDP_TOKENIZE_NANOGPT, FSDP_TOKENS_I64},
                 {"c2.bin", FSDP_TOKENIZE_LLMC, FSDP_TOKENS_U16},
                 {"c4.bin", FSDP_TOKENIZE_LLMC, FSDP_TOKENS_I32},
                 {"m2.bin", FSDP_TOKENIZE_MEGATRON, FSDP_TOKENS_DEFAULT},
                 {"m4.bin", FSDP_TOKENIZE_MEGATRON, FSDP_TOKENS_I32}};
    fsdp_tokenizer *tokenizer;
    fsdp_dataset *plain;
    put_corpus(t, "a.txt", 100000);
    CHECK_HERE();
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("fixtures/chat"), &tokenizer));
    const fsdp_dataset_options options = {
        .task = FSDP_TASK_CAUSAL_LM, .tokenizer = tokenizer, .max_length = 50};
    ASSERT_OK(fsdp_dataset_open(in_dir(t, "a.txt"), &options, &plain));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        fsdp_tokenize_config config = config_of(t, "a.txt", kinds[i].name);
        config.format = kinds[i].format;
        config.form.token_dtype = kinds[i].dtype;
        ASSERT_OK(run(&config));
        const bool raw = kinds[i].format < FSDP_TOKENIZE_LLMC;
        check_tokens(t, kinds[i].name, raw ? kinds[i].dtype : FSDP_TOKENS_DEFAULT, plain);
        CHECK_HERE();
    }
    ASSERT(fsdp_path_is_file(in_dir(t, "m2.idx")));
    fsdp_dataset_close(plain);
    fsdp_tokenizer_close(tokenizer);
}

/* Train reads a .bin file by the index next to it, whatever wrote the two. */
TEST(an_overwritten_file_has_no_index_of_another_one)
{
    fsdp_dataset *set;
    const fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM, .max_length = 3};
    put(t, "a.txt", "hello world in Paris\n\nWhat is hello world in Paris\n");
    put(t, "b.txt", "hello world\n");
    static const fsdp_tokenize_format formats[] = {FSDP_TOKENIZE_NANOGPT, FSDP_TOKENIZE_LLMC};
    for (int i = 0; i < 2; i++) {
        fsdp_tokenize_config config = config_of(t, "a.txt", "a.bin");
        config.format = FSDP_TOKENIZE_MEGATRON;
        ASSERT_OK(run(&config));
        ASSERT(fsdp_path_is_file(in_dir(t, "a.idx")));
        config.data = in_dir(t, "b.txt");
        config.format = formats[i];
        config.overwrite = true;
        ASSERT_OK(run(&config));
        ASSERT(!fsdp_path_exists(in_dir(t, "a.idx")));
        ASSERT_OK(fsdp_dataset_open(config.output, &options, &set));
        fsdp_dataset_close(set);
        ASSERT_OK(fsdp_tree_remove(config.output));
    }
    put(t, "a.idx", "somebody's");
    fsdp_tokenize_config config = config_of(t, "a.txt", "a.bin");
    ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "a.idx: exists, and would be taken for the index");
    config.format = FSDP_TOKENIZE_MEGATRON;
    ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "--overwrite replaces it");
    config.overwrite = true;
    ASSERT_OK(run(&config));
    ASSERT_OK(fsdp_dataset_open(config.output, &options, &set));
    fsdp_dataset_close(set);
}

/* ---- Arrow ---- */

static const char mixed_rows[] =
    "{\"prompt\": \"What is \", \"completion\": \"in Paris?\", \"url\": 1}\n"
    "{\"text\": \"hello world\"}\n"
    "{\"input_ids\": [5, 6, 7], \"labels\": [-100, 6, 7]}\n"
    "{\"prompt_ids\": [8, 9], \"completion_ids\": [10]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
    "\"content\": \"hello\"}]}\n";

TEST(arrow_rows_are_those_that_train_makes_of_the_texts)
{
    NEEDS_FLATBUFFERS();
    char *lines;
    fsdp_tokenizer *tokenizer;
    fsdp_chat_template *chat;
    put(t, "rows.jsonl", mixed_rows);
    fsdp_tokenize_config config = config_of(t, "rows.jsonl", "rows");
    config.chat.chat_template = "chatml";
    config.chat.assistant_only_loss = config.chat.asked_for.assistant_only_loss = true;
    config.max_seq_length = 12;
    config.asked_for.max_seq_length = true;
    ASSERT_OK(run_printing(&config, &lines));
    ASSERT(strstr(lines, "not used: 'url' (line 1)"));
    ASSERT(strstr(lines, "1 of 5 rows are cut, by 2 tokens"));
    free(lines);
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("fixtures/chat"), &tokenizer));
    ASSERT_OK(fsdp_chat_template_open(NULL, "chatml", &chat));
    const fsdp_dataset_options options = {
        .task = FSDP_TASK_CAUSAL_LM,
        .tokenizer = tokenizer,
        .max_length = 12,
        .chat = {.chat_template = chat, .assistant_only_loss = true}};
    check_rows(t, "rows.jsonl", "rows", &options);
    fsdp_chat_template_close(chat);
    fsdp_tokenizer_close(tokenizer);
}

TEST(rows_without_tokens_are_kept_and_counted)
{
    NEEDS_FLATBUFFERS();
    char *lines;
    put(t, "rows.jsonl", "{\"text\": \"\"}\n{\"text\": \"a\"}\n");
    fsdp_tokenize_config config = config_of(t, "rows.jsonl", "rows");
    config.append_eos = false;
    ASSERT_OK(run_printing(&config, &lines));
    ASSERT(strstr(lines, "1 rows have no tokens"));
    ASSERT(strstr(lines, "Arrow, 2 rows"));
    free(lines);
}

/* The separators between the texts are no bytes of the texts. */
TEST(bytes_of_a_token_are_those_of_the_texts)
{
    static const char *const names[] = {"a.csv", "a.txt"};
    put(t, "a.csv", "text\nhello world\na\na\na\na\n");
    put(t, "a.txt", "hello world\na\na\na\na\n");
    CHECK_HERE();
    for (int i = 0; i < 2; i++) {
        char *lines;
        int records = 0, tokens = 0;
        double ratio = 0;
        fsdp_tokenize_config config = config_of(t, names[i], i ? "txt.bin" : "csv.bin");
        config.form.documents = FSDP_DOCUMENTS_LINE;
        ASSERT_OK(run_printing(&config, &lines));
        const char *at = strstr(lines, ": 5 ");
        ASSERT(at);
        ASSERT_INT(
            sscanf(at, ": %d %*[a-z], %d tokens, %lf bytes a token", &records, &tokens, &ratio), 3);
        ASSERT_NEAR(ratio, 15.0 / tokens, 0.006);
        free(lines);
    }
}

TEST(pairs_of_csv_become_sources_and_labels)
{
    NEEDS_FLATBUFFERS();
    NEEDS_LIBCSV();
    char *lines;
    fsdp_tokenizer *tokenizer;
    put(t, "rows.csv", "text,headline,when\n\"hello,\nworld in Paris\",What is,1\na,b c,2\n");
    fsdp_tokenize_config config = config_of(t, "rows.csv", "rows");
    config.task = FSDP_TASK_SEQ2SEQ;
    config.task_prefix = "in ";
    config.max_source_length = 6;
    config.given.max_source_length = true;
    ASSERT_OK(run_printing(&config, &lines));
    ASSERT(strstr(lines, "not used: 'when'"));
    ASSERT(strstr(lines, "1 of 2 rows are cut"));
    free(lines);
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("fixtures/chat"), &tokenizer));
    const fsdp_dataset_options options = {.task = FSDP_TASK_SEQ2SEQ,
                                          .tokenizer = tokenizer,
                                          .source_prefix = "in ",
                                          .max_source_length = 6};
    check_rows(t, "rows.csv", "rows", &options);
    fsdp_tokenizer_close(tokenizer);
}

TEST(classes_keep_their_names)
{
    NEEDS_FLATBUFFERS();
    NEEDS_LIBCSV();
    fsdp_arrow_table *table;
    fsdp_json *row;
    int64_t label;
    const char *name;
    put(t, "rows.csv", "text,label\nhello,no\nworld,yes\na,no\n");
    fsdp_tokenize_config config = config_of(t, "rows.csv", "rows");
    config.task = FSDP_TASK_CLASSIFICATION;
    ASSERT_OK(run(&config));
    ASSERT_OK(fsdp_arrow_table_open(config.output, FSDP_ARROW_SPLIT_TRAIN, &table));
    ASSERT_OK(fsdp_arrow_table_row(table, 1, &row));
    ASSERT_OK(fsdp_json_get_i64(fsdp_json_root(row), "labels", 0, 9, &label));
    ASSERT_INT(label, 1);
    fsdp_json_destroy(row);
    const fsdp_json_node names = fsdp_arrow_table_class_names(table, "labels");
    ASSERT_INT(fsdp_json_len(names), 2);
    ASSERT_OK(fsdp_json_get_str(fsdp_json_at(names, 1), NULL, &name));
    ASSERT_STR(name, "yes");
    fsdp_arrow_table_close(table);
}

/* All tokens are in blocks, in order, but those at the end that do not fill one. */
TEST(blocks_are_the_stream_cut_into_rows)
{
    NEEDS_FLATBUFFERS();
    fsdp_mapping stream;
    fsdp_dataset *blocks;
    fsdp_example e = {0};
    char *lines, expected[80];
    put_corpus(t, "a.txt", 20000);
    CHECK_HERE();
    fsdp_tokenize_config config = config_of(t, "a.txt", "a.bin");
    ASSERT_OK(run(&config));
    config.output = in_dir(t, "blocks");
    config.block_size = 33;
    ASSERT_OK(run_printing(&config, &lines));
    ASSERT_OK(fsdp_file_map(in_dir(t, "a.bin"), &stream));
    const int64_t tokens = (int64_t)stream.bytes / 2;
    snprintf(expected, sizeof expected, "%d tokens at the end do not fill a row of 33",
             (int)(tokens % 33));
    ASSERT(tokens % 33 > 0 && strstr(lines, expected));
    free(lines);
    const fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM};
    ASSERT_OK(fsdp_dataset_open(config.output, &options, &blocks));
    ASSERT_INT(fsdp_dataset_len(blocks), tokens / 33);
    for (int64_t i = 0; i < tokens / 33 * 33; i++) {
        if (i % 33 == 0)
            ASSERT_OK(fsdp_dataset_get(blocks, i / 33, &e));
        ASSERT_INT(e.source.ids[i % 33], stream.data[2 * i] | stream.data[2 * i + 1] << 8);
        ASSERT_INT(e.labels.ids[i % 33], e.source.ids[i % 33]);
    }
    fsdp_example_fini(&e);
    fsdp_dataset_close(blocks);
    fsdp_file_unmap(&stream);
}

TEST(a_fraction_of_the_rows_is_for_validation)
{
    fsdp_mapping whole, train, val, again;
    put_corpus(t, "a.txt", 300000);
    CHECK_HERE();
    fsdp_tokenize_config config = config_of(t, "a.txt", "a.bin");
    ASSERT_OK(run(&config));
    config.output = in_dir(t, "parts");
    config.format = FSDP_TOKENIZE_NANOGPT;
    config.validation_fraction = 0.25;
    ASSERT_OK(run(&config));
    config.threads = 3;
    config.output = in_dir(t, "again");
    ASSERT_OK(run(&config));
    check_same_file(t, "parts/val.bin", "again/val.bin");
    CHECK_HERE();
    config.output = in_dir(t, "other");
    config.seed = 2;
    ASSERT_OK(run(&config));
    ASSERT_OK(fsdp_file_map(in_dir(t, "a.bin"), &whole));
    ASSERT_OK(fsdp_file_map(in_dir(t, "parts/train.bin"), &train));
    ASSERT_OK(fsdp_file_map(in_dir(t, "parts/val.bin"), &val));
    ASSERT_OK(fsdp_file_map(in_dir(t, "other/val.bin"), &again));
    ASSERT_INT(train.bytes + val.bytes, whole.bytes);
    ASSERT(val.bytes > whole.bytes / 8 && val.bytes < whole.bytes * 3 / 8);
    ASSERT(val.bytes != again.bytes || memcmp(val.data, again.data, val.bytes) != 0);
    fsdp_file_unmap(&whole);
    fsdp_file_unmap(&train);
    fsdp_file_unmap(&val);
    fsdp_file_unmap(&again);
}

/* ---- interruptions ---- */

static void check_resuming(fsdp_test *t, const char *output, const char *compared,
                           fsdp_tokenize_config config)
{
    config.output = in_dir(t, output);
    ASSERT_ERROR(run_limited(&config, 3000000), FSDP_ERR_IO, "with --resume, the same command");
    ASSERT(!fsdp_path_exists(config.output));
    ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "--resume goes on with it");
    config.resume = true;
    config.append_eos = false;
    ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "another --append-eos, \"1\" and not \"0\"");
    config.append_eos = true;
    config.threads = 2;
    ASSERT_OK(run(&config));
    check_same_file(t, compared, "whole.bin");
}

TEST(a_run_that_was_interrupted_goes_on_to_the_same_bytes)
{
    put_corpus(t, "a.txt", 4 << 20);
    CHECK_HERE();
    fsdp_tokenize_config config = config_of(t, "a.txt", "whole.bin");
    ASSERT_OK(run(&config));
    check_resuming(t, "file.bin", "file.bin", config);
    CHECK_HERE();
    config.format = FSDP_TOKENIZE_NANOGPT;
    check_resuming(t, "folder", "folder/train.bin", config);
    ASSERT(!fsdp_path_exists(in_dir(t, "folder/val.bin")));
    ASSERT(!fsdp_path_exists(in_dir(t, "folder.partial")));
}

TEST(an_arrow_folder_is_the_same_after_an_interruption)
{
    NEEDS_FLATBUFFERS();
    put_corpus(t, "a.txt", 3 << 20);
    CHECK_HERE();
    fsdp_tokenize_config config = config_of(t, "a.txt", "whole");
    ASSERT_OK(run(&config));
    config.output = in_dir(t, "parts");
    ASSERT_ERROR(run_limited(&config, 6000000), FSDP_ERR_IO, "with --resume");
    config.resume = true;
    ASSERT_OK(run(&config));
    check_same_file(t, "whole/data-00000-of-00001.arrow", "parts/data-00000-of-00001.arrow");
}

/* The flag is set before the run begins, so no batch is read. */
TEST(a_signal_stops_the_run)
{
    const atomic_bool interrupted = true;
    put_corpus(t, "a.txt", 10000);
    CHECK_HERE();
    fsdp_tokenize_config config = config_of(t, "a.txt", "a.bin");
    config.interrupted = &interrupted;
    ASSERT_ERROR(run(&config), FSDP_ERR_STATE, "interrupted after 0 rows");
    config.interrupted = NULL;
    config.resume = true;
    /* What the journal does not count is cut off. */
    put_corpus(t, "a.bin.partial/out/train.bin", 100000);
    CHECK_HERE();
    ASSERT_OK(run(&config));
    config.output = in_dir(t, "b.bin");
    config.resume = false;
    ASSERT_OK(run(&config));
    check_same_file(t, "a.bin", "b.bin");
}

TEST(a_journal_that_does_not_fit_is_refused)
{
    const atomic_bool interrupted = true;
    put_corpus(t, "a.txt", 10000);
    CHECK_HERE();
    fsdp_tokenize_config config = config_of(t, "a.txt", "a.bin");
    config.interrupted = &interrupted;
    ASSERT_ERROR(run(&config), FSDP_ERR_STATE, "interrupted");
    config.interrupted = NULL;
    config.resume = true;
    put(t, "a.bin.partial/journal.json", "{\"version\": 2}");
    ASSERT_ERROR(run(&config), FSDP_ERR_FORMAT, "a.bin.partial/journal.json: version");
    put(t, "a.bin.partial/journal.json", "{\"version\": 1}");
    ASSERT_ERROR(run(&config), FSDP_ERR_FORMAT, "records");
    config.resume = false;
    config.overwrite = true;
    ASSERT_OK(run(&config));
    put(t, "a.bin", "old");
    ASSERT_OK(run(&config));
    config.overwrite = false;
    ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "exists; --overwrite replaces it");
}

TEST(memory_that_cannot_be_had_is_an_error_without_a_leak)
{
    NEEDS_FLATBUFFERS();
    fsdp_status status = FSDP_ERR_NOMEM;
    put(t, "rows.jsonl", mixed_rows);
    fsdp_tokenize_config config = config_of(t, "rows.jsonl", "rows");
    config.chat.chat_template = "chatml";
    config.overwrite = true; /* a run that failed late can go on, so its files are kept */
    /* The tokenizer and the template have tests of their own: skip most of their allocations. */
    for (long n = 1; status != FSDP_OK; n += n < 4000 ? 97 : 1) {
        fsdp_alloc_fail_at(n);
        status = run(&config);
        fsdp_alloc_fail_at(0);
        if (status != FSDP_OK && status != FSDP_ERR_NOMEM)
            FAIL("allocation %ld: %s", n, fsdp_last_error());
        ASSERT_INT(fsdp_path_exists(config.output), status == FSDP_OK);
        ASSERT(n < 100000);
    }
}

/* A run may go on in the middle of a batch, of the training data or of those for validation. */
TEST(any_number_of_records_is_skipped)
{
    put(t, "a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n");
    put(t, "b.txt", "d\n\ne\n");
    const fsdp_dataset_options rows = {.source_prefix = ""};
    const fsdp_source_options options = {.data = in_dir(t, "a.jsonl"),
                                         .validation_data = in_dir(t, "b.txt"),
                                         .rows = &rows,
                                         .task = FSDP_TASK_CAUSAL_LM,
                                         .max_samples = 2};
    static const char *const texts[] = {"{\"text\": \"a\"}", "{\"text\": \"b\"}", "d", "e"};
    for (int64_t skipped = 0; skipped < 4; skipped++) {
        fsdp_record_source *source;
        fsdp_record_batch batch = {0};
        ASSERT_OK(fsdp_record_source_open(&options, &source));
        ASSERT_OK(fsdp_record_source_skip(source, skipped));
        ASSERT_OK(fsdp_record_source_next(source, &batch));
        ASSERT_INT(batch.first, skipped);
        ASSERT_INT(batch.validation, skipped > 1);
        ASSERT_STR(batch.bytes + batch.records[0].at, texts[skipped]);
        fsdp_record_batch_fini(&batch);
        fsdp_record_source_close(source);
    }
    fsdp_record_source *source;
    ASSERT_OK(fsdp_record_source_open(&options, &source));
    ASSERT_ERROR(fsdp_record_source_skip(source, 5), FSDP_ERR_STATE, "4 rows, of which 5");
    fsdp_record_source_close(source);
}

/* ---- what is refused ---- */

TEST(errors_name_the_row_for_any_number_of_threads)
{
    fsdp_str rows = {0};
    for (int i = 0; i < 30000; i++)
        fsdp_str_printf(&rows, i == 25000 || i == 29999 ? "{\"text\": 5}\n"
                                                        : "{\"text\": \"hello world in Paris\"}\n");
    put(t, "rows.jsonl", rows.data);
    fsdp_str_fini(&rows);
    CHECK_HERE();
    fsdp_tokenize_config config = config_of(t, "rows.jsonl", "a.bin");
    for (config.threads = 1; config.threads < 5; config.threads += 3)
        ASSERT_ERROR(run(&config), FSDP_ERR_FORMAT, "rows.jsonl: line 25001: ");
    ASSERT(!fsdp_path_exists(in_dir(t, "a.bin.partial")));
}

TEST(what_does_not_fit_is_refused)
{
    put(t, "a.txt", "hello\n");
    put(t, "empty.txt", "\n\n");
    put(t, "t.bin", "abcd");
    fsdp_tokenize_config config = config_of(t, "none.txt", "a.bin");
    ASSERT_ERROR(run(&config), FSDP_ERR_NOT_FOUND, "none.txt");
    config = config_of(t, "empty.txt", "a.bin");
    ASSERT_ERROR(run(&config), FSDP_ERR_FORMAT, "empty.txt: no text");
    config = config_of(t, "t.bin", "a.bin");
    ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "tokenized already");
    config = config_of(t, "a.txt", "a.bin");
    config.format = FSDP_TOKENIZE_ARROW;
    ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "must not end in .bin");
    config.format = FSDP_TOKENIZE_LLMC;
    config.form.token_dtype = FSDP_TOKENS_I64;
    ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "uint16 or uint32");
    config = config_of(t, "a.txt", "a.bin");
    config.form.token_dtype = FSDP_TOKENS_U8;
    ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "ids, which need a larger type");
    config = config_of(t, "a.txt", "a.bin");
    config.task = FSDP_TASK_SEQ2SEQ;
    ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "token files have no labels");
    config = config_of(t, "a.txt", "a.bin");
    config.block_size = 8;
    ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "--block-size is for --format arrow");
    config = config_of(t, "a.txt", "a.bin");
    config.validation_fraction = 0.5;
    ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "give a folder");
    config = config_of(t, "a.txt", "a.bin");
    config.text_column = "text";
    config.asked_for.text_column = true;
    ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "--text-column is for rows that are texts");
    ASSERT(!fsdp_path_exists(in_dir(t, "a.bin")) && !fsdp_path_exists(in_dir(t, "a.bin.partial")));
}

/* ---- looking ---- */

TEST(check_shows_pieces_and_offsets_and_writes_nothing)
{
    char *lines;
    put(t, "a.jsonl",
        "{\"prompt\": \"What is\", \"completion\": \" \u00e9?\"}\n{\"text\": \"a\"}\n");
    fsdp_tokenize_config config = config_of(t, "a.jsonl", "x");
    config.output = NULL;
    config.check = true;
    config.rows = 1;
    ASSERT_OK(run_printing(&config, &lines));
    ASSERT(strstr(lines, "a.jsonl: line 1"));
    ASSERT(strstr(lines, "\"What is \u00e9?\""));
    ASSERT(strstr(lines, "0-"));
    ASSERT(strstr(lines, "yes"));
    ASSERT(strstr(lines, "decoded: the same text"));
    ASSERT(strstr(lines, "1 rows; decoding gives each text back"));
    ASSERT(!strstr(lines, "line 2"));
    free(lines);
}

/* ---- learning a vocabulary ---- */

TEST(a_learned_tokenizer_gives_texts_back)
{
    static const char *const special[] = {"<|endoftext|>", "<|pad|>"};
    static const char text[] = "hello world \u00e9\n\n  document 12 <|endoftext|>";
    for (int words = 0; words < 3; words++) {
        fsdp_tokenizer *tokenizer;
        fsdp_token_list ids = {0};
        char *decoded;
        put_corpus(t, "a.txt", 100000);
        CHECK_HERE();
        fsdp_tokenize_config config = config_of(t, "a.txt", words ? words > 1 ? "q" : "l" : "g");
        config.tokenizer = NULL;
        config.train_vocab = 280;
        config.min_frequency = 2;
        config.words = words;
        config.threads = 1 + words;
        config.special_tokens = (fsdp_option_list){special, 2};
        ASSERT_OK(run(&config));
        ASSERT_OK(fsdp_tokenizer_open(config.output, &tokenizer));
        ASSERT_INT(fsdp_tokenizer_vocab_size(tokenizer), 280);
        ASSERT_INT(fsdp_tokenizer_eos_id(tokenizer), 0);
        ASSERT_INT(fsdp_tokenizer_token_id(tokenizer, "<|pad|>"), 1);
        ASSERT_OK(fsdp_tokenizer_encode(tokenizer, text, strlen(text), 0, &ids));
        ASSERT(ids.len < 40 && ids.ids[ids.len - 1] == 0);
        ASSERT_OK(fsdp_tokenizer_decode(tokenizer, ids.ids, ids.len, 0, &decoded));
        ASSERT_STR(decoded, text);
        fsdp_text_free(decoded);
        fsdp_token_list_fini(&ids);
        fsdp_tokenizer_close(tokenizer);
        ASSERT_ERROR(run(&config), FSDP_ERR_INVALID, "");
    }
}

/* The texts of all forms are counted in the same way. */
TEST(a_vocabulary_does_not_depend_on_the_form_of_the_data)
{
    put(t, "a.txt", "hello hello world\n\nin Paris in Paris\n");
    put(t, "a.jsonl",
        "{\"text\": \"hello hello world\"}\n{\"messages\": [{\"role\": \"user\", "
        "\"content\": [{\"type\": \"text\", \"text\": \"in Paris in Paris\"}]}]}\n");
    put(t, "s.jsonl",
        "{\"system\": \"hello hello world\", \"conversations\": [{\"from\": \"human\", "
        "\"value\": \"in Paris in Paris\"}]}\n");
    fsdp_tokenize_config config = config_of(t, "a.txt", "a");
    config.tokenizer = NULL;
    config.train_vocab = 270;
    ASSERT_OK(run(&config));
    for (int i = 0; i < 2; i++) {
        config.data = in_dir(t, i ? "s.jsonl" : "a.jsonl");
        config.output = in_dir(t, i ? "s" : "b");
        ASSERT_OK(run(&config));
        check_same_file(t, "a/tokenizer.json", i ? "s/tokenizer.json" : "b/tokenizer.json");
        CHECK_HERE();
    }
}

TEST(a_vocabulary_needs_a_text)
{
    put(t, "a.jsonl", "{\"text\": \"\"}\n{\"messages\": [{\"role\": \"user\"}]}\n");
    fsdp_tokenize_config config = config_of(t, "a.jsonl", "a");
    config.tokenizer = NULL;
    config.train_vocab = 270;
    ASSERT_ERROR(run(&config), FSDP_ERR_FORMAT, "a.jsonl: its 2 rows have no text");
    ASSERT(!fsdp_path_exists(config.output));
}

/* The only row with an unknown character is in the second batch. Its character is named, as one in
 * the first batch would be. */
TEST(an_unknown_character_of_a_late_row_is_named)
{
    enum {
        ROWS = 300,
        BYTES = 4000
    };
    fsdp_str rows = {0};
    char *lines;
    put(t, "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n");
    for (int i = 0; i < ROWS; i++) {
        fsdp_str_printf(&rows, "{\"text\": \"%s", i == ROWS - 2 ? "\u00f8 " : "");
        for (int k = 0; k < BYTES / 2; k++)
            fsdp_str_append(&rows, "a ", 2);
        fsdp_str_printf(&rows, "\"}\n");
    }
    put(t, "rows.jsonl", rows.data);
    fsdp_str_fini(&rows);
    fsdp_tokenize_config config = config_of(t, "rows.jsonl", "rows.bin");
    config.tokenizer = in_dir(t, "");
    config.task = FSDP_TASK_MASKED_LM;
    const fsdp_status status = run_printing(&config, &lines);
    if (status == FSDP_ERR_UNSUPPORTED)
        SKIP("built without utf8proc");
    ASSERT_OK(status);
    if (!strstr(lines, "first '\u00f8' in line 299 of"))
        FAIL("not the character, but: %s", lines);
    free(lines);
}
