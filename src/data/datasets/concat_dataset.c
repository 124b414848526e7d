/* A dataset that has the examples of several datasets, one after the other. */
#include "src/data/datasets/dataset.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"

typedef struct concat {
    fsdp_dataset **parts; /* [len], owned */
    int64_t *ends;        /* [len]: number of examples of parts 0 to i together */
    size_t len;
    char *note; /* the notes of the parts, or NULL */
} concat;

/* Return the part that has example `index`, and set *row to its index in that part. */
static fsdp_dataset *locate(const concat *c, int64_t index, int64_t *row)
{
    size_t low = 0, high = c->len - 1;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (c->ends[middle] > index)
            high = middle;
        else
            low = middle + 1;
    }
    *row = index - (low ? c->ends[low - 1] : 0);
    return c->parts[low];
}

static int64_t concat_len(void *self)
{
    const concat *c = self;
    return c->ends[c->len - 1];
}

static fsdp_status concat_draw(void *self, int64_t index, const fsdp_draw *draw,
                               fsdp_example *example)
{
    int64_t row;
    const fsdp_dataset *part = locate(self, index, &row);
    return fsdp_dataset_draw(part, row, draw, example);
}

static fsdp_status concat_get_cut(void *self, int64_t index, fsdp_example *example, int64_t *cut)
{
    int64_t row;
    const fsdp_dataset *part = locate(self, index, &row);
    return fsdp_dataset_get_cut(part, row, example, cut);
}

static fsdp_status concat_texts(void *self, int64_t index, char **source, char **target)
{
    int64_t row;
    const fsdp_dataset *part = locate(self, index, &row);
    return fsdp_dataset_texts(part, row, source, target);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Sum what the parts leave out. Each part counts only its rows in the range. Its other rows belong
 * to another range, such as that for validation. */
static fsdp_status concat_left_out(void *self, const fsdp_row_range *range, fsdp_left_out *sum)
{
    const concat *c = self;
    const int64_t end = range->first + range->rows;
    int64_t left = range->len, begin = 0;
    for (size_t i = 0; i < c->len; begin = c->ends[i++]) {
        fsdp_left_out part;
        fsdp_row_range own = {.first = range->first > begin ? range->first - begin : 0};
        own.rows = least(end, c->ends[i]) - begin - own.first;
        own.len = least(left, own.rows);
        if (own.rows <= 0)
            continue;
        FSDP_TRY(fsdp_dataset_left_out_of(c->parts[i], &own, &part));
        fsdp_left_out_add(sum, &part);
        left -= own.len;
    }
    return FSDP_OK;
}

static void concat_close(void *self)
{
    concat *c = self;
    for (size_t i = 0; c->parts && i < c->len; i++)
        fsdp_dataset_close(c->parts[i]);
    fsdp_free(c->parts);
    fsdp_free(c->ends);
    fsdp_free(c->note);
    fsdp_free(c);
}

static const fsdp_dataset_ops concat_ops = {
    .len = concat_len,
    .draw = concat_draw,
    .texts = concat_texts,
    .close = concat_close,
};

static fsdp_status join_notes(concat *c)
{
    fsdp_str note = {0};
    for (size_t i = 0; i < c->len; i++)
        if (fsdp_dataset_note(c->parts[i]))
            fsdp_str_printf(&note, "%s%s", note.len ? "; " : "", fsdp_dataset_note(c->parts[i]));
    if (!note.len && !note.failed)
        return FSDP_OK;
    c->note = fsdp_str_take(&note);
    return c->note ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status fill(concat *c, fsdp_dataset *const *parts, size_t count)
{
    int64_t end = 0;
    c->parts = fsdp_calloc(count, sizeof(fsdp_dataset *));
    c->ends = fsdp_calloc(count, sizeof *c->ends);
    if (!c->parts || !c->ends)
        return FSDP_ERR_NOMEM;
    c->len = count;
    for (size_t i = 0; i < count; i++)
        c->ends[i] = end += fsdp_dataset_len(parts[i]);
    memcpy(c->parts, parts, count * sizeof(fsdp_dataset *));
    return join_notes(c);
}

fsdp_status fsdp_concat_dataset_create(fsdp_dataset *const *parts, size_t count, fsdp_dataset **out)
{
    concat *c = fsdp_calloc(1, sizeof *c);
    fsdp_status status = c ? fill(c, parts, count) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_dataset_create(&concat_ops, c, out);
    if (status != FSDP_OK) {
        if (c)
            c->len = 0; /* the caller still owns the parts */
        if (c)
            concat_close(c);
        return status;
    }
    unsigned uses = 0;
    for (size_t i = 0; i < count; i++)
        uses |= fsdp_dataset_uses(parts[i]);
    fsdp_dataset_set_uses(*out, uses);
    fsdp_dataset_set_note(*out, c->note);
    fsdp_dataset_set_left_out(*out, concat_left_out);
    fsdp_dataset_set_get_cut(*out, concat_get_cut);
    return FSDP_OK;
}
