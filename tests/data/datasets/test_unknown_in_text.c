/* Rows whose texts have characters or words that the tokenizer does not know are counted, and
 * named: for each kind of file and each kind of tokenizer model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/data.h>

#include "src/base/io.h"
#include "src/data/datasets/dataset.h"
#include "src/data/left_out.h"
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

/* Check that `rows` rows have unknown characters, that the message contains `said`, and that
 * `examples` are those that were found. */
static void check_counts(fsdp_test *t, const char *path, const fsdp_dataset_options *options,
                         int64_t rows, const char *said, const char *examples)
{
    fsdp_dataset *set;
    fsdp_left_out out;
    char line[1200], found[FSDP_UNKNOWN_EXAMPLES * (FSDP_UNKNOWN_BYTES + 2)];
    size_t length = 0;
    ASSERT_OK(fsdp_dataset_open(path, options, &set));
    ASSERT_OK(fsdp_dataset_left_out(set, 0, &out));
    ASSERT_INT(out.unknown_rows, rows);
    fsdp_unknown_rows_text(&out, fsdp_dataset_len(set), path, line, sizeof line);
    if (rows == 0)
        ASSERT_STR(line, "");
    else if (!strstr(line, said))
        fsdp_test_fail(t, __FILE__, __LINE__, "'%s' is not in '%s'", said, line);
    *found = 0;
    for (int i = 0; i < FSDP_UNKNOWN_EXAMPLES && *out.unknown_examples.items[i]; i++)
        length += (size_t)snprintf(found + length, sizeof found - length, "%s%s", i ? ", " : "",
                                   out.unknown_examples.items[i]);
    ASSERT_STR(found, examples);
    fsdp_dataset_close(set);
}

TEST(characters_that_t5_lacks_are_counted)
{
    NEEDS_SENTENCEPIECE();
    fsdp_tokenizer *tokenizer = NULL;
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("../models/t5-debian-mini"), &tokenizer));
    fsdp_dataset_options options = {.task = FSDP_TASK_SEQ2SEQ, .tokenizer = tokenizer};
    const char *path = write_text(t, "a.csv",
                                  "text,headline\none house,two\n"
                                  "three,S\u00f8ren\nsix,Zo\u00eb and S\u00f8ren\n"
                                  "M\u00e4dchen,seven\n");
    check_counts(
        t, path, &options, 3,
        "a.csv: 3 of 4 rows have characters or words that the tokenizer does not know, first "
        "'\u00f8' in the target of row 2; the model can neither",
        "'\u00f8', '\u00eb', '\u00e4'");
    CHECK_HERE();
    /* the same for rows that are encoded when they are read, with at most five examples; an
     * invisible character is named by its number */
    path = write_text(t, "a.jsonl",
                      "{\"source\": \"one\", \"target\": \"two\"}\n"
                      "{\"source\": \"\u65e5\u672c\u8a9e \u00f8\", \"target\": \"\u00eb \u00e4\"}\n"
                      "{\"source\": \"x\u200dy\", \"target\": \"two\"}\n");
    options.source_column = "source";
    options.target_column = "target";
    check_counts(t, path, &options, 2,
                 "2 of 3 rows have characters or words that the tokenizer does not know, first "
                 "'\u65e5' in",
                 "'\u65e5', '\u672c', '\u8a9e', '\u00f8', '\u00eb'");
    CHECK_HERE();
    /* the unknown token itself, written in a text, is a special token */
    path = write_text(t, "a.csv", "source,target\n<unk> house,two\n");
    check_counts(t, path, &options, 0, NULL, "");
    CHECK_HERE();
    /* characters after the limit are cut, not unknown */
    options.max_source_length = 3;
    path = write_text(t, "a.csv", "source,target\none two three four five six S\u00f8ren,two\n");
    check_counts(t, path, &options, 0, NULL, "");
    CHECK_HERE();
    /* unknown tokens that are written in the text after the limit do not hide the character */
    options.max_source_length = 4;
    path = write_text(t, "a.csv", "source,target\n\u00f8<unk><unk><unk><unk>,two\n");
    check_counts(t, path, &options, 1, "first '\u00f8' in the source of row 1", "'\u00f8'");
    CHECK_HERE();
    options = (fsdp_dataset_options){.task = FSDP_TASK_CAUSAL_LM, .tokenizer = tokenizer};
    path = write_text(t, "a.jsonl",
                      "{\"text\": \"one\"}\n{\"text\": \"two \u00f8\"}\n{\"input_ids\": [2, 2]}\n");
    check_counts(t, path, &options, 1,
                 "1 of 3 rows have characters or words that the tokenizer "
                 "does not know, first '\u00f8' in row 2; the model can neither",
                 "'\u00f8'");
    fsdp_tokenizer_close(tokenizer);
}

