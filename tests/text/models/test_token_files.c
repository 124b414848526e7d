/* Files of models: vocab.json and merges.txt, vocab.txt, tiktoken's, and SentencePiece's. The
 * expected tokens of T5's and of the Llama-like model are those of the tokenizers library 0.23 for
 * the vocabulary that libsentencepiece reads from the same file. */
#include <stdio.h>

#include "src/base/io.h"
#include "src/text/chars/byte_alphabet.h"
#include "src/text/models/bpe.h"
#include "src/text/models/sentencepiece_model.h"
#include "src/text/models/tiktoken.h"
#include "src/text/models/wordpiece.h"
#include "tests/text/models/models.h"

/* Write a file into the folder of the test. The path is valid until the next but one call. */
static const char *put(fsdp_test *t, const char *name, const void *data, size_t bytes)
{
    static char paths[2][600];
    static int turn;
    char *path = paths[turn ^= 1];
    snprintf(path, sizeof paths[0], "%s/%s", fsdp_test_dir(t), name);
    if (fsdp_file_write(path, data, bytes) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return path;
}

static const char *put_text(fsdp_test *t, const char *name, const char *text)
{
    return put(t, name, text, strlen(text));
}

static void check_one(fsdp_test *t, const fsdp_token_model *model, const char *piece,
                      const char *expected)
{
    fsdp_token_work *work = NULL;
    ASSERT_OK(fsdp_token_work_create(&work));
    check_tokens(t, model, work, piece, strlen(piece), expected);
    fsdp_token_work_destroy(work);
}

/* ---- GPT-2's alphabet ---- */

TEST(the_byte_alphabet_is_gpt2s)
{
    char bytes[256], spelled[512], back[512];
    size_t count = 0;
    for (int i = 0; i < 256; i++)
        bytes[i] = (char)i;
    size_t n = fsdp_byte_alphabet_from_bytes(bytes, 256, spelled);
    /* 94 printable ASCII characters have one byte, and all others two. */
    ASSERT_INT(n, 94 + 2 * (256 - 94));
    ASSERT(fsdp_byte_alphabet_to_bytes(spelled, n, back, &count));
    ASSERT_INT(count, 256);
    ASSERT(memcmp(back, bytes, 256) == 0);
    n = fsdp_byte_alphabet_from_bytes("\n a\x7F\xA0\xAD\xC3", 7, spelled);
    ASSERT(n == 13 && memcmp(spelled, "\u010A\u0120a\u0121\u0142\u0143\u00C3", 13) == 0);
    static const char *const others[] = {" ", "\u0144", "\u00AD", "\u4E2D", "\xC4", "\xC0\x80"};
    for (int i = 0; i < 6; i++)
        ASSERT(!fsdp_byte_alphabet_to_bytes(others[i], strlen(others[i]), back, &count));
}

/* ---- vocab.json and merges.txt ---- */

static const char vocab_json[] = "{\"\u0120\": 0, \"a\": 1, \"b\": 2, \"ab\": 3, \"\u0120ab\": 4}";

static fsdp_status load_bpe(fsdp_test *t, const char *merges, fsdp_token_model **out)
{
    const fsdp_bpe_options options = {.raw_bytes = true};
    const char *vocab_path = put_text(t, "vocab.json", vocab_json);
    return fsdp_bpe_load(vocab_path, put_text(t, "merges.txt", merges), &options, out);
}

TEST(vocab_json_and_merges_txt_are_read)
{
    static const char *const merges[] = {"#version: 0.2\na b\n\u0120 ab\n", "a b\r\n\u0120 ab",
                                         "#version: 0.2\r\na b\r\n\u0120 ab\r\n"};
    for (int i = 0; i < 3 && !t->failed; i++) {
        fsdp_token_model *model = NULL;
        ASSERT_OK(load_bpe(t, merges[i], &model));
        check_one(t, model, " abb", "4:0:3 2:3:4");
        fsdp_token_model_destroy(model);
    }
}

TEST(errors_of_merges_txt_name_the_line)
{
    fsdp_token_model *model = NULL;
    ASSERT_ERROR(load_bpe(t, "#version: 0.2\na b\nab c\n", &model), FSDP_ERR_FORMAT,
                 "merges.txt: line 3: the vocabulary does not contain \"c\"");
    ASSERT_ERROR(load_bpe(t, "a b\n\n", &model), FSDP_ERR_FORMAT,
                 "merges.txt: line 2: expected two tokens and one space");
    ASSERT_ERROR(load_bpe(t, "a  b\n", &model), FSDP_ERR_FORMAT, "line 1: expected two tokens");
    ASSERT_ERROR(
        load_bpe(t, "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n", &model),
        FSDP_ERR_FORMAT, "Git LFS");
    const char *path = put_text(t, "list.json", "[1]");
    ASSERT_ERROR(fsdp_bpe_load(path, path, &(fsdp_bpe_options){0}, &model), FSDP_ERR_FORMAT,
                 "expected an object from text to id");
}

/* ---- vocab.txt ---- */

TEST(vocab_txt_is_read)
{
    const fsdp_wordpiece_options bert = FSDP_WORDPIECE_BERT;
    fsdp_token_model *model = NULL;
    size_t length;
    /* White space at the end of a line belongs to no token. The last of two equal lines counts, and
     * an empty line is an id. */
    static const char text[] = "[UNK] \na\t\r\n##b\u3000\n\na\n##\u00E9";
    ASSERT_OK(fsdp_wordpiece_load(put_text(t, "vocab.txt", text), &bert, &model));
    ASSERT_INT(model->ops->size(model), 6);
    ASSERT_STR(model->ops->text_of(model, 1, &length), "a");
    ASSERT_STR(model->ops->text_of(model, 3, &length), "");
    ASSERT_INT(model->ops->unk_id(model), 0);
    check_one(t, model, "ab\u00E9", "4:0:1 2:1:2 5:2:4");
    fsdp_token_model_destroy(model);
    ASSERT_ERROR(fsdp_wordpiece_load(put_text(t, "empty.txt", ""), &bert, &model), FSDP_ERR_FORMAT,
                 "empty");
    ASSERT_ERROR(fsdp_wordpiece_load(put_text(t, "latin1.txt", "a\n\xE9\n"), &bert, &model),
                 FSDP_ERR_FORMAT, "latin1.txt");
    ASSERT_ERROR(fsdp_wordpiece_load("/nonexistent/vocab.txt", &bert, &model), FSDP_ERR_NOT_FOUND,
                 "/nonexistent/vocab.txt");
}

/* ---- tiktoken ---- */

/* Write base64 of up to 3 bytes. */
static void put_base64(const char *bytes, size_t n, char out[5])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; i++)
        bits = bits << 8 | (i < n ? (unsigned char)bytes[i] : 0u);
    for (size_t i = 0; i < 4; i++)
        out[i] = i <= n ? digits[bits >> (18 - 6 * i) & 63] : '=';
    out[4] = 0;
}

