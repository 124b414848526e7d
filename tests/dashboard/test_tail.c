/* Following files that a run appends to: half lines, damaged lines, files that were begun again,
 * and curves of any length in a fixed amount of memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc_testing.h"
#include "src/base/clock.h"
#include "src/dashboard/curve.h"
#include "src/dashboard/rank.h"
#include "src/dashboard/tail.h"
#include "tests/dashboard/folder.h"
#include "tests/test.h"

typedef struct seen {
    char steps[1024]; /* the steps of all lines since the last restart, joined with spaces */
    int restarts;
} seen;

static fsdp_status see_line(void *context, fsdp_json_node line)
{
    seen *s = context;
    int64_t step;
    char text[32];
    FSDP_TRY(fsdp_json_opt_i64(line, "step", 0, 1000000, -1, &step));
    snprintf(text, sizeof text, "%d ", (int)step);
    strcat(s->steps, text);
    return FSDP_OK;
}

static void see_restart(void *context)
{
    seen *s = context;
    s->steps[0] = 0;
    s->restarts++;
}

static fsdp_status read_all(fsdp_tail *tail, int root, seen *s)
{
    const fsdp_tail_reader reader = {.line = see_line, .restart = see_restart, .context = s};
    bool more;
    return fsdp_tail_read(tail, root, INT64_MAX, &reader, &more);
}

TEST(a_half_line_is_read_when_its_end_is_there)
{
    folder f;
    fsdp_tail tail;
    seen s = {0};
    folder_open(t, &f);
    ASSERT_OK(fsdp_tail_init(&tail, "m.jsonl"));
    ASSERT_OK(read_all(&tail, f.root, &s)); /* the file is not there yet */
    folder_put(&f, "m.jsonl", "{\"step\": 1}\n{\"step\": 2}\n{\"st");
    ASSERT_OK(read_all(&tail, f.root, &s));
    ASSERT_STR(s.steps, "1 2 ");
    folder_add(&f, "m.jsonl", "ep\": 3");
    ASSERT_OK(read_all(&tail, f.root, &s));
    ASSERT_STR(s.steps, "1 2 ");
    /* A line that is a complete object may still become a longer one. */
    folder_add(&f, "m.jsonl", "}");
    ASSERT_OK(read_all(&tail, f.root, &s));
    ASSERT_STR(s.steps, "1 2 ");
    folder_add(&f, "m.jsonl", "\n{\"step\": 4}\r\n\n");
    ASSERT_OK(read_all(&tail, f.root, &s));
    ASSERT_STR(s.steps, "1 2 3 4 ");
    ASSERT_INT(tail.bad, 0);
    ASSERT_INT(s.restarts, 0);
    fsdp_tail_fini(&tail);
    folder_close(&f);
}

TEST(damaged_lines_are_counted_and_left_out)
{
    folder f;
    fsdp_tail tail;
    seen s = {0};
    folder_open(t, &f);
    ASSERT_OK(fsdp_tail_init(&tail, "m.jsonl"));
    folder_put(&f, "m.jsonl", "{\"step\": 1}\nnonsense\n[1]\n{\"step\": }\n{\"step\": 2}\n");
    ASSERT_OK(read_all(&tail, f.root, &s));
    ASSERT_STR(s.steps, "1 2 ");
    ASSERT_INT(tail.bad, 3);
    fsdp_tail_fini(&tail);
    folder_close(&f);
}

/* A file without newlines must not fill the memory. */
TEST(a_line_that_is_too_long_is_skipped)
{
    folder f;
    fsdp_tail tail;
    seen s = {0};
    static char spaces[1 << 20];
    folder_open(t, &f);
    ASSERT_OK(fsdp_tail_init(&tail, "m.jsonl"));
    memset(spaces, ' ', sizeof spaces - 1);
    folder_put(&f, "m.jsonl", "{\"step\": 1}\n{");
    for (int i = 0; i < 6; i++)
        folder_add(&f, "m.jsonl", spaces);
    ASSERT_OK(read_all(&tail, f.root, &s));
    ASSERT(tail.rest_cap <= 2 * FSDP_TAIL_LINE_BYTES);
    folder_add(&f, "m.jsonl", "\"step\": 2}\n{\"step\": 3}\n");
    ASSERT_OK(read_all(&tail, f.root, &s));
    ASSERT_STR(s.steps, "1 3 ");
    ASSERT_INT(tail.bad, 1);
    fsdp_tail_fini(&tail);
    folder_close(&f);
}

