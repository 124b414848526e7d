/* Asserts are for bugs in this code. Errors (status.h) are for bad input and failures of the
 * system. */
#pragma once

_Noreturn void fsdp_assert_failed(const char *expression, const char *file, int line);

/* Also checked in release builds. */
#define FSDP_ASSERT(expression)                                                                    \
    ((expression) ? (void)0 : fsdp_assert_failed(#expression, __FILE__, __LINE__))

/* For inner loops: only in debug builds (make DEBUG=1, asan, tsan). */
#ifdef FSDP_DEBUG
#define FSDP_DEBUG_ASSERT(expression) FSDP_ASSERT(expression)
#else
#define FSDP_DEBUG_ASSERT(expression) ((void)0)
#endif

#define FSDP_LENGTH(array) (sizeof(array) / sizeof((array)[0]))
