/* See file.h. */
#include "src/data/arrow/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/file_kind.h"
#include "src/base/io.h"
#include "src/data/arrow/layout.h"

enum {
    PREFIX_BYTES = 8,  /* 0xFFFFFFFF and the size of the metadata */
    OLD_PREFIX = 4,    /* until Arrow 0.14: only the size of the metadata */
    MAGIC_BYTES = 6,   /* "ARROW1" */
    HEAD_BYTES = 8,    /* the magic at the beginning, padded */
    FOOTER_TAIL = 10,  /* bytes at the end of a file in the file format: the size of the footer, and
                          the magic */
    SHOWN_BYTES = 4096 /* number of bytes after the end of a stream that check_tail() looks at */
};

static const int64_t max_rows = (int64_t)1 << 40;

typedef struct batch_entry {
    uint64_t offset; /* offset of the message in the file */
    int64_t first;   /* index in the file of the batch's first row */
    size_t seen;     /* number of dictionary batches that come before this batch */
} batch_entry;

/* A dictionary batch. A batch that is not a delta begins a new version of its dictionary, and the
 * deltas after it extend this version. */
typedef struct dictionary_entry {
    int64_t id;
    size_t order; /* position among the dictionary batches of the file */
    uint64_t offset;
    int64_t rows;
    bool is_delta;
    size_t version; /* index in fsdp_arrow_file.dictionaries of the first batch of this version */
    int64_t first;  /* index, among the values of this version, of the batch's first value */
} dictionary_entry;

typedef struct dictionary_field {
    int64_t id, field;
} dictionary_field;

struct fsdp_arrow_file {
    char *path;
    fsdp_mapping map;
    fsdp_arrow_schema schema;
    batch_entry *batches;
    size_t n_batches, batches_cap;
    dictionary_entry *dictionaries; /* sorted by id, then by order, when the file is open */
    size_t n_dictionaries, dictionaries_cap;
    dictionary_field *dictionary_fields; /* [n_dictionary_fields], sorted by id */
    size_t n_dictionary_fields;
    int64_t rows;
};

/* ---- messages ---- */

static uint32_t load_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Find the metadata of the message at `offset`. *bytes is 0 at the end of the stream. */
static fsdp_status find_metadata(const fsdp_mapping *map, uint64_t offset,
                                 const unsigned char **data, size_t *bytes)
{
    *bytes = 0;
    if (offset == map->bytes)
        return FSDP_OK; /* the marker at the end of a stream may be absent */
    if (offset > map->bytes || map->bytes - offset < OLD_PREFIX)
        return fsdp_error(FSDP_ERR_FORMAT, "truncated: the file ends after %zu bytes", map->bytes);
    const unsigned char *p = map->data + offset;
    size_t left = map->bytes - (size_t)offset, prefix = OLD_PREFIX;
    uint32_t length = load_u32(p);
    if (length == UINT32_MAX) {
        if (left < PREFIX_BYTES)
            return fsdp_error(FSDP_ERR_FORMAT, "truncated: the file ends after %zu bytes",
                              map->bytes);
        length = load_u32(p + OLD_PREFIX);
        prefix = PREFIX_BYTES;
    }
    left -= prefix;
    if (length > FSDP_ARROW_MAX_METADATA)
        return fsdp_error(FSDP_ERR_FORMAT, "no message, or one with %" PRIu32 " bytes of metadata",
                          length);
    if (length > left)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "truncated: %" PRIu32 " bytes of metadata, but the file ends after %zu",
                          length, left);
    *data = p + prefix;
    *bytes = length;
    return FSDP_OK;
}

/* Read the message at `offset`. Set *next to the offset of the next message, which follows the body
 * of this one. At the end of the stream, set *next to 0. If the message is a schema, it is stored
 * in *schema, unless `schema` is NULL. */
