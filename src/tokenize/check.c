/* `fsdp tokenize --check`: prints the tokens of the first rows, so that the user can check them. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"
#include "src/data/rows/causal_text.h"
#include "src/report/table.h"
#include "src/tokenize/tokenize.h"

enum {
    TEXT_BYTES = 400,  /* largest number of bytes of a text that are printed */
    PIECE_BYTES = 60,  /* largest number of bytes of a token's text that are printed */
    ROW_TOKENS = 2000, /* largest number of tokens of a list that are printed */
};

typedef struct checker {
    fsdp_tokenize_inputs *inputs;
    FILE *out;
    fsdp_encoded encoded;
    fsdp_str whole; /* the text of the current row; empty if the row has no text */
    /* the result of encoding the text of a list again, with offsets in characters */
    fsdp_encoding found;
    /* the result of encoding the text of a list again, with offsets in bytes */
    fsdp_encoding in_bytes;
    fsdp_token_list part; /* the ids of one text of a list; scratch memory */
    int64_t compared;     /* number of texts that were compared with what their ids decode to */
    int64_t differing;    /* number of compared texts that are not what their ids decode to */
} checker;

/* The texts of a list of ids. */
typedef struct list_texts {
    fsdp_data_text first;
    fsdp_data_text second; /* the second text of a pair; otherwise {0} */
    bool no_special;       /* no special tokens are added to the text */
    int max_length;        /* largest number of ids of both texts together; 0: no limit */
} list_texts;

/* ---- text that is printed ---- */

typedef struct shown {
    char text[TEXT_BYTES * 4 + 8];
} shown;

/* Return the first `most` bytes of a text in quotes. Control characters are escaped. */
static shown show(const char *text, size_t length, size_t most)
{
    shown s;
    fsdp_text to = {s.text, sizeof s.text};
    size_t n = length < most ? length : most;
    while (n < length && n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--;
    fsdp_text_printf(&to, "\"");
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '\n' || c == '\r' || c == '\t')
            fsdp_text_printf(&to, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (c < 0x20 || c == 0x7F)
            fsdp_text_printf(&to, "\\x%02x", (unsigned)c);
        else
            fsdp_text_printf(&to, "%c", c);
    }
    fsdp_text_printf(&to, n < length ? "...\"" : "\"");
    return s;
}

/* ---- tokens ---- */

static fsdp_status encode_again(const checker *c, const list_texts *texts, fsdp_offset_unit unit,
                                fsdp_encoding *encoding)
{
    const fsdp_encode_options how = {
        .no_special_tokens = texts->no_special, .max_length = texts->max_length, .offsets = unit};
    return fsdp_tokenizer_encode_pair(c->inputs->tokenizer, texts->first.bytes, texts->first.length,
                                      texts->second.bytes, texts->second.length, &how, encoding);
}

/* Encode the texts again, because `ids` was encoded without offsets. Return true if both encodings
 * agree, so that the offsets in c->found apply to `ids`. */
static bool find_offsets(checker *c, const list_texts *texts, const fsdp_token_list *ids)
{
    if (encode_again(c, texts, FSDP_OFFSETS_CHARACTERS, &c->found) != FSDP_OK ||
        encode_again(c, texts, FSDP_OFFSETS_BYTES, &c->in_bytes) != FSDP_OK)
        return false;
    /* Compare only the first n ids. The lengths can differ: `ids` may have been cut, or may have an
     * eos at the end that c->found.ids does not have. */
    size_t n = ids->len < c->found.ids.len ? ids->len : c->found.ids.len;
    if (n && n == ids->len && n < c->found.ids.len)
        n--; /* if `ids` was cut, its last id may be an eos */
    return memcmp(ids->ids, c->found.ids.ids, n * sizeof *ids->ids) == 0;
}

/* Return true if token `i` of `ids` is a part of a text in c->found. */
static bool is_of_text(const checker *c, size_t i, const fsdp_token_list *ids)
{
    return i < c->found.ids.len && c->found.texts[i] >= 0 && c->found.ids.ids[i] == ids->ids[i];
}

