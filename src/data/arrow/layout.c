/* See layout.h.
 *
 * Note [Buffers of a field]. A batch has the nodes and the buffers of all fields in the order of
 * the schema, parents before their children (Arrow Columnar Format, "Recursive flattening"). A
 * field with a dictionary has only indices, and no children; its values are in dictionary batches.
 *
 * - null, run_end_encoded: none
 * - int, float, bool, decimal, date, time, ...: validity, values
 * - binary, string, and the large types: validity, offsets, bytes
 * - list, large_list, map: validity, offsets
 * - list_view, large_list_view: validity, offsets, sizes
 * - struct, fixed_size_list: validity
 * - union: types, and offsets if it is dense; before V5 also validity, which came first
 * - binary_view, string_view: validity, views, and any number of data buffers */
#include "src/data/arrow/layout.h"

#include "src/base/alloc.h"
#include "src/base/assert.h"

enum {
    VERSION_5 = 4 /* the number of V5 in Schema.fbs */
};

static size_t union_buffers(const fsdp_arrow_field *f, int version)
{
    return (size_t)(1 + f->is_dense + (version < VERSION_5));
}

static size_t count_buffers(const fsdp_arrow_field *f, bool is_index, int version)
{
    if (is_index)
        return 2;
    switch (f->type) {
    case FSDP_ARROW_NULL:
    case FSDP_ARROW_RUN_END_ENCODED:
        return 0;
    case FSDP_ARROW_STRUCT:
    case FSDP_ARROW_FIXED_SIZE_LIST:
        return 1;
    case FSDP_ARROW_BINARY:
    case FSDP_ARROW_STRING:
    case FSDP_ARROW_LARGE_BINARY:
    case FSDP_ARROW_LARGE_STRING:
    case FSDP_ARROW_LIST_VIEW:
    case FSDP_ARROW_LARGE_LIST_VIEW:
        return 3;
    case FSDP_ARROW_UNION:
        return union_buffers(f, version);
    case FSDP_ARROW_INT:
    case FSDP_ARROW_FLOAT:
    case FSDP_ARROW_BOOL:
    case FSDP_ARROW_DECIMAL:
    case FSDP_ARROW_DATE:
    case FSDP_ARROW_TIME:
    case FSDP_ARROW_TIMESTAMP:
    case FSDP_ARROW_INTERVAL:
    case FSDP_ARROW_LIST:
    case FSDP_ARROW_FIXED_SIZE_BINARY:
    case FSDP_ARROW_MAP:
    case FSDP_ARROW_DURATION:
    case FSDP_ARROW_LARGE_LIST:
    case FSDP_ARROW_BINARY_VIEW:
    case FSDP_ARROW_STRING_VIEW:
        break;
    }
    return 2;
}

/* How far the assignment has come. `node`, `buffer` and `variadic` are the indices of the first
 * items of message->nodes, message->buffers and message->variadic that have not been assigned. */
typedef struct cursor {
    const fsdp_arrow_message *message;
    const unsigned char *body;
    size_t bytes;
    size_t node, buffer, variadic;
} cursor;

static fsdp_status take_node(cursor *c, const fsdp_arrow_field *f, fsdp_arrow_array *array)
{
    if (c->node == c->message->n_nodes)
        return fsdp_error(FSDP_ERR_FORMAT, "column '%.60s': the batch has only %zu columns",
                          f->name, c->node);
    const fsdp_arrow_node *node = &c->message->nodes[c->node++];
    if (node->length < 0 || node->null_count < 0 || node->null_count > node->length)
        return fsdp_error(FSDP_ERR_FORMAT, "column '%.60s': %lld values, of which %lld are null",
                          f->name, (long long)node->length, (long long)node->null_count);
    array->is_present = true;
    array->length = node->length;
    array->null_count = node->null_count;
    return FSDP_OK;
}

static fsdp_status take_buffer(cursor *c, const fsdp_arrow_field *f, fsdp_arrow_buffer *buffer)
{
    if (c->buffer == c->message->n_buffers)
        return fsdp_error(FSDP_ERR_FORMAT, "column '%.60s': the batch has only %zu buffers",
                          f->name, c->buffer);
    const fsdp_arrow_range range = c->message->buffers[c->buffer++];
    if (range.length == 0)
        return FSDP_OK;
    if (range.offset < 0 || range.length < 0 || (uint64_t)range.offset > c->bytes ||
        (uint64_t)range.length > c->bytes - (uint64_t)range.offset)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "column '%.60s': a buffer of %lld bytes at %lld, in a body of %zu bytes",
                          f->name, (long long)range.length, (long long)range.offset, c->bytes);
    *buffer = (fsdp_arrow_buffer){c->body + range.offset, (size_t)range.length};
    return FSDP_OK;
}

