/* Implements fake_memory_testing.h. */
#include "src/tensor/fake_memory_testing.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"

enum {
    MOST_RANGES = 256
};

/* A range of addresses that belongs to a fake memory. All ranges of this process are in an array
 * that never moves, because the handler of faults reads them. */
typedef struct range {
    fsdp_fake_memory *memory; /* NULL: this entry of the array is free */
    char *base;
    size_t bytes;
    size_t begin, end; /* only bytes [begin, end) of the address range are backed by memory */
} range;

struct fsdp_fake_memory {
    int n_open;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static range ranges[MOST_RANGES]; /* protected by the lock */
static struct sigaction before;

/* --- faults --- */

static bool is_in(const range *r, const void *address)
{
    const uintptr_t at = (uintptr_t)address, base = (uintptr_t)r->base;
    return r->memory && at >= base && at - base < r->bytes;
}

/* Handle a fault: write a message if the address is in a range. The handler cannot take the lock,
 * so another thread may be changing a range. This does no harm, because only the message depends on
 * the ranges. */
__attribute__((no_sanitize("thread"))) static void on_fault(int number, siginfo_t *info,
                                                            void *context)
{
    static const char message[] = "the host dereferences device memory\n";
    (void)context;
    for (int i = 0; i < MOST_RANGES; i++)
        if (is_in(&ranges[i], info->si_addr) &&
            write(STDERR_FILENO, message, sizeof message - 1) < 0)
            break;
    /* when this handler returns, the access is repeated, and the previous handler gets the fault */
    sigaction(number, &before, NULL);
}

static void install_handler(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &before);
}

/* --- protection --- */

static void protect(const range *r, size_t begin, size_t end, bool is_open)
{
    if (begin < end &&
        mprotect(r->base + begin, end - begin, is_open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
        fsdp_assert_failed("the system protects pages", __FILE__, __LINE__);
}

static void protect_all(const fsdp_fake_memory *m)
{
    for (int i = 0; i < MOST_RANGES; i++)
        if (ranges[i].memory == m)
            protect(&ranges[i], ranges[i].begin, ranges[i].end, m->n_open > 0);
}

void fsdp_fake_memory_open(void *memory)
{
    fsdp_fake_memory *m = memory;
    pthread_mutex_lock(&lock);
    if (m->n_open++ == 0)
        protect_all(m);
    pthread_mutex_unlock(&lock);
}

void fsdp_fake_memory_close(void *memory)
{
    fsdp_fake_memory *m = memory;
    pthread_mutex_lock(&lock);
    FSDP_ASSERT(m->n_open > 0);
    if (--m->n_open == 0)
        protect_all(m);
    pthread_mutex_unlock(&lock);
}

/* --- the source --- */

static fsdp_status add_range(const range *added)
{
    for (int i = 0; i < MOST_RANGES; i++) {
        if (ranges[i].memory)
            continue;
        ranges[i] = *added;
        return FSDP_OK;
    }
    return fsdp_error(FSDP_ERR_NOMEM, "device fake: more than %d ranges of memory", MOST_RANGES);
}

static fsdp_status reserve(void *self, size_t bytes, void **base)
{
    const fsdp_memory_source host = fsdp_host_memory_source();
    FSDP_TRY(host.reserve(host.self, bytes, base));
    pthread_mutex_lock(&lock);
    const fsdp_status status = add_range(&(range){.memory = self, .base = *base, .bytes = bytes});
    pthread_mutex_unlock(&lock);
    if (status != FSDP_OK)
        host.release(host.self, *base, bytes);
    return status;
}

/* Back the addresses [at, at + bytes) with memory. The part of a range that has memory grows at
 * both ends. */
static fsdp_status commit(void *self, void *at, size_t bytes)
{
    const fsdp_fake_memory *m = self;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_RANGES; i++) {
        range *r = &ranges[i];
        if (!is_in(r, at))
            continue;
        const size_t begin = (size_t)((char *)at - r->base), end = begin + bytes;
        FSDP_ASSERT(r->begin == r->end || r->begin == end || r->end == begin);
        protect(r, begin, end, m->n_open > 0);
        if (r->begin == r->end)
            r->begin = r->end = begin;
        r->begin = begin < r->begin ? begin : r->begin;
        r->end = end > r->end ? end : r->end;
    }
    pthread_mutex_unlock(&lock);
    return FSDP_OK;
}

static void release(void *self, void *base, size_t bytes)
{
    const fsdp_memory_source host = fsdp_host_memory_source();
    (void)self;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_RANGES; i++)
        if (ranges[i].base == base)
            ranges[i] = (range){0};
    pthread_mutex_unlock(&lock);
    host.release(host.self, base, bytes);
}

fsdp_memory_source fsdp_fake_memory_source(fsdp_fake_memory *m)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    fsdp_memory_source source = fsdp_host_memory_source();
    if (source.blocks_are_alone)
        return source;
    pthread_once(&once, install_handler);
    source.reserve = reserve;
    source.commit = commit;
    source.release = release;
    source.self = m;
    return source;
}

fsdp_status fsdp_fake_memory_create(fsdp_fake_memory **memory)
{
    *memory = fsdp_calloc(1, sizeof **memory);
    return *memory ? FSDP_OK : FSDP_ERR_NOMEM;
}

void fsdp_fake_memory_destroy(fsdp_fake_memory *m)
{
    fsdp_free(m);
}