static void add_offsets(const checker *c, fsdp_table *table, const list_texts *texts, size_t i,
                        const fsdp_token_list *ids)
{
    if (!texts || !is_of_text(c, i, ids)) {
        fsdp_table_cell(table, "%s", "");
        fsdp_table_cell(table, "%s", "");
        return;
    }
    const fsdp_token_offset at = c->found.offsets[i], bytes = c->in_bytes.offsets[i];
    const char *text = c->found.texts[i] ? texts->second.bytes : texts->first.bytes;
    fsdp_table_cell(table, "%" PRIu32 "-%" PRIu32, at.begin, at.end);
    fsdp_table_cell(table, "%s",
                    show(text + bytes.begin, bytes.end - bytes.begin, PIECE_BYTES).text);
}

static void add_token(const checker *c, fsdp_table *table, const list_texts *texts, size_t i,
                      const fsdp_token_list *ids, const fsdp_token_list *labels)
{
    const int32_t id = ids->ids[i];
    const char *piece = id < 0 ? NULL : fsdp_tokenizer_token_text(c->inputs->tokenizer, id);
    fsdp_table_row(table);
    fsdp_table_cell(table, "%zu", i);
    fsdp_table_cell(table, "%" PRId32, id);
    fsdp_table_cell(table, "%s", piece ? show(piece, strlen(piece), PIECE_BYTES).text : "");
    add_offsets(c, table, texts, i, ids);
    if (labels)
        fsdp_table_cell(table, "%s", i < labels->len && labels->ids[i] >= 0 ? "yes" : "");
}

/* Print a table of ids, one row per token. `texts` is NULL if the offsets are not known. If
 * `labels` is not NULL, a column says which tokens have a loss. */
static fsdp_status print_tokens(const checker *c, const list_texts *texts,
                                const fsdp_token_list *ids, const fsdp_token_list *labels)
{
    static const char *const headings[] = {"#", "id", "piece", "offsets", "text", "loss"};
    fsdp_table *table;
    const size_t columns = labels ? 6 : 5, n = ids->len < ROW_TOKENS ? ids->len : ROW_TOKENS;
    FSDP_TRY(fsdp_table_create(columns, &table));
    for (size_t i = 0; i < columns; i++)
        fsdp_table_column(table, i, headings[i],
                          i < 2 || i == 3 ? FSDP_TABLE_RIGHT : FSDP_TABLE_LEFT);
    for (size_t i = 0; i < n; i++)
        add_token(c, table, texts, i, ids, labels);
    const fsdp_status status = fsdp_table_print(table, c->out, FSDP_TABLE_AUTO);
    fsdp_table_destroy(table);
    if (n < ids->len)
        fprintf(c->out, "... and %zu more\n", ids->len - n);
    return status;
}

/* Decode the ids. Print the decoded text, or print that it is the same as `text`. */
static fsdp_status print_decoded(checker *c, const char *name, fsdp_data_text text,
                                 const fsdp_token_list *ids, unsigned flags, bool compare)
{
    char *decoded;
    FSDP_TRY(fsdp_tokenizer_decode(c->inputs->tokenizer, ids->ids, ids->len, flags, &decoded));
    const bool same = text.bytes && strlen(decoded) == text.length &&
                      memcmp(decoded, text.bytes, text.length) == 0;
    if (same)
        fprintf(c->out, "%s: the same text\n", name);
    else
        fprintf(c->out, "%s: %s\n", name, show(decoded, strlen(decoded), TEXT_BYTES).text);
    c->compared += compare;
    c->differing += compare && !same;
    fsdp_text_free(decoded);
    return FSDP_OK;
}

