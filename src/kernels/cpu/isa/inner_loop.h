/* Note [Inner loops under sanitizers]. A sanitizer checks each load and each store. In a register
 * tile this takes ten times as long as the computation, and most of the time of sanitized tests
 * would be spent there. A function that is marked FSDP_INNER_LOOP is compiled without sanitizers;
 * every function that is inlined into it must be marked, too. Its caller first passes each range of
 * memory that the function will access to fsdp_check_read() or fsdp_check_write(), which find the
 * same faults: with ASan, an access outside of an allocation or to freed memory; with TSan, a race.
 * Without sanitizers, both do nothing. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
#define FSDP_INNER_LOOP __attribute__((no_sanitize("address"), no_sanitize("undefined")))
/* Return the first byte of [begin, begin + bytes) that may not be accessed, or NULL
 * (sanitizer/asan_interface.h). */
void *__asan_region_is_poisoned(void *begin, size_t bytes);

/* If the range has bytes that may not be accessed, access the first of them, so that ASan reports
 * it. */
static inline void fsdp_check_read(const void *begin, int64_t bytes)
{
    const volatile char *bad = __asan_region_is_poisoned((void *)(uintptr_t)begin, (size_t)bytes);
    if (bad)
        (void)*bad;
}

static inline void fsdp_check_write(void *begin, int64_t bytes)
{
    volatile char *bad = __asan_region_is_poisoned(begin, (size_t)bytes);
    if (bad)
        *bad = 0;
}

#elif defined(__SANITIZE_THREAD__)
#define FSDP_INNER_LOOP __attribute__((no_sanitize("thread")))
/* Functions of TSan that no header declares. The compiler itself calls them for accesses to large
 * objects. */
void __tsan_read_range(void *begin, unsigned long bytes);
void __tsan_write_range(void *begin, unsigned long bytes);

static inline void fsdp_check_read(const void *begin, int64_t bytes)
{
    __tsan_read_range((void *)(uintptr_t)begin, (unsigned long)bytes);
}

static inline void fsdp_check_write(void *begin, int64_t bytes)
{
    __tsan_write_range(begin, (unsigned long)bytes);
}

#else
#define FSDP_INNER_LOOP

static inline void fsdp_check_read(const void *begin, int64_t bytes)
{
    (void)begin;
    (void)bytes;
}

static inline void fsdp_check_write(void *begin, int64_t bytes)
{
    (void)begin;
    (void)bytes;
}
#endif
