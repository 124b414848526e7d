/* Opens tokenizers: finds the file of a tokenizer, creates its parts from this file, and reads the
 * configuration files in the same folder. */
#include <fsdp/text.h>

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/file_kind.h"
#include "src/base/io.h"
#include "src/text/tokenizer_internal.h"

/* ---- tokenizer.json ---- */

/* `config` is tokenizer_config.json. If it has the boolean `key`, set the field `member` of `part`
 * to this boolean. `part` is, for example, the normalizer. */
static fsdp_status override_bool(fsdp_json_node config, const char *key, fsdp_json_node part,
                                 const char *member)
{
    bool value;
    if (!fsdp_json_has(config, key))
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_bool(config, key, &value));
    fsdp_json_set_bool(part, member, value);
    return FSDP_OK;
}

static bool has_type(fsdp_json_node part, const char *type)
{
    const char *is;
    return fsdp_json_kind_of(fsdp_json_find(part, "type")) == FSDP_JSON_STRING &&
           fsdp_json_get_str(part, "type", &is) == FSDP_OK && strcmp(is, type) == 0;
}

/* Let some fields of tokenizer_config.json override those of tokenizer.json, as the classes of
 * transformers for BERT and GPT-2 do. */
static fsdp_status apply_precedence(const fsdp_tokenizer_files *files, fsdp_json_node root)
{
    char class_name[FSDP_TOKENIZER_CLASS_BYTES];
    if (!files->config)
        return FSDP_OK;
    fsdp_json_node config = fsdp_json_root(files->config);
    fsdp_json_node normalizer = fsdp_json_find(root, "normalizer");
    fsdp_json_node pre = fsdp_json_find(root, "pre_tokenizer");
    FSDP_TRY(fsdp_tokenizer_class(files, class_name));
    if (strstr(class_name, "BertTokenizer") && has_type(normalizer, "BertNormalizer")) {
        FSDP_TRY(override_bool(config, "do_lower_case", normalizer, "lowercase"));
        FSDP_TRY(override_bool(config, "strip_accents", normalizer, "strip_accents"));
        FSDP_TRY(
            override_bool(config, "tokenize_chinese_chars", normalizer, "handle_chinese_chars"));
    }
    if ((strcmp(class_name, "GPT2Tokenizer") == 0 || strcmp(class_name, "RobertaTokenizer") == 0) &&
        has_type(pre, "ByteLevel"))
        FSDP_TRY(override_bool(config, "add_prefix_space", pre, "add_prefix_space"));
    return FSDP_OK;
}

static fsdp_status load_json(fsdp_tokenizer *tokenizer, const fsdp_tokenizer_files *files,
                             fsdp_json_node root)
{
    if (fsdp_json_kind_of(root) != FSDP_JSON_OBJECT || !fsdp_json_has(root, "model"))
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: not a whole tokenizer: there is no \"model\", which has the "
                          "vocabulary",
                          tokenizer->path);
    FSDP_TRY(apply_precedence(files, root));
    FSDP_TRY(fsdp_tokenizer_make_parts(tokenizer, root, NULL));
    return fsdp_tokenizer_configure(tokenizer, files, root);
}

/* Load a .json file. If the first value in the file is an integer, the file is a vocab.json.
 * Otherwise, it is a tokenizer.json. */
static fsdp_status load_json_file(fsdp_tokenizer *tokenizer, const fsdp_tokenizer_files *files)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_read(tokenizer->path, &doc));
    fsdp_json_node root = fsdp_json_root(doc);
    const bool is_vocab = fsdp_json_kind_of(fsdp_json_first(root)) == FSDP_JSON_INT;
    fsdp_status status = is_vocab ? FSDP_OK : load_json(tokenizer, files, root);
    fsdp_json_destroy(doc);
    if (is_vocab)
        return fsdp_tokenizer_load_vocab_json(tokenizer, files);
    return status;
}

/* ---- other files ---- */

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Return an error if the contents of the file show that it is not a tokenizer, but for example a
 * Git LFS pointer. */
static fsdp_status check_kind(const char *path)
{
    const char *what = ends_with(path, "spiece.model") ? "a SentencePiece model" : "a tokenizer";
    fsdp_mapping mapping;
    FSDP_TRY(fsdp_file_map(path, &mapping));
    fsdp_status status = FSDP_OK;
    if (!mapping.bytes)
        status = fsdp_error(FSDP_ERR_FORMAT, "%s: an empty file, not a tokenizer", path);
    else
        status = fsdp_file_explain(path, what, FSDP_WANTED_TEXT, mapping.data, mapping.bytes);
    fsdp_file_unmap(&mapping);
    return status;
}

