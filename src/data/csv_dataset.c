/* Opens a CSV file as a dataset of texts. For SEQ2SEQ, a row has a source and a target. For
 * CAUSAL_LM, a row has a prompt and a completion, or one whole text. A prompt is handled as a
 * source, and a completion or a whole text as a target.
 *
 * Opening a file reads and checks all of it, but keeps only the position of each row in memory (16
 * bytes). The thread that requests an example reads its row from the file and tokenizes it. So no
 * rank keeps the texts in memory, and the page cache has the file only once for all ranks of a
 * host. */
#include "src/data/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/str.h"
#include "src/data/causal_text.h"
#include "src/data/csv.h"
#include "src/data/titles.h"
#include "src/data/wikihow.h"
#include "src/text/utf8.h"

typedef struct place {
    uint64_t offset;
    uint32_t size; /* bytes; at most FSDP_LINE_BYTES_MAX */
    uint32_t line;
} place;

typedef struct csv_dataset {
    fsdp_dataset_options options; /* source_prefix and the columns are valid only while the dataset
                                     is being opened */
    char *path, *source_prefix;
    int fd; /* all threads read the file with pread() */
    place *places;
    size_t len, cap;
    /* source, target: indices of these columns. fields: number of columns. */
    size_t source, target, fields;
    bool has_source; /* false: each row is a whole text, in the target column */
    /* Titles of the split, only while the dataset is being opened. NULL: use all rows. */
    fsdp_titles *titles;
    size_t title; /* index of the title column; only used with `titles` */
} csv_dataset;

/* The texts of one row. */
typedef struct pair {
    fsdp_csv_row row;
    char *source, *target; /* pointers into row.bytes */
    size_t source_len, target_len;
} pair;

/* ---- columns ---- */

static bool is_name(const char *field, size_t length, const char *name)
{
    while (length && field[length - 1] == ' ')
        length--;
    while (length && *field == ' ') {
        field++;
        length--;
    }
    return strlen(name) == length && strncasecmp(field, name, length) == 0;
}

static fsdp_status missing_column(const char *path, const fsdp_csv_row *header, const char *name)
{
    fsdp_str found = {0};
    for (size_t i = 0; i < header->fields; i++) {
        size_t length;
        const char *field = fsdp_csv_field(header, i, &length);
        fsdp_str_printf(&found, "%s%.*s", i ? ", " : "", length < 60 ? (int)length : 60, field);
    }
    char *names = fsdp_str_take(&found);
    if (!names)
        return FSDP_ERR_NOMEM;
    fsdp_status status =
        fsdp_error(FSDP_ERR_FORMAT, "%s: line %" PRId64 ": no column '%s'; the header has %s", path,
                   header->line, name, names);
    fsdp_free(names);
    return status;
}

static bool has_column(const fsdp_csv_row *header, const char *name)
{
    for (size_t i = 0; i < header->fields; i++) {
        size_t length;
        const char *field = fsdp_csv_field(header, i, &length);
        if (is_name(field, length, name))
            return true;
    }
    return false;
}

static fsdp_status find_column(const char *path, const fsdp_csv_row *header, const char *name,
                               size_t *index)
{
    size_t found = header->fields;
    for (size_t i = 0; i < header->fields; i++) {
        size_t length;
        const char *field = fsdp_csv_field(header, i, &length);
        if (!is_name(field, length, name))
            continue;
        if (found < header->fields)
            return fsdp_error(FSDP_ERR_FORMAT, "%s: line %" PRId64 ": two columns are named '%s'",
                              path, header->line, name);
        found = i;
    }
    if (found == header->fields)
        return missing_column(path, header, name);
    *index = found;
    return FSDP_OK;
}

/* Get the names of the source and target columns. *source is NULL if rows have only a target. */
static void column_names(const csv_dataset *d, const fsdp_csv_row *header, const char **source,
                         const char **target)
{
    const fsdp_dataset_options *o = &d->options;
    *source = o->target_column || o->task == FSDP_TASK_SEQ2SEQ ? o->source_column : NULL;
    *target = o->target_column ? o->target_column : o->source_column;
    if (*target)
        return;
    bool both = has_column(header, "prompt") && has_column(header, "completion");
    *source = both ? "prompt" : NULL;
    *target = both ? "completion" : "text";
}

