/* How much communication is hidden behind computation, on a simulated network (network_testing.h).
 * The clocks are simulated, so every number here is exact, however busy the machine is. */
#include <fsdp/dtensor.h>

#include "src/autograd/autograd.h"
#include "src/base/alloc.h"
#include "src/comm/group_testing.h"
#include "src/comm/network_testing.h"
#include "src/fsdp/state.h"
#include "tests/test.h"

enum {
    WIDTH = 8,
    MAX_BLOCKS = 6,
    MS = 1000000,
    LATENCY = 3 * MS,
};
/* The network's bandwidth. A unit has WIDTH x WIDTH elements, its parameters in float16 and its
 * gradients in float32. */
static const double bytes_per_ns = 1e-3;

/* x W, then `forward_ns` of simulated computation, and `backward_ns` in backward. */
typedef struct part {
    fsdp_parameter *w;
    fsdp_network *network;
    int64_t forward_ns, backward_ns;
} part;

typedef struct model {
    fsdp_group *group;
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_tensor *x; /* input of every forward, and gradient of every output */
    fsdp_module *root, *blocks[MAX_BLOCKS];
    int n_blocks;
    fsdp_network network;
} model;

/* ---- simulated computation ---- */

static void busy_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                          fsdp_tensor **grad_in)
{
    part p;
    (void)s;
    memcpy(&p, n->options, sizeof p);
    p.network->now_ns += p.backward_ns;
    grad_in[0] = grad_out[0];
}

static const fsdp_op busy_op = {.name = "busy", .backward = busy_backward};

static fsdp_tensor *compute(fsdp_scope *s, const part *p, fsdp_tensor *x)
{
    x = fsdp_linear(s, x, fsdp_read(s, p->w), NULL);
    fsdp_tensor *y = x ? fsdp_new(s, x->dtype, x->ndim, x->shape) : NULL;
    if (!y)
        return NULL;
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->copy(fsdp_scope_context(s), fsdp_tensor_ptr(y), fsdp_tensor_ptr(x),
                (size_t)fsdp_tensor_numel(x) * fsdp_dtype_size(x->dtype));
    p->network->now_ns += p->forward_ns;
    fsdp_record(s, &(fsdp_record_args){.op = &busy_op,
                                       .in = {x},
                                       .n_in = 1,
                                       .out = {y},
                                       .n_out = 1,
                                       .options = p,
                                       .options_bytes = sizeof *p});
    return y;
}

static void block_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    out->t[out->n++] = compute(s, fsdp_module_impl(self), in->t[0]);
}

/* The root computes before and after its blocks with the same matrix, like a model with tied
 * embeddings. */
static void root_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    fsdp_tensor *x = compute(s, fsdp_module_impl(self), in->t[0]);
    for (int i = 0; i < fsdp_module_n_children(self); i++)
        x = fsdp_module_call1(s, fsdp_module_child(self, i), x);
    out->t[out->n++] = compute(s, fsdp_module_impl(self), x);
}

/* ---- models ---- */

static fsdp_status add_part(fsdp_module *m, fsdp_forward_fn *forward, fsdp_network *network,
                            int64_t forward_ns)
{
    const int64_t shape[] = {WIDTH, WIDTH};
    part *p = fsdp_calloc(1, sizeof *p);
    if (!p)
        return FSDP_ERR_NOMEM;
    *p = (part){.network = network, .forward_ns = forward_ns, .backward_ns = 2 * forward_ns};
    fsdp_module_set_forward(m, forward, p, fsdp_free);
    return fsdp_module_add_parameter(m, "w", 2, shape, (fsdp_init){.std = 0.3f}, &p->w);
}

/* Block i computes for forward_ns[i] in forward and twice as long in backward. The root computes
 * for as long as the first block. */
