/* Implements fake_memory_testing.h. */
#include "src/tensor/fake_memory_testing.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
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
    bool has_key; /* its pages have the protection key */
    int n_open;   /* how many more times open than close was called; not used with the key */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static range ranges[MOST_RANGES]; /* protected by the lock */
static struct sigaction before;
/* The protection key of fake memories, or -1 if the processor or the system has none. */
static int key = -1;
/* for memories with the key: how many more times this thread has called open than close */
static _Thread_local int n_open_by_thread;

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
    if (begin >= end)
        return;
    const int open = PROT_READ | PROT_WRITE;
    const int failed = r->memory->has_key
                           ? pkey_mprotect(r->base + begin, end - begin, open, key)
                           : mprotect(r->base + begin, end - begin, is_open ? open : PROT_NONE);
    if (failed)
        fsdp_assert_failed("the system protects pages", __FILE__, __LINE__);
}

static void set_rights_of_thread(unsigned rights)
{
    if (pkey_set(key, rights) != 0)
        fsdp_assert_failed("the thread changes its rights", __FILE__, __LINE__);
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
    if (m->has_key) {
        if (n_open_by_thread++ == 0)
            set_rights_of_thread(0);
        return;
    }
    pthread_mutex_lock(&lock);
    if (m->n_open++ == 0)
        protect_all(m);
    pthread_mutex_unlock(&lock);
}

void fsdp_fake_memory_close(void *memory)
{
    fsdp_fake_memory *m = memory;
    if (m->has_key) {
        FSDP_ASSERT(n_open_by_thread > 0);
        if (--n_open_by_thread == 0)
            set_rights_of_thread(PKEY_DISABLE_ACCESS);
        return;
    }
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
    fsdp_memory_source source = fsdp_host_memory_source();
    if (source.blocks_are_alone)
        return source;
    source.reserve = reserve;
    source.commit = commit;
    source.release = release;
    source.self = m;
    return source;
}

static void prepare_process(void)
{
    install_handler();
    key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
}

fsdp_status fsdp_fake_memory_create(fsdp_fake_memory **memory)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *wanted = getenv("FSDP_FAKE_KEY");
    fsdp_fake_memory *m = fsdp_calloc(1, sizeof *m);
    if (!m)
        return FSDP_ERR_NOMEM;
    if (!fsdp_host_memory_source().blocks_are_alone)
        pthread_once(&once, prepare_process);
    m->has_key = key >= 0 && !(wanted && strcmp(wanted, "0") == 0);
    *memory = m;
    return FSDP_OK;
}

void fsdp_fake_memory_destroy(fsdp_fake_memory *m)
{
    fsdp_free(m);
}