/* A run with the same --metrics begins the file again; a resumed one replaces it with a shorter
 * one; either may have grown beyond the old size before it is looked at. */
TEST(a_file_that_was_begun_again_is_read_again)
{
    folder f;
    fsdp_tail tail;
    seen s = {0};
    folder_open(t, &f);
    ASSERT_OK(fsdp_tail_init(&tail, "m.jsonl"));
    folder_put(&f, "m.jsonl", "{\"step\": 1}\n{\"step\": 2}\n");
    ASSERT_OK(read_all(&tail, f.root, &s));
    ASSERT_OK(read_all(&tail, f.root, &s));
    ASSERT_INT(s.restarts, 0);
    folder_put(&f, "m.jsonl", "{\"step\": 1}\n"); /* shorter */
    ASSERT_OK(read_all(&tail, f.root, &s));
    ASSERT_STR(s.steps, "1 ");
    ASSERT_INT(s.restarts, 1);
    folder_put(&f, "m.jsonl", "{\"step\": 7}\n{\"step\": 8}\n"); /* longer, with other bytes */
    ASSERT_OK(read_all(&tail, f.root, &s));
    ASSERT_STR(s.steps, "7 8 ");
    ASSERT_INT(s.restarts, 2);
    folder_put(&f, "new", "{\"step\": 7}\n{\"step\": 8}\n{\"step\": 9}\n");
    folder_rename(&f, "new", "m.jsonl"); /* another file with the same beginning */
    ASSERT_OK(read_all(&tail, f.root, &s));
    ASSERT_STR(s.steps, "7 8 9 ");
    ASSERT_INT(s.restarts, 3);
    fsdp_tail_fini(&tail);
    folder_close(&f);
}

TEST(reading_stops_in_time_and_goes_on)
{
    folder f;
    fsdp_tail tail;
    seen s = {0};
    const fsdp_tail_reader reader = {.line = see_line, .restart = see_restart, .context = &s};
    bool more;
    folder_open(t, &f);
    ASSERT_OK(fsdp_tail_init(&tail, "m.jsonl"));
    folder_put(&f, "m.jsonl", "{\"step\": 1}\n");
    ASSERT_OK(fsdp_tail_read(&tail, f.root, fsdp_clock_ns() - 1, &reader, &more));
    ASSERT(more);
    ASSERT_STR(s.steps, "");
    ASSERT_OK(fsdp_tail_read(&tail, f.root, INT64_MAX, &reader, &more));
    ASSERT(!more);
    ASSERT_STR(s.steps, "1 ");
    fsdp_tail_fini(&tail);
    folder_close(&f);
}

TEST(reading_fails_cleanly_without_memory)
{
    folder f;
    folder_open(t, &f);
    folder_put(&f, "m.jsonl", "{\"step\": 1}\n{\"st");
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; n < 40 && status != FSDP_OK; n++) {
        fsdp_tail tail = {0};
        seen s = {0};
        fsdp_alloc_fail_at(n);
        status = fsdp_tail_init(&tail, "m.jsonl");
        if (status == FSDP_OK)
            status = read_all(&tail, f.root, &s);
        fsdp_alloc_fail_at(0);
        if (status != FSDP_OK)
            ASSERT_INT(status, FSDP_ERR_NOMEM);
        fsdp_tail_fini(&tail);
    }
    ASSERT_INT(status, FSDP_OK);
    folder_close(&f);
}

/* --- curves --- */

static int64_t count_points(const fsdp_curve *c)
{
    int64_t n = 0;
    for (size_t i = 0; i < c->len; i++)
        n += c->buckets[i].n + c->buckets[i].not_finite;
    return n;
}

