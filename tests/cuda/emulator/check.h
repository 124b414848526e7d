/* Reports, and what watches accesses to memory. There are three builds of the emulator:
 *   plain  only the values (fresh memory is NaN) and pages that fault
 *   asan   kernels and host code are compiled with -fsanitize=address, which finds accesses out of
 *          bounds by poisoned redzones (check.cpp)
 *   check  kernels and host code are compiled with -fsanitize=thread but linked with hooks.cpp
 *          instead of libtsan, so that each load and store is compared with the shadow memory of
 *          shadow.cpp; EMU_CHECK is defined */
#pragma once
#include <stddef.h>
#include <string>

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
/* For functions of the emulator that touch poisoned memory on purpose, or that switch stacks. */
#ifdef EMU_ASAN
#define NO_ASAN __attribute__((no_sanitize_address))
#else
#define NO_ASAN
#endif

namespace emu
{
#ifdef EMU_CHECK
constexpr bool is_check_build = true;
#else
constexpr bool is_check_build = false;
#endif
#if defined(EMU_ASAN) || defined(EMU_CHECK)
constexpr bool checks_bounds = true;
#else
constexpr bool checks_bounds = false;
#endif

/* Print a report and end the process with exit code 66. With EMU_CONTINUE=1 it returns, and with
 * EMU_ABORT=1 it aborts, for a debugger. */
void report(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* " at file:line < file:line ..." of the return address pc; empty if it is not in the program. */
std::string source_line(const void *pc);

/* Flags of an access. */
enum {
    READ = 0,
    WRITE = 1,
    ATOMIC = 2,
    ASYNC = 4,     /* a cp.async that has only begun */
    WARP_WIDE = 8, /* by a whole warp, so it is ordered with all of the warp's lanes */
    PROXY = 16,    /* by the async proxy: Note [Proxies] in shadow.cpp */
    COPY = 32      /* memory that was never written may be read */
};
/* Check an access of n bytes at p. pc is a return address in the code that made it, or NULL. */
void touch(const void *p, size_t n, int flags, const void *pc = NULL);
/* n bytes at p were allocated and not written: fill them with 0xff, which is NaN in every type. */
void memory_is_new(void *p, size_t n);
/* n bytes at p are allocated and have contents (those of another process). */
void memory_is_known(void *p, size_t n);
void memory_is_gone(void *p, size_t n);
/* Bytes of src that were never written make the bytes of dst count as never written. */
void copy_state(void *dst, const void *src, size_t n);
/* memmove with the checks of both sides. */
void copy_bytes(void *dst, const void *src, size_t n);
} // namespace emu
