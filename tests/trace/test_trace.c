/* Every piece of a step belongs to one category, spans nest in the ring as they did in time, and
 * the text is what Perfetto reads. */
#include "src/base/alloc_testing.h"
#include "src/trace/trace.h"

#include "src/base/alloc.h"
#include "src/base/json.h"
#include "src/trace/trace_json.h"
#include "tests/test.h"

/* Work that takes measurable time. */
static void spin(void)
{
    for (volatile int i = 0; i < 20000; i++)
        ;
}

static void trace_steps(fsdp_trace *trace, int steps)
{
    for (int i = 0; i < steps; i++) {
        fsdp_trace_step_begin(trace, "step");
        fsdp_trace_begin(FSDP_TRACE_REST, "Block", "0");
        fsdp_trace_begin(FSDP_TRACE_SHARDING, "pre_forward", "a \"b\"\\\n");
        fsdp_trace_begin(FSDP_TRACE_WAITING, "wait", NULL);
        spin();
        fsdp_trace_end();
        fsdp_trace_end();
        spin();
        fsdp_trace_lap(FSDP_TRACE_MATMUL, "linear", NULL);
        fsdp_trace_add_sample(trace, (const int64_t[]){i, 7}, 2);
        fsdp_trace_end();
        fsdp_trace_step_end(trace);
    }
}

TEST(pieces_add_up_to_the_steps)
{
    fsdp_trace *trace;
    int64_t pieces = 0, steps = 0;
    const fsdp_trace_event *e;
    ASSERT_OK(fsdp_trace_create(100, &trace));
    trace_steps(trace, 3);
    const fsdp_trace_sum *sums = fsdp_trace_sums(trace);
    for (int i = 0; i < FSDP_TRACE_CATEGORIES; i++)
        pieces += sums[i].wall_ns;
    for (size_t i = 0; (e = fsdp_trace_get_event(trace, i)); i++)
        if (strcmp(e->label, "step") == 0)
            steps += e->duration_ns;
    ASSERT(steps > 0);
    ASSERT_INT(pieces, steps);
    ASSERT_INT(fsdp_trace_steps(trace), 3);
    ASSERT_INT(sums[FSDP_TRACE_MATMUL].calls, 3);
    ASSERT(sums[FSDP_TRACE_MATMUL].wall_ns > 0 && sums[FSDP_TRACE_MATMUL].cpu_ns > 0);
    ASSERT(sums[FSDP_TRACE_WAITING].cpu_ns > 0);
    ASSERT_INT(sums[FSDP_TRACE_OPTIMIZER].wall_ns, 0);
    fsdp_trace_destroy(trace);
}

TEST(a_span_holds_what_ran_inside_of_it)
{
    fsdp_trace *trace;
    const char *const labels[] = {"wait", "pre_forward a _b___", "linear", "Block 0", "step"};
    ASSERT_OK(fsdp_trace_create(100, &trace));
    trace_steps(trace, 1);
    for (size_t i = 0; i < 5; i++)
        ASSERT_STR(fsdp_trace_get_event(trace, i)->label, labels[i]);
    ASSERT(!fsdp_trace_get_event(trace, 5));
    const fsdp_trace_event *wait = fsdp_trace_get_event(trace, 0),
                           *hook = fsdp_trace_get_event(trace, 1),
                           *linear = fsdp_trace_get_event(trace, 2);
    ASSERT(hook->begin_ns <= wait->begin_ns);
    ASSERT(hook->begin_ns + hook->duration_ns >= wait->begin_ns + wait->duration_ns);
    ASSERT_INT(linear->begin_ns, hook->begin_ns + hook->duration_ns);
    fsdp_trace_destroy(trace);
}

/* A clock whose marks are 1 us apart, and the mark after "slow" 1 ms. */
typedef struct test_clock {
    int64_t at_ns[64];
    size_t n, most; /* marks of this step, and how many can be added */
    bool slow, fails;
} test_clock;

