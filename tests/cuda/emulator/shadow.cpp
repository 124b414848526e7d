/* What watches memory in the check build.
 *
 * Note [Shadow]. For 4 bytes of the arena there is a byte of state (a bit for each byte: allocated?
 * written?) and a cell: the last write, and two reads by different threads. An access is an error
 * if the memory is not allocated, is read before it was written, or meets an access of the cell,
 * one of the two a write, without an order between them. Order is
 *   in a block      a __syncthreads, or in a warp a __syncwarp, in between; program order
 *   between blocks  none (the blocks of a kernel share data by atomics only)
 *   between ops     the order of streams, and events: Note [Order of ops] in history.h
 *   host and ops    an op begins after what the host did before it enqueued the op; the host knows
 *                   that an op has ended only after it waited for it
 * So a missing wait is found in whatever order things really ran. No false reports are known. Two
 * things are missed: different threads that write neighboring bytes of 4 overwrite each other's
 * note, and the note of a third reader is lost.
 *
 * Note [Proxies]. wgmma reads shared memory by the async proxy: it sees a thread's ordinary writes
 * (and its cp.async) only after that thread's fence.proxy.async. Each write notes the number of
 * fences that its thread had made. */
#ifdef EMU_CHECK
#include "shadow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "block.h"
#include "history.h"
#include "memory.h"
#include "stream.h"

extern "C" char __executable_start, _end;

namespace emu
{
/* An access. `op` is 0 if there was none, or BY_HOST. */
struct note {
    uint32_t op;
    uint32_t block; /* NO_BLOCK: not in a kernel */
    uint32_t pc;    /* relative to the program's start; 0 is unknown */
    uint32_t
        barriers; /* number of barriers of the worker; for the host, the number of ops so far */
    uint16_t thread, syncs, proxy_fences;
    uint8_t bytes; /* a mask of the cell's 4 */
    uint8_t flags;
};
struct cell {
    note write, reads[2];
};
constexpr uint32_t BY_HOST = ~0u, NO_BLOCK = ~0u;

constexpr uintptr_t STATES = 0x380000000000, CELLS = 0x400000000000;
constexpr uintptr_t STATES_BYTES = ARENA_BYTES / 4, CELLS_BYTES = ARENA_BYTES / 4 * sizeof(cell);
static_assert(CELLS + CELLS_BYTES < 0x555555554000, "the cells end before the program begins");

static uint8_t *state_of(uintptr_t at) /* bits 0 to 3: allocated; 4 to 7: written */
{
    return (uint8_t *)(STATES + (at - ARENA) / 4);
}
static cell *cell_of(uintptr_t at)
{
    return (cell *)(CELLS + (at - ARENA) / 4 * sizeof(cell));
}

__attribute__((constructor(101))) static void map_shadow(void)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    const int access = PROT_READ | PROT_WRITE;
    if (mmap((void *)STATES, STATES_BYTES, access, flags, -1, 0) == MAP_FAILED ||
        mmap((void *)CELLS, CELLS_BYTES, access, flags, -1, 0) == MAP_FAILED) {
        perror("== emulator: no address space for the shadow");
        exit(1);
    }
}

/* --- reports --- */

static std::string author(const note &n)
{
    char text[300];
    const std::string line = n.pc ? source_line(&__executable_start + n.pc) : "";
    if (n.op == BY_HOST)
        return "the host" + line;
    if (n.block == NO_BLOCK)
        return op_text(n.op);
    snprintf(text, sizeof text, "%s block %u thread %u%s%s", op_name(n.op).c_str(), n.block,
             n.thread, n.flags & WARP_WIDE ? " (its warp)" : "",
             n.flags & ATOMIC ? " (atomic)" : "");
    return text + line;
}

static void complain(const char *what, uintptr_t at, const note &now, const note *before)
{
    std::string text = "\n   now: " + author(now);
    if (before)
        text += "\n   before: " + author(*before);
    report("%s: %s%s", what, describe((void *)at).c_str(), text.c_str());
}

/* --- order --- */