static fsdp_status build(model *m, const int64_t *forward_ns, int n_blocks,
                         const fsdp_fully_shard_options *options)
{
    static const char *const names[MAX_BLOCKS] = {"0", "1", "2", "3", "4", "5"};
    FSDP_TRY(fsdp_module_create("Root", &m->root));
    FSDP_TRY(add_part(m->root, root_forward, &m->network, forward_ns[0]));
    for (int i = 0; i < n_blocks; i++) {
        FSDP_TRY(fsdp_module_create("Block", &m->blocks[i]));
        FSDP_TRY(fsdp_module_add_child(m->root, names[i], m->blocks[i]));
        FSDP_TRY(add_part(m->blocks[i], block_forward, &m->network, forward_ns[i]));
        FSDP_TRY(fsdp_fully_shard(m->blocks[i], m->group, m->device, options));
    }
    m->n_blocks = n_blocks;
    FSDP_TRY(fsdp_fully_shard(m->root, m->group, m->device, options));
    return fsdp_module_init(m->root, 1);
}

static fsdp_status model_open(fsdp_group *group, const int64_t *forward_ns, int n_blocks,
                              fsdp_fully_shard_options options, model *m)
{
    const int64_t shape[] = {2, WIDTH};
    const float ones[2 * WIDTH] = {1, 1, 1};
    fsdp_tensor *x;
    *m = (model){.group = group, .network = {.latency_ns = LATENCY, .bytes_per_ns = bytes_per_ns}};
    options.mp_policy.param_dtype = FSDP_DTYPE_F16;
    fsdp_group_set_network(group, &m->network);
    FSDP_TRY(fsdp_device_create(&(fsdp_device_options){.name = NULL}, &m->device));
    FSDP_TRY(fsdp_tape_create(&m->tape));
    FSDP_TRY(build(m, forward_ns, n_blocks, &options));
    FSDP_TRY(fsdp_tensor_from_data(m->device, FSDP_DTYPE_F32, 2, shape, ones, FSDP_TAG_DATA, &x));
    fsdp_status status = fsdp_tensor_to(x, FSDP_DTYPE_F16, FSDP_TAG_DATA, &m->x);
    fsdp_tensor_release(x);
    return status;
}

static void model_close(model *m)
{
    fsdp_tensor_release(m->x);
    fsdp_tape_destroy(m->tape);
    fsdp_module_destroy(m->root);
    fsdp_device_destroy(m->device);
    fsdp_group_set_network(m->group, NULL);
}

/* The time of one forward or backward, and how much of it was waiting. */
typedef struct spent {
    int64_t total, exposed[FSDP_KIND_COUNT];
    int waits[FSDP_KIND_COUNT];
} spent;

static spent since(const model *m, const fsdp_network *before)
{
    spent s = {.total = m->network.now_ns - before->now_ns};
    for (int k = 0; k < FSDP_KIND_COUNT; k++) {
        s.exposed[k] = m->network.exposed_ns[k] - before->exposed_ns[k];
        s.waits[k] = (int)(m->network.exposed[k] - before->exposed[k]);
    }
    return s;
}

/* Write the root's parameters, as an optimizer would, so the copy that it kept is stale. */
static fsdp_status write_root(const model *m)
{
    fsdp_tensor *local = fsdp_parameter_local(((part *)fsdp_module_impl(m->root))->w);
    FSDP_TRY(fsdp_tensor_begin_write(local));
    fsdp_tensor_end_write(local);
    return FSDP_OK;
}

/* Forward and backward. All ranks begin at the same time. */
static fsdp_status pass(model *m, spent *forward, spent *backward)
{
    fsdp_scope *s;
    FSDP_TRY(fsdp_barrier(m->group));
    fsdp_network before = m->network;
    FSDP_TRY(fsdp_scope_open(m->device, m->tape, &(fsdp_scope_options){.training = true}, &s));
    fsdp_tensor *y = fsdp_module_call1(s, m->root, m->x);
    *forward = since(m, &before);
    before = m->network;
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_backward(m->tape, &y, (fsdp_tensor *const[]){m->x}, 1);
    *backward = since(m, &before);
    fsdp_scope_close(s);
    fsdp_module_zero_grad(m->root);
    return status == FSDP_OK ? write_root(m) : status;
}

