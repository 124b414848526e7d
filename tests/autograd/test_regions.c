/* Regions and their hooks: Note [Regions] in src/autograd/autograd.h. Hooks append to a log: "+a"
 * and "-a" when backward enters and leaves a region of unit a, "-A" if it was the last region of
 * the unit, "=a" when backward ends, and "!a" when unit a is cancelled. */
#include <ctype.h>

#include "src/autograd/autograd.h"
#include "tests/autograd/gradcheck.h"

enum {
    UNITS = 4
};

typedef struct unit {
    fsdp_region_hooks hooks;
    char name;
    char *log;
    bool fail_pre, fail_post, fail_end;
    int entered, left, cancelled; /* numbers of calls */
} unit;

typedef struct bench {
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    fsdp_tensor *x; /* a leaf [2] */
    unit units[UNITS];
    char log[256];
} bench;

static void append(char *log, char kind, char name)
{
    char text[4] = {kind, name, ' ', 0};
    strcat(log, text);
}

static fsdp_status on_pre_backward(void *self)
{
    unit *u = self;
    u->entered++;
    append(u->log, '+', u->name);
    return u->fail_pre ? fsdp_error(FSDP_ERR_COMM, "unit %c cannot unshard", u->name) : FSDP_OK;
}

static fsdp_status on_post_backward(void *self, bool last)
{
    unit *u = self;
    u->left++;
    append(u->log, '-', last ? (char)toupper(u->name) : u->name);
    return u->fail_post ? fsdp_error(FSDP_ERR_COMM, "unit %c cannot reduce", u->name) : FSDP_OK;
}

static fsdp_status on_end_backward(void *self)
{
    unit *u = self;
    append(u->log, '=', u->name);
    return u->fail_end ? fsdp_error(FSDP_ERR_COMM, "unit %c cannot end", u->name) : FSDP_OK;
}

static void on_cancel(void *self, bool has_backward)
{
    unit *u = self;
    (void)has_backward;
    u->cancelled++;
    append(u->log, '!', u->name);
    (void)fsdp_error(FSDP_ERR_STATE, "a failure while cancelling");
}

static void open_bench(fsdp_test *t, bench *b)
{
    static const int64_t two = 2;
    memset(b, 0, sizeof *b);
    ASSERT_OK(fsdp_device_create(NULL, &b->device));
    ASSERT_OK(fsdp_tape_create(&b->tape));
    ASSERT_OK(fsdp_scope_open(b->device, b->tape, NULL, &b->s));
    b->x = op_random_tensor(t, b->device, FSDP_DTYPE_F32, 1, &two, 1);
    CHECK_HERE();
    ASSERT_OK(fsdp_tensor_set_requires_grad(b->x, true));
    for (int i = 0; i < UNITS; i++) {
        b->units[i].name = (char)('a' + i);
        b->units[i].log = b->log;
        b->units[i].hooks = (fsdp_region_hooks){.pre_backward = on_pre_backward,
                                                .post_backward = on_post_backward,
                                                .cancel = on_cancel,
                                                .self = &b->units[i]};
    }
}

static void close_bench(fsdp_test *t, bench *b)
{
    fsdp_scope_close(b->s);
    fsdp_tape_destroy(b->tape);
    fsdp_tensor_release(b->x);
    if (op_allocated(b->device))
        fsdp_test_fail(t, __FILE__, __LINE__, "%lld bytes leak",
                       (long long)op_allocated(b->device));
    for (int i = 0; i < UNITS; i++)
        if (b->units[i].hooks.reached)
            fsdp_test_fail(t, __FILE__, __LINE__, "unit %c is still reached", b->units[i].name);
    fsdp_device_destroy(b->device);
}

static uint32_t begin(bench *b, char name)
{
    fsdp_region_hooks *hooks = &b->units[name - 'a'].hooks;
    return fsdp_region_begin(b->s, &hooks, 1);
}

