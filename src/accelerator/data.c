/* Splits prepared loaders over ranks, reads them, and knows where an epoch ends. */
#include <inttypes.h>
#include <stdlib.h>

#include "src/accelerator/accelerator.h"
#include "src/base/alloc.h"
#include "src/comm/agree.h"

/* ---- prepare ---- */

static fsdp_status check_sampler(const fsdp_accelerator *a, const fsdp_sampler *s)
{
    const int world_size = fsdp_group_world_size(a->group);
    const int steps = a->settings.gradient_accumulation_steps;
    if (s->kind != FSDP_SAMPLER_DEFAULT)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "accelerator: the loader has a DistributedSampler; give it "
                          "FSDP_SAMPLER_DEFAULT, which prepare splits over the ranks");
    if (s->world_size != 1)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: the loader is split over %d ranks already; create it for "
                          "rank 0 of 1, and prepare splits it",
                          s->world_size);
    if (a->settings.split_batches && s->batch_size % world_size)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: split_batches: batch size %d is not divisible by %d ranks",
                          (int)s->batch_size, world_size);
    if (s->accumulation > 1 && s->accumulation != steps)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: the sampler has accumulation %d, but "
                          "gradient_accumulation_steps is %d",
                          (int)s->accumulation, steps);
    return FSDP_OK;
}

static fsdp_status split(fsdp_accelerator *a, fsdp_loader *loader)
{
    fsdp_sampler sampler = fsdp_loader_get_options(loader)->sampler;
    if (fsdp_accelerator_find_loader(a, loader))
        return fsdp_error(FSDP_ERR_INVALID, "accelerator: this loader was prepared before; each is "
                                            "prepared once");
    FSDP_TRY(check_sampler(a, &sampler));
    if (!FSDP_GROW(a->loaders, a->cap_loaders, a->n_loaders + 1) ||
        !FSDP_GROW(a->outer, a->cap_outer, a->n_loaders + 1))
        return FSDP_ERR_NOMEM;
    sampler.rank = fsdp_group_rank(a->group);
    sampler.world_size = fsdp_group_world_size(a->group);
    if (a->settings.split_batches)
        sampler.batch_size /= sampler.world_size;
    sampler.even_batches = a->settings.even_batches && !sampler.drop_last;
    return fsdp_loader_set_sampler(loader, &sampler);
}

fsdp_status fsdp_accelerator_prepare_data_loader(fsdp_accelerator *a, fsdp_loader *loader)
{
    FSDP_TRY(fsdp_agree(a->group, split(a, loader)));
    const fsdp_sampler *sampler = &fsdp_loader_get_options(loader)->sampler;
    a->loaders[a->n_loaders++] = (fsdp_accelerated_loader){
        .loader = loader, .batches = fsdp_loader_steps(loader) * sampler->accumulation};
    return FSDP_OK;
}

/* ---- which loader is being read ---- */

/* Remove `loader` from a->active and a->outer. If it was active, the newest loader in a->outer
 * becomes active again. */
static void leave(fsdp_accelerator *a, const fsdp_loader *loader)
{
    size_t kept = 0;
    for (size_t i = 0; i < a->n_outer; i++)
        if (a->outer[i] != loader)
            a->outer[kept++] = a->outer[i];
    a->n_outer = kept;
    if (a->active == loader)
        a->active = a->n_outer ? a->outer[--a->n_outer] : NULL;
}

static void enter(fsdp_accelerator *a, fsdp_loader *loader)
{
    if (a->active == loader)
        return;
    leave(a, loader);
    if (a->active)
        a->outer[a->n_outer++] = a->active;
    a->active = loader;
}

/* ---- reading ---- */

static void begin_epoch(fsdp_accelerated_loader *l, int64_t epoch)
{
    l->epoch = epoch;
    l->given = 0;
    l->ended = false;
    fsdp_loader_set_epoch(l->loader, epoch);
}

fsdp_status fsdp_accelerator_next(fsdp_accelerator *a, fsdp_loader *loader, fsdp_batch **batch)
{
    fsdp_batch *next;
    FSDP_TRY(fsdp_accelerator_know_loader(a, loader));
    fsdp_accelerated_loader *l = fsdp_accelerator_find_loader(a, loader);
    if (l->ended)
        begin_epoch(l, l->epoch + 1);
    FSDP_TRY(fsdp_loader_next(loader, &next));
    if (next) {
        enter(a, loader);
        l->given++;
    } else {
        leave(a, loader);
        l->ended = true;
    }
    *batch = next;
    return FSDP_OK;
}

fsdp_status fsdp_accelerator_set_epoch(fsdp_accelerator *a, fsdp_loader *loader, int64_t epoch)
{
    FSDP_TRY(fsdp_accelerator_know_loader(a, loader));
    if (epoch < 0)
        return fsdp_error(FSDP_ERR_INVALID, "accelerator: epoch %" PRId64 " is negative", epoch);
    leave(a, loader);
    begin_epoch(fsdp_accelerator_find_loader(a, loader), epoch);
    return FSDP_OK;
}

fsdp_status fsdp_accelerator_skip_first_batches(fsdp_accelerator *a, fsdp_loader *loader,
                                                int64_t num_batches)
{
    FSDP_TRY(fsdp_accelerator_know_loader(a, loader));
    fsdp_accelerated_loader *l = fsdp_accelerator_find_loader(a, loader);
    const int64_t accumulation = fsdp_loader_get_options(loader)->sampler.accumulation;
    if (num_batches < 0 || num_batches > l->batches)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: %" PRId64 " batches to skip, but an epoch has %" PRId64,
                          num_batches, l->batches);
    if (l->ended)
        begin_epoch(l, l->epoch + 1);
    leave(a, loader);
    fsdp_loader_seek(loader, l->epoch, num_batches / accumulation);
    l->given = num_batches;
    for (int64_t i = 0; i < num_batches % accumulation; i++) {
        fsdp_batch *skipped;
        FSDP_TRY(fsdp_loader_next(loader, &skipped));
        fsdp_batch_release(skipped);
    }
    return FSDP_OK;
}

bool fsdp_accelerator_end_of_dataloader(const fsdp_accelerator *a)
{
    const fsdp_accelerated_loader *l =
        a->active ? fsdp_accelerator_find_loader(a, a->active) : NULL;
    return l && l->given == l->batches;
}

int64_t fsdp_accelerator_rows_of_round(const fsdp_accelerator *a)
{
    const fsdp_accelerated_loader *l =
        a->active ? fsdp_accelerator_find_loader(a, a->active) : NULL;
    if (!l || l->given == 0)
        return -1;
    const fsdp_sampler *s = &fsdp_loader_get_options(l->loader)->sampler;
    const int64_t rows = (int64_t)s->batch_size * s->world_size;
    const int64_t left = s->samples - (l->given - 1) * rows;
    if (!s->even_batches)
        return -1;
    return left < rows ? (left < 0 ? 0 : left) : -1;
}