/* Accesses of two ops. Locks and clocks cost time, so the last pair with an order is kept. */
static const char *unordered_ops(const note &a, const note &b)
{
    static thread_local uint32_t ordered_a, ordered_b;
    if (ordered_a == a.op && ordered_b == b.op)
        return NULL;
    if (!op_before_op(a.op, b.op))
        return "race: no event or stream order between two ops";
    ordered_a = a.op;
    ordered_b = b.op;
    return NULL;
}

/* Return what is wrong if nothing orders the access a before the access b; NULL if all is well. */
static const char *unordered(const note &a, const note &b, bool is_shared_memory)
{
    if (!a.op || !(a.bytes & b.bytes) || (a.flags & b.flags & ATOMIC))
        return NULL;
    if (a.op == BY_HOST)
        return b.op != BY_HOST && a.barriers >= b.op ? "race: the host touched what a late op uses"
                                                     : NULL;
    if (b.op == BY_HOST)
        return op_before_host(a.op) ? NULL : "race: the host did not wait for this op";
    if (a.op != b.op)
        return is_shared_memory ? NULL : unordered_ops(a, b);
    if (a.block != b.block)
        return is_shared_memory ? NULL : "race between two blocks of a kernel";
    if (a.block == NO_BLOCK || a.thread == b.thread || a.barriers != b.barriers)
        return NULL;
    if (a.thread / 32 == b.thread / 32 && (a.syncs != b.syncs || a.flags & WARP_WIDE))
        return NULL;
    return is_shared_memory ? "race in shared memory: no barrier between two threads"
                            : "race in device memory: no barrier between two threads";
}

/* --- one access --- */

static note describe_access(int flags, const void *pc)
{
    const thread *t = (const thread *)emu_self;
    note n = {};
    n.flags = (uint8_t)(flags & (ATOMIC | ASYNC | WARP_WIDE));
    n.pc = pc ? (uint32_t)((const char *)pc - &__executable_start) : 0;
    n.block = NO_BLOCK;
    if (!current_op) {
        n.op = BY_HOST;
        n.barriers = ops_so_far();
        return n;
    }
    n.op = current_op;
    if (t) {
        n.block = me->block_number;
        n.barriers = me->barriers;
        n.thread = (uint16_t)t->index;
        n.syncs = t->w->syncs;
        n.proxy_fences = t->proxy_fences;
    }
    return n;
}

static void check_place(uintptr_t at, const note &n, bool is_write)
{
    const int device = device_of((void *)at);
    if (n.op == BY_HOST && device != HOST_PINNED)
        complain(is_write ? "the host writes device memory" : "the host reads device memory", at, n,
                 NULL);
    if (n.block != NO_BLOCK && device >= 0 && device != current_device())
        complain("a kernel touches another device's memory", at, n, NULL);
}

static bool is_of_same_block(const note &a, const note &b)
{
    return a.op == b.op && a.block == b.block;
}

/* Check that the bytes of the cell may be accessed at all. */
static void check_contents(uintptr_t at, const note &n, int flags)
{
    const bool is_write = (flags & WRITE) != 0; /* an atomic also reads */
    const uint8_t state = *state_of(at);
    const note &last = cell_of(at)->write;
    if ((state & n.bytes) != n.bytes)
        complain(is_write ? "write out of bounds" : "read out of bounds", at, n, NULL);
    else if (!is_write && !(flags & COPY) && (state >> 4 & n.bytes) != n.bytes &&
             !(last.op == n.op && last.flags & ASYNC))
        complain("read of memory that was never written", at, n, NULL);
    if (!is_write && is_of_same_block(last, n) && last.flags & ASYNC && last.bytes & n.bytes)
        complain("read of shared memory while a cp.async to it is under way", at, n, &last);
    if (flags & PROXY && is_of_same_block(last, n) &&
        last.proxy_fences == me->threads[last.thread].proxy_fences)
        complain("wgmma reads what was written without a fence.proxy.async by the writer", at, n,
                 &last);
}

