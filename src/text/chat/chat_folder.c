/* Finds the chat templates and the special tokens of a Hugging Face folder, in the same files in
 * which transformers finds them. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/file_kind.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/text/chat/chat.h"

const char *const fsdp_chat_token_names[FSDP_CHAT_TOKENS] = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

/* ---- templates ------------------------------------------------------------------------------- */

static void source_fini(fsdp_chat_source *source)
{
    fsdp_free(source->name);
    fsdp_free(source->path);
    fsdp_free(source->text);
}

void fsdp_chat_sources_fini(fsdp_chat_sources *sources)
{
    for (size_t i = 0; i < sources->n; i++)
        source_fini(&sources->items[i]);
    fsdp_free(sources->items);
    *sources = (fsdp_chat_sources){0};
}

/* Add a template. The list takes ownership of `text`, even on failure. */
static fsdp_status add_source(fsdp_chat_sources *sources, const char *name, size_t name_bytes,
                              const char *path, char *text)
{
    fsdp_chat_source source = {fsdp_strndup(name, name_bytes), fsdp_strdup(path), text};
    if (!source.name || !source.path || !source.text ||
        !FSDP_GROW(sources->items, sources->cap, sources->n + 1)) {
        source_fini(&source);
        return FSDP_ERR_NOMEM;
    }
    sources->items[sources->n++] = source;
    return FSDP_OK;
}

static fsdp_status add_file(fsdp_chat_sources *sources, const char *name, size_t name_bytes,
                            const char *path)
{
    char *text = NULL;
    size_t bytes;
    FSDP_TRY(fsdp_file_read(path, JINJA_MAX_SOURCE, &text, &bytes));
    fsdp_status status = fsdp_file_explain(path, "a chat template", FSDP_WANTED_TEXT, text, bytes);
    if (status == FSDP_OK && strlen(text) < bytes)
        status = fsdp_error(FSDP_ERR_FORMAT, "%s: a chat template with a NUL character", path);
    if (status != FSDP_OK) {
        fsdp_free(text);
        return status;
    }
    return add_source(sources, name, name_bytes, path, text);
}

/* Add each file NAME.jinja in the folder `dir` as the template NAME. The folder need not exist. */
static fsdp_status add_folder(fsdp_chat_sources *sources, const char *dir)
{
    char **names = NULL;
    size_t n = 0;
    if (!fsdp_path_is_directory(dir))
        return FSDP_OK;
    fsdp_status status = fsdp_directory_list(dir, &names, &n);
    for (size_t i = 0; status == FSDP_OK && i < n; i++) {
        if (!fsdp_ends_with(names[i], ".jinja"))
            continue;
        char *path = fsdp_path_join(dir, names[i]);
        status = path ? add_file(sources, names[i], strlen(names[i]) - strlen(".jinja"), path)
                      : FSDP_ERR_NOMEM;
        fsdp_free(path);
    }
    fsdp_free(names);
    return status;
}

/* Add the templates in the field "chat_template" of a JSON file. It is a text, or a list of objects
 * {"name", "template"}. */
static fsdp_status add_templates_of_object(fsdp_chat_sources *sources, fsdp_json_node root,
                                           const char *path)
{
    const fsdp_json_node node = fsdp_json_find(root, "chat_template");
    const char *text, *name;
    if (!fsdp_json_has(root, "chat_template"))
        return FSDP_OK;
    if (fsdp_json_kind_of(node) != FSDP_JSON_ARRAY) {
        FSDP_TRY(fsdp_json_get_str(root, "chat_template", &text));
        return add_source(sources, "default", strlen("default"), path, fsdp_strdup(text));
    }
    for (size_t i = 0; i < fsdp_json_len(node); i++) {
        FSDP_TRY(fsdp_json_get_str(fsdp_json_at(node, i), "name", &name));
        FSDP_TRY(fsdp_json_get_str(fsdp_json_at(node, i), "template", &text));
        FSDP_TRY(add_source(sources, name, strlen(name), path, fsdp_strdup(text)));
    }
    return FSDP_OK;
}