/* ---- expected times ---- */

/* The time of a collective that is not hidden. */
static int64_t alone_ns(const fsdp_group *group, fsdp_dtype dtype)
{
    const int world_size = fsdp_group_world_size(group);
    const double bytes = (double)(WIDTH * WIDTH * fsdp_dtype_size(dtype));
    return LATENCY + (int64_t)(bytes * (world_size - 1) / world_size / bytes_per_ns);
}

static int64_t sum(const int64_t *values, int n)
{
    int64_t total = 0;
    for (int i = 0; i < n; i++)
        total += values[i];
    return total;
}

static void check(fsdp_test *t, const spent *s, int gathers, int64_t gathers_ns, int reduces,
                  int64_t computing_ns)
{
    const int64_t reduces_ns = reduces * alone_ns(t->group, FSDP_DTYPE_F32);
    ASSERT_INT(s->waits[FSDP_KIND_ALL_GATHER], gathers);
    ASSERT_INT(s->exposed[FSDP_KIND_ALL_GATHER], gathers_ns);
    ASSERT_INT(s->waits[FSDP_KIND_REDUCE_SCATTER], reduces);
    ASSERT_INT(s->exposed[FSDP_KIND_REDUCE_SCATTER], reduces_ns);
    ASSERT_INT(s->waits[FSDP_KIND_WRITE_SHARD] + s->waits[FSDP_KIND_GRADIENT], 0);
    /* Pools create their buffers in the first iteration, and all ranks wait for this. */
    ASSERT_INT(s->total, computing_ns + gathers_ns + reduces_ns + s->exposed[FSDP_KIND_BUFFER]);
}

static const int64_t equal_blocks[] = {4 * MS, 4 * MS, 4 * MS, 4 * MS};

/* The order is unknown in the first forward, so only its backward prefetches. Later only the first
 * gather and the last reduce are exposed. */
static void only_the_ends_are_exposed(fsdp_test *t)
{
    model m;
    spent forward, backward;
    const int64_t gather = alone_ns(t->group, FSDP_DTYPE_F16);
    const int64_t computing = sum(equal_blocks, 4) + 2 * equal_blocks[0];
    fsdp_group_set_delay(t->group, 3, 300); /* in real time, which changes no number */
    ASSERT_OK(model_open(t->group, equal_blocks, 4, (fsdp_fully_shard_options){0}, &m));
    for (int iteration = 0; iteration < 3; iteration++) {
        const int gathers = iteration == 0 ? 5 : 1;
        ASSERT_OK(pass(&m, &forward, &backward));
        check(t, &forward, gathers, gathers * gather, 0, computing);
        check(t, &backward, 0, 0, 1, 2 * computing);
        CHECK_HERE();
    }
    model_close(&m);
}

TEST_RANKS(on_two_ranks_the_first_gather_and_the_last_reduce_are_exposed, 2)
{
    only_the_ends_are_exposed(t);
}

TEST_RANKS(on_three_ranks_the_first_gather_and_the_last_reduce_are_exposed, 3)
{
    only_the_ends_are_exposed(t);
}

/* A unit's sum over replicas is sent when the next unit posts its gradients, and is needed when the
 * unit after that one posts its gradients. No unit computes after the last one, so the sums of the
 * last two units are exposed. They are sent one after the other, but their latencies overlap. */
