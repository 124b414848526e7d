/* Errors of models in tokenizer.json: each names the file, the field and the value. */
#include "tests/text/models/models.h"

static void check_error(fsdp_test *t, const char *json, bool raw_bytes, fsdp_status expected,
                        const char *text)
{
    fsdp_token_model *model = NULL;
    ASSERT_ERROR(model_from_text(json, raw_bytes, &model), expected, text);
    ASSERT(model == NULL);
    ASSERT(strncmp(fsdp_last_error(), "tokenizer.json: ", 16) == 0);
}

#define AB "\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}"

TEST(errors_of_bpe_name_the_field)
{
    static const struct {
        const char *json, *text;
        fsdp_status status;
    } cases[] = {
        {"{\"type\": \"BPE\", \"merges\": []}", "vocab: missing", FSDP_ERR_NOT_FOUND},
        {"{\"type\": \"BPE\", " AB "}", "merges: missing", FSDP_ERR_NOT_FOUND},
        {"{\"type\": \"BPE\", " AB ", \"merges\": [\"a b\"], \"foo\": 1}",
         "model.foo: a BPE model with this field", FSDP_ERR_UNSUPPORTED},
        {"{\"type\": \"BPE\", " AB ", \"merges\": [\"a b\"], \"dropout\": 0.1}",
         "model.dropout: 0.1", FSDP_ERR_UNSUPPORTED},
        {"{\"type\": \"BPE\", " AB ", \"merges\": [\"a b\"], \"fuse_unk\": 1}", "fuse_unk",
         FSDP_ERR_FORMAT},
        {"{\"type\": \"BPE\", " AB ", \"merges\": [\"a b\", \"b a\"]}",
         "model.merges[1]: the vocabulary does not contain \"ba\"", FSDP_ERR_FORMAT},
        {"{\"type\": \"BPE\", " AB ", \"merges\": [[\"a\", \"c\"]]}",
         "model.merges[0]: the vocabulary does not contain \"c\"", FSDP_ERR_FORMAT},
        {"{\"type\": \"BPE\", " AB ", \"merges\": [\"a b c\"]}", "merges[0]: expected two tokens",
         FSDP_ERR_FORMAT},
        {"{\"type\": \"BPE\", " AB ", \"merges\": [\"ab\"]}", "merges[0]: expected two tokens",
         FSDP_ERR_FORMAT},
        {"{\"type\": \"BPE\", " AB ", \"merges\": [[\"a\"]]}", "merges[0]: expected two tokens",
         FSDP_ERR_FORMAT},
        {"{\"type\": \"BPE\", " AB ", \"merges\": [7]}", "merges[0]: expected two tokens",
         FSDP_ERR_FORMAT},
        {"{\"type\": \"BPE\", " AB ", \"merges\": [\"ab b\"], \"continuing_subword_prefix\": "
         "\"##\"}",
         "\"b\" is shorter than the continuing_subword_prefix \"##\"", FSDP_ERR_FORMAT},
        {"{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}",
         "model.vocab: the tokens \"a\" and \"b\" both have the id 0", FSDP_ERR_FORMAT},
        {"{\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}", "vocab.a", FSDP_ERR_FORMAT},
        {"{\"type\": \"BPE\", \"vocab\": {\"a\": 1.0}, \"merges\": []}", "vocab.a",
         FSDP_ERR_FORMAT},
        {"{\"type\": \"BPE\", \"vocab\": {\"a\": 16777216}, \"merges\": []}", "16777215",
         FSDP_ERR_FORMAT},
        {"{\"type\": \"BPE\", \"vocab\": [\"a\"], \"merges\": []}", "vocab: expected an object",
         FSDP_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !t->failed; i++)
        check_error(t, cases[i].json, false, cases[i].status, cases[i].text);
    /* A byte-level vocabulary must have a token for each byte if others become byte pieces. */
    check_error(t, "{\"type\": \"BPE\", " AB ", \"merges\": [], \"byte_fallback\": true}", true,
                FSDP_ERR_UNSUPPORTED, "0x00");
}

TEST(errors_of_other_models_name_the_field)
{
    static const struct {
        const char *json, *text;
        fsdp_status status;
    } cases[] = {
        {"{\"type\": \"Foo\", " AB "}",
         "type: expected BPE, WordPiece, WordLevel or Unigram, "
         "found \"Foo\"",
         FSDP_ERR_FORMAT},
        {"{\"type\": \"WordPiece\", " AB "}", "unk_token: missing", FSDP_ERR_NOT_FOUND},
        {"{\"type\": \"WordPiece\", " AB ", \"unk_token\": \"a\", \"continuing_subword_prefix\": "
         "\"##\"}",
         "max_input_chars_per_word: missing", FSDP_ERR_NOT_FOUND},
        {"{\"type\": \"WordPiece\", " AB ", \"unk_token\": \"a\", \"continuing_subword_prefix\": "
         "\"##\", \"max_input_chars_per_word\": -1}",
         "max_input_chars_per_word", FSDP_ERR_FORMAT},
        {"{\"type\": \"WordLevel\", " AB "}", "unk_token: missing", FSDP_ERR_NOT_FOUND},
        {"{\"type\": \"WordLevel\", " AB ", \"unk_token\": \"a\", \"merges\": []}", "model.merges",
         FSDP_ERR_UNSUPPORTED},
        {"{\"type\": \"Unigram\", \"vocab\": [[\"a\", -1]], \"unk_id\": 1}",
         "unk_id: expected an index of model.vocab, which has 1 entries, found 1", FSDP_ERR_FORMAT},
        {"{\"type\": \"Unigram\", \"vocab\": [], \"unk_id\": 0}", "unk_id", FSDP_ERR_FORMAT},
        {"{\"type\": \"Unigram\", \"vocab\": [[\"a\", -1], [\"b\"]]}", "vocab[1]", FSDP_ERR_FORMAT},
        {"{\"type\": \"Unigram\", \"vocab\": [[\"a\", NaN]]}", "vocab[0][1]", FSDP_ERR_FORMAT},
        {"{\"type\": \"Unigram\", \"vocab\": [[1, -1]]}", "vocab[0][0]", FSDP_ERR_FORMAT},
        {"{\"type\": \"Unigram\", \"vocab\": [[\"a\", -1]], \"alpha\": 0.1}", "model.alpha",
         FSDP_ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !t->failed; i++)
        check_error(t, cases[i].json, false, cases[i].status, cases[i].text);
    check_error(t, "{\"type\": \"WordLevel\", " AB ", \"unk_token\": \"a\"}", true,
                FSDP_ERR_UNSUPPORTED, "do not work on bytes");
}

/* Files of old versions of the library have no type, a "#version" line, or null options. */
TEST(old_files_are_read)
{
    static const struct {
        const char *json, *type;
    } cases[] = {
        {"{" AB ", \"merges\": [\"#version: 0.2\", \"a b\"], \"unk_token\": null}", "BPE"},
        {"{" AB ", \"unk_token\": \"a\", \"continuing_subword_prefix\": \"##\", "
         "\"max_input_chars_per_word\": 100}",
         "WordPiece"},
        {"{" AB ", \"unk_token\": \"a\"}", "WordLevel"},
        {"{\"vocab\": [[\"x\", -1], [\"y\", -2], [\"ab\", -3]], \"unk_id\": 0}", "Unigram"},
        {"{\"type\": \"BPE\", " AB ", \"merges\": [\"a b\"], \"dropout\": 0.0, "
         "\"byte_fallback\": null, \"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": "
         "null}",
         "BPE"},
    };
    fsdp_token_work *work = NULL;
    ASSERT_OK(fsdp_token_work_create(&work));
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !t->failed; i++) {
        fsdp_token_model *model = NULL;
        ASSERT_OK(model_from_text(cases[i].json, false, &model));
        ASSERT_STR(model->ops->type, cases[i].type);
        check_tokens(t, model, work, "ab", 2, "2:0:2");
        fsdp_token_model_destroy(model);
    }
    fsdp_token_work_destroy(work);
}
