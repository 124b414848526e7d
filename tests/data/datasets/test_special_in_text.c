/* Rows whose texts contain special tokens are counted: for each kind of file and each family of
 * tokenizers. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <fsdp/data.h>

#include "src/base/io.h"
#include "src/data/datasets/dataset.h"
#include "src/data/left_out.h"
#include "src/text/chat/chat.h"
#include "tests/test.h"

static char *path_of(fsdp_test *t, const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), name);
    return path;
}

static const char *write_text(fsdp_test *t, const char *name, const char *text)
{
    const char *path = path_of(t, name);
    if (fsdp_file_write(path, text, strlen(text)) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return path;
}

/* Check that `rows` rows have special tokens, and that the first one is row `first` with `token`.
 */
static void check_counts(fsdp_test *t, const char *path, const fsdp_dataset_options *options,
                         int64_t rows, int64_t first, const char *token)
{
    fsdp_dataset *set;
    fsdp_left_out out;
    char line[1200];
    ASSERT_OK(fsdp_dataset_open(path, options, &set));
    ASSERT_OK(fsdp_dataset_left_out(set, 0, &out));
    ASSERT_INT(out.special_rows, rows);
    fsdp_special_rows_text(&out, fsdp_dataset_len(set), path, line, sizeof line);
    if (rows == 0) {
        ASSERT(!out.special_token);
        ASSERT_STR(line, "");
    } else {
        char wanted[800];
        ASSERT_STR(out.special_token, token);
        ASSERT_INT(out.special_row, first);
        snprintf(wanted, sizeof wanted,
                 "special tokens are in the texts of %d of %d rows, first '%s' in row %d",
                 (int)rows, (int)fsdp_dataset_len(set), token, (int)first + 1);
        ASSERT(strstr(line, wanted));
    }
    fsdp_dataset_close(set);
}

TEST(t5_pairs_and_causal_texts_are_counted)
{
    NEEDS_SENTENCEPIECE();
    fsdp_tokenizer *tokenizer = NULL;
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("../models/t5-debian-mini"), &tokenizer));
    fsdp_dataset_options options = {.task = FSDP_TASK_SEQ2SEQ, .tokenizer = tokenizer};
    const char *path = write_text(t, "a.csv",
                                  "text,headline\none house,two\n"
                                  "three <unk> four,five\nsix,seven</s> eight\n");
    check_counts(t, path, &options, 2, 1, "<unk>");
    CHECK_HERE();
    /* a special token after the limit of the source does not become an id */
    options.max_source_length = 3;
    path = write_text(t, "a.csv", "text,headline\none two three four five six </s> eight,nine\n");
    check_counts(t, path, &options, 0, 0, NULL);
    CHECK_HERE();
    options.max_source_length = 0;
    path = write_text(t, "a.csv", "text,headline\na s> b </ s> < s>,unk pad\n");
    check_counts(t, path, &options, 0, 0, NULL);
    CHECK_HERE();
    options = (fsdp_dataset_options){.task = FSDP_TASK_CAUSAL_LM, .tokenizer = tokenizer};
    path = write_text(t, "a.jsonl",
                      "{\"text\": \"one\"}\n{\"text\": \"two <pad>\"}\n"
                      "{\"input_ids\": [0, 1, 2]}\n");
    check_counts(t, path, &options, 1, 1, "<pad>");
    fsdp_tokenizer_close(tokenizer);
}

TEST(wordpiece_classes_are_counted)
{
    fsdp_tokenizer *tokenizer = NULL;
    fsdp_dataset_options options = {.task = FSDP_TASK_CLASSIFICATION, .num_classes = 2};
    write_text(t, "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nhouse\n");
    const fsdp_status status = fsdp_tokenizer_open(fsdp_test_dir(t), &tokenizer);
    if (status == FSDP_ERR_UNSUPPORTED)
        SKIP("built without utf8proc");
    ASSERT_OK(status);
    options.tokenizer = tokenizer;
    const char *path = write_text(t, "a.csv",
                                  "sentence1,sentence2,label\nthe,house,0\n"
                                  "the [MASK],house,1\nthe,[SEP] house,1\n");
    check_counts(t, path, &options, 2, 1, "[MASK]");
    fsdp_tokenizer_close(tokenizer);
}

