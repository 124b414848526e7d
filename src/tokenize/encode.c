/* See encode.h. */
#include "src/tokenize/encode.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/data/datasets/dataset.h"
#include "src/data/json/json_rows.h"
#include "src/data/rows/causal_text.h"
#include "src/text/special_in_text.h"
#include "src/text/unknown_in_text.h"

void fsdp_encoded_fini(fsdp_encoded *e)
{
    for (int p = 0; p < FSDP_TOKENIZE_PARTS; p++) {
        fsdp_free(e->parts[p].bytes);
        fsdp_free(e->parts[p].sizes);
    }
    fsdp_unused_keys_fini(&e->found.unused);
    fsdp_example_fini(&e->example);
    fsdp_json_text_fini(&e->text);
    *e = (fsdp_encoded){0};
}

/* Empty *e for the next batch, but keep its memory. */
static void clear(fsdp_encoded *e)
{
    fsdp_encoded_part parts[FSDP_TOKENIZE_PARTS];
    const fsdp_example example = e->example;
    const fsdp_json_text text = e->text;
    fsdp_str *whole = e->found.whole;
    memcpy(parts, e->parts, sizeof parts);
    fsdp_unused_keys_fini(&e->found.unused);
    *e = (fsdp_encoded){.example = example, .text = text, .found = {.whole = whole}};
    for (int p = 0; p < FSDP_TOKENIZE_PARTS; p++)
        e->parts[p] = (fsdp_encoded_part){.bytes = parts[p].bytes,
                                          .cap = parts[p].cap,
                                          .sizes = parts[p].sizes,
                                          .sizes_cap = parts[p].sizes_cap};
}

/* Return the upper 32 bits of element `index` of a splitmix64 sequence (Steele, Lea, Flood 2014).
 * The seed determines where the sequence begins. */
int64_t fsdp_record_number(uint64_t seed, int64_t index)
{
    uint64_t z =
        seed * UINT64_C(0xD1342543DE82EF95) + ((uint64_t)index + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (int64_t)((z ^ z >> 31) >> 32);
}

/* ---- one record ---- */

static fsdp_status encode_text(const fsdp_encode_form *form, const fsdp_record_batch *batch,
                               const fsdp_record *record, fsdp_encoded *out, int64_t *cut)
{
    /* strlen() is safe below: the readers of CSV and of plain text accept no NUL. */
    fsdp_data_text text = {batch->bytes + record->at, record->length}, prompt = {0};
    if (batch->kind == FSDP_RECORD_PAIR) {
        prompt = (fsdp_data_text){text.bytes, strlen(text.bytes)};
        text.bytes += prompt.length + 1;
        text.length -= prompt.length + 1;
    }
    const fsdp_status status =
        fsdp_causal_text_encode(form->rows, prompt, text, &out->example, cut);
    const fsdp_json_row at = {.line = record->line, .number = record->number};
    fsdp_json_row_context(status, batch->path, &at);
    return status;
}

static fsdp_status encode_object(const fsdp_encode_form *form, fsdp_json *doc, int64_t line,
                                 fsdp_encoded *out, int64_t *cut)
{
    fsdp_status status =
        fsdp_jsonl_row(fsdp_json_root(doc), form->rows, line, &out->example, &out->found);
    *cut = out->found.cut;
    return status == FSDP_ERR_NOT_FOUND ? FSDP_ERR_FORMAT : status;
}

static fsdp_status encode_json(const fsdp_encode_form *form, const fsdp_record_batch *batch,
                               const fsdp_record *record, fsdp_encoded *out, int64_t *cut)
{
    const fsdp_json_row row = {.text = batch->bytes + record->at,
                               .length = record->length,
                               .line = record->line,
                               .number = record->number};
    fsdp_json *doc;
    if (fsdp_jsonl_text_row(&row, form->rows, &out->text, &out->example, &out->found)) {
        *cut = out->found.cut;
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_json_row_parse(batch->path, &row, &doc));
    const fsdp_status status = encode_object(form, doc, record->line, out, cut);
    fsdp_json_destroy(doc);
    fsdp_json_row_context(status, batch->path, &row);
    return status;
}

static fsdp_status encode_arrow(const fsdp_encode_form *form, const fsdp_record_batch *batch,
                                const fsdp_record *record, fsdp_encoded *out, int64_t *cut)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_arrow_table_row(batch->table, record->index, &doc));
    const fsdp_status status = encode_object(form, doc, record->index, out, cut);
    fsdp_json_destroy(doc);
    fsdp_arrow_table_add_context(batch->table, record->index, status);
    return status;
}

