/* Every part of a tokenizer.json against the tokenizers library: ids, offsets, type ids and decoded
 * texts of fixtures/text/pipeline.jsonl, which fixtures/text/make_pipeline.py made. */
#include <fsdp/text.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "tests/test.h"

/* Use at the start of a test that needs both libraries of the pipeline. */
#if defined(FSDP_HAVE_PCRE2) && defined(FSDP_HAVE_UTF8PROC)
#define NEEDS_PIPELINE() ((void)0)
#else
#define NEEDS_PIPELINE() SKIP("built without PCRE2 or utf8proc")
#endif

enum {
    MODELS = 2
};

typedef struct fixture {
    fsdp_json *models[MODELS]; /* {"model": name, "json": text} */
    int n_models;
    fsdp_tokenizer *tokenizer; /* the tokenizer that the next rows use */
    char name[64], path[512];
    int tokenizers, cases;
} fixture;

static const char *string_of(fsdp_json_node node, const char *key)
{
    const char *text = NULL;
    return fsdp_json_get_str(node, key, &text) == FSDP_OK ? text : "";
}

static void open_tokenizer(fsdp_test *t, fixture *f, fsdp_json_node row)
{
    const char *model = "", *name = string_of(row, "model");
    for (int i = 0; i < f->n_models; i++)
        if (strcmp(string_of(fsdp_json_root(f->models[i]), "model"), name) == 0)
            model = string_of(fsdp_json_root(f->models[i]), "json");
    char *json = fsdp_strdup_printf("{%s, \"model\": %s}", string_of(row, "parts"), model);
    ASSERT(json);
    ASSERT_OK(fsdp_file_write(f->path, json, strlen(json)));
    fsdp_free(json);
    fsdp_tokenizer_close(f->tokenizer);
    f->tokenizer = NULL;
    snprintf(f->name, sizeof f->name, "%s", string_of(row, "name"));
    if (fsdp_tokenizer_open(f->path, &f->tokenizer) != FSDP_OK)
        FAIL("%s: %s", f->name, fsdp_last_error());
    f->tokenizers++;
}

/* Compare numbers [count], which are `stride` int32_t apart. */
static void check_numbers(fsdp_test *t, const fixture *f, fsdp_json_node row, const char *key,
                          const void *numbers, size_t stride, size_t count)
{
    int64_t *expected = NULL;
    size_t n = 0;
    ASSERT_OK(fsdp_json_get_i64s(row, key, 0, INT32_MAX, &expected, &n));
    bool same = n == count;
    size_t i = 0;
    for (; same && i < n; i++)
        same = expected[i] == ((const int32_t *)numbers)[i * stride];
    const long long wanted = i && i <= n ? (long long)expected[i - 1] : -1;
    fsdp_free(expected);
    if (!same)
        FAIL("%s: '%s': %s: %zu instead of %zu, or number %zu is not %lld", f->name,
             string_of(row, "text"), key, count, n, i, wanted);
}

static void check_decoded(fsdp_test *t, const fixture *f, fsdp_json_node row, const char *key,
                          unsigned flags, const fsdp_token_list *ids)
{
    char *text;
    ASSERT_OK(fsdp_tokenizer_decode(f->tokenizer, ids->ids, ids->len, flags, &text));
    const bool same = strcmp(text, string_of(row, key)) == 0;
    if (!same)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s: '%s' instead of '%s'", f->name, key, text,
                       string_of(row, key));
    fsdp_text_free(text);
}