/* Write lines for the single bytes without `left_out`, then `more`. */
static void make_tiktoken(int left_out, const char *more, char *out)
{
    for (int i = 0; i < 256; i++) {
        char byte = (char)i, base64[5];
        if (i == left_out)
            continue;
        put_base64(&byte, 1, base64);
        out += sprintf(out, "%s %d\n", base64, i);
    }
    strcpy(out, more);
}

/* The tokens of "aab" depend on the rank of "ab" and "aa"; "aaa" is a token that no merge makes,
 * but a piece may be it. */
TEST(tiktokens_files_are_read)
{
    static char text[8192];
    fsdp_token_model *model = NULL;
    size_t length;
    make_tiktoken(-1, "YWI= 257\nYWE= 256\nIGE= 258\nYWFh 300\n\n", text);
    ASSERT(fsdp_tiktoken_matches(text, strlen(text)));
    ASSERT_OK(fsdp_tiktoken_parse("t", text, strlen(text), &model));
    ASSERT_INT(model->ops->size(model), 301);
    ASSERT_INT(model->ops->unk_id(model), -1);
    ASSERT_INT(model->ops->id_of(model, "\u0120a", 3), 258);
    ASSERT_STR(model->ops->text_of(model, 258, &length), "\u0120a");
    ASSERT(model->ops->text_of(model, 299, &length) == NULL);
    check_one(t, model, "aab", "256:0:2 98:2:3");
    check_one(t, model, " aab", "32:0:1 256:1:3 98:3:4");
    check_one(t, model, "bab", "98:0:1 257:1:3");
    check_one(t, model, "aaa", "300:0:3");
    check_one(t, model, "aaab", "256:0:2 257:2:4");
    check_one(t, model, "\xFF\xC3", "255:0:1 195:1:2");
    fsdp_token_model_destroy(model);
}

