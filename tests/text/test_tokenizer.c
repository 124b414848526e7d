/* The T5 tokenizer against the ids that transformers' tokenizer gives for the same strings
 * (fixtures/text/make_t5_ids.py), and a tokenizer like Llama 2's against sentencepiece's Python
 * module (fixtures/text/make_llama_ids.py). */
#include <fsdp/text.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/text/chars/utf8.h"
#include "tests/test.h"

/* Use at the start of a test that opens T5's tokenizer. */
#ifdef FSDP_HAVE_UTF8PROC
#define NEEDS_UNICODE() ((void)0)
#else
#define NEEDS_UNICODE() SKIP("built without utf8proc")
#endif

static const char *model_dir(void)
{
    return fsdp_test_path("../data/tokenizers/t5");
}

static void check_ids(fsdp_test *t, const char *text, const fsdp_token_list *list,
                      fsdp_json_node row, const char *key)
{
    int64_t *expected = NULL;
    size_t count = 0;
    ASSERT_OK(fsdp_json_get_i64s(row, key, 0, INT32_MAX, &expected, &count));
    bool same = count == list->len;
    for (size_t i = 0; same && i < count; i++)
        same = expected[i] == list->ids[i];
    fsdp_free(expected);
    if (!same)
        FAIL("%s differ for '%s': %zu ids instead of %zu", key, text, list->len, count);
}

static void check_text(fsdp_test *t, const fsdp_tokenizer *tokenizer, const fsdp_token_list *list,
                       unsigned flags, fsdp_json_node row, const char *key)
{
    const char *expected;
    char *actual = NULL;
    ASSERT_OK(fsdp_json_get_str(row, key, &expected));
    ASSERT_OK(fsdp_tokenizer_decode(tokenizer, list->ids, list->len, flags, &actual));
    bool same = strcmp(actual, expected) == 0;
    if (!same)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s: '%s' instead of '%s'", key, actual, expected);
    fsdp_text_free(actual);
}

static void check_row(fsdp_test *t, const fsdp_tokenizer *tokenizer, fsdp_token_list *list,
                      fsdp_json_node row)
{
    const char *text;
    ASSERT_OK(fsdp_json_get_str(row, "text", &text));
    list->len = 0;
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, text, strlen(text), 8, list));
    check_ids(t, text, list, row, "cut");
    list->len = 0;
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, text, strlen(text), 0, list));
    check_ids(t, text, list, row, "ids");
    check_text(t, tokenizer, list, 0, row, "decoded");
    check_text(t, tokenizer, list, FSDP_DECODE_SKIP_SPECIAL, row, "text_only");
}

typedef void check_row_fn(fsdp_test *t, const fsdp_tokenizer *tokenizer, fsdp_token_list *list,
                          fsdp_json_node row);

/* Check every row of a fixture with the tokenizer of `model`. *rows is set to their number. */
static void check_fixture(fsdp_test *t, const char *model, const char *fixture, check_row_fn *check,
                          int *rows)
{
    fsdp_tokenizer *tokenizer;
    ASSERT_OK(fsdp_tokenizer_open(model, &tokenizer));
    char *lines = NULL;
    size_t bytes = 0;
    ASSERT_OK(fsdp_file_read(fsdp_test_path(fixture), 1 << 24, &lines, &bytes));
    fsdp_token_list list = {0};
    *rows = 0;
    for (char *line = lines; *line && !t->failed; ++*rows) {
        size_t length = strcspn(line, "\n");
        fsdp_json *doc;
        ASSERT_OK(fsdp_json_parse(fixture, *rows + 1, line, length, &doc));
        check(t, tokenizer, &list, fsdp_json_root(doc));
        fsdp_json_destroy(doc);
        line += length + (line[length] == '\n');
    }
    fsdp_token_list_fini(&list);
    fsdp_free(lines);
    fsdp_tokenizer_close(tokenizer);
}

TEST(ids_and_texts_are_those_of_transformers)
{
    NEEDS_UNICODE();
    int rows = 0;
    check_fixture(t, model_dir(), "fixtures/text/t5_ids.jsonl", check_row, &rows);
    CHECK_HERE();
    ASSERT(rows > 200);
}

