/* See chain.h. */
#include "tests/fsdp/chain.h"

#include <string.h>

#include "src/fsdp/state.h"

static void append(struct chain_watch *w, char *trace)
{
    char entry[] = {' ', w->name, ':', 0, 0, 0, 0, 0, 0};
    static const char letters[] = {[FSDP_STATE_SHARDED] = 'S',
                                   [FSDP_STATE_GATHERING] = 'G',
                                   [FSDP_STATE_UNSHARDED] = 'U',
                                   [FSDP_STATE_HIDDEN] = 'H',
                                   [FSDP_STATE_SECONDARY] = 'P'};
    for (int i = 0; i < CHAIN_BLOCKS; i++) {
        const fsdp_state *state = w->chain->units[i]->fsdp_state;
        entry[3 + i] = letters[state->param_group->state];
    }
    strncat(trace, trace[0] ? entry : entry + 1, CHAIN_TRACE - strlen(trace) - 1);
}

static fsdp_status enter_forward(void *self, fsdp_scope *s, fsdp_args *in)
{
    struct chain_watch *w = self;
    (void)s, (void)in;
    append(w, w->chain->forward);
    return FSDP_OK;
}

static fsdp_status enter_backward(void *self)
{
    struct chain_watch *w = self;
    append(w, w->chain->backward);
    return FSDP_OK;
}

static fsdp_status leave_backward(void *self, bool last)
{
    struct chain_watch *w = self;
    (void)last;
    append(w, w->chain->after_backward);
    return FSDP_OK;
}

/* Put a module around each block. Its hooks run after all of the block's own. */
static fsdp_status add_block(chain *c, int i)
{
    fsdp_module *around;
    const char name = (char)('a' + i);
    FSDP_TRY(tree_add(c->m.model, (char[]){name, 0}, 7, 0, &around));
    FSDP_TRY(tree_add(around, "unit", 7, 3 + i, &c->units[i]));
    c->inside[i] = (struct chain_watch){.chain = c, .name = name};
    c->inside[i].hooks = (fsdp_region_hooks){
        .pre_forward = enter_forward, .pre_backward = enter_backward, .self = &c->inside[i]};
    c->around[i] = (struct chain_watch){.chain = c, .name = name};
    c->around[i].hooks =
        (fsdp_region_hooks){.post_backward = leave_backward, .self = &c->around[i]};
    return fsdp_module_add_hooks(around, &c->around[i].hooks, NULL);
}

static fsdp_status build(chain *c, const fsdp_fully_shard_options *options)
{
    FSDP_TRY(tree_add(NULL, "", 7, 5, &c->m.model));
    c->units[CHAIN_BLOCKS] = c->m.model;
    for (int i = 0; i < CHAIN_BLOCKS; i++)
        FSDP_TRY(add_block(c, i));
    for (int i = 0; i < CHAIN_UNITS; i++)
        FSDP_TRY(fsdp_fully_shard(c->units[i], c->m.group, c->m.device, options));
    for (int i = 0; i < CHAIN_BLOCKS; i++) /* these hooks run after the unit's own */
        FSDP_TRY(fsdp_module_add_hooks(c->units[i], &c->inside[i].hooks, NULL));
    return fsdp_module_init(c->m.model, 5);
}

fsdp_status chain_open(fsdp_group *group, const fsdp_fully_shard_options *options, chain *c)
{
    *c = (chain){0};
    FSDP_TRY(trainee_open(group, NULL, options->mp_policy.param_dtype, &c->m));
    FSDP_TRY(build(c, options));
    chain_counts(c);
    return FSDP_OK;
}

fsdp_status chain_close(chain *c)
{
    return trainee_close(&c->m);
}

fsdp_status chain_micro_step(chain *c, int step, int a, int n)
{
    c->forward[0] = c->backward[0] = c->after_backward[0] = 0;
    return tree_forward_backward(
        &c->m, c->m.model,
        &(tree_call){.step = step,
                     .micro_batch = a * trainee_world_size(&c->m) + trainee_rank(&c->m),
                     .micro_step = a,
                     .n_micro_steps = n});
}

fsdp_status chain_run(chain *c, int step)
{
    return chain_micro_step(c, step, 0, 1);
}

fsdp_comm_counters chain_counts(chain *c)
{
    if (!c->m.group)
        return (fsdp_comm_counters){0};
    fsdp_comm_counters now = *fsdp_group_counters(c->m.group), since = now;
    for (int k = 0; k < 8; k++) {
        since.calls[k] -= c->before.calls[k];
        since.logical_bytes[k] -= c->before.logical_bytes[k];
    }
    since.moved_bytes -= c->before.moved_bytes;
    c->before = now;
    return since;
}

uint64_t chain_numel(const chain *c, int i)
{
    fsdp_unit_info info;
    return fsdp_unit_get_info(c->units[i], &info) == FSDP_OK ? (uint64_t)info.numel : 0;
}

uint64_t chain_total(const chain *c)
{
    uint64_t n = 0;
    for (int i = 0; i < CHAIN_UNITS; i++)
        n += chain_numel(c, i);
    return n;
}