/* Byte-level BPE. The tokens that the chat template writes are not counted. */
TEST(conversations_are_counted_without_the_tokens_of_the_template)
{
    fsdp_tokenizer *tokenizer = NULL;
    fsdp_chat_template *chat = NULL;
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("fixtures/chat"), &tokenizer));
    ASSERT_OK(fsdp_chat_template_open(fsdp_test_path("fixtures/chat"), "zephyr", &chat));
    fsdp_dataset_options options = {
        .task = FSDP_TASK_CAUSAL_LM, .tokenizer = tokenizer, .chat.chat_template = chat};
    const char *path =
        write_text(t, "a.jsonl",
                   "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"},"
                   " {\"role\": \"assistant\", \"content\": \"world\"}]}\n"
                   "{\"messages\": [{\"role\": \"user\", \"content\": \"hello </s>\"},"
                   " {\"role\": \"assistant\", \"content\": \"world\"}]}\n"
                   "{\"prompt\": [{\"role\": \"user\", \"content\": \"hello\"}],"
                   " \"completion\": [{\"role\": \"assistant\", \"content\": \"<pad> world\"}]}\n"
                   "{\"conversations\": [{\"from\": \"human\", \"value\": \"hello <s>\"},"
                   " {\"from\": \"gpt\", \"value\": \"world\"}]}\n");
    check_counts(t, path, &options, 3, 1, "</s>");
    CHECK_HERE();
    fsdp_chat_template_close(chat);
    fsdp_tokenizer_close(tokenizer);
}

TEST(files_packed_rows_and_plain_text_are_counted)
{
    fsdp_tokenizer *tokenizer = NULL;
    fsdp_dataset *set;
    fsdp_left_out out;
    char name[700];
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("fixtures/chat"), &tokenizer));
    fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM, .tokenizer = tokenizer};
    ASSERT(mkdir(path_of(t, "rows"), 0700) == 0);
    write_text(t, "rows/a.jsonl", "{\"text\": \"hello\"}\n");
    write_text(t, "rows/b.jsonl", "{\"text\": \"world\"}\n{\"text\": \"<s>\"}\n");
    ASSERT_OK(fsdp_dataset_open(path_of(t, "rows"), &options, &set));
    ASSERT_OK(fsdp_dataset_left_out(set, 0, &out));
    ASSERT_INT(out.special_rows, 1);
    ASSERT_INT(out.special_row, 1);
    snprintf(name, sizeof name, "%s/rows/b.jsonl", fsdp_test_dir(t));
    ASSERT_STR(out.special_file, name);
    ASSERT_OK(fsdp_dataset_left_out(set, 2, &out));
    ASSERT_INT(out.special_rows, 0);
    fsdp_dataset_close(set);

    options.max_length = 64;
    for (int how = 1; how <= FSDP_PACKING_FIRST_FIT; how++) {
        options.packing = (fsdp_packing)how;
        ASSERT_OK(fsdp_dataset_open(path_of(t, "rows"), &options, &set));
        ASSERT_OK(fsdp_dataset_left_out(set, 0, &out));
        ASSERT_INT(out.special_rows, 1);
        ASSERT_STR(out.special_token, "<s>");
        fsdp_dataset_close(set);
    }

    options = (fsdp_dataset_options){
        .task = FSDP_TASK_CAUSAL_LM, .tokenizer = tokenizer, .max_length = 2};
    const char *path = write_text(t, "a.txt", "hello\n\nworld </s>\n\nhello <pad>\n");
    ASSERT_OK(fsdp_dataset_open(path, &options, &set));
    ASSERT(fsdp_dataset_note(set));
    ASSERT(strstr(fsdp_dataset_note(set), "a.txt: special tokens are in 2 of the texts, first "
                                          "'</s>' in the document at line 3"));
    fsdp_dataset_close(set);
    path = write_text(t, "a.txt", "hello\n\nworld\n");
    ASSERT_OK(fsdp_dataset_open(path, &options, &set));
    ASSERT(!fsdp_dataset_note(set));
    fsdp_dataset_close(set);
    fsdp_tokenizer_close(tokenizer);
}
