/* Note [Param storages] in src/fsdp/param_storage.h: which storage a parameter gets, and that a
 * group may combine storages. */
#include <string.h>

#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

/* How the matrix `up` differs from the other parameters. */
typedef enum up_is {
    TRAINED,
    FROZEN,      /* in float32 */
    FROZEN_BF16, /* frozen, and loaded in bfloat16 */
    EXTENDED
} up_is;

static size_t plain_bytes(void *self, const fsdp_parameter *p, int64_t rows)
{
    (void)self;
    return (size_t)(rows * (fsdp_parameter_numel(p) / fsdp_parameter_shape(p)[0])) * sizeof(float);
}

static fsdp_status pack(void *self, const fsdp_parameter *p, const fsdp_tensor *local,
                        fsdp_group *group, void *packed, size_t bytes)
{
    (void)self, (void)p, (void)group;
    FSDP_TRY(fsdp_tensor_check_data(local));
    if (bytes)
        memcpy(packed, fsdp_tensor_data(local), bytes);
    return FSDP_OK;
}

static fsdp_status unpack(void *self, const fsdp_parameter *p, const void *packed, size_t bytes,
                          fsdp_tensor *rows)
{
    (void)self, (void)p, (void)bytes;
    return fsdp_tensor_from_host(rows, 0, packed, FSDP_DTYPE_F32, fsdp_tensor_numel(rows));
}

static fsdp_status set_up(fsdp_parameter *up, up_is is)
{
    const fsdp_all_gather_extension extension = {
        .packed_bytes = plain_bytes, .pre_all_gather = pack, .post_all_gather = unpack};
    fsdp_parameter_set_requires_grad(up, is == TRAINED || is == EXTENDED);
    up->loaded = is == FROZEN_BF16;
    up->loaded_dtype = FSDP_DTYPE_BF16;
    return is == EXTENDED ? fsdp_parameter_set_all_gather_extension(up, &extension) : FSDP_OK;
}

static int last_dimension(const char *name, const fsdp_parameter *p, void *arg)
{
    (void)name, (void)arg;
    return fsdp_parameter_ndim(p) - 1;
}

/* Check the storage of `up`, and that of `down`, which trains. Then run a step. */
static void check(fsdp_test *t, fsdp_group *group, fsdp_fully_shard_options o, up_is is,
                  const char *storage_of_up, const char *storage_of_down)
{
    trainee m;
    fsdp_module *model;
    ASSERT_OK(trainee_open(group, NULL, o.mp_policy.param_dtype, &m));
    ASSERT_OK(tree_add(NULL, "", TREE_EXAMPLE_WIDTH, 5, &model));
    ASSERT_OK(set_up(tree_of(model)->up, is));
    ASSERT_OK(fsdp_fully_shard(model, group, m.device, &o));
    m.model = model;
    ASSERT_OK(fsdp_module_init(model, 3));
    const fsdp_param *up = fsdp_param_of(tree_of(model)->up);
    const fsdp_param *down = fsdp_param_of(tree_of(model)->down);
    ASSERT_STR(up->storage->name, storage_of_up);
    ASSERT_STR(down->storage->name, storage_of_down);
    ASSERT_OK(tree_forward_backward(&m, model, &(tree_call){.micro_batch = trainee_rank(&m)}));
    ASSERT(!fsdp_parameter_grad(tree_of(model)->up) == (is == FROZEN || is == FROZEN_BF16));
    ASSERT(fsdp_parameter_grad(tree_of(model)->down));
    ASSERT_OK(trainee_close(&m));
}

static const fsdp_mp_policy float32 = {0};
static const fsdp_mp_policy bfloat16 = {.param_dtype = FSDP_DTYPE_BF16};
static const fsdp_mp_policy float16 = {.param_dtype = FSDP_DTYPE_F16};

TEST_RANKS(sharded_parameters_are_stored_as_operations_read_them_where_they_can, 3)
{
    fsdp_fully_shard_options o = {.mp_policy = float32};
    check(t, t->group, o, TRAINED, "in the master", "in the master");
    check(t, t->group, o, EXTENDED, "extension", "in the master");
    o.mp_policy = bfloat16;
    check(t, t->group, o, TRAINED, "halved master", "halved master");
    check(t, t->group, o, FROZEN_BF16, "in the master", "halved master");
    check(t, t->group, o, EXTENDED, "extension", "halved master");
    o.mp_policy = float16;
    check(t, t->group, o, TRAINED, "cast copy", "cast copy");
    check(t, t->group, o, EXTENDED, "extension", "cast copy");
    o.mp_policy = float32;
    check(t, t->group, o, FROZEN_BF16, "cast copy", "in the master");
    o.shard_placement_fn = last_dimension;
    check(t, t->group, o, TRAINED, "cast copy", "cast copy");
}

