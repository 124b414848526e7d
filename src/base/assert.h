/* Asserts are for bugs in this code. Errors (fsdp_status in fsdp/base.h) are for bad input and
 * system failures. */
#pragma once

_Noreturn void fsdp_assert_failed(const char *expression, const char *file, int line);

/* FSDP_ASSERT is checked in all builds, including release builds. */
#define FSDP_ASSERT(expression)                                                                    \
    ((expression) ? (void)0 : fsdp_assert_failed(#expression, __FILE__, __LINE__))

/* FSDP_DEBUG_ASSERT is for inner loops. It is checked only in debug builds (make DEBUG=1, asan,
 * tsan). */
#ifdef FSDP_DEBUG
#define FSDP_DEBUG_ASSERT(expression) FSDP_ASSERT(expression)
#else
#define FSDP_DEBUG_ASSERT(expression) ((void)0)
#endif

#define FSDP_LENGTH(array) (sizeof(array) / sizeof((array)[0]))