/* A module with one operation and the hooks of one unit. */
static fsdp_tensor *layer(bench *b, char name, fsdp_tensor *x)
{
    uint32_t region = begin(b, name);
    fsdp_tensor *y = fsdp_scale(b->s, x, 2.0f);
    fsdp_region_end(b->s, region);
    return y;
}

static fsdp_status backward(bench *b, fsdp_tensor *const *roots, int n)
{
    fsdp_tensor *ones, *grads[4];
    float one[2] = {1.0f, 1.0f};
    FSDP_TRY(fsdp_scope_status(b->s));
    FSDP_TRY(fsdp_tensor_from_data(b->device, FSDP_DTYPE_F32, 1, (const int64_t[]){2}, one,
                                   FSDP_TAG_DATA, &ones));
    for (int i = 0; i < n; i++)
        grads[i] = ones;
    fsdp_status status = fsdp_backward(b->tape, roots, grads, n);
    fsdp_tensor_release(ones);
    return status;
}

TEST(regions_in_a_row_are_left_before_the_next_is_entered)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_tensor *y = layer(&b, 'c', layer(&b, 'b', layer(&b, 'a', b.x)));
    ASSERT_OK(backward(&b, &y, 1));
    ASSERT_STR(b.log, "+c -C +b -B +a -A ");
    close_bench(t, &b);
}

/* a contains b and c, and has operations before, between and after them. */
TEST(nested_regions_are_entered_outermost_and_left_innermost_first)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    uint32_t outer = begin(&b, 'a');
    fsdp_tensor *y = layer(&b, 'b', fsdp_scale(b.s, b.x, 2.0f));
    y = layer(&b, 'c', fsdp_scale(b.s, y, 2.0f));
    y = fsdp_scale(b.s, y, 2.0f);
    fsdp_region_end(b.s, outer);
    ASSERT_OK(backward(&b, &y, 1));
    ASSERT_STR(b.log, "+a +c -C +b -B -A ");
    close_bench(t, &b);
}

/* Three nested regions in which only the innermost has an operation: all are entered at its
 * node. */
TEST(regions_without_operations_of_their_own_are_entered_with_their_child)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    uint32_t outer = begin(&b, 'a'), middle = begin(&b, 'b');
    fsdp_tensor *y = layer(&b, 'c', b.x);
    fsdp_region_end(b.s, middle);
    fsdp_region_end(b.s, outer);
    fsdp_tensor *z = layer(&b, 'd', y);
    ASSERT_OK(backward(&b, &z, 1));
    ASSERT_STR(b.log, "+d -D +a +b +c -C -B -A ");
    close_bench(t, &b);
}

TEST(a_module_used_twice_is_last_when_left_the_second_time)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_tensor *y = layer(&b, 'a', layer(&b, 'b', layer(&b, 'a', b.x)));
    ASSERT_OK(backward(&b, &y, 1));
    ASSERT_STR(b.log, "+a -a +b -B +a -A ");
    close_bench(t, &b);
}

/* Modules of one unit, one inside the other. */
TEST(a_unit_of_nested_modules_is_last_when_the_outer_is_left)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    uint32_t outer = begin(&b, 'a');
    fsdp_tensor *y = layer(&b, 'a', fsdp_scale(b.s, b.x, 2.0f));
    fsdp_region_end(b.s, outer);
    ASSERT_OK(backward(&b, &y, 1));
    ASSERT_STR(b.log, "+a +a -a -A ");
    close_bench(t, &b);
}

TEST(two_forwards_before_one_backward_are_one_sweep)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_tensor *roots[2];
    roots[0] = layer(&b, 'b', layer(&b, 'a', b.x));
    roots[1] = layer(&b, 'b', layer(&b, 'a', b.x));
    ASSERT_OK(backward(&b, roots, 2));
    ASSERT_STR(b.log, "+b -b +a -a +b -B +a -A ");
    float grad[2];
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(b.x), grad));
    ASSERT_F32(grad[1], 8.0f);
    close_bench(t, &b);
}