TEST(errors_of_tiktokens_files_name_the_line)
{
    static const struct {
        const char *more, *text;
    } cases[] = {
        {"YWI 257\n", "line 257: expected the bytes of a token in base64"},
        {"YW-= 257\n", "line 257: expected the bytes"},
        {"Y=== 257\n", "line 257: expected the bytes"},
        {"=AAA 257\n", "line 257: expected the bytes"},
        {" 257\n", "line 257: expected the bytes"},
        {"YWI=\n", "line 257: expected the bytes"},
        {"YWI= x\n", "line 257: expected a rank"},
        {"YWI= -1\n", "line 257: expected a rank"},
        {"YWI= 16777216\n", "line 257: expected a rank"},
        {"YWI= 99999999999999999999\n", "line 257: expected a rank"},
        {"YWI= 255\n", "line 257: the tokens"},
        {"YWI= 256\nYWI= 257\n", "line 258: an earlier line has the same token"},
    };
    static char text[8192];
    fsdp_token_model *model = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_tiktoken(-1, cases[i].more, text);
        ASSERT_ERROR(fsdp_tiktoken_parse("t", text, strlen(text), &model), FSDP_ERR_FORMAT,
                     cases[i].text);
    }
    make_tiktoken(0xC3, "", text);
    ASSERT_ERROR(fsdp_tiktoken_load(put_text(t, "tokenizer.model", text), &model), FSDP_ERR_FORMAT,
                 "tokenizer.model: there is no token for the byte 0xC3");
    ASSERT(!fsdp_tiktoken_matches("", 0));
    ASSERT(!fsdp_tiktoken_matches("\n\x0E\n\x05<unk>", 9));
    ASSERT(!fsdp_tiktoken_matches("IQ== zero\n", 10));
    ASSERT(fsdp_tiktoken_matches("IQ== 0\nIg==", 11));
}

/* ---- SentencePiece ---- */

/* A message of Protocol Buffers that is being written. */
typedef struct message {
    unsigned char bytes[2048];
    size_t n;
} message;

static void add_varint(message *m, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        m->bytes[m->n++] = (unsigned char)(v | 0x80);
    m->bytes[m->n++] = (unsigned char)v;
}

static void add_number(message *m, unsigned field, uint64_t v)
{
    add_varint(m, field << 3);
    add_varint(m, v);
}

static void add_bytes(message *m, unsigned field, const void *data, size_t n)
{
    add_varint(m, field << 3 | 2);
    add_varint(m, n);
    memcpy(m->bytes + m->n, data, n);
    m->n += n;
}

static void add_piece(message *m, const char *text, float score, unsigned type)
{
    message piece = {.n = 0};
    add_bytes(&piece, 1, text, strlen(text));
    add_varint(&piece, 2 << 3 | 5);
    memcpy(piece.bytes + piece.n, &score, 4);
    piece.n += 4;
    if (type != FSDP_PIECE_NORMAL)
        add_number(&piece, 3, type);
    add_bytes(m, 1, piece.bytes, piece.n);
}

