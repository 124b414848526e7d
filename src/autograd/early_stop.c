/* See Note [Early stop] in early_stop.h. */
#include "src/autograd/early_stop.h"
#include "src/base/assert.h"

void fsdp_early_stop_begin_first(fsdp_early_stop *stop, fsdp_run *run, uint64_t mark,
                                 const fsdp_args *inputs)
{
    FSDP_ASSERT(!run->counting);
    stop->mark = mark;
    stop->inputs = inputs;
    run->counting = stop;
}

void fsdp_early_stop_end_first(fsdp_run *run)
{
    run->counting->inputs = NULL;
    run->counting = NULL;
}

static void stop_after_last_needed(fsdp_run *run)
{
    const fsdp_early_stop *stop = run->stopping;
    run->without_values |= !stop->is_off && stop->n >= stop->needed;
}

void fsdp_early_stop_begin_second(fsdp_early_stop *stop, fsdp_run *run)
{
    stop->n = 0;
    run->stopping = stop;
    stop_after_last_needed(run);
}

void fsdp_early_stop_end_second(fsdp_run *run)
{
    run->stopping = NULL;
    run->without_values = false;
}

/* --- the first run --- */

static bool is_among(const fsdp_tensor *t, fsdp_tensor *const *all, int n)
{
    for (int i = 0; i < n; i++)
        if (all[i] == t)
            return true;
    return false;
}

/* Return the number of the operation that computes the values of `t`, or 0 if the values existed
 * before the checkpointed part ran. `t` must be an input of the operation that was counted last. */
static uint32_t maker_of(const fsdp_early_stop *stop, const fsdp_tensor *t)
{
    if (t->node && t->generation == stop->mark)
        return t->node;
    const bool was_there = t->sink || is_among(t, stop->inputs->t, stop->inputs->n);
    /* `t` has no mark. Either `t` existed before the part ran, or an operation that is not counted
     * made `t`. In the second case, the maker is unknown, so the number of the operation that was
     * counted last is returned instead. */
    return was_there ? 0 : stop->n;
}

static void mark_needed(fsdp_early_stop *stop, uint32_t number, bool result)
{
    if (number < stop->needed)
        return;
    stop->result_is_needed = result || (number == stop->needed && stop->result_is_needed);
    stop->needed = number;
}

static void count_first(fsdp_early_stop *stop, const fsdp_record_args *args)
{
    stop->n++;
    /* Which inputs an operation saves may depend on which inputs need gradients. The first run of a
     * checkpointed part does not know which inputs need gradients. So if the operation saves
     * anything, assume that backward needs all inputs of the operation. */
    for (int i = 0; i < args->n_in && args->n_saved; i++)
        if (args->in[i])
            mark_needed(stop, maker_of(stop, args->in[i]), true);
    for (int i = 0; i < args->n_saved; i++)
        if (args->saved[i] && !is_among(args->saved[i], args->in, args->n_in))
            mark_needed(stop, stop->n, is_among(args->saved[i], args->out, args->n_out));
    if (args->op->has_gradients)
        mark_needed(stop, stop->n, true);
    for (int i = 0; i < args->n_out; i++)
        if (args->out[i]) {
            args->out[i]->node = stop->n;
            args->out[i]->generation = stop->mark;
        }
}

/* --- the second run --- */

static bool has_values(const fsdp_tensor *t)
{
    return !t || t->storage->data || !t->storage->device->kernels || fsdp_tensor_numel(t) == 0;
}

static void count_second(fsdp_scope *s, const fsdp_record_args *args)
{
    for (int i = 0; i < args->n_saved && s->run->without_values; i++)
        if (!has_values(args->saved[i]))
            fsdp_scope_error(s, args->op->name,
                             "its checkpointed module computed something else the first time");
    s->run->stopping->n++;
    stop_after_last_needed(s->run);
}

void fsdp_early_stop_count(fsdp_scope *s, const fsdp_record_args *args)
{
    if (s->run->counting)
        count_first(s->run->counting, args);
    else if (s->run->stopping)
        count_second(s, args);
}

bool fsdp_early_stop_is_reached(const fsdp_run *run)
{
    return run->stopping && !run->stopping->is_off && run->stopping->n == run->stopping->needed;
}

bool fsdp_early_stop_is_unread(const fsdp_run *run)
{
    const fsdp_early_stop *stop = run->stopping;
    return stop && !stop->is_off && stop->n + 1 == stop->needed && !stop->result_is_needed;
}
