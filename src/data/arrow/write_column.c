/* See write_column.h. */
#include "src/data/arrow/write_column.h"

#include <string.h>

#include "src/base/alloc.h"

static size_t entry_width(fsdp_arrow_column_type type)
{
    switch (type) {
    case FSDP_ARROW_COLUMN_I32_LIST:
    case FSDP_ARROW_COLUMN_F32_LIST:
    case FSDP_ARROW_COLUMN_F32:
        return 4;
    case FSDP_ARROW_COLUMN_I8_LIST:
    case FSDP_ARROW_COLUMN_TEXT:
        return 1;
    case FSDP_ARROW_COLUMN_I64_LIST:
    case FSDP_ARROW_COLUMN_I64:
    case FSDP_ARROW_COLUMN_F64:
        break;
    }
    return 8;
}

bool fsdp_arrow_column_is_list(fsdp_arrow_column_type type)
{
    return type == FSDP_ARROW_COLUMN_I32_LIST || type == FSDP_ARROW_COLUMN_I8_LIST ||
           type == FSDP_ARROW_COLUMN_I64_LIST || type == FSDP_ARROW_COLUMN_F32_LIST;
}

static bool has_offsets(const fsdp_arrow_pending *c)
{
    return fsdp_arrow_column_is_list(c->type) || c->type == FSDP_ARROW_COLUMN_TEXT;
}

void fsdp_arrow_pending_fini(fsdp_arrow_pending *c)
{
    fsdp_free(c->validity);
    fsdp_free(c->offsets);
    fsdp_free(c->values);
    *c = (fsdp_arrow_pending){.type = c->type};
}

void fsdp_arrow_pending_clear(fsdp_arrow_pending *c)
{
    c->rows = c->null_count = 0;
    c->values_bytes = 0;
    c->is_set = false;
}

static fsdp_status append_values(fsdp_arrow_pending *c, const void *values, size_t bytes)
{
    if (bytes > (size_t)INT32_MAX - c->values_bytes)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "a value of %zu bytes is too long for a column",
                          bytes);
    if (!FSDP_GROW(c->values, c->values_cap, c->values_bytes + bytes))
        return FSDP_ERR_NOMEM;
    if (values && bytes)
        memcpy(c->values + c->values_bytes, values, bytes);
    else if (bytes)
        memset(c->values + c->values_bytes, 0, bytes);
    c->values_bytes += bytes;
    return FSDP_OK;
}

fsdp_status fsdp_arrow_pending_set(fsdp_arrow_pending *c, fsdp_arrow_column_type type,
                                   const void *values, size_t count, size_t width)
{
    if (c->type != type)
        return fsdp_error(FSDP_ERR_INVALID, "a value of another type than its column");
    if (c->is_set)
        return fsdp_error(FSDP_ERR_INVALID, "a second value in one row");
    if (count > (size_t)INT32_MAX)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "a value of %zu entries", count);
    FSDP_TRY(append_values(c, values, count * width));
    c->is_set = true;
    return FSDP_OK;
}

fsdp_status fsdp_arrow_pending_end_row(fsdp_arrow_pending *c)
{
    const size_t row = (size_t)c->rows, byte = row / 8;
    if (!FSDP_GROW(c->validity, c->validity_cap, byte + 1) ||
        !FSDP_GROW(c->offsets, c->offsets_cap, row + 2))
        return FSDP_ERR_NOMEM;
    if (!c->is_set && !has_offsets(c))
        FSDP_TRY(append_values(c, NULL, entry_width(c->type)));
    if (row % 8 == 0)
        c->validity[byte] = 0;
    c->validity[byte] = (unsigned char)(c->validity[byte] | c->is_set << row % 8);
    c->offsets[0] = 0;
    c->offsets[row + 1] = (int32_t)(c->values_bytes / entry_width(c->type));
    c->null_count += !c->is_set;
    c->is_set = false;
    c->rows++;
    return FSDP_OK;
}

size_t fsdp_arrow_pending_bytes(const fsdp_arrow_pending *c)
{
    return c->values_bytes + (size_t)c->rows * sizeof *c->offsets;
}

void fsdp_arrow_pending_layout(const fsdp_arrow_pending *c, fsdp_arrow_node *nodes, size_t *n_nodes,
                               fsdp_arrow_buffer *buffers, size_t *n_buffers)
{
    const size_t rows = (size_t)c->rows;
    size_t n = 0;
    *n_nodes = 0;
    nodes[(*n_nodes)++] = (fsdp_arrow_node){c->rows, c->null_count};
    buffers[n++] = (fsdp_arrow_buffer){c->validity, c->null_count ? (rows + 7) / 8 : 0};
    if (has_offsets(c))
        buffers[n++] =
            (fsdp_arrow_buffer){(const unsigned char *)c->offsets, (rows + 1) * sizeof *c->offsets};
    if (fsdp_arrow_column_is_list(c->type)) {
        nodes[(*n_nodes)++] =
            (fsdp_arrow_node){(int64_t)(c->values_bytes / entry_width(c->type)), 0};
        buffers[n++] = (fsdp_arrow_buffer){0};
    }
    buffers[n++] = (fsdp_arrow_buffer){c->values, c->values_bytes};
    *n_buffers = n;
}