TEST(words_that_wordpiece_lacks_are_counted)
{
    fsdp_tokenizer *tokenizer = NULL;
    fsdp_dataset_options options = {.task = FSDP_TASK_CLASSIFICATION, .num_classes = 2};
    write_text(t, "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nhouse\nh\no\ns\n##s\n");
    const fsdp_status status = fsdp_tokenizer_open(fsdp_test_dir(t), &tokenizer);
    if (status == FSDP_ERR_UNSUPPORTED)
        SKIP("built without utf8proc");
    ASSERT_OK(status);
    options.tokenizer = tokenizer;
    /* "hos" has no unknown character, but no tokens for "os"; "s\u00f8s" has an unknown one */
    const char *path = write_text(t, "a.csv",
                                  "sentence1,sentence2,label\nthe,house,0\n"
                                  "the hos,house,1\nthe,s\u00f8s houses,1\n");
    check_counts(t, path, &options, 2,
                 "2 of 3 rows have characters or words that the tokenizer does not know, first "
                 "'hos' in row 2; the model can neither",
                 "'hos', '\u00f8'");
    fsdp_tokenizer_close(tokenizer);
}

/* Examples are not searched in all of many rows, but all rows are counted. */
TEST(all_of_many_rows_are_counted)
{
    NEEDS_SENTENCEPIECE();
    enum {
        ROWS = 600
    };
    fsdp_tokenizer *tokenizer = NULL;
    char *rows = malloc(ROWS * 48), *end = rows;
    ASSERT(rows);
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("../models/t5-debian-mini"), &tokenizer));
    const fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM, .tokenizer = tokenizer};
    for (int i = 0; i < ROWS; i++)
        end += sprintf(end, "{\"text\": \"\u00f8 %s\"}\n", i == 20 ? "\u00eb" : "one");
    const char *path = write_text(t, "a.jsonl", rows);
    check_counts(t, path, &options, ROWS,
                 "600 of 600 rows have characters or words that the "
                 "tokenizer does not know, first '\u00f8' in row 1; the model can neither",
                 "'\u00f8', '\u00eb'");
    fsdp_tokenizer_close(tokenizer);
    free(rows);
}

/* A tokenizer of bytes knows each character. */
TEST(byte_level_models_know_all_characters)
{
    fsdp_tokenizer *tokenizer = NULL;
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("fixtures/chat"), &tokenizer));
    const fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM, .tokenizer = tokenizer};
    const char *path = write_text(t, "a.jsonl", "{\"text\": \"S\u00f8ren \u65e5\u672c\"}\n");
    check_counts(t, path, &options, 0, NULL, "");
    fsdp_tokenizer_close(tokenizer);
}

TEST(packed_rows_and_plain_text_are_counted)
{
    NEEDS_SENTENCEPIECE();
    fsdp_tokenizer *tokenizer = NULL;
    fsdp_dataset *set;
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("../models/t5-debian-mini"), &tokenizer));
    fsdp_dataset_options options = {
        .task = FSDP_TASK_CAUSAL_LM, .tokenizer = tokenizer, .max_length = 64};
    const char *path = write_text(t, "a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"\u00f8\"}\n");
    for (int how = 1; how <= FSDP_PACKING_FIRST_FIT; how++) {
        fsdp_left_out out;
        options.packing = (fsdp_packing)how;
        ASSERT_OK(fsdp_dataset_open(path, &options, &set));
        ASSERT_OK(fsdp_dataset_left_out(set, 0, &out));
        ASSERT_INT(out.unknown_rows, 1);
        ASSERT_INT(out.unknown_row, 1);
        ASSERT_STR(out.unknown_examples.items[0], "'\u00f8'");
        ASSERT_STR(out.unknown_examples.items[1], "");
        fsdp_dataset_close(set);
    }
    options = (fsdp_dataset_options){
        .task = FSDP_TASK_CAUSAL_LM, .tokenizer = tokenizer, .max_length = 2};
    path = write_text(t, "a.txt", "one\n\ntwo S\u00f8ren\n\nthree </s> \u00eb\n");
    ASSERT_OK(fsdp_dataset_open(path, &options, &set));
    ASSERT(fsdp_dataset_note(set));
    ASSERT(strstr(fsdp_dataset_note(set), "special tokens are in 1 of the texts"));
    ASSERT(strstr(
        fsdp_dataset_note(set),
        "a.txt: 2 of the texts have characters or words that the tokenizer does not know, first "
        "'\u00f8' in the document at line 3; the model can neither"));
    fsdp_dataset_close(set);
    fsdp_tokenizer_close(tokenizer);
}