static void add_trainer(message *m, unsigned type, bool byte_fallback)
{
    message trainer = {.n = 0};
    add_number(&trainer, 3, type);
    add_number(&trainer, 35, byte_fallback);
    add_number(&trainer, 43, UINT64_MAX); /* pad_id -1 */
    add_bytes(&trainer, 46, "<bos>", 5);
    add_bytes(m, 2, trainer.bytes, trainer.n);
}

static message small_model(unsigned type)
{
    message m = {.n = 0};
    add_piece(&m, "<unk>", 0, FSDP_PIECE_UNKNOWN);
    add_piece(&m, "<bos>", 0, FSDP_PIECE_CONTROL);
    add_piece(&m, "<0xC3>", 0, FSDP_PIECE_BYTE);
    add_piece(&m, "<0xA9>", 0, FSDP_PIECE_BYTE);
    add_piece(&m, "a", -5, FSDP_PIECE_NORMAL);
    add_piece(&m, "b", -6, FSDP_PIECE_NORMAL);
    add_piece(&m, "ab", -3, FSDP_PIECE_NORMAL);
    add_piece(&m, "bb", -2, FSDP_PIECE_NORMAL);
    add_piece(&m, "abb", -3, FSDP_PIECE_NORMAL);
    add_piece(&m, "ba", -1, FSDP_PIECE_USER_DEFINED);
    add_piece(&m, "c", -7, FSDP_PIECE_NORMAL);
    add_piece(&m, "ca", -3, FSDP_PIECE_NORMAL);
    add_trainer(&m, type, true);
    return m;
}

static void check_sentencepiece(fsdp_test *t, unsigned type, const char *const rows[][2], size_t n)
{
    message m = small_model(type);
    fsdp_sentencepiece_spec spec = {0};
    fsdp_token_model *model = NULL;
    ASSERT_OK(fsdp_sentencepiece_parse("m", m.bytes, m.n, &spec));
    ASSERT_INT(spec.count, 12);
    ASSERT_INT(spec.unk_id, 0);
    ASSERT_INT(spec.bos_id, 1);
    ASSERT_INT(spec.eos_id, -1);
    ASSERT_INT(spec.pad_id, -1);
    ASSERT(spec.add_dummy_prefix && spec.remove_extra_whitespaces && spec.escape_whitespaces);
    ASSERT(spec.precompiled_charsmap == NULL && spec.byte_fallback);
    ASSERT_OK(fsdp_sentencepiece_model_create(&spec, &model));
    ASSERT_STR(model->ops->type, type == 1 ? "Unigram" : "BPE");
    for (size_t i = 0; i < n && !t->failed; i++)
        check_one(t, model, rows[i][0], rows[i][1]);
    fsdp_token_model_destroy(model);
    fsdp_sentencepiece_spec_fini(&spec);
    fsdp_sentencepiece_spec_fini(&(fsdp_sentencepiece_spec){0});
}

/* Merges come from normal pieces only, the highest score first, and the first pair if scores are
 * equal: "ab" and "ca" have the same score. */
TEST(sentencepiece_models_become_bpe_and_unigram)
{
    static const char *const bpe[][2] = {{"abb", "8:0:3"},
                                         {"cab", "11:0:2 5:2:3"},
                                         {"ab", "6:0:2"},
                                         {"ba", "5:0:1 4:1:2"},
                                         {"abab", "6:0:2 6:2:4"},
                                         {"a\u00E9b", "4:0:1 2:1:2 3:2:3 5:3:4"},
                                         {"a\u4E2D\u4E2Db", "4:0:1 0:1:7 5:7:8"}};
    static const char *const unigram[][2] = {
        {"abb", "8:0:3"}, {"ba", "9:0:2"}, {"a\u00E9b", "4:0:1 2:1:3 3:1:3 5:3:4"}};
    check_sentencepiece(t, 2, bpe, 7);
    check_sentencepiece(t, 1, unigram, 3);
}

