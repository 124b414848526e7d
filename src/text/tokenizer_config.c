/* Reads the configuration files next to a vocabulary, like
 * PreTrainedTokenizerBase.from_pretrained() and TokenizersBackend of transformers 5.
 *
 * If tokenizer_config.json has added_tokens_decoder, its tokens are added in the order of their
 * ids. Otherwise, special_tokens_map.json and added_tokens.json are read. Then the special tokens
 * that have a name (bos_token and so on) and the additional special tokens are added, if they do
 * not exist yet. If tokenizer_config.json has add_bos_token or add_eos_token, these two fields
 * decide which special tokens are added to a text, and the post-processor of the tokenizer.json is
 * replaced. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/text/models/vocabulary.h"
#include "src/text/parts/token_json.h"
#include "src/text/tokenizer_internal.h"

const char *const fsdp_named_token_keys[FSDP_NAMED_TOKENS] = {
    [FSDP_BOS_TOKEN] = "bos_token",   [FSDP_EOS_TOKEN] = "eos_token",
    [FSDP_UNK_TOKEN] = "unk_token",   [FSDP_SEP_TOKEN] = "sep_token",
    [FSDP_PAD_TOKEN] = "pad_token",   [FSDP_CLS_TOKEN] = "cls_token",
    [FSDP_MASK_TOKEN] = "mask_token",
};

/* ---- reading the files ---- */

/* Read the file `name` in `folder`. If the file does not exist, *doc does not change. */
static fsdp_status read_if_exists(const char *folder, const char *name, fsdp_json **doc)
{
    char *path = fsdp_path_join(folder, name);
    fsdp_status status = path ? FSDP_OK : FSDP_ERR_NOMEM;
    if (path && fsdp_path_exists(path))
        status = fsdp_json_read(path, doc);
    fsdp_free(path);
    if (status == FSDP_OK && *doc && fsdp_json_kind_of(fsdp_json_root(*doc)) != FSDP_JSON_OBJECT)
        status = fsdp_json_mismatch(fsdp_json_root(*doc), NULL, "an object");
    return status;
}

fsdp_status fsdp_tokenizer_files_read(const char *folder, fsdp_tokenizer_files *files)
{
    FSDP_TRY(read_if_exists(folder, "tokenizer_config.json", &files->config));
    FSDP_TRY(read_if_exists(folder, "special_tokens_map.json", &files->special_map));
    return read_if_exists(folder, "added_tokens.json", &files->added);
}

void fsdp_tokenizer_files_fini(fsdp_tokenizer_files *files)
{
    fsdp_json_destroy(files->config);
    fsdp_json_destroy(files->special_map);
    fsdp_json_destroy(files->added);
    *files = (fsdp_tokenizer_files){0};
}

/* Return the root node of a file. If `doc` is NULL because the file does not exist, return an
 * absent node. */
static fsdp_json_node root_of(fsdp_json *doc)
{
    return doc ? fsdp_json_root(doc) : (fsdp_json_node){0};
}

fsdp_status fsdp_tokenizer_class(const fsdp_tokenizer_files *files,
                                 char name[FSDP_TOKENIZER_CLASS_BYTES])
{
    const char *full = "";
    if (files->config)
        FSDP_TRY(fsdp_json_opt_str(fsdp_json_root(files->config), "tokenizer_class", "", &full));
    snprintf(name, FSDP_TOKENIZER_CLASS_BYTES, "%s", full);
    const size_t length = strlen(name);
    if (length > 4 && strcmp(name + length - 4, "Fast") == 0)
        name[length - 4] = 0;
    return FSDP_OK;
}

/* ---- adding tokens ---- */

typedef struct configuration {
    fsdp_tokenizer *tokenizer;
    /* root nodes of the files; absent nodes if a file does not exist */
    fsdp_json_node config, special_map, added, tokenizer_json;
    bool has_decoder; /* tokenizer_config.json has added_tokens_decoder */
} configuration;