/* Only one of two forwards contributes to the loss: backward does not wait for the other's
 * region. */
TEST(unused_outputs_neither_enter_nor_delay_last)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_tensor *used = layer(&b, 'a', b.x);
    ASSERT(layer(&b, 'b', layer(&b, 'a', b.x)));
    ASSERT_OK(backward(&b, &used, 1));
    ASSERT_STR(b.log, "+a -A ");
    close_bench(t, &b);
}

/* A module that is called without its root needs no other region. */
TEST(a_region_needs_no_parent)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_tensor *y = layer(&b, 'd', fsdp_scale(b.s, b.x, 2.0f));
    ASSERT_OK(backward(&b, &y, 1));
    ASSERT_STR(b.log, "+d -D ");
    close_bench(t, &b);
}

/* A module without parameters whose input needs no gradient adds no node. */
TEST(a_region_without_nodes_is_never_entered)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    uint32_t outer = begin(&b, 'a');
    uint32_t empty = begin(&b, 'b');
    fsdp_region_end(b.s, empty);
    fsdp_tensor *y = fsdp_scale(b.s, b.x, 2.0f);
    empty = begin(&b, 'b');
    fsdp_region_end(b.s, empty);
    fsdp_region_end(b.s, outer);
    ASSERT_OK(backward(&b, &y, 1));
    ASSERT_STR(b.log, "+a -A ");
    close_bench(t, &b);
}

TEST(hooks_of_one_region_run_in_order_and_in_reverse)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_region_hooks *hooks[] = {&b.units[0].hooks, &b.units[1].hooks, &b.units[2].hooks};
    b.units[1].hooks.pre_backward = NULL;
    b.units[1].hooks.post_backward = NULL;
    uint32_t region = fsdp_region_begin(b.s, hooks, 3);
    fsdp_tensor *y = fsdp_scale(b.s, b.x, 2.0f);
    fsdp_region_end(b.s, region);
    ASSERT_OK(backward(&b, &y, 1));
    ASSERT_STR(b.log, "+a +c -C -A ");
    close_bench(t, &b);
}

/* Once for each unit on the tape, in its order, even for b, which no root depends on. */
TEST(backward_ends_once_for_every_unit)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    for (int i = 0; i < UNITS; i++)
        b.units[i].hooks.end_backward = on_end_backward;
    for (int step = 0; step < 2; step++) {
        b.log[0] = 0;
        fsdp_tensor *y = layer(&b, 'c', layer(&b, 'a', b.x));
        ASSERT(layer(&b, 'b', y));
        y = layer(&b, 'c', y);
        ASSERT_OK(backward(&b, &y, 1));
        ASSERT_STR(b.log, "+c -c +c -C +a -A =a =c =b ");
    }
    b.log[0] = 0;
    b.units[2].fail_end = true;
    fsdp_tensor *y = layer(&b, 'd', layer(&b, 'c', layer(&b, 'a', b.x)));
    ASSERT_ERROR(backward(&b, &y, 1), FSDP_ERR_COMM, "unit c cannot end");
    ASSERT_STR(b.log, "+d -D +c -C +a -A =a =c !d !c !a ");
    close_bench(t, &b);
}

TEST(without_a_tape_there_are_no_regions)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_scope_close(b.s);
    ASSERT_OK(fsdp_scope_open(b.device, NULL, NULL, &b.s));
    ASSERT_INT(begin(&b, 'a'), 0);
    fsdp_region_end(b.s, 0);
    ASSERT(layer(&b, 'a', b.x));
    ASSERT_STR(b.log, "");
    ASSERT_INT(b.tape->n_regions, 0);
    close_bench(t, &b);
}

/* --- failures --- */