static fsdp_status load_file(fsdp_tokenizer *tokenizer, const fsdp_tokenizer_files *files)
{
    if (ends_with(tokenizer->path, ".json"))
        return load_json_file(tokenizer, files);
    FSDP_TRY(check_kind(tokenizer->path));
    if (ends_with(tokenizer->path, "merges.txt"))
        return fsdp_error(FSDP_ERR_INVALID, "%s: give the vocab.json next to it, or the folder",
                          tokenizer->path);
    if (ends_with(tokenizer->path, ".txt"))
        return fsdp_tokenizer_load_vocab_txt(tokenizer, files);
    return fsdp_tokenizer_load_model(tokenizer, files);
}

/* ---- finding the file ---- */

/* Return true if the tokenizer.json `path` has no model, which means that the vocabulary is in
 * another file. If the file cannot be read, return false; the error is reported when the file is
 * opened. */
static bool is_incomplete(const char *path)
{
    fsdp_json *doc;
    if (fsdp_json_read(path, &doc) != FSDP_OK)
        return false;
    const bool has_model = fsdp_json_has(fsdp_json_root(doc), "model");
    fsdp_json_destroy(doc);
    return !has_model;
}

/* Set *found to the path of the file in `folder` that contains the vocabulary, or to NULL if there
 * is none. */
static fsdp_status find_in_folder(const char *folder, char **found)
{
    static const char *const names[] = {"spiece.model", "tokenizer.model", "vocab.json",
                                        "vocab.txt", "tokenizer.json"};
    char *json = fsdp_path_join(folder, "tokenizer.json");
    *found = NULL;
    if (!json)
        return FSDP_ERR_NOMEM;
    if (fsdp_path_exists(json) && !is_incomplete(json)) {
        *found = json;
        return FSDP_OK;
    }
    fsdp_free(json);
    for (size_t i = 0; i < FSDP_LENGTH(names); i++) {
        char *candidate = fsdp_path_join(folder, names[i]);
        if (!candidate)
            return FSDP_ERR_NOMEM;
        if (fsdp_path_exists(candidate)) {
            *found = candidate;
            return FSDP_OK;
        }
        fsdp_free(candidate);
    }
    return FSDP_OK;
}

