/* See event_reader.h. */
#include "src/report/event_reader.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/report/event_record.h"

enum {
    MAX_RECORD_BYTES = 256 << 20 /* the limit is large, because an event may contain pictures */
};

/* ---- protobuf ---- */

typedef struct cursor {
    const unsigned char *at, *end;
} cursor;

typedef struct field {
    int number, wire_type;
    uint64_t value; /* value of the field, unless wire_type is FSDP_WIRE_BYTES */
    cursor bytes;   /* value of the field, if wire_type is FSDP_WIRE_BYTES */
} field;

static bool get_varint(cursor *c, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && c->at < c->end; shift += 7) {
        const unsigned char byte = *c->at++;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

static bool get_fixed(cursor *c, size_t bytes, uint64_t *value)
{
    *value = 0;
    if ((size_t)(c->end - c->at) < bytes)
        return false;
    for (size_t i = 0; i < bytes; i++)
        *value |= (uint64_t)c->at[i] << 8 * i;
    c->at += bytes;
    return true;
}

static bool get_bytes(cursor *c, cursor *bytes)
{
    uint64_t n;
    if (!get_varint(c, &n) || n > (uint64_t)(c->end - c->at))
        return false;
    *bytes = (cursor){c->at, c->at + n};
    c->at += n;
    return true;
}

/* Get the next field. Return false if the message is malformed. */
static bool get_field(cursor *c, field *f)
{
    uint64_t key;
    *f = (field){0};
    if (!get_varint(c, &key) || key >> 3 == 0 || key >> 3 > 0x1fffffff)
        return false;
    f->number = (int)(key >> 3);
    f->wire_type = (int)(key & 7);
    switch (f->wire_type) {
    case FSDP_WIRE_VARINT:
        return get_varint(c, &f->value);
    case FSDP_WIRE_64:
        return get_fixed(c, 8, &f->value);
    case FSDP_WIRE_BYTES:
        return get_bytes(c, &f->bytes);
    case FSDP_WIRE_32:
        return get_fixed(c, 4, &f->value);
    default:
        return false;
    }
}

static bool is_field(const field *f, int number, int wire_type)
{
    return f->number == number && f->wire_type == wire_type;
}

static double float_of(uint64_t bits)
{
    const uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return (double)value;
}

/* ---- scalars ---- */

typedef struct scalar {
    cursor tag;
    double value;
    bool has_value;
} scalar;

/* Read a scalar that is stored as a tensor with one float. The float is in the field `float_val`,
 * or in `tensor_content` as 4 bytes. */
static bool read_tensor(cursor c, scalar *out)
{
    bool floats = false;
    cursor content = {0};
    while (c.at < c.end) {
        field f;
        if (!get_field(&c, &f))
            return false;
        if (is_field(&f, FSDP_TENSOR_DTYPE, FSDP_WIRE_VARINT))
            floats = f.value == FSDP_DTYPE_OF_FLOATS;
        if (is_field(&f, FSDP_TENSOR_CONTENT, FSDP_WIRE_BYTES) ||
            is_field(&f, FSDP_TENSOR_FLOATS, FSDP_WIRE_BYTES))
            content = f.bytes;
        if (is_field(&f, FSDP_TENSOR_FLOATS, FSDP_WIRE_32)) {
            out->value = float_of(f.value);
            out->has_value = true;
        }
    }
    uint64_t bits;
    if (floats && content.end - content.at == 4 && get_fixed(&content, 4, &bits)) {
        out->value = float_of(bits);
        out->has_value = true;
    }
    out->has_value &= floats;
    return true;
}

static bool read_value(cursor c, scalar *out)
{
    *out = (scalar){0};
    while (c.at < c.end) {
        field f;
        if (!get_field(&c, &f))
            return false;
        if (is_field(&f, FSDP_VALUE_TAG, FSDP_WIRE_BYTES))
            out->tag = f.bytes;
        if (is_field(&f, FSDP_VALUE_SIMPLE, FSDP_WIRE_32)) {
            out->value = float_of(f.value);
            out->has_value = true;
        }
        if (is_field(&f, FSDP_VALUE_TENSOR, FSDP_WIRE_BYTES) && !read_tensor(f.bytes, out))
            return false;
    }
    return true;
}

static bool has_tag(const scalar *s, const char *tag)
{
    const size_t n = strlen(tag);
    return (size_t)(s->tag.end - s->tag.at) == n && memcmp(s->tag.at, tag, n) == 0;
}

/* If the scalar is a number that a run reports at its end, store it in *end. Recognize such scalars
 * by the tags that this library and transformers' Trainer write. */
static void add_end(fsdp_metrics_end *end, const scalar *s)
{
    const struct {
        const char *tag;
        double *value;
    } known[] = {{"summary/train_loss", &end->train_loss},
                 {"train/train_loss", &end->train_loss},
                 {"summary/validation_loss", &end->validation_loss},
                 {"summary/step_s", &end->step_s},
                 {"summary/total_s", &end->total_s},
                 {"train/train_runtime", &end->total_s},
                 {"summary/peak_host_mib", &end->host_mib}};
    for (size_t i = 0; i < FSDP_LENGTH(known); i++) {
        if (!has_tag(s, known[i].tag))
            continue;
        if (!end->found) {
            const double none = (double)NAN;
            *end = (fsdp_metrics_end){true, none, none, none, none, none};
        }
        *known[i].value = s->value;
    }
}

static fsdp_status add_scalar(fsdp_metrics_curves *curves, int64_t step, const scalar *s)
{
    fsdp_metrics_curve *curve = NULL;
    if (!s->has_value || !s->tag.at)
        return FSDP_OK;
    if (has_tag(s, "train/loss"))
        curve = &curves->loss;
    else if (has_tag(s, "eval/loss"))
        curve = &curves->validation;
    else if (has_tag(s, "train/learning_rate"))
        curve = &curves->lr;
    else if (has_tag(s, "train/seconds"))
        curve = &curves->seconds;
    if (curve)
        return fsdp_metrics_curve_add(curve, (double)step, s->value);
    add_end(&curves->end, s);
    return FSDP_OK;
}

/* ---- events ---- */

static fsdp_status malformed(void)
{
    return fsdp_error(FSDP_ERR_FORMAT, "not an event of TensorBoard");
}

static fsdp_status read_summary(cursor c, int64_t step, fsdp_metrics_curves *curves)
{
    while (c.at < c.end) {
        field f;
        scalar s;
        if (!get_field(&c, &f))
            return malformed();
        if (!is_field(&f, FSDP_SUMMARY_VALUE, FSDP_WIRE_BYTES))
            continue;
        if (!read_value(f.bytes, &s))
            return malformed();
        FSDP_TRY(add_scalar(curves, step, &s));
    }
    return FSDP_OK;
}

static bool is_start(cursor c)
{
    while (c.at < c.end) {
        field f;
        if (!get_field(&c, &f))
            return false;
        if (is_field(&f, FSDP_SESSION_STATUS, FSDP_WIRE_VARINT))
            return f.value == FSDP_SESSION_START;
    }
    return false;
}

static void purge(fsdp_metrics_curve *curve, double step)
{
    while (curve->len && curve->points[curve->len - 1].step >= step)
        curve->len--;
}

static fsdp_status read_event(cursor c, fsdp_metrics_curves *curves)
{
    int64_t step = 0;
    cursor summary = {0}, session = {0};
    while (c.at < c.end) {
        field f;
        if (!get_field(&c, &f))
            return malformed();
        if (is_field(&f, FSDP_EVENT_STEP, FSDP_WIRE_VARINT))
            step = (int64_t)f.value;
        if (is_field(&f, FSDP_EVENT_SUMMARY, FSDP_WIRE_BYTES))
            summary = f.bytes;
        if (is_field(&f, FSDP_EVENT_SESSION_LOG, FSDP_WIRE_BYTES))
            session = f.bytes;
    }
    if (session.at && is_start(session)) {
        purge(&curves->loss, (double)step);
        purge(&curves->lr, (double)step);
        purge(&curves->validation, (double)step);
        purge(&curves->seconds, (double)step);
        curves->end.found = false;
    }
    return summary.at ? read_summary(summary, step, curves) : FSDP_OK;
}

/* ---- records ---- */

typedef struct record_reader {
    FILE *file;
    const char *path;
    fsdp_record_table table;
    unsigned char *data; /* the data of a record and its checksum; owned */
    size_t cap;
    unsigned long long offset; /* offset of the record in the file */
} record_reader;

static uint64_t number_at(const unsigned char *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static fsdp_status damaged(const record_reader *r, const char *what)
{
    return fsdp_error(FSDP_ERR_FORMAT, "%s: byte %llu: %s: the file is damaged, or no event file",
                      r->path, r->offset, what);
}

/* Read the next record. Set *data to its data. At the end of the file, or if the last record is
 * incomplete, set data->at to NULL. */
static fsdp_status next_record(record_reader *r, cursor *data)
{
    unsigned char head[FSDP_RECORD_HEAD_BYTES];
    *data = (cursor){0};
    if (fread(head, 1, sizeof head, r->file) != sizeof head)
        return FSDP_OK;
    if (fsdp_record_sum(&r->table, head, 8) != number_at(head + 8, FSDP_RECORD_SUM_BYTES))
        return damaged(r, "the checksum of a length is wrong");
    const uint64_t length = number_at(head, 8);
    if (length > MAX_RECORD_BYTES)
        return damaged(r, "a record is longer than 256 MiB");
    const size_t n = (size_t)length;
    /* Grow the buffer while reading, because the length may be wrong and much larger than the
     * file. */
    size_t got = 0;
    while (got < n + FSDP_RECORD_SUM_BYTES) {
        const size_t left = n + FSDP_RECORD_SUM_BYTES - got, piece = left < 65536 ? left : 65536;
        if (!FSDP_GROW(r->data, r->cap, got + piece))
            return FSDP_ERR_NOMEM;
        if (fread(r->data + got, 1, piece, r->file) != piece)
            return FSDP_OK;
        got += piece;
    }
    if (fsdp_record_sum(&r->table, r->data, n) != number_at(r->data + n, FSDP_RECORD_SUM_BYTES))
        return damaged(r, "the checksum of a record is wrong");
    *data = (cursor){r->data, r->data + n};
    return FSDP_OK;
}

/* Add a line to the notes about the record at which reading ended. The last error describes that
 * record. */
static fsdp_status add_note(fsdp_metrics_curves *curves)
{
    char *notes = fsdp_strdup_printf("%s%s; what the file has before that byte is used\n",
                                     curves->notes ? curves->notes : "", fsdp_last_error());
    if (!notes)
        return fsdp_error_nomem();
    fsdp_free(curves->notes);
    curves->notes = notes;
    return FSDP_OK;
}

/* Read the next record and its event. Set *any to false at the end of the file. */
static fsdp_status read_next(record_reader *r, fsdp_metrics_curves *curves, bool *any, cursor *data)
{
    FSDP_TRY(next_record(r, data));
    *any = data->at != NULL;
    if (!*any)
        return FSDP_OK;
    fsdp_status status = read_event(*data, curves);
    if (status != FSDP_OK)
        fsdp_error_context(status, "%s: byte %llu", r->path, r->offset);
    return status;
}

/* If a record after the first is damaged, treat it as the end of the file, as TensorBoard does. A
 * computer that lost its power leaves such a file, and the run may have been resumed with another
 * file. */
static fsdp_status read_records(record_reader *r, fsdp_metrics_curves *curves)
{
    for (;;) {
        cursor data;
        bool any;
        const fsdp_status status = read_next(r, curves, &any, &data);
        if (status == FSDP_ERR_FORMAT && r->offset > 0)
            return add_note(curves);
        FSDP_TRY(status);
        if (!any)
            break;
        r->offset += FSDP_RECORD_HEAD_BYTES + (unsigned long long)(data.end - data.at) +
                     FSDP_RECORD_SUM_BYTES;
    }
    if (ferror(r->file))
        return fsdp_error(FSDP_ERR_IO, "%s: %s", r->path, strerror(errno));
    return FSDP_OK;
}

bool fsdp_event_file_is_named(const char *path)
{
    return strstr(fsdp_path_name(path), ".tfevents.") != NULL;
}

fsdp_status fsdp_event_file_read(const char *path, fsdp_metrics_curves *curves)
{
    record_reader reader = {.path = path, .file = fopen(path, "rbe")};
    if (!reader.file)
        return fsdp_error(errno == ENOENT ? FSDP_ERR_NOT_FOUND : FSDP_ERR_IO, "%s: %s", path,
                          strerror(errno));
    fsdp_record_table_init(&reader.table);
    curves->is_float32 = true;
    fsdp_status status = read_records(&reader, curves);
    fclose(reader.file);
    fsdp_free(reader.data);
    return status;
}
