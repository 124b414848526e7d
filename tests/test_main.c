/* Runs the tests of one folder. Prints "ok name" or "FAIL name: where: what" for each, and finally
 * the line "N passed, N failed", which tests/run.sh adds up.
 *
 * usage: tests [--list] [--file FILE] [NAME...]: runs only the tests of test_FILE.c, and only those
 * whose names contain one of NAME. --list prints the file and name of each test and runs none. */
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
    MAX_TESTS = 4096,
    MAX_RANKS = 16
};

static struct {
    const char *file; /* path at compile time */
    const char *name;
    fsdp_test_fn *fn;
    int ranks;
} tests[MAX_TESTS];
static int n_tests;
static pthread_mutex_t print_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *running;
static pthread_mutex_t directory_lock = PTHREAD_MUTEX_INITIALIZER;
static char directory[64]; /* created under the lock; "": not created yet */

void fsdp_test_register(const char *file, const char *name, fsdp_test_fn *fn, int ranks)
{
    FSDP_ASSERT(n_tests < MAX_TESTS);
    tests[n_tests].file = file;
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

/* The parsed arguments. */
typedef struct selection {
    const char *file; /* NULL: all */
    char **names;     /* [n]; n = 0: all */
    int n;
    bool list;
} selection;

/* True if `path` is tests/FOLDER/test_FILE.c. `file` may include "test_" and ".c". */
static bool is_file(const char *path, const char *file)
{
    static const char prefix[] = "test_", ending[] = ".c";
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (strncmp(file, prefix, sizeof prefix - 1) != 0 &&
        strncmp(base, prefix, sizeof prefix - 1) == 0)
        base += sizeof prefix - 1;
    size_t n = strlen(file);
    return strncmp(base, file, n) == 0 && (!base[n] || strcmp(base + n, ending) == 0);
}

static bool is_selected(const selection *s, int i)
{
    bool named = s->n == 0;
    for (int k = 0; k < s->n && !named; k++)
        named = strstr(tests[i].name, s->names[k]);
    return named && (!s->file || is_file(tests[i].file, s->file));
}

/* Returns false if the arguments are wrong. */
static bool read_arguments(int argc, char **argv, selection *s)
{
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++)
        if (strcmp(argv[i], "--list") == 0)
            s->list = true;
        else if (strcmp(argv[i], "--file") == 0 && i + 1 < argc)
            s->file = argv[++i];
        else
            return false;
    s->names = argv + i;
    s->n = argc - i;
    return true;
}

/* Returns exit code 1 if a test failed or the arguments select no test. */
static int run_selected(const selection *s)
{
    int passed = 0, failures = 0, skips = 0;
    for (int i = 0; i < n_tests; i++) {
        if (!is_selected(s, i))
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
    if (!passed && !failures && !skips)
        fprintf(stderr, "no test is selected\n");
    printf("%d passed, %d failed, %d skipped\n", passed, failures, skips);
    return failures || !(passed + skips) ? 1 : 0;
}

int main(int argc, char **argv)
{
    selection s = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!read_arguments(argc, argv, &s)) {
        fprintf(stderr, "usage: %s [--list] [--file FILE] [NAME...]\n", argv[0]);
        return 2;
    }
    if (!s.list)
        return run_selected(&s);
    for (int i = 0; i < n_tests; i++)
        if (is_selected(&s, i))
            printf("%s\t%s\n", tests[i].file, tests[i].name);
    return 0;
}