static fsdp_status add_with_id(configuration *c, fsdp_json_node node, const fsdp_added_token *token,
                               int64_t expected)
{
    int32_t id;
    FSDP_TRY(fsdp_added_tokens_add(c->tokenizer->added, token, &id));
    if (id < 0 || id == expected)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT,
                      "%s: the added token '%.100s' has the id %" PRId64
                      ", but transformers would give it the id %d: ids must have no holes, and "
                      "must be those of %s",
                      fsdp_json_name(node.doc), token->text, expected, (int)id, c->tokenizer->path);
}

/* A token in a file, and the id that the file gives to it. Arrays of entries are sorted by id. */
typedef struct decoder_entry {
    int64_t id;
    fsdp_json_node node;
} decoder_entry;

static int compare_entries(const void *a, const void *b)
{
    const int64_t x = ((const decoder_entry *)a)->id, y = ((const decoder_entry *)b)->id;
    return (x > y) - (x < y);
}

static fsdp_status add_entry(configuration *c, const decoder_entry *entry)
{
    fsdp_added_token token;
    FSDP_TRY(fsdp_added_token_from_json(entry->node, &token));
    return add_with_id(c, entry->node, &token, entry->id);
}

static fsdp_status read_entries(fsdp_json_node all, decoder_entry *entries, size_t *count)
{
    for (fsdp_json_node v = fsdp_json_first(all); v.value; v = fsdp_json_next(v)) {
        char *end;
        const long id = strtol(v.key, &end, 10);
        if (end == v.key || *end || id < 0 || id > FSDP_TOKEN_ID_MAX)
            return fsdp_json_mismatch(v, NULL, "an id of at most %d as its key",
                                      (int)FSDP_TOKEN_ID_MAX);
        entries[(*count)++] = (decoder_entry){id, v};
    }
    return FSDP_OK;
}

/* Add the tokens of added_tokens_decoder: {"32000": {"content": "<sep>", "lstrip": false, ...}}. */
static fsdp_status add_decoder(configuration *c)
{
    fsdp_json_node all;
    FSDP_TRY(fsdp_json_opt_object(c->config, "added_tokens_decoder", &all));
    decoder_entry *entries = fsdp_calloc(fsdp_json_len(all), sizeof *entries);
    size_t count = 0;
    if (!entries)
        return FSDP_ERR_NOMEM;
    fsdp_status status = read_entries(all, entries, &count);
    if (status == FSDP_OK)
        qsort(entries, count, sizeof *entries, compare_entries);
    for (size_t i = 0; status == FSDP_OK && i < count; i++)
        status = add_entry(c, &entries[i]);
    fsdp_free(entries);
    return status;
}

/* Return the token with the name `key`, such as "bos_token", from tokenizer_config.json or
 * special_tokens_map.json. The node may be absent. */
static fsdp_json_node named_value(const configuration *c, const char *key)
{
    fsdp_json_node value = fsdp_json_find(c->config, key);
    fsdp_json_node mapped = fsdp_json_find(c->special_map, key);
    return !c->has_decoder && mapped.value ? mapped : value;
}

/* Set *text to the text of the token `value`, which is a string or an object with "content". If
 * `value` is null or absent, set *text to NULL. */
static fsdp_status token_text(fsdp_json_node value, const char **text)
{
    const fsdp_json_kind kind = fsdp_json_kind_of(value);
    *text = NULL;
    if (kind == FSDP_JSON_NONE || kind == FSDP_JSON_NULL)
        return FSDP_OK;
    if (kind == FSDP_JSON_OBJECT)
        return fsdp_json_get_str(value, "content", text);
    return fsdp_json_get_str(value, NULL, text);
}

static fsdp_json_node extra_tokens(const configuration *c)
{
    fsdp_json_node extra = named_value(c, "extra_special_tokens");
    return fsdp_json_len(extra) ? extra : named_value(c, "additional_special_tokens");
}

/* Return true if `text` is a named token or an item of the list of extra special tokens. If the
 * extra special tokens are an object, they do not count: transformers 5.24 matches such a token of
 * added_tokens.json in the normalized text, although add_named() makes it special. */
