/* Models of tokenizers against the tokenizers library, whose results are in
 * fixtures/text/models.jsonl (made by make_models.py there), and what all models have in common. */
#include <stdio.h>

#include "src/base/io.h"
#include "src/text/chars/byte_alphabet.h"
#include "src/text/models/bpe.h"
#include "tests/text/models/models.h"

/* ---- the library's results ---- */

static void check_row(fsdp_test *t, fsdp_json_node row, fsdp_token_work *work)
{
    const char *name, *piece, *expected;
    bool raw;
    fsdp_json_node pieces;
    fsdp_token_model *model = NULL;
    ASSERT_OK(fsdp_json_get_str(row, "name", &name));
    ASSERT_OK(fsdp_json_get_bool(row, "raw", &raw));
    ASSERT_OK(fsdp_json_get_array(row, "pieces", &pieces));
    ASSERT_OK(fsdp_token_model_from_json(fsdp_json_find(row, "model"), raw, &model));
    for (size_t i = 0; i < fsdp_json_len(pieces) && !t->failed; i++) {
        fsdp_json_node entry = fsdp_json_at(pieces, i);
        ASSERT_OK(fsdp_json_get_str(fsdp_json_at(entry, 0), NULL, &piece));
        ASSERT_OK(fsdp_json_get_str(fsdp_json_at(entry, 1), NULL, &expected));
        check_tokens(t, model, work, piece, strlen(piece), expected);
    }
    if (t->failed)
        printf("    model %s\n", name);
    fsdp_token_model_destroy(model);
}

/* All rows use one work, so its cache is used with many models. */
TEST(tokens_are_those_of_the_tokenizers_library)
{
    char *lines = NULL;
    size_t bytes = 0;
    int rows = 0;
    fsdp_token_work *work = NULL;
    ASSERT_OK(fsdp_token_work_create(&work));
    ASSERT_OK(
        fsdp_file_read(fsdp_test_path("fixtures/text/models.jsonl"), 1 << 24, &lines, &bytes));
    for (char *line = lines; *line && !t->failed; rows++) {
        size_t length = strcspn(line, "\n");
        fsdp_json *doc;
        ASSERT_OK(fsdp_json_parse("models.jsonl", rows + 1, line, length, &doc));
        check_row(t, fsdp_json_root(doc), work);
        fsdp_json_destroy(doc);
        line += length + (line[length] == '\n');
    }
    fsdp_token_work_destroy(work);
    fsdp_free(lines);
    ASSERT(rows > 20);
}

/* ---- models for the other tests, one of each type ---- */

static const char *const one_of_each[] = {
    "{\"type\": \"BPE\", \"vocab\": {\"<unk>\": 0, \"a\": 1, \"b\": 3, \"ab\": 4, \"\\u2581\": 5}, "
    "\"merges\": [[\"a\", \"b\"]], \"unk_token\": \"<unk>\"}",
    "{\"type\": \"WordPiece\", \"vocab\": {\"[UNK]\": 0, \"a\": 1, \"##b\": 3}, \"unk_token\": "
    "\"[UNK]\", \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 100000000}",
    "{\"type\": \"WordLevel\", \"vocab\": {\"u\": 0, \"a\": 1, \"ab\": 3}, \"unk_token\": \"u\"}",
    "{\"type\": \"Unigram\", \"vocab\": [[\"<unk>\", 0], [\"a\", -1], [\"b\", -2], [\"ab\", -2]], "
    "\"unk_id\": 0}",
};
enum {
    MODELS = sizeof one_of_each / sizeof *one_of_each
};

TEST(ids_and_texts_are_found_both_ways)
{
    for (int i = 0; i < MODELS; i++) {
        fsdp_token_model *model = NULL;
        size_t length = 0;
        ASSERT_OK(model_from_text(one_of_each[i], false, &model));
        const fsdp_token_model_ops *ops = model->ops;
        ASSERT_INT(ops->id_of(model, "a", 1), 1);
        ASSERT_INT(ops->id_of(model, "zzz", 3), -1);
        ASSERT_INT(ops->id_of(model, "", 0), -1);
        ASSERT_STR(ops->text_of(model, 1, &length), "a");
        ASSERT_INT(length, 1);
        ASSERT(ops->text_of(model, -1, &length) == NULL);
        ASSERT(ops->text_of(model, ops->size(model), &length) == NULL);
        ASSERT_INT(ops->size(model), i == 0 ? 6 : 4);
        ASSERT_INT(ops->unk_id(model), 0);
        /* All but Unigram have a hole at 2. */
        ASSERT((ops->text_of(model, 2, &length) == NULL) == (i != 3));
        fsdp_token_model_destroy(model);
    }
    fsdp_token_model_destroy(NULL);
    fsdp_token_work_destroy(NULL);
}

/* Words that the cache does not hold: too long, or with too many tokens. And more words than it
 * has entries. */
