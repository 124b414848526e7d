/* Tokenizers of files without a tokenizer.json, small ones that are written here. The expected ids
 * are those of transformers' classes (BertTokenizer, GPT2Tokenizer, RobertaTokenizer,
 * Qwen2Tokenizer), or follow from Llama 3's rules. */
#include <fsdp/text.h>

#include <stdio.h>
#include <string.h>

#include "src/base/io.h"
#include "tests/test.h"

#ifdef FSDP_HAVE_UTF8PROC
#define NEEDS_UNICODE() ((void)0)
#else
#define NEEDS_UNICODE() SKIP("built without utf8proc")
#endif

static void put(fsdp_test *t, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), name);
    ASSERT_OK(fsdp_file_write(path, text, strlen(text)));
}

static void check(fsdp_test *t, const fsdp_tokenizer *tokenizer, const char *text, const char *pair,
                  const char *expected)
{
    fsdp_encoding e = {0};
    char ids[512] = "";
    ASSERT_OK(fsdp_tokenizer_encode_pair(tokenizer, text, strlen(text), pair,
                                         pair ? strlen(pair) : 0, NULL, &e));
    for (size_t i = 0; i < e.ids.len; i++)
        snprintf(ids + strlen(ids), sizeof ids - strlen(ids), "%d:%d ", (int)e.ids.ids[i],
                 (int)e.type_ids[i]);
    fsdp_encoding_fini(&e);
    ASSERT_STR(ids, expected);
}

static void check_decoded(fsdp_test *t, const fsdp_tokenizer *tokenizer, const char *text,
                          unsigned flags, const char *expected)
{
    fsdp_token_list ids = {0};
    char *decoded = NULL;
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, text, strlen(text), 0, &ids));
    ASSERT_OK(fsdp_tokenizer_decode(tokenizer, ids.ids, ids.len, flags, &decoded));
    fsdp_token_list_fini(&ids);
    const bool same = strcmp(decoded, expected) == 0;
    if (!same)
        fsdp_test_fail(t, __FILE__, __LINE__, "'%s' instead of '%s'", decoded, expected);
    fsdp_text_free(decoded);
}

#define BERT                                                                                       \
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nhouse\n##s\ncafe\n\u4e2d\n,\n.\nThe\ncaf\u00e9\n"

TEST(bert_reads_vocab_txt)
{
    NEEDS_UNICODE();
    fsdp_tokenizer *tokenizer;
    put(t, "vocab.txt", BERT);
    CHECK_HERE();
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_dir(t), &tokenizer));
    check(t, tokenizer, "The houses,", NULL, "2:0 5:0 6:0 7:0 10:0 3:0 ");
    check(t, tokenizer, "caf\u00e9\u4e2d.", "the\x01 [MASK] zzz",
          "2:0 8:0 9:0 11:0 3:0 5:1 4:1 1:1 3:1 ");
    check_decoded(t, tokenizer, "The houses, the.", FSDP_DECODE_SKIP_SPECIAL, "the houses, the.");
    ASSERT_INT(fsdp_tokenizer_token_id(tokenizer, "cls_token"), 2);
    ASSERT_INT(fsdp_tokenizer_pad_id(tokenizer), 0);
    ASSERT_INT(fsdp_tokenizer_eos_id(tokenizer), -1);
    fsdp_tokenizer_close(tokenizer);
    CHECK_HERE();
    put(t, "tokenizer_config.json",
        "{\"tokenizer_class\": \"BertTokenizerFast\", \"do_lower_case\": false, "
        "\"model_max_length\": 512}");
    CHECK_HERE();
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_dir(t), &tokenizer));
    check(t, tokenizer, "The caf\u00e9 cafe", NULL, "2:0 12:0 13:0 8:0 3:0 ");
    ASSERT_INT(fsdp_tokenizer_model_max_length(tokenizer), 512);
    fsdp_tokenizer_close(tokenizer);
    put(t, "vocab.txt", "[PAD]\n[UNK]\nthe\n");
    CHECK_HERE();
    ASSERT_ERROR(fsdp_tokenizer_open(fsdp_test_dir(t), &tokenizer), FSDP_ERR_FORMAT,
                 "the vocabulary has no cls_token");
}

/* All letters of the texts are tokens; "Ġ" is a space. */
#define VOCAB                                                                                      \
    "{\"<s>\": 0, \"</s>\": 1, \"<|endoftext|>\": 2, \"a\": 3, \"b\": 4, \"\u0120\": 5, "          \
    "\"\u0120a\": 6, \"\u0120ab\": 7, \"\u00c3\": 8, \"\u00a9\": 9, \"1\": 10, \"e\": 11, "        \
    "\"\u00cc\": 12, \"\u0123\": 13}"
