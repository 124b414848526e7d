/* See joined.h. */
#include "src/source/joined.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/dcp/box_overlap.h"

enum {
    MAX_NDIM = 64
};

fsdp_status fsdp_joined_add(fsdp_joined *joined, fsdp_arena *arena, const fsdp_joined_part *part)
{
    if (joined->n == joined->cap) {
        const size_t cap = joined->cap ? 2 * joined->cap : 4;
        fsdp_joined_part *grown = fsdp_arena_alloc(arena, cap * sizeof *grown);
        if (!grown)
            return FSDP_ERR_NOMEM;
        if (joined->n)
            memcpy(grown, joined->parts, joined->n * sizeof *grown);
        joined->parts = grown;
        joined->cap = cap;
    }
    joined->parts[joined->n++] = *part;
    return FSDP_OK;
}

/* ---- checking that the parts make up the whole tensor ---------------------------------------- */

static fsdp_status bad_part(const fsdp_joined_part *part, const char *name, const char *what)
{
    return fsdp_error(FSDP_ERR_FORMAT, "%s: its part of tensor '%s' %s", part->entry.path, name,
                      what);
}

static fsdp_status check_part(const fsdp_joined *joined, const fsdp_joined_part *part,
                              const char *name)
{
    if (part->entry.ndim != joined->ndim)
        return bad_part(part, name, "has another number of dimensions");
    if (strcmp(part->entry.dtype_name, joined->parts[0].entry.dtype_name) != 0)
        return bad_part(part, name, "has another dtype than the first");
    for (int d = 0; d < joined->ndim; d++)
        if (part->offsets[d] > joined->shape[d] ||
            part->entry.shape[d] > joined->shape[d] - part->offsets[d])
            return bad_part(part, name, "reaches beyond it");
    return FSDP_OK;
}

/* Check that no element is in two parts. An empty part has no elements. */
static fsdp_status check_overlap(const fsdp_joined *joined, const char *name)
{
    size_t n = 0, a, b;
    fsdp_dcp_extent *extents = fsdp_calloc(joined->n, sizeof *extents);
    if (!extents)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < joined->n; i++) {
        const fsdp_joined_part *part = &joined->parts[i];
        if (part->entry.numel)
            extents[n++] = (fsdp_dcp_extent){part->offsets, part->entry.shape, i};
    }
    fsdp_status status = FSDP_OK;
    if (fsdp_dcp_find_overlap(extents, n, joined->ndim, &a, &b))
        status = bad_part(&joined->parts[b], name, "is there twice");
    fsdp_free(extents);
    return status;
}

fsdp_status fsdp_joined_check(const fsdp_joined *joined, const char *name)
{
    int64_t covered = 0;
    for (size_t i = 0; i < joined->n; i++)
        FSDP_TRY(check_part(joined, &joined->parts[i], name));
    FSDP_TRY(check_overlap(joined, name));
    for (size_t i = 0; i < joined->n; i++)
        covered += joined->parts[i].entry.numel; /* cannot overflow: the boxes are disjoint, so the
                                                    sum is at most the numel of the tensor */
    if (covered == joined->numel)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT,
                      "%s: of tensor '%s' only %lld of %lld elements are in the files that are "
                      "there: a file of a rank is missing",
                      joined->parts[0].entry.path, name, (long long)covered,
                      (long long)joined->numel);
}

/* ---- copying --------------------------------------------------------------------------------- */

/* Return the offset, in elements, at which an element of the part belongs in a buffer that begins
 * with row `begin` of the whole tensor. `at` [ndim] is the index of the element within the part. */
static int64_t place_in_whole(const fsdp_joined *joined, const fsdp_joined_part *part,
                              const int64_t *at, int64_t begin)
{
    int64_t place = 0;
    for (int d = 0; d < joined->ndim; d++)
        place = place * joined->shape[d] + part->offsets[d] + at[d] - (d == 0 ? begin : 0);
    return place;
}

/* Copy rows [first, last) of the part to their places in `out`. `out` begins with row `begin` of
 * the whole tensor. Each memcpy() copies one run. A run consists of elements along the last
 * dimension, which are contiguous both in the part and in `out`. The local array `at` is the index
 * of a run's first element within the part. */
static void copy_part(const fsdp_joined *joined, const fsdp_joined_part *part, int64_t begin,
                      int64_t first, int64_t last, unsigned char *out)
{
    const int ndim = joined->ndim;
    const int64_t *size = part->entry.shape, run = ndim > 1 ? size[ndim - 1] : last - first;
    const size_t run_bytes = (size_t)run * joined->width;
    const unsigned char *from = part->entry.data;
    int64_t at[MAX_NDIM] = {0}, runs = ndim > 1 ? (last - first) : 1;
    at[0] = first;
    for (int d = 1; d < ndim - 1; d++)
        runs *= size[d];
    from += (size_t)(part->entry.numel / size[0] * first) * joined->width;
    for (int64_t i = 0; i < runs; i++, from += run_bytes) {
        memcpy(out + (size_t)place_in_whole(joined, part, at, begin) * joined->width, from,
               run_bytes);
        for (int d = ndim - 2; d >= 0 && ++at[d] == (d == 0 ? last : size[d]) && d > 0; d--)
            at[d] = 0;
    }
}

void fsdp_joined_rows(const fsdp_joined *joined, int64_t begin, int64_t end, unsigned char *out)
{
    for (size_t i = 0; i < joined->n; i++) {
        const fsdp_joined_part *part = &joined->parts[i];
        if (part->entry.numel == 0)
            continue;
        if (joined->ndim == 0) {
            memcpy(out, part->entry.data, joined->width);
            continue;
        }
        const int64_t offset = part->offsets[0], rows = part->entry.shape[0];
        const int64_t first = begin > offset ? begin - offset : 0;
        const int64_t last = end - offset < rows ? end - offset : rows;
        if (first < last)
            copy_part(joined, part, begin, first, last, out);
    }
}

fsdp_status fsdp_joined_verify(const fsdp_joined *joined, const char *name)
{
    for (size_t i = 0; i < joined->n; i++)
        if (joined->parts[i].archive)
            FSDP_TRY(
                fsdp_torch_archive_check(joined->parts[i].archive, joined->parts[i].value, name));
    return FSDP_OK;
}
