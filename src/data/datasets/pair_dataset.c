/* Opens a file of CSV, JSON or Arrow as a dataset of texts. For SEQ2SEQ, a row has a source and a
 * target. For CAUSAL_LM, a row has a prompt and a completion, or one whole text. A prompt is
 * handled as a source, and a completion or a whole text as a target.
 *
 * Opening a file reads and checks all of it, but keeps only the position of each row in memory (16
 * bytes). The thread that requests an example reads its row from the file and tokenizes it. So no
 * rank keeps the texts in memory, and the page cache has the file only once for all ranks of a
 * host. */
#include "src/data/datasets/dataset.h"
#include "src/data/rows/rows_form.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/shown_text.h"
#include "src/base/str.h"
#include "src/data/rows/causal_text.h"
#include "src/data/rows/text_rows.h"
#include "src/data/rows/titles.h"
#include "src/data/rows/wikihow.h"
#include "src/text/chars/utf8.h"
#include "src/text/special_in_text.h"
#include "src/text/unknown_in_text.h"

typedef struct place {
    uint64_t offset;
    uint32_t size; /* bytes; at most FSDP_LINE_BYTES_MAX */
    uint32_t line;
} place;

typedef struct pair_dataset {
    fsdp_dataset_options options; /* source_prefix and the columns are valid only while the dataset
                                     is being opened */
    char *path, *source_prefix;
    fsdp_text_rows *rows;
    place *places;
    size_t len, cap;
    /* The rows that options.skip_long_summaries leaves out. skipped[i] is the index in the dataset
     * of the next row that was not left out. The indices are in ascending order. Rows that `titles`
     * leaves out are not listed. [skipped_len] */
    int64_t *skipped;
    size_t skipped_len, skipped_cap;
    /* Titles of the split, only while the dataset is being opened. NULL: use all rows. */
    fsdp_titles *titles;
    size_t n_prefixed; /* number of rows whose source begins with source_prefix */
    char *note;        /* the text that fsdp_dataset_note() returns, or NULL */
} pair_dataset;

/* The texts of one row. */
typedef struct pair {
    fsdp_csv_row row;
    char *source, *target; /* pointers into row.bytes */
    size_t source_len, target_len;
} pair;

/* ---- rows ---- */

/* Set p->source and p->target to fields of p->row. If options.cleaning is set, also strip white
 * space from both, as WikiHow's script does. */
static void take_texts(const pair_dataset *d, pair *p)
{
    p->source = fsdp_text_rows_source(d->rows, &p->row, &p->source_len);
    p->target = fsdp_text_rows_target(d->rows, &p->row, &p->target_len);
    if (d->options.cleaning == FSDP_CLEANING_NONE)
        return;
    p->source_len = fsdp_wikihow_line_ends(p->source, p->source_len);
    p->target_len = fsdp_wikihow_line_ends(p->target, p->target_len);
    p->source_len = fsdp_wikihow_strip(&p->source, p->source_len);
    p->target_len = fsdp_wikihow_strip(&p->target, p->target_len);
}

static void clean_texts(const pair_dataset *d, pair *p)
{
    if (d->options.cleaning == FSDP_CLEANING_NONE)
        return;
    p->source_len = fsdp_wikihow_clean_article(p->source, p->source_len);
    p->source_len = fsdp_wikihow_clean_text(p->source, p->source_len);
    p->target_len = fsdp_wikihow_clean_summary(p->target, p->target_len);
    p->target_len = fsdp_wikihow_clean_text(p->target, p->target_len);
}

/* Return true if the row's title is in d->titles, or if d->titles is NULL. As a side effect, the
 * spaces of the title are removed from p->row. */
static bool has_wanted_title(const pair_dataset *d, pair *p)
{
    size_t length;
    if (!d->titles)
        return true;
    char *title = fsdp_text_rows_title(d->rows, &p->row, &length);
    return fsdp_titles_have(d->titles, title, length);
}

/* Return false if options.skip_long_summaries leaves the row out. */
static bool has_wanted_summary(const pair_dataset *d, pair *p)
{
    if (!d->options.skip_long_summaries)
        return true;
    take_texts(d, p);
    return p->target_len && fsdp_wikihow_is_summary(fsdp_utf8_count(p->target, p->target_len),
                                                    fsdp_utf8_count(p->source, p->source_len));
}