fsdp_status fsdp_encode_record(const fsdp_encode_form *form, const fsdp_record_batch *batch,
                               size_t i, fsdp_encoded *out, int64_t *cut)
{
    const fsdp_record *record = &batch->records[i];
    fsdp_example_empty(&out->example);
    *cut = 0;
    switch (batch->kind) {
    case FSDP_RECORD_DOCUMENT:
    case FSDP_RECORD_PAIR:
        return encode_text(form, batch, record, out, cut);
    case FSDP_RECORD_JSON:
        return encode_json(form, batch, record, out, cut);
    case FSDP_RECORD_ARROW:
        return encode_arrow(form, batch, record, out, cut);
    case FSDP_RECORD_EXAMPLE:
        break;
    }
    return fsdp_dataset_get_cut(batch->dataset, record->index, &out->example, cut);
}

/* ---- the bytes of a row ---- */

/* Append ids as numbers of `width` bytes, little endian. */
static void put_ids(fsdp_encoded_part *part, const fsdp_token_list *ids, int width)
{
    unsigned char *at = part->bytes + part->used;
    for (size_t i = 0; width == 2 && i < ids->len; i++, at += 2) {
        at[0] = (unsigned char)ids->ids[i];
        at[1] = (unsigned char)(ids->ids[i] >> 8);
    }
    for (size_t i = 0; width != 2 && i < ids->len; i++)
        for (int byte = 0; byte < width; byte++)
            *at++ = byte < 4 ? (unsigned char)((uint32_t)ids->ids[i] >> 8 * byte) : 0;
    part->used += ids->len * (size_t)width;
}

static void put_bytes(fsdp_encoded_part *part, const void *bytes, size_t n)
{
    if (n)
        memcpy(part->bytes + part->used, bytes, n);
    part->used += n;
}

/* Append out->example to `part` as a spooled row; see Note [Spooled rows] in encode.h. */
static fsdp_status spool(fsdp_encoded *out, fsdp_encoded_part *part)
{
    const fsdp_example *e = &out->example;
    _Static_assert(sizeof(float) == sizeof(int32_t), "a target needs the space of a label");
    const void *const lists[FSDP_SPOOLED_LISTS] = {
        e->source.ids, e->num_targets ? (const void *)e->targets : e->labels.ids,
        e->token_type_ids.ids, e->position_ids.ids};
    const uint32_t lengths[FSDP_SPOOLED_LISTS] = {
        (uint32_t)e->source.len, (uint32_t)(e->num_targets ? e->num_targets : e->labels.len),
        (uint32_t)e->token_type_ids.len, (uint32_t)e->position_ids.len};
    size_t bytes = sizeof lengths;
    for (int i = 0; i < FSDP_SPOOLED_LISTS; i++)
        bytes += lengths[i] * sizeof(int32_t);
    if (!FSDP_GROW(part->bytes, part->cap, part->used + bytes))
        return FSDP_ERR_NOMEM;
    put_bytes(part, lengths, sizeof lengths);
    for (int i = 0; i < FSDP_SPOOLED_LISTS; i++)
        put_bytes(part, lists[i], lengths[i] * sizeof(int32_t));
    return FSDP_OK;
}

/* Append out->example to `part`, in the form of the output. */
static fsdp_status put_row(const fsdp_encode_form *form, fsdp_encoded *out, fsdp_encoded_part *part)
{
    const fsdp_example *e = &out->example;
    const fsdp_token_list *ids = &e->source;
    const bool has[FSDP_SPOOLED_LISTS] = {ids->len > 0, e->labels.len > 0 || e->num_targets > 0,
                                          e->token_type_ids.len > 0, e->position_ids.len > 0};
    for (int i = 0; i < FSDP_SPOOLED_LISTS; i++)
        out->lists[i] |= has[i];
    if (!FSDP_GROW(part->sizes, part->sizes_cap, (size_t)part->rows + 1))
        return FSDP_ERR_NOMEM;
    if (form->width == 0) {
        FSDP_TRY(spool(out, part));
    } else {
        if (!FSDP_GROW(part->bytes, part->cap, part->used + ids->len * (size_t)form->width))
            return FSDP_ERR_NOMEM;
        put_ids(part, ids, form->width);
    }
    part->sizes[part->rows++] = (int32_t)ids->len;
    part->tokens += (int64_t)ids->len;
    return FSDP_OK;
}

