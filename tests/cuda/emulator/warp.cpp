/* Barriers of a block, and operations that the lanes of a warp do together. */
#include "block.h"

namespace emu
{
/* --- __syncthreads --- */

/* All threads that are alive have arrived; `self`, if not NULL, is the one that runs. */
void open_barrier(worker *w, const thread *self)
{
    w->last_votes = w->votes;
    w->votes = w->n_at_barrier = 0;
    w->barriers++;
    for (int i = 0; i < w->n_threads; i++)
        if (w->threads[i].state == AT_BLOCK && &w->threads[i] != self)
            make_ready(&w->threads[i]);
}

/* bar.sync is .aligned: all lanes of a warp are at the same one. */
static void check_same_barrier(const worker *w, const thread *t)
{
    for (int i = 0; i < 32; i++) {
        const thread *other = t->w->lane[i];
        if (other && other->state == AT_BLOCK && other->line != t->line)
            report("lanes of a warp wait at different __syncthreads: %s:%d and %s:%d: %s",
                   other->file, other->line, t->file, t->line, name_of_thread(w, t).c_str());
    }
}

/* --- operations of a warp --- */

static void check_same_operation(const warp *w, unsigned lanes)
{
    const thread *a = w->lane[__builtin_ctz(lanes)];
    for (int i = 0; i < 32; i++) {
        const thread *b = w->lane[i];
        if (!(lanes >> i & 1) || (b->op == a->op && b->mask == a->mask))
            continue;
        report("lanes of a warp do not do the same: %s at %s:%d with mask %08x: %s\n"
               "   and %s at %s:%d with mask %08x: %s",
               a->op, a->file, a->line, a->mask, name_of_thread(me, a).c_str(), b->op, b->file,
               b->line, b->mask, name_of_thread(me, b).c_str());
    }
}

void finish_warp_operation(warp *w, unsigned lanes, const thread *self)
{
    check_same_operation(w, lanes);
    const thread *first = w->lane[__builtin_ctz(lanes)];
    w->arrived &= ~lanes;
    if (first->combine)
        first->combine(w, lanes);
    for (int i = 0; i < 32; i++)
        if (lanes >> i & 1 && w->lane[i] != self)
            make_ready(w->lane[i]);
}

void warp_collective(const char *op, unsigned mask, void *io, void (*combine)(warp *, unsigned),
                     const char *file, int line)
{
    thread *t = (thread *)emu_self;
    warp *w = t->w;
    t->op = op;
    t->mask = mask;
    t->io = io;
    t->combine = combine;
    t->file = file;
    t->line = line;
    if (!(mask >> t->lane & 1))
        report("%s at %s:%d by a lane that its mask %08x does not name: %s", op, file, line, mask,
               name_of_thread(me, t).c_str());
    w->arrived |= 1u << t->lane;
    const unsigned lanes = mask & ~w->exited;
    if ((w->arrived & lanes) == lanes)
        finish_warp_operation(w, lanes, t);
    else
        wait_in_state(t, AT_WARP);
}

void whole_warp(const char *op, void *io, void (*combine)(warp *, unsigned))
{
    const thread *t = (const thread *)emu_self;
    if (t->w->exited)
        report("%s by a warp of which lanes %08x have ended or do not exist: %s", op, t->w->exited,
               name_of_thread(me, t).c_str());
    warp_collective(op, ~0u, io, combine, op, 0);
}

/* --- shuffles and votes --- */

struct shuffle_io {
    uint64_t x;
    emu_shuffle_kind kind;
    int arg, width;
};

/* The lane that lane `l` reads; its own if the other one is outside of its segment. */
static int source_lane(const shuffle_io *x, int l)
{
    const int low = l & ~(x->width - 1), high = low + x->width - 1;
    int source = l;
    switch (x->kind) {
    case EMU_SHUFFLE_INDEX:
        return low + (x->arg & (x->width - 1));
    case EMU_SHUFFLE_UP:
        source = l - x->arg;
        return source < low ? l : source;
    case EMU_SHUFFLE_DOWN:
        source = l + x->arg;
        break;
    case EMU_SHUFFLE_XOR:
        source = l ^ x->arg;
    }
    return source > high ? l : source;
}

static void combine_shuffle(warp *w, unsigned lanes)
{
    uint64_t out[32];
    for (int l = 0; l < 32; l++)
        if (lanes >> l & 1) {
            const thread *t = w->lane[l];
            const int source = source_lane((const shuffle_io *)t->io, l) & 31;
            if (!(lanes >> source & 1)) {
                report("a shuffle reads lane %d, which is not in its mask or has ended: %s at "
                       "%s:%d",
                       source, name_of_thread(me, t).c_str(), t->file, t->line);
                continue;
            }
            out[l] = ((const shuffle_io *)w->lane[source]->io)->x;
        }
    for (int l = 0; l < 32; l++)
        if (lanes >> l & 1)
            ((shuffle_io *)w->lane[l]->io)->x = out[l];
}

static void combine_ballot(warp *w, unsigned lanes)
{
    unsigned result = 0;
    for (int l = 0; l < 32; l++)
        if (lanes >> l & 1)
            result |= *(const unsigned *)w->lane[l]->io << l;
    for (int l = 0; l < 32; l++)
        if (lanes >> l & 1)
            *(unsigned *)w->lane[l]->io = result;
}

static void combine_syncwarp(warp *w, unsigned)
{
    w->syncs++;
}
} // namespace emu

using namespace emu;

int emu_syncthreads(int value, const char *file, int line)
{
    worker *w = me;
    thread *t = w->current;
    t->file = file;
    t->line = line;
    check_same_barrier(w, t);
    w->votes += value != 0;
    if (++w->n_at_barrier == w->n_alive)
        open_barrier(w, t);
    else
        wait_in_state(t, AT_BLOCK);
    return w->last_votes;
}

uint64_t emu_shuffle(emu_shuffle_kind kind, unsigned mask, uint64_t x, int arg, int width,
                     const char *file, int line)
{
    static const char *const names[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                        "__shfl_xor_sync"};
    shuffle_io io = {x, kind, arg, width};
    warp_collective(names[kind], mask, &io, combine_shuffle, file, line);
    return io.x;
}

unsigned emu_ballot(unsigned mask, int predicate, const char *file, int line)
{
    unsigned io = predicate != 0;
    warp_collective("a vote", mask, &io, combine_ballot, file, line);
    return io;
}

void emu_syncwarp(unsigned mask, const char *file, int line)
{
    warp_collective("__syncwarp", mask, NULL, combine_syncwarp, file, line);
}

unsigned emu_active(void)
{
    return ~((const thread *)emu_self)->w->exited;
}
