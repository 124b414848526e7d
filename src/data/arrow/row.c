/* See row.h. Every offset, index and length of the file is checked against its buffer before it is
 * used. */
#include "src/data/arrow/row.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"
#include "src/text/chars/utf8.h"

/* The size of a row is limited by FSDP_ARROW_ROW_BYTES_MAX. For this limit, each value adds one of
 * the following numbers of bytes to the size. A damaged or hostile file may refer to the same bytes
 * many times, so without the limit a small file could make a huge row. */
enum {
    NUMBER_BYTES = 4,
    TEXT_BYTES = 8, /* plus the bytes of the text */
    LIST_BYTES = 24,
    STRUCT_BYTES = 64, /* plus the bytes of its names */
    LOAD_BYTES = 64 /* counted when a dictionary is loaded: once for the dictionary, and once more
                       for each of its fields */
};

/* The row that is being read. */
typedef struct reading {
    fsdp_arrow_cache *cache;
    const fsdp_arrow_file *file;
    const fsdp_arrow_schema *schema;
    /* Index of the batch that has the row; it determines the contents of dictionaries. */
    size_t index;
    const fsdp_arrow_batch *batch; /* the batch of the row, or a dictionary batch */
    int64_t root; /* the field to which `batch` belongs, as in fsdp_arrow_layout_find() */
    /* Bytes that may still be added to the size of the row; if a value needs more, the row is
     * refused. */
    size_t *left;
    fsdp_arrow_batch **loaded; /* [n_fields], the dictionary batch that was last read for each
                                  field; NULL: none */
} reading;

/* Where a value goes: it becomes the value of `key` in the object `node`, or, if `key` is NULL, the
 * next entry of the array `node`. */
typedef struct target {
    fsdp_json_node node;
    const char *key;
} target;

/* ---- putting values into the document ---- */

static void put_null(target to)
{
    if (to.key)
        fsdp_json_set_str(to.node, to.key, NULL);
    else
        fsdp_json_append_str(to.node, NULL);
}

static void put_i64(target to, int64_t value)
{
    if (to.key)
        fsdp_json_set_i64(to.node, to.key, value);
    else
        fsdp_json_append_i64(to.node, value);
}

static void put_u64(target to, uint64_t value)
{
    if (to.key)
        fsdp_json_set_u64(to.node, to.key, value);
    else
        fsdp_json_append_u64(to.node, value);
}

static void put_f64(target to, double value)
{
    if (to.key)
        fsdp_json_set_f64(to.node, to.key, value);
    else
        fsdp_json_append_f64(to.node, value);
}

static void put_bool(target to, bool value)
{
    if (to.key)
        fsdp_json_set_bool(to.node, to.key, value);
    else
        fsdp_json_append_bool(to.node, value);
}

static fsdp_status spend(const reading *r, uint64_t bytes)
{
    if (bytes > *r->left)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "the row is larger than %d MiB",
                          FSDP_ARROW_ROW_BYTES_MAX >> 20);
    *r->left -= (size_t)bytes;
    return FSDP_OK;
}

/* ---- reading numbers from buffers ---- */

static fsdp_status short_buffer(int64_t i, const fsdp_arrow_buffer *buffer)
{
    return fsdp_error(FSDP_ERR_FORMAT, "value %" PRId64 " is outside its buffer of %zu bytes", i,
                      buffer->bytes);
}

/* Set *at to value `i` of a buffer whose values have `width` bytes. */
static fsdp_status find_value(const fsdp_arrow_buffer *buffer, int64_t i, size_t width,
                              const unsigned char **at)
{
    if (i < 0 || (uint64_t)i >= buffer->bytes / width)
        return short_buffer(i, buffer);
    *at = buffer->data + (size_t)i * width;
    return FSDP_OK;
}

static fsdp_status read_bit(const fsdp_arrow_buffer *buffer, int64_t i, bool *bit)
{
    const unsigned char *byte = NULL;
    FSDP_TRY(find_value(buffer, i / 8, 1, &byte));
    *bit = *byte >> i % 8 & 1;
    return FSDP_OK;
}

