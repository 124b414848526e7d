/* See prompts.h. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/file_kind.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/str.h"
#include "src/batch/batch.h"
#include "src/data/arrow/table.h"
#include "src/data/files/input.h"
#include "src/data/json/jsonl_keys.h"
#include "src/data/rows/chat_text.h"
#include "src/generate/prompts.h"
#include "src/text/special_in_text.h"
#include "src/text/unknown_in_text.h"

enum {
    MAX_FILE_BYTES = 1 << 30
};

void fsdp_prompts_free(fsdp_prompts *p)
{
    for (size_t i = 0; i < p->n; i++) {
        fsdp_free(p->items[i].text);
        fsdp_free(p->items[i].conversation);
        fsdp_free(p->items[i].id);
        fsdp_token_list_fini(&p->items[i].ids);
    }
    fsdp_free(p->items);
    fsdp_free(p->note);
    *p = (fsdp_prompts){0};
}

/* Append an empty prompt. Returns NULL if there is not enough memory. */
static fsdp_prompt *append_prompt(fsdp_prompts *p)
{
    if (!FSDP_GROW(p->items, p->cap, p->n + 1))
        return NULL;
    p->items[p->n] = (fsdp_prompt){0};
    return &p->items[p->n++];
}

/* --- ids of rows --- */

const char *const fsdp_prompt_id_keys[] = {"id", "idx", "guid", NULL};

/* Print `doc` as the id of the last prompt, and destroy it. */
static fsdp_status keep_id(fsdp_prompts *p, fsdp_json *doc)
{
    char **id = &p->items[p->n - 1].id;
    const fsdp_status status = fsdp_json_print(doc, FSDP_JSON_COMPACT, id, NULL);
    fsdp_json_destroy(doc);
    return status;
}

fsdp_status fsdp_prompts_set_id(fsdp_prompts *p, const char *key, fsdp_json_node row)
{
    fsdp_json *doc;
    if (!key)
        return FSDP_OK;
    FSDP_TRY(fsdp_json_create("id", &doc));
    fsdp_json_set_shared(fsdp_json_root(doc), key, fsdp_json_find(row, key));
    return keep_id(p, doc);
}

fsdp_status fsdp_prompts_set_text_id(fsdp_prompts *p, const char *key, const char *text)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_create("id", &doc));
    fsdp_json_set_str(fsdp_json_root(doc), key, text);
    return keep_id(p, doc);
}

const char *fsdp_prompt_id_key(fsdp_json_node row)
{
    for (size_t i = 0; fsdp_prompt_id_keys[i]; i++)
        if (fsdp_json_has(row, fsdp_prompt_id_keys[i]))
            return fsdp_prompt_id_keys[i];
    return NULL;
}

/* --- texts --- */

/* Encode a text with the special tokens that the tokenizer adds. If the text has more than
 * max_length ids, it is cut to max_length ids, and *cut is set to true. If the model is to continue
 * the text, a </s> at the end is removed; some tokenizers, such as T5's, append it. */
static fsdp_status encode_text(const fsdp_prompt_encoding *e, const char *text,
                               fsdp_token_list *ids, bool *cut)
{
    const bool has_eos = fsdp_tokenizer_appends_eos(e->tokenizer);
    FSDP_TRY(fsdp_tokenizer_encode(e->tokenizer, text, strlen(text), 0, ids));
    if (e->to_continue && has_eos)
        ids->len--;
    *cut = e->max_length && ids->len > (size_t)e->max_length;
    if (*cut)
        ids->len = (size_t)e->max_length;
    if (*cut && !e->to_continue && has_eos)
        ids->ids[ids->len - 1] = fsdp_tokenizer_eos_id(e->tokenizer);
    return FSDP_OK;
}

/* Return the prefix that must be put before `text`, or "" if there is none. */
static const char *prefix_of(fsdp_prompts *p, const fsdp_prompt_encoding *e, const char *text,
                             size_t length)
{
    const size_t n = e->prefix ? strlen(e->prefix) : 0;
    if (n == 0 || (e->prefix_once && length >= n && memcmp(text, e->prefix, n) == 0))
        return "";
    p->n_prefixed++;
    return e->prefix;
}