/* Without offsets, the ids are the same. */
static void check_fast_ids(fsdp_test *t, const fixture *f, const char *text, const char *pair,
                           const fsdp_encoding *e)
{
    fsdp_token_list list = {0};
    fsdp_encoding fast = {0};
    ASSERT_OK(fsdp_tokenizer_encode_pair(f->tokenizer, text, strlen(text), pair,
                                         pair ? strlen(pair) : 0, NULL, &fast));
    ASSERT_INT(fast.ids.len, e->ids.len);
    for (size_t i = 0; i < fast.ids.len; i++)
        ASSERT_INT(fast.ids.ids[i], e->ids.ids[i]);
    if (!pair) {
        ASSERT_OK(fsdp_tokenizer_encode(f->tokenizer, text, strlen(text), 0, &list));
        ASSERT_INT(list.len, e->ids.len);
        for (size_t i = 0; i < list.len; i++)
            ASSERT_INT(list.ids[i], e->ids.ids[i]);
    }
    fsdp_encoding_fini(&fast);
    fsdp_token_list_fini(&list);
}

static void check_case(fsdp_test *t, fixture *f, fsdp_json_node row)
{
    const fsdp_encode_options options = {.offsets = FSDP_OFFSETS_CHARACTERS};
    const char *text = string_of(row, "text");
    const char *pair = fsdp_json_has(row, "pair") ? string_of(row, "pair") : NULL;
    fsdp_encoding e = {0};
    ASSERT(f->tokenizer);
    if (fsdp_tokenizer_encode_pair(f->tokenizer, text, strlen(text), pair, pair ? strlen(pair) : 0,
                                   &options, &e) != FSDP_OK)
        FAIL("%s: '%s': %s", f->name, text, fsdp_last_error());
    check_numbers(t, f, row, "ids", e.ids.ids, 1, e.ids.len);
    check_numbers(t, f, row, "types", e.type_ids, 1, e.ids.len);
    check_numbers(t, f, row, "begin", e.offsets, 2, e.ids.len); /* begin is the first member */
    check_numbers(t, f, row, "end", e.offsets ? (const void *)&e.offsets->end : NULL, 2, e.ids.len);
    check_decoded(t, f, row, "decoded", 0, &e.ids);
    check_decoded(t, f, row, "skipped", FSDP_DECODE_SKIP_SPECIAL, &e.ids);
    check_fast_ids(t, f, text, pair, &e);
    fsdp_encoding_fini(&e);
    f->cases++;
}

static void check_line(fsdp_test *t, fixture *f, fsdp_json *doc, bool *keep)
{
    fsdp_json_node row = fsdp_json_root(doc);
    *keep = fsdp_json_has(row, "json");
    if (*keep) {
        ASSERT(f->n_models < MODELS);
        f->models[f->n_models++] = doc;
    } else if (fsdp_json_has(row, "parts")) {
        open_tokenizer(t, f, row);
    } else {
        check_case(t, f, row);
    }
}

TEST(each_part_of_a_tokenizer_does_what_the_tokenizers_library_does)
{
    NEEDS_PIPELINE();
    fixture f = {0};
    char *lines = NULL;
    size_t bytes = 0;
    snprintf(f.path, sizeof f.path, "%s/tokenizer.json", fsdp_test_dir(t));
    ASSERT_OK(
        fsdp_file_read(fsdp_test_path("fixtures/text/pipeline.jsonl"), 1 << 24, &lines, &bytes));
    int number = 1;
    for (char *line = lines; *line && !t->failed; number++) {
        const size_t length = strcspn(line, "\n");
        fsdp_json *doc;
        bool keep = false;
        ASSERT_OK(fsdp_json_parse("pipeline.jsonl", number, line, length, &doc));
        check_line(t, &f, doc, &keep);
        if (!keep)
            fsdp_json_destroy(doc);
        line += length + (line[length] == '\n');
    }
    fsdp_tokenizer_close(f.tokenizer);
    for (int i = 0; i < f.n_models; i++)
        fsdp_json_destroy(f.models[i]);
    fsdp_free(lines);
    CHECK_HERE();
    /* 16 texts for each tokenizer, and 11 more for each of the two with UnicodeScripts */
    ASSERT(f.tokenizers >= 57 && f.cases == 16 * f.tokenizers + 22);
}

/* ---- a small tokenizer.json ---- */

#define VOCAB                                                                                      \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,\"<s>\":1,"        \
    "\"</s>\":2,\"a\":3,\"b\":4,\"c\":5,\" \":6},\"merges\":[]}"
