/* Runs the tests of one program: prints "ok name" or "FAIL name: where: what", and closes with
 * the line "N passed, N failed" that tests/run.sh adds up. Arguments: substrings of names. */
#include <ftw.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/assert.h"
#include "src/base/clock.h"
#include "tests/test.h"

enum {
    MAX_TESTS = 512,
    MAX_RANKS = 16
};

static struct {
    const char *name;
    fsdp_test_fn *fn;
    int ranks;
} tests[MAX_TESTS];
static int n_tests;
static pthread_mutex_t print_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *running;
static pthread_mutex_t directory_lock = PTHREAD_MUTEX_INITIALIZER;
static char directory[64]; /* made under the lock; "" while there is none */

void fsdp_test_register(const char *name, fsdp_test_fn *fn, int ranks)
{
    FSDP_ASSERT(n_tests < MAX_TESTS);
    tests[n_tests].name = name;
    tests[n_tests].fn = fn;
    tests[n_tests++].ranks = ranks;
}

void fsdp_test_fail(fsdp_test *t, const char *file, int line, const char *format, ...)
{
    va_list args;
    pthread_mutex_lock(&print_lock);
    printf("FAIL %s: %s:%d: ", running, file, line);
    if (t->world_size > 1)
        printf("rank %d: ", t->rank);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    pthread_mutex_unlock(&print_lock);
    t->failed = true;
}

void fsdp_test_skip(fsdp_test *t, const char *format, ...)
{
    va_list args;
    t->skipped = true;
    if (t->rank > 0)
        return;
    printf("skip %s: ", running);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

const char *fsdp_test_dir(fsdp_test *t)
{
    pthread_mutex_lock(&directory_lock);
    if (!directory[0]) {
        char made[] = "/tmp/fsdp-test-XXXXXX";
        if (mkdtemp(made))
            memcpy(directory, made, sizeof made);
    }
    const bool exists = directory[0];
    pthread_mutex_unlock(&directory_lock);
    if (exists)
        return directory;
    fsdp_test_fail(t, __FILE__, __LINE__, "mkdtemp failed");
    return "/nonexistent";
}

const char *fsdp_test_path(const char *relative)
{
    static _Thread_local char path[512];
    const char *root = getenv("FSDP_TESTS");
    snprintf(path, sizeof path, "%s/%s", root ? root : "tests", relative);
    return path;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

typedef struct rank_run {
    fsdp_test_fn *fn;
    bool failed, skipped; /* written by rank threads under print_lock */
} rank_run;

static fsdp_status rank_body(fsdp_group *group, void *arg)
{
    rank_run *run = arg;
    fsdp_test t = {
        .group = group, .rank = fsdp_group_rank(group), .world_size = fsdp_group_world_size(group)};
    run->fn(&t);
    pthread_mutex_lock(&print_lock);
    run->failed |= t.failed;
    run->skipped |= t.skipped;
    pthread_mutex_unlock(&print_lock);
    return t.failed ? fsdp_error(FSDP_ERR_STATE, "an assertion failed") : FSDP_OK;
}

static void run_test(int i, bool *failed, bool *skipped)
{
    running = tests[i].name;
    if (tests[i].ranks == 0) {
        fsdp_test t = {.world_size = 1};
        tests[i].fn(&t);
        *failed = t.failed;
        *skipped = t.skipped;
    } else {
        rank_run run = {.fn = tests[i].fn};
        fsdp_status status = fsdp_run_ranks(tests[i].ranks, rank_body, &run, NULL);
        if (status != FSDP_OK && !run.failed)
            printf("FAIL %s: %s\n", running, fsdp_last_error());
        *failed = run.failed || status != FSDP_OK;
        *skipped = run.skipped;
    }
    if (directory[0]) {
        nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        directory[0] = 0;
    }
}

static bool selected(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strstr(name, argv[i]))
            return true;
    return argc < 2;
}

int main(int argc, char **argv)
{
    int passed = 0, failures = 0, skips = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < n_tests; i++) {
        if (!selected(tests[i].name, argc, argv))
            continue;
        bool failed = false, skipped = false;
        double start = fsdp_clock_s();
        run_test(i, &failed, &skipped);
        passed += !failed && !skipped;
        failures += failed;
        skips += !failed && skipped;
        if (!failed && !skipped)
            printf("ok %s (%.2f s)\n", tests[i].name, fsdp_clock_s() - start);
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failures, skips);
    return failures ? 1 : 0;
}