/* The fixture's ids have no <s>, which encoding puts before a text. */
static void check_llama_row(fsdp_test *t, const fsdp_tokenizer *tokenizer, fsdp_token_list *list,
                            fsdp_json_node row)
{
    const char *text;
    ASSERT_OK(fsdp_json_get_str(row, "text", &text));
    list->len = 0;
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, text, strlen(text), 0, list));
    ASSERT_INT(list->ids[0], 1);
    list->len = 0;
    ASSERT_OK(fsdp_tokenizer_encode_text(tokenizer, text, strlen(text), 0, list));
    check_ids(t, text, list, row, "ids");
    check_text(t, tokenizer, list, 0, row, "decoded");
}

static void llama_dir(char dir[512])
{
    snprintf(dir, 512, "%s", fsdp_test_path("fixtures/text/llama"));
}

TEST(ids_and_texts_of_a_bpe_model_are_those_of_sentencepiece)
{
    NEEDS_UNICODE();
    char dir[512];
    int rows = 0;
    llama_dir(dir);
    check_fixture(t, dir, "fixtures/text/llama_ids.jsonl", check_llama_row, &rows);
    CHECK_HERE();
    ASSERT(rows > 50);
}

/* Special tokens are cut out of the text, and skipped in decoding. If the bytes of byte pieces that
 * follow one another are not UTF-8 together, each of them is U+FFFD, as in the tokenizers library.
 */
TEST(facts_of_llama)
{
    NEEDS_UNICODE();
    fsdp_tokenizer *tokenizer;
    fsdp_token_list list = {0};
    char dir[512], *text;
    llama_dir(dir);
    ASSERT_OK(fsdp_tokenizer_open(dir, &tokenizer));
    ASSERT_INT(fsdp_tokenizer_vocab_size(tokenizer), 520);
    ASSERT_INT(fsdp_tokenizer_bos_id(tokenizer), 1);
    ASSERT_INT(fsdp_tokenizer_pad_id(tokenizer), -1);
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, "<s>a<pad>", 9, 0, &list));
    ASSERT_INT(list.ids[0], 1);
    ASSERT_INT(list.ids[1], 1);
    ASSERT(list.len > 6);
    ASSERT_OK(
        fsdp_tokenizer_decode(tokenizer, list.ids, list.len, FSDP_DECODE_SKIP_SPECIAL, &text));
    ASSERT_STR(text, "a<pad>");
    fsdp_text_free(text);
    const int32_t bytes[] = {3 + 'A', 3 + 0xC3, 3 + 'B', 1, 3, 3 + 0xC3, 3 + 0xA9};
    ASSERT_OK(fsdp_tokenizer_decode(tokenizer, bytes, 7, FSDP_DECODE_SKIP_SPECIAL, &text));
    ASSERT_STR(text, "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
    fsdp_text_free(text);
    ASSERT_OK(fsdp_tokenizer_decode(tokenizer, bytes + 4, 3, 0, &text));
    ASSERT_STR(text, "\u00e9");
    fsdp_text_free(text);
    fsdp_token_list_fini(&list);
    fsdp_tokenizer_close(tokenizer);
}

TEST(facts_of_t5)
{
    NEEDS_UNICODE();
    fsdp_tokenizer *tokenizer;
    char file[512];
    snprintf(file, sizeof file, "%s/spiece.model", model_dir());
    ASSERT_OK(fsdp_tokenizer_open(file, &tokenizer));
    ASSERT_INT(fsdp_tokenizer_vocab_size(tokenizer), 32100);
    ASSERT_INT(fsdp_tokenizer_bos_id(tokenizer), -1);
    ASSERT_INT(fsdp_tokenizer_pad_id(tokenizer), 0);
    ASSERT_INT(fsdp_tokenizer_eos_id(tokenizer), 1);
    ASSERT_INT(fsdp_tokenizer_unk_id(tokenizer), 2);
    ASSERT_STR(fsdp_tokenizer_path(tokenizer), file);
    fsdp_tokenizer_close(tokenizer);
    fsdp_tokenizer_close(NULL);
}