/* Load an integer of `bits` bits. An unsigned number of 64 bits that does not fit in int64 becomes
 * the negative number with the same bits. */
static int64_t load_int(const unsigned char *at, int bits, bool is_signed)
{
    uint64_t value = 0;
    for (int i = 0; i < bits / 8; i++)
        value |= (uint64_t)at[i] << 8 * i;
    if (is_signed && bits < 64 && value >> (bits - 1))
        value |= UINT64_MAX << bits;
    return (int64_t)value;
}

static double load_half(const unsigned char *at)
{
    const uint32_t half = (uint32_t)load_int(at, 16, false);
    const uint32_t exponent = half >> 10 & 31, fraction = half & 1023;
    const double sign = half >> 15 ? -1 : 1;
    if (exponent == 31)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent ? ldexp(1024 + fraction, (int)exponent - 25) : ldexp(fraction, -24));
}

static double load_float(const unsigned char *at, int bits)
{
    float single;
    double value;
    if (bits == 16)
        return load_half(at);
    if (bits == 32) {
        memcpy(&single, at, sizeof single);
        return (double)single;
    }
    memcpy(&value, at, sizeof value);
    return value;
}

/* Read entry `i` of a buffer of int32 or int64, for example an offset. */
static fsdp_status read_offset(const fsdp_arrow_buffer *buffer, int64_t i, bool is_large,
                               int64_t *offset)
{
    const unsigned char *at = NULL;
    FSDP_TRY(find_value(buffer, i, is_large ? 8 : 4, &at));
    *offset = load_int(at, is_large ? 64 : 32, true);
    return FSDP_OK;
}

/* ---- types ---- */

static bool is_list(fsdp_arrow_type type)
{
    return type == FSDP_ARROW_LIST || type == FSDP_ARROW_LARGE_LIST ||
           type == FSDP_ARROW_FIXED_SIZE_LIST || type == FSDP_ARROW_LIST_VIEW ||
           type == FSDP_ARROW_LARGE_LIST_VIEW;
}

bool fsdp_arrow_is_readable(const fsdp_arrow_schema *schema, size_t field)
{
    const fsdp_arrow_field *f = &schema->fields[field];
    if (is_list(f->type))
        return fsdp_arrow_is_readable(schema, field + 1);
    if (f->type != FSDP_ARROW_STRUCT)
        return f->type == FSDP_ARROW_NULL || f->type == FSDP_ARROW_INT ||
               f->type == FSDP_ARROW_FLOAT || f->type == FSDP_ARROW_BOOL ||
               f->type == FSDP_ARROW_STRING || f->type == FSDP_ARROW_LARGE_STRING ||
               f->type == FSDP_ARROW_STRING_VIEW;
    for (size_t i = field + 1; i < f->end; i = schema->fields[i].end)
        if (fsdp_arrow_is_readable(schema, i))
            return true;
    return f->n_children == 0;
}

/* ---- texts ---- */

static fsdp_status put_json(target to, const char *text, size_t bytes)
{
    fsdp_str array = {0};
    fsdp_json *doc;
    /* The JSON parser takes only arrays and objects as documents, so put the value into an
     * array. */
    fsdp_str_append(&array, "[", 1);
    fsdp_str_append(&array, text, bytes);
    fsdp_str_append(&array, "]", 1);
    const size_t length = array.len;
    char *copy = fsdp_str_take(&array);
    fsdp_status status =
        copy ? fsdp_json_parse("JSON value", 1, copy, length, &doc) : FSDP_ERR_NOMEM;
    fsdp_free(copy);
    FSDP_TRY(status);
    const fsdp_json_node root = fsdp_json_root(doc);
    if (fsdp_json_len(root) != 1)
        status =
            fsdp_error(FSDP_ERR_FORMAT, "a JSON value that is %zu values", fsdp_json_len(root));
    else if (to.key)
        fsdp_json_set_shared(to.node, to.key, fsdp_json_at(root, 0));
    else
        fsdp_json_append_shared(to.node, fsdp_json_at(root, 0));
    fsdp_json_destroy(doc);
    return status;
}

