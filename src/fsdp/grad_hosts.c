/* See grad_hosts.h. */
#include "src/fsdp/grad_hosts.h"

#include "src/base/assert.h"
#include "src/comm/cards/cards.h"
#include "src/comm/group.h"
#include "src/fsdp/grad_terms.h"

static int64_t fewer(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* --- pieces --- */

static int64_t piece_numel(int64_t numel, int n)
{
    return fsdp_aligned_numel((numel + n - 1) / n);
}

fsdp_slice fsdp_grad_pieces(int64_t numel, int n)
{
    const int64_t piece = piece_numel(numel, n);
    return (fsdp_slice){
        .runs = piece ? (numel + piece - 1) / piece : 0, .length = piece, .stride = piece};
}

void fsdp_grad_piece(int64_t numel, int n, int i, int64_t *begin, int64_t *end)
{
    const int64_t piece = piece_numel(numel, n);
    *begin = fewer(i * piece, numel);
    *end = fewer(*begin + piece, numel);
}

/* --- what is sent --- */

uint64_t fsdp_grad_hosts_bytes(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                               int64_t numel)
{
    const uint64_t ranks = (uint64_t)fsdp_group_world_size(parts->group);
    const uint64_t hosts =
        ranks / (uint64_t)fsdp_group_memory_ranks(parts->group, b->context->device);
    const uint64_t terms = (uint64_t)fsdp_grad_count_terms(b->context, parts->group, parts->leaves);
    const uint64_t bytes =
        (uint64_t)numel * fsdp_dtype_size(fsdp_grad_term_dtype(b->context, parts->group));
    return terms * bytes * (hosts - 1) / (parts->is_split ? hosts : 1) / ranks;
}

/* --- adding up the parts of this host --- */

static fsdp_dtype dtype_of(const fsdp_grad_buffer *b, const fsdp_grad_source *source)
{
    return fsdp_grad_term_dtype(b->context, source->parts->group);
}

/* Return the address of an element in the part of rank `part`: element `at` of run number `run` of
 * the slice. An element has `bytes` bytes. The run begins at the same address for any `bytes`:
 * where a run of float32 elements would begin. */
static char *element(const fsdp_grad_buffer *b, const fsdp_grad_source *source, int part,
                     int64_t run, int64_t at, size_t bytes)
{
    const int64_t first = source->offset + source->slice->first + run * source->slice->stride;
    return fsdp_grad_parts_of_rank(b, source->parts, part) + (size_t)first * sizeof(float) +
           (size_t)at * bytes;
}

/* One term (Note [Sums of a host] in grad_terms.h): the sum over parts [first, first + parts). */
typedef struct term {
    int first, parts;
    fsdp_dtype dtype;
    float *chunk; /* scratch memory for `chunk_numel` float32 elements; NULL if sums are stored in
                     float32 */
    int64_t chunk_numel;
} term;

/* Add up elements [at, at + n) of a run. A rounded sum takes fewer bytes than a float32 element,
 * and is stored at the place of the elements that were added up, or before it. So it does not
 * overwrite elements that are still to be added. */
static void add_up_elements(const fsdp_grad_buffer *b, const fsdp_grad_source *source,
                            const term *t, int64_t run, int64_t at, int64_t n)
{
    const fsdp_device *device = b->context->device;
    for (int i = 0; i < t->parts; i++)
        b->sources[i] = element(b, source, t->first + i, run, at, sizeof(float));
    float *sum =
        t->chunk ? t->chunk : (float *)(void *)element(b, source, t->first, run, at, sizeof(float));
    device->kernels->tree_sum(device->context, sum, b->sources, t->parts, FSDP_DTYPE_F32, n, 1.0f);
    if (t->chunk)
        device->kernels->cast(device->context,
                              element(b, source, t->first, run, at, fsdp_dtype_size(t->dtype)),
                              t->dtype, sum, FSDP_DTYPE_F32, n);
}

static void add_up_term(const fsdp_grad_buffer *b, const fsdp_grad_source *source, const term *t,
                        int reader)
{
    const fsdp_slice *s = source->slice;
    const size_t bytes = fsdp_dtype_size(t->dtype);
    const char *base = fsdp_buffer_data(source->parts->buffer);
    for (int64_t run = 0; run < s->runs; run++) {
        for (int64_t at = 0; at < s->length && (t->parts > 1 || t->chunk); at += t->chunk_numel)
            add_up_elements(b, source, t, run, at, fewer(t->chunk_numel, s->length - at));
        fsdp_buffer_wrote(source->parts->buffer, reader,
                          (size_t)(element(b, source, t->first, run, 0, bytes) - base),
                          (size_t)s->length * bytes);
    }
}

static void add_up_terms(const fsdp_grad_buffer *b, const fsdp_grad_source *source, float *chunk,
                         int64_t chunk_numel, int reader)
{
    const fsdp_group *group = source->parts->group;
    const fsdp_device *device = b->context->device;
    const int begin = fsdp_group_memory_root(group, device);
    const int end = begin + fsdp_group_memory_ranks(group, device);
    term t = {
        .first = begin, .dtype = dtype_of(b, source), .chunk = chunk, .chunk_numel = chunk_numel};
    for (; t.first < end; t.first += t.parts) {
        t.parts = fsdp_grad_term_parts(b->context, group, source->parts->leaves, t.first);
        add_up_term(b, source, &t, reader);
    }
}

fsdp_status fsdp_grad_hosts_add_up(const fsdp_grad_buffer *b, const fsdp_grad_source *source,
                                   int reader)
{
    fsdp_device *device = b->context->device;
    const int64_t numel = fewer(source->slice->length, device->traits->sum_numel);
    const bool rounds = dtype_of(b, source) != FSDP_DTYPE_F32;
    fsdp_tensor *memory = NULL;
    if (!numel || !source->slice->runs)
        return FSDP_OK;
    if (rounds)
        FSDP_TRY(fsdp_tensor_create(device, FSDP_DTYPE_F32, 1, &numel, FSDP_TAG_GRAD, &memory));
    if (device->kernels)
        add_up_terms(b, source, memory ? fsdp_tensor_ptr(memory) : NULL,
                     memory ? numel : source->slice->length, reader);
    fsdp_tensor_release(memory);
    return FSDP_OK;
}

/* --- adding the terms of all hosts --- */

/* List in `first` the first part of each term of a block, and return the number of terms. The
 * kernel tree_sum must add the terms in the same order as the binary tree over all parts of the
 * block. Usually this is the order of the ranks. But if there are three terms, tree_sum adds the
 * first two of them first, and the tree first adds the two terms that have one part each. So list
 * these two terms first. */
static int list_terms(const fsdp_grad_buffer *b, const fsdp_grad_source *source,
                      const fsdp_grad_range *range, int first[FSDP_SUM_BLOCK])
{
    int n = 0, parts[FSDP_SUM_BLOCK];
    for (int r = range->first; r < range->first + range->parts; r += parts[n - 1]) {
        FSDP_ASSERT(n < FSDP_SUM_BLOCK);
        first[n] = r;
        parts[n++] =
            fsdp_grad_term_parts(b->context, source->parts->group, source->parts->leaves, r);
    }
    if (n == 3 && parts[0] > parts[1]) {
        const int pair = first[0];
        first[0] = first[1];
        first[1] = first[2];
        first[2] = pair;
    }
    return n;
}

void fsdp_grad_hosts_sum(const fsdp_grad_buffer *b, const fsdp_grad_source *source,
                         const fsdp_grad_range *range, float *to, float scale)
{
    const fsdp_device *device = b->context->device;
    const fsdp_slice *slice = source->slice;
    const fsdp_dtype dtype = dtype_of(b, source);
    const int64_t end = range->begin + range->n;
    int first[FSDP_SUM_BLOCK];
    const int terms = list_terms(b, source, range, first);
    for (int64_t i = range->begin, n; i < end; i += n, to += n) {
        const int64_t run = i / slice->length, at = i % slice->length;
        n = fewer(slice->length - at, end - i);
        for (int k = 0; k < terms; k++)
            b->sources[k] = element(b, source, first[k], run, at, fsdp_dtype_size(dtype));
        device->kernels->tree_sum(device->context, to, b->sources, terms, dtype, n, scale);
    }
}