/* max_length 1 leaves only </s>; encoding appends to the list, so it keeps previous ids; a list can
 * be reused. */
TEST(truncation_keeps_the_end_of_sequence)
{
    NEEDS_UNICODE();
    fsdp_tokenizer *tokenizer;
    ASSERT_OK(fsdp_tokenizer_open(model_dir(), &tokenizer));
    fsdp_token_list list = {0};
    const char *text = "The house is wonderful.";
    for (int max_length = 1; max_length < 9; max_length++) {
        size_t before = list.len;
        ASSERT_OK(fsdp_tokenizer_encode(tokenizer, text, strlen(text), max_length, &list));
        ASSERT_INT(list.len - before, max_length < 6 ? max_length : 6);
        ASSERT_INT(list.ids[list.len - 1], 1);
        if (max_length > 1)
            ASSERT_INT(list.ids[before], 37);
    }
    ASSERT_ERROR(fsdp_tokenizer_encode(tokenizer, text, 5, -1, &list), FSDP_ERR_INVALID, "-1");
    fsdp_token_list_fini(&list);
    fsdp_tokenizer_close(tokenizer);
}

TEST(text_that_is_not_utf8_is_refused_and_the_list_unchanged)
{
    NEEDS_UNICODE();
    fsdp_tokenizer *tokenizer;
    ASSERT_OK(fsdp_tokenizer_open(model_dir(), &tokenizer));
    fsdp_token_list list = {0};
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, "abc", 3, 0, &list));
    size_t before = list.len;
    ASSERT_ERROR(fsdp_tokenizer_encode(tokenizer, "abcdefghi\xC3(", 11, 0, &list), FSDP_ERR_INVALID,
                 "0xc3 at offset 9");
    ASSERT_INT(list.len, before);
    fsdp_token_list_fini(&list);
    fsdp_tokenizer_close(tokenizer);
}

TEST(decoding_an_id_that_is_no_token_is_an_error_unless_skipped)
{
    NEEDS_UNICODE();
    fsdp_tokenizer *tokenizer;
    ASSERT_OK(fsdp_tokenizer_open(model_dir(), &tokenizer));
    const int32_t above[] = {37, 629, 32100}, below[] = {37, -1};
    char *text = NULL;
    ASSERT_ERROR(fsdp_tokenizer_decode(tokenizer, above, 3, 0, &text), FSDP_ERR_INVALID,
                 "id 32100 at position 2");
    ASSERT_ERROR(fsdp_tokenizer_decode(tokenizer, below, 2, 0, &text), FSDP_ERR_INVALID, "id -1");
    ASSERT_OK(fsdp_tokenizer_decode(tokenizer, above, 3, FSDP_DECODE_SKIP_UNKNOWN, &text));
    ASSERT_STR(text, "The house");
    fsdp_text_free(text);
    fsdp_tokenizer_close(tokenizer);
}

static void write_text(fsdp_test *t, const char *path, const char *text)
{
    ASSERT_OK(fsdp_file_write(path, text, strlen(text)));
}

