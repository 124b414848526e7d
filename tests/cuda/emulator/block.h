/* A running kernel: its blocks, warps and CUDA threads, which are fibers. A worker has the memory
 * that one stream needs to run kernels; each worker is used by one OS thread at a time. */
#pragma once
#include "check.h"
#include "emu.h"

namespace emu
{
constexpr size_t STACK_BYTES = 256 << 10;
constexpr size_t SHARED_BYTES = 256 << 10; /* addresses of shared memory */
constexpr size_t SHARED_LIMIT = 232448;    /* bytes that a block may use, as on an H100 */
constexpr int MOST_THREADS = 1024, MOST_COPIES = 512, MOST_PRODUCTS = 64, MOST_SITES = 32;

/* A cp.async that was not waited for. */
struct async_copy {
    void *dst;
    const void *src;
    int bytes, valid, group;
};
/* A wgmma that was not waited for. */
struct async_product {
    float *c;
    int n, add, trans_b, group;
    bool is_f16;
    bool is_first;     /* the first under way with this c */
    bool in_registers; /* A is in `a`, not at a_desc */
    uint32_t a[4];
    uint64_t a_desc, b_desc;
    float old[128]; /* the accumulators before, if is_first */
};

struct warp;
enum thread_state {
    READY,
    AT_WARP,  /* waits in an operation of its warp */
    AT_BLOCK, /* waits in __syncthreads */
    DONE
};
struct thread : emu_thread {
    void *sp;         /* its stack pointer while it does not run */
    void *fake_stack; /* ASan's */
    char *stack;
    warp *w;
    int index, lane;
    thread_state state;
    const char *file; /* where it waits */
    int line;
    /* The operation of the warp that it takes part in. */
    unsigned mask;
    const char *op;
    void *io; /* arguments and results of this lane */
    void (*combine)(warp *, unsigned);
    /* Asynchronous copies and products under way. */
    const void *pc; /* the place of the last wgmma wait */
    int n_copies, copy_group, n_products, product_group;
    bool fenced;           /* there was a wgmma.fence since the last wait */
    uint16_t proxy_fences; /* number of fence.proxy.async */
    async_copy copies[MOST_COPIES];
    async_product products[MOST_PRODUCTS];
};
struct warp {
    thread *lane[32];
    unsigned arrived, exited; /* masks of lanes */
    uint16_t syncs;           /* number of __syncwarp */
};

struct launch {
    const char *name;
    dim3 grid, block;
    size_t shared;
    void (*run)(const void *);
    alignas(16) char call[4096];
};

struct worker {
    launch l;
    uint3 at; /* the index of the running block */
    uint32_t block_number;
    uint32_t barriers; /* barriers so far, over all blocks */
    thread *current;
    int n_threads, n_alive, n_at_barrier;
    int votes, last_votes; /* at the barrier that is filling, and at the last one */
    int queue[MOST_THREADS], queue_head, n_queued; /* threads that are ready, a ring */
    void *sp, *fake_stack;                         /* the scheduler, while it does not run */
    const void *stack_bottom;                      /* the stack of the OS thread */
    size_t stack_size;
    /* Shared memory, aligned so that offsets into it are shared addresses. */
    char *window;
    uint32_t shared_top, dynamic_at;
    struct {
        const void *site;
        void *p;
    } sites[MOST_SITES];
    int n_sites;
    uint64_t random;
    warp warps[MOST_THREADS / 32];
    thread threads[MOST_THREADS];
};
extern thread_local worker *me; /* the worker of this OS thread; NULL if it has run no kernel yet */

/* block.cpp */
worker *make_worker(int index);
void adopt_worker(worker *w); /* by the OS thread that will use it */
void run_kernel(worker *w);   /* runs w->l */
void finish_thread(thread *t);

/* fiber.cpp */
void switch_to(thread *from, thread *to, bool from_ends); /* NULL is the scheduler */
void prepare_fiber(thread *t);
void make_ready(thread *t);
thread *next_ready(worker *w);
void wait_in_state(thread *t, thread_state state);
std::string name_of_thread(const worker *w, const thread *t);

/* warp.cpp */
void open_barrier(worker *w, const thread *self);
void finish_warp_operation(warp *w, unsigned lanes, const thread *self);
/* All lanes of `mask` call this; the last one calls `combine` for all of them. */
void warp_collective(const char *op, unsigned mask, void *io, void (*combine)(warp *, unsigned),
                     const char *file, int line);
/* The same for instructions that are .aligned: all 32 lanes. */
void whole_warp(const char *op, void *io, void (*combine)(warp *, unsigned));

/* shared_memory.cpp */
void reset_shared_memory(worker *w);

uint64_t next_random(uint64_t *state);
} // namespace emu