static fsdp_status find_columns(csv_dataset *d, const fsdp_csv_row *header)
{
    const char *source, *target;
    column_names(d, header, &source, &target);
    d->fields = header->fields;
    d->has_source = source != NULL;
    if (d->has_source)
        FSDP_TRY(find_column(d->path, header, source, &d->source));
    FSDP_TRY(find_column(d->path, header, target, &d->target));
    if (d->has_source && d->source == d->target)
        return fsdp_error(FSDP_ERR_INVALID, "%s: column '%s' is both source and target", d->path,
                          source);
    return d->titles ? find_column(d->path, header, "title", &d->title) : FSDP_OK;
}

/* ---- rows ---- */

/* Set p->source and p->target to fields of p->row. If options.cleaning is set, also strip white
 * space from both, as WikiHow's script does. */
static void take_texts(const csv_dataset *d, pair *p)
{
    static char none[] = "";
    p->source = none;
    if (d->has_source)
        p->source = fsdp_csv_field(&p->row, d->source, &p->source_len);
    p->target = fsdp_csv_field(&p->row, d->target, &p->target_len);
    if (d->options.cleaning == FSDP_CLEANING_NONE)
        return;
    p->source_len = fsdp_wikihow_strip(&p->source, p->source_len);
    p->target_len = fsdp_wikihow_strip(&p->target, p->target_len);
}

static void clean_texts(const csv_dataset *d, pair *p)
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
static bool has_wanted_title(const csv_dataset *d, pair *p)
{
    size_t length;
    if (!d->titles)
        return true;
    char *title = fsdp_csv_field(&p->row, d->title, &length);
    return fsdp_titles_have(d->titles, title, length);
}

static bool is_wanted(const csv_dataset *d, pair *p)
{
    if (!has_wanted_title(d, p))
        return false;
    if (!d->options.skip_long_summaries)
        return true;
    take_texts(d, p);
    return p->target_len && fsdp_wikihow_is_summary(fsdp_utf8_count(p->target, p->target_len),
                                                    fsdp_utf8_count(p->source, p->source_len));
}

static fsdp_status index_rows(csv_dataset *d, fsdp_csv *csv)
{
    pair p = {0};
    fsdp_status status = FSDP_OK;
    while (status == FSDP_OK && (int64_t)d->len < d->options.max_samples) {
        status = fsdp_csv_next(csv, &p.row);
        if (status != FSDP_OK || p.row.line == 0)
            break;
        if (p.row.line > UINT32_MAX)
            status = fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: more than 2^32 lines", d->path);
        else if (!FSDP_GROW(d->places, d->cap, d->len + 1))
            status = FSDP_ERR_NOMEM;
        else if (is_wanted(d, &p))
            d->places[d->len++] = (place){p.row.offset, (uint32_t)p.row.size, (uint32_t)p.row.line};
    }
    fsdp_csv_row_fini(&p.row);
    if (status == FSDP_OK && d->len == 0)
        status = fsdp_error(FSDP_ERR_FORMAT, "%s: no rows%s%s", d->path,
                            d->titles ? " with a title of the split's list" : "",
                            d->options.skip_long_summaries ? " with a short enough summary" : "");
    return status;
}

