/* JSON lines: their form, the file after a full disk and after a crash, and what reading accepts.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/report/metrics.h"
#include "tests/test.h"

static const char *file_in(fsdp_test *t, const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), name);
    return path;
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

static const char *get(const char *path)
{
    static char text[65536];
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[n] = 0;
    if (file)
        fclose(file);
    return text;
}

static fsdp_status write_step(fsdp_metrics *m, int64_t step, double loss)
{
    fsdp_json_node line;
    FSDP_TRY(fsdp_metrics_begin(m, "step", &line));
    fsdp_json_set_i64(line, "step", step);
    fsdp_metrics_set_number(line, "loss", loss);
    fsdp_metrics_set_number(line, "lr", 0.002);
    return fsdp_metrics_write(m);
}

TEST(lines_are_valid_json_with_shortest_numbers)
{
    const char *path = file_in(t, "m.jsonl");
    fsdp_metrics *m;
    fsdp_json_node line;
    ASSERT_OK(fsdp_metrics_open(path, false, &m));
    ASSERT_OK(write_step(m, 1, 0.1));
    ASSERT_STR(get(path), "{\"kind\": \"step\", \"step\": 1, \"loss\": 0.1, \"lr\": 0.002}\n");
    ASSERT_OK(fsdp_metrics_begin(m, "validation", &line)); /* discarded */
    ASSERT_OK(fsdp_metrics_begin(m, "summary", &line));
    fsdp_metrics_set_number(line, "a", (double)NAN);
    fsdp_metrics_set_number(line, "b", (double)INFINITY);
    fsdp_metrics_set_number(line, "c", -(double)INFINITY);
    fsdp_metrics_set_number(line, "d", 1.0 / 3);
    fsdp_json_set_str(line, "text", "\"quoted\"\n");
    ASSERT_OK(fsdp_metrics_write(m));
    ASSERT(strstr(get(path),
                  "\n{\"kind\": \"summary\", \"a\": \"NaN\", \"b\": \"Infinity\", \"c\": "
                  "\"-Infinity\", \"d\": 0.3333333333333333, \"text\": "
                  "\"\\\"quoted\\\"\\n\"}\n"));
    ASSERT_ERROR(fsdp_metrics_write(m), FSDP_ERR_STATE, "no line");
    fsdp_metrics_close(m);
}

TEST(a_new_run_replaces_and_a_resumed_one_appends)
{
    const char *path = file_in(t, "m.jsonl");
    fsdp_metrics *m;
    for (int append = 0; append < 2; append++) {
        put(path, "{\"kind\": \"epoch\"}\n");
        ASSERT_OK(fsdp_metrics_open(path, append, &m));
        ASSERT_OK(write_step(m, 2, 1.5));
        fsdp_metrics_close(m);
        ASSERT((strstr(get(path), "epoch") != NULL) == append);
        ASSERT(strstr(get(path), "{\"kind\": \"step\", \"step\": 2,"));
    }
}

/* Appending removes what a kill in the middle of a write leaves, ends a complete line, and leaves a
 * file alone that is not a metrics file. */
TEST(appending_mends_the_last_line)
{
    const char *path = file_in(t, "m.jsonl");
    const char *step = "{\"kind\": \"step\", \"step\": 3, \"loss\": 2.0, \"lr\": 0.002}\n";
    char expected[256];
    fsdp_metrics *m;
    put(path, "{\"kind\": \"epoch\"}\n{\"kind\": \"st");
    ASSERT_OK(fsdp_metrics_open(path, true, &m));
    ASSERT_OK(write_step(m, 3, 2));
    fsdp_metrics_close(m);
    snprintf(expected, sizeof expected, "{\"kind\": \"epoch\"}\n%s", step);
    ASSERT_STR(get(path), expected);
    put(path, "{\"kind\": \"epoch\"}");
    ASSERT_OK(fsdp_metrics_open(path, true, &m));
    ASSERT_OK(write_step(m, 3, 2));
    fsdp_metrics_close(m);
    ASSERT_STR(get(path), expected);
    put(path, "my notes");
    ASSERT_ERROR(fsdp_metrics_open(path, true, &m), FSDP_ERR_FORMAT, "m.jsonl");
    ASSERT_STR(get(path), "my notes");
}

TEST(a_full_disk_is_an_error_that_names_the_file)
{
    fsdp_metrics *m;
    if (access("/dev/full", W_OK) != 0)
        SKIP("no /dev/full");
    ASSERT_OK(fsdp_metrics_open("/dev/full", true, &m));
    ASSERT_ERROR(write_step(m, 1, 1), FSDP_ERR_IO, "/dev/full: No space left");
    fsdp_metrics_close(m);
    ASSERT_ERROR(fsdp_metrics_open("/nowhere/m.jsonl", false, &m), FSDP_ERR_IO, "/nowhere/m.jsonl");
}

/* A limit of the file's size cuts a line in the middle; the file must then end with the line
 * before. */
