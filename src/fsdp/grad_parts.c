/* See grad_parts.h. */
#include "src/fsdp/grad_parts.h"

#include "src/base/alloc.h"
#include "src/comm/cards/cards.h"
#include "src/comm/group.h"
#include "src/fsdp/grad_terms.h"

enum {
    FLAGS_ALIGN = 128
};

static size_t flag_bytes(const fsdp_grad_buffer *b, const fsdp_grad_parts *all)
{
    return all->group ? (b->n_params + FLAGS_ALIGN - 1) / FLAGS_ALIGN * FLAGS_ALIGN : 0;
}

fsdp_phase_info fsdp_grad_phase(const fsdp_grad_buffer *b, fsdp_phase_kind kind, size_t numel)
{
    const fsdp_dtype dtype = b->context->options.mp_policy.reduce_dtype;
    return fsdp_param_context_phase(b->context, kind, dtype, numel * fsdp_dtype_size(dtype));
}

/* Return true if the parts of other ranks in a gradient buffer have room for this rank's rows only:
 * Note [Parts on other cards] in grad_parts.h. */
static bool have_rows_only(const fsdp_grad_buffer *b)
{
    const fsdp_param_context *c = b->context;
    return c->device->traits == &fsdp_cuda_traits && c->shard_group &&
           fsdp_group_memory_ranks(c->group, c->device) == 1;
}

fsdp_grad_parts fsdp_grad_parts_of_buffer(const fsdp_grad_buffer *b, fsdp_buffer *buffer,
                                          int64_t numel, int64_t peer_numel)
{
    return (fsdp_grad_parts){.buffer = buffer,
                             .group = b->context->group,
                             .numel = numel,
                             .peer_numel = have_rows_only(b) ? peer_numel : 0,
                             .leaves = 1,
                             .is_split = b->context->shard_group != NULL};
}

/* The ranks of this host read some bytes of the parts that belong to ranks of other hosts. Return
 * the number of these bytes. Other hosts may have another number of terms than this host, so the
 * result is the average of all hosts. */
static size_t bytes_of_others(const fsdp_grad_buffer *b, const fsdp_grad_parts *all)
{
    const size_t ranks = (size_t)fsdp_group_world_size(all->group);
    const size_t here = (size_t)fsdp_group_memory_ranks(all->group, b->context->device);
    const size_t terms = (size_t)fsdp_grad_count_terms(b->context, all->group, all->leaves);
    const size_t bytes =
        (size_t)all->numel * fsdp_dtype_size(fsdp_grad_term_dtype(b->context, all->group));
    return terms * bytes / ranks * (ranks - here) / (all->is_split ? ranks / here : 1);
}

/* On meta (a device without kernels), the size is for a memory plan, which counts the memory of one
 * host. Pages of host memory that no rank uses do not exist. So on meta, unless the plan is for
 * cards, count the whole parts of the ranks on this host. In the other parts, count only the bytes
 * that the ranks on this host read: see Note [Memory on several hosts] in src/comm/shm.h. */
size_t fsdp_grad_parts_bytes(const fsdp_grad_buffer *b, const fsdp_grad_parts *all)
{
    const size_t ranks = (size_t)fsdp_group_world_size(all->group);
    const size_t here = (size_t)fsdp_group_memory_ranks(all->group, b->context->device);
    const size_t part = (size_t)all->numel * sizeof(float);
    const bool is_plan = all->group && !b->context->device->kernels &&
                         b->context->device->traits != &fsdp_cuda_traits;
    if (all->peer_numel)
        return ranks * flag_bytes(b, all) + part +
               (ranks - 1) * (size_t)all->peer_numel * sizeof(float);
    return ranks * flag_bytes(b, all) + (all->has_results ? part : 0) +
           (is_plan ? here * part + bytes_of_others(b, all) : ranks * part);
}

/* Return the address of a rank's flags [n_params] on the device; NULL on meta or without a group.
 */
static unsigned char *flags_of_rank(const fsdp_grad_buffer *b, const fsdp_grad_parts *all, int rank)
{
    unsigned char *base = fsdp_buffer_data(all->buffer);
    return base && all->group ? base + (size_t)rank * flag_bytes(b, all) : NULL;
}

