/* See mask_ids.h. */
#include "src/pretrained/mask_ids.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/str.h"

enum {
    VOCAB_MAX_BYTES = 100000000
};

static fsdp_status add_special(fsdp_mask_ids *ids, int64_t id)
{
    if (!FSDP_GROW(ids->special, ids->cap_special, ids->n_special + 1))
        return FSDP_ERR_NOMEM;
    ids->special[ids->n_special++] = (int32_t)id;
    return FSDP_OK;
}

/* --- the mask token's name --- */

/* Read mask_token: a string, or an object that has the string under the key "content". */
static fsdp_status read_name(fsdp_json_node root, char **name)
{
    const char *text = "[MASK]";
    const fsdp_json_node token = fsdp_json_find(root, "mask_token");
    if (fsdp_json_kind_of(token) == FSDP_JSON_OBJECT)
        FSDP_TRY(fsdp_json_get_str(token, "content", &text));
    else
        FSDP_TRY(fsdp_json_opt_str(root, "mask_token", "[MASK]", &text));
    return (*name = fsdp_strdup(text)) ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Set *name to the text of the mask token of the tokenizer in `dir`. The caller frees *name. */
static fsdp_status find_name(const char *dir, char **name)
{
    fsdp_json *doc = NULL;
    char *path = fsdp_path_join(dir, "tokenizer_config.json");
    if (!path)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    if (fsdp_path_is_file(path))
        status = fsdp_json_read(path, &doc);
    if (status == FSDP_OK)
        status = doc ? read_name(fsdp_json_root(doc), name)
                     : ((*name = fsdp_strdup("[MASK]")) ? FSDP_OK : FSDP_ERR_NOMEM);
    fsdp_json_destroy(doc);
    fsdp_free(path);
    return status;
}

/* --- tokenizer.json --- */

static fsdp_status read_added_token(fsdp_json_node token, const char *mask, int64_t vocab_size,
                                    fsdp_mask_ids *ids)
{
    int64_t id;
    bool special;
    const char *content;
    FSDP_TRY(fsdp_json_get_i64(token, "id", 0, INT32_MAX, &id));
    FSDP_TRY(fsdp_json_get_str(token, "content", &content));
    FSDP_TRY(fsdp_json_opt_bool(token, "special", false, &special));
    if (id >= vocab_size)
        return FSDP_OK; /* the tokenizer has more tokens than the model; the ids of these tokens
                           occur in no row */
    if (strcmp(content, mask) == 0)
        ids->mask_token_id = (int32_t)id;
    return special ? add_special(ids, id) : FSDP_OK;
}

static fsdp_status read_tokenizer_json(const char *path, const char *mask, int64_t vocab_size,
                                       fsdp_mask_ids *ids)
{
    fsdp_json *doc;
    fsdp_json_node tokens;
    FSDP_TRY(fsdp_json_read(path, &doc));
    fsdp_status status = fsdp_json_opt_array(fsdp_json_root(doc), "added_tokens", &tokens);
    for (size_t i = 0; status == FSDP_OK && i < fsdp_json_len(tokens); i++)
        status = read_added_token(fsdp_json_at(tokens, i), mask, vocab_size, ids);
    fsdp_json_destroy(doc);
    return status;
}

/* --- vocab.txt --- */

/* `line` [n] is line number `id` of vocab.txt. If it is the mask token or another special token,
 * record the id in *ids. */
static fsdp_status read_vocab_line(const char *line, size_t n, int64_t id, const char *mask,
                                   fsdp_mask_ids *ids)
{
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"};
    bool is_special = n == strlen(mask) && memcmp(line, mask, n) == 0;
    if (is_special)
        ids->mask_token_id = (int32_t)id;
    for (size_t i = 0; i < FSDP_LENGTH(special); i++)
        is_special |= n == strlen(special[i]) && memcmp(line, special[i], n) == 0;
    return is_special ? add_special(ids, id) : FSDP_OK;
}

static fsdp_status read_vocab(const char *path, const char *mask, int64_t vocab_size,
                              fsdp_mask_ids *ids)
{
    char *text;
    size_t bytes, at = 0;
    FSDP_TRY(fsdp_file_read(path, VOCAB_MAX_BYTES, &text, &bytes));
    fsdp_status status = FSDP_OK;
    for (int64_t id = 0; status == FSDP_OK && at < bytes && id < vocab_size; id++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t whole = end ? (size_t)(end - (text + at)) : bytes - at;
        const size_t n = whole && text[at + whole - 1] == '\r' ? whole - 1 : whole;
        status = read_vocab_line(text + at, n, id, mask, ids);
        at += whole + 1;
    }
    fsdp_free(text);
    return status;
}

/* --- folders --- */

typedef fsdp_status read_file_fn(const char *path, const char *mask, int64_t vocab_size,
                                 fsdp_mask_ids *ids);

/* If the file `name` exists in `dir`, call `read` with its path. */
static fsdp_status read_in(const char *dir, const char *name, read_file_fn *read, const char *mask,
                           int64_t vocab_size, fsdp_mask_ids *ids)
{
    char *path = fsdp_path_join(dir, name);
    if (!path)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_path_is_file(path) ? read(path, mask, vocab_size, ids) : FSDP_OK;
    fsdp_free(path);
    return status;
}

static fsdp_status read_folder(const char *dir, int64_t vocab_size, fsdp_mask_ids *ids)
{
    char *mask = NULL;
    FSDP_TRY(find_name(dir, &mask));
    fsdp_status status = read_in(dir, "tokenizer.json", read_tokenizer_json, mask, vocab_size, ids);
    if (status == FSDP_OK && ids->mask_token_id < 0) {
        ids->n_special = 0;
        status = read_in(dir, "vocab.txt", read_vocab, mask, vocab_size, ids);
    }
    fsdp_free(mask);
    return status;
}

/* If `path` is a folder, return a copy of `path`. Otherwise, return the folder that contains the
 * file `path`. The caller frees the result. */
static char *folder_of(const char *path)
{
    return fsdp_path_is_directory(path) ? fsdp_strdup(path) : fsdp_path_parent(path);
}

fsdp_status fsdp_mask_ids_read(const char *tokenizer, const char *dir, int64_t vocab_size,
                               fsdp_mask_ids *out)
{
    fsdp_mask_ids ids = {.mask_token_id = -1};
    char *beside = tokenizer ? folder_of(tokenizer) : NULL;
    fsdp_status status = tokenizer && !beside ? FSDP_ERR_NOMEM : FSDP_OK;
    if (status == FSDP_OK && beside)
        status = read_folder(beside, vocab_size, &ids);
    if (status == FSDP_OK && dir && ids.mask_token_id < 0) {
        ids.n_special = 0; /* forget the ids of the folder that has no mask token */
        status = read_folder(dir, vocab_size, &ids);
    }
    fsdp_free(beside);
    if (status != FSDP_OK) {
        fsdp_mask_ids_fini(&ids);
        return status;
    }
    *out = ids;
    return FSDP_OK;
}

void fsdp_mask_ids_fini(fsdp_mask_ids *ids)
{
    fsdp_free(ids->special);
    *ids = (fsdp_mask_ids){.mask_token_id = -1};
}
