/* `fsdp tokenize --train-vocab N`: trains a byte-level BPE tokenizer with N tokens. Each thread
 * splits the texts of a batch into words and counts the words. The counts of the batches are then
 * added in the order of the batches. The result is a folder with tokenizer.json and
 * tokenizer_config.json. */
#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/io.h"
#include "src/data/json/json_rows.h"
#include "src/data/rows/chat_text.h"
#include "src/data/rows/sharegpt.h"
#include "src/report/human.h"
#include "src/text/models/hash.h"
#include "src/text/parts/word_splitter.h"
#include "src/tokenize/pipeline.h"
#include "src/tokenize/vocab_folder.h"

/* A word, word_counts.bytes[at, at + length), and how often it occurs. */
typedef struct word {
    size_t at;
    uint32_t length, count;
} word;

/* The distinct words of a batch with their counts. A hash table finds a word. */
typedef struct word_counts {
    char *bytes;
    size_t used, bytes_cap;
    word *words; /* [len] */
    size_t len, cap;
    /* hash table; `slots` is a power of two. An element is 0 (empty) or the index of a word + 1. */
    uint32_t *table;
    size_t slots;
    int64_t texts, text_bytes;
} word_counts;

typedef struct vocab_run {
    const fsdp_tokenize_config *config;
    fsdp_char_classes *classes;
    fsdp_bpe_trainer *trainer;
    fsdp_word_pattern pattern;
    int64_t records, text_bytes, bar_done;
    fsdp_progress *bar;
} vocab_run;

/* ---- counting ---- */

static fsdp_status create_counts(void *self, void **result)
{
    (void)self;
    *result = fsdp_calloc(1, sizeof(word_counts));
    return *result ? FSDP_OK : FSDP_ERR_NOMEM;
}

static void destroy_counts(void *result)
{
    word_counts *c = result;
    if (!c)
        return;
    fsdp_free(c->bytes);
    fsdp_free(c->words);
    fsdp_free(c->table);
    fsdp_free(c);
}

static void clear_counts(word_counts *c)
{
    c->len = c->used = 0;
    c->texts = c->text_bytes = 0;
    if (c->slots)
        memset(c->table, 0, c->slots * sizeof *c->table);
}

static uint32_t *find_slot(const word_counts *c, const char *text, size_t length)
{
    size_t at = (size_t)fsdp_hash_bytes(0, text, length);
    for (;; at++) {
        uint32_t *slot = &c->table[at & (c->slots - 1)];
        if (!*slot)
            return slot;
        const word *w = &c->words[*slot - 1];
        if (w->length == length && memcmp(c->bytes + w->at, text, length) == 0)
            return slot;
    }
}

/* Grow the table, unless at least half of it will still be empty after one more word is added. */
static fsdp_status grow_table(word_counts *c)
{
    if (c->slots >= 2 * (c->len + 1))
        return FSDP_OK;
    const size_t slots = c->slots ? 2 * c->slots : 1 << 12;
    uint32_t *table = fsdp_calloc(slots, sizeof *table);
    if (!table)
        return FSDP_ERR_NOMEM;
    fsdp_free(c->table);
    c->table = table;
    c->slots = slots;
    for (size_t i = 0; i < c->len; i++)
        *find_slot(c, c->bytes + c->words[i].at, c->words[i].length) = (uint32_t)i + 1;
    return FSDP_OK;
}

static fsdp_status count_word(word_counts *c, const char *text, size_t length)
{
    FSDP_TRY(grow_table(c));
    uint32_t *slot = find_slot(c, text, length);
    if (*slot) {
        c->words[*slot - 1].count++;
        return FSDP_OK;
    }
    if (!FSDP_GROW(c->words, c->cap, c->len + 1) ||
        !FSDP_GROW(c->bytes, c->bytes_cap, c->used + length))
        return FSDP_ERR_NOMEM;
    memcpy(c->bytes + c->used, text, length);
    c->words[c->len++] = (word){.at = c->used, .length = (uint32_t)length, .count = 1};
    c->used += length;
    *slot = (uint32_t)c->len;
    return FSDP_OK;
}

static fsdp_status count_text(const vocab_run *r, word_counts *c, const char *text, size_t length)
{
    for (size_t at = 0; at < length;) {
        const size_t end = fsdp_word_end(r->pattern, r->classes, text, at, length);
        FSDP_TRY(count_word(c, text + at, end - at));
        at = end;
    }
    c->texts++;
    c->text_bytes += (int64_t)length;
    return FSDP_OK;
}