/* Assign the data buffers of a field whose values are views. */
static fsdp_status take_data(cursor *c, const fsdp_arrow_field *f, fsdp_arrow_layout *layout,
                             fsdp_arrow_array *array)
{
    const fsdp_arrow_message *m = c->message;
    if (c->variadic == m->n_variadic)
        return fsdp_error(FSDP_ERR_FORMAT, "column '%.60s': the number of its buffers is missing",
                          f->name);
    const int64_t n = m->variadic[c->variadic++];
    if (n < 0 || (uint64_t)n > m->n_buffers - c->buffer)
        return fsdp_error(FSDP_ERR_FORMAT, "column '%.60s': %lld buffers, but the batch has %zu",
                          f->name, (long long)n, m->n_buffers - c->buffer);
    array->first_data = layout->n_data;
    array->n_data = (size_t)n;
    for (int64_t i = 0; i < n; i++)
        FSDP_TRY(take_buffer(c, f, &layout->data[layout->n_data++]));
    return FSDP_OK;
}

static fsdp_status take_array(cursor *c, const fsdp_arrow_field *f, bool is_index,
                              fsdp_arrow_layout *layout, fsdp_arrow_array *array)
{
    FSDP_TRY(take_node(c, f, array));
    array->n_buffers = count_buffers(f, is_index, c->message->version);
    for (size_t i = 0; i < array->n_buffers; i++)
        FSDP_TRY(take_buffer(c, f, &array->buffers[i]));
    const bool is_view = f->type == FSDP_ARROW_BINARY_VIEW || f->type == FSDP_ARROW_STRING_VIEW;
    return is_view && !is_index ? take_data(c, f, layout, array) : FSDP_OK;
}

static fsdp_status check_rows(const fsdp_arrow_message *m, const fsdp_arrow_field *f,
                              const fsdp_arrow_array *array)
{
    if (array->length == m->rows)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT, "column '%.60s': %lld values in a batch of %lld rows",
                      f->name, (long long)array->length, (long long)m->rows);
}

static fsdp_status assign_buffers(const fsdp_arrow_schema *schema, int64_t root, cursor *c,
                                  fsdp_arrow_layout *layout)
{
    const size_t begin = layout->first_field, end = begin + layout->n_arrays;
    size_t next_column = begin;
    for (size_t i = begin; i < end;) {
        const fsdp_arrow_field *f = &schema->fields[i];
        const bool is_index = f->has_dictionary && (int64_t)i != root;
        FSDP_TRY(take_array(c, f, is_index, layout, &layout->arrays[i - begin]));
        if (i == next_column) {
            FSDP_TRY(check_rows(c->message, f, &layout->arrays[i - begin]));
            next_column = f->end;
        }
        i = is_index ? f->end : i + 1;
    }
    if (c->node == c->message->n_nodes && c->buffer == c->message->n_buffers)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT,
                      "the batch has %zu columns with %zu buffers, but the schema has %zu with %zu",
                      c->message->n_nodes, c->message->n_buffers, c->node, c->buffer);
}

fsdp_status fsdp_arrow_layout_find(const fsdp_arrow_schema *schema, int64_t root,
                                   const fsdp_arrow_message *message, const unsigned char *body,
                                   size_t bytes, fsdp_arrow_layout *out)
{
    fsdp_arrow_layout layout = {.n_arrays = schema->n_fields};
    cursor c = {.message = message, .body = body, .bytes = bytes};
    if (root != FSDP_ARROW_ALL_FIELDS) {
        layout.first_field = (size_t)root;
        layout.n_arrays = schema->fields[root].end - (size_t)root;
    }
    /* Only fields of views have data buffers. All data buffers are buffers of the message, so there
     * are at most n_buffers of them. */
    const size_t n_data = message->n_variadic ? message->n_buffers : 0;
    layout.arrays = fsdp_calloc(layout.n_arrays, sizeof *layout.arrays);
    layout.data = fsdp_calloc(n_data, sizeof *layout.data);
    fsdp_status status = layout.arrays && layout.data ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = assign_buffers(schema, root, &c, &layout);
    if (status == FSDP_OK)
        *out = layout;
    else
        fsdp_arrow_layout_fini(&layout);
    return status;
}

const fsdp_arrow_array *fsdp_arrow_layout_at(const fsdp_arrow_layout *layout, size_t field)
{
    FSDP_DEBUG_ASSERT(field - layout->first_field < layout->n_arrays);
    return &layout->arrays[field - layout->first_field];
}

void fsdp_arrow_layout_fini(fsdp_arrow_layout *layout)
{
    fsdp_free(layout->arrays);
    fsdp_free(layout->data);
    *layout = (fsdp_arrow_layout){0};
}