TEST(the_cache_does_not_change_tokens)
{
    fsdp_token_model *model = NULL;
    fsdp_token_work *used = NULL, *fresh = NULL;
    char piece[40], expected[1024], actual[1024];
    uint64_t state = 1;
    ASSERT_OK(model_from_text(one_of_each[0], false, &model));
    ASSERT_OK(fsdp_token_work_create(&used));
    for (int i = 0; i < 40000 && !t->failed; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t length = 1 + (size_t)(state >> 60) + (size_t)(state >> 57 & 7) * 3;
        for (size_t k = 0; k < length; k++)
            piece[k] = "abx"[(state >> (k % 24 * 2)) % 3];
        print_tokens(model, used, piece, length, actual, sizeof actual);
        if (i % 197 != 0)
            continue;
        ASSERT_OK(fsdp_token_work_create(&fresh));
        print_tokens(model, fresh, piece, length, expected, sizeof expected);
        fsdp_token_work_destroy(fresh);
        ASSERT_STR(actual, expected);
    }
    fsdp_token_work_destroy(used);
    fsdp_token_model_destroy(model);
}

/* Words of equal length that differ in one part of the cache's key only. There are so many that
 * some have the same entry. Their tokens together have the text of the word. */
TEST(the_cache_compares_whole_words)
{
    static const char pairs[] =
        "{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"aa\": 3, \"aaaa\": 4, "
        "\"ab\": 5, "
        "\"ac\": 6, \"ba\": 7, \"bb\": 8, \"bc\": 9, \"ca\": 10, \"cb\": 11, \"cc\": 12, "
        "\"aaaaaaaa\": 13}, \"merges\": [\"a a\", \"aa aa\", \"aaaa aaaa\", \"a b\", \"a c\", \"b "
        "a\", "
        "\"b b\", \"b c\", \"c a\", \"c b\", \"c c\"]}";
    fsdp_token_model *model = NULL;
    fsdp_token_work *work = NULL;
    fsdp_token_list list = {0};
    ASSERT_OK(model_from_text(pairs, false, &model));
    ASSERT_OK(fsdp_token_work_create(&work));
    for (int i = 0; i < 4 * 6561 && !t->failed; i++) {
        char word[24], text[64] = "";
        memset(word, 'a', sizeof word);
        static const size_t places[4][2] = {{0, 8}, {8, 16}, {8, 24}, {16, 24}};
        const size_t at = places[i / 6561][0], length = places[i / 6561][1];
        for (int k = 0, rest = i % 6561; k < 8; k++, rest /= 3)
            word[at + (size_t)k] = "abc"[rest % 3];
        list.len = 0;
        ASSERT_OK(model->ops->encode_ids(model, work, word, length, &list));
        for (size_t k = 0; k < list.len; k++) {
            size_t n;
            strcat(text, model->ops->text_of(model, list.ids[k], &n));
        }
        if (strlen(text) != length || memcmp(text, word, length) != 0)
            FAIL("'%.*s' becomes '%s'", (int)length, word, text);
    }
    fsdp_token_list_fini(&list);
    fsdp_token_work_destroy(work);
    fsdp_token_model_destroy(model);
}

/* Words of two bytes and of three bytes with the same key. */
TEST(the_cache_compares_lengths)
{
    fsdp_vocabulary *vocabulary = NULL;
    fsdp_token_model *model = NULL;
    fsdp_token_work *work = NULL;
    fsdp_token_list list = {0};
    const fsdp_bpe_options options = {.raw_bytes = true};
    ASSERT_OK(fsdp_vocabulary_create(&vocabulary));
    for (int i = 0; i < 256; i++) {
        fsdp_byte_spelling s = fsdp_byte_alphabet_spell((uint8_t)i);
        ASSERT_OK(fsdp_vocabulary_add(vocabulary, s.text, s.length, i));
    }
    ASSERT_OK(fsdp_bpe_create(vocabulary, NULL, 0, &options, &model));
    ASSERT_OK(fsdp_token_work_create(&work));
    for (int i = 0; i < 2 * 65536; i++) {
        const char word[3] = {(char)(i >> 9), (char)(i >> 1), (char)(i >> 1)};
        list.len = 0;
        ASSERT_OK(model->ops->encode_ids(model, work, word, i % 2 ? 3 : 2, &list));
        ASSERT_INT(list.len, i % 2 ? 3 : 2);
    }
    fsdp_token_list_fini(&list);
    fsdp_token_work_destroy(work);
    fsdp_token_model_destroy(model);
}