/* Count the last prompt if its text contains special tokens. `before` is
 * fsdp_special_in_text.count before the prompt was encoded. */
static void count_special(fsdp_prompts *p, int64_t before)
{
    const fsdp_special_in_text *special = fsdp_special_in_text_of_thread();
    if (special->count == before)
        return;
    if (p->n_special++ == 0) {
        p->special = p->n - 1;
        p->special_token = special->last;
    }
}

/* Count the last prompt if it has unknown tokens. *found was watched while it was encoded. */
static void count_unknown(fsdp_prompts *p, const fsdp_unknown_in_text *found)
{
    if (found->count == 0)
        return;
    if (p->n_unknown++ == 0)
        p->unknown = p->n - 1;
    fsdp_unknown_examples_add(&p->unknown_examples, &found->examples);
}

static fsdp_status add_text(fsdp_prompts *p, const fsdp_prompt_encoding *e, const char *text,
                            size_t length)
{
    fsdp_prompt *prompt = append_prompt(p);
    if (!prompt)
        return FSDP_ERR_NOMEM;
    prompt->text = fsdp_strndup(text, length);
    char *whole = fsdp_strdup_printf("%s%.*s", prefix_of(p, e, text, length), (int)length, text);
    fsdp_status status = FSDP_ERR_NOMEM;
    const int64_t before = fsdp_special_in_text_of_thread()->count;
    bool cut = false;
    fsdp_unknown_in_text unknown =
        fsdp_unknown_in_next_row((int64_t)p->n_unknown, &p->unknown_examples);
    fsdp_unknown_in_text *outer = fsdp_unknown_in_text_watch(&unknown);
    if (prompt->text && whole)
        status = encode_text(e, whole, &prompt->ids, &cut);
    fsdp_unknown_in_text_watch(outer);
    count_unknown(p, &unknown);
    p->n_cut += cut;
    count_special(p, before);
    fsdp_free(whole);
    return status;
}

fsdp_status fsdp_prompts_add_conversation(fsdp_prompts *p, const fsdp_prompt_encoding *e,
                                          fsdp_json_node row)
{
    fsdp_json *copy;
    fsdp_prompt *prompt = append_prompt(p);
    if (!prompt)
        return FSDP_ERR_NOMEM;
    const int64_t before = fsdp_special_in_text_of_thread()->count;
    fsdp_unknown_in_text unknown =
        fsdp_unknown_in_next_row((int64_t)p->n_unknown, &p->unknown_examples);
    fsdp_unknown_in_text *outer = fsdp_unknown_in_text_watch(&unknown);
    const fsdp_status encoded = fsdp_chat_prompt_encode(e->chat, e->tokenizer, row, &prompt->ids);
    fsdp_unknown_in_text_watch(outer);
    FSDP_TRY(encoded);
    count_unknown(p, &unknown);
    fsdp_chat_search_special(e->tokenizer, row);
    count_special(p, before);
    FSDP_TRY(fsdp_json_create("conversation", &copy));
    for (fsdp_json_node v = fsdp_json_first(row); v.value; v = fsdp_json_next(v))
        fsdp_json_set_shared(fsdp_json_root(copy), v.key, v);
    const fsdp_status status =
        fsdp_json_print(copy, FSDP_JSON_COMPACT, &prompt->conversation, NULL);
    fsdp_json_destroy(copy);
    return status;
}

/* Append a conversation with one user message: the prefix and `text`. */
static fsdp_status add_message(fsdp_prompts *p, const fsdp_prompt_encoding *e, const char *text,
                               size_t length)
{
    fsdp_json *doc;
    char *whole = fsdp_strdup_printf("%s%.*s", prefix_of(p, e, text, length), (int)length, text);
    if (!whole)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_conversation_create(e->chat, whole, strlen(whole), &doc);
    fsdp_free(whole);
    FSDP_TRY(status);
    status = fsdp_prompts_add_conversation(p, e, fsdp_json_root(doc));
    fsdp_json_destroy(doc);
    if (status == FSDP_OK && !(p->items[p->n - 1].text = fsdp_strndup(text, length)))
        status = FSDP_ERR_NOMEM;
    return status;
}