static bool is_named_special(const configuration *c, const char *text)
{
    for (int i = 0; i < FSDP_NAMED_TOKENS; i++) {
        const char *named;
        if (token_text(named_value(c, fsdp_named_token_keys[i]), &named) == FSDP_OK && named &&
            strcmp(named, text) == 0)
            return true;
    }
    fsdp_json_node extra = extra_tokens(c);
    for (size_t i = 0; i < fsdp_json_len(extra); i++) {
        const char *named;
        if (token_text(fsdp_json_at(extra, i), &named) == FSDP_OK && named &&
            strcmp(named, text) == 0)
            return true;
    }
    return false;
}

/* Add the tokens of added_tokens.json, such as {"<sep>": 32000}, in the order of their ids. */
static fsdp_status add_map(configuration *c)
{
    decoder_entry *entries = fsdp_calloc(fsdp_json_len(c->added), sizeof *entries);
    size_t count = 0;
    if (!entries)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    for (fsdp_json_node v = fsdp_json_first(c->added); v.value && status == FSDP_OK;
         v = fsdp_json_next(v)) {
        entries[count].node = v;
        status = fsdp_json_get_i64(v, NULL, 0, FSDP_TOKEN_ID_MAX, &entries[count++].id);
    }
    if (status == FSDP_OK)
        qsort(entries, count, sizeof *entries, compare_entries);
    for (size_t i = 0; i < count && status == FSDP_OK; i++) {
        const char *text = entries[i].node.key;
        /* If tokenizer.json has added this token already, keep the token's flags from
         * tokenizer.json. */
        if (c->tokenizer_json.value &&
            fsdp_added_tokens_find_text(c->tokenizer->added, text, strlen(text)))
            continue;
        const bool special = is_named_special(c, text);
        const fsdp_added_token token = {
            .text = (char *)(uintptr_t)text, .special = special, .normalized = !special};
        status = add_with_id(c, entries[i].node, &token, entries[i].id);
    }
    fsdp_free(entries);
    return status;
}

/* Add the token `value` as a special token, and set *id to its id. If its text was added before,
 * its other flags do not change. If `value` has no text, set *id to -1. */
static fsdp_status add_special(configuration *c, fsdp_json_node value, int32_t *id)
{
    const char *text;
    *id = -1;
    FSDP_TRY(token_text(value, &text));
    if (!text || !*text)
        return FSDP_OK;
    fsdp_added_token token = {.text = (char *)(uintptr_t)text, .special = true};
    const fsdp_added_token *known =
        fsdp_added_tokens_find_text(c->tokenizer->added, text, strlen(text));
    if (known) {
        token = *known;
        token.text = (char *)(uintptr_t)text;
    } else if (fsdp_json_kind_of(value) == FSDP_JSON_OBJECT) {
        FSDP_TRY(fsdp_added_token_from_json(value, &token));
    }
    token.special = true;
    return fsdp_added_tokens_add(c->tokenizer->added, &token, id);
}

static fsdp_status add_named(configuration *c)
{
    for (int i = 0; i < FSDP_NAMED_TOKENS; i++) {
        int32_t id;
        FSDP_TRY(add_special(c, named_value(c, fsdp_named_token_keys[i]), &id));
        if (id >= 0)
            c->tokenizer->named[i] = id;
    }
    fsdp_json_node extra = extra_tokens(c);
    const bool is_map = fsdp_json_kind_of(extra) == FSDP_JSON_OBJECT;
    fsdp_json_node v = is_map ? fsdp_json_first(extra) : fsdp_json_at(extra, 0);
    for (size_t i = 0; i < fsdp_json_len(extra); i++) {
        int32_t id;
        FSDP_TRY(add_special(c, v, &id));
        v = is_map ? fsdp_json_next(v) : fsdp_json_at(extra, i + 1);
    }
    return FSDP_OK;
}

/* ---- names without a configuration ---- */

/* If the tokenizer has no token with the role `name` yet, such as the eos token, guess it: take the
 * first of `texts` that is a token. `texts` is a list, separated by spaces, of the texts that known
 * models use for this role. */