#define ADDED                                                                                      \
    "\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true},"                           \
    "{\"id\":2,\"content\":\"</s>\",\"special\":true},{\"id\":7,\"content\":\"bb\"}],"

static void open_text(fsdp_test *t, const char *json, fsdp_tokenizer **tokenizer)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizer.json", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, json, strlen(json)));
    ASSERT_OK(fsdp_tokenizer_open(path, tokenizer));
}

static void check_pair(fsdp_test *t, const fsdp_tokenizer *tokenizer, fsdp_encode_options options,
                       const char *expected)
{
    fsdp_encoding e = {0};
    char text[256] = "";
    ASSERT_OK(fsdp_tokenizer_encode_pair(tokenizer, "aaaaa", 5, "bcb", 3, &options, &e));
    for (size_t i = 0; i < e.ids.len; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%d ", (int)e.ids.ids[i]);
    ASSERT_STR(text, expected);
    fsdp_encoding_fini(&e);
}

/* The expected ids are those of the library's truncation strategies. */
TEST(pairs_are_truncated_as_in_transformers)
{
    fsdp_tokenizer *tokenizer = NULL;
    open_text(t, "{" ADDED VOCAB "}", &tokenizer);
    CHECK_HERE();
    check_pair(t, tokenizer, (fsdp_encode_options){.max_length = 8}, "3 3 3 3 3 4 5 4 ");
    check_pair(t, tokenizer, (fsdp_encode_options){.max_length = 7}, "3 3 3 3 4 5 4 ");
    check_pair(t, tokenizer, (fsdp_encode_options){.max_length = 5}, "3 3 3 4 5 ");
    check_pair(t, tokenizer, (fsdp_encode_options){.max_length = 3}, "3 3 4 ");
    check_pair(t, tokenizer, (fsdp_encode_options){.max_length = 4, .truncate_left = true},
               "3 3 5 4 ");
    check_pair(t, tokenizer,
               (fsdp_encode_options){.max_length = 4, .truncation = FSDP_TRUNCATION_ONLY_FIRST},
               "3 4 5 4 ");
    check_pair(t, tokenizer,
               (fsdp_encode_options){.max_length = 6, .truncation = FSDP_TRUNCATION_ONLY_SECOND},
               "3 3 3 3 3 4 ");
    fsdp_encoding e = {0};
    ASSERT_ERROR(
        fsdp_tokenizer_encode_pair(
            tokenizer, "aaaaa", 5, "bcb", 3,
            &(fsdp_encode_options){.max_length = 3, .truncation = FSDP_TRUNCATION_ONLY_FIRST}, &e),
        FSDP_ERR_INVALID, "the first text has 5 tokens");
    ASSERT_ERROR(
        fsdp_tokenizer_encode_pair(
            tokenizer, "aaaaa", 5, NULL, 0,
            &(fsdp_encode_options){.max_length = 3, .truncation = FSDP_TRUNCATION_ONLY_SECOND}, &e),
        FSDP_ERR_INVALID, "there is only one");
    ASSERT_ERROR(fsdp_tokenizer_encode_pair(tokenizer, "a", 1, NULL, 0,
                                            &(fsdp_encode_options){.max_length = -1}, &e),
                 FSDP_ERR_INVALID, "-1");
    fsdp_encoding_fini(&e);
    fsdp_tokenizer_close(tokenizer);
}

/* Offsets in bytes: a character of two bytes that is unknown. */
TEST(offsets_count_bytes_or_characters)
{
    fsdp_tokenizer *tokenizer = NULL;
    fsdp_encoding e = {0};
    open_text(t, "{" ADDED VOCAB "}", &tokenizer);
    CHECK_HERE();
    for (int bytes = 0; bytes < 2; bytes++) {
        ASSERT_OK(fsdp_tokenizer_encode_pair(
            tokenizer, "\u00e9<s>b", 6, NULL, 0,
            &(fsdp_encode_options){.offsets = bytes ? FSDP_OFFSETS_BYTES : FSDP_OFFSETS_CHARACTERS},
            &e));
        ASSERT_INT(e.ids.len, 3);
        ASSERT_INT(e.offsets[0].end, bytes ? 2 : 1);
        ASSERT_INT(e.offsets[1].begin, bytes ? 2 : 1);
        ASSERT_INT(e.offsets[1].end, bytes ? 5 : 4);
        ASSERT_INT(e.offsets[2].end, bytes ? 6 : 5);
        ASSERT_INT(e.texts[1], 0);
    }
    fsdp_encoding_fini(&e);
    fsdp_tokenizer_close(tokenizer);
}

TEST(tokens_are_found_by_name_and_text)
{
    fsdp_tokenizer *tokenizer = NULL;
    open_text(t, "{" ADDED VOCAB "}", &tokenizer);
    CHECK_HERE();
    ASSERT_INT(fsdp_tokenizer_vocab_size(tokenizer), 8);
    ASSERT_INT(fsdp_tokenizer_token_id(tokenizer, "eos_token"), 2);
    ASSERT_INT(fsdp_tokenizer_token_id(tokenizer, "mask_token"), -1);
    ASSERT_INT(fsdp_tokenizer_token_id(tokenizer, "bb"), 7);
    ASSERT_INT(fsdp_tokenizer_token_id(tokenizer, "a"), 3);
    ASSERT_INT(fsdp_tokenizer_token_id(tokenizer, "nothing"), -1);
    ASSERT_STR(fsdp_tokenizer_token_text(tokenizer, 7), "bb");
    ASSERT(!fsdp_tokenizer_token_text(tokenizer, 8) && !fsdp_tokenizer_token_text(tokenizer, -1));
    ASSERT(fsdp_tokenizer_is_special(tokenizer, 1) && !fsdp_tokenizer_is_special(tokenizer, 7));
    ASSERT_INT(fsdp_tokenizer_bos_id(tokenizer), -1);
    ASSERT(!fsdp_tokenizer_appends_eos(tokenizer));
    fsdp_tokenizer_close(tokenizer);
}

/* ---- errors ---- */

TEST(unknown_members_types_and_values_are_named)
{
    static const char *const wrong[][2] = {
        {"\"normalizer\":{\"type\":\"Upper\"},", "normalizer.type: expected a normalizer"},
        {"\"normalizer\":{\"type\":\"NFC\",\"x\":1},", "normalizer.x: expected no such field"},
        {"\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Strip\","
         "\"strip_left\":1,\"strip_right\":true}]},",
         "normalizer.normalizers[0].strip_left: expected"},
        {"\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"?\"},",
         "precompiled_charsmap: not base64"},
        {"\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"},",
         "size of a trie"},
        {"\"pre_tokenizer\":{\"type\":\"Scripts\"},", "pre_tokenizer.type: expected"},
        {"\"pre_tokenizer\":{\"type\":\"UnicodeScripts\",\"x\":1},",
         "pre_tokenizer.x: expected no such field"},
        {"\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Text\":\"x\"},\"invert\":false,"
         "\"behavior\":\"Removed\"},",
         "pre_tokenizer.pattern"},
        {"\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"invert\":false,"
         "\"behavior\":\"removed\"},",
         "pre_tokenizer.behavior"},
        {"\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"__\"},",
         "pre_tokenizer.replacement: expected one character"},
        {"\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":"
         "false},",
         "pre_tokenizer.add_prefix_space"},
        {"\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
         "{\"id\":\"x\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{}},",
         "post_processor.single[0].SpecialToken.id"},
        {"\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"\",1],\"cls\":[\"\",99]},",
         "the id 99 of a special token"},
        {"\"decoder\":{\"type\":\"Unknown\"},", "decoder.type: expected"},
        {"\"decoder\":{\"type\":\"CTC\"},", "decoder.pad_token: missing"},
        {"\"decoder\":{\"type\":\"CTC\",\"pad_token\":\"\",\"word_delimiter_token\":\"|\","
         "\"cleanup\":true},",
         "decoder.pad_token: expected a text that is not empty"},
        {"\"decoder\":{\"type\":\"CTC\",\"pad_token\":\"p\",\"word_delimiter_token\":\"|\","
         "\"cleanup\":true,\"more\":1},",
         "decoder.more: expected no such field"},
        {"\"version\":\"2.0\",", "version: expected"},
        {"\"normalizers\":null,", "normalizers: expected no such field"},
        {"\"added_tokens\":[{\"id\":9,\"content\":\"bb\"}],", "ids must have no holes"},
        {"\"added_tokens\":[{\"id\":4,\"content\":\"a\"}],", "'a' has the id 4"},
        {"\"added_tokens\":[{\"id\":7}],", "added_tokens[0]"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fsdp_tokenizer *tokenizer = NULL;
        char path[512], json[2048];
        snprintf(path, sizeof path, "%s/tokenizer.json", fsdp_test_dir(t));
        snprintf(json, sizeof json, "{%s" VOCAB "}", wrong[i][0]);
        ASSERT_OK(fsdp_file_write(path, json, strlen(json)));
        ASSERT(fsdp_tokenizer_open(path, &tokenizer) != FSDP_OK);
        ASSERT(!tokenizer);
        if (!strstr(fsdp_last_error(), wrong[i][1]) || !strstr(fsdp_last_error(), "tokenizer.json"))
            FAIL("the message lacks '%s': %s", wrong[i][1], fsdp_last_error());
    }
}

#define EVERYTHING                                                                                 \
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Replace\",\"pattern\":"    \
    "{\"String\":\"x\"},\"content\":\"a\"},{\"type\":\"Prepend\",\"prepend\":\"b\"}]},"            \
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},"  \
    "{\"type\":\"Metaspace\",\"replacement\":\"_\"}]},"                                            \
    "\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"\",1],\"cls\":[\"\",2]},"          \
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},"                \
    "{\"type\":\"WordPiece\",\"prefix\":\"#\",\"cleanup\":true}]},"

static fsdp_status use_tokenizer(const char *path)
{
    fsdp_tokenizer *tokenizer = NULL;
    fsdp_encoding e = {0};
    char *text = NULL;
    fsdp_status status = fsdp_tokenizer_open(path, &tokenizer);
    if (status == FSDP_OK)
        status = fsdp_tokenizer_encode_pair(
            tokenizer, "ab x<s>bb", 9, "c", 1,
            &(fsdp_encode_options){.offsets = FSDP_OFFSETS_CHARACTERS}, &e);
    if (status == FSDP_OK)
        status =
            fsdp_tokenizer_decode(tokenizer, e.ids.ids, e.ids.len, FSDP_DECODE_CLEAN_UP, &text);
    fsdp_text_free(text);
    fsdp_encoding_fini(&e);
    fsdp_tokenizer_close(tokenizer);
    return status;
}

/* The n-th allocation fails, for every n: the error is reported and nothing leaks. */
TEST(failing_allocations_are_reported)
{
    char path[512];
    static const char json[] = "{" EVERYTHING ADDED VOCAB "}";
    snprintf(path, sizeof path, "%s/tokenizer.json", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, json, sizeof json - 1));
    ASSERT_OK(use_tokenizer(path));
    fsdp_status status = FSDP_ERR_NOMEM;
    long n = 1;
    for (; status != FSDP_OK && n < 5000; n++) {
        fsdp_alloc_fail_at(n);
        status = use_tokenizer(path);
        fsdp_alloc_fail_at(0);
        if (status != FSDP_OK)
            ASSERT_INT(status, FSDP_ERR_NOMEM);
    }
    ASSERT(n > 100 && n < 5000);
}