TEST(a_long_curve_keeps_its_peaks_and_its_mean)
{
    enum {
        POINTS = 100000
    };
    fsdp_curve c = {0};
    double min = 1e300, max = -1e300, sum = 0;
    for (int i = 1; i <= POINTS; i++)
        ASSERT_OK(fsdp_curve_add(&c, i, i * 0.5,
                                 i == 77777 ? 1000.0
                                 : i == 3   ? -5.0
                                            : 1.0 + i % 7));
    ASSERT(c.len <= FSDP_CURVE_BUCKETS && c.len > FSDP_CURVE_BUCKETS / 4);
    for (size_t i = 0; i < c.len; i++) {
        min = fmin(min, c.buckets[i].min);
        max = fmax(max, c.buckets[i].max);
        sum += c.buckets[i].sum;
        ASSERT(i == 0 || c.buckets[i].step > c.buckets[i - 1].step);
    }
    ASSERT_INT((int64_t)min, -5);
    ASSERT_INT((int64_t)max, 1000);
    ASSERT_INT(count_points(&c), POINTS);
    double expected = 0;
    for (int i = 1; i <= POINTS; i++)
        expected += i == 77777 ? 1000.0 : i == 3 ? -5.0 : 1.0 + i % 7;
    ASSERT_INT((int64_t)sum, (int64_t)expected);
    ASSERT_INT((int64_t)c.buckets[c.len - 1].step, POINTS);
    ASSERT_INT((int64_t)c.buckets[c.len - 1].at, POINTS / 2);
    fsdp_curve_fini(&c);
}

TEST(values_that_are_not_finite_are_counted_and_do_not_spoil_others)
{
    fsdp_curve c = {0};
    ASSERT_OK(fsdp_curve_add(&c, 1, 1, (double)NAN));
    for (int i = 2; i <= 3 * FSDP_CURVE_BUCKETS; i++)
        ASSERT_OK(fsdp_curve_add(&c, i, i, i == 10 ? (double)INFINITY : 2.0));
    int64_t gaps = 0;
    for (size_t i = 0; i < c.len; i++) {
        gaps += c.buckets[i].not_finite;
        ASSERT_INT((int64_t)fsdp_bucket_mean(&c.buckets[i]), 2);
        ASSERT_INT((int64_t)c.buckets[i].min, 2);
    }
    ASSERT_INT(gaps, 2);
    fsdp_curve_fini(&c);
}

TEST(steps_that_come_again_replace_those_before)
{
    fsdp_curve c = {0};
    for (int i = 1; i <= 10; i++)
        ASSERT_OK(fsdp_curve_add(&c, i, i, 1.0));
    ASSERT_OK(fsdp_curve_add(&c, 6, 6, 2.0)); /* resumed after step 5 */
    ASSERT_INT(c.len, 6);
    ASSERT_INT((int64_t)c.buckets[4].step, 5);
    ASSERT_INT((int64_t)c.buckets[5].max, 2);
    fsdp_curve_fini(&c);
}

/* --- ranks --- */

static fsdp_status read_rank(fsdp_rank *r, const folder *f, bool *changed)
{
    bool more;
    return fsdp_rank_read(r, f->root, INT64_MAX, changed, &more);
}

TEST(a_rank_adds_up_its_lines_and_merges_samples)
{
    folder f;
    fsdp_rank *r;
    bool changed;
    char line[256];
    folder_open(t, &f);
    folder_put(&f, "0.jsonl",
               "{\"kind\": \"start\", \"time\": 100, \"step\": 0, \"rank\": 0, \"world_size\": 2, "
               "\"pid\": 77, \"host\": \"a\", \"device\": \"cpu\", \"threads\": 3}\n");
    for (int i = 1; i <= 1000; i++) {
        snprintf(line, sizeof line,
                 "{\"kind\": \"rank\", \"time\": %d, \"step\": %d, \"state\": \"training\", "
                 "\"steps\": 2, \"seconds\": 1, \"wait_s\": 0.25, \"data_s\": 0.125, \"queued_s\": "
                 "0.5, \"memory\": {\"allocated\": %d, \"param\": %d}}\n",
                 100 + i, 2 * i, i == 700 ? 9000 : 100, i == 700 ? 8000 : 10);
        folder_add(&f, "0.jsonl", line);
    }
    folder_add(
        &f, "0.jsonl",
        "{\"kind\": \"units\", \"step\": 2000, \"units\": [{\"name\": \"a<b>\", \"gathers\": "
        "3, \"gather_bytes\": 12}, {\"name\": 5}]}\n{\"kind\": \"end\", \"time\": 1200, "
        "\"step\": 2000, \"state\": \"failed\", \"message\": \"why\"}\n");
    ASSERT_OK(fsdp_rank_create("0.jsonl", 0, &r));
    ASSERT_OK(read_rank(r, &f, &changed));
    ASSERT(changed && r->ended);
    ASSERT_STR(r->state, "failed");
    ASSERT_STR(r->message, "why");
    ASSERT_INT(r->world_size, 2);
    ASSERT_INT((int64_t)r->steps, 1998); /* without the first line */
    ASSERT_INT((int64_t)(r->wait_s * 4), 999);
    ASSERT_INT((int64_t)(r->no_core_s * 2), 999);
    ASSERT(!r->knows_cpu);
    ASSERT(r->n_samples <= FSDP_RANK_SAMPLES && r->n_samples > FSDP_RANK_SAMPLES / 4);
    double steps = 0, most = 0, param = 0;
    for (size_t i = 0; i < r->n_samples; i++) {
        steps += r->samples[i].steps;
        if (r->samples[i].allocated > most) {
            most = r->samples[i].allocated;
            param = r->samples[i].tags[FSDP_TAG_PARAM];
        }
    }
    ASSERT_INT((int64_t)steps, 2000);
    ASSERT_INT((int64_t)most, 9000);
    ASSERT_INT((int64_t)param, 8000);
    ASSERT_INT(r->n_units, 2);
    ASSERT_STR(r->units[0].name, "a<b>");
    ASSERT_STR(r->units[1].name, "");
    ASSERT_OK(read_rank(r, &f, &changed));
    ASSERT(!changed);
    fsdp_rank_destroy(r);
    folder_close(&f);
}