fsdp_status fsdp_prompts_add_text(fsdp_prompts *p, const fsdp_prompt_encoding *e, const char *text)
{
    if (e->chat)
        return add_message(p, e, text, strlen(text));
    return add_text(p, e, text, strlen(text));
}

/* Return the size of the byte order mark at the beginning of `text`; 0 if there is none. */
static size_t byte_order_mark(const char *text, size_t bytes)
{
    return bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

/* Set *line and *length to the line that begins at *at, without its line end. Move *at to the next
 * line. Returns false if there is no line at *at. */
static bool next_line(const char *text, size_t bytes, size_t *at, const char **line, size_t *length)
{
    if (*at >= bytes)
        return false;
    *line = text + *at;
    const char *end = memchr(*line, '\n', bytes - *at);
    *length = end ? (size_t)(end - *line) : bytes - *at;
    *at += *length + 1;
    if (*length && (*line)[*length - 1] == '\r')
        (*length)--;
    return true;
}

/* Read a whole file, which may be compressed. A file of more than MAX_FILE_BYTES is an error. */
static fsdp_status read_whole(fsdp_input *input, const char *path, fsdp_str *all)
{
    char piece[1 << 16];
    for (size_t n = sizeof piece; n == sizeof piece;) {
        FSDP_TRY(fsdp_input_read(input, piece, sizeof piece, &n));
        if (all->len + n > MAX_FILE_BYTES)
            return fsdp_error(FSDP_ERR_INVALID, "%s: more than %d bytes", path, MAX_FILE_BYTES);
        fsdp_str_append(all, piece, n);
    }
    return FSDP_OK;
}

fsdp_status fsdp_prompts_read_texts(fsdp_prompts *p, const fsdp_prompt_encoding *e,
                                    const char *path, fsdp_input *input)
{
    fsdp_str all = {0};
    const char *line;
    size_t length;
    fsdp_status status = read_whole(input, path, &all);
    if (status == FSDP_OK && all.failed)
        status = fsdp_error_nomem();
    size_t at = byte_order_mark(all.data, all.len);
    for (int64_t number = 1; status == FSDP_OK && next_line(all.data, all.len, &at, &line, &length);
         number++) {
        if (memchr(line, 0, length))
            status = fsdp_error(FSDP_ERR_FORMAT, "a NUL byte");
        else
            status = e->chat ? add_message(p, e, line, length) : add_text(p, e, line, length);
        fsdp_error_context(status, "%s: line %lld", path, (long long)number);
    }
    fsdp_str_fini(&all);
    return status;
}

/* --- ids --- */

/* Set [*first, *end) to the range of the row's n ids for which attention_mask is 1. If the row has
 * no attention_mask, the range contains all ids. */
static fsdp_status read_mask(fsdp_json_node row, size_t n, int64_t *first, int64_t *end)
{
    static const char key[] = "attention_mask";
    int64_t *mask;
    size_t found;
    *first = 0;
    *end = (int64_t)n;
    if (fsdp_json_kind_of(row) != FSDP_JSON_OBJECT || !fsdp_json_has(row, key))
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_i64s(row, key, 0, INT32_MAX, &mask, &found));
    fsdp_status status = found == n
                             ? fsdp_mask_span(mask, (int64_t)n, first, end)
                             : fsdp_json_mismatch(row, key, "%zu entries, as in input_ids", n);
    if (status == FSDP_ERR_INVALID)
        status = fsdp_json_mismatch(row, key, "ones side by side, zeros at the ends alone");
    fsdp_free(mask);
    return status;
}

/* The state of the functions below while they read a file of ids. */
typedef struct id_reader {
    fsdp_prompts *prompts;
    const fsdp_prompt_ids *options;
    int64_t line; /* number of the current line of the file */
    fsdp_unused_keys unused;
} id_reader;

static bool is_any(const char *key, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(*names, key) == 0)
            return true;
    return false;
}

/* Check the keys of a row. A file that was made for training may have keys for targets, such as
 * "labels". Such keys are ignored, and prompts->note lists them. `id` is the key of the row's id,
 * or NULL. */
