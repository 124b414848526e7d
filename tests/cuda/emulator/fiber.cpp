/* The CUDA threads of a block as fibers of one OS thread, and which of them runs next.
 *
 * Note [Order of threads]. A thread runs until it must wait, so it runs as far ahead of the others
 * as the barriers let it. This is the order that suffers most from a missing barrier. The next
 * thread is the one that became ready first, or a random one if EMU_SEED is set. */
#include <stdio.h>
#include <stdlib.h>

#include "block.h"
#include "settings.h"
#ifdef EMU_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

__thread emu_thread *emu_self __attribute__((tls_model("initial-exec")));

namespace emu
{
/* --- switching (x86-64) --- */

/* Push the registers that a function must keep, store the stack pointer in *save, and continue at
 * the stack pointer `load`. */
extern "C" void emu_switch_stacks(void **save, void *load);
__asm__(".text\n.globl emu_switch_stacks\n.type emu_switch_stacks,@function\n"
        "emu_switch_stacks:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size emu_switch_stacks,.-emu_switch_stacks\n");

NO_ASAN void switch_to(thread *from, thread *to, bool from_ends)
{
    worker *w = me;
    w->current = to;
    emu_self = to;
#ifdef EMU_ASAN
    void **fake_stack = from_ends ? NULL : from ? &from->fake_stack : &w->fake_stack;
    __sanitizer_start_switch_fiber(fake_stack, to ? to->stack : w->stack_bottom,
                                   to ? STACK_BYTES : w->stack_size);
#else
    (void)from_ends;
#endif
    emu_switch_stacks(from ? &from->sp : &w->sp, to ? to->sp : w->sp);
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(from ? from->fake_stack : w->fake_stack, NULL, NULL);
#endif
}

/* The first function of a fiber. */
NO_ASAN static void fiber_main(void)
{
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
    worker *w = me;
    thread *t = w->current;
    w->l.run(w->l.call);
    finish_thread(t);
    switch_to(t, next_ready(w), true);
}

NO_ASAN void prepare_fiber(thread *t)
{
    /* Six registers, the address to continue at, and a return address of 0. */
    void **sp = (void **)(t->stack + STACK_BYTES) - 8;
    for (int i = 0; i < 8; i++)
        sp[i] = NULL;
    sp[6] = (void *)fiber_main;
    t->sp = sp;
}

/* --- which thread runs next --- */

uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

std::string name_of_thread(const worker *w, const thread *t)
{
    char text[200];
    snprintf(text, sizeof text, "%s, block (%u,%u,%u) thread (%u,%u,%u)", w->l.name, w->at.x,
             w->at.y, w->at.z, t->thread_idx.x, t->thread_idx.y, t->thread_idx.z);
    return text;
}

/* Report which threads wait where, and end the process: no thread can run. */
static void report_deadlock(const worker *w)
{
    std::string text;
    int last;
    for (int i = 0, lines = 0; i < w->n_threads && lines < 12; i = last + 1, lines++) {
        const thread *t = &w->threads[i];
        last = i;
        while (last + 1 < w->n_threads && w->threads[last + 1].state == t->state &&
               w->threads[last + 1].line == t->line)
            last++;
        char line[300];
        if (t->state == DONE)
            snprintf(line, sizeof line, "\n   threads %d to %d: ended", i, last);
        else
            snprintf(line, sizeof line, "\n   threads %d to %d: wait at %s:%d (%s)", i, last,
                     t->file, t->line, t->state == AT_BLOCK ? "__syncthreads" : t->op);
        text += line;
    }
    report("deadlock in %s, block (%u,%u,%u)%s", w->l.name, w->at.x, w->at.y, w->at.z,
           text.c_str());
    _Exit(66);
}

void make_ready(thread *t)
{
    worker *w = me;
    t->state = READY;
    w->queue[(w->queue_head + w->n_queued++) % MOST_THREADS] = t->index;
}

/* Return the next thread that can run, or NULL if all have ended. */
thread *next_ready(worker *w)
{
    if (!w->n_queued) {
        if (w->n_alive)
            report_deadlock(w);
        return NULL;
    }
    int *first = &w->queue[w->queue_head];
    if (settings.seed) {
        const int i = (int)(next_random(&w->random) % (uint64_t)w->n_queued);
        std::swap(*first, w->queue[(w->queue_head + i) % MOST_THREADS]);
    }
    w->queue_head = (w->queue_head + 1) % MOST_THREADS;
    w->n_queued--;
    return &w->threads[*first];
}

void wait_in_state(thread *t, thread_state state)
{
    t->state = state;
    switch_to(t, next_ready(me), false);
}
} // namespace emu