void fsdp_grad_parts_write_flags(const fsdp_grad_buffer *b, const fsdp_grad_parts *all)
{
    unsigned char *own = flags_of_rank(b, all, fsdp_group_rank(all->group));
    if (!own)
        return;
    fsdp_device_from_host(b->context->device, own, b->flags, b->n_params);
    fsdp_buffer_wrote(all->buffer, FSDP_ALL_READERS,
                      (size_t)(own - (unsigned char *)fsdp_buffer_data(all->buffer)), b->n_params);
}

bool fsdp_grad_parts_are_rows(const fsdp_grad_parts *all, int rank)
{
    return all->peer_numel && rank != fsdp_group_rank(all->group);
}

/* Return where the part of `rank` begins in the memory of `reader`, in elements after the flags. */
static int64_t first_of_part(const fsdp_grad_parts *all, int reader, int rank)
{
    if (!all->peer_numel)
        return rank * all->numel;
    return rank == reader ? 0 : all->numel + (rank - (rank > reader)) * all->peer_numel;
}

char *fsdp_grad_parts_of_rank(const fsdp_grad_buffer *b, const fsdp_grad_parts *all, int rank)
{
    char *base = fsdp_buffer_data(all->buffer);
    const int64_t first = first_of_part(all, fsdp_group_rank(all->group), rank);
    return base ? base + (size_t)fsdp_group_world_size(all->group) * flag_bytes(b, all) +
                      (size_t)first * sizeof(float)
                : NULL;
}

/* Declare elements for one reader on another card. */
static void name_for_card(const fsdp_grad_buffer *b, const fsdp_grad_parts *all, int reader,
                          const fsdp_grad_elements *e)
{
    const int own = fsdp_group_rank(all->group);
    const size_t flags = (size_t)fsdp_group_world_size(all->group) * flag_bytes(b, all);
    const int64_t to = first_of_part(all, reader, own) + e->peer_first;
    if (reader != own)
        fsdp_buffer_wrote_for(all->buffer, reader, flags + (size_t)e->first * sizeof(float),
                              flags + (size_t)to * sizeof(float), (size_t)e->n * sizeof(float));
}

void fsdp_grad_parts_name(const fsdp_grad_buffer *b, const fsdp_grad_parts *all, int reader,
                          fsdp_grad_elements e)
{
    const char *base = fsdp_buffer_data(all->buffer);
    const char *own = fsdp_grad_parts_of_rank(b, all, fsdp_group_rank(all->group));
    const bool every = reader == FSDP_ALL_READERS;
    if (base && !all->peer_numel)
        fsdp_buffer_wrote(all->buffer, reader,
                          (size_t)(own - base) + (size_t)e.first * sizeof(float),
                          (size_t)e.n * sizeof(float));
    for (int r = 0; base && all->peer_numel && r < fsdp_group_world_size(all->group); r++)
        if (every || r == reader)
            name_for_card(b, all, r, &e);
}

/* For each run of p's slice, declare one range of elements for each rank. In a run, the ranges of
 * neighboring ranks are adjacent. */
void fsdp_grad_parts_name_whole(const fsdp_grad_buffer *b, const fsdp_grad_parts *all,
                                const fsdp_param *p)
{
    const fsdp_parameter *parameter = p->parameter;
    const int dim = p->owner.shard.dim, ranks = fsdp_group_world_size(all->group);
    const int64_t place = p->grad.whole->offset;
    if (!b->context->shard_group) {
        fsdp_grad_parts_name(b, all, FSDP_ALL_READERS,
                             (fsdp_grad_elements){.first = place, .n = fsdp_param_numel(p)});
        return;
    }
    for (int64_t run = 0; run < p->slice.runs; run++)
        for (int r = 0; r < ranks; r++) {
            int64_t begin, end;
            fsdp_shard_rows(parameter->shape[dim], ranks, r, &begin, &end);
            const fsdp_slice s = fsdp_slice_of(parameter->ndim, parameter->shape, dim, begin, end);
            fsdp_grad_parts_name(
                b, all, r,
                (fsdp_grad_elements){.first = place + s.first + run * s.stride,
                                     .peer_first = p->grad.peer_offset + run * s.length,
                                     .n = s.length});
        }
}