/* Compare the access with those of the cell, then note it. */
static void check_order(uintptr_t at, const note &n, bool is_write)
{
    cell *c = cell_of(at);
    const bool is_shared_memory = at >= WINDOWS;
    const note *other = &c->write;
    const char *wrong = unordered(*other, n, is_shared_memory);
    for (int i = 0; is_write && !wrong && i < 2; i++) {
        other = &c->reads[i];
        wrong = unordered(*other, n, is_shared_memory);
    }
    if (wrong)
        complain(wrong, at, n, other);
    if (is_write) {
        c->write = n;
        if (!(n.flags & ASYNC))
            *state_of(at) |= (uint8_t)(n.bytes << 4);
        return;
    }
    /* A note may be overwritten if its access is surely before this one. */
    c->reads[unordered(c->reads[0], n, is_shared_memory) ? 1 : 0] = n;
}

void touch(const void *p, size_t n, int flags, const void *pc)
{
    if (!is_in_arena(p))
        return;
    const bool is_write = (flags & (WRITE | ATOMIC)) != 0;
    note access = describe_access(flags, pc);
    uintptr_t at = (uintptr_t)p;
    check_place(at, access, is_write);
    for (const uintptr_t end = at + n; at < end;) {
        const unsigned first = at % 4;
        const unsigned bytes = (unsigned)(end - at < 4 - first ? end - at : 4 - first);
        access.bytes = (uint8_t)(((1u << bytes) - 1) << first);
        check_contents(at, access, flags);
        check_order(at, access, is_write);
        at += bytes;
    }
}

void access_by_program(const void *p, size_t n, int flags, const void *pc)
{
    if (is_in_arena(p)) {
        touch(p, n, flags, pc);
        return;
    }
    if (!emu_self)
        return;
    /* A kernel may use its stack, its parameters, and constants of the program. */
    const uintptr_t at = (uintptr_t)p;
    const bool is_own = at - INTERNAL < WORKERS * INTERNAL_SLOT ||
                        (at >= (uintptr_t)&__executable_start && at < (uintptr_t)&_end) ||
                        at - (uintptr_t)me->stack_bottom < me->stack_size;
    if (!is_own && !is_registered(p, n))
        report("a kernel touches the host's memory (%p): %s%s", p, me->l.name,
               source_line(pc).c_str());
}

/* --- the state of memory --- */

static void set_state(void *p, size_t n, uint8_t low_bits, uint8_t high_bits)
{
    for (uintptr_t at = (uintptr_t)p, end = at + n; at < end;) {
        if (at % 4 == 0 && end - at >= 4) {
            const size_t words = (end - at) / 4;
            memset(state_of(at), low_bits | high_bits, words);
            at += words * 4;
            continue;
        }
        const uint8_t bit = (uint8_t)(0x11 << at % 4);
        uint8_t *s = state_of(at);
        *s = (uint8_t)((*s & ~bit) | (bit & (low_bits | high_bits)));
        at++;
    }
}

void memory_is_new(void *p, size_t n)
{
    set_state(p, n, 0x0f, 0);
    memset(p, 0xff, n);
}

void memory_is_known(void *p, size_t n)
{
    set_state(p, n, 0x0f, 0xf0);
}

void memory_is_gone(void *p, size_t n)
{
    set_state(p, n, 0, 0);
}

void copy_state(void *dst, const void *src, size_t n)
{
    const uintptr_t to = (uintptr_t)dst, from = (uintptr_t)src;
    if (!is_in_arena(dst) || !is_in_arena(src))
        return;
    for (size_t i = 0; i < n; i++)
        if (!(*state_of(from + i) >> (4 + (from + i) % 4) & 1))
            *state_of(to + i) &= (uint8_t) ~(0x10 << (to + i) % 4);
}

/* Memory that was never written may be copied: buffers have gaps. */
void copy_bytes(void *dst, const void *src, size_t n)
{
    touch(dst, n, WRITE);
    touch(src, n, READ | COPY);
    memmove(dst, src, n);
    copy_state(dst, src, n);
}
} // namespace emu
#endif