#define MERGES "#version: 0.2\n\u0120 a\n\u0120a b\n"

TEST(gpt2_roberta_and_qwen2_read_vocab_json_and_merges_txt)
{
    NEEDS_UNICODE();
    fsdp_tokenizer *tokenizer;
    put(t, "vocab.json", VOCAB);
    put(t, "merges.txt", MERGES);
    CHECK_HERE();
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_dir(t), &tokenizer));
    check(t, tokenizer, "ab ab <|endoftext|>\u00e9", "a", "3:0 4:0 7:0 5:0 2:0 8:0 9:0 3:1 ");
    check_decoded(t, tokenizer, "ab ab \u00e9", FSDP_DECODE_CLEAN_UP, "ab ab \u00e9");
    ASSERT_INT(fsdp_tokenizer_eos_id(tokenizer), 2);
    ASSERT(!fsdp_tokenizer_appends_eos(tokenizer));
    fsdp_tokenizer_close(tokenizer);
    CHECK_HERE();
    put(t, "tokenizer_config.json",
        "{\"tokenizer_class\": \"RobertaTokenizer\", \"add_prefix_space\": true}");
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_dir(t), &tokenizer));
    check(t, tokenizer, "ab", "b", "0:0 7:0 1:0 1:0 5:0 4:0 1:0 ");
    fsdp_tokenizer_close(tokenizer);
    CHECK_HERE();
    put(t, "tokenizer_config.json",
        "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"add_bos_token\": false, "
        "\"added_tokens_decoder\": {\"2\": {\"content\": \"<|endoftext|>\", \"special\": true}, "
        "\"14\": {\"content\": \"<|im_end|>\", \"special\": true}}, "
        "\"eos_token\": \"<|im_end|>\"}");
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_dir(t), &tokenizer));
    check(t, tokenizer, "e\u0301 ab11<|im_end|>", NULL, "8:0 9:0 7:0 10:0 10:0 14:0 ");
    ASSERT_INT(fsdp_tokenizer_eos_id(tokenizer), 14);
    ASSERT_INT(fsdp_tokenizer_pad_id(tokenizer), 2);
    fsdp_tokenizer_close(tokenizer);
}

/* All bytes, with their values as ids, then "ab" and "111". */
static void put_tiktoken(fsdp_test *t)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[8192];
    size_t n = 0;
    for (int byte = 0; byte < 256; byte++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%c%c== %d\n", digits[byte >> 2],
                              digits[(byte & 3) << 4], byte);
    snprintf(text + n, sizeof text - n, "YWI= 256\nMTEx 257\n");
    put(t, "tokenizer.model", text);
}

TEST(llama3_reads_tiktokens_file)
{
    fsdp_tokenizer *tokenizer;
    put_tiktoken(t);
    put(t, "tokenizer_config.json",
        "{\"added_tokens_decoder\": {\"258\": {\"content\": \"<|begin_of_text|>\", \"special\": "
        "true}, \"259\": {\"content\": \"<|end_of_text|>\", \"special\": true}}, "
        "\"bos_token\": \"<|begin_of_text|>\", \"eos_token\": \"<|end_of_text|>\", "
        "\"model_max_length\": 1000000000000000019884624838656}");
    CHECK_HERE();
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_dir(t), &tokenizer));
    check(t, tokenizer, "ab1111b<|end_of_text|>", NULL, "258:0 256:0 257:0 49:0 98:0 259:0 ");
    check_decoded(t, tokenizer, "ab 1111", FSDP_DECODE_SKIP_SPECIAL, "ab 1111");
    ASSERT_INT(fsdp_tokenizer_bos_id(tokenizer), 258);
    ASSERT_INT(fsdp_tokenizer_model_max_length(tokenizer), 0);
    fsdp_tokenizer_close(tokenizer);
    put(t, "tokenizer_config.json", "{\"add_bos_token\": false}");
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_dir(t), &tokenizer));
    check(t, tokenizer, "ab", NULL, "256:0 ");
    fsdp_tokenizer_close(tokenizer);
}

/* A special token within a text is split if tokenizer_config.json says so. */
TEST(special_tokens_may_be_split)
{
    fsdp_tokenizer *tokenizer;
    put(t, "vocab.json", "{\"<\": 0, \"s\": 1, \">\": 2, \"<s>\": 3}");
    put(t, "merges.txt", "#version: 0.2\n");
    put(t, "tokenizer_config.json",
        "{\"bos_token\": \"<s>\", \"eos_token\": \"<s>\", \"split_special_tokens\": true}");
    CHECK_HERE();
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_dir(t), &tokenizer));
    check(t, tokenizer, "<s>", NULL, "0:0 1:0 2:0 ");
    fsdp_tokenizer_close(tokenizer);
}