static fsdp_status put_text(const reading *r, const fsdp_arrow_field *f, const char *text,
                            size_t bytes, target to)
{
    FSDP_TRY(spend(r, TEXT_BYTES + (uint64_t)bytes));
    if (bytes == 0)
        text = "";
    const size_t valid = fsdp_utf8_valid_length(text, bytes);
    if (valid < bytes)
        return fsdp_error(FSDP_ERR_FORMAT, "not UTF-8: byte 0x%02x at byte %zu of the text",
                          (unsigned)(unsigned char)text[valid], valid);
    if (f->is_json)
        return put_json(to, text, bytes);
    if (to.key)
        fsdp_json_set_strn(to.node, to.key, text, bytes);
    else
        fsdp_json_append_strn(to.node, text, bytes);
    return FSDP_OK;
}

static fsdp_status put_string(const reading *r, const fsdp_arrow_field *f,
                              const fsdp_arrow_array *array, int64_t i, target to)
{
    const bool is_large = f->type == FSDP_ARROW_LARGE_STRING;
    const fsdp_arrow_buffer *offsets = &array->buffers[1], *bytes = &array->buffers[2];
    int64_t begin = 0, end = 0;
    FSDP_TRY(read_offset(offsets, i, is_large, &begin));
    FSDP_TRY(read_offset(offsets, i + 1, is_large, &end));
    if (begin < 0 || end < begin || (uint64_t)end > bytes->bytes)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "a text from byte %" PRId64 " to byte %" PRId64
                          " of a buffer of %zu bytes",
                          begin, end, bytes->bytes);
    const char *text = end > begin ? (const char *)bytes->data + begin : "";
    return put_text(r, f, text, (size_t)(end - begin), to);
}

/* Put the text of view `i`. A view has 16 bytes, of which the first four are the length of the
 * text. If the text has at most 12 bytes, it follows. Otherwise the first 4 bytes of the text, the
 * index of a data buffer, and the offset in that buffer follow. */
static fsdp_status put_view(const reading *r, const fsdp_arrow_field *f,
                            const fsdp_arrow_array *array, int64_t i, target to)
{
    enum {
        VIEW_BYTES = 16,
        INLINE_BYTES = 12
    };
    const unsigned char *at = NULL;
    FSDP_TRY(find_value(&array->buffers[1], i, VIEW_BYTES, &at));
    const int64_t length = load_int(at, 32, true);
    if (length >= 0 && length <= INLINE_BYTES)
        return put_text(r, f, (const char *)at + 4, (size_t)length, to);
    const int64_t index = load_int(at + 8, 32, true), offset = load_int(at + 12, 32, true);
    if (length < 0 || index < 0 || (uint64_t)index >= array->n_data || offset < 0)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "a text of %" PRId64 " bytes in buffer %" PRId64 " of %zu", length, index,
                          array->n_data);
    const fsdp_arrow_buffer *data = &r->batch->layout.data[array->first_data + (size_t)index];
    if ((uint64_t)offset > data->bytes || (uint64_t)length > data->bytes - (uint64_t)offset)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "a text of %" PRId64 " bytes at byte %" PRId64
                          " of a buffer of %zu bytes",
                          length, offset, data->bytes);
    return put_text(r, f, (const char *)data->data + offset, (size_t)length, to);
}

/* ---- values ---- */

static fsdp_status put_value(const reading *r, size_t field, int64_t i, target to);

static fsdp_status check_index(const fsdp_arrow_array *array, int64_t i)
{
    if (!array->is_present || i < 0 || i >= array->length)
        return fsdp_error(FSDP_ERR_FORMAT, "value %" PRId64 " of %" PRId64, i, array->length);
    return FSDP_OK;
}

static fsdp_status read_null(const fsdp_arrow_array *array, int64_t i, bool *is_null)
{
    bool valid = true;
    if (array->null_count > 0)
        FSDP_TRY(read_bit(&array->buffers[0], i, &valid));
    *is_null = !valid;
    return FSDP_OK;
}