static void guess_named(fsdp_tokenizer *tokenizer, fsdp_named_token name, const char *texts)
{
    for (const char *p = texts; *p && tokenizer->named[name] < 0;) {
        const size_t length = strcspn(p, " ");
        const fsdp_added_token *added = fsdp_added_tokens_find_text(tokenizer->added, p, length);
        tokenizer->named[name] =
            added ? added->id : tokenizer->model->ops->id_of(tokenizer->model, p, length);
        p += length;
        p += *p == ' ';
    }
}

static void guess_all_named(fsdp_tokenizer *tokenizer)
{
    guess_named(tokenizer, FSDP_BOS_TOKEN, "<s> <|begin_of_text|> <bos>");
    guess_named(tokenizer, FSDP_EOS_TOKEN, "</s> <|end_of_text|> <|endoftext|> <eos>");
    guess_named(tokenizer, FSDP_UNK_TOKEN, "<unk> [UNK]");
    guess_named(tokenizer, FSDP_PAD_TOKEN, "<pad> [PAD]");
    guess_named(tokenizer, FSDP_SEP_TOKEN, "[SEP]");
    guess_named(tokenizer, FSDP_CLS_TOKEN, "[CLS]");
    guess_named(tokenizer, FSDP_MASK_TOKEN, "[MASK] <mask>");
    if (tokenizer->named[FSDP_UNK_TOKEN] < 0)
        tokenizer->named[FSDP_UNK_TOKEN] = tokenizer->model->ops->unk_id(tokenizer->model);
}

/* ---- the post-processor ---- */

/* Do the same as TokenizersBackend.update_post_processor() of transformers. */
fsdp_status fsdp_tokenizer_set_bos_and_eos(fsdp_tokenizer *tokenizer, bool bos, bool eos)
{
#define SPECIAL(name, type) "{\"SpecialToken\":{\"id\":\"" name "\",\"type_id\":" type "}}"
#define TEXT(name, type) "{\"Sequence\":{\"id\":\"" name "\",\"type_id\":" type "}}"
    const int bos_id = tokenizer->named[FSDP_BOS_TOKEN], eos_id = tokenizer->named[FSDP_EOS_TOKEN];
    bos = bos && bos_id >= 0;
    eos = eos && eos_id >= 0;
    char *text = fsdp_strdup_printf(
        "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[%s%s%s],"
        "\"pair\":[%s%s%s%s%s%s],\"special_tokens\":{\"bos\":{\"ids\":[%d]},"
        "\"eos\":{\"ids\":[%d]}}}}",
        bos ? SPECIAL("bos", "0") "," : "", TEXT("A", "0"), eos ? "," SPECIAL("eos", "0") : "",
        bos ? SPECIAL("bos", "0") "," : "", TEXT("A", "0"), eos ? "," SPECIAL("eos", "0") : "",
        bos ? "," SPECIAL("bos", "1") : "", "," TEXT("B", "1"), eos ? "," SPECIAL("eos", "1") : "",
        bos ? bos_id : 0, eos ? eos_id : 0);
#undef SPECIAL
#undef TEXT
    return fsdp_tokenizer_parse_post_processor(tokenizer, text);
}

static fsdp_status configure_post_processor(configuration *c)
{
    bool bos, eos;
    if (!fsdp_json_has(c->config, "add_bos_token") && !fsdp_json_has(c->config, "add_eos_token"))
        return FSDP_OK;
    FSDP_TRY(fsdp_json_opt_bool(c->config, "add_bos_token", false, &bos));
    FSDP_TRY(fsdp_json_opt_bool(c->config, "add_eos_token", false, &eos));
    return fsdp_tokenizer_set_bos_and_eos(c->tokenizer, bos, eos);
}

/* ---- all members ---- */

/* Read model_max_length, which is int(1e30) for models without a limit. */
static fsdp_status read_max_length(configuration *c)
{
    double length;
    FSDP_TRY(fsdp_json_opt_f64(c->config, "model_max_length", 0, &length));
    if (length < 0)
        return fsdp_json_mismatch(c->config, "model_max_length", "a number that is not negative");
    c->tokenizer->model_max_length = length > 1e9 ? 0 : (int64_t)length;
    return FSDP_OK;
}