static fsdp_status check_keys(id_reader *r, fsdp_json_node row, const char *id)
{
    static const char *const used[] = {"input_ids", "attention_mask", NULL};
    static const char *const targets[] = {"labels", "decoder_input_ids", "decoder_attention_mask",
                                          "prompt_length", NULL};
    for (fsdp_json_node v = fsdp_json_first(row); v.value; v = fsdp_json_next(v)) {
        if (is_any(v.key, used) || fsdp_json_kind_of(v) == FSDP_JSON_NULL ||
            (id && strcmp(v.key, id) == 0))
            continue;
        FSDP_TRY(is_any(v.key, targets) ? fsdp_collect_unused_key(v.key, r->line, &r->unused)
                                        : fsdp_unused_key(row, v, r->line, &r->unused));
    }
    return FSDP_OK;
}

static void cut_row(id_reader *r, fsdp_token_list *ids)
{
    const fsdp_prompt_ids *o = r->options;
    const size_t length = (size_t)o->max_length;
    if (!length || ids->len <= length)
        return;
    if (ids->ids[ids->len - 1] == o->eos_id)
        ids->ids[length - 1] = o->eos_id;
    ids->len = length;
    r->prompts->n_cut++;
}

static fsdp_status add_row(id_reader *r, fsdp_json_node row)
{
    fsdp_prompts *p = r->prompts;
    int64_t *wide, first, end;
    size_t n;
    const char *key = fsdp_json_kind_of(row) == FSDP_JSON_OBJECT ? "input_ids" : NULL;
    const char *id = key && r->options->keep_ids ? fsdp_prompt_id_key(row) : NULL;
    if (key)
        FSDP_TRY(check_keys(r, row, id));
    FSDP_TRY(fsdp_json_get_i64s(row, key, 0, r->options->vocab_size - 1, &wide, &n));
    fsdp_status status = read_mask(row, n, &first, &end);
    if (status == FSDP_OK) {
        fsdp_prompt *prompt = append_prompt(p);
        if (!prompt || !FSDP_GROW(prompt->ids.ids, prompt->ids.cap, n))
            status = FSDP_ERR_NOMEM;
        for (int64_t i = first; status == FSDP_OK && i < end; i++)
            prompt->ids.ids[prompt->ids.len++] = (int32_t)wide[i];
        if (status == FSDP_OK)
            cut_row(r, &prompt->ids);
        if (status == FSDP_OK)
            status = fsdp_prompts_set_id(p, id, row);
    }
    fsdp_free(wide);
    return status;
}

/* Add the rows of a JSON document, which is one row or an array of rows. */
static fsdp_status add_document(id_reader *r, fsdp_json *doc)
{
    fsdp_json_node root = fsdp_json_root(doc);
    fsdp_json_kind first = fsdp_json_kind_of(fsdp_json_at(root, 0));
    if (first != FSDP_JSON_ARRAY && first != FSDP_JSON_OBJECT)
        return add_row(r, root);
    for (size_t i = 0; i < fsdp_json_len(root); i++)
        FSDP_TRY(add_row(r, fsdp_json_at(root, i)));
    return FSDP_OK;
}

static bool is_blank(const char *line, size_t length)
{
    return strspn(line, " \t") >= length;
}

static fsdp_status add_lines(id_reader *r, const char *path, const char *text, size_t bytes)
{
    const char *line;
    size_t at = 0, length;
    for (int64_t number = 1; next_line(text, bytes, &at, &line, &length); number++) {
        fsdp_json *doc;
        if (is_blank(line, length))
            continue;
        FSDP_TRY(fsdp_json_parse(path, number, line, length, &doc));
        r->line = number;
        fsdp_status status = add_document(r, doc);
        fsdp_json_destroy(doc);
        if (status != FSDP_OK) {
            fsdp_error_context(status, "line %lld", (long long)number);
            return status;
        }
    }
    return FSDP_OK;
}

/* Set *open to true if the whole text is one JSON document that spans several lines. Set it to
 * false if each line is a document of its own. The first line that is not blank decides. If this
 * line is not a complete document by itself, and more lines follow it, the whole text is one
 * document. */