static fsdp_status read_message(const fsdp_mapping *map, uint64_t offset, fsdp_arrow_located *out,
                                fsdp_arrow_schema *schema, uint64_t *next)
{
    const unsigned char *data = NULL;
    size_t bytes = 0;
    fsdp_arrow_located found = {.offset = offset};
    FSDP_TRY(find_metadata(map, offset, &data, &bytes));
    *next = 0;
    if (bytes == 0)
        return FSDP_OK;
    FSDP_TRY(fsdp_arrow_message_parse(data, bytes, &found.message, schema));
    found.body = data + bytes;
    const size_t left = (size_t)(map->data + map->bytes - found.body);
    const int64_t body_bytes = found.message.body_bytes;
    if ((uint64_t)body_bytes > left) {
        fsdp_arrow_message_fini(&found.message);
        if (schema)
            fsdp_arrow_schema_fini(schema);
        return fsdp_error(FSDP_ERR_FORMAT,
                          "truncated: a body of %" PRId64 " bytes, but the file ends after %zu",
                          body_bytes, left);
    }
    *next = (uint64_t)(found.body - map->data) + (uint64_t)body_bytes;
    *out = found;
    return FSDP_OK;
}

/* ---- the index of batches ---- */

static fsdp_status check_layout(const fsdp_arrow_file *f, int64_t root,
                                const fsdp_arrow_located *found)
{
    fsdp_arrow_layout layout;
    FSDP_TRY(fsdp_arrow_layout_find(&f->schema, root, &found->message, found->body,
                                    (size_t)found->message.body_bytes, &layout));
    fsdp_arrow_layout_fini(&layout);
    return FSDP_OK;
}

static fsdp_status add_batch(fsdp_arrow_file *f, const fsdp_arrow_located *found)
{
    FSDP_TRY(check_layout(f, FSDP_ARROW_ALL_FIELDS, found));
    if (found->message.rows > max_rows - f->rows)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "more than 2^40 rows");
    if (!FSDP_GROW(f->batches, f->batches_cap, f->n_batches + 1))
        return FSDP_ERR_NOMEM;
    f->batches[f->n_batches++] =
        (batch_entry){.offset = found->offset, .first = f->rows, .seen = f->n_dictionaries};
    f->rows += found->message.rows;
    return FSDP_OK;
}

static int compare_ids(const void *a, const void *b)
{
    const dictionary_field *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->field < y->field ? -1 : x->field > y->field;
}

/* List the fields that have dictionaries, sorted by the ids of the dictionaries. */
static fsdp_status list_dictionary_fields(fsdp_arrow_file *f)
{
    const fsdp_arrow_schema *schema = &f->schema;
    if (!(f->dictionary_fields = fsdp_calloc(schema->n_fields, sizeof *f->dictionary_fields)))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < schema->n_fields; i++)
        if (schema->fields[i].has_dictionary)
            f->dictionary_fields[f->n_dictionary_fields++] =
                (dictionary_field){schema->fields[i].dictionary_id, (int64_t)i};
    qsort(f->dictionary_fields, f->n_dictionary_fields, sizeof *f->dictionary_fields, compare_ids);
    return FSDP_OK;
}

/* Set *field to the index of the first field whose dictionary has this id. */
static fsdp_status find_field(const fsdp_arrow_file *f, int64_t id, int64_t *field)
{
    size_t low = 0, high = f->n_dictionary_fields;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (f->dictionary_fields[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == f->n_dictionary_fields || f->dictionary_fields[low].id != id)
        return fsdp_error(FSDP_ERR_FORMAT, "dictionary %" PRId64 ", which no column has", id);
    *field = f->dictionary_fields[low].field;
    return FSDP_OK;
}

static fsdp_status add_dictionary(fsdp_arrow_file *f, const fsdp_arrow_located *found)
{
    const fsdp_arrow_message *m = &found->message;
    int64_t field = 0;
    FSDP_TRY(find_field(f, m->dictionary_id, &field));
    FSDP_TRY(check_layout(f, field, found));
    if (m->rows > max_rows)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "a dictionary of more than 2^40 values");
    if (!FSDP_GROW(f->dictionaries, f->dictionaries_cap, f->n_dictionaries + 1))
        return FSDP_ERR_NOMEM;
    f->dictionaries[f->n_dictionaries] = (dictionary_entry){.id = m->dictionary_id,
                                                            .order = f->n_dictionaries,
                                                            .offset = found->offset,
                                                            .rows = m->rows,
                                                            .is_delta = m->is_delta};
    f->n_dictionaries++;
    return FSDP_OK;
}

static fsdp_status add_message(fsdp_arrow_file *f, const fsdp_arrow_located *found)
{
    switch (found->message.header) {
    case FSDP_ARROW_RECORD_BATCH:
        return add_batch(f, found);
    case FSDP_ARROW_DICTIONARY_BATCH:
        return add_dictionary(f, found);
    case FSDP_ARROW_SCHEMA:
        break;
    }
    return fsdp_error(FSDP_ERR_FORMAT, "a second schema");
}