static bool clock_mark(void *self)
{
    test_clock *k = self;
    if (k->n == k->most)
        return false;
    k->at_ns[k->n] = k->n ? k->at_ns[k->n - 1] + (k->slow ? 1000000 : 1000) : 0;
    k->slow = false;
    k->n++;
    return true;
}

static bool clock_start(void *self)
{
    test_clock *k = self;
    k->n = 0;
    return clock_mark(k);
}

static bool clock_read(void *self, int64_t *at_ns, size_t n)
{
    const test_clock *k = self;
    if (k->fails || n != k->n)
        return false;
    memcpy(at_ns, k->at_ns, n * sizeof *at_ns);
    return true;
}

static void trace_with_clock(fsdp_trace *trace, test_clock *clock)
{
    fsdp_trace_step_begin(trace, "step");
    fsdp_trace_begin(FSDP_TRACE_MATMUL, "linear", NULL);
    clock->slow = true;
    fsdp_trace_end();
    fsdp_trace_lap(FSDP_TRACE_OPERATION, "add", NULL);
    fsdp_trace_step_end(trace);
}

static const fsdp_trace_clock clock_of_test = {
    .start = clock_start, .mark = clock_mark, .read = clock_read};

TEST(device_time_is_that_between_the_marks)
{
    fsdp_trace *trace;
    test_clock clock = {.most = 64};
    fsdp_trace_clock ops = clock_of_test;
    char text[4096];
    const char *no_counters[1] = {NULL};
    fsdp_trace_cursor cursor = {0};
    ops.self = &clock;
    ASSERT_OK(fsdp_trace_create(100, &trace));
    ASSERT_OK(fsdp_trace_set_clock(trace, &ops));
    for (int i = 0; i < 2; i++)
        trace_with_clock(trace, &clock);
    const fsdp_trace_sum *sums = fsdp_trace_sums(trace);
    ASSERT_INT(sums[FSDP_TRACE_MATMUL].device_ns, 2 * 1000000);
    ASSERT_INT(sums[FSDP_TRACE_OPERATION].device_ns, 2 * 1000);
    ASSERT_INT(sums[FSDP_TRACE_REST].device_ns, 2 * 3 * 1000);
    /* the second step: linear, add, step */
    const fsdp_trace_event *linear = fsdp_trace_get_event(trace, 3),
                           *step = fsdp_trace_get_event(trace, 5);
    ASSERT_STR(step->label, "step");
    ASSERT_INT(linear->device_begin_ns, step->begin_ns + 1000);
    ASSERT_INT(linear->device_ns, 1000000);
    ASSERT_INT(step->device_begin_ns, step->begin_ns);
    ASSERT_INT(step->device_ns, 1000000 + 3000);
    const size_t n = fsdp_trace_json(trace, 0, 0, no_counters, 0, &cursor, text, sizeof text - 1);
    text[n] = '\0';
    ASSERT(strstr(text, "{\"name\":\"device\"}"));
    ASSERT(strstr(text, "\"dur\":1000.000,\"pid\":0,\"tid\":4}"));
    fsdp_trace_destroy(trace);
}

/* A step whose times are not known, and a step in which marks run out. */
TEST(missing_marks_leave_the_host_times)
{
    fsdp_trace *trace;
    test_clock clock = {.most = 64, .fails = true};
    fsdp_trace_clock ops = clock_of_test;
    ops.self = &clock;
    ASSERT_OK(fsdp_trace_create(100, &trace));
    ASSERT_OK(fsdp_trace_set_clock(trace, &ops));
    trace_with_clock(trace, &clock);
    ASSERT_INT(fsdp_trace_sums(trace)[FSDP_TRACE_MATMUL].device_ns, 0);
    ASSERT_INT(fsdp_trace_get_event(trace, 0)->device_begin_ns, 0);
    ASSERT(fsdp_trace_sums(trace)[FSDP_TRACE_MATMUL].wall_ns > 0);
    clock = (test_clock){.most = 2};
    trace_with_clock(trace, &clock);
    ASSERT_INT(fsdp_trace_sums(trace)[FSDP_TRACE_REST].device_ns, 1000);
    ASSERT_INT(fsdp_trace_sums(trace)[FSDP_TRACE_MATMUL].device_ns, 0);
    ASSERT_INT(fsdp_trace_get_event(trace, 5)->device_ns, 1000);
    clock = (test_clock){.most = 0};
    trace_with_clock(trace, &clock);
    ASSERT_INT(fsdp_trace_get_event(trace, 8)->device_ns, 0);
    fsdp_trace_destroy(trace);
}