static fsdp_status put_int(const fsdp_arrow_field *f, const fsdp_arrow_array *array, int64_t i,
                           target to)
{
    const unsigned char *at = NULL;
    FSDP_TRY(find_value(&array->buffers[1], i, (size_t)f->bits / 8, &at));
    const int64_t value = load_int(at, f->bits, f->is_signed);
    if (f->is_signed)
        put_i64(to, value);
    else
        put_u64(to, (uint64_t)value);
    return FSDP_OK;
}

/* Put integers [begin, end), none of which is null, into `list`. */
static fsdp_status put_ints(const fsdp_arrow_field *f, const fsdp_arrow_array *array, int64_t begin,
                            int64_t end, fsdp_json_node list)
{
    enum {
        AT_ONCE = 256
    };
    int64_t values[AT_ONCE];
    const size_t width = (size_t)f->bits / 8;
    const unsigned char *at = NULL;
    FSDP_TRY(check_index(array, end - 1));
    FSDP_TRY(find_value(&array->buffers[1], end - 1, width, &at));
    at = array->buffers[1].data + (size_t)begin * width;
    while (begin < end) {
        const int64_t n = end - begin < AT_ONCE ? end - begin : AT_ONCE;
        for (int64_t k = 0; k < n; k++, at += width)
            values[k] = load_int(at, f->bits, f->is_signed);
        fsdp_json_append_i64s(list, values, (size_t)n);
        begin += n;
    }
    return FSDP_OK;
}

static fsdp_status put_entries(const reading *r, size_t child, int64_t begin, int64_t end,
                               target to)
{
    const fsdp_arrow_field *f = &r->schema->fields[child];
    const fsdp_arrow_array *array = fsdp_arrow_layout_at(&r->batch->layout, child);
    /* Nulls have no bytes in the file, so even a small file may have a list of nulls with any
     * number of entries that fits in int64. */
    FSDP_TRY(spend(r, (uint64_t)(end - begin) > UINT64_MAX / NUMBER_BYTES - LIST_BYTES
                          ? UINT64_MAX
                          : LIST_BYTES + NUMBER_BYTES * (uint64_t)(end - begin)));
    const fsdp_json_node list =
        to.key ? fsdp_json_set_array(to.node, to.key) : fsdp_json_append_array(to.node);
    const bool fits = f->is_signed || f->bits < 64; /* every value fits in int64 */
    if (begin < end && f->type == FSDP_ARROW_INT && fits && !f->has_dictionary &&
        array->null_count == 0)
        return put_ints(f, array, begin, end, list);
    for (int64_t i = begin; i < end; i++)
        FSDP_TRY(put_value(r, child, i, (target){.node = list}));
    return FSDP_OK;
}

static fsdp_status find_entries(const fsdp_arrow_field *f, const fsdp_arrow_array *array, int64_t i,
                                int64_t *begin, int64_t *end)
{
    const bool is_large = f->type == FSDP_ARROW_LARGE_LIST || f->type == FSDP_ARROW_LARGE_LIST_VIEW;
    const bool is_view = f->type == FSDP_ARROW_LIST_VIEW || f->type == FSDP_ARROW_LARGE_LIST_VIEW;
    if (f->type == FSDP_ARROW_FIXED_SIZE_LIST) {
        if (f->size && i > INT64_MAX / f->size - 1)
            return fsdp_error(FSDP_ERR_FORMAT, "list %" PRId64 " of %d entries", i, (int)f->size);
        *begin = i * f->size;
        *end = *begin + f->size;
        return FSDP_OK;
    }
    FSDP_TRY(read_offset(&array->buffers[1], i, is_large, begin));
    FSDP_TRY(is_view ? read_offset(&array->buffers[2], i, is_large, end)
                     : read_offset(&array->buffers[1], i + 1, is_large, end));
    if (is_view && *begin >= 0 && *end >= 0 && *end <= INT64_MAX - *begin)
        *end += *begin;
    else if (is_view)
        *end = -1;
    return FSDP_OK;
}

static fsdp_status put_list(const reading *r, size_t field, const fsdp_arrow_array *array,
                            int64_t i, target to)
{
    const fsdp_arrow_array *entries = fsdp_arrow_layout_at(&r->batch->layout, field + 1);
    int64_t begin = 0, end = 0;
    FSDP_TRY(find_entries(&r->schema->fields[field], array, i, &begin, &end));
    if (begin < 0 || end < begin || end > entries->length)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "a list of entries %" PRId64 " to %" PRId64 " of %" PRId64, begin, end,
                          entries->length);
    return put_entries(r, field + 1, begin, end, to);
}