/* ---- texts of rows ---- */

static fsdp_status count_value(const vocab_run *r, word_counts *c, fsdp_json_node row,
                               const char *key)
{
    const char *text;
    size_t length;
    FSDP_TRY(fsdp_json_get_strn(row, key, &text, &length));
    return count_text(r, c, text, length);
}

static fsdp_status count_message(const vocab_run *r, word_counts *c, fsdp_json_node message)
{
    const fsdp_json_node content = fsdp_json_find(message, "content");
    if (fsdp_json_kind_of(content) == FSDP_JSON_STRING)
        return count_value(r, c, message, "content");
    for (size_t i = 0; i < fsdp_json_len(content); i++)
        if (fsdp_json_has(fsdp_json_at(content, i), "text"))
            FSDP_TRY(count_value(r, c, fsdp_json_at(content, i), "text"));
    return FSDP_OK;
}

static fsdp_status count_messages(const vocab_run *r, word_counts *c, fsdp_json_node row)
{
    static const char *const keys[] = {"messages", "prompt", "completion"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const fsdp_json_node list = fsdp_json_find(row, keys[k]);
        for (size_t i = 0; i < fsdp_json_len(list); i++)
            FSDP_TRY(count_message(r, c, fsdp_json_at(list, i)));
    }
    return FSDP_OK;
}

static fsdp_status count_sharegpt(const vocab_run *r, word_counts *c, fsdp_json_node row)
{
    fsdp_json *messages;
    FSDP_TRY(fsdp_sharegpt_convert(row, &messages));
    const fsdp_status status = count_messages(r, c, fsdp_json_root(messages));
    fsdp_json_destroy(messages);
    return status;
}

/* Count the words in the texts of a row. The texts are those under the keys that the options name
 * or, if the options name none, under the keys that rows usually have. */
static fsdp_status count_row(const vocab_run *r, word_counts *c, fsdp_json_node row)
{
    const char *source = r->config->text_column, *target = r->config->target_column;
    if (!source && fsdp_is_sharegpt_row(row))
        return count_sharegpt(r, c, row);
    if (!source && fsdp_is_chat_row(row))
        return count_messages(r, c, row);
    if (!source && fsdp_json_has(row, "prompt") && fsdp_json_has(row, "completion")) {
        source = "prompt";
        target = "completion";
    }
    FSDP_TRY(count_value(r, c, row, source ? source : "text"));
    return target ? count_value(r, c, row, target) : FSDP_OK;
}

static fsdp_status count_json(const vocab_run *r, word_counts *c, const fsdp_record_batch *batch,
                              const fsdp_record *record)
{
    const fsdp_json_row row = {.text = batch->bytes + record->at,
                               .length = record->length,
                               .line = record->line,
                               .number = record->number};
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_row_parse(batch->path, &row, &doc));
    fsdp_status status = count_row(r, c, fsdp_json_root(doc));
    fsdp_json_destroy(doc);
    status = status == FSDP_ERR_NOT_FOUND ? FSDP_ERR_FORMAT : status;
    fsdp_json_row_context(status, batch->path, &row);
    return status;
}

static fsdp_status count_arrow(const vocab_run *r, word_counts *c, const fsdp_record_batch *batch,
                               const fsdp_record *record)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_arrow_table_row(batch->table, record->index, &doc));
    fsdp_status status = count_row(r, c, fsdp_json_root(doc));
    fsdp_json_destroy(doc);
    status = status == FSDP_ERR_NOT_FOUND ? FSDP_ERR_FORMAT : status;
    fsdp_arrow_table_add_context(batch->table, record->index, status);
    return status;
}

static fsdp_status count_record(const vocab_run *r, word_counts *c, const fsdp_record_batch *batch,
                                const fsdp_record *record)
{
    if (batch->kind == FSDP_RECORD_JSON)
        return count_json(r, c, batch, record);
    if (batch->kind == FSDP_RECORD_ARROW)
        return count_arrow(r, c, batch, record);
    const char *text = batch->bytes + record->at;
    /* strlen() is right, because neither CSV nor plain text has a NUL */
    const size_t length = strlen(text);
    FSDP_TRY(count_text(r, c, text, length));
    if (batch->kind != FSDP_RECORD_PAIR)
        return FSDP_OK;
    return count_text(r, c, text + length + 1, record->length - length - 1);
}