static fsdp_status add_json(fsdp_chat_sources *sources, const char *path)
{
    fsdp_json *doc = NULL;
    FSDP_TRY(fsdp_json_read(path, &doc));
    const fsdp_status status = add_templates_of_object(sources, fsdp_json_root(doc), path);
    fsdp_json_destroy(doc);
    return status;
}

/* Add the templates of the file `name`, if the file exists and no template has been found yet. */
static fsdp_status add_from(fsdp_chat_sources *sources, const char *folder, const char *name)
{
    if (sources->n || !fsdp_directory_has_file(folder, name))
        return FSDP_OK;
    char *path = fsdp_path_join(folder, name);
    if (!path)
        return FSDP_ERR_NOMEM;
    const fsdp_status status = fsdp_ends_with(name, ".jinja")
                                   ? add_file(sources, "default", strlen("default"), path)
                                   : add_json(sources, path);
    fsdp_free(path);
    return status;
}

fsdp_status fsdp_chat_sources_read(const char *folder, fsdp_chat_sources *sources)
{
    *sources = (fsdp_chat_sources){0};
    fsdp_status status = add_from(sources, folder, "chat_template.jinja");
    if (status == FSDP_OK) {
        char *more = fsdp_path_join(folder, "additional_chat_templates");
        status = more ? add_folder(sources, more) : FSDP_ERR_NOMEM;
        fsdp_free(more);
    }
    if (status == FSDP_OK)
        status = add_from(sources, folder, "tokenizer_config.json");
    if (status == FSDP_OK)
        status = add_from(sources, folder, "chat_template.json");
    if (status != FSDP_OK)
        fsdp_chat_sources_fini(sources);
    return status;
}

/* ---- special tokens -------------------------------------------------------------------------- */

void fsdp_chat_tokens_fini(fsdp_chat_tokens *tokens)
{
    for (int i = 0; i < FSDP_CHAT_TOKENS; i++)
        fsdp_free(tokens->texts[i]);
    *tokens = (fsdp_chat_tokens){0};
}

/* Set *out to a copy of the text of the token `name`. Do nothing if *out is set already, or if the
 * token is missing. The token is a string, or an object with the text under "content". */
static fsdp_status read_token(fsdp_json_node root, const char *name, char **out)
{
    const fsdp_json_node node = fsdp_json_find(root, name);
    const char *text;
    if (*out || !fsdp_json_has(root, name))
        return FSDP_OK;
    if (fsdp_json_kind_of(node) == FSDP_JSON_OBJECT)
        FSDP_TRY(fsdp_json_get_str(node, "content", &text));
    else
        FSDP_TRY(fsdp_json_get_str(root, name, &text));
    *out = fsdp_strdup(text);
    return *out ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status read_tokens(const char *folder, const char *file, fsdp_chat_tokens *tokens)
{
    fsdp_json *doc = NULL;
    if (!fsdp_directory_has_file(folder, file))
        return FSDP_OK;
    char *path = fsdp_path_join(folder, file);
    fsdp_status status = path ? fsdp_json_read(path, &doc) : FSDP_ERR_NOMEM;
    for (int i = 0; status == FSDP_OK && i < FSDP_CHAT_TOKENS; i++)
        status = read_token(fsdp_json_root(doc), fsdp_chat_token_names[i], &tokens->texts[i]);
    fsdp_json_destroy(doc);
    fsdp_free(path);
    return status;
}

fsdp_status fsdp_chat_tokens_read(const char *folder, fsdp_chat_tokens *tokens)
{
    *tokens = (fsdp_chat_tokens){0};
    fsdp_status status = read_tokens(folder, "tokenizer_config.json", tokens);
    if (status == FSDP_OK)
        status = read_tokens(folder, "special_tokens_map.json", tokens);
    if (status != FSDP_OK)
        fsdp_chat_tokens_fini(tokens);
    return status;
}