/* Return true if the source of a row begins with the prefix that will be put before it. */
static bool has_prefix(const pair_dataset *d, const pair *p)
{
    size_t length;
    const size_t n = strlen(d->source_prefix);
    const char *source = fsdp_text_rows_source(d->rows, &p->row, &length);
    return n && length >= n && memcmp(source, d->source_prefix, n) == 0;
}

static fsdp_status add_row(pair_dataset *d, pair *p)
{
    if (p->row.line > UINT32_MAX)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: more than 2^32 lines", d->path);
    if (!FSDP_GROW(d->places, d->cap, d->len + 1) ||
        !FSDP_GROW(d->skipped, d->skipped_cap, d->skipped_len + 1))
        return FSDP_ERR_NOMEM;
    if (!has_wanted_title(d, p))
        return FSDP_OK;
    if (has_wanted_summary(d, p)) {
        d->n_prefixed += has_prefix(d, p);
        d->places[d->len++] = (place){p->row.offset, (uint32_t)p->row.size, (uint32_t)p->row.line};
    } else {
        d->skipped[d->skipped_len++] = (int64_t)d->len;
    }
    return FSDP_OK;
}

/* Append to the note that the prefix is put even before sources that already begin with the
 * prefix. */
static fsdp_status note_prefixed(pair_dataset *d)
{
    if (!d->n_prefixed)
        return FSDP_OK;
    char *note = fsdp_strdup_printf(
        "%s%s%s: %zu of %zu sources begin with '%s' already and get it twice, as in transformers' "
        "run_summarization; --task-prefix '' puts nothing there",
        d->note ? d->note : "", d->note ? "\n" : "", d->path, d->n_prefixed, d->len,
        fsdp_show_text(d->source_prefix).text);
    if (!note)
        return FSDP_ERR_NOMEM;
    fsdp_free(d->note);
    d->note = note;
    return FSDP_OK;
}

static fsdp_status index_rows(pair_dataset *d)
{
    pair p = {0};
    fsdp_status status = FSDP_OK;
    while (status == FSDP_OK && (int64_t)d->len < d->options.max_samples) {
        status = fsdp_text_rows_next(d->rows, &p.row);
        if (status != FSDP_OK || p.row.line == 0)
            break;
        status = add_row(d, &p);
    }
    fsdp_csv_row_fini(&p.row);
    if (status == FSDP_OK && d->len == 0)
        status = fsdp_error(FSDP_ERR_FORMAT, "%s: no rows%s%s", d->path,
                            d->titles ? " with a title of the split's list" : "",
                            d->options.skip_long_summaries ? " with a short enough summary" : "");
    if (status == FSDP_OK)
        status = fsdp_text_rows_end(d->rows, &d->options, &d->note);
    return status == FSDP_OK ? note_prefixed(d) : status;
}

/* Read row `index` from the file, and clean its texts if options.cleaning is set. The caller frees
 * p->row. */
static fsdp_status read_pair(const pair_dataset *d, int64_t index, pair *p)
{
    const place *at = &d->places[index];
    fsdp_status status = fsdp_text_rows_read(d->rows, at->offset, at->size, &p->row);
    if (status == FSDP_ERR_FORMAT)
        fsdp_text_place_context(d->rows, status, at->offset, at->line);
    if (status != FSDP_OK)
        return status;
    take_texts(d, p);
    clean_texts(d, p);
    return FSDP_OK;
}

/* ---- functions of the dataset ---- */

static int64_t pair_len(void *self)
{
    return (int64_t)((const pair_dataset *)self)->len;
}

/* Set *text to the source prefix followed by p->source. The caller owns *text. */
static fsdp_status join_prefix(const pair_dataset *d, const pair *p, char **text, size_t *length)
{
    fsdp_str s = {0};
    fsdp_str_append(&s, d->source_prefix, strlen(d->source_prefix));
    fsdp_str_append(&s, p->source, p->source_len);
    *length = s.len;
    *text = fsdp_str_take(&s);
    return *text ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status pad_target(const fsdp_dataset_options *o, fsdp_token_list *target)
{
    const size_t length = (size_t)o->max_target_length, given = target->len;
    int32_t *ids = fsdp_calloc(length, sizeof *ids);
    if (!ids)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < length; i++)
        ids[i] = i < given ? target->ids[i] : fsdp_tokenizer_pad_id(o->tokenizer);
    fsdp_status status = fsdp_token_list_set(target, ids, length);
    fsdp_free(ids);
    return status;
}

