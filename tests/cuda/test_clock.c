/* The clock of a device for a trace, and a profile of a step on the device. */
#include "src/profile/profile.h"
#include "tests/cuda/conform.h"

TEST(marks_are_in_the_order_of_the_stream)
{
    enum {
        N = 1 << 16,
        STEPS = 2,
        MARKS = 600 /* more than the array of events has at first */
    };
    CONFORM_OPEN(x);
    static int64_t at_ns[1 + MARKS];
    fsdp_trace_clock clock = {0};
    conform_array *a = conform_output(&x, FSDP_DTYPE_F32, N);
    ASSERT_OK(x.gpu->ops->clock_create(x.gpu, &clock));
    for (int step = 0; step < STEPS; step++) {
        ASSERT(clock.start(clock.self));
        for (int i = 0; i < MARKS; i++) {
            if (i % 100 == 0)
                x.dk->fill(x.dc, a->device, FSDP_DTYPE_F32, 1.0, N);
            ASSERT(clock.mark(clock.self));
        }
        ASSERT(clock.read(clock.self, at_ns, 1 + MARKS));
        ASSERT_INT(at_ns[0], 0);
        for (int i = 0; i < MARKS; i++)
            ASSERT(at_ns[i + 1] >= at_ns[i]);
        ASSERT(at_ns[MARKS] > 0);
    }
    clock.destroy(clock.self);
    conform_free(&x);
    conform_close(&x);
}

/* The kernel is started in one span and runs, late, while the host is in another one. Its time
 * belongs to the first. */
TEST(a_profile_has_the_time_of_the_device)
{
    enum {
        N = 1 << 18
    };
    CONFORM_OPEN(x);
    fsdp_profile *p;
    size_t n;
    const fsdp_profile_options options = {.device = x.gpu, .n_steps = 1};
    conform_array *a = conform_output(&x, FSDP_DTYPE_F32, N);
    ASSERT_OK(fsdp_profile_create(NULL, &options, &p));
    ASSERT_OK(fsdp_profile_step_begin(p));
    fsdp_trace_begin(FSDP_TRACE_MATMUL, "linear", NULL);
    for (int i = 0; i < 4; i++)
        x.dk->fill(x.dc, a->device, FSDP_DTYPE_F32, 1.0, N);
    fsdp_trace_end();
    fsdp_trace_begin(FSDP_TRACE_DATA, "next batch", NULL);
    ASSERT_OK(fsdp_device_synchronize(x.gpu));
    fsdp_trace_end();
    ASSERT_OK(fsdp_profile_step_end(p));
    const fsdp_profile_row *rows = fsdp_profile_rows(p, &n);
    double sum = 0.0;
    for (size_t i = 0; i + 1 < n; i++)
        sum += rows[i].device_ms;
    ASSERT_STR(rows[0].name, "matmul");
    ASSERT(rows[0].device_ms > 0.0);
    ASSERT(fabs(sum - rows[n - 1].device_ms) <= 1e-6);
    ASSERT(rows[0].device_share > 0.0 && rows[0].device_share <= 1.0);
    fsdp_profile_name names[FSDP_PROFILE_NAMES];
    ASSERT_OK(fsdp_profile_names(p, names, &n));
    ASSERT(n >= 2 && names[0].device_ms > 0.0);
    fsdp_profile_destroy(p);
    conform_free(&x);
    conform_close(&x);
}