TEST_RANKS(parameters_that_are_whole_are_cast_or_stored_once_per_host, 2)
{
    fsdp_fully_shard_options o = {.no_shard = true, .mp_policy = float32};
    check(t, t->group, o, TRAINED, "in the master", "in the master");
    check(t, t->group, o, FROZEN, "once per host", "in the master");
    check(t, t->group, o, FROZEN_BF16, "once per host, cast", "in the master");
    check(t, t->group, o, EXTENDED, "extension", "in the master");
    o.mp_policy = bfloat16;
    check(t, t->group, o, TRAINED, "cast copy", "cast copy");
    check(t, t->group, o, FROZEN, "once per host, cast", "cast copy");
    check(t, t->group, o, FROZEN_BF16, "once per host", "cast copy");
}

/* With one rank there are no peers to share frozen parameters with. */
TEST(one_rank_stores_halves)
{
    check(t, NULL, (fsdp_fully_shard_options){.mp_policy = bfloat16}, FROZEN, "halved master",
          "halved master");
    check(t, NULL, (fsdp_fully_shard_options){.mp_policy = bfloat16, .no_shard = true}, FROZEN,
          "cast copy", "cast copy");
}

TEST_RANKS(offloaded_parameters_are_cast, 2)
{
    fsdp_fully_shard_options o = {
        .offload_policy = {.kind = FSDP_OFFLOAD_DIR, .dir = fsdp_test_dir(t)}};
    check(t, t->group, o, TRAINED, "offloaded", "offloaded");
    check(t, t->group, o, EXTENDED, "extension", "offloaded");
    o.no_shard = true;
    check(t, t->group, o, FROZEN_BF16, "offloaded", "offloaded");
}

/* --- lasting storages --- */

enum {
    BLOCKS = 3,
    WIDTH = 8
};

/* The kernels of a device, with a count of the calls of `copy` by this rank. */
static _Thread_local int copies;
static const fsdp_kernels *counted;

static void count_copy(fsdp_kernel_context *c, void *dst, const void *src, size_t bytes)
{
    copies++;
    counted->copy(c, dst, src, bytes);
}

/* Count the copies of a step. */
static void count_copies(fsdp_test *t, const fsdp_fully_shard_options *options, int *n)
{
    static fsdp_kernels counting;
    trainee m;
    ASSERT_OK(trainee_open_blocks(t->group, NULL, BLOCKS, WIDTH, options, &m));
    ASSERT_OK(fsdp_barrier(t->group));
    if (t->rank == 0) {
        counted = m.device->kernels;
        counting = *counted;
        counting.copy = count_copy;
    }
    ASSERT_OK(fsdp_barrier(t->group));
    m.device->kernels = &counting;
    copies = 0;
    ASSERT_OK(tree_step(&m, 0, t->world_size));
    *n = copies;
    m.device->kernels = counted;
    ASSERT_OK(trainee_close(&m));
}

static const fsdp_fully_shard_options f32, bf16 = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}},
                                           f16 = {.mp_policy = {.param_dtype = FSDP_DTYPE_F16}};

/* The weights of a norm that backward needs are in the master buffer, in which no peer writes. */
TEST_RANKS(one_rank_copies_no_weights_of_norms, 1)
{
    const fsdp_fully_shard_options *const variants[] = {&f32, &bf16};
    for (int v = 0; v < 2; v++) {
        int n = -1;
        count_copies(t, variants[v], &n);
        CHECK_HERE();
        ASSERT_INT(n, 0);
    }
}

/* In backward, the cast copy is in another buffer. */
TEST_RANKS(one_rank_copies_the_weights_of_norms_from_cast_copies, 1)
{
    int n = 0;
    count_copies(t, &f16, &n);
    CHECK_HERE();
    ASSERT(n >= BLOCKS);
}

TEST_RANKS(two_ranks_copy_the_weights_of_norms, 2)
{
    int n = 0;
    count_copies(t, &f32, &n);
    CHECK_HERE();
    ASSERT(n >= BLOCKS);
}

/* Memory that is gone between forward and backward is an error, and is not read. */
TEST(weights_of_a_norm_that_have_lost_their_memory_are_an_error)
{
    trainee m;
    fsdp_scope *s;
    const tree_call call = {.n_micro_steps = 1};
    ASSERT_OK(trainee_open_blocks(NULL, NULL, BLOCKS, WIDTH, &f32, &m));
    ASSERT_OK(tree_scope(&m, m.tape, &call, &s));
    fsdp_tensor *out = tree_forward(&m, s, m.model, &call);
    ASSERT_OK(fsdp_scope_status(s));
    const fsdp_parameter *norm = tree_of(fsdp_module_child(m.model, BLOCKS - 1))->norm;
    fsdp_storage *lasting = fsdp_parameter_data(norm)->storage->lasting;
    ASSERT(lasting);
    void *data = lasting->data;
    fsdp_storage_set_data(lasting, NULL);
    ASSERT_ERROR(tree_backward(&m, &out, &call, 1), FSDP_ERR_INVALID,
                 "rms_norm: input 0 has no data");
    fsdp_storage_set_data(lasting, data);
    fsdp_scope_close(s);
    ASSERT_OK(trainee_close(&m));
}
