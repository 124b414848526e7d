/* Makes tokenizers from files that contain only a vocabulary. The other parts of the tokenizer
 * depend on the family of models. Here, they are written in the form that they would have in a
 * tokenizer.json. They are the same as in the class of transformers that tokenizer_config.json
 * names. If that file names no class, the class that usually reads such files is taken. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/text/models/bpe.h"
#include "src/text/models/sentencepiece_model.h"
#include "src/text/models/tiktoken.h"
#include "src/text/models/wordpiece.h"
#include "src/text/parts/word_splitter.h"
#include "src/text/tokenizer_internal.h"

enum {
    /* number of sentinels (<extra_id_0>, ...), as in T5, if the configuration has no extra_ids */
    EXTRA_IDS = 100,
    EXTRA_IDS_MAX = 1000000, /* largest number of sentinels */
    /* largest size of a model file; the largest known one has 17 MB */
    MODEL_BYTES_MAX = 256 * 1024 * 1024,
    LLAMA3_TOKENS = 128000, /* number of tokens in Llama 3's file */
    /* number of Llama 3's special tokens; their ids begin at LLAMA3_TOKENS */
    LLAMA3_SPECIAL = 256
};

/* ---- help ---- */

static fsdp_json_node config_of(const fsdp_tokenizer_files *files)
{
    return files->config ? fsdp_json_root(files->config) : (fsdp_json_node){0};
}

/* Create the parts of the tokenizer from `text`, a JSON object in the form of a tokenizer.json.
 * This function takes ownership of `model` and `text`. */
static fsdp_status make_parts(fsdp_tokenizer *tokenizer, char *text, fsdp_token_model *model)
{
    fsdp_json *doc = NULL;
    tokenizer->model = model;
    fsdp_status status = FSDP_ERR_NOMEM;
    if (text)
        status = fsdp_json_parse(tokenizer->path, 1, text, strlen(text), &doc);
    if (status == FSDP_OK)
        status = fsdp_tokenizer_make_parts(tokenizer, fsdp_json_root(doc), model);
    fsdp_json_destroy(doc);
    fsdp_free(text);
    return status;
}

static fsdp_status add_token(fsdp_tokenizer *tokenizer, const char *text, bool special, int32_t *id)
{
    const fsdp_added_token token = {.text = (char *)(uintptr_t)text, .special = special};
    return fsdp_added_tokens_add(tokenizer->added, &token, id);
}

/* If the vocabulary has the token `text`, make it a special token, and give it the role `name`,
 * such as eos_token. fsdp_tokenizer_configure() may change this later. */
static fsdp_status name_token(fsdp_tokenizer *tokenizer, fsdp_named_token name, const char *text)
{
    if (tokenizer->model->ops->id_of(tokenizer->model, text, strlen(text)) < 0)
        return FSDP_OK;
    return add_token(tokenizer, text, true, &tokenizer->named[name]);
}

static bool says_bos_or_eos(const fsdp_tokenizer_files *files)
{
    return fsdp_json_has(config_of(files), "add_bos_token") ||
           fsdp_json_has(config_of(files), "add_eos_token");
}

/* Return an error if `class_name`, the tokenizer_class, is not in `known`, a list of names with a
 * space before and after each name. If class_name is "", no class was given, which is not an
 * error. */
static fsdp_status check_class(const fsdp_tokenizer *tokenizer, const fsdp_tokenizer_files *files,
                               const char *known, const char *class_name)
{
    char spaced[FSDP_TOKENIZER_CLASS_BYTES + 2];
    snprintf(spaced, sizeof spaced, " %s ", class_name);
    if (!*class_name || strstr(known, spaced))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "%s: tokenizer_class: a %s cannot be read from %s alone (only%s can). Save "
                      "its tokenizer.json next to it: "
                      "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)",
                      fsdp_json_name(files->config), class_name, fsdp_path_name(tokenizer->path),
                      known);
}

/* Append bytes as base64. */
static void append_base64(fsdp_str *out, const char *data, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)data;
    for (size_t i = 0; i < bytes; i += 3) {
        const size_t left = bytes - i;
        const unsigned group = (unsigned)p[i] << 16 | (left > 1 ? (unsigned)p[i + 1] << 8 : 0) |
                               (left > 2 ? p[i + 2] : 0U);
        char four[4] = {digits[group >> 18], digits[group >> 12 & 63],
                        left > 1 ? digits[group >> 6 & 63] : '=',
                        left > 2 ? digits[group & 63] : '='};
        fsdp_str_append(out, four, 4);
    }
}