/* Return the error for parameter i, whose flag is `theirs` on rank r and `own` on this rank. */
static fsdp_status flags_differ(const fsdp_grad_buffer *b, const fsdp_group *group, size_t i, int r,
                                unsigned char theirs, unsigned char own)
{
    const int rank = fsdp_group_world_rank(group, r);
    const int own_rank = fsdp_group_world_rank(group, fsdp_group_rank(group));
    if (theirs && own)
        return fsdp_error(FSDP_ERR_COMM,
                          "ranks diverged: the gradient of '%s' in unit '%s' is on rank %d "
                          "number %d of a section, on rank %d number %d",
                          b->params[i].name, b->context->name, rank, theirs, own_rank, own);
    return fsdp_error(FSDP_ERR_COMM,
                      "ranks diverged: rank %d has %s gradient of '%s' in unit '%s', rank %d has "
                      "%s",
                      rank, theirs ? "a" : "no", b->params[i].name, b->context->name, own_rank,
                      theirs ? "none" : "one");
}

/* Compare the flags [ranks, flag_bytes()] of all ranks with those of this rank. */
static fsdp_status compare_flags(const fsdp_grad_buffer *b, const fsdp_grad_parts *all,
                                 const unsigned char *flags)
{
    const size_t bytes = flag_bytes(b, all);
    const unsigned char *own = flags + (size_t)fsdp_group_rank(all->group) * bytes;
    for (int r = 0; r < fsdp_group_world_size(all->group); r++, flags += bytes)
        for (size_t i = 0; i < b->n_params; i++)
            if (flags[i] != own[i])
                return fsdp_group_fail(all->group,
                                       flags_differ(b, all->group, i, r, flags[i], own[i]));
    return FSDP_OK;
}

/* Do what compare_flags() does, for flags in memory that the host cannot read: copy them to the
 * host first. Usually this does not wait for this rank's kernels: the kernels of the WRITE phase
 * had finished when this rank ended that phase. */
static fsdp_status copy_and_compare_flags(const fsdp_grad_buffer *b, const fsdp_grad_parts *all)
{
    const size_t bytes = flag_bytes(b, all) * (size_t)fsdp_group_world_size(all->group);
    unsigned char *flags = fsdp_realloc(NULL, bytes, 1);
    if (!flags)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_buffer_to_host(all->buffer, flags, flags_of_rank(b, all, 0), bytes);
    if (status == FSDP_OK)
        status = compare_flags(b, all, flags);
    fsdp_free(flags);
    return status;
}

fsdp_status fsdp_grad_parts_compare_flags(const fsdp_grad_buffer *b, const fsdp_grad_parts *all)
{
    const unsigned char *flags = flags_of_rank(b, all, 0);
    if (!flags || fsdp_group_world_size(all->group) == 1)
        return FSDP_OK;
    return fsdp_device_has_own_memory(b->context->device) ? copy_and_compare_flags(b, all)
                                                          : compare_flags(b, all, flags);
}

void fsdp_grad_parts_sum(const fsdp_grad_buffer *b, const fsdp_grad_source *source,
                         const fsdp_grad_range *range, float *to, float scale)
{
    const fsdp_device *device = b->context->device;
    const fsdp_grad_parts *all = source->parts;
    const fsdp_slice *slice = source->slice;
    const int64_t end = range->begin + range->n;
    for (int64_t i = range->begin, n; i < end; i += n, to += n) {
        const int64_t run = i / slice->length, in_run = i % slice->length;
        const int64_t first = source->offset + slice->first + run * slice->stride + in_run;
        n = slice->length - in_run < end - i ? slice->length - in_run : end - i;
        for (int k = 0; k < range->parts; k++) {
            const int r = range->first + k;
            const int64_t at = fsdp_grad_parts_are_rows(all, r) ? source->peer_offset + i : first;
            b->sources[k] = fsdp_grad_parts_of_rank(b, all, r) + (size_t)at * sizeof(float);
        }
        device->kernels->tree_sum(device->context, to, b->sources, range->parts, FSDP_DTYPE_F32, n,
                                  scale);
    }
}
