/* The shared memory of a block, and asynchronous copies to it.
 *
 * Note [As late as allowed]. cp.async copies when its group is waited for; until then its
 * destination is 0xff, which is NaN. wgmma reads shared memory and writes its accumulators when its
 * group is waited for; until then they are NaN. So a missing wait shows in the values, without any
 * checker. */
#include "block.h"
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace emu
{
/* Addresses 0 to 1023 stay unused, as on a card. The dynamic part is aligned to 16 bytes and no
 * more, since the language promises no more. */
constexpr uint32_t FIRST_ADDRESS = 1024, DYNAMIC_AT = FIRST_ADDRESS + 16;

static uint32_t after(size_t end) /* 16 unused bytes follow each object */
{
    return (uint32_t)((end + 15) / 16 * 16 + 16);
}

void reset_shared_memory(worker *w)
{
#ifdef EMU_ASAN
    ASAN_POISON_MEMORY_REGION(w->window, SHARED_BYTES);
#endif
    memory_is_gone(w->window, SHARED_BYTES);
    w->n_sites = 0;
    w->dynamic_at = w->shared_top = DYNAMIC_AT;
    if (w->l.shared) {
        memory_is_new(w->window + w->dynamic_at, w->l.shared);
        w->shared_top = after(w->dynamic_at + w->l.shared);
    }
}

static void *place_object(worker *w, size_t bytes, size_t align)
{
    const size_t at = (w->shared_top + align - 1) / align * align;
    if (at + bytes - FIRST_ADDRESS > SHARED_LIMIT)
        report("%s: more than %zu bytes of shared memory", w->l.name, SHARED_LIMIT);
    memory_is_new(w->window + at, bytes);
    w->shared_top = after(at + bytes);
    return w->window + at;
}
} // namespace emu

using namespace emu;

void *emu_shared(const void *site, size_t bytes, size_t align)
{
    worker *w = me;
    for (int i = 0; i < w->n_sites; i++)
        if (w->sites[i].site == site)
            return w->sites[i].p;
    if (w->n_sites == MOST_SITES)
        report("%s: more than %d objects in shared memory", w->l.name, MOST_SITES);
    void *p = place_object(w, bytes, align < 16 ? 16 : align);
    w->sites[w->n_sites].site = site;
    w->sites[w->n_sites++].p = p;
    return p;
}

void *emu_shared_dynamic(void)
{
    return me->window + me->dynamic_at;
}

uint32_t emu_smem_addr(const void *p)
{
    const uintptr_t offset = (uintptr_t)p - (uintptr_t)me->window;
    if (offset >= SHARED_BYTES)
        report("%p is not in shared memory: %s", p, name_of_thread(me, me->current).c_str());
    return (uint32_t)offset;
}

void *emu_smem_pointer(uint32_t addr)
{
    if (addr >= SHARED_BYTES)
        report("%u is not a shared address: %s", addr, name_of_thread(me, me->current).c_str());
    return me->window + addr;
}

/* --- cp.async --- */

NO_ASAN void emu_cp_async(uint32_t dst, const void *src, int bytes, int valid)
{
    thread *t = (thread *)emu_self;
    const void *pc = __builtin_return_address(0);
    if (dst % (uint32_t)bytes || (uintptr_t)src % (uintptr_t)bytes)
        report("cp.async of %d bytes, not aligned: %s", bytes, name_of_thread(me, t).c_str());
    if (t->n_copies == MOST_COPIES)
        report("more than %d cp.async of a thread without a wait: %s", MOST_COPIES,
               name_of_thread(me, t).c_str());
    void *p = emu_smem_pointer(dst);
    touch(p, (size_t)bytes, WRITE | ASYNC, pc);
    if (valid)
        touch(src, (size_t)valid, READ | COPY, pc);
    memset(p, 0xff, (size_t)bytes);
    t->copies[t->n_copies++] = {p, src, bytes, valid, t->copy_group};
}

void emu_cp_async_commit(void)
{
    ((thread *)emu_self)->copy_group++;
}

NO_ASAN void emu_cp_async_wait(int pending)
{
    thread *t = (thread *)emu_self;
    const int first_pending = t->copy_group - pending;
    int n = 0;
    for (; n < t->n_copies && t->copies[n].group < first_pending; n++) {
        const async_copy *c = &t->copies[n];
        touch(c->dst, (size_t)c->bytes, WRITE, __builtin_return_address(0));
        if (c->valid) {
            memcpy(c->dst, c->src, (size_t)c->valid);
            copy_state(c->dst, c->src, (size_t)c->valid);
        }
        memset((char *)c->dst + c->valid, 0, (size_t)(c->bytes - c->valid));
    }
    t->n_copies -= n;
    memmove(t->copies, t->copies + n, (size_t)t->n_copies * sizeof t->copies[0]);
}