TEST_RANKS(the_last_two_sums_over_replicas_are_exposed, 2)
{
    static const char *const names[] = {"replicate", "shard"};
    model m = {0};
    fsdp_device_mesh *mesh;
    spent forward, backward;
    const int64_t alone = alone_ns(t->group, FSDP_DTYPE_F32);
    const int64_t computing = sum(equal_blocks, 4) + 2 * equal_blocks[0];
    fsdp_group_set_network(t->group, &m.network); /* before groups are split off */
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 1}, names, &mesh));
    ASSERT_OK(model_open(t->group, equal_blocks, 4, (fsdp_fully_shard_options){.mesh = mesh}, &m));
    for (int iteration = 0; iteration < 3; iteration++) {
        ASSERT_OK(pass(&m, &forward, &backward));
        ASSERT_INT(backward.waits[FSDP_KIND_ALL_REDUCE], 2);
        ASSERT_INT(backward.exposed[FSDP_KIND_ALL_REDUCE], alone + (alone - LATENCY));
        if (iteration)
            ASSERT_INT(backward.total, 2 * computing + backward.exposed[FSDP_KIND_ALL_REDUCE]);
        CHECK_HERE();
    }
    model_close(&m);
    fsdp_device_mesh_destroy(mesh);
}

/* Prefetching one unit ahead hides a gather only for as long as one unit computes. The rest of each
 * gather is exposed. */
TEST_RANKS(computing_that_is_too_short_hides_as_much_as_it_lasts, 2)
{
    static const int64_t short_blocks[] = {MS, MS, MS};
    model m;
    spent forward, backward;
    const int64_t gather = alone_ns(t->group, FSDP_DTYPE_F16);
    ASSERT_OK(model_open(t->group, short_blocks, 3, (fsdp_fully_shard_options){0}, &m));
    ASSERT_OK(pass(&m, &forward, &backward));
    ASSERT_OK(pass(&m, &forward, &backward));
    check(t, &forward, 4, gather + 3 * (gather - MS), 0, 5 * MS);
    model_close(&m);
}

/* Without reshard_after_forward, backward gathers nothing. */
TEST_RANKS(what_is_kept_is_not_gathered_again, 2)
{
    model m;
    spent forward, backward;
    const fsdp_fully_shard_options keep = {.reshard_after_forward = FSDP_RESHARD_FALSE};
    ASSERT_OK(model_open(t->group, equal_blocks, 4, keep, &m));
    const uint64_t before = fsdp_group_get_counters(t->group).calls[FSDP_KIND_ALL_GATHER];
    ASSERT_OK(pass(&m, &forward, &backward));
    ASSERT_INT(fsdp_group_get_counters(t->group).calls[FSDP_KIND_ALL_GATHER] - before, 5);
    check(t, &backward, 0, 0, 1, 2 * (sum(equal_blocks, 4) + 2 * equal_blocks[0]));
    model_close(&m);
}

/* Without prefetching, or with BACKWARD_POST, which begins a gather only after the unit before it
 * has computed, every gather is exposed as a whole. Reduces still overlap. */
static void every_gather_is_exposed(fsdp_test *t, fsdp_backward_prefetch backward_prefetch)
{
    model m;
    spent forward, backward;
    const int64_t gather = alone_ns(t->group, FSDP_DTYPE_F16);
    const int64_t computing = sum(equal_blocks, 4) + 2 * equal_blocks[0];
    const fsdp_fully_shard_options o = {.forward_prefetch = FSDP_FORWARD_NONE,
                                        .backward_prefetch = backward_prefetch};
    ASSERT_OK(model_open(t->group, equal_blocks, 4, o, &m));
    for (int iteration = 0; iteration < 2; iteration++) {
        ASSERT_OK(pass(&m, &forward, &backward));
        check(t, &forward, 5, 5 * gather, 0, computing);
        check(t, &backward, 4, 4 * gather, 1, 2 * computing);
        CHECK_HERE();
    }
    model_close(&m);
}

TEST_RANKS(without_prefetch_every_gather_is_exposed, 2)
{
    every_gather_is_exposed(t, FSDP_BACKWARD_NONE);
    every_gather_is_exposed(t, FSDP_BACKWARD_POST);
}

/* After two small blocks in a row, prefetching one unit ahead is not enough. */
static const int64_t small_in_between[] = {4 * MS, MS / 4, MS / 4, 4 * MS};

