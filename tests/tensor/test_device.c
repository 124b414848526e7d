/* Note [Streams] in device.h: the guarantees of a device that computes later, on the fake device
 * and on the CPU. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/kernels/fake/stream_testing.h"
#include "src/tensor/tensor.h"
#include "tests/elements.h"
#include "tests/test.h"

enum {
    ROWS = 50,
    LONG = 1 << 20 /* elements: an array of them does not fit into the queue */
};

static fsdp_fake_stream *stream_of(const fsdp_device *device)
{
    return (fsdp_fake_stream *)(void *)device->context;
}

/* A float32 vector of n zeros. */
static fsdp_status zeros(fsdp_device *device, int64_t n, fsdp_tensor **tensor)
{
    FSDP_TRY(fsdp_tensor_create(device, FSDP_DTYPE_F32, 1, &n, FSDP_TAG_DATA, tensor));
    fsdp_device_memset(device, fsdp_tensor_ptr(*tensor), 0, (size_t)n * sizeof(float));
    return FSDP_OK;
}

/* Returns a value on the device without waiting for kernels; NaN if that fails. */
static float peek(const fsdp_device *device, const float *at)
{
    float value;
    return fsdp_device_peek(device, &value, at, sizeof value) == FSDP_OK ? value : (float)NAN;
}

/* Gathers rows of x, and changes the array of row indices as soon as each call returns. */
static void check_copies(fsdp_test *t, const char *name)
{
    fsdp_device *device;
    fsdp_tensor *x, *y;
    float values[ROWS], got[ROWS];
    int32_t rows[ROWS];
    for (int i = 0; i < ROWS; i++)
        values[i] = (float)i;
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = name}, &device));
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 1, (int64_t[]){ROWS}, values,
                                    FSDP_TAG_DATA, &x));
    ASSERT_OK(zeros(device, ROWS, &y));
    memset(values, 0, sizeof values);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < ROWS; i++)
            rows[i] = ROWS - 1 - i;
        device->kernels->gather_rows(device->context, fsdp_tensor_ptr(y), fsdp_tensor_ptr(x), rows,
                                     ROWS, sizeof(float));
        memset(rows, 0, sizeof rows);
    }
    ASSERT_OK(fsdp_tensor_to_floats(y, got));
    for (int i = 0; i < ROWS; i++)
        ASSERT_F32(got[i], (float)(ROWS - 1 - i));
    fsdp_tensor_release(x);
    fsdp_tensor_release(y);
    fsdp_device_destroy(device);
}

TEST(arguments_of_a_kernel_may_be_reused_when_its_call_returns)
{
    check_copies(t, "cpu");
    CHECK_HERE();
    check_copies(t, "fake");
}

/* Shows that the fake device does delay kernels; otherwise its other tests would show nothing. */
TEST(results_are_not_there_before_a_wait)
{
    fsdp_device *device;
    fsdp_tensor *x;
    if (UNDER_TSAN)
        SKIP("it looks without a wait, which ThreadSanitizer reports");
    if (getenv("FSDP_FAKE_DELAY_US") || getenv("FSDP_FAKE_SEED"))
        SKIP("delays are other ones");
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "fake"}, &device));
    ASSERT_OK(zeros(device, 1, &x));
    ASSERT_OK(fsdp_device_synchronize(device));
    for (int i = 1; i <= 90; i++) /* fewer than the number at which a delayed stream continues */
        device->kernels->fill(device->context, fsdp_tensor_ptr(x), FSDP_DTYPE_F32, i, 1);
    ASSERT(peek(device, fsdp_tensor_ptr(x)) < 90.0f);
    ASSERT_OK(fsdp_device_synchronize(device));
    ASSERT_F32(peek(device, fsdp_tensor_ptr(x)), 90.0f);
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}

/* Far more kernels than fit, with small and large arrays; they run in order. */
TEST(a_full_queue_waits_and_loses_nothing)
{
    fsdp_device *device;
    fsdp_tensor *sum, *one, *many;
    double value;
    setenv("FSDP_FAKE_DELAY_US", "0", 1);
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "fake"}, &device));
    unsetenv("FSDP_FAKE_DELAY_US");
    ASSERT_OK(zeros(device, 1, &sum));
    ASSERT_OK(zeros(device, 1, &one));
    ASSERT_OK(zeros(device, LONG, &many));
    device->kernels->fill(device->context, fsdp_tensor_ptr(one), FSDP_DTYPE_F32, 1.0, 1);
    int32_t *rows = fsdp_calloc(LONG, sizeof *rows);
    ASSERT(rows);
    for (int i = 0; i < 20000; i++) {
        device->kernels->add(device->context, fsdp_tensor_ptr(sum), fsdp_tensor_ptr(sum),
                             fsdp_tensor_ptr(one), FSDP_DTYPE_F32, 1);
        if (i % 1000 == 0)
            device->kernels->gather_rows(device->context, fsdp_tensor_ptr(many),
                                         fsdp_tensor_ptr(sum), rows, i % 5000 ? 30000 : LONG,
                                         sizeof(float));
    }
    ASSERT_OK(fsdp_tensor_item(sum, &value));
    ASSERT(value == 20000.0);
    const float *copies = elements_of(many);
    ASSERT_F32(copies[29999], 19001.0f);
    ASSERT_F32(copies[LONG - 1], 15001.0f);
    fsdp_free(rows);
    fsdp_tensor_release(sum);
    fsdp_tensor_release(one);
    fsdp_tensor_release(many);
    fsdp_device_destroy(device);
}

