/* See identity.h. */
#include "src/tokenize/identity.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/crc32.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/data/rows/rows_form.h"
#include "src/text/chat/chat.h"

/* Append the name, size and checksum of a file, if it exists. */
static fsdp_status add_file(const char *dir, const char *name, fsdp_str *text)
{
    fsdp_crc32_table table;
    fsdp_mapping mapping;
    char *path = fsdp_path_join(dir, name);
    if (!path)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    if (fsdp_path_is_file(path)) {
        status = fsdp_file_map(path, &mapping);
        if (status == FSDP_OK) {
            fsdp_crc32_init(&table);
            fsdp_str_printf(text, "%s %zu %08" PRIx32 "\n", name, mapping.bytes,
                            fsdp_crc32(&table, 0, mapping.data, mapping.bytes));
            fsdp_file_unmap(&mapping);
        }
    }
    fsdp_free(path);
    return status;
}

/* Append the names, sizes and checksums of the files of the tokenizer, because these files
 * determine the ids. */
static fsdp_status add_tokenizer(const char *path, fsdp_str *text)
{
    static const char *const others[] = {"tokenizer_config.json", "special_tokens_map.json",
                                         "added_tokens.json",     "merges.txt",
                                         "chat_template.jinja",   "chat_template.json"};
    char *dir = fsdp_path_parent(path);
    if (!dir)
        return FSDP_ERR_NOMEM;
    fsdp_status status = add_file(dir, fsdp_path_name(path), text);
    for (size_t i = 0; i < sizeof others / sizeof *others && status == FSDP_OK; i++)
        status = add_file(dir, others[i], text);
    fsdp_free(dir);
    return status;
}

/* `built` is the status of the function that wrote `text`. If it is FSDP_OK, add `text` to `root`
 * under `key`. In any case, free `text`. */
static fsdp_status set_built(fsdp_json_node root, const char *key, fsdp_status built,
                             fsdp_str *text)
{
    char *value = built == FSDP_OK ? fsdp_str_take(text) : NULL;
    fsdp_str_fini(text);
    if (!value)
        return built == FSDP_OK ? FSDP_ERR_NOMEM : built;
    fsdp_json_set_str(root, key, value);
    fsdp_free(value);
    return FSDP_OK;
}

static void set_text(fsdp_json_node root, const char *key, const char *value)
{
    fsdp_json_set_str(root, key, value ? value : "");
}

static void set_number(fsdp_json_node root, const char *key, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", value);
    fsdp_json_set_str(root, key, text);
}

/* Add a checksum of the chat template's text. The value of --chat-template would not be enough,
 * because it only names a file or one of the templates in the tokenizer's folder. */
static void set_chat(fsdp_json_node root, const fsdp_chat_template *chat)
{
    char text[40] = "";
    if (chat)
        snprintf(text, sizeof text, "%08" PRIx32, chat->checksum);
    fsdp_json_set_str(root, "checksum of the chat template", text);
}

static void set_options(fsdp_json_node root, const fsdp_tokenize_config *c)
{
    set_text(root, "--task-prefix", c->task_prefix);
    set_text(root, "--text-column", c->text_column);
    set_text(root, "--target-column", c->target_column);
    set_text(root, "--source-lang", c->form.source_lang);
    set_text(root, "--target-lang", c->form.target_lang);
    set_text(root, "--text-pair-column", c->form.text_pair_column);
    set_text(root, "--label-column", c->form.label_column);
    set_text(root, "--json-field", c->form.json_field);
    set_text(root, "--delimiter", c->form.delimiter);
    set_text(root, "--chat-template", c->chat.chat_template);
    set_text(root, "--chat-template-kwargs", c->chat.kwargs);
    set_number(root, "--task", c->task);
    set_number(root, "--problem-type", c->problem_type);
    set_number(root, "--label-lists", c->form.label_lists);
    set_number(root, "--cleaning", c->wikihow_cleaning ? FSDP_CLEANING_WIKIHOW : c->form.cleaning);
    set_number(root, "--csv-quotes", c->form.csv_quotes);
    set_number(root, "--document-separator", c->form.documents);
    set_number(root, "--assistant-only-loss", c->chat.assistant_only_loss);
    set_number(root, "--completion-only-loss",
               c->chat.given_completion ? c->chat.completion_only_loss : -1);
    set_number(root, "--append-eos", c->append_eos);
    set_number(root, "--add-special-tokens", c->add_special_tokens);
    set_number(root, "--max-samples", (double)c->max_samples);
    set_number(root, "--max-seq-length", (double)c->max_seq_length);
    /* --block-size is not in the list: it has an effect only after all rows are tokenized. */
    /* If the option was not given, store 0, not its default: rows of ids are cut only if the option
     * was given. */
    set_number(root, "--max-source-length", c->given.max_source_length ? c->max_source_length : 0);
    set_number(root, "--max-target-length", c->given.max_target_length ? c->max_target_length : 0);
    set_number(root, "--validation-fraction", c->validation_fraction);
    set_number(root, "--seed", c->validation_fraction > 0 ? (double)c->seed : 0);
}

unsigned fsdp_tokenize_setting_uses(const char *key)
{
    const unsigned texts = FSDP_USES_TEXTS | FSDP_USES_DOCUMENTS;
    const struct {
        const char *key;
        unsigned uses;
    } settings[] = {{"--task-prefix", FSDP_USES_SOURCE_PREFIX},
                    {"--text-column", FSDP_USES_SOURCE_COLUMN},
                    {"--target-column", FSDP_USES_TARGET_COLUMN},
                    {"--source-lang", FSDP_USES_SOURCE_COLUMN},
                    {"--target-lang", FSDP_USES_SOURCE_COLUMN},
                    {"--cleaning", FSDP_USES_CLEANING},
                    {"--append-eos", texts},
                    {"--add-special-tokens", texts},
                    {"--chat-template", FSDP_USES_CHAT},
                    {"--chat-template-kwargs", FSDP_USES_CHAT},
                    {"--assistant-only-loss", FSDP_USES_CHAT},
                    {"--completion-only-loss", FSDP_USES_CHAT | FSDP_USES_COMPLETION},
                    {"checksum of the chat template", FSDP_USES_CHAT}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (strcmp(settings[i].key, key) == 0)
            return settings[i].uses;
    return 0;
}

static fsdp_status make(const fsdp_tokenize_config *c, const fsdp_tokenize_inputs *inputs,
                        fsdp_json *doc)
{
    const fsdp_json_node root = fsdp_json_root(doc);
    fsdp_str text = {0};
    fsdp_status status = add_tokenizer(fsdp_tokenizer_path(inputs->tokenizer), &text);
    FSDP_TRY(set_built(root, "tokenizer", status, &text));
    text = (fsdp_str){0};
    status = fsdp_record_source_identity(inputs->source, &text);
    FSDP_TRY(set_built(root, "data", status, &text));
    set_options(root, c);
    set_chat(root, inputs->chat_template);
    return fsdp_json_check_built(doc);
}

fsdp_status fsdp_tokenize_settings(const fsdp_tokenize_config *config,
                                   const fsdp_tokenize_inputs *inputs, fsdp_tokenize_format format,
                                   int width, fsdp_json **settings)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_create("settings", &doc));
    set_number(fsdp_json_root(doc), "--format", format);
    set_number(fsdp_json_root(doc), "--token-dtype", width);
    fsdp_status status = make(config, inputs, doc);
    if (status != FSDP_OK) {
        fsdp_json_destroy(doc);
        return status;
    }
    *settings = doc;
    return FSDP_OK;
}