static fsdp_status count_batch(void *self, const fsdp_record_batch *batch, void *result)
{
    clear_counts(result);
    for (size_t i = 0; i < batch->len; i++)
        FSDP_TRY(count_record(self, result, batch, &batch->records[i]));
    return FSDP_OK;
}

static fsdp_status add_counts(void *self, const fsdp_record_batch *batch, void *result)
{
    vocab_run *r = self;
    const word_counts *c = result;
    for (size_t i = 0; i < c->len; i++) {
        const word *w = &c->words[i];
        FSDP_TRY(fsdp_bpe_trainer_add(r->trainer, c->bytes + w->at, w->length, w->count));
    }
    r->records += (int64_t)batch->len;
    r->text_bytes += c->text_bytes;
    const int64_t done = r->text_bytes >> 20;
    fsdp_progress_update(r->bar, done - r->bar_done, "%s rows",
                         fsdp_human_count((double)r->records).text);
    r->bar_done = done;
    return FSDP_OK;
}

static const fsdp_pipeline_ops vocab_ops = {
    .create = create_counts,
    .destroy = destroy_counts,
    .work = count_batch,
    .write = add_counts,
};

/* ---- a run ---- */

static fsdp_status read_texts(vocab_run *r, fsdp_tokenize_inputs *in)
{
    bool stopped = false;
    FSDP_TRY(fsdp_char_classes_create(&r->classes));
    FSDP_TRY(fsdp_bpe_trainer_create(&r->trainer));
    FSDP_TRY(fsdp_tokenize_bar(r->config, in, "count words (MiB)", &r->bar));
    fsdp_status status =
        fsdp_pipeline_run(&vocab_ops, r, in->source, in->threads, r->config->interrupted, &stopped);
    fsdp_progress_destroy(r->bar);
    if (status == FSDP_OK && stopped)
        status = fsdp_error(FSDP_ERR_STATE, "interrupted; nothing was written");
    if (status == FSDP_OK && r->text_bytes == 0)
        status = fsdp_error(FSDP_ERR_FORMAT,
                            "%s: its %" PRId64 " rows have no text, from which --train-vocab could "
                            "learn",
                            r->config->data, r->records);
    return status;
}

static fsdp_status learn(vocab_run *r, fsdp_tokenize_inputs *in, FILE *out)
{
    const fsdp_tokenize_config *c = r->config;
    const double began_s = fsdp_clock_s();
    fsdp_bpe_learned learned = {0};
    const fsdp_bpe_train_options options = {.vocab_size = c->train_vocab,
                                            .min_frequency = c->min_frequency,
                                            .special_tokens = c->special_tokens.items,
                                            .n_special_tokens = c->special_tokens.count};
    FSDP_TRY(read_texts(r, in));
    FSDP_TRY(fsdp_bpe_trainer_learn(r->trainer, &options, &learned));
    const int32_t size = fsdp_vocabulary_size(learned.vocabulary);
    const fsdp_status status =
        fsdp_vocab_folder_write(c->output, &learned, &c->special_tokens, r->pattern);
    if (status == FSDP_OK)
        fprintf(
            out,
            "%s: %" PRId64 " rows, %s of text; %s\n%s: a byte-level BPE tokenizer of %" PRId32
            " tokens, %zu merges%s\n",
            c->data, r->records, fsdp_human_bytes(r->text_bytes).text,
            fsdp_human_duration(fsdp_clock_s() - began_s).text, c->output, size, learned.n_merges,
            size < c->train_vocab ? ": the texts have no more pairs that are frequent enough" : "");
    fsdp_bpe_learned_fini(&learned);
    return status;
}

fsdp_status fsdp_tokenize_train_vocab(const fsdp_tokenize_config *config,
                                      fsdp_tokenize_inputs *inputs, FILE *out)
{
    vocab_run r = {.config = config, .pattern = FSDP_WORDS_GPT2 + (fsdp_word_pattern)config->words};
    unsigned possible;
    fsdp_status status = fsdp_record_source_possible_uses(inputs->source, &possible);
    if (status == FSDP_OK)
        status = fsdp_tokenize_check_uses(config, possible);
    if (status == FSDP_OK)
        status = fsdp_atomic_directory_check(config->output, FSDP_EXISTING_REFUSE);
    if (status == FSDP_OK)
        status = learn(&r, inputs, out);
    if (status == FSDP_OK && fsdp_record_source_notes(inputs->source))
        fprintf(out, "%s\n", fsdp_record_source_notes(inputs->source));
    fsdp_bpe_trainer_destroy(r.trainer);
    fsdp_char_classes_destroy(r.classes);
    return status;
}