/* Sums continue when the ring is full. */
TEST(the_ring_keeps_the_newest)
{
    fsdp_trace *trace;
    size_t n;
    ASSERT_OK(fsdp_trace_create(4, &trace));
    trace_steps(trace, 10);
    ASSERT_INT(fsdp_trace_overwritten(trace), 46);
    ASSERT_STR(fsdp_trace_get_event(trace, 3)->label, "step");
    ASSERT(!fsdp_trace_get_event(trace, 4));
    ASSERT_INT(fsdp_trace_get_sample(trace, 1)->values[0], 9);
    const fsdp_trace_entry *entries = fsdp_trace_entries(trace, &n);
    ASSERT_INT(n, 3);
    for (size_t i = 0; i < n; i++)
        ASSERT_INT(entries[i].sum.calls, 10);
    fsdp_trace_destroy(trace);
}

/* Spans that a failure leaves open are closed at the end of the step, at any depth. */
TEST(spans_that_were_left_open_end_with_the_step)
{
    fsdp_trace *trace;
    ASSERT_OK(fsdp_trace_create(1000, &trace));
    fsdp_trace_step_begin(trace, "step");
    for (int i = 0; i < 100; i++)
        fsdp_trace_begin(FSDP_TRACE_REST, "deeper", NULL);
    fsdp_trace_step_end(trace);
    ASSERT(!fsdp_trace_current);
    trace_steps(trace, 1);
    ASSERT_INT(fsdp_trace_steps(trace), 2);
    fsdp_trace_destroy(trace);
}

TEST(nothing_happens_without_a_trace)
{
    fsdp_trace_begin(FSDP_TRACE_REST, "span", NULL);
    fsdp_trace_lap(FSDP_TRACE_MATMUL, "linear", NULL);
    fsdp_trace_end();
    fsdp_trace_end();
    ASSERT(!fsdp_trace_current);
}

TEST(a_step_allocates_nothing)
{
    fsdp_trace *trace;
    ASSERT_OK(fsdp_trace_create(100, &trace));
    fsdp_alloc_fail_at(1);
    trace_steps(trace, 50);
    ASSERT(!fsdp_calloc(1, 1)); /* so the trace has not allocated anything */
    fsdp_trace_destroy(trace);
}

TEST(the_text_is_valid_json)
{
    static char text[20000];
    static const char *const counters[] = {"param", "grad"};
    fsdp_trace *trace;
    fsdp_json *doc;
    fsdp_json_node events;
    double ts;
    size_t n;
    ASSERT_OK(fsdp_trace_create(100, &trace));
    trace_steps(trace, 2);
    fsdp_trace_cursor cursor = {0};
    size_t used = strlen(fsdp_trace_json_head);
    memcpy(text, fsdp_trace_json_head, used);
    while ((n = fsdp_trace_json(trace, 3, fsdp_trace_begin_ns(trace), counters, 2, &cursor,
                                text + used, 1200)))
        used += n;
    strcpy(text + used, fsdp_trace_json_tail);
    ASSERT_OK(fsdp_json_parse("trace", 1, text, strlen(text), &doc));
    ASSERT_OK(fsdp_json_get_array(fsdp_json_root(doc), "traceEvents", &events));
    ASSERT_INT(fsdp_json_len(events), 1 + 5 + 10 + 2); /* labels, names, events, samples */
    ASSERT_OK(fsdp_json_get_f64(fsdp_json_at(events, 10), "ts", &ts));
    ASSERT_NEAR(ts, 0.0, 1e-9);
    fsdp_json_destroy(doc);
    fsdp_trace_destroy(trace);
}