TEST(errors_of_opening_give_the_reason)
{
    fsdp_tokenizer *tokenizer = NULL;
    const char *dir = fsdp_test_dir(t);
    char path[512];
    ASSERT_ERROR(fsdp_tokenizer_open("/no/such/folder", &tokenizer), FSDP_ERR_NOT_FOUND,
                 "/no/such/folder");
    ASSERT_ERROR(fsdp_tokenizer_open(dir, &tokenizer), FSDP_ERR_NOT_FOUND, "holds no tokenizer");
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    write_text(t, path, "{}");
    CHECK_HERE();
    ASSERT_ERROR(fsdp_tokenizer_open(dir, &tokenizer), FSDP_ERR_FORMAT, "there is no \"model\"");
    write_text(t, path, "{\"model\": ");
    CHECK_HERE();
    ASSERT_ERROR(fsdp_tokenizer_open(dir, &tokenizer), FSDP_ERR_FORMAT, "tokenizer.json: line 1");
    write_text(t, path, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n");
    CHECK_HERE();
    ASSERT_ERROR(fsdp_tokenizer_open(dir, &tokenizer), FSDP_ERR_FORMAT, "Git LFS");
    ASSERT_OK(fsdp_tree_remove(path));
    snprintf(path, sizeof path, "%s/spiece.model", dir);
    write_text(t, path, "");
    CHECK_HERE();
    ASSERT_ERROR(fsdp_tokenizer_open(dir, &tokenizer), FSDP_ERR_FORMAT, "empty");
    write_text(t, path, "certainly no protocol buffer");
    CHECK_HERE();
    ASSERT_ERROR(fsdp_tokenizer_open(dir, &tokenizer), FSDP_ERR_FORMAT, "spiece.model");
    write_text(t, path, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n");
    CHECK_HERE();
    ASSERT_ERROR(fsdp_tokenizer_open(dir, &tokenizer), FSDP_ERR_FORMAT, "Git LFS");
    ASSERT(tokenizer == NULL);
}

/* A class whose vocabulary is in another order than the pieces of its SentencePiece model, and a
 * vocab.json without its merges. */
TEST(files_that_are_not_enough_are_refused)
{
    fsdp_tokenizer *tokenizer = NULL;
    const char *dir = fsdp_test_dir(t);
    char from[512], path[512];
    snprintf(from, sizeof from, "%s/spiece.model", model_dir());
    snprintf(path, sizeof path, "%s/spiece.model", dir);
    ASSERT_OK(fsdp_file_copy(from, path));
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    write_text(t, path, "{\"tokenizer_class\": \"XLMRobertaTokenizerFast\"}");
    CHECK_HERE();
    ASSERT_ERROR(fsdp_tokenizer_open(dir, &tokenizer), FSDP_ERR_UNSUPPORTED,
                 "a XLMRobertaTokenizer cannot be read from spiece.model alone");
    write_text(t, path, "{\"tokenizer_class\": \"T5TokenizerFast\"}");
    CHECK_HERE();
    ASSERT_OK(fsdp_tokenizer_open(dir, &tokenizer));
    fsdp_tokenizer_close(tokenizer);
    tokenizer = NULL;
    write_text(t, path, "{}");
    snprintf(path, sizeof path, "%s/vocab.json", dir);
    write_text(t, path, "{\"a\": 0}");
    CHECK_HERE();
    ASSERT_ERROR(fsdp_tokenizer_open(path, &tokenizer), FSDP_ERR_NOT_FOUND, "merges.txt");
    ASSERT(tokenizer == NULL);
}

/* A model truncated at any of 40 places is an error or, if cut between two pieces, a smaller model.
 * It never crashes. */
TEST(a_truncated_model_is_no_model)
{
    char path[512], *bytes = NULL;
    size_t count = 0;
    snprintf(path, sizeof path, "%s/spiece.model", model_dir());
    ASSERT_OK(fsdp_file_read(path, 1 << 24, &bytes, &count));
    snprintf(path, sizeof path, "%s/spiece.model", fsdp_test_dir(t));
    int refused = 0;
    for (size_t i = 0; i < 40; i++) {
        ASSERT_OK(fsdp_file_write(path, bytes, count / 40 * i));
        fsdp_tokenizer *tokenizer = NULL;
        if (fsdp_tokenizer_open(path, &tokenizer) != FSDP_OK) {
            ASSERT(strstr(fsdp_last_error(), path) != NULL);
            refused++;
        }
        fsdp_tokenizer_close(tokenizer);
    }
    fsdp_free(bytes);
    ASSERT(refused >= 35);
}

/* A corrupted table of replacements would make text that is not UTF-8. */
TEST(a_normalizer_that_breaks_utf8_is_refused)
{
#ifndef FSDP_HAVE_UTF8PROC
    SKIP("built without utf8proc");
#endif
    static const char entry[] = "\0TM"; /* including the NUL after it */
    char *model, path[600];
    size_t bytes;
    snprintf(path, sizeof path, "%s/spiece.model", model_dir());
    ASSERT_OK(fsdp_file_read(path, 1 << 24, &model, &bytes));
    char *at = memmem(model, bytes, entry, sizeof entry);
    ASSERT(at);
    at[2] = (char)0xF0;
    snprintf(path, sizeof path, "%s/spiece.model", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, model, bytes));
    fsdp_free(model);
    fsdp_tokenizer *tokenizer;
    ASSERT_ERROR(fsdp_tokenizer_open(path, &tokenizer), FSDP_ERR_FORMAT,
                 "the replacements are not UTF-8");
}

/* Appends an entry of ModelProto.pieces: text, score and type. */
static void add_piece(char *model, size_t *bytes, const char *text, float score, char type)
{
    const size_t n = strlen(text);
    const char head[] = {0x0A, (char)(n + 9), 0x0A, (char)n}, tail[] = {0x18, type};
    memcpy(model + *bytes, head, 4);
    memcpy(model + *bytes + 4, text, n);
    model[*bytes + 4 + n] = 0x15;
    memcpy(model + *bytes + 5 + n, &score, 4);
    memcpy(model + *bytes + 9 + n, tail, 2);
    *bytes += 11 + n;
}

/* A unigram model with 256 byte pieces, ids 3 to 258, followed by four normal pieces. */
static void write_byte_fallback_model(fsdp_test *t, const char *path)
{
    enum {
        NORMAL = 1,
        UNKNOWN = 2,
        CONTROL = 3,
        BYTE = 6
    };
    static const char trainer_spec[] = {0x12, 0x05, 0x18, 0x01, (char)0x98, 0x02, 0x01};
    static const char normalizer_spec[] = "\x1A\x0A\x0A\x08identity";
    char model[8192], name[8];
    size_t bytes = 0;
    add_piece(model, &bytes, "<pad>", 0, CONTROL);
    add_piece(model, &bytes, "</s>", 0, CONTROL);
    add_piece(model, &bytes, "<unk>", 0, UNKNOWN);
    for (int i = 0; i < 256; i++) {
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        add_piece(model, &bytes, name, 0, BYTE);
    }
    add_piece(model, &bytes, "\xE2\x96\x81", -1, NORMAL);
    add_piece(model, &bytes, "a", -2, NORMAL);
    add_piece(model, &bytes, "b", -2, NORMAL);
    add_piece(model, &bytes, "\xE2\x96\x81\x61", -2, NORMAL);
    memcpy(model + bytes, trainer_spec, sizeof trainer_spec);
    bytes += sizeof trainer_spec;
    memcpy(model + bytes, normalizer_spec, sizeof normalizer_spec - 1);
    bytes += sizeof normalizer_spec - 1;
    ASSERT_OK(fsdp_file_write(path, model, bytes));
}

/* With a unigram model too, text that no piece covers becomes its UTF-8 bytes, and decoding
 * restores it. */
TEST(byte_pieces_of_a_unigram_model_are_those_of_the_text)
{
    NEEDS_UNICODE();
    enum {
        FIRST_BYTE = 3,
        SPACE = 259,
        A,
        B,
        SPACE_A
    };
    const int32_t expected[] = {SPACE_A, B, SPACE, FIRST_BYTE + 0xC3, FIRST_BYTE + 0xA9, A, B,
                                SPACE,   B, 1};
    static const char text[] = "ab \xC3\xA9\x61\x62 b";
    fsdp_tokenizer *tokenizer;
    fsdp_token_list list = {0};
    char path[512], *back;
    snprintf(path, sizeof path, "%s/spiece.model", fsdp_test_dir(t));
    write_byte_fallback_model(t, path);
    CHECK_HERE();
    ASSERT_OK(fsdp_tokenizer_open(path, &tokenizer));
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, text, strlen(text), 0, &list));
    ASSERT_INT(list.len, sizeof expected / sizeof *expected);
    for (size_t i = 0; i < list.len; i++)
        ASSERT_INT(list.ids[i], expected[i]);
    ASSERT_OK(
        fsdp_tokenizer_decode(tokenizer, list.ids, list.len, FSDP_DECODE_SKIP_SPECIAL, &back));
    ASSERT_STR(back, text);
    fsdp_text_free(back);
    fsdp_token_list_fini(&list);
    fsdp_tokenizer_close(tokenizer);
}