/* Decode those ids of a list that are a part of its first or second text. */
static fsdp_status print_decoded_text(checker *c, const char *name, fsdp_data_text text, int which,
                                      const fsdp_token_list *ids, bool compare)
{
    c->part.len = 0;
    if (!FSDP_GROW(c->part.ids, c->part.cap, ids->len))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < ids->len; i++)
        if (is_of_text(c, i, ids) && c->found.texts[i] == which)
            c->part.ids[c->part.len++] = ids->ids[i];
    return print_decoded(c, name, text, &c->part, 0, compare);
}

/* Print one list of ids: its texts if they are known, its tokens, and the texts that the ids decode
 * to. If `cut` is true, some ids were cut off, and no text is compared. */
static fsdp_status print_list(checker *c, const char *name, const list_texts *texts,
                              const fsdp_token_list *ids, const fsdp_token_list *labels, bool cut)
{
    const fsdp_data_text first = texts->first, second = texts->second;
    const bool known = first.bytes && find_offsets(c, texts, ids);
    fprintf(c->out, "%s: %zu tokens", name, ids->len);
    if (first.bytes)
        fprintf(c->out, ", %s", show(first.bytes, first.length, TEXT_BYTES).text);
    if (second.bytes)
        fprintf(c->out, ", %s", show(second.bytes, second.length, TEXT_BYTES).text);
    fprintf(c->out, "\n");
    FSDP_TRY(print_tokens(c, known ? texts : NULL, ids, labels));
    if (!known) {
        const unsigned flags = first.bytes ? FSDP_DECODE_SKIP_SPECIAL : 0;
        return print_decoded(c, "decoded", first, ids, flags, first.bytes && !second.bytes && !cut);
    }
    FSDP_TRY(print_decoded_text(c, "decoded", first, 0, ids, !cut));
    return second.bytes ? print_decoded_text(c, "decoded second text", second, 1, ids, !cut)
                        : FSDP_OK;
}

/* ---- rows ---- */

/* If the record is a document, or a prompt with a text, copy its text or both of its texts to
 * c->whole. */
static fsdp_status take_text(checker *c, const fsdp_record_batch *batch, size_t i)
{
    const fsdp_record *record = &batch->records[i];
    if (batch->kind != FSDP_RECORD_DOCUMENT && batch->kind != FSDP_RECORD_PAIR)
        return FSDP_OK;
    const char *text = batch->bytes + record->at;
    c->whole.len = 0;
    fsdp_str_append(&c->whole, text, strlen(text));
    if (batch->kind == FSDP_RECORD_PAIR)
        fsdp_str_printf(&c->whole, "%s", text + strlen(text) + 1);
    return c->whole.failed ? fsdp_error_nomem() : FSDP_OK;
}

/* Print the label of a row that is one or several numbers. If each number is for a class that has a
 * name, print the names of the row's classes. */
static void print_targets(const checker *c, const fsdp_example *e)
{
    const char *separator = "";
    fprintf(c->out, "label: ");
    for (size_t i = 0; i < e->num_targets && i < ROW_TOKENS; i++) {
        if (!c->inputs->n_classes)
            fprintf(c->out, "%s%g", separator, (double)e->targets[i]);
        else if (e->targets[i] > 0)
            fprintf(c->out, "%s%zu, %s", separator, i, c->inputs->class_names[i]);
        else
            continue;
        separator = c->inputs->n_classes ? "; " : ", ";
    }
    fprintf(c->out, "%s\n", *separator ? "" : "no class");
}

/* Print the label of a row of a classifier. */
static void print_label(const checker *c, const fsdp_example *e)
{
    if (e->num_targets) {
        print_targets(c, e);
    } else if (e->labels.len == 1) {
        const int32_t class = e->labels.ids[0];
        const bool named = class >= 0 && (size_t) class < c->inputs->n_classes;
        fprintf(c->out, "label: %" PRId32 "%s%s\n", class, named ? ", " : "",
                named ? c->inputs->class_names[class] : "");
    }
}