/* The texts are those of the tokenizers library, 0.22: decoders.CTC() and Sequence([CTC, Fuse,
 * Replace]). */
TEST(frames_of_speech_are_decoded)
{
    static const char json[] =
        "{\"version\":\"1.0\",\"decoder\":%s,\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"h\","
        "\"vocab\":{\"<pad>\":0,\"h\":1,\"e\":2,\"l\":3,\"o\":4,\"|\":5,\"'s\":6,\"?\":7,\"a\":8,"
        "\"do not\":9,\" n't\":10,\"x<pad>y\":11,\" .\":12,\". \":13,\" \":14}}}";
    static const char *const decoders[] = {
        "{\"type\":\"CTC\",\"pad_token\":\"<pad>\",\"word_delimiter_token\":\"|\",\"cleanup\":"
        "true}",
        "{\"type\":\"CTC\",\"pad_token\":\"<pad>\",\"word_delimiter_token\":\"|\",\"cleanup\":"
        "false}",
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"CTC\",\"pad_token\":\"<pad>\","
        "\"word_delimiter_token\":\"|\",\"cleanup\":true},{\"type\":\"Fuse\"},{\"type\":"
        "\"Replace\","
        "\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]}"};
    static const struct {
        int n;
        int32_t ids[16];
        const char *texts[3]; /* one for each decoder */
    } cases[] = {
        {15,
         {0, 1, 1, 0, 2, 3, 0, 3, 4, 5, 5, 0, 5, 6, 7},
         {"hello  's?", "hello||'s?", "hello__'s?"}},
        {6, {8, 14, 9, 5, 10, 11}, {"a do not n'txy", "a do not| n'txy", "a_do_not_n'txy"}},
        {3, {12, 5, 13}, {". . ", " .|. ", "._._"}},
        {1, {0}, {"", "", ""}},
        {3, {8, 0, 8}, {"aa", "aa", "aa"}},
        {2, {5, 5}, {" ", "|", "_"}},
        {0, {0}, {"", "", ""}},
    };
    for (size_t d = 0; d < 3; d++) {
        char path[512], text[1500], *decoded;
        fsdp_tokenizer *tokenizer;
        snprintf(path, sizeof path, "%s/tokenizer.json", fsdp_test_dir(t));
        snprintf(text, sizeof text, json, decoders[d]);
        ASSERT_OK(fsdp_file_write(path, text, strlen(text)));
        ASSERT_OK(fsdp_tokenizer_open(path, &tokenizer));
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            ASSERT_OK(
                fsdp_tokenizer_decode(tokenizer, cases[i].ids, (size_t)cases[i].n, 0, &decoded));
            ASSERT_STR(decoded, cases[i].texts[d]);
            fsdp_text_free(decoded);
        }
        fsdp_tokenizer_close(tokenizer);
    }
}