/* Put a value under the name of its field. */
static fsdp_status put_member(const reading *r, size_t field, int64_t i, fsdp_json_node object)
{
    const char *name = r->schema->fields[field].name;
    FSDP_TRY(spend(r, NUMBER_BYTES + (uint64_t)strlen(name)));
    return put_value(r, field, i, (target){object, name});
}

static fsdp_status put_struct(const reading *r, size_t field, int64_t i, target to)
{
    const fsdp_arrow_field *f = &r->schema->fields[field];
    FSDP_TRY(spend(r, STRUCT_BYTES));
    const fsdp_json_node object =
        to.key ? fsdp_json_set_object(to.node, to.key) : fsdp_json_append_object(to.node);
    for (size_t child = field + 1; child < f->end; child = r->schema->fields[child].end)
        if (fsdp_arrow_is_readable(r->schema, child))
            FSDP_TRY(put_member(r, child, i, object));
    return FSDP_OK;
}

/* Put a value that is not null and not an index of a dictionary. */
static fsdp_status put_plain(const reading *r, size_t field, const fsdp_arrow_array *array,
                             int64_t i, target to)
{
    const fsdp_arrow_field *f = &r->schema->fields[field];
    const unsigned char *at = NULL;
    bool bit = false;
    if (is_list(f->type))
        return put_list(r, field, array, i, to);
    switch (f->type) {
    case FSDP_ARROW_INT:
        return put_int(f, array, i, to);
    case FSDP_ARROW_FLOAT:
        FSDP_TRY(find_value(&array->buffers[1], i, (size_t)f->bits / 8, &at));
        put_f64(to, load_float(at, f->bits));
        return FSDP_OK;
    case FSDP_ARROW_BOOL:
        FSDP_TRY(read_bit(&array->buffers[1], i, &bit));
        put_bool(to, bit);
        return FSDP_OK;
    case FSDP_ARROW_STRING:
    case FSDP_ARROW_LARGE_STRING:
        return put_string(r, f, array, i, to);
    case FSDP_ARROW_STRING_VIEW:
        return put_view(r, f, array, i, to);
    case FSDP_ARROW_STRUCT:
        return put_struct(r, field, i, to);
    default:
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "values of type %s are not read",
                          fsdp_arrow_type_name(f->type));
    }
}

/* Make r->loaded[field] the dictionary batch that has value `index` of the field's dictionary. Set
 * *place to the index of the value in that batch. The entries of a list often have the same
 * dictionary, so the last batch of each field stays loaded until the row is complete. */
static fsdp_status load_dictionary(const reading *r, size_t field, uint64_t index, int64_t *place)
{
    const fsdp_arrow_field *f = &r->schema->fields[field];
    fsdp_arrow_batch *last = r->loaded[field];
    fsdp_arrow_located found = {0};
    uint64_t offset = 0;
    FSDP_TRY(
        fsdp_arrow_file_dictionary(r->file, r->index, f->dictionary_id, index, &offset, place));
    if (last && last->offset == offset)
        return FSDP_OK;
    FSDP_TRY(spend(r, LOAD_BYTES * (1 + (uint64_t)(f->end - field))));
    FSDP_TRY(fsdp_arrow_file_dictionary_batch(r->file, offset, &found));
    r->loaded[field] = NULL;
    fsdp_arrow_batch_put(r->cache, last);
    const fsdp_status status =
        fsdp_arrow_batch_get(r->cache, r->file, (int64_t)field, &found, &r->loaded[field]);
    fsdp_arrow_message_fini(&found.message);
    return status;
}

/* Entry `i` of `array` is an index into the dictionary of the field. Put the value that the
 * dictionary has at this index. */
