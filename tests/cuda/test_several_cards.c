/* Ranks with a card each, which are emulated: the parameters have the bits of one rank, whichever
 * way bytes get from card to card. A missing transfer or a missing wait gives other bits, and the
 * failure of one rank reaches the others although their kernels wait for it. */
#include <pthread.h>
#include <unistd.h>

#include <fsdp/dtensor.h>

#include "src/comm/cards/cards.h"
#include "src/comm/cards/exchange.h"
#include "src/comm/group_testing.h"
#include "src/tensor/cards.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    STEPS = 2,
    WIDTH = 7 /* rows do not divide evenly over the ranks */
};

static const char *const names[] = {"replicate", "shard"};

/* The emulator reads these variables when a test first calls it. With the default, an op that no
 * rank waits for begins only after 20 ms, so an exchange would take this long. */
static void set_emulator(void)
{
    setenv("EMU_DEVICES", "4", 0);
    setenv("EMU_LATE_MS", "1", 0);
    setenv("EMU_PROTECT", "0", 0);
}

/* Return false, and skip the test, if this build has no cards. */
static bool has_cards(fsdp_test *t)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_emulator);
    if (fsdp_cuda_device_count() >= 4)
        return true;
    fsdp_test_skip(t, "fewer than 4 cards; EMU_DEVICES says how many the emulator has");
    return false;
}

/* Let groups that are made from now on use the exchange `name`. */
static void use_exchange(fsdp_test *t, const char *name)
{
    ASSERT_OK(fsdp_barrier(t->group));
    if (t->rank == 0)
        setenv("FSDP_CARD_EXCHANGE", name, 1);
    ASSERT_OK(fsdp_barrier(t->group));
}

static fsdp_status train(fsdp_group *group, const char *device, const fsdp_fully_shard_options *o,
                         int leaves, trainee *m)
{
    FSDP_TRY(trainee_open(group, device, o->mp_policy.param_dtype, m));
    FSDP_TRY(tree_example(WIDTH, &m->model));
    FSDP_TRY(tree_example_shard(m->model, group, m->device, o));
    for (int step = 0; step < STEPS; step++)
        FSDP_TRY(tree_step(m, step, leaves));
    return tree_evaluate(m, m->model, STEPS);
}

static void compare(fsdp_test *t, fsdp_group *group, const fsdp_device_mesh *mesh,
                    const fsdp_fully_shard_options *options)
{
    trainee many, one = {0};
    fsdp_fully_shard_options o = *options;
    const int leaves = 2 * t->world_size;
    o.mesh = mesh;
    ASSERT_OK(train(group, "cuda", &o, leaves, &many));
    ASSERT_INT(many.device->ordinal, t->rank);
    if (t->rank == 0)
        ASSERT_OK(train(NULL, "cuda:0", options, leaves, &one));
    ASSERT_OK(tree_same_params(&many, t->rank == 0 ? &one : NULL));
    ASSERT_OK(trainee_close(&many));
    ASSERT_OK(trainee_close(&one));
}

/* A group finds out once how bytes get from card to card, so use a new group. `variants` ends with
 * -1. */
static void compare_variants(fsdp_test *t, const char *exchange, const int *shape,
                             const int *variants)
{
    fsdp_device_mesh *mesh = NULL;
    fsdp_group *group;
    use_exchange(t, exchange);
    CHECK_HERE();
    ASSERT_OK(fsdp_group_split(t->group, 0, 0, &group));
    if (shape)
        ASSERT_OK(fsdp_device_mesh_create(group, 2, shape, names, &mesh));
    for (; *variants >= 0; variants++) {
        compare(t, group, mesh, &tree_variants[*variants]);
        CHECK_HERE();
    }
    if (!shape) {
        ASSERT(strcmp(fsdp_group_card_exchange(group), exchange) == 0);
        ASSERT_INT(group->card_ranks, 1);
    }
    fsdp_device_mesh_destroy(mesh);
    fsdp_destroy_process_group(group);
}

/* The numbers are those of tree_variants. */
enum {
    FLOAT32 = 0,
    BFLOAT16 = 1,
    KEPT_BFLOAT16 = 4,
    NO_SHARD_BFLOAT16 = 5
};