/* T5's two steps are done at once where only ids are wanted (marks_words in pre_tokenizer_ops.h):
 * the ids must be those of the two steps, also where a word contains the mark itself or white space
 * is not ASCII. */
TEST(words_get_their_marks_in_one_step)
{
    static const char json[] =
        "{\"version\":\"1.0\",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
        "{\"type\":\"WhitespaceSplit\"},{\"type\":\"Metaspace\",\"replacement\":\"\u2581\","
        "\"prepend_scheme\":\"always\"}]},"
        "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"\u2581a\":1,"
        "\"\u2581bc\":2,\"\u2581\":3,\"\u2581\u201dx\":4,\"\u2581a\u201d\":5}}}";
    static const struct {
        const char *text;
        int n, ids[6];
    } cases[] = {
        {"a", 1, {1}},
        {"  a bc\t\n", 2, {1, 2}},
        {"a\u00a0bc\u3000a", 3, {1, 2, 1}},
        {"\u2581a bc", 2, {1, 2}},
        {"a\u2581bc", 2, {1, 2}},
        {"a\u2581\u2581bc\u2581 a", 5, {1, 3, 2, 3, 1}},
        {"\u201dx a\u201d ab", 3, {4, 5, 0}},
        {" \u00a0 ", 0, {0}},
    };
    fsdp_tokenizer *tokenizer = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizer.json", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, json, sizeof json - 1));
    ASSERT_OK(fsdp_tokenizer_open(path, &tokenizer));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fsdp_encode_options options = {.offsets = FSDP_OFFSETS_CHARACTERS};
        const size_t length = strlen(cases[i].text);
        fsdp_token_list list = {0};
        fsdp_encoding e = {0};
        ASSERT_OK(fsdp_tokenizer_encode(tokenizer, cases[i].text, length, 0, &list));
        ASSERT_OK(
            fsdp_tokenizer_encode_pair(tokenizer, cases[i].text, length, NULL, 0, &options, &e));
        ASSERT_INT(list.len, cases[i].n);
        ASSERT_INT(e.ids.len, cases[i].n);
        for (int k = 0; k < cases[i].n; k++) {
            ASSERT_INT(list.ids[k], cases[i].ids[k]);
            ASSERT_INT(e.ids.ids[k], cases[i].ids[k]);
        }
        fsdp_token_list_fini(&list);
        fsdp_encoding_fini(&e);
    }
    fsdp_tokenizer_close(tokenizer);
}