static int compare_dictionaries(const void *a, const void *b)
{
    const dictionary_entry *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Sort the dictionary batches, and set `version` and `first` of each. */
static fsdp_status index_dictionaries(fsdp_arrow_file *f)
{
    if (f->n_dictionaries)
        qsort(f->dictionaries, f->n_dictionaries, sizeof *f->dictionaries, compare_dictionaries);
    for (size_t i = 0; i < f->n_dictionaries; i++) {
        dictionary_entry *d = &f->dictionaries[i];
        const dictionary_entry *before = i && d[-1].id == d->id ? d - 1 : NULL;
        d->version = i;
        if (!before || !d->is_delta)
            continue;
        d->version = before->version;
        d->first = before->first + before->rows;
        if (d->first > max_rows)
            return fsdp_error(FSDP_ERR_UNSUPPORTED, "a dictionary of more than 2^40 values");
    }
    return FSDP_OK;
}

/* ---- opening a stream ---- */

/* Return an error if bytes other than zeros follow the end of the stream, which is at offset `end`.
 * Reading stops there, so rows after the end would be lost silently. Only the first SHOWN_BYTES
 * bytes after the end are looked at. */
static fsdp_status check_tail(const fsdp_arrow_file *f, uint64_t end)
{
    static const unsigned char marker[PREFIX_BYTES] = {0xff, 0xff, 0xff, 0xff};
    const unsigned char *p = f->map.data + end;
    size_t left = f->map.bytes - (size_t)end;
    if (left >= PREFIX_BYTES && memcmp(p, marker, PREFIX_BYTES) == 0) {
        p += PREFIX_BYTES;
        left -= PREFIX_BYTES;
    }
    for (size_t i = 0; i < left && i < SHOWN_BYTES; i++)
        if (p[i])
            return fsdp_error(FSDP_ERR_FORMAT,
                              "%zu bytes after the end of the stream: several streams in one file "
                              "are not supported; write each to a file of its own",
                              left);
    return FSDP_OK;
}

static fsdp_status add_stream(fsdp_arrow_file *f, uint64_t offset)
{
    for (size_t n = 1;; n++) {
        fsdp_arrow_located found = {0};
        uint64_t next;
        fsdp_status status = read_message(&f->map, offset, &found, NULL, &next);
        if (status == FSDP_OK && !next)
            return check_tail(f, offset);
        if (status == FSDP_OK)
            status = add_message(f, &found);
        fsdp_arrow_message_fini(&found.message);
        if (status != FSDP_OK) {
            fsdp_error_context(status, "message %zu at byte %" PRIu64, n, offset);
            return status;
        }
        offset = next;
    }
}

static fsdp_status open_stream(fsdp_arrow_file *f)
{
    fsdp_arrow_located found = {0};
    uint64_t next;
    FSDP_TRY(read_message(&f->map, 0, &found, &f->schema, &next));
    const fsdp_arrow_header header = found.message.header;
    fsdp_arrow_message_fini(&found.message);
    if (!next || header != FSDP_ARROW_SCHEMA)
        return fsdp_error(FSDP_ERR_FORMAT, "the stream does not begin with a schema");
    FSDP_TRY(list_dictionary_fields(f));
    return add_stream(f, next);
}

/* ---- opening the file format ---- */

static fsdp_status add_block(fsdp_arrow_file *f, int64_t offset, fsdp_arrow_header expected)
{
    fsdp_arrow_located found = {0};
    uint64_t next = 0;
    if (offset < HEAD_BYTES)
        return fsdp_error(FSDP_ERR_FORMAT, "not a message");
    FSDP_TRY(read_message(&f->map, (uint64_t)offset, &found, NULL, &next));
    fsdp_status status = next && found.message.header == expected
                             ? add_message(f, &found)
                             : fsdp_error(FSDP_ERR_FORMAT, "not a batch of the expected kind");
    fsdp_arrow_message_fini(&found.message);
    return status;
}

static fsdp_status add_blocks(fsdp_arrow_file *f, const int64_t *offsets, size_t n,
                              fsdp_arrow_header expected)
{
    for (size_t i = 0; i < n; i++) {
        const fsdp_status status = add_block(f, offsets[i], expected);
        if (status == FSDP_OK)
            continue;
        fsdp_error_context(status, "%s %zu at byte %" PRId64,
                           expected == FSDP_ARROW_RECORD_BATCH ? "batch" : "dictionary batch", i,
                           offsets[i]);
        return status;
    }
    return FSDP_OK;
}

static fsdp_status open_footer(fsdp_arrow_file *f)
{
    const fsdp_mapping *map = &f->map;
    fsdp_arrow_footer footer = {0};
    const bool has_tail = map->bytes >= HEAD_BYTES + FOOTER_TAIL;
    const unsigned char *tail = has_tail ? map->data + map->bytes - FOOTER_TAIL : NULL;
    if (!has_tail || memcmp(tail + 4, "ARROW1", MAGIC_BYTES) != 0)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "truncated: it begins like an Arrow file, but its footer is missing");
    const size_t bytes = load_u32(tail), room = map->bytes - HEAD_BYTES - FOOTER_TAIL;
    if (bytes > room)
        return fsdp_error(FSDP_ERR_FORMAT, "a footer of %zu bytes in a file of %zu bytes", bytes,
                          map->bytes);
    FSDP_TRY(fsdp_arrow_footer_parse(tail - bytes, bytes, &footer, &f->schema));
    fsdp_status status = list_dictionary_fields(f);
    if (status == FSDP_OK)
        status =
            add_blocks(f, footer.dictionaries, footer.n_dictionaries, FSDP_ARROW_DICTIONARY_BATCH);
    if (status == FSDP_OK)
        status = add_blocks(f, footer.batches, footer.n_batches, FSDP_ARROW_RECORD_BATCH);
    fsdp_arrow_footer_fini(&footer);
    return status;
}