/* Return true if class_name, a class of transformers 5, has token_type_ids in its
 * model_input_names. If class_name is "", return true for a vocab.txt, which belongs to BERT, and
 * for a tokenizer.json, which may belong to a class that has token_type_ids. */
static bool class_has_type_ids(const char *class_name, const char *path)
{
    static const char known[] = " BertTokenizer ElectraTokenizer MobileBertTokenizer "
                                "DebertaTokenizer DebertaV2Tokenizer FNetTokenizer "
                                "LayoutLMTokenizer ";
    char spaced[FSDP_TOKENIZER_CLASS_BYTES + 2];
    if (!*class_name)
        return strcmp(fsdp_path_name(path), "vocab.txt") == 0 ||
               strcmp(fsdp_path_name(path), "tokenizer.json") == 0;
    snprintf(spaced, sizeof spaced, " %s ", class_name);
    return strstr(known, spaced) != NULL;
}

static fsdp_status read_input_names(configuration *c, const fsdp_tokenizer_files *files)
{
    char class_name[FSDP_TOKENIZER_CLASS_BYTES];
    FSDP_TRY(fsdp_tokenizer_class(files, class_name));
    c->tokenizer->returns_type_ids = class_has_type_ids(class_name, c->tokenizer->path);
    fsdp_json_node names = fsdp_json_find(c->config, "model_input_names");
    const fsdp_json_kind kind = fsdp_json_kind_of(names);
    if (kind == FSDP_JSON_NONE || kind == FSDP_JSON_NULL)
        return FSDP_OK;
    if (kind != FSDP_JSON_ARRAY)
        return fsdp_json_mismatch(c->config, "model_input_names", "a list of names");
    c->tokenizer->returns_type_ids = false;
    for (size_t i = 0; i < fsdp_json_len(names); i++) {
        const char *name;
        FSDP_TRY(fsdp_json_get_str(fsdp_json_at(names, i), NULL, &name));
        c->tokenizer->returns_type_ids |= strcmp(name, "token_type_ids") == 0;
    }
    return FSDP_OK;
}

static fsdp_status read_options(configuration *c)
{
    fsdp_tokenizer *t = c->tokenizer;
    const char *side;
    FSDP_TRY(
        fsdp_json_opt_bool(c->config, "split_special_tokens", false, &t->split_special_tokens));
    FSDP_TRY(fsdp_json_opt_bool(c->config, "clean_up_tokenization_spaces", false, &t->clean_up));
    FSDP_TRY(fsdp_json_opt_bool(
        c->config, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", false,
        &t->clean_up_bpe));
    FSDP_TRY(fsdp_json_opt_str(c->config, "truncation_side", "right", &side));
    t->truncate_left = strcmp(side, "left") == 0;
    if (!t->truncate_left && strcmp(side, "right") != 0)
        return fsdp_json_mismatch(c->config, "truncation_side", "left or right");
    return read_max_length(c);
}

fsdp_status fsdp_tokenizer_configure(fsdp_tokenizer *tokenizer, const fsdp_tokenizer_files *files,
                                     fsdp_json_node tokenizer_json)
{
    configuration c = {.tokenizer = tokenizer,
                       .config = root_of(files->config),
                       .special_map = root_of(files->special_map),
                       .added = root_of(files->added),
                       .tokenizer_json = tokenizer_json};
    c.has_decoder = fsdp_json_has(c.config, "added_tokens_decoder");
    FSDP_TRY(read_input_names(&c, files));
    if (c.config.value)
        FSDP_TRY(read_options(&c));
    if (c.has_decoder)
        FSDP_TRY(add_decoder(&c));
    else if (c.added.value)
        FSDP_TRY(add_map(&c));
    FSDP_TRY(add_named(&c));
    guess_all_named(tokenizer);
    return c.config.value ? configure_post_processor(&c) : FSDP_OK;
}