/* Block 0 prefetches all others in forward, block 3 in backward. */
static fsdp_status prefetch_explicitly(model *m)
{
    fsdp_module *backward[] = {m->blocks[2], m->blocks[1], m->blocks[0]};
    FSDP_TRY(fsdp_set_modules_to_forward_prefetch(m->blocks[0], m->blocks + 1, 3));
    return fsdp_set_modules_to_backward_prefetch(m->blocks[3], backward, 3);
}

TEST_RANKS(explicit_prefetch_hides_what_implicit_does_not, 2)
{
    spent forward, backward;
    const int64_t gather = alone_ns(t->group, FSDP_DTYPE_F16);
    const int64_t late = gather - MS / 4, later = gather - MS / 2;
    const int64_t computing = sum(small_in_between, 4) + 2 * small_in_between[0];
    for (int unlimited = 0; unlimited < 2; unlimited++) {
        model m;
        const fsdp_fully_shard_options o = {.no_limit_all_gathers = unlimited};
        ASSERT_OK(model_open(t->group, small_in_between, 4, o, &m));
        ASSERT_OK(pass(&m, &forward, &backward));
        ASSERT_OK(pass(&m, &forward, &backward));
        check(t, &forward, 3, gather + 2 * late, 0, computing);
        ASSERT(backward.waits[FSDP_KIND_ALL_GATHER] > 0);
        ASSERT_OK(prefetch_explicitly(&m));
        ASSERT_OK(pass(&m, &forward, &backward));
        /* With a limit of two, the gather of the third block that block 0 prefetches begins when
         * block 1 is entered. */
        check(t, &forward, unlimited ? 1 : 2, gather + (unlimited ? 0 : later), 0, computing);
        if (unlimited)
            ASSERT_INT(backward.waits[FSDP_KIND_ALL_GATHER], 0);
        model_close(&m);
        CHECK_HERE();
    }
}

/* With unshard(async_op=True) before the batch is loaded, not even the first gather is exposed. */
TEST_RANKS(the_roots_gather_hides_behind_what_comes_before_forward, 2)
{
    model m;
    spent forward, backward;
    ASSERT_OK(model_open(t->group, equal_blocks, 4, (fsdp_fully_shard_options){0}, &m));
    ASSERT_OK(pass(&m, &forward, &backward));
    ASSERT_OK(fsdp_unit_unshard_async(m.root, NULL));
    m.network.now_ns += 4 * MS;
    ASSERT_OK(pass(&m, &forward, &backward));
    check(t, &forward, 0, 0, 0, sum(equal_blocks, 4) + 2 * equal_blocks[0]);
    model_close(&m);
}

/* No bytes have to move, as within a host, but each rank is late in a different block. Without a
 * limit, the rank that is ahead finds the rows that the late rank wrote in advance, and has a free
 * buffer for the next unit, so no rank waits. With a limit, all wait for the late rank in each
 * block. */
TEST_RANKS(prefetch_without_limit_hides_that_a_peer_is_late, 2)
{
    static const int64_t late[2][5] = {{4 * MS, 6 * MS, 4 * MS, 4 * MS, 4 * MS},
                                       {4 * MS, 4 * MS, 6 * MS, 4 * MS, 4 * MS}};
    const int64_t own = sum(late[t->rank], 5) + 2 * late[t->rank][0];
    for (int limited = 0; limited < 2; limited++) {
        model m;
        spent forward, backward;
        const fsdp_fully_shard_options o = {.no_limit_all_gathers = !limited};
        ASSERT_OK(model_open(t->group, late[t->rank], 5, o, &m));
        m.network.latency_ns = 0;
        m.network.bytes_per_ns = 0;
        for (int iteration = 0; iteration < 3; iteration++)
            ASSERT_OK(pass(&m, &forward, &backward));
        ASSERT_INT(forward.total, limited ? own + 2 * MS : own);
        model_close(&m);
    }
}