/* --- events --- */

typedef struct reader {
    const fsdp_device *device;
    fsdp_event *event;
    const float *data;
    float seen;
    fsdp_status status;
} reader;

static void *read_after(void *arg)
{
    reader *r = arg;
    r->status = fsdp_event_synchronize(r->event);
    r->seen = peek(r->device, r->data);
    fsdp_event_destroy(r->event);
    return NULL;
}

/* The thread waits only for its own value, while the rank writes elsewhere in memory. */
static void check_event(fsdp_test *t, const char *name)
{
    fsdp_device *device;
    fsdp_tensor *x;
    pthread_t thread;
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = name}, &device));
    for (int i = 0; i < 20; i++) {
        ASSERT_OK(zeros(device, 2, &x));
        float *data = fsdp_tensor_ptr(x);
        device->kernels->fill(device->context, data, FSDP_DTYPE_F32, 7.0, 1);
        reader r = {.device = device, .event = fsdp_device_record(device), .data = data};
        ASSERT(pthread_create(&thread, NULL, read_after, &r) == 0);
        device->kernels->fill(device->context, data + 1, FSDP_DTYPE_F32, 8.0, 1);
        ASSERT(pthread_join(thread, NULL) == 0);
        ASSERT_OK(r.status);
        ASSERT_F32(r.seen, 7.0f);
        fsdp_tensor_release(x);
    }
    fsdp_device_destroy(device);
}

TEST(an_event_is_behind_what_was_started)
{
    check_event(t, "cpu");
    CHECK_HERE();
    check_event(t, "fake");
}

/* Without memory for an event the device waits, so the event NULL has been reached. */
TEST(an_event_needs_no_memory)
{
    fsdp_device *device;
    fsdp_tensor *x;
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "fake"}, &device));
    ASSERT_OK(zeros(device, 1, &x));
    device->kernels->fill(device->context, fsdp_tensor_ptr(x), FSDP_DTYPE_F32, 3.0, 1);
    fsdp_alloc_fail_at(1);
    fsdp_event *event = fsdp_device_record(device);
    fsdp_alloc_fail_at(0);
    ASSERT(!event);
    ASSERT_F32(peek(device, fsdp_tensor_ptr(x)), 3.0f);
    ASSERT_OK(fsdp_event_synchronize(event));
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}

/* --- failures --- */

static fsdp_status failing_kernel(const fsdp_kernels *kernels, fsdp_kernel_context *context,
                                  const void *args)
{
    (void)kernels;
    (void)context;
    return fsdp_error(FSDP_ERR_NUMERIC, "kernel %d failed", *(const int *)args);
}

TEST(every_wait_after_a_failed_kernel_returns_its_error)
{
    fsdp_device *device;
    fsdp_tensor *x;
    double value;
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "fake"}, &device));
    ASSERT_OK(zeros(device, 1, &x));
    fsdp_event *before = fsdp_device_record(device);
    ASSERT_OK(fsdp_event_synchronize(before));
    fsdp_fake_launch(stream_of(device), failing_kernel, &(int){5}, sizeof(int), NULL, 0);
    fsdp_fake_launch(stream_of(device), failing_kernel, &(int){6}, sizeof(int), NULL, 0);
    fsdp_event *after = fsdp_device_record(device);
    ASSERT_ERROR(fsdp_tensor_item(x, &value), FSDP_ERR_NUMERIC, "kernel 5 failed");
    ASSERT(!fsdp_tensor_data(x) && strcmp(fsdp_last_error(), "kernel 5 failed") == 0);
    ASSERT_ERROR(fsdp_event_synchronize(after), FSDP_ERR_NUMERIC, "kernel 5 failed");
    /* Later kernels do not run. */
    device->kernels->fill(device->context, fsdp_tensor_ptr(x), FSDP_DTYPE_F32, 3.0, 1);
    ASSERT_ERROR(fsdp_device_synchronize(device), FSDP_ERR_NUMERIC, "kernel 5 failed");
    ASSERT_F32(peek(device, fsdp_tensor_ptr(x)), 0.0f);
    fsdp_event_destroy(before);
    fsdp_event_destroy(after);
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}

/* --- memory of the device's own --- */