static void check_file(fsdp_test *t, const char *path, const char *const rows[][2], size_t n,
                       fsdp_sentencepiece_spec *spec, char **bytes)
{
    size_t count = 0;
    fsdp_token_model *model = NULL;
    ASSERT_OK(fsdp_file_read(fsdp_test_path(path), 1 << 24, bytes, &count));
    ASSERT_OK(fsdp_sentencepiece_parse(path, *bytes, count, spec));
    ASSERT_OK(fsdp_sentencepiece_model_create(spec, &model));
    for (size_t i = 0; i < n && !t->failed; i++)
        check_one(t, model, rows[i][0], rows[i][1]);
    fsdp_token_model_destroy(model);
}

TEST(t5s_and_a_llama_like_file_are_read)
{
    static const char *const t5[][2] = {
        {"\u2581Hello", "8774:0:8"},
        {"\u2581unbelievably", "12658:0:7 1896:7:10 208:10:11 3834:11:15"},
        {"\u2581\u65E5\u672Cx", "3:0:3 2:3:9 226:9:10"},
        {"!!!!!!", "55:0:1 17065:1:6"}};
    static const char *const llama[][2] = {
        {"\u2581the\u2581world", "274:0:6 293:6:10 262:10:12 476:12:13 477:13:14"},
        {"\u2581and\n\u2581\u00E9", "285:0:6 13:6:7 467:7:10 198:10:11 172:11:12"},
        {"\u2581of\u2581the\u2581\u2581\u2581time",
         "300:0:5 274:5:11 296:11:17 260:17:21 320:21:23 468:23:24"}};
    fsdp_sentencepiece_spec spec = {0};
    char *bytes = NULL;
    check_file(t, "../data/tokenizers/t5/spiece.model", t5, 4, &spec, &bytes);
    CHECK_HERE();
    ASSERT(spec.count == 32000 && spec.unk_id == 2 && spec.eos_id == 1 && spec.pad_id == 0);
    ASSERT(spec.bos_id == -1 && !spec.is_bpe && !spec.byte_fallback);
    ASSERT(spec.charsmap_bytes > 1000 && spec.normalizer_name_length == 8 &&
           memcmp(spec.normalizer_name, "nmt_nfkc", 8) == 0);
    fsdp_sentencepiece_spec_fini(&spec);
    fsdp_free(bytes);
    check_file(t, "fixtures/text/llama/tokenizer.model", llama, 3, &spec, &bytes);
    CHECK_HERE();
    ASSERT(spec.count == 520 && spec.unk_id == 0 && spec.bos_id == 1 && spec.eos_id == 2);
    ASSERT(spec.pad_id == -1 && spec.is_bpe && spec.byte_fallback);
    fsdp_sentencepiece_spec_fini(&spec);
    fsdp_free(bytes);
}

static void check_refused(fsdp_test *t, const message *m, fsdp_status status, const char *text)
{
    fsdp_sentencepiece_spec spec = {0};
    ASSERT_ERROR(fsdp_sentencepiece_parse("m", m->bytes, m->n, &spec), status, text);
    ASSERT(spec.pieces == NULL && strncmp(fsdp_last_error(), "m: ", 3) == 0);
}