/* The text is cut before the template is filled in, as the tokenizers library does it. */
TEST(a_template_may_have_the_cut_text_twice)
{
    NEEDS_PIPELINE();
    static const char json[] =
        "{\"version\":\"1.0\",\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},"
        "\"post_processor\":{\"type\":\"TemplateProcessing\","
        "\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
        "{\"SpecialToken\":{\"id\":\"s\",\"type_id\":0}},"
        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
        "\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
        "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],"
        "\"special_tokens\":{\"s\":{\"id\":\"s\",\"ids\":[3],\"tokens\":[\"s\"]}}},"
        "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"u\","
        "\"vocab\":{\"u\":0,\"a\":1,\"b\":2,\"s\":3}}}";
    static const struct {
        int max_length, n, ids[9];
    } cases[] = {{0, 9, {1, 2, 1, 2, 3, 1, 2, 1, 2}}, {3, 5, {1, 2, 3, 1, 2}}, {2, 3, {1, 3, 1}}};
    fsdp_tokenizer *tokenizer = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizer.json", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, json, sizeof json - 1));
    ASSERT_OK(fsdp_tokenizer_open(path, &tokenizer));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_token_list list = {0};
        ASSERT_OK(fsdp_tokenizer_encode(tokenizer, "a b a b", 7, cases[i].max_length, &list));
        ASSERT_INT(list.len, cases[i].n);
        for (int k = 0; k < cases[i].n; k++)
            ASSERT_INT(list.ids[k], cases[i].ids[k]);
        fsdp_token_list_fini(&list);
    }
    fsdp_tokenizer_close(tokenizer);
}