static fsdp_status put_indexed(const reading *r, size_t field, const fsdp_arrow_array *array,
                               int64_t i, target to)
{
    const fsdp_arrow_field *f = &r->schema->fields[field];
    const unsigned char *at = NULL;
    int64_t place = 0;
    FSDP_TRY(find_value(&array->buffers[1], i, (size_t)f->index_bits / 8, &at));
    const int64_t index = load_int(at, f->index_bits, f->index_is_signed);
    FSDP_TRY(load_dictionary(r, field, (uint64_t)index, &place));
    reading in = *r;
    in.batch = r->loaded[field];
    in.root = (int64_t)field;
    return put_value(&in, field, place, to);
}

static fsdp_status put_value(const reading *r, size_t field, int64_t i, target to)
{
    const fsdp_arrow_field *f = &r->schema->fields[field];
    const fsdp_arrow_array *array = fsdp_arrow_layout_at(&r->batch->layout, field);
    const bool is_index = f->has_dictionary && r->root != (int64_t)field;
    bool is_null = f->type == FSDP_ARROW_NULL && !is_index;
    FSDP_TRY(check_index(array, i));
    if (!is_null)
        FSDP_TRY(read_null(array, i, &is_null));
    if (!is_null)
        return is_index ? put_indexed(r, field, array, i, to) : put_plain(r, field, array, i, to);
    put_null(to);
    return FSDP_OK;
}

/* ---- rows ---- */

static fsdp_status put_columns(const reading *r, int64_t row, const bool *wanted,
                               fsdp_json_node object)
{
    for (size_t i = 0; i < r->schema->n_fields; i = r->schema->fields[i].end) {
        if (!wanted[i])
            continue;
        const char *name = r->schema->fields[i].name;
        const fsdp_status status = put_member(r, i, row, object);
        fsdp_error_context(status, "column '%.60s'", name);
        FSDP_TRY(status);
    }
    return fsdp_json_check_built(object.doc);
}

static fsdp_status make_document(const reading *r, int64_t row, const bool *wanted, fsdp_json **doc)
{
    fsdp_json *made;
    FSDP_TRY(fsdp_json_create("row", &made));
    const fsdp_status status = put_columns(r, row, wanted, fsdp_json_root(made));
    if (status == FSDP_OK)
        *doc = made;
    else
        fsdp_json_destroy(made);
    return status;
}

/* Like make_document(), but allocate r->loaded first, and afterwards give the batches in r->loaded
 * back to the cache. */
static fsdp_status make_row(reading *r, int64_t row, const bool *wanted, fsdp_json **doc)
{
    const size_t n = r->schema->n_fields;
    if (!(r->loaded = fsdp_calloc(n, sizeof *r->loaded)))
        return FSDP_ERR_NOMEM;
    const fsdp_status status = make_document(r, row, wanted, doc);
    for (size_t i = 0; i < n; i++)
        fsdp_arrow_batch_put(r->cache, r->loaded[i]);
    fsdp_free(r->loaded);
    return status;
}

fsdp_status fsdp_arrow_row_read(fsdp_arrow_cache *cache, const fsdp_arrow_file *file, int64_t row,
                                const bool *wanted, fsdp_json **doc)
{
    int64_t first;
    size_t left = FSDP_ARROW_ROW_BYTES_MAX;
    const size_t index = fsdp_arrow_file_find(file, row, &first);
    fsdp_arrow_located found = {0};
    fsdp_arrow_batch *batch = NULL;
    fsdp_status status = fsdp_arrow_file_batch(file, index, &found);
    if (status == FSDP_OK)
        status = fsdp_arrow_batch_get(cache, file, FSDP_ARROW_ALL_FIELDS, &found, &batch);
    fsdp_arrow_message_fini(&found.message);
    if (status == FSDP_OK) {
        reading r = {.cache = cache,
                     .file = file,
                     .schema = fsdp_arrow_file_schema(file),
                     .index = index,
                     .batch = batch,
                     .root = FSDP_ARROW_ALL_FIELDS,
                     .left = &left};
        status = make_row(&r, row - first, wanted, doc);
    }
    fsdp_arrow_batch_put(cache, batch);
    fsdp_error_context(status, "batch %zu, row %" PRId64 " of it", index, row - first);
    return status;
}