TEST(broken_sentencepiece_models_are_refused)
{
    message m = {.n = 0};
    check_refused(t, &m, FSDP_ERR_FORMAT, "empty");
    add_trainer(&m, 1, false);
    check_refused(t, &m, FSDP_ERR_FORMAT, "there are no pieces");
    add_piece(&m, "a", -1, FSDP_PIECE_NORMAL);
    check_refused(t, &m, FSDP_ERR_FORMAT, "no piece is of type unknown");
    add_piece(&m, "<unk>", 0, FSDP_PIECE_UNKNOWN);
    add_piece(&m, "<unk2>", 0, FSDP_PIECE_UNKNOWN);
    check_refused(t, &m, FSDP_ERR_FORMAT, "the pieces 1 and 2 are both of type unknown");
    m = small_model(3);
    check_refused(t, &m, FSDP_ERR_UNSUPPORTED, "type word");
    m = small_model(77);
    check_refused(t, &m, FSDP_ERR_UNSUPPORTED, "type ?");
    m = small_model(1);
    m.n -= 2;
    check_refused(t, &m, FSDP_ERR_FORMAT, "ends within a field");
    m = small_model(1);
    add_piece(&m, "", 0, FSDP_PIECE_NORMAL);
    check_refused(t, &m, FSDP_ERR_FORMAT, "piece 12: the text of the piece is missing");
    m = small_model(1);
    add_piece(&m, "\xC3", 0, FSDP_PIECE_NORMAL);
    check_refused(t, &m, FSDP_ERR_FORMAT, "piece 12: the text of the piece is not UTF-8");
    m = small_model(1);
    add_piece(&m, "x", NAN, FSDP_PIECE_NORMAL);
    check_refused(t, &m, FSDP_ERR_FORMAT, "piece 12: the piece \"x\" has the score nan");
    m = small_model(1);
    add_piece(&m, "x", 0, 7);
    check_refused(t, &m, FSDP_ERR_FORMAT, "piece 12: a piece has the type 7");
    m = (message){.bytes = {0x0B}, .n = 1}; /* wire type 3 */
    check_refused(t, &m, FSDP_ERR_FORMAT, "wire type 3");
}

TEST(sentencepiece_models_with_two_equal_pieces_are_refused)
{
    message m = small_model(2);
    fsdp_sentencepiece_spec spec = {0};
    fsdp_token_model *model = NULL;
    add_piece(&m, "ab", -1, FSDP_PIECE_NORMAL);
    ASSERT_OK(fsdp_sentencepiece_parse("m", m.bytes, m.n, &spec));
    ASSERT_ERROR(fsdp_sentencepiece_model_create(&spec, &model), FSDP_ERR_FORMAT,
                 "the pieces 6 and 12 are both \"ab\"");
    fsdp_sentencepiece_spec_fini(&spec);
}

/* ---- failing allocations ---- */

static fsdp_status load_file(int i, const char *text, size_t bytes)
{
    fsdp_token_model *model = NULL;
    fsdp_sentencepiece_spec spec = {0};
    fsdp_status status = FSDP_OK;
    if (i == 0) {
        status = fsdp_tiktoken_parse("t", text, bytes, &model);
    } else if (i == 1) {
        status = fsdp_wordpiece_parse("t", text, bytes, &FSDP_WORDPIECE_BERT, &model);
    } else {
        status = fsdp_sentencepiece_parse("t", text, bytes, &spec);
        if (status == FSDP_OK)
            status = fsdp_sentencepiece_model_create(&spec, &model);
        fsdp_sentencepiece_spec_fini(&spec);
    }
    fsdp_token_model_destroy(model);
    return status;
}

TEST(failing_allocations_are_reported)
{
    static char tiktoken[8192];
    make_tiktoken(-1, "YWI= 256\nYWE= 257\n", tiktoken);
    message models[2] = {small_model(1), small_model(2)};
    for (int i = 0; i < 4; i++) {
        const char *text = i == 0   ? tiktoken
                           : i == 1 ? "[UNK]\na\n##b\n"
                                    : (const char *)models[i - 2].bytes;
        size_t bytes = i < 2 ? strlen(text) : models[i - 2].n;
        fsdp_status status = FSDP_ERR_NOMEM;
        long n = 0;
        while (status == FSDP_ERR_NOMEM && n < 1000) {
            fsdp_alloc_fail_at(++n);
            status = load_file(i, text, bytes);
            fsdp_alloc_fail_at(0);
        }
        ASSERT_OK(status);
        ASSERT(n > 5);
    }
}