/* Every unit with a region on the tape is cancelled: entered, left, or not yet reached. */
static void fail_in(fsdp_test *t, bool pre, const char *message, const char *log)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    b.units[1].fail_pre = pre;
    b.units[1].fail_post = !pre;
    fsdp_tensor *y = layer(&b, 'c', layer(&b, 'b', layer(&b, 'a', b.x)));
    ASSERT_ERROR(backward(&b, &y, 1), FSDP_ERR_COMM, message);
    ASSERT_STR(b.log, log);
    ASSERT_INT(b.tape->n_nodes, 0);
    /* The next step is not affected. */
    b.log[0] = 0;
    b.units[1].fail_pre = b.units[1].fail_post = false;
    fsdp_tensor_zero_grad(b.x);
    y = layer(&b, 'b', layer(&b, 'a', b.x));
    ASSERT_OK(backward(&b, &y, 1));
    ASSERT_STR(b.log, "+b -B +a -A ");
    close_bench(t, &b);
}

TEST(a_failing_hook_cancels_every_unit)
{
    fail_in(t, true, "unit b cannot unshard", "+c -C +b !c !b !a ");
    CHECK_HERE();
    fail_in(t, false, "unit b cannot reduce", "+c -C +b -B !c !b !a ");
}

static void fail_to_forget(void *host)
{
    (void)host;
    (void)fsdp_error(FSDP_ERR_IO, "a failure while forgetting");
}

/* A tensor held by a node may be in a file, and releasing it may fail. */
TEST(a_failure_while_the_tape_is_cleared_does_not_hide_the_first)
{
    static const fsdp_op op = {.name = "forgetful", .host_destroy = fail_to_forget};
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    b.units[0].fail_post = true;
    fsdp_tensor *x = fsdp_scale(b.s, b.x, 1.0f), *held = fsdp_scale(b.s, b.x, 2.0f);
    fsdp_record(b.s, &(fsdp_record_args){
                         .op = &op, .in = {x}, .n_in = 1, .out = {held}, .n_out = 1, .host = &b});
    fsdp_tensor *y = layer(&b, 'a', x);
    ASSERT_ERROR(backward(&b, &y, 1), FSDP_ERR_COMM, "unit a cannot reduce");
    close_bench(t, &b);
}

/* The gradient of a loss must be 1. */
TEST(a_failing_operation_cancels_every_unit)
{
    static const int32_t label = 0;
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_tensor *w, *rows, *x = layer(&b, 'a', b.x);
    ASSERT_OK(fsdp_tensor_view(b.x, 2, (const int64_t[]){1, 2}, &w));
    (void)x;
    uint32_t outer = begin(&b, 'b');
    ASSERT_OK(fsdp_tensor_set_requires_grad(w, true));
    rows = layer(&b, 'c', w);
    fsdp_tensor *y =
        fsdp_scale(b.s, fsdp_linear_cross_entropy(b.s, rows, rows, &label, 1.0f), 3.0f);
    fsdp_region_end(b.s, outer);
    ASSERT_OK(fsdp_scope_status(b.s));
    ASSERT_ERROR(fsdp_backward(b.tape, &y, NULL, 1), FSDP_ERR_UNSUPPORTED,
                 "backward of linear_cross_entropy: linear_cross_entropy: the gradient");
    ASSERT_STR(b.log, "+b !c !b !a ");
    fsdp_tensor_release(w);
    close_bench(t, &b);
}

TEST(a_forward_without_backward_is_cancelled_by_reset)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    ASSERT(layer(&b, 'b', layer(&b, 'a', b.x)));
    fsdp_tape_reset(b.tape);
    ASSERT_STR(b.log, "!b !a ");
    /* A step that fails between begin and end leaves no region open. */
    (void)begin(&b, 'a');
    fsdp_tape_reset(b.tape);
    b.log[0] = 0;
    fsdp_tensor *y = layer(&b, 'c', b.x);
    ASSERT_OK(backward(&b, &y, 1));
    ASSERT_STR(b.log, "+c -C ");
    close_bench(t, &b);
}