static fsdp_status print_example(checker *c, fsdp_data_text source, fsdp_data_text target, bool cut)
{
    const fsdp_example *e = &c->encoded.example;
    const fsdp_dataset_options *rows = &c->inputs->rows;
    const bool no_special = rows->no_special_tokens || c->encoded.found.is_chat;
    const list_texts one = {.first = source, .no_special = no_special};
    if (c->inputs->form.task == FSDP_TASK_SEQ2SEQ) {
        const list_texts of_labels = {.first = target, .no_special = no_special};
        FSDP_TRY(print_list(c, "input_ids", &one, &e->source, NULL, cut));
        return print_list(c, "labels", &of_labels, &e->labels, NULL, cut);
    }
    if (c->inputs->form.task == FSDP_TASK_CLASSIFICATION) {
        const bool limited = rows->max_length > 0 && rows->max_length < INT_MAX;
        const list_texts both = {
            .first = source, .second = target, .max_length = limited ? (int)rows->max_length : 0};
        FSDP_TRY(print_list(c, "input_ids", &both, &e->source, NULL, cut));
        print_label(c, e);
        return FSDP_OK;
    }
    return print_list(c, "input_ids", &one, &e->source, e->labels.len ? &e->labels : NULL, cut);
}

static fsdp_status check_record(checker *c, const fsdp_record_batch *batch, size_t i)
{
    const fsdp_record *record = &batch->records[i];
    char *source = NULL, *target = NULL;
    int64_t cut;
    FSDP_TRY(fsdp_encode_record(&c->inputs->form, batch, i, &c->encoded, &cut));
    FSDP_TRY(take_text(c, batch, i));
    fsdp_data_text text = {c->whole.len ? c->whole.data : NULL, c->whole.len};
    fprintf(c->out, "\n%s: %s %" PRId64 "%s\n", batch->path, record->line ? "line" : "row",
            record->line ? record->line : record->index + 1, cut ? ", cut" : "");
    if (batch->kind == FSDP_RECORD_EXAMPLE) {
        const fsdp_status found =
            fsdp_dataset_texts(batch->dataset, record->index, &source, &target);
        if (found != FSDP_OK && found != FSDP_ERR_UNSUPPORTED)
            return found;
        text = (fsdp_data_text){source, source ? strlen(source) : 0};
    }
    const fsdp_status status =
        print_example(c, text, (fsdp_data_text){target, target ? strlen(target) : 0}, cut > 0);
    fsdp_text_free(source);
    fsdp_text_free(target);
    return status;
}

static fsdp_status check_records(checker *c, int64_t most, int64_t *rows)
{
    fsdp_record_batch batch = {0};
    fsdp_status status = FSDP_OK;
    c->encoded.found.whole = &c->whole;
    do {
        status = fsdp_record_source_next(c->inputs->source, &batch);
        for (size_t i = 0; i < batch.len && *rows < most && status == FSDP_OK; i++, ++*rows)
            status = check_record(c, &batch, i);
    } while (status == FSDP_OK && batch.len && *rows < most);
    fsdp_record_batch_fini(&batch);
    return status;
}

fsdp_status fsdp_tokenize_check(const fsdp_tokenize_config *config, fsdp_tokenize_inputs *inputs,
                                FILE *out)
{
    checker c = {.inputs = inputs, .out = out};
    int64_t rows = 0;
    fprintf(out, "%s: %" PRId32 " ids\n", fsdp_tokenizer_path(inputs->tokenizer),
            fsdp_tokenizer_vocab_size(inputs->tokenizer));
    const fsdp_status status = check_records(&c, config->rows, &rows);
    if (status == FSDP_OK)
        fprintf(out, "\n%" PRId64 " rows; %s\n", rows,
                c.differing  ? "decoding gives another text in some of them"
                : c.compared ? "decoding gives each text back"
                             : "no text was compared with what its ids decode to");
    fsdp_encoded_fini(&c.encoded);
    fsdp_str_fini(&c.whole);
    fsdp_encoding_fini(&c.found);
    fsdp_encoding_fini(&c.in_bytes);
    fsdp_token_list_fini(&c.part);
    return status;
}