static fsdp_status first_line_is_open(const char *path, const char *text, size_t bytes, bool *open)
{
    const char *line;
    size_t at = 0, length;
    fsdp_json *doc;
    *open = false;
    do {
        if (!next_line(text, bytes, &at, &line, &length) || at >= bytes)
            return FSDP_OK;
    } while (is_blank(line, length));
    fsdp_status status = fsdp_json_parse(path, 1, line, length, &doc);
    if (status == FSDP_OK)
        fsdp_json_destroy(doc);
    *open = status == FSDP_ERR_FORMAT;
    return *open ? FSDP_OK : status;
}

/* Add the rows of an Arrow file, or of the split for validation of an Arrow folder. */
static fsdp_status add_arrow_rows(id_reader *r, const fsdp_arrow_table *table)
{
    for (int64_t i = 0; i < fsdp_arrow_table_len(table); i++) {
        fsdp_json *doc;
        FSDP_TRY(fsdp_arrow_table_row(table, i, &doc));
        r->line = i;
        const fsdp_status status = add_row(r, fsdp_json_root(doc));
        fsdp_json_destroy(doc);
        fsdp_arrow_table_add_context(table, i, status);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

fsdp_status fsdp_prompts_add_note(fsdp_prompts *p, char *note)
{
    char *joined = note;
    if (p->note && note) {
        joined = fsdp_strdup_printf("%s; %s", p->note, note);
        fsdp_free(note);
        if (!joined)
            return FSDP_ERR_NOMEM;
    }
    if (joined) {
        fsdp_free(p->note);
        p->note = joined;
    }
    return FSDP_OK;
}

static fsdp_status read_arrow_ids(fsdp_prompts *p, const fsdp_prompt_ids *options, const char *path)
{
    id_reader r = {.prompts = p, .options = options};
    fsdp_arrow_table *table;
    char *note = NULL;
    FSDP_TRY(fsdp_arrow_table_open(path, FSDP_ARROW_SPLIT_VALIDATION, &table));
    fsdp_status status = add_arrow_rows(&r, table);
    if (status == FSDP_OK)
        status = fsdp_unused_columns_note(&r.unused, fsdp_arrow_table_left_out(table),
                                          fsdp_arrow_table_folder(table)->path, &note);
    fsdp_unused_keys_fini(&r.unused);
    fsdp_arrow_table_close(table);
    return status == FSDP_OK ? fsdp_prompts_add_note(p, note) : status;
}

fsdp_status fsdp_prompts_read_ids(fsdp_prompts *p, const fsdp_prompt_ids *options, const char *path)
{
    if (fsdp_is_arrow_path(path))
        return read_arrow_ids(p, options, path);
    id_reader r = {.prompts = p, .options = options, .line = 1};
    char *text, *note = NULL;
    size_t bytes;
    FSDP_TRY(fsdp_file_read(path, MAX_FILE_BYTES, &text, &bytes));
    fsdp_json *doc = NULL;
    bool open;
    const size_t mark = byte_order_mark(text, bytes);
    const char *rows = text + mark;
    bytes -= mark;
    fsdp_status status = first_line_is_open(path, rows, bytes, &open);
    if (status == FSDP_OK && open) {
        status = fsdp_json_parse(path, 1, rows, bytes, &doc);
        if (status == FSDP_OK)
            status = add_document(&r, doc);
        fsdp_json_destroy(doc);
    } else if (status == FSDP_OK) {
        status = add_lines(&r, path, rows, bytes);
    }
    if (status == FSDP_OK)
        status = fsdp_unused_keys_note(&r.unused, path, &note);
    if (status == FSDP_OK)
        status = fsdp_prompts_add_note(p, note);
    fsdp_unused_keys_fini(&r.unused);
    if (status == FSDP_ERR_FORMAT) {
        const fsdp_status other =
            fsdp_file_explain(path, "JSON", FSDP_WANTED_TEXT, text, bytes + mark);
        status = other == FSDP_OK ? status : other;
    }
    fsdp_free(text);
    return status;
}