/* ---- kinds of files ---- */

static bool has_magic(const void *data, size_t bytes, const char *magic)
{
    return bytes >= strlen(magic) && memcmp(data, magic, strlen(magic)) == 0;
}

/* Return true if the first bytes can be those of a stream. Since Arrow 0.15, a stream begins with
 * 0xFFFFFFFF and the size of its schema. Before 0.15, a stream began with the size of its schema,
 * followed by the schema, a FlatBuffer. This size is a multiple of 4, and the first number of the
 * FlatBuffer is small and even. */
static bool begins_stream(const unsigned char *data, size_t bytes)
{
    if (bytes < PREFIX_BYTES)
        return false;
    const uint32_t first = load_u32(data), second = load_u32(data + OLD_PREFIX);
    if (first == UINT32_MAX)
        return second >= PREFIX_BYTES && second <= FSDP_ARROW_MAX_METADATA;
    return first >= 64 && first < (1 << 24) && first % 4 == 0 && second >= 8 && second < 64 &&
           second % 2 == 0;
}

bool fsdp_arrow_file_is(const char *path)
{
    unsigned char start[PREFIX_BYTES];
    FILE *file = fsdp_path_is_file(path) ? fopen(path, "rb") : NULL;
    if (!file)
        return false;
    const size_t n = fread(start, 1, sizeof start, file);
    fclose(file);
    return has_magic(start, n, "ARROW1") || has_magic(start, n, "FEA1") ||
           has_magic(start, n, "PAR1") || begins_stream(start, n);
}

static fsdp_status open_contents(fsdp_arrow_file *f)
{
    const fsdp_mapping *map = &f->map;
    if (has_magic(map->data, map->bytes, "ARROW1"))
        return open_footer(f);
    if (begins_stream(map->data, map->bytes))
        return open_stream(f);
    return fsdp_error(FSDP_ERR_FORMAT, "not an Arrow file: it begins neither with a message nor "
                                       "with ARROW1");
}

/* ---- functions of the header ---- */

fsdp_status fsdp_arrow_file_open(const char *path, fsdp_arrow_file **out)
{
    fsdp_arrow_file *f = fsdp_calloc(1, sizeof *f);
    if (!f)
        return FSDP_ERR_NOMEM;
    fsdp_status status = (f->path = fsdp_strdup(path)) ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_file_map(path, &f->map);
    const bool is_other = status == FSDP_OK && !has_magic(f->map.data, f->map.bytes, "ARROW1") &&
                          !begins_stream(f->map.data, f->map.bytes);
    if (is_other)
        status =
            fsdp_file_explain(path, "an Arrow file", FSDP_WANTED_BINARY, f->map.data, f->map.bytes);
    if (status == FSDP_OK) {
        status = open_contents(f);
        if (status == FSDP_OK)
            status = index_dictionaries(f);
        fsdp_error_context(status, "%s", path);
    }
    if (status == FSDP_OK)
        *out = f;
    else
        fsdp_arrow_file_close(f);
    return status;
}