TEST_RANKS(two_cards_train_to_the_bits_of_one_rank, 2)
{
    const int all[] = {FLOAT32, BFLOAT16, KEPT_BFLOAT16, NO_SHARD_BFLOAT16, -1};
    if (!has_cards(t))
        return;
    compare_variants(t, "copy", NULL, all);
    CHECK_HERE();
    compare_variants(t, "nccl", NULL, all);
}

TEST_RANKS(four_cards_train_to_the_bits_of_one_rank, 4)
{
    if (!has_cards(t))
        return;
    compare_variants(t, "nccl", NULL, (int[]){FLOAT32, KEPT_BFLOAT16, -1});
}

TEST_RANKS(replicas_on_cards_train_to_the_bits_of_one_rank, 4)
{
    if (!has_cards(t))
        return;
    compare_variants(t, "nccl", (int[]){2, 2}, (int[]){BFLOAT16, -1});
    CHECK_HERE();
    /* With four replicas, each adds up a piece, and they exchange the sums of pieces. */
    compare_variants(t, "nccl", (int[]){4, 1}, (int[]){FLOAT32, -1});
    CHECK_HERE();
    compare_variants(t, "copy", (int[]){4, 1}, (int[]){FLOAT32, -1});
}

/* --- faults --- */

static void send_nothing(fsdp_shared_buffer *buffer)
{
    (void)buffer;
}

static fsdp_status receive_nothing(fsdp_shared_buffer *buffer)
{
    (void)buffer;
    return FSDP_OK;
}

/* Train with an exchange that has a fault. Expect that ranks notice wrong flags of gradients, or
 * that the parameters differ from those of one rank. */
static fsdp_status train_with_fault(fsdp_group *group, void *arg)
{
    const fsdp_card_exchange *faulty = arg;
    const fsdp_fully_shard_options o = {0};
    const int rank = fsdp_group_rank(group);
    trainee many, one = {0};
    fsdp_device *device;
    FSDP_TRY(
        fsdp_device_create(&(fsdp_device_options){.name = "cuda", .local_rank = rank}, &device));
    FSDP_TRY(fsdp_group_find_cards(group, device));
    fsdp_device_destroy(device);
    group->exchange = faulty;
    fsdp_status status = train(group, "cuda", &o, 4, &many);
    fsdp_group_abort(group, status);
    if (status == FSDP_OK && rank == 0)
        status = train(NULL, "cuda:0", &o, 4, &one);
    if (status == FSDP_OK)
        status = tree_same_params(&many, rank == 0 ? &one : NULL);
    fsdp_group_abort(group, status);
    fsdp_status closed = trainee_close(&many);
    if (closed == FSDP_OK && rank == 0)
        closed = trainee_close(&one);
    return status == FSDP_OK ? closed : status;
}

static void expect_difference(fsdp_test *t, const char *name, const fsdp_card_exchange *faulty)
{
    fsdp_card_exchange copy = *faulty;
    setenv("FSDP_CARD_EXCHANGE", name, 1);
    const fsdp_status status = fsdp_run_ranks(2, train_with_fault, &copy, NULL);
    ASSERT(status != FSDP_OK);
    ASSERT(strstr(fsdp_last_error(), "ranks diverged: rank") ||
           strstr(fsdp_last_error(), "differ"));
}

TEST(a_missing_transfer_or_wait_gives_other_bits)
{
    if (!has_cards(t))
        return;
    fsdp_card_exchange faulty = fsdp_card_exchange_copy;
    faulty.send = send_nothing;
    expect_difference(t, "copy", &faulty);
    CHECK_HERE();
    faulty = fsdp_card_exchange_copy;
    faulty.ends_after_kernels = false;
    expect_difference(t, "copy", &faulty);
    CHECK_HERE();
    faulty = fsdp_card_exchange_nccl;
    faulty.receive = receive_nothing;
    expect_difference(t, "nccl", &faulty);
}

/* --- failures --- */

/* Rank 1 fails after the first step. The others have started an exchange that waits for rank 1, and
 * wait for their kernels. */
