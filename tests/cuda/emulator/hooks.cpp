/* The functions that code compiled with -fsanitize=thread calls, for the check build. They replace
 * those of libtsan. Atomics are checked by atomics.cpp; other atomics (std::atomic, the guards of
 * static variables) are only carried out. */
#ifdef EMU_CHECK
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "shadow.h"

using namespace emu;

#define PC __builtin_return_address(0)
#define BOTH(p, n)                                                                                 \
    do {                                                                                           \
        access_by_program(p, n, READ, PC);                                                         \
        access_by_program(p, n, WRITE, PC);                                                        \
    } while (0)
#define HOOK(name, n, flags)                                                                       \
    void __tsan_##name(void *p)                                                                    \
    {                                                                                              \
        access_by_program(p, n, flags, PC);                                                        \
    }
#define HOOK_BOTH(name, n)                                                                         \
    void __tsan_##name(void *p)                                                                    \
    {                                                                                              \
        BOTH(p, n);                                                                                \
    }
#define HOOKS(n)                                                                                   \
    HOOK(read##n, n, READ)                                                                         \
    HOOK(write##n, n, WRITE)                                                                       \
    HOOK(unaligned_read##n, n, READ)                                                               \
    HOOK(unaligned_write##n, n, WRITE)                                                             \
    HOOK(volatile_read##n, n, READ)                                                                \
    HOOK(volatile_write##n, n, WRITE)                                                              \
    HOOK(unaligned_volatile_read##n, n, READ)                                                      \
    HOOK(unaligned_volatile_write##n, n, WRITE)                                                    \
    HOOK_BOTH(read_write##n, n)                                                                    \
    HOOK_BOTH(unaligned_read_write##n, n)

#define ATOMIC_HOOKS(bits, T)                                                                      \
    T __tsan_atomic##bits##_load(const volatile T *p, int)                                         \
    {                                                                                              \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile T *p, T v, int)                                      \
    {                                                                                              \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                              \
    T __tsan_atomic##bits##_exchange(volatile T *p, T v, int)                                      \
    {                                                                                              \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                        \
    }                                                                                              \
    T __tsan_atomic##bits##_fetch_add(volatile T *p, T v, int)                                     \
    {                                                                                              \
        return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    T __tsan_atomic##bits##_fetch_sub(volatile T *p, T v, int)                                     \
    {                                                                                              \
        return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    T __tsan_atomic##bits##_fetch_or(volatile T *p, T v, int)                                      \
    {                                                                                              \
        return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);                                          \
    }                                                                                              \
    T __tsan_atomic##bits##_fetch_and(volatile T *p, T v, int)                                     \
    {                                                                                              \
        return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile T *p, T *expected, T v, int, int)   \
    {                                                                                              \
        return __atomic_compare_exchange_n(p, expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    }                                                                                              \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile T *p, T *expected, T v, int, int)     \
    {                                                                                              \
        return __atomic_compare_exchange_n(p, expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    }

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
ATOMIC_HOOKS(8, unsigned char)
ATOMIC_HOOKS(16, unsigned short)
ATOMIC_HOOKS(32, unsigned)
ATOMIC_HOOKS(64, unsigned long)

void __tsan_read_range(void *p, size_t n)
{
    access_by_program(p, n, READ, PC);
}
void __tsan_write_range(void *p, size_t n)
{
    access_by_program(p, n, WRITE, PC);
}
/* objcopy makes instrumented objects call these. */
void *__tsan_memcpy(void *dst, const void *src, size_t n)
{
    access_by_program(src, n, READ, PC);
    access_by_program(dst, n, WRITE, PC);
    return memcpy(dst, src, n);
}
void *__tsan_memmove(void *dst, const void *src, size_t n)
{
    access_by_program(src, n, READ, PC);
    access_by_program(dst, n, WRITE, PC);
    return memmove(dst, src, n);
}
void *__tsan_memset(void *dst, int byte, size_t n)
{
    access_by_program(dst, n, WRITE, PC);
    return memset(dst, byte, n);
}
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
void __tsan_atomic_thread_fence(int)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
}
#endif