/* Encode a text of a pair. Unless `cut` is NULL, add to *cut the number of ids that do not fit. To
 * count them, a text that reaches the limit is encoded again without a limit. */
static fsdp_status encode_text(const fsdp_dataset_options *o, const char *text, size_t length,
                               int limit, fsdp_token_list *ids, int64_t *cut)
{
    fsdp_token_list whole = {0};
    FSDP_TRY(fsdp_tokenizer_encode(o->tokenizer, text, length, limit, ids));
    if (!cut || !limit || ids->len < (size_t)limit)
        return FSDP_OK;
    /* The call above has counted the special and unknown tokens up to the limit. Those beyond the
     * limit do not count. */
    const fsdp_special_in_text counted = *fsdp_special_in_text_of_thread();
    fsdp_unknown_in_text *watched = fsdp_unknown_in_text_watch(NULL);
    const fsdp_status status = fsdp_tokenizer_encode(o->tokenizer, text, length, 0, &whole);
    fsdp_unknown_in_text_watch(watched);
    *fsdp_special_in_text_of_thread() = counted;
    if (status == FSDP_OK)
        *cut += (int64_t)(whole.len - ids->len);
    fsdp_token_list_fini(&whole);
    return status;
}

/* Encode the source or, if is_target is true, the target of a pair. If the text has unknown tokens,
 * set in_source or in_target of fsdp_unknown_in_text_watched(). */
static fsdp_status encode_side(const fsdp_dataset_options *o, const char *text, size_t length,
                               bool is_target, fsdp_token_list *ids, int64_t *cut)
{
    const int64_t limit = is_target ? o->max_target_length : o->max_source_length;
    fsdp_unknown_in_text *watched = fsdp_unknown_in_text_watched();
    const int64_t before = watched ? watched->count : 0;
    FSDP_TRY(encode_text(o, text, length, (int)limit, ids, cut));
    if (watched && watched->count > before)
        *(is_target ? &watched->in_target : &watched->in_source) = true;
    return FSDP_OK;
}

static fsdp_status encode_pair(const pair_dataset *d, const pair *p, fsdp_example *example,
                               int64_t *cut)
{
    const fsdp_dataset_options *o = &d->options;
    char *source;
    size_t length;
    FSDP_TRY(join_prefix(d, p, &source, &length));
    if (o->task == FSDP_TASK_CAUSAL_LM) {
        const fsdp_data_text prompt = {source, length}, text = {p->target, p->target_len};
        fsdp_status made = fsdp_causal_text_encode(o, prompt, text, example, cut);
        fsdp_free(source);
        return made;
    }
    fsdp_status status = encode_side(o, source, length, false, &example->source, cut);
    if (status == FSDP_OK)
        status = encode_side(o, p->target, p->target_len, true, &example->labels, cut);
    if (status == FSDP_OK && o->pad_targets)
        status = pad_target(o, &example->labels);
    fsdp_free(source);
    return status;
}

static fsdp_status pair_get_cut(void *self, int64_t index, fsdp_example *example, int64_t *cut)
{
    const pair_dataset *d = self;
    pair p = {0};
    fsdp_status status = read_pair(d, index, &p);
    if (status == FSDP_OK) {
        status = encode_pair(d, &p, example, cut);
        fsdp_text_place_context(d->rows, status, d->places[index].offset, d->places[index].line);
    }
    fsdp_csv_row_fini(&p.row);
    return status;
}

static fsdp_status pair_get(void *self, int64_t index, fsdp_example *example)
{
    return pair_get_cut(self, index, example, NULL);
}

static fsdp_status copy_texts(const char *joined, size_t length, const pair *p, char **source,
                              char **target)
{
    char *first = fsdp_text_row_copy(joined, length);
    char *second = first ? fsdp_text_row_copy(p->target, p->target_len) : NULL;
    if (!second) {
        fsdp_free(first);
        return FSDP_ERR_NOMEM;
    }
    *source = first;
    *target = second;
    return FSDP_OK;
}

