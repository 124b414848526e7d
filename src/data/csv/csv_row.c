/* The fields of a row of CSV, in memory. */
#include "src/data/csv/csv.h"

#include <string.h>
#include <strings.h>

#include "src/base/alloc.h"

void fsdp_csv_row_clear(fsdp_csv_row *row)
{
    row->len = row->fields = 0;
}

fsdp_status fsdp_csv_row_add(fsdp_csv_row *row, const char *text, size_t length)
{
    if (!FSDP_GROW(row->bytes, row->cap, row->len + length + 1) ||
        !FSDP_GROW(row->ends, row->ends_cap, row->fields + 1))
        return FSDP_ERR_NOMEM;
    if (length)
        memcpy(row->bytes + row->len, text, length);
    row->len += length;
    row->ends[row->fields++] = row->len;
    row->bytes[row->len++] = 0;
    return FSDP_OK;
}

void fsdp_csv_row_fini(fsdp_csv_row *row)
{
    fsdp_free(row->bytes);
    fsdp_free(row->ends);
    *row = (fsdp_csv_row){0};
}

char *fsdp_csv_field(const fsdp_csv_row *row, size_t index, size_t *length)
{
    size_t start = index ? row->ends[index - 1] + 1 : 0;
    *length = row->ends[index] - start;
    return row->bytes + start;
}

bool fsdp_csv_field_is(const fsdp_csv_row *row, size_t index, const char *name)
{
    size_t length;
    const char *field = fsdp_csv_field(row, index, &length);
    while (length && field[length - 1] == ' ')
        length--;
    while (length && *field == ' ') {
        field++;
        length--;
    }
    return strlen(name) == length && strncasecmp(field, name, length) == 0;
}

int64_t fsdp_csv_find(const fsdp_csv_row *row, const char *name)
{
    for (size_t i = 0; i < row->fields; i++)
        if (fsdp_csv_field_is(row, i, name))
            return (int64_t)i;
    return -1;
}