/* extra_ids in tokenizer_config.json, as in mT5. */
TEST(the_number_of_sentinels_comes_from_the_configuration)
{
    NEEDS_UNICODE();
    const char *dir = fsdp_test_dir(t);
    char from[512], to[512], config[512];
    snprintf(from, sizeof from, "%s/spiece.model", model_dir());
    snprintf(to, sizeof to, "%s/spiece.model", dir);
    snprintf(config, sizeof config, "%s/tokenizer_config.json", dir);
    ASSERT_OK(fsdp_file_copy(from, to));
    write_text(t, config, "{\"extra_ids\": 3}");
    CHECK_HERE();
    fsdp_tokenizer *tokenizer;
    ASSERT_OK(fsdp_tokenizer_open(dir, &tokenizer));
    ASSERT_INT(fsdp_tokenizer_vocab_size(tokenizer), 32003);
    fsdp_token_list list = {0};
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, "<extra_id_0><extra_id_2>", 24, 0, &list));
    ASSERT_INT(list.len, 3);
    ASSERT_INT(list.ids[0], 32002);
    ASSERT_INT(list.ids[1], 32000);
    list.len = 0;
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, "<extra_id_3>", 12, 0, &list));
    ASSERT(list.len > 2);
    fsdp_token_list_fini(&list);
    fsdp_tokenizer_close(tokenizer);
    write_text(t, config, "{\"extra_ids\": \"many\"}");
    CHECK_HERE();
    ASSERT_ERROR(fsdp_tokenizer_open(dir, &tokenizer), FSDP_ERR_FORMAT, "extra_ids");
}