static fsdp_status pair_texts(void *self, int64_t index, char **source, char **target)
{
    const pair_dataset *d = self;
    pair p = {0};
    size_t length;
    char *joined = NULL;
    fsdp_status status = read_pair(d, index, &p);
    if (status == FSDP_OK)
        status = join_prefix(d, &p, &joined, &length);
    if (status == FSDP_OK)
        status = copy_texts(joined, length, &p, source, target);
    fsdp_csv_row_fini(&p.row);
    fsdp_free(joined);
    return status;
}

/* Return true if a skipped row counts for the range. The row was skipped directly before row `next`
 * of the dataset; `next` is an entry of d->skipped. The row counts if row `next` is in the range. A
 * row that was skipped at the end of the file counts for the range that ends with the last row of
 * the dataset. */
static bool is_skipped_in(const pair_dataset *d, int64_t next, const fsdp_row_range *range)
{
    const int64_t end = range->first + range->rows;
    return next >= range->first && (next < end || (next == end && end == (int64_t)d->len));
}

static fsdp_status pair_left_out(void *self, const fsdp_row_range *range, fsdp_left_out *sum)
{
    const pair_dataset *d = self;
    for (size_t i = 0; i < d->skipped_len; i++)
        sum->skipped_rows += is_skipped_in(d, d->skipped[i], range);
    return fsdp_count_cut_rows(pair_get_cut, self, range->first, range->len, sum);
}

static void pair_close(void *self)
{
    pair_dataset *d = self;
    fsdp_text_rows_close(d->rows);
    fsdp_free(d->places);
    fsdp_free(d->skipped);
    fsdp_free(d->path);
    fsdp_free(d->source_prefix);
    fsdp_free(d->note);
    fsdp_titles_close(d->titles);
    fsdp_free(d);
}

static fsdp_status open_file(pair_dataset *d, const char *path, fsdp_rows_form form,
                             const char *titles)
{
    d->path = fsdp_strdup(path);
    d->source_prefix = fsdp_strdup(d->options.source_prefix);
    if (!d->path || !d->source_prefix)
        return FSDP_ERR_NOMEM;
    if (titles)
        FSDP_TRY(fsdp_titles_open(titles, &d->titles));
    FSDP_TRY(fsdp_text_rows_open(path, form, titles != NULL, &d->options, &d->rows));
    fsdp_status status = index_rows(d);
    fsdp_titles_close(d->titles);
    d->titles = NULL;
    return status;
}

static const fsdp_dataset_ops pair_ops = {
    .len = pair_len,
    .get = pair_get,
    .texts = pair_texts,
    .close = pair_close,
};

fsdp_status fsdp_pair_dataset_open(const char *path, fsdp_rows_form form, const char *titles,
                                   const fsdp_dataset_options *options, fsdp_dataset **out)
{
    FSDP_TRY(fsdp_check_tokenizer(path, form == FSDP_ROWS_CSV ? "CSV" : "a text", options));
    pair_dataset *d = fsdp_calloc(1, sizeof *d);
    if (!d)
        return FSDP_ERR_NOMEM;
    d->options = *options;
    fsdp_status status = open_file(d, path, form, titles);
    if (status == FSDP_OK)
        status = fsdp_dataset_create(&pair_ops, d, out);
    if (status != FSDP_OK) {
        pair_close(d);
        return status;
    }
    const bool pairs = options->task == FSDP_TASK_SEQ2SEQ;
    const bool prompts =
        options->task == FSDP_TASK_CAUSAL_LM && fsdp_text_rows_have_source(d->rows);
    fsdp_dataset_set_uses(*out, FSDP_USES_TEXTS | (pairs ? FSDP_USES_CLEANING : 0) |
                                    fsdp_rows_form_uses(form) |
                                    (prompts ? FSDP_USES_COMPLETION : 0));
    fsdp_dataset_set_note(*out, d->note);
    fsdp_dataset_set_left_out(*out, pair_left_out);
    fsdp_dataset_set_get_cut(*out, pair_get_cut);
    return FSDP_OK;
}
