/* See long_rows.h. The file has the ids of each row as int32, followed by the labels of the row, if
 * it has any. */
#include "src/data/datasets/long_rows.h"

#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/scratch_file.h"

typedef struct kept_row {
    int64_t row;
    uint64_t offset; /* offset in the file of the row's ids */
    size_t len;
    bool has_labels;
} kept_row;

struct fsdp_long_rows {
    int fd; /* -1: no row was added yet */
    uint64_t end;
    kept_row *kept; /* [len], in ascending order of `row` */
    size_t len, cap;
};

fsdp_status fsdp_long_rows_create(fsdp_long_rows **out)
{
    fsdp_long_rows *rows = fsdp_calloc(1, sizeof *rows);
    if (!rows)
        return FSDP_ERR_NOMEM;
    rows->fd = -1;
    *out = rows;
    return FSDP_OK;
}

void fsdp_long_rows_close(fsdp_long_rows *rows)
{
    if (!rows)
        return;
    if (rows->fd >= 0)
        close(rows->fd);
    fsdp_free(rows->kept);
    fsdp_free(rows);
}

static fsdp_status append_list(fsdp_long_rows *rows, const fsdp_token_list *list)
{
    const size_t bytes = list->len * sizeof *list->ids;
    FSDP_TRY(fsdp_fd_write(rows->fd, fsdp_scratch_file_name, list->ids, bytes));
    rows->end += bytes;
    return FSDP_OK;
}

fsdp_status fsdp_long_rows_add(fsdp_long_rows *rows, int64_t row, const fsdp_example *example)
{
    const bool has_labels = example->labels.len > 0;
    FSDP_ASSERT(!rows->len || rows->kept[rows->len - 1].row < row);
    FSDP_ASSERT(!has_labels || example->labels.len >= example->source.len);
    if (rows->fd < 0)
        FSDP_TRY(fsdp_scratch_file_create(&rows->fd));
    if (!FSDP_GROW(rows->kept, rows->cap, rows->len + 1))
        return FSDP_ERR_NOMEM;
    rows->kept[rows->len++] = (kept_row){
        .row = row, .offset = rows->end, .len = example->source.len, .has_labels = has_labels};
    FSDP_TRY(append_list(rows, &example->source));
    return has_labels ? append_list(rows, &example->labels) : FSDP_OK;
}

static const kept_row *find(const fsdp_long_rows *rows, int64_t row)
{
    size_t low = 0, high = rows->len;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (rows->kept[middle].row < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low < rows->len && rows->kept[low].row == row ? &rows->kept[low] : NULL;
}

bool fsdp_long_rows_have(const fsdp_long_rows *rows, int64_t row)
{
    return find(rows, row) != NULL;
}

static fsdp_status read_list(const fsdp_long_rows *rows, uint64_t offset, size_t count,
                             int32_t *ids)
{
    size_t n;
    FSDP_TRY(
        fsdp_fd_read_at(rows->fd, fsdp_scratch_file_name, offset, ids, count * sizeof *ids, &n));
    if (n == count * sizeof *ids)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_IO, "%s: became shorter", fsdp_scratch_file_name);
}

fsdp_status fsdp_long_rows_read(const fsdp_long_rows *rows, int64_t row, size_t first, size_t count,
                                int32_t *ids, int32_t *labels)
{
    const kept_row *kept = find(rows, row);
    FSDP_ASSERT(kept && first <= kept->len && count <= kept->len - first);
    const uint64_t at = kept->offset + first * sizeof *ids;
    FSDP_TRY(read_list(rows, at, count, ids));
    return read_list(rows, at + (kept->has_labels ? kept->len * sizeof *ids : 0), count, labels);
}