static fsdp_status read_bytes(const csv_dataset *d, const place *at, char *bytes)
{
    size_t done = 0;
    while (done < at->size) {
        ssize_t n = pread(d->fd, bytes + done, at->size - done, (off_t)(at->offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fsdp_error(FSDP_ERR_IO, "%s: line %u: %s", d->path, (unsigned)at->line,
                              n ? strerror(errno) : "the file became shorter");
        done += (size_t)n;
    }
    return FSDP_OK;
}

/* Read row `index` from the file, and clean its texts if options.cleaning is set. The caller frees
 * p->row. */
static fsdp_status read_pair(const csv_dataset *d, int64_t index, pair *p)
{
    const place *at = &d->places[index];
    char *bytes = fsdp_calloc(at->size, 1);
    if (!bytes)
        return FSDP_ERR_NOMEM;
    fsdp_status status = read_bytes(d, at, bytes);
    if (status == FSDP_OK) {
        status = fsdp_csv_parse_row(bytes, at->size, &p->row);
        if (status == FSDP_OK && p->row.fields != d->fields)
            status =
                fsdp_error(FSDP_ERR_FORMAT, "%zu fields instead of %zu", p->row.fields, d->fields);
        fsdp_error_context(status, "%s: line %u: the file has changed", d->path,
                           (unsigned)at->line);
    }
    fsdp_free(bytes);
    if (status != FSDP_OK)
        return status;
    take_texts(d, p);
    clean_texts(d, p);
    return FSDP_OK;
}

/* ---- functions of the dataset ---- */

static int64_t csv_len(void *self)
{
    return (int64_t)((const csv_dataset *)self)->len;
}

/* Set *text to the source prefix followed by p->source. The caller owns *text. */
static fsdp_status join_prefix(const csv_dataset *d, const pair *p, char **text, size_t *length)
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

static fsdp_status encode_pair(const csv_dataset *d, const pair *p, fsdp_example *example)
{
    char *source;
    size_t length;
    FSDP_TRY(join_prefix(d, p, &source, &length));
    if (d->options.task == FSDP_TASK_CAUSAL_LM) {
        fsdp_status made = fsdp_causal_text_encode(&d->options, source, p->target, example);
        fsdp_free(source);
        return made;
    }
    fsdp_status status = fsdp_tokenizer_encode(d->options.tokenizer, source, length,
                                               d->options.max_source_length, &example->source);
    if (status == FSDP_OK)
        status = fsdp_tokenizer_encode(d->options.tokenizer, p->target, p->target_len,
                                       d->options.max_target_length, &example->labels);
    if (status == FSDP_OK && d->options.pad_targets)
        status = pad_target(&d->options, &example->labels);
    fsdp_free(source);
    return status;
}

static fsdp_status csv_get(void *self, int64_t index, fsdp_example *example)
{
    const csv_dataset *d = self;
    pair p = {0};
    fsdp_status status = read_pair(d, index, &p);
    if (status == FSDP_OK) {
        status = encode_pair(d, &p, example);
        fsdp_error_context(status, "%s: line %u", d->path, (unsigned)d->places[index].line);
    }
    fsdp_csv_row_fini(&p.row);
    return status;
}

static fsdp_status csv_texts(void *self, int64_t index, char **source, char **target)
{
    const csv_dataset *d = self;
    pair p = {0};
    size_t length;
    char *joined = NULL, *reference = NULL;
    fsdp_status status = read_pair(d, index, &p);
    if (status == FSDP_OK)
        status = join_prefix(d, &p, &joined, &length);
    if (status == FSDP_OK && !(reference = fsdp_strndup(p.target, p.target_len)))
        status = FSDP_ERR_NOMEM;
    fsdp_csv_row_fini(&p.row);
    if (status != FSDP_OK) {
        fsdp_free(joined);
        return status;
    }
    *source = joined;
    *target = reference;
    return FSDP_OK;
}

static void csv_close(void *self)
{
    csv_dataset *d = self;
    if (d->fd >= 0)
        close(d->fd);
    fsdp_free(d->places);
    fsdp_free(d->path);
    fsdp_free(d->source_prefix);
    fsdp_titles_close(d->titles);
    fsdp_free(d);
}

static fsdp_status open_file(csv_dataset *d, const char *titles)
{
    fsdp_csv *csv;
    if (titles)
        FSDP_TRY(fsdp_titles_open(titles, &d->titles));
    FSDP_TRY(fsdp_csv_open(d->path, &csv));
    fsdp_status status = find_columns(d, fsdp_csv_header(csv));
    if (status == FSDP_OK)
        status = index_rows(d, csv);
    fsdp_csv_close(csv);
    fsdp_titles_close(d->titles);
    d->titles = NULL;
    if (status == FSDP_OK && (d->fd = open(d->path, O_RDONLY | O_CLOEXEC)) < 0)
        status = fsdp_error(FSDP_ERR_IO, "%s: %s", d->path, strerror(errno));
    return status;
}

static const fsdp_dataset_ops csv_ops = {
    .len = csv_len,
    .get = csv_get,
    .texts = csv_texts,
    .close = csv_close,
};

fsdp_status fsdp_csv_dataset_open(const char *path, const char *titles,
                                  const fsdp_dataset_options *options, fsdp_dataset **out)
{
    FSDP_TRY(fsdp_check_tokenizer(path, "CSV", options));
    csv_dataset *d = fsdp_calloc(1, sizeof *d);
    if (!d)
        return FSDP_ERR_NOMEM;
    d->options = *options;
    d->fd = -1;
    d->path = fsdp_strdup(path);
    d->source_prefix = fsdp_strdup(options->source_prefix);
    fsdp_status status = d->path && d->source_prefix ? open_file(d, titles) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_dataset_create(&csv_ops, d, out);
    if (status != FSDP_OK) {
        csv_close(d);
        return status;
    }
    const bool pairs = options->task == FSDP_TASK_SEQ2SEQ;
    const bool prompts = options->task == FSDP_TASK_CAUSAL_LM && d->has_source;
    fsdp_dataset_set_uses(*out, FSDP_USES_TEXTS | (pairs ? FSDP_USES_CLEANING : 0) |
                                    (prompts ? FSDP_USES_COMPLETION : 0));
    return FSDP_OK;
}