/* Two models with the same vocabulary and other merges or options must not share words. */
TEST(the_cache_does_not_mix_models)
{
    static const char *const models[] = {
        "{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}",
        "{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": []}",
        "{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [], "
        "\"ignore_merges\": true}",
        "{\"type\": \"WordLevel\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"unk_token\": "
        "\"b\"}",
        "{\"type\": \"WordPiece\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"unk_token\": "
        "\"b\", \"continuing_subword_prefix\": \"\", \"max_input_chars_per_word\": 1}",
        "{\"type\": \"Unigram\", \"vocab\": [[\"a\", -1], [\"b\", -1], [\"ab\", -9]]}",
        "{\"type\": \"Unigram\", \"vocab\": [[\"a\", -1], [\"b\", -1], [\"ab\", -1]]}",
    };
    static const char *const expected[] = {"2:0:2", "0:0:1 1:1:2", "2:0:2", "2:0:2",
                                           "1:0:2", "0:0:1 1:1:2", "2:0:2"};
    fsdp_token_work *work = NULL;
    ASSERT_OK(fsdp_token_work_create(&work));
    for (int i = 0; i < 14 && !t->failed; i++) {
        fsdp_token_model *model = NULL;
        ASSERT_OK(model_from_text(models[i % 7], false, &model));
        check_tokens(t, model, work, "ab", 2, expected[i % 7]);
        fsdp_token_model_destroy(model);
    }
    fsdp_token_work_destroy(work);
}

/* A word of 600 KB takes n log n. Quadratic time would be minutes. */
TEST(long_words_are_split_in_time)
{
    enum {
        BYTES = 600000
    };
    char *piece = fsdp_calloc(BYTES, 1);
    ASSERT(piece);
    for (int i = 0; i < BYTES; i++)
        piece[i] = "ab"[i % 2];
    for (int i = 0; i < MODELS; i++) {
        fsdp_token_model *model = NULL;
        fsdp_token_work *work = NULL;
        fsdp_token_list list = {0};
        ASSERT_OK(model_from_text(one_of_each[i], false, &model));
        ASSERT_OK(fsdp_token_work_create(&work));
        ASSERT_OK(model->ops->encode_ids(model, work, piece, BYTES, &list));
        ASSERT_INT(list.len, i == 1 || i == 2 ? 1 : BYTES / 2);
        fsdp_token_list_fini(&list);
        fsdp_token_work_destroy(work);
        fsdp_token_model_destroy(model);
    }
    fsdp_free(piece);
}

/* ---- failing allocations ---- */

/* Load a model and split two pieces. */
static fsdp_status load_and_split(int i, fsdp_token_list *list)
{
    static const char piece[] = "ab\xE2\x96\x81"
                                "abababababababababababababababababababababababababababa"
                                "babababababababxbabababab";
    fsdp_token_model *model = NULL;
    fsdp_token_work *work = NULL;
    fsdp_token_spans spans = {0};
    fsdp_status status = model_from_text(one_of_each[i], false, &model);
    if (status == FSDP_OK)
        status = fsdp_token_work_create(&work);
    if (status == FSDP_OK)
        status = model->ops->encode(model, work, piece, sizeof piece - 1, &spans);
    if (status == FSDP_OK)
        status = model->ops->encode_ids(model, work, "ab", 2, list);
    fsdp_token_spans_fini(&spans);
    fsdp_token_work_destroy(work);
    fsdp_token_model_destroy(model);
    return status;
}

TEST(failing_allocations_are_reported)
{
    for (int i = 0; i < MODELS; i++) {
        fsdp_status status = FSDP_ERR_NOMEM;
        long n = 0;
        while (status == FSDP_ERR_NOMEM && n < 1000) {
            fsdp_token_list list = {0};
            fsdp_alloc_fail_at(++n);
            status = load_and_split(i, &list);
            fsdp_alloc_fail_at(0);
            ASSERT(status == FSDP_OK || list.len == 0);
            fsdp_token_list_fini(&list);
        }
        ASSERT_OK(status);
        ASSERT(n > 8);
    }
}

/* A failed encode() leaves the list as it was. */
TEST(a_failed_encode_changes_nothing)
{
    static const char marks[] =
        "{\"type\": \"BPE\", \"vocab\": {\"a\": 1, \"\\u2581\": 5}, \"merges\": [], "
        "\"unk_token\": \"<unk>\"}";
    fsdp_token_model *model = NULL;
    fsdp_token_work *work = NULL;
    fsdp_token_spans spans = {0};
    fsdp_token_list list = {0};
    ASSERT_OK(model_from_text(marks, false, &model));
    ASSERT_OK(fsdp_token_work_create(&work));
    ASSERT_OK(model->ops->encode(model, work, "a", 1, &spans));
    ASSERT_OK(model->ops->encode_ids(model, work, "a", 1, &list));
    ASSERT_ERROR(model->ops->encode(model, work, "a\xE2\x96\x81x", 5, &spans), FSDP_ERR_FORMAT,
                 "\"x\"");
    ASSERT_ERROR(model->ops->encode_ids(model, work, "a\xE2\x96\x81x", 5, &list), FSDP_ERR_FORMAT,
                 "\"<unk>\"");
    ASSERT_INT(spans.len, 1);
    ASSERT_INT(list.len, 1);
    fsdp_token_spans_fini(&spans);
    fsdp_token_list_fini(&list);
    fsdp_token_work_destroy(work);
    fsdp_token_model_destroy(model);
}