static fsdp_status fail_on_rank_1(fsdp_group *group, void *arg)
{
    const fsdp_fully_shard_options o = {0};
    trainee m;
    fsdp_status status;
    (void)arg;
    fsdp_group_set_timeout_ms(group, 20000);
    FSDP_TRY(trainee_open(group, "cuda", FSDP_DTYPE_F32, &m));
    status = tree_example(WIDTH, &m.model);
    if (status == FSDP_OK)
        status = tree_example_shard(m.model, group, m.device, &o);
    if (status == FSDP_OK)
        status = tree_step(&m, 0, 2);
    for (int step = 1; step < 3 && status == FSDP_OK; step++) {
        if (fsdp_group_rank(group) == 1)
            status = fsdp_error(FSDP_ERR_STATE, "the rank fails on purpose");
        else
            status = tree_step(&m, step, 2);
    }
    fsdp_group_abort(group, status);
    fsdp_status closed = trainee_close(&m);
    return status == FSDP_OK ? closed : status;
}

TEST(the_failure_of_a_rank_reaches_ranks_on_other_cards)
{
    static const char *const exchanges[] = {"copy", "nccl"};
    if (!has_cards(t))
        return;
    for (int i = 0; i < 2; i++) {
        setenv("FSDP_CARD_EXCHANGE", exchanges[i], 1);
        fsdp_status statuses[2];
        const fsdp_status status = fsdp_run_ranks(2, fail_on_rank_1, NULL, statuses);
        ASSERT_INT(status, FSDP_ERR_STATE);
        ASSERT_INT(statuses[0], FSDP_ERR_COMM);
        ASSERT(strstr(fsdp_last_error(), "on purpose"));
    }
}

/* Rank 0 begins an exchange that rank 1 does not begin, and waits for its kernels. */
static fsdp_status exchange_alone(fsdp_group *group, void *arg)
{
    const fsdp_phase_info info = {.bytes = 1024, .dtype = FSDP_DTYPE_U8, .step = 1};
    const int rank = fsdp_group_rank(group);
    fsdp_device *device;
    fsdp_shared_buffer *buffer;
    (void)arg;
    fsdp_group_set_timeout_ms(group, 500);
    FSDP_TRY(
        fsdp_device_create(&(fsdp_device_options){.name = "cuda", .local_rank = rank}, &device));
    FSDP_TRY(fsdp_shared_buffer_create_on(group, device, 1024, &buffer));
    FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_WRITE, &info));
    fsdp_phase_wrote(buffer, FSDP_ALL_READERS, (size_t)rank * 512, 512);
    if (fsdp_phase_send(buffer))
        return fsdp_error(FSDP_ERR_STATE, "a rank waits for its kernels");
    fsdp_phase_end(buffer);
    if (rank == 0)
        FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info));
    while (rank == 1 && fsdp_group_check(group) == FSDP_OK)
        usleep(1000);
    FSDP_TRY(fsdp_device_synchronize(device));
    fsdp_phase_end(buffer);
    const fsdp_status status = fsdp_group_check(group);
    fsdp_shared_buffer_destroy(buffer);
    fsdp_device_destroy(device);
    return status;
}

TEST(an_exchange_that_a_rank_does_not_begin_is_aborted)
{
    if (!has_cards(t))
        return;
    setenv("FSDP_CARD_EXCHANGE", "nccl", 1);
    ASSERT(fsdp_run_ranks(2, exchange_alone, NULL, NULL) != FSDP_OK);
    ASSERT(strstr(fsdp_last_error(), "an exchange of rank 0 with other cards (NCCL) did not end"));
}

/* Two of three ranks share a card. */
static fsdp_status open_on_two_cards(fsdp_group *group, void *arg)
{
    fsdp_device *device;
    const int card = fsdp_group_rank(group) == 2;
    (void)arg;
    FSDP_TRY(
        fsdp_device_create(&(fsdp_device_options){.name = "cuda", .local_rank = card}, &device));
    const fsdp_status status = fsdp_group_find_cards(group, device);
    fsdp_device_destroy(device);
    return status;
}

TEST(ranks_that_share_a_card_while_another_does_not_are_refused)
{
    if (!has_cards(t))
        return;
    ASSERT_INT(fsdp_run_ranks(3, open_on_two_cards, NULL, NULL), FSDP_ERR_UNSUPPORTED);
    ASSERT(strstr(fsdp_last_error(), "ranks 0 and 1 use one card, and rank 2 uses another"));
    setenv("FSDP_CARD_EXCHANGE", "pigeon", 1);
    ASSERT_INT(fsdp_run_ranks(2, open_on_two_cards, NULL, NULL), FSDP_OK); /* they share one */
    unsetenv("FSDP_CARD_EXCHANGE");
}