static fsdp_status encode_text(const fsdp_tokenizer *tokenizer, const char *text,
                               fsdp_token_list *list)
{
    return fsdp_tokenizer_encode(tokenizer, text, strlen(text), 0, list);
}

/* Added tokens get their ids, those of the model too. An id that transformers would not give is an
 * error. */
static void check_added_tokens(fsdp_test *t, const char *name, const char *json, const char *bad)
{
    const char *dir = fsdp_test_dir(t);
    char from[512], path[512];
    snprintf(from, sizeof from, "%s/spiece.model", model_dir());
    snprintf(path, sizeof path, "%s/spiece.model", dir);
    ASSERT_OK(fsdp_file_copy(from, path));
    snprintf(path, sizeof path, "%s/%s", dir, name);
    write_text(t, path, json);
    CHECK_HERE();
    fsdp_tokenizer *tokenizer;
    fsdp_token_list list = {0};
    ASSERT_OK(fsdp_tokenizer_open(dir, &tokenizer));
    ASSERT_OK(encode_text(tokenizer, "<sep><extra_id_7></s>newtoken", &list));
    static const int32_t expected[] = {32100, 32092, 1, 32101, 1};
    ASSERT_INT(list.len, 5);
    for (size_t i = 0; i < 5; i++)
        ASSERT_INT(list.ids[i], expected[i]);
    ASSERT_INT(fsdp_tokenizer_vocab_size(tokenizer), 32102);
    ASSERT_INT(fsdp_tokenizer_first_sentinel(tokenizer), 32099);
    fsdp_token_list_fini(&list);
    fsdp_tokenizer_close(tokenizer);
    write_text(t, path, bad);
    CHECK_HERE();
    ASSERT_ERROR(fsdp_tokenizer_open(dir, &tokenizer), FSDP_ERR_FORMAT, name);
    ASSERT_OK(fsdp_tree_remove(path));
}

