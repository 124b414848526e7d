/* A small test framework. The files tests/FOLDER/test_x.c form one program. TEST and TEST_RANKS
 * register tests; test_main.c runs them and prints one line each. tests/run.sh starts the program
 * once for each file, so each file has a process of its own. A test's name states the property.
 *
 * TEST_RANKS(name, n) runs the body on n ranks, which are threads that use the threads transport,
 * so sharding runs under ASan and TSan. A failed ASSERT ends the function that contains it; a call
 * of a helper that asserts is followed by CHECK_HERE(). */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/base.h>
#include <fsdp/comm.h>

/* 1 under ThreadSanitizer, whose runtime has a thread of its own and slows down the code. */
#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#define UNDER_TSAN __has_feature(thread_sanitizer)
#else
#define UNDER_TSAN 0
#endif
/* 1 under AddressSanitizer. */
#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#elif defined(__has_feature)
#define UNDER_ASAN __has_feature(address_sanitizer)
#else
#define UNDER_ASAN 0
#endif
/* Sanitizers check memory accesses, so a few runs are enough. Tests for equal bits run without
 * them. */
#define UNDER_SANITIZER (UNDER_TSAN || UNDER_ASAN)

typedef struct fsdp_test {
    fsdp_group *group; /* NULL in TEST */
    int rank, world_size;
    bool failed, skipped;
} fsdp_test;

typedef void fsdp_test_fn(fsdp_test *t);
void fsdp_test_register(const char *file, const char *name, fsdp_test_fn *fn, int ranks);
FSDP_PRINTF(4, 5)
void fsdp_test_fail(fsdp_test *t, const char *file, int line, const char *format, ...);
FSDP_PRINTF(2, 3) void fsdp_test_skip(fsdp_test *t, const char *format, ...);
/* A new empty directory, removed when the test ends; the string is valid until then. All ranks get
 * the same directory. */
const char *fsdp_test_dir(fsdp_test *t);
/* A path below tests/, independent of the current directory. Static buffer per thread. */
const char *fsdp_test_path(const char *relative);

#define TEST_RANKS(name, n)                                                                        \
    static void name(fsdp_test *t);                                                                \
    __attribute__((constructor)) static void register_##name(void)                                 \
    {                                                                                              \
        fsdp_test_register(__FILE__, #name, name, n);                                              \
    }                                                                                              \
    static void name(__attribute__((unused)) fsdp_test *t)
#define TEST(name) TEST_RANKS(name, 0)

/* The name of the meta device that plans for the device of this run ($FSDP_DEVICE). */
static inline const char *fsdp_test_meta(void)
{
    const char *name = getenv("FSDP_DEVICE");
    return name && strncmp(name, "cuda", 4) == 0 ? "meta:cuda" : "meta";
}

#define SKIP(...)                                                                                  \
    do {                                                                                           \
        fsdp_test_skip(t, __VA_ARGS__);                                                            \
        return;                                                                                    \
    } while (0)
#define FAIL(...)                                                                                  \
    do {                                                                                           \
        fsdp_test_fail(t, __FILE__, __LINE__, __VA_ARGS__);                                        \
        return;                                                                                    \
    } while (0)
/* Use at the start of a test that reads CSV files. */
#ifdef FSDP_HAVE_CSV
#define NEEDS_LIBCSV() ((void)0)
#else
#define NEEDS_LIBCSV() SKIP("built without libcsv")
#endif
/* Use at the start of a test that reads a configuration file. */
#ifdef FSDP_HAVE_YAML
#define NEEDS_LIBYAML() ((void)0)
#else
#define NEEDS_LIBYAML() SKIP("built without libyaml")
#endif
/* Use at the start of a test that opens T5's SentencePiece model. */
#ifdef FSDP_HAVE_UTF8PROC
#define NEEDS_SENTENCEPIECE() ((void)0)
#else
#define NEEDS_SENTENCEPIECE() SKIP("built without utf8proc")
#endif
/* Use at the start of a test that reads or writes Arrow files. */
#ifdef FSDP_HAVE_FLATBUFFERS
#define NEEDS_FLATBUFFERS() ((void)0)
#else
#define NEEDS_FLATBUFFERS() SKIP("built without FlatBuffers")
#endif
/* Use after a helper that asserts: returns if it failed. */
#define CHECK_HERE()                                                                               \
    do {                                                                                           \
        if (t->failed)                                                                             \
            return;                                                                                \
    } while (0)
#define ASSERT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            FAIL("%s does not hold", #condition);                                                  \
    } while (0)
#define ASSERT_OK(call)                                                                            \
    do {                                                                                           \
        fsdp_status status_ = (call);                                                              \
        if (status_ != FSDP_OK)                                                                    \
            FAIL("%s: %s: %s", #call, fsdp_status_name(status_), fsdp_last_error());               \
    } while (0)
/* The call must fail with this status, and its message must contain `text`. */
#define ASSERT_ERROR(call, expected, text)                                                         \
    do {                                                                                           \
        fsdp_status status_ = (call);                                                              \
        if (status_ != (expected))                                                                 \
            FAIL("%s: %s instead of %s: %s", #call, fsdp_status_name(status_),                     \
                 fsdp_status_name(expected), status_ ? fsdp_last_error() : "");                    \
        if (!strstr(fsdp_last_error(), (text)))                                                    \
            FAIL("%s: the message lacks '%s': %s", #call, (text), fsdp_last_error());              \
    } while (0)
#define ASSERT_INT(actual, expected)                                                               \
    do {                                                                                           \
        long long actual_ = (long long)(actual), expected_ = (long long)(expected);                \
        if (actual_ != expected_)                                                                  \
            FAIL("%s is %lld, not %lld", #actual, actual_, expected_);                             \
    } while (0)
#define ASSERT_STR(actual, expected)                                                               \
    do {                                                                                           \
        const char *actual_ = (actual), *expected_ = (expected);                                   \
        if (!actual_ || strcmp(actual_, expected_) != 0)                                           \
            FAIL("%s is '%s', not '%s'", #actual, actual_ ? actual_ : "(null)", expected_);        \
    } while (0)
/* Equal to the last bit (0.0 equals -0.0). */
#define ASSERT_F32(actual, expected)                                                               \
    do {                                                                                           \
        double actual_ = (double)(actual), expected_ = (double)(expected);                         \
        if (!(actual_ == expected_))                                                               \
            FAIL("%s is %.9g, not %.9g", #actual, actual_, expected_);                             \
    } while (0)
#define ASSERT_NEAR(actual, expected, tolerance)                                                   \
    do {                                                                                           \
        double actual_ = (double)(actual), expected_ = (double)(expected);                         \
        if (!(fabs(actual_ - expected_) <= (double)(tolerance)))                                   \
            FAIL("%s is %.9g, not %.9g within %.3g", #actual, actual_, expected_,                  \
                 (double)(tolerance));                                                             \
    } while (0)