/* The system counts the time without a core over the whole line, also at the end of waits. */
TEST(time_without_a_core_is_a_part_of_the_steps)
{
    static const struct {
        const char *values;
        int no_core_ms, stopped_ms;
    } all[] = {
        {"\"steps\": 1, \"cpu_s\": 3, \"queued_s\": 2", 2000, 2000},
        {"\"steps\": 1, \"cpu_s\": 5, \"queued_s\": 4", 3000, 0}, /* 1 s of it in waits */
        {"\"steps\": 1, \"cpu_s\": 12, \"queued_s\": 4", 0, 0},   /* longer than the steps */
        {"\"steps\": 1, \"queued_s\": 30", 7000, 0},              /* as older programs write it */
        {"\"steps\": 1, \"cpu_s\": 3, \"queued_s\": -2", 0, 4000},
        {"\"steps\": 0, \"cpu_s\": 3, \"queued_s\": 4", 0, 0}, /* a validation */
    };
    folder f;
    folder_open(t, &f);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fsdp_rank *r;
        bool changed;
        char line[256];
        snprintf(line, sizeof line,
                 "{\"kind\": \"rank\", \"seconds\": 10, \"wait_s\": 2, \"data_s\": 1, %s}\n",
                 all[i].values);
        folder_put(&f, "0.jsonl", "{\"kind\": \"start\", \"time\": 1}\n");
        folder_add(&f, "0.jsonl", line);
        ASSERT_OK(fsdp_rank_create("0.jsonl", 0, &r));
        ASSERT_OK(read_rank(r, &f, &changed));
        ASSERT_INT((int64_t)(1000 * r->no_core_s), all[i].no_core_ms);
        ASSERT_INT((int64_t)(1000 * r->samples[0].no_core_s), all[i].no_core_ms);
        ASSERT_INT((int64_t)(1000 * r->stopped_s), all[i].stopped_ms);
        fsdp_rank_destroy(r);
    }
    folder_close(&f);
}

TEST(the_only_step_of_a_rank_counts)
{
    folder f;
    fsdp_rank *r;
    bool changed;
    folder_open(t, &f);
    folder_put(&f, "0.jsonl",
               "{\"kind\": \"start\", \"time\": 1}\n"
               "{\"kind\": \"rank\", \"time\": 1, \"steps\": 0}\n"
               "{\"kind\": \"rank\", \"time\": 2, \"steps\": 1, \"seconds\": 9}\n"
               "{\"kind\": \"rank\", \"time\": 3, \"steps\": 0, \"seconds\": 0}\n");
    ASSERT_OK(fsdp_rank_create("0.jsonl", 0, &r));
    ASSERT_OK(read_rank(r, &f, &changed));
    ASSERT_INT((int64_t)r->seconds, 9);
    folder_add(&f, "0.jsonl", "{\"kind\": \"rank\", \"steps\": 4, \"seconds\": 2}\n");
    ASSERT_OK(read_rank(r, &f, &changed));
    ASSERT_INT((int64_t)r->seconds, 2);
    folder_add(&f, "0.jsonl", "{\"kind\": \"rank\", \"steps\": 4, \"seconds\": 2}\n");
    ASSERT_OK(read_rank(r, &f, &changed));
    ASSERT_INT((int64_t)r->seconds, 4);
    ASSERT_INT((int64_t)r->steps, 8);
    fsdp_rank_destroy(r);
    folder_close(&f);
}