/* Append `text`, which must be printable ASCII, as a JSON string. */
static void append_quoted(fsdp_str *out, const char *text)
{
    fsdp_str_append(out, "\"", 1);
    for (; *text; text++) {
        if (*text == '\\' || *text == '"')
            fsdp_str_append(out, "\\", 1);
        fsdp_str_append(out, text, 1);
    }
    fsdp_str_append(out, "\"", 1);
}

/* ---- SentencePiece ---- */

static void append_precompiled(fsdp_str *json, const fsdp_sentencepiece_spec *spec)
{
    fsdp_str_printf(json, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
    append_base64(json, spec->precompiled_charsmap, spec->charsmap_bytes);
    fsdp_str_printf(json, "\"}");
}

static void append_normalizer(fsdp_str *json, const fsdp_sentencepiece_spec *spec)
{
    fsdp_str_printf(json, "\"normalizer\":");
    if (spec->precompiled_charsmap)
        append_precompiled(json, spec);
    else
        fsdp_str_printf(json, "null");
    fsdp_str_printf(json, ",");
}

/* Add T5's sentinels, whose ids follow those of the pieces. <extra_id_0> has the largest id: with
 * 32,000 pieces and 100 sentinels, it is 32,099. */
static fsdp_status add_sentinels(fsdp_tokenizer *tokenizer, const fsdp_tokenizer_files *files)
{
    int64_t n;
    FSDP_TRY(fsdp_json_opt_i64(config_of(files), "extra_ids", 0, EXTRA_IDS_MAX, EXTRA_IDS, &n));
    while (n-- > 0) {
        char text[32];
        int32_t id;
        snprintf(text, sizeof text, "<extra_id_%d>", (int)n);
        FSDP_TRY(add_token(tokenizer, text, true, &id));
    }
    return FSDP_OK;
}

static fsdp_status find_named(const fsdp_tokenizer *tokenizer, fsdp_named_token name, int32_t *id)
{
    *id = tokenizer->named[name];
    return *id >= 0 ? FSDP_OK
                    : fsdp_error(FSDP_ERR_FORMAT, "%s: the vocabulary has no %s", tokenizer->path,
                                 fsdp_named_token_keys[name]);
}

/* Set T5's post-processor: it adds </s> after each text, and all type ids are 0. */
static fsdp_status set_t5_post_processor(fsdp_tokenizer *tokenizer)
{
#define A "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define B "{\"Sequence\":{\"id\":\"B\",\"type_id\":0}}"
#define EOS "{\"SpecialToken\":{\"id\":\"eos\",\"type_id\":0}}"
    int32_t eos;
    FSDP_TRY(find_named(tokenizer, FSDP_EOS_TOKEN, &eos));
    return fsdp_tokenizer_parse_post_processor(
        tokenizer,
        fsdp_strdup_printf("{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[" A
                           "," EOS "],\"pair\":[" A "," EOS "," B "," EOS "],"
                           "\"special_tokens\":{\"eos\":{\"ids\":[%d]}}}}",
                           (int)eos));
#undef A
#undef B
#undef EOS
}

static fsdp_status load_t5(fsdp_tokenizer *tokenizer, const fsdp_tokenizer_files *files,
                           const fsdp_sentencepiece_spec *spec, fsdp_token_model *model)
{
    fsdp_str json = {0};
    fsdp_str_printf(&json, "{");
    append_normalizer(&json, spec);
    fsdp_str_printf(&json,
                    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
                    "{\"type\":\"WhitespaceSplit\"},{\"type\":\"Metaspace\",\"replacement\":\"▁\","
                    "\"prepend_scheme\":\"always\",\"split\":true}]},\"decoder\":{\"type\":"
                    "\"Sequence\",\"decoders\":[%s{\"type\":\"Metaspace\",\"replacement\":\"▁\","
                    "\"prepend_scheme\":\"always\"}]}}",
                    spec->byte_fallback ? "{\"type\":\"ByteFallback\"}," : "");
    FSDP_TRY(make_parts(tokenizer, fsdp_str_take(&json), model));
    FSDP_TRY(name_token(tokenizer, FSDP_PAD_TOKEN, "<pad>"));
    FSDP_TRY(name_token(tokenizer, FSDP_EOS_TOKEN, "</s>"));
    FSDP_TRY(name_token(tokenizer, FSDP_UNK_TOKEN, "<unk>"));
    FSDP_TRY(add_sentinels(tokenizer, files));
    FSDP_TRY(fsdp_tokenizer_configure(tokenizer, files, (fsdp_json_node){0}));
    return set_t5_post_processor(tokenizer);
}

/* Add the user-defined pieces as added tokens, because these must be found anywhere in a text. */
static fsdp_status add_user_defined(fsdp_tokenizer *tokenizer, const fsdp_sentencepiece_spec *spec)
{
    for (size_t i = 0; i < spec->count; i++) {
        int32_t id;
        if (spec->pieces[i].type != FSDP_PIECE_USER_DEFINED)
            continue;
        char *text = fsdp_strndup(spec->pieces[i].text, spec->pieces[i].length);
        if (!text)
            return FSDP_ERR_NOMEM;
        fsdp_status status = add_token(tokenizer, text, false, &id);
        fsdp_free(text);
        if (status != FSDP_OK)
            return status;
    }
    return FSDP_OK;
}

/* Begin the JSON object of Llama's tokenizer with the part that replaces spaces by the mark U+2581.
 * If `prefix` is true, this part also puts a mark before the text. If `legacy` is true, the part is
 * a normalizer: it puts a mark before each section between added tokens, even if the section begins
 * with a space, as SentencePiece does. Otherwise it is a pre-tokenizer, which puts a mark only
 * before the text. */
static void append_llama_normalizer(fsdp_str *json, const fsdp_sentencepiece_spec *spec,
                                    bool prefix, bool legacy)
{
    if (!legacy) {
        fsdp_str_printf(json, "{");
        append_normalizer(json, spec);
        fsdp_str_printf(json,
                        "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"▁\","
                        "\"prepend_scheme\":\"%s\",\"split\":false},",
                        prefix ? "first" : "never");
        return;
    }
    fsdp_str_printf(json, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    if (spec->precompiled_charsmap) {
        append_precompiled(json, spec);
        fsdp_str_printf(json, ",");
    }
    fsdp_str_printf(json,
                    "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"▁\"}]},",
                    prefix ? "{\"type\":\"Prepend\",\"prepend\":\"▁\"}," : "");
}

static fsdp_status load_llama(fsdp_tokenizer *tokenizer, const fsdp_tokenizer_files *files,
                              const fsdp_sentencepiece_spec *spec, fsdp_token_model *model)
{
    bool legacy, prefix;
    fsdp_str json = {0};
    fsdp_status status = fsdp_json_opt_bool(config_of(files), "legacy", true, &legacy);
    if (status == FSDP_OK)
        status = fsdp_json_opt_bool(config_of(files), "add_prefix_space", spec->add_dummy_prefix,
                                    &prefix);
    if (status != FSDP_OK) {
        fsdp_token_model_destroy(model);
        return status;
    }
    append_llama_normalizer(&json, spec, prefix, legacy);
    fsdp_str_printf(&json,
                    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
                    "\"pattern\":{\"String\":\"▁\"},\"content\":\" \"},{\"type\":"
                    "\"ByteFallback\"},{\"type\":\"Fuse\"}%s]}}",
                    prefix ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}" : "");
    FSDP_TRY(make_parts(tokenizer, fsdp_str_take(&json), model));
    FSDP_TRY(name_token(tokenizer, FSDP_UNK_TOKEN, "<unk>"));
    FSDP_TRY(name_token(tokenizer, FSDP_BOS_TOKEN, "<s>"));
    FSDP_TRY(name_token(tokenizer, FSDP_EOS_TOKEN, "</s>"));
    FSDP_TRY(add_user_defined(tokenizer, spec));
    FSDP_TRY(fsdp_tokenizer_configure(tokenizer, files, (fsdp_json_node){0}));
    return says_bos_or_eos(files) ? FSDP_OK
                                  : fsdp_tokenizer_set_bos_and_eos(tokenizer, true, false);
}

static fsdp_status load_sentencepiece(fsdp_tokenizer *tokenizer, const fsdp_tokenizer_files *files,
                                      const fsdp_sentencepiece_spec *spec)
{
    char class_name[FSDP_TOKENIZER_CLASS_BYTES];
    fsdp_token_model *model;
    FSDP_TRY(fsdp_tokenizer_class(files, class_name));
    FSDP_TRY(check_class(tokenizer, files,
                         spec->is_bpe ? " LlamaTokenizer CodeLlamaTokenizer "
                                      : " T5Tokenizer MT5Tokenizer ",
                         class_name));
    FSDP_TRY(fsdp_sentencepiece_model_create(spec, &model));
    return spec->is_bpe ? load_llama(tokenizer, files, spec, model)
                        : load_t5(tokenizer, files, spec, model);
}

/* ---- tiktoken ---- */

/* Add the special tokens of Llama 3, in the order of their ids. */
static fsdp_status add_llama3_special(fsdp_tokenizer *tokenizer)
{
    static const char *const first[] = {"<|begin_of_text|>",
                                        "<|end_of_text|>",
                                        "<|reserved_special_token_0|>",
                                        "<|reserved_special_token_1|>",
                                        "<|reserved_special_token_2|>",
                                        "<|reserved_special_token_3|>",
                                        "<|start_header_id|>",
                                        "<|end_header_id|>",
                                        "<|reserved_special_token_4|>",
                                        "<|eot_id|>"};
    enum {
        FIRST = sizeof first / sizeof *first
    };
    for (int i = 0; i < LLAMA3_SPECIAL; i++) {
        char text[64];
        int32_t id;
        snprintf(text, sizeof text, "<|reserved_special_token_%d|>", i - FIRST + 5);
        FSDP_TRY(add_token(tokenizer, i < FIRST ? first[i] : text, true, &id));
    }
    return FSDP_OK;
}

static fsdp_status load_tiktoken(fsdp_tokenizer *tokenizer, const fsdp_tokenizer_files *files,
                                 const char *text, size_t bytes)
{
    fsdp_token_model *model;
    fsdp_str json = {0};
    FSDP_TRY(fsdp_tiktoken_parse(tokenizer->path, text, bytes, &model));
    fsdp_str_printf(&json, "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
                           "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"invert\":false,"
                           "\"pattern\":{\"Regex\":");
    append_quoted(&json, fsdp_word_pattern_text(FSDP_WORDS_LLAMA3));
    fsdp_str_printf(&json, "}},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                           "\"trim_offsets\":true,\"use_regex\":false}]},"
                           "\"decoder\":{\"type\":\"ByteLevel\"}}");
    FSDP_TRY(make_parts(tokenizer, fsdp_str_take(&json), model));
    fsdp_pre_tokenizer_keep_bytes(tokenizer->pre);
    const bool has_special = fsdp_json_has(config_of(files), "added_tokens_decoder");
    if (!has_special && model->ops->size(model) == LLAMA3_TOKENS)
        FSDP_TRY(add_llama3_special(tokenizer));
    FSDP_TRY(fsdp_tokenizer_configure(tokenizer, files, (fsdp_json_node){0}));
    return says_bos_or_eos(files) ? FSDP_OK
                                  : fsdp_tokenizer_set_bos_and_eos(tokenizer, true, false);
}

fsdp_status fsdp_tokenizer_load_model(fsdp_tokenizer *tokenizer, const fsdp_tokenizer_files *files)
{
    char *data;
    size_t bytes;
    FSDP_TRY(fsdp_file_read(tokenizer->path, MODEL_BYTES_MAX, &data, &bytes));
    fsdp_status status;
    if (fsdp_tiktoken_matches(data, bytes)) {
        status = load_tiktoken(tokenizer, files, data, bytes);
    } else {
        fsdp_sentencepiece_spec spec = {0};
        status = fsdp_sentencepiece_parse(tokenizer->path, data, bytes, &spec);
        if (status == FSDP_OK)
            status = load_sentencepiece(tokenizer, files, &spec);
        fsdp_sentencepiece_spec_fini(&spec);
    }
    fsdp_free(data);
    return status;
}

/* ---- BERT ---- */

static fsdp_status set_bert_post_processor(fsdp_tokenizer *tokenizer)
{
    int32_t cls, sep;
    FSDP_TRY(find_named(tokenizer, FSDP_CLS_TOKEN, &cls));
    FSDP_TRY(find_named(tokenizer, FSDP_SEP_TOKEN, &sep));
    char *text =
        fsdp_strdup_printf("{\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"\","
                           "%d],\"cls\":[\"\",%d]}}",
                           (int)sep, (int)cls);
    return fsdp_tokenizer_parse_post_processor(tokenizer, text);
}

static fsdp_status bert_json(const fsdp_tokenizer_files *files, char **text)
{
    fsdp_json_node config = config_of(files);
    bool lower, chinese, accents;
    FSDP_TRY(fsdp_json_opt_bool(config, "do_lower_case", true, &lower));
    FSDP_TRY(fsdp_json_opt_bool(config, "tokenize_chinese_chars", true, &chinese));
    FSDP_TRY(fsdp_json_opt_bool(config, "strip_accents", lower, &accents));
    *text = fsdp_strdup_printf(
        "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,"
        "\"handle_chinese_chars\":%s,\"strip_accents\":%s,\"lowercase\":%s},"
        "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
        "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}}",
        chinese ? "true" : "false", accents ? "true" : "false", lower ? "true" : "false");
    return *text ? FSDP_OK : FSDP_ERR_NOMEM;
}

fsdp_status fsdp_tokenizer_load_vocab_txt(fsdp_tokenizer *tokenizer,
                                          const fsdp_tokenizer_files *files)
{
    char class_name[FSDP_TOKENIZER_CLASS_BYTES], *text;
    fsdp_token_model *model;
    FSDP_TRY(fsdp_tokenizer_class(files, class_name));
    FSDP_TRY(check_class(tokenizer, files,
                         " BertTokenizer DistilBertTokenizer ElectraTokenizer "
                         "MobileBertTokenizer MPNetTokenizer LayoutLMTokenizer RetriBertTokenizer ",
                         class_name));
    FSDP_TRY(fsdp_wordpiece_load(tokenizer->path, &FSDP_WORDPIECE_BERT, &model));
    fsdp_status status = bert_json(files, &text);
    if (status != FSDP_OK) {
        fsdp_token_model_destroy(model);
        return status;
    }
    FSDP_TRY(make_parts(tokenizer, text, model));
    FSDP_TRY(name_token(tokenizer, FSDP_PAD_TOKEN, "[PAD]"));
    FSDP_TRY(name_token(tokenizer, FSDP_UNK_TOKEN, "[UNK]"));
    FSDP_TRY(name_token(tokenizer, FSDP_CLS_TOKEN, "[CLS]"));
    FSDP_TRY(name_token(tokenizer, FSDP_SEP_TOKEN, "[SEP]"));
    FSDP_TRY(name_token(tokenizer, FSDP_MASK_TOKEN, "[MASK]"));
    FSDP_TRY(fsdp_tokenizer_configure(tokenizer, files, (fsdp_json_node){0}));
    return set_bert_post_processor(tokenizer);
}

/* ---- GPT-2, RoBERTa, Qwen2 ---- */

static char *byte_level_json(bool prefix, bool qwen)
{
    fsdp_str json = {0};
    if (!qwen) {
        fsdp_str_printf(&json,
                        "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,"
                        "\"trim_offsets\":true,\"use_regex\":true},",
                        prefix ? "true" : "false");
    } else {
        fsdp_str_printf(&json, "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":"
                               "\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":"
                               "\"Isolated\",\"invert\":false,\"pattern\":{\"Regex\":");
        append_quoted(&json, fsdp_word_pattern_text(FSDP_WORDS_QWEN2));
        fsdp_str_printf(&json,
                        "}},{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"trim_offsets\":true,"
                        "\"use_regex\":false}]},",
                        prefix ? "true" : "false");
    }
    fsdp_str_printf(&json, "\"decoder\":{\"type\":\"ByteLevel\"}}");
    return fsdp_str_take(&json);
}

static fsdp_status load_byte_level_bpe(const fsdp_tokenizer *tokenizer, fsdp_token_model **model)
{
    char *folder = fsdp_path_parent(tokenizer->path);
    char *merges = folder ? fsdp_path_join(folder, "merges.txt") : NULL;
    fsdp_status status = FSDP_ERR_NOMEM;
    if (merges && !fsdp_path_exists(merges))
        status = fsdp_error(FSDP_ERR_NOT_FOUND,
                            "%s: there is no %s, which has the merges of this vocabulary",
                            tokenizer->path, merges);
    else if (merges)
        status =
            fsdp_bpe_load(tokenizer->path, merges, &(fsdp_bpe_options){.raw_bytes = true}, model);
    fsdp_free(merges);
    fsdp_free(folder);
    return status;
}

static fsdp_status set_roberta_post_processor(fsdp_tokenizer *tokenizer, bool prefix)
{
    int32_t cls, sep;
    FSDP_TRY(find_named(tokenizer, FSDP_CLS_TOKEN, &cls));
    FSDP_TRY(find_named(tokenizer, FSDP_SEP_TOKEN, &sep));
    char *text = fsdp_strdup_printf(
        "{\"post_processor\":{\"type\":\"RobertaProcessing\",\"sep\":[\"\",%d],\"cls\":[\"\",%d],"
        "\"trim_offsets\":true,\"add_prefix_space\":%s}}",
        (int)sep, (int)cls, prefix ? "true" : "false");
    return fsdp_tokenizer_parse_post_processor(tokenizer, text);
}

static fsdp_status name_roberta_tokens(fsdp_tokenizer *tokenizer)
{
    FSDP_TRY(name_token(tokenizer, FSDP_BOS_TOKEN, "<s>"));
    FSDP_TRY(name_token(tokenizer, FSDP_CLS_TOKEN, "<s>"));
    FSDP_TRY(name_token(tokenizer, FSDP_PAD_TOKEN, "<pad>"));
    FSDP_TRY(name_token(tokenizer, FSDP_EOS_TOKEN, "</s>"));
    FSDP_TRY(name_token(tokenizer, FSDP_SEP_TOKEN, "</s>"));
    FSDP_TRY(name_token(tokenizer, FSDP_UNK_TOKEN, "<unk>"));
    const fsdp_added_token mask = {
        .text = (char *)(uintptr_t) "<mask>", .special = true, .lstrip = true};
    if (tokenizer->model->ops->id_of(tokenizer->model, "<mask>", 6) < 0)
        return FSDP_OK;
    return fsdp_added_tokens_add(tokenizer->added, &mask, &tokenizer->named[FSDP_MASK_TOKEN]);
}

static fsdp_status name_gpt2_tokens(fsdp_tokenizer *tokenizer, bool qwen)
{
    static const char end[] = "<|endoftext|>";
    int32_t id;
    FSDP_TRY(add_token(tokenizer, end, true, &id));
    tokenizer->named[FSDP_EOS_TOKEN] = tokenizer->named[FSDP_UNK_TOKEN] = id;
    tokenizer->named[qwen ? FSDP_PAD_TOKEN : FSDP_BOS_TOKEN] = id;
    return FSDP_OK;
}

fsdp_status fsdp_tokenizer_load_vocab_json(fsdp_tokenizer *tokenizer,
                                           const fsdp_tokenizer_files *files)
{
    char class_name[FSDP_TOKENIZER_CLASS_BYTES];
    fsdp_token_model *model;
    bool prefix;
    FSDP_TRY(fsdp_tokenizer_class(files, class_name));
    FSDP_TRY(check_class(tokenizer, files, " GPT2Tokenizer RobertaTokenizer Qwen2Tokenizer ",
                         class_name));
    const bool qwen = *class_name == 'Q', roberta = *class_name == 'R';
    FSDP_TRY(fsdp_json_opt_bool(config_of(files), "add_prefix_space", false, &prefix));
    FSDP_TRY(load_byte_level_bpe(tokenizer, &model));
    FSDP_TRY(make_parts(tokenizer, byte_level_json(prefix, qwen), model));
    fsdp_pre_tokenizer_keep_bytes(tokenizer->pre);
    FSDP_TRY(roberta ? name_roberta_tokens(tokenizer) : FSDP_OK);
    const bool names_eos = fsdp_json_has(config_of(files), "eos_token");
    const bool has_end = model->ops->id_of(model, "<|endoftext|>", 13) >= 0;
    if (!roberta && (has_end || (!names_eos && !files->added && !qwen)))
        FSDP_TRY(name_gpt2_tokens(tokenizer, qwen));
    FSDP_TRY(fsdp_tokenizer_configure(tokenizer, files, (fsdp_json_node){0}));
    return roberta ? set_roberta_post_processor(tokenizer, prefix) : FSDP_OK;
}