TEST(added_tokens_get_their_ids)
{
    static const char path[] = "added_tokens.json";
    check_added_tokens(t, path, "{\"newtoken\": 32101, \"<sep>\": 32100, \"<extra_id_7>\": 32092}",
                       "{\"<sep>\": \"many\"}");
    CHECK_HERE();
    check_added_tokens(t, path, "{\"<sep>\": 32100, \"newtoken\": 32101, \"<extra_id_7>\": 32092}",
                       "{\"<sep>\": 32105}");
    CHECK_HERE();
    check_added_tokens(t, "tokenizer_config.json",
                       "{\"added_tokens_decoder\": {\"1\": {\"content\": \"</s>\"}, "
                       "\"32101\": {\"content\": \"newtoken\"}, "
                       "\"32092\": {\"content\": \"<extra_id_7>\"}, "
                       "\"32100\": {\"content\": \"<sep>\", \"lstrip\": true}}}",
                       "{\"added_tokens_decoder\": {\"x\": {\"content\": \"<sep>\"}}}");
}

/* Texts begin with <s> unless the tokenizer's configuration says otherwise. */
TEST(whether_texts_begin_with_bos_comes_from_the_configuration)
{
    NEEDS_UNICODE();
    const char *dir = fsdp_test_dir(t);
    char from[512], path[512];
    fsdp_tokenizer *tokenizer;
    fsdp_token_list list = {0};
    llama_dir(from);
    strcat(from, "/tokenizer.model");
    snprintf(path, sizeof path, "%s/tokenizer.model", dir);
    ASSERT_OK(fsdp_file_copy(from, path));
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    write_text(t, path, "{\"add_bos_token\": false}");
    CHECK_HERE();
    ASSERT_OK(fsdp_tokenizer_open(dir, &tokenizer));
    ASSERT_INT(fsdp_tokenizer_bos_id(tokenizer), -1);
    ASSERT_OK(encode_text(tokenizer, "<s>", &list));
    ASSERT_INT(list.len, 1);
    ASSERT_INT(list.ids[0], 1);
    fsdp_token_list_fini(&list);
    fsdp_tokenizer_close(tokenizer);
    write_text(t, path, "{\"add_bos_token\": true}");
    CHECK_HERE();
    ASSERT_OK(fsdp_tokenizer_open(dir, &tokenizer));
    ASSERT_INT(fsdp_tokenizer_bos_id(tokenizer), 1);
    fsdp_tokenizer_close(tokenizer);
}

/* A decoder written from the definition. */
static size_t naive_valid_length(const unsigned char *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        size_t length = p[i] < 0x80 ? 1 : p[i] >> 5 == 6 ? 2 : p[i] >> 4 == 14 ? 3 : 4;
        if (p[i] >> 6 == 2 || p[i] >> 3 == 31 || i + length > n)
            return i;
        uint32_t point = length == 1 ? p[i] : p[i] & (0x7Fu >> length);
        for (size_t k = 1; k < length; k++) {
            if (p[i + k] >> 6 != 2)
                return i;
            point = point << 6 | (p[i + k] & 0x3Fu);
        }
        static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        if (point < least[length] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000))
            return i;
        i += length;
    }
    return n;
}

/* Every sequence of one to four bytes, from a set that has each class of the standard's table, gets
 * the same result as with the naive decoder. */
TEST(utf8_is_judged_as_the_standard_does)
{
    static const unsigned char bytes[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                          0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEE, 0xEF,
                                          0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFF};
    enum {
        COUNT = sizeof bytes
    };
    for (int code = 0; code < COUNT * COUNT * COUNT * COUNT; code++) {
        unsigned char text[12];
        memset(text, 'x', sizeof text);
        int rest = code;
        for (int k = 0; k < 4; k++, rest /= COUNT)
            text[4 + k] = bytes[rest % COUNT];
        size_t expected = naive_valid_length(text, sizeof text);
        size_t actual = fsdp_utf8_valid_length((const char *)text, sizeof text);
        if (actual != expected)
            FAIL("%02x %02x %02x %02x: %zu instead of %zu", text[4], text[5], text[6], text[7],
                 actual, expected);
    }
    ASSERT_INT(fsdp_utf8_count("a\xC3\xA4\xF0\x9F\x98\x80", 7), 3);
}