TEST(the_host_gets_elements_of_a_device_with_memory_of_its_own_only_by_copies)
{
    static const float values[3] = {1.0f, 2.0f, 3.0f};
    fsdp_device *device;
    fsdp_tensor *x, *columns, *halves;
    float got[6];
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "fake"}, &device));
    ASSERT_OK(fsdp_tensor_create(device, FSDP_DTYPE_F32, 1, (int64_t[]){3}, FSDP_TAG_DATA, &x));
    ASSERT(fsdp_device_has_own_memory(device));
    ASSERT(!fsdp_tensor_data(x));
    ASSERT_STR(fsdp_last_error(),
               "the host cannot read memory of device fake: use fsdp_tensor_copy_to_host(), "
               "fsdp_tensor_to_floats() or fsdp_tensor_copy_from_host()");
    ASSERT_OK(fsdp_tensor_copy_from_host(x, values, sizeof values));
    ASSERT_OK(fsdp_tensor_copy_to_host(x, got, sizeof values));
    ASSERT(memcmp(got, values, sizeof values) == 0);
    ASSERT_ERROR(fsdp_tensor_copy_to_host(x, got, 8), FSDP_ERR_INVALID,
                 "8 bytes of a tensor of 12");
    ASSERT_OK(fsdp_tensor_to(x, FSDP_DTYPE_BF16, FSDP_TAG_DATA, &halves));
    ASSERT_OK(fsdp_tensor_to_floats(halves, got));
    ASSERT_F32(got[2], 3.0f);
    fsdp_tensor_release(halves);
    fsdp_tensor_release(x);
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, (int64_t[]){2, 3},
                                    (float[]){0, 1, 2, 3, 4, 5}, FSDP_TAG_DATA, &x));
    ASSERT_OK(fsdp_tensor_transpose(x, 0, 1, &columns));
    ASSERT_OK(fsdp_tensor_to_floats(columns, got));
    for (int i = 0; i < 6; i++)
        ASSERT_F32(got[i], (float)(i % 2 * 3 + i / 2));
    ASSERT_ERROR(fsdp_tensor_copy_to_host(columns, got, sizeof got), FSDP_ERR_INVALID,
                 "not contiguous");
    fsdp_tensor_release(columns);
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}

/* Runs in a process of its own, whose exit status is 0 if nothing stops it. */
static void dereference(void)
{
    fsdp_device *device;
    fsdp_tensor *x;
    if (fsdp_device_create(&(fsdp_device_options){.name = "fake"}, &device) != FSDP_OK ||
        zeros(device, 1, &x) != FSDP_OK || fsdp_device_synchronize(device) != FSDP_OK)
        _exit(1);
    const float value = *(const volatile float *)fsdp_tensor_ptr(x);
    _exit(value == 0.0f ? 0 : 2);
}

/* With a protection key if the processor has them, and without (Note [Protection of fake memory] in
 * src/tensor/fake_memory_testing.h). */
TEST(a_host_that_dereferences_device_memory_faults)
{
    if (UNDER_SANITIZER)
        SKIP("blocks are allocations of their own, or the fault has another report");
    for (int with_key = 0; with_key < 2; with_key++) {
        char text[256] = "";
        int ends[2], status;
        ASSERT(pipe(ends) == 0);
        const pid_t child = fork();
        if (child == 0) {
            dup2(ends[1], STDERR_FILENO);
            setenv("FSDP_FAKE_KEY", with_key ? "1" : "0", 1);
            dereference();
        }
        close(ends[1]);
        ASSERT(waitpid(child, &status, 0) == child);
        ASSERT(read(ends[0], text, sizeof text - 1) > 0);
        close(ends[0]);
        ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        ASSERT_STR(text, "the host dereferences device memory\n");
    }
}

/* --- names --- */

TEST(devices_are_named)
{
    fsdp_device *device;
    if (fsdp_device_create(&(fsdp_device_options){.name = "cuda"}, &device) == FSDP_OK) {
        ASSERT_STR(fsdp_device_name(device), "cuda");
        fsdp_device_destroy(device);
        ASSERT_ERROR(fsdp_device_create(&(fsdp_device_options){.name = "cuda:one"}, &device),
                     FSDP_ERR_INVALID, "the part after the colon is the number of a card");
        ASSERT_ERROR(fsdp_device_create(&(fsdp_device_options){.name = "cuda:77"}, &device),
                     FSDP_ERR_INVALID, "device cuda:77: this machine has");
    } else {
        ASSERT(strstr(fsdp_last_error(), "device cuda: this build has none"));
    }
    setenv("FSDP_FAKE_DELAY_US", "soon", 1);
    ASSERT_ERROR(fsdp_device_create(&(fsdp_device_options){.name = "fake"}, &device),
                 FSDP_ERR_INVALID, "FSDP_FAKE_DELAY_US is 'soon', not a number from 0 to 1000000");
    unsetenv("FSDP_FAKE_DELAY_US");
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "fake"}, &device));
    ASSERT_STR(fsdp_device_name(device), "fake");
    fsdp_device_destroy(device);
}