/* The text ends where a page ends, and the next page cannot be read. */
TEST(no_step_reads_beyond_the_end_of_the_text)
{
    NEEDS_PIPELINE();
    static const char *const steps[] = {"{\"type\":\"UnicodeScripts\"}",
                                        "{\"type\":\"Whitespace\"}",
                                        "{\"type\":\"WhitespaceSplit\"}",
                                        "{\"type\":\"Punctuation\",\"behavior\":\"Isolated\"}",
                                        "{\"type\":\"Digits\",\"individual_digits\":true}",
                                        "{\"type\":\"FixedLength\",\"length\":2}"};
    static const char *const texts[] = {"a", "a b", "\u3042a", "1.", "a\u3042", "\U0001F600"};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT(pages != MAP_FAILED);
    ASSERT(mprotect(pages + page, page, PROT_NONE) == 0);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        fsdp_tokenizer *tokenizer = NULL;
        char path[512], json[400];
        snprintf(path, sizeof path, "%s/tokenizer.json", fsdp_test_dir(t));
        const int n = snprintf(json, sizeof json,
                               "{\"version\":\"1.0\",\"pre_tokenizer\":%s,\"model\":{\"type\":"
                               "\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{\"u\":0}}}",
                               steps[i]);
        ASSERT_OK(fsdp_file_write(path, json, (size_t)n));
        ASSERT_OK(fsdp_tokenizer_open(path, &tokenizer));
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            fsdp_token_list list = {0};
            const size_t length = strlen(texts[k]);
            memcpy(pages + page - length, texts[k], length);
            ASSERT_OK(fsdp_tokenizer_encode(tokenizer, pages + page - length, length, 0, &list));
            ASSERT(list.len > 0);
            fsdp_token_list_fini(&list);
        }
        fsdp_tokenizer_close(tokenizer);
    }
    munmap(pages, 2 * page);
}