/* Write to `text` [size] where record `i` is: "row 3 of data.csv". */
static void name_place(const fsdp_record_batch *batch, size_t i, char *text, size_t size)
{
    const fsdp_record *record = &batch->records[i];
    const bool is_row = record->line == 0 || record->number > 0;
    const int64_t number = record->line == 0 ? record->index + 1
                           : is_row          ? record->number
                                             : record->line;
    snprintf(text, size, "%s %" PRId64 " of %.400s", is_row ? "row" : "line", number, batch->path);
}

/* Count record `i` if it has unknown tokens. *found was watched (fsdp_unknown_in_text_watch())
 * while the record was encoded. */
static void count_unknown(const fsdp_record_batch *batch, size_t i,
                          const fsdp_unknown_in_text *found, fsdp_encoded *out)
{
    if (found->count == 0)
        return;
    if (out->unknown_rows++ == 0)
        name_place(batch, i, out->unknown, sizeof out->unknown);
    fsdp_unknown_examples_add(&out->unknown_examples, &found->examples);
}

/* Encode record `i`, and count it if it has special or unknown tokens. */
static fsdp_status encode_and_count(const fsdp_encode_form *form, const fsdp_record_batch *batch,
                                    size_t i, fsdp_encoded *out, int64_t *cut)
{
    const fsdp_special_in_text *special = fsdp_special_in_text_of_thread();
    const int64_t before = special->count;
    /* In each batch, examples are always searched in the first row with unknown tokens, because
     * this row may be the only one. For the other rows, each row of earlier batches counts as if it
     * had unknown tokens: the threads that encode these batches may not have counted them yet.
     */
    const int64_t rows = out->unknown_rows ? batch->first + out->unknown_rows : 0;
    fsdp_unknown_in_text unknown = fsdp_unknown_in_next_row(rows, &out->unknown_examples);
    fsdp_unknown_in_text *outer = fsdp_unknown_in_text_watch(&unknown);
    const fsdp_status status = fsdp_encode_record(form, batch, i, out, cut);
    fsdp_unknown_in_text_watch(outer);
    FSDP_TRY(status);
    count_unknown(batch, i, &unknown, out);
    if (special->count > before && out->special_rows++ == 0) {
        const int n = snprintf(out->special, sizeof out->special, "'%.80s' in ", special->last);
        name_place(batch, i, out->special + n, sizeof out->special - (size_t)n);
    }
    return FSDP_OK;
}

fsdp_status fsdp_encode_batch(const fsdp_encode_form *form, const fsdp_record_batch *batch,
                              fsdp_encoded *out)
{
    clear(out);
    for (size_t i = 0; i < batch->len; i++) {
        int64_t cut;
        FSDP_TRY(encode_and_count(form, batch, i, out, &cut));
        const bool validation =
            batch->validation ||
            fsdp_record_number(form->seed, batch->first + (int64_t)i) < form->validation_below;
        FSDP_TRY(put_row(form, out, &out->parts[validation]));
        out->cut_rows += cut > 0;
        out->cut_tokens += cut;
        out->empty_rows += out->example.source.len == 0;
        const bool masks = form->task == FSDP_TASK_CAUSAL_LM || form->task == FSDP_TASK_MASKED_LM;
        out->masked_rows += masks && out->example.labels.len > 0;
    }
    /* batch->used includes the NUL after each record, and the NUL between the texts of a PAIR. */
    out->text_bytes = (int64_t)batch->used - (int64_t)batch->len;
    if (batch->kind == FSDP_RECORD_PAIR)
        out->text_bytes -= (int64_t)batch->len;
    if (batch->len == 0 || batch->kind == FSDP_RECORD_ARROW || batch->kind == FSDP_RECORD_EXAMPLE)
        out->text_bytes = 0;
    return FSDP_OK;
}