TEST(half_a_line_is_taken_back)
{
    const char *path = file_in(t, "m.jsonl");
    struct rlimit before, limit;
    fsdp_metrics *m;
    ASSERT_OK(fsdp_metrics_open(path, false, &m));
    ASSERT_OK(write_step(m, 1, 2));
    char first[256];
    snprintf(first, sizeof first, "%s", get(path));
    getrlimit(RLIMIT_FSIZE, &before);
    limit = (struct rlimit){strlen(first) + 10, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    fsdp_status status = write_step(m, 2, 2);
    setrlimit(RLIMIT_FSIZE, &before);
    ASSERT_INT(status, FSDP_ERR_IO);
    ASSERT_STR(get(path), first);
    ASSERT_OK(write_step(m, 2, 2));
    fsdp_metrics_close(m);
}

/* The end of such a line may look like a line of its own. */
TEST(a_last_line_longer_than_any_of_metrics_is_kept)
{
    enum {
        BYTES = 3 << 20
    };
    const char *path = file_in(t, "notes.txt");
    char *text = fsdp_calloc(BYTES + 1, 1);
    fsdp_metrics *m;
    struct stat st;
    ASSERT(text);
    memset(text, '{', BYTES);
    put(path, text);
    ASSERT_ERROR(fsdp_metrics_open(path, true, &m), FSDP_ERR_FORMAT, "longer than any line");
    ASSERT(stat(path, &st) == 0);
    ASSERT_INT(st.st_size, BYTES);
    fsdp_free(text);
}

TEST(curves_are_read_back)
{
    const char *path = file_in(t, "m.jsonl");
    fsdp_metrics_curves c;
    put(path, "{\"kind\": \"step\", \"step\": 1, \"loss\": 10.5, \"lr\": 0.1}\n"
              "\r\n"
              "{\"kind\": \"step\", \"step\": 2, \"loss\": \"NaN\"}\n"
              "{\"kind\": \"validation\", \"step\": 2, \"loss\": 7}\n"
              "{\"kind\": \"epoch\", \"epoch\": 1}\n"
              "{\"kind\": \"step\", \"step\": 3, \"loss\": 9, \"lr\": 0.05}\n"
              "{\"kind\": \"step\", \"step\": 2, \"loss\": 8, \"lr\": 0.07}\n" /* resumed at 2 */
              "{\"kind\": \"step\", \"step\": 3, \"lo");                       /* incomplete */
    ASSERT_OK(fsdp_metrics_read(path, &c));
    ASSERT_INT(c.loss.len, 2);
    ASSERT_F32(c.loss.points[0].value, 10.5);
    ASSERT_F32(c.loss.points[1].step, 2);
    ASSERT_F32(c.loss.points[1].value, 8);
    ASSERT_INT(c.lr.len, 2);
    ASSERT_INT(c.validation.len, 1);
    ASSERT_F32(c.validation.points[0].value, 7);
    fsdp_metrics_curves_fini(&c);
    put(path, "{\"kind\": \"step\", \"step\": 2, \"loss\": \"-Infinity\"}\n");
    ASSERT_OK(fsdp_metrics_read(path, &c));
    ASSERT(isinf(c.loss.points[0].value) && c.loss.points[0].value < 0);
    fsdp_metrics_curves_fini(&c);
}

TEST(malformed_lines_are_refused_with_their_number)
{
    const char *path = file_in(t, "m.jsonl");
    static const char *const bad[] = {
        "{\"kind\": \"step\", \"step\": 1,\n",
        "{\"kind\": \"step\", \"step\": 1}\n",
        "{\"kind\": \"step\", \"step\": \"one\", \"loss\": 1}\n",
        "{\"kind\": \"step\", \"step\": 1, \"loss\": \"low\"}\n",
        "{\"step\": 1, \"loss\": 1}\n",
        "[1]\n",
        "x\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fsdp_metrics_curves c;
        char text[256];
        snprintf(text, sizeof text, "{\"kind\": \"epoch\"}\n%s", bad[i]);
        put(path, text);
        fsdp_status status = fsdp_metrics_read(path, &c);
        if (status != FSDP_ERR_FORMAT || !strstr(fsdp_last_error(), "m.jsonl") ||
            !strstr(fsdp_last_error(), "line 2"))
            FAIL("'%s': status %d, %s", bad[i], status, fsdp_last_error());
    }
    fsdp_metrics_curves c;
    ASSERT_ERROR(fsdp_metrics_read("/nowhere/m.jsonl", &c), FSDP_ERR_NOT_FOUND, "/nowhere/m.jsonl");
}

TEST(a_failed_allocation_is_an_error)
{
    const char *path = file_in(t, "m.jsonl");
    for (long n = 1; n < 12; n++) {
        fsdp_metrics *m = NULL;
        fsdp_alloc_fail_at(n);
        fsdp_status status = fsdp_metrics_open(path, false, &m);
        if (status == FSDP_OK)
            status = write_step(m, 1, 1);
        fsdp_alloc_fail_at(0);
        if (status != FSDP_OK)
            ASSERT_INT(status, FSDP_ERR_NOMEM);
        fsdp_metrics_close(m);
    }
}