/* As transformers 5 does, BPE is cleaned up only if a second key says so. */
TEST(spaces_of_bpe_are_cleaned_up_if_two_keys_say_so)
{
    static const char json[] =
        "{\"version\":\"1.0\",\"pre_tokenizer\":null,\"model\":{\"type\":\"BPE\","
        "\"vocab\":{\"a\":0,\" \":1,\",\":2},\"merges\":[]}}";
    static const struct {
        const char *config, *text;
    } cases[] = {
        {"{\"clean_up_tokenization_spaces\": true}", "a   ,"},
        {"{\"clean_up_tokenization_spaces\": true, "
         "\"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output\": true}",
         "a  ,"},
        {"{\"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output\": true}",
         "a   ,"}};
    static const int32_t ids[] = {0, 1, 2};
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizer.json", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, json, sizeof json - 1));
    snprintf(path, sizeof path, "%s/tokenizer_config.json", fsdp_test_dir(t));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_tokenizer *tokenizer = NULL;
        char *text = NULL;
        ASSERT_OK(fsdp_file_write(path, cases[i].config, strlen(cases[i].config)));
        ASSERT_OK(fsdp_tokenizer_open(fsdp_test_dir(t), &tokenizer));
        ASSERT_OK(fsdp_tokenizer_decode(tokenizer, ids, 3, FSDP_DECODE_TEXT, &text));
        ASSERT_STR(text, cases[i].text);
        fsdp_text_free(text);
        fsdp_tokenizer_close(tokenizer);
    }
}

/* As tokenizer_config.json says, and only if the caller asks for it. */
TEST(spaces_are_cleaned_up_if_the_folder_says_so)
{
    static const char json[] =
        "{\"version\":\"1.0\",\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"model\":{\"type\":"
        "\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1,\",\":2,\"n't\":3}}}";
    static const struct {
        const char *config;
        unsigned flags;
        const char *text;
    } cases[] = {{"{\"clean_up_tokenization_spaces\": true}", FSDP_DECODE_TEXT, "an't, a"},
                 {"{\"clean_up_tokenization_spaces\": true}", 0, "a n't , a"},
                 {"{\"clean_up_tokenization_spaces\": false}", FSDP_DECODE_TEXT, "a n't , a"},
                 {"{\"clean_up_tokenization_spaces\": false}", FSDP_DECODE_CLEAN_UP, "an't, a"},
                 {"{}", FSDP_DECODE_TEXT, "a n't , a"}};
    static const int32_t ids[] = {1, 3, 2, 1};
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizer.json", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, json, sizeof json - 1));
    snprintf(path, sizeof path, "%s/tokenizer_config.json", fsdp_test_dir(t));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_tokenizer *tokenizer = NULL;
        char *text = NULL;
        ASSERT_OK(fsdp_file_write(path, cases[i].config, strlen(cases[i].config)));
        ASSERT_OK(fsdp_tokenizer_open(fsdp_test_dir(t), &tokenizer));
        ASSERT_OK(fsdp_tokenizer_decode(tokenizer, ids, 4, cases[i].flags, &text));
        ASSERT_STR(text, cases[i].text);
        fsdp_text_free(text);
        fsdp_tokenizer_close(tokenizer);
    }
}
