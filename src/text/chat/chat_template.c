/* Opens a chat template: finds its text by a name or in the model's folder, and parses it. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/crc32.h"
#include "src/base/io.h"
#include "src/base/nearest.h"
#include "src/base/str.h"
#include "src/text/chat/chat.h"

/* Append the names of all families, such as "chatml, gemma", to an error message. */
static void put_families(fsdp_text *t)
{
    const char *const *names = fsdp_chat_template_families();
    for (size_t i = 0; names[i]; i++)
        fsdp_text_printf(t, "%s%s", i ? ", " : "", names[i]);
}

/* Parse the text of a template, and set *out, which is a field of `chat`, to the result. Include
 * the text in chat->checksum. */
static fsdp_status open_text(fsdp_chat_template *chat, const char *source, const char *text,
                             size_t bytes, fsdp_jinja **out)
{
    fsdp_crc32_table table;
    fsdp_crc32_init(&table);
    chat->checksum = fsdp_crc32(&table, chat->checksum, text, bytes);
    const fsdp_status status = fsdp_jinja_open(text, bytes, out);
    fsdp_error_context(status, "%s: chat template", source);
    return status;
}

static const fsdp_chat_source *find_source(const fsdp_chat_sources *sources, const char *name)
{
    for (size_t i = 0; i < sources->n; i++)
        if (strcmp(sources->items[i].name, name) == 0)
            return &sources->items[i];
    return NULL;
}

static fsdp_status no_template_error(const char *folder, const fsdp_chat_sources *sources)
{
    char names[400] = "";
    fsdp_text t = {names, sizeof names};
    for (size_t i = 0; i < sources->n; i++)
        fsdp_text_printf(&t, "%s'%s'", i ? ", " : "", sources->items[i].name);
    if (sources->n)
        return fsdp_error(FSDP_ERR_NOT_FOUND,
                          "%s: the chat templates %s, but no 'default'; choose one by its name",
                          folder, names);
    put_families(&t);
    return fsdp_error(FSDP_ERR_NOT_FOUND,
                      "%s%sno chat template (chat_template.jinja, or chat_template in "
                      "tokenizer_config.json); give a file, or the name of a known family: %s",
                      folder ? folder : "", folder ? ": " : "", names);
}

static fsdp_status unknown_name_error(const char *name)
{
    char names[400] = "";
    fsdp_text t = {names, sizeof names};
    const char *const *families = fsdp_chat_template_families();
    size_t n = 0;
    while (families[n])
        n++;
    const int nearest = fsdp_nearest_name(name, families, n);
    put_families(&t);
    return fsdp_error(
        FSDP_ERR_NOT_FOUND,
        "chat template '%s': neither a file, nor a template of the model's folder, nor "
        "a known family (%s)%s%s%s",
        name, names, nearest >= 0 ? "; did you mean '" : "", nearest >= 0 ? families[nearest] : "",
        nearest >= 0 ? "'?" : "");
}

static fsdp_status set_source(fsdp_chat_template *chat, const char *source)
{
    chat->source = fsdp_strdup(source);
    return chat->source ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status open_source(fsdp_chat_template *chat, const fsdp_chat_source *source)
{
    FSDP_TRY(set_source(chat, source->path));
    return open_text(chat, source->path, source->text, strlen(source->text), &chat->jinja);
}

/* Open the default template of the folder and, if there is one, its template for conversations with
 * tools. */
static fsdp_status open_default(fsdp_chat_template *chat, const char *folder,
                                const fsdp_chat_sources *sources)
{
    const fsdp_chat_source *source = find_source(sources, "default");
    const fsdp_chat_source *tools = find_source(sources, "tool_use");
    if (!source)
        return no_template_error(folder, sources);
    FSDP_TRY(open_source(chat, source));
    return tools ? open_text(chat, tools->path, tools->text, strlen(tools->text), &chat->with_tools)
                 : FSDP_OK;
}

static fsdp_status open_file(fsdp_chat_template *chat, const char *path)
{
    char *text = NULL;
    size_t bytes;
    FSDP_TRY(fsdp_file_read(path, JINJA_MAX_SOURCE, &text, &bytes));
    fsdp_status status = set_source(chat, path);
    if (status == FSDP_OK)
        status = open_text(chat, path, text, bytes, &chat->jinja);
    fsdp_free(text);
    return status;
}

static fsdp_status open_named(fsdp_chat_template *chat, const char *name,
                              const fsdp_chat_sources *sources)
{
    const fsdp_chat_source *source = find_source(sources, name);
    const char *family = fsdp_chat_family_template(name);
    if (source)
        return open_source(chat, source);
    if (family) {
        FSDP_TRY(set_source(chat, name));
        return open_text(chat, name, family, strlen(family), &chat->jinja);
    }
    return fsdp_path_is_file(name) ? open_file(chat, name) : unknown_name_error(name);
}

static fsdp_status open_template(fsdp_chat_template *chat, const char *folder, const char *name)
{
    fsdp_chat_sources sources = {0};
    fsdp_status status = FSDP_OK;
    if (folder && !fsdp_path_is_directory(folder))
        return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: no such folder", folder);
    if (folder)
        status = fsdp_chat_tokens_read(folder, &chat->tokens);
    if (folder && status == FSDP_OK)
        status = fsdp_chat_sources_read(folder, &sources);
    if (status == FSDP_OK)
        status = name ? open_named(chat, name, &sources) : open_default(chat, folder, &sources);
    fsdp_chat_sources_fini(&sources);
    return status;
}

fsdp_status fsdp_chat_template_open(const char *folder, const char *name, fsdp_chat_template **out)
{
    fsdp_chat_template *chat = fsdp_calloc(1, sizeof *chat);
    if (!chat)
        return FSDP_ERR_NOMEM;
    const fsdp_status status = open_template(chat, folder, name);
    if (status == FSDP_OK)
        *out = chat;
    else
        fsdp_chat_template_close(chat);
    return status;
}

void fsdp_chat_template_close(fsdp_chat_template *chat)
{
    if (!chat)
        return;
    fsdp_free(chat->source);
    fsdp_jinja_close(chat->jinja);
    fsdp_jinja_close(chat->with_tools);
    fsdp_chat_tokens_fini(&chat->tokens);
    fsdp_free(chat);
}

const char *fsdp_chat_template_source(const fsdp_chat_template *chat)
{
    return chat->source;
}