static fsdp_status find_file(const char *path, char **found)
{
    if (fsdp_path_is_directory(path)) {
        FSDP_TRY(find_in_folder(path, found));
        return *found ? FSDP_OK
                      : fsdp_error(FSDP_ERR_NOT_FOUND,
                                   "%s holds no tokenizer: no tokenizer.json, spiece.model, "
                                   "tokenizer.model, vocab.json (with merges.txt) or vocab.txt",
                                   path);
    }
    if (!fsdp_path_exists(path))
        return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: there is no such file or folder", path);
    *found = fsdp_strdup(path);
    return *found ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* ---- opening and closing ---- */

static fsdp_status load_tokenizer(fsdp_tokenizer *tokenizer)
{
    fsdp_tokenizer_files files = {0};
    char *folder = fsdp_path_parent(tokenizer->path);
    fsdp_status status = folder ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_tokenizer_files_read(folder, &files);
    if (status == FSDP_OK)
        status = load_file(tokenizer, &files);
    if (status == FSDP_OK)
        status = fsdp_tokenizer_finish(tokenizer);
    fsdp_tokenizer_files_fini(&files);
    fsdp_free(folder);
    return status;
}

/* Add the path to the error message, unless the message already contains the name of a file. */
static void add_path(fsdp_status status, const char *path)
{
    if (status != FSDP_OK && status != FSDP_ERR_NOMEM && !strstr(fsdp_last_error(), ".json") &&
        !strstr(fsdp_last_error(), path))
        fsdp_error_context(status, "%s", path);
}

fsdp_status fsdp_tokenizer_open(const char *path, fsdp_tokenizer **out)
{
    fsdp_tokenizer *tokenizer = fsdp_calloc(1, sizeof *tokenizer);
    if (!tokenizer)
        return FSDP_ERR_NOMEM;
    for (int i = 0; i < FSDP_NAMED_TOKENS; i++)
        tokenizer->named[i] = -1;
    fsdp_status status = find_file(path, &tokenizer->path);
    if (status == FSDP_OK) {
        status = load_tokenizer(tokenizer);
        add_path(status, tokenizer->path);
    }
    if (status != FSDP_OK) {
        fsdp_tokenizer_close(tokenizer);
        return status;
    }
    *out = tokenizer;
    return FSDP_OK;
}

void fsdp_tokenizer_close(fsdp_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    fsdp_work_pool_destroy(tokenizer->pool);
    fsdp_added_tokens_destroy(tokenizer->added);
    fsdp_token_model_destroy(tokenizer->model);
    fsdp_token_decoder_destroy(tokenizer->decoder);
    fsdp_post_processor_destroy(tokenizer->post);
    fsdp_pre_tokenizer_destroy(tokenizer->pre);
    fsdp_normalizer_destroy(tokenizer->normalizer);
    fsdp_char_classes_destroy(tokenizer->classes);
    fsdp_free(tokenizer->path);
    fsdp_free(tokenizer);
}

/* ---- properties ---- */

int32_t fsdp_tokenizer_vocab_size(const fsdp_tokenizer *tokenizer)
{
    return fsdp_added_tokens_size(tokenizer->added);
}

int32_t fsdp_tokenizer_extra_ids(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->extra_ids;
}

int32_t fsdp_tokenizer_first_sentinel(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->first_sentinel;
}

/* Find the special tokens that the post-processor adds to a single text. If exactly one is added
 * before the text, set *before to it, otherwise to -1. Do the same for *after and the tokens that
 * are added after the text. */
static void find_ends(const fsdp_tokenizer *tokenizer, int32_t *before, int32_t *after)
{
    fsdp_post_part parts[FSDP_POST_PARTS_MAX];
    size_t count, n_before = 0, n_after = 0;
    bool text = false;
    *before = *after = -1;
    if (fsdp_post_processor_plan(tokenizer->post, false, true, parts, &count) != FSDP_OK)
        /* this cannot fail, because the same call succeeded when the post-processor was read */
        return;
    for (size_t i = 0; i < count; i++) {
        text |= parts[i].text >= 0;
        for (size_t k = 0; parts[i].text < 0 && k < parts[i].count; k++) {
            *(text ? after : before) = parts[i].ids[k];
            (*(text ? &n_after : &n_before))++;
        }
    }
    *before = n_before == 1 ? *before : -1;
    *after = n_after == 1 ? *after : -1;
}

int32_t fsdp_tokenizer_bos_id(const fsdp_tokenizer *tokenizer)
{
    int32_t before, after;
    find_ends(tokenizer, &before, &after);
    return before;
}

bool fsdp_tokenizer_appends_eos(const fsdp_tokenizer *tokenizer)
{
    int32_t before, after;
    find_ends(tokenizer, &before, &after);
    return after >= 0 && after == fsdp_tokenizer_eos_id(tokenizer);
}

int32_t fsdp_tokenizer_pad_id(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->named[FSDP_PAD_TOKEN];
}

int32_t fsdp_tokenizer_eos_id(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->named[FSDP_EOS_TOKEN];
}

int32_t fsdp_tokenizer_unk_id(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->named[FSDP_UNK_TOKEN];
}

int32_t fsdp_tokenizer_token_id(const fsdp_tokenizer *tokenizer, const char *name)
{
    for (int i = 0; i < FSDP_NAMED_TOKENS; i++)
        if (strcmp(fsdp_named_token_keys[i], name) == 0)
            return tokenizer->named[i];
    const fsdp_added_token *added =
        fsdp_added_tokens_find_text(tokenizer->added, name, strlen(name));
    return added ? added->id : tokenizer->model->ops->id_of(tokenizer->model, name, strlen(name));
}

const char *fsdp_tokenizer_token_text(const fsdp_tokenizer *tokenizer, int32_t id)
{
    size_t length;
    const fsdp_added_token *added = fsdp_added_tokens_find_id(tokenizer->added, id);
    if (added)
        return added->text;
    return id < 0 ? NULL : tokenizer->model->ops->text_of(tokenizer->model, id, &length);
}

bool fsdp_tokenizer_is_special(const fsdp_tokenizer *tokenizer, int32_t id)
{
    const char *text = fsdp_tokenizer_token_text(tokenizer, id);
    return text && fsdp_added_tokens_is_special(tokenizer->added, text, strlen(text));
}

bool fsdp_tokenizer_returns_type_ids(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->returns_type_ids;
}

int64_t fsdp_tokenizer_model_max_length(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->model_max_length;
}

const char *fsdp_tokenizer_path(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->path;
}