void fsdp_arrow_file_close(fsdp_arrow_file *f)
{
    if (!f)
        return;
    fsdp_arrow_schema_fini(&f->schema);
    fsdp_file_unmap(&f->map);
    fsdp_free(f->batches);
    fsdp_free(f->dictionaries);
    fsdp_free(f->dictionary_fields);
    fsdp_free(f->path);
    fsdp_free(f);
}

const char *fsdp_arrow_file_path(const fsdp_arrow_file *f)
{
    return f->path;
}

const fsdp_arrow_schema *fsdp_arrow_file_schema(const fsdp_arrow_file *f)
{
    return &f->schema;
}

int64_t fsdp_arrow_file_rows(const fsdp_arrow_file *f)
{
    return f->rows;
}

size_t fsdp_arrow_file_bytes(const fsdp_arrow_file *f)
{
    return f->map.bytes;
}

size_t fsdp_arrow_file_find(const fsdp_arrow_file *f, int64_t row, int64_t *first)
{
    size_t low = 0, high = f->n_batches; /* the batch is in [low, high) */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (f->batches[middle].first <= row)
            low = middle;
        else
            high = middle;
    }
    *first = f->batches[low].first;
    return low;
}

/* Read the message at `offset`, which was read before, when the file was opened. */
static fsdp_status read_known(const fsdp_arrow_file *f, uint64_t offset, fsdp_arrow_header header,
                              fsdp_arrow_located *out)
{
    uint64_t next = 0;
    fsdp_arrow_located found = {0};
    FSDP_TRY(read_message(&f->map, offset, &found, NULL, &next));
    if (next && found.message.header == header) {
        *out = found;
        return FSDP_OK;
    }
    fsdp_arrow_message_fini(&found.message);
    return fsdp_error(FSDP_ERR_FORMAT, "the file has changed");
}

fsdp_status fsdp_arrow_file_batch(const fsdp_arrow_file *f, size_t index, fsdp_arrow_located *out)
{
    return read_known(f, f->batches[index].offset, FSDP_ARROW_RECORD_BATCH, out);
}

/* Return the last dictionary batch of dictionary `id` among the first `seen` dictionary batches of
 * the file, or NULL if there is none. */
static const dictionary_entry *last_seen(const fsdp_arrow_file *f, int64_t id, size_t seen)
{
    size_t low = 0, high = f->n_dictionaries; /* the result is before `high` */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const dictionary_entry *d = &f->dictionaries[middle];
        if (d->id < id || (d->id == id && d->order < seen))
            low = middle + 1;
        else
            high = middle;
    }
    return low && f->dictionaries[low - 1].id == id ? &f->dictionaries[low - 1] : NULL;
}

fsdp_status fsdp_arrow_file_dictionary(const fsdp_arrow_file *f, size_t index, int64_t id,
                                       uint64_t value, uint64_t *offset, int64_t *at)
{
    const dictionary_entry *last = last_seen(f, id, f->batches[index].seen);
    if (!last)
        return fsdp_error(FSDP_ERR_FORMAT, "no dictionary %" PRId64 " comes before the batch", id);
    if (value >= (uint64_t)(last->first + last->rows))
        return fsdp_error(FSDP_ERR_FORMAT, "value %" PRIu64 " of a dictionary of %" PRId64, value,
                          last->first + last->rows);
    const dictionary_entry *low = &f->dictionaries[last->version], *high = last + 1;
    while (high - low > 1) {
        const dictionary_entry *middle = low + (high - low) / 2;
        if ((uint64_t)middle->first <= value)
            low = middle;
        else
            high = middle;
    }
    *at = (int64_t)value - low->first;
    *offset = low->offset;
    return FSDP_OK;
}

fsdp_status fsdp_arrow_file_dictionary_batch(const fsdp_arrow_file *f, uint64_t offset,
                                             fsdp_arrow_located *out)
{
    return read_known(f, offset, FSDP_ARROW_DICTIONARY_BATCH, out);
}
