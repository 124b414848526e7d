/* Loops with an accelerator on several numbers of ranks, accumulation, clipping, schedules, fp16.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/accelerator/job.h"
#include "tests/test.h"

enum {
    MOST_STEPS = 64
};

/* What one run gives. The ranks are threads of one test. */
typedef struct run {
    job_options options;
    int epochs;
    double losses[MOST_STEPS]; /* losses of the batches of rank 0 */
    int n_losses;
    int64_t steps;
    double lr; /* learning rate of the step after the last one */
    float weights[JOB_WEIGHTS];
} run;

static fsdp_status train(job *j, run *r)
{
    for (int epoch = 0; epoch < r->epochs; epoch++) {
        for (bool more = true; more;) {
            double loss = 0;
            FSDP_TRY(job_step(j, &loss, &more));
            if (fsdp_accelerator_is_main_process(j->accelerator) && more &&
                r->n_losses < MOST_STEPS)
                r->losses[r->n_losses++] = loss;
        }
    }
    if (!fsdp_accelerator_is_main_process(j->accelerator))
        return job_weights(j, (float[JOB_WEIGHTS]){0});
    r->steps = j->steps;
    r->lr = fsdp_optimizer_lr(j->optimizers[0], 0);
    return job_weights(j, r->weights);
}

static fsdp_status train_rank(fsdp_group *group, void *arg)
{
    run *r = arg;
    job j;
    fsdp_status status = job_open(&j, group, &r->options);
    if (status == FSDP_OK)
        status = train(&j, r);
    if (status != FSDP_OK)
        fsdp_group_abort(group, status);
    job_close(&j);
    return status;
}

/* `ranks` times `accumulation` micro-batches of 3 rows a step, whose identity is the same. */
static run *run_split(fsdp_test *t, int ranks, int accumulation, int epochs)
{
    run *r = calloc(1, sizeof *r);
    if (!r)
        abort();
    r->epochs = epochs;
    r->options = (job_options){.accelerator = {.gradient_accumulation_steps = accumulation},
                               .accumulation = accumulation,
                               .dropout = 0.1,
                               .max_grad_norm = 0.5,
                               .warmup = (int64_t)2 * ranks,
                               .total_steps = (int64_t)12 * ranks};
    const fsdp_status status = fsdp_run_ranks(ranks, train_rank, r, NULL);
    if (status != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%d ranks: %s", ranks, fsdp_last_error());
    return r;
}

static bool same_weights(const run *a, const run *b)
{
    return memcmp(a->weights, b->weights, sizeof a->weights) == 0;
}

/* 36 rows are 3 steps of 12: those of 1 rank that accumulates 4 batches, of 2 ranks that accumulate
 * 2, and of 4 ranks. A schedule advances by the number of ranks, so it is stretched alike. */
TEST(one_rank_equals_two_and_four_ranks_to_the_bit)
{
    run *one = run_split(t, 1, 4, 3), *two = run_split(t, 2, 2, 3), *four = run_split(t, 4, 1, 3);
    CHECK_HERE();
    ASSERT_INT(one->steps, 9);
    ASSERT_INT(two->steps, 9);
    ASSERT_INT(four->steps, 9);
    ASSERT_INT(one->n_losses, 36);
    ASSERT_INT(four->n_losses, 9);
    for (int step = 0; step < 9; step++) {
        ASSERT_F32(one->losses[4 * step], four->losses[step]);
        ASSERT_F32(two->losses[2 * step], four->losses[step]);
    }
    ASSERT(same_weights(one, two));
    ASSERT(same_weights(one, four));
    ASSERT(one->losses[35] < one->losses[0]);
    ASSERT_NEAR(one->lr, 0.01 * 3 / 10, 1e-12);
    ASSERT_F32(one->lr, four->lr);
    free(one);
    free(two);
    free(four);
}

/* What a file of Accelerate says about replicas makes a mesh, and changes only where values are. */
TEST(hybrid_sharding_of_the_environment_gives_the_same_weights)
{
    run *plain = run_split(t, 4, 1, 1), *hybrid, *wrong = calloc(1, sizeof *wrong);
    CHECK_HERE();
    ASSERT(wrong);
    setenv("PARALLELISM_CONFIG_DP_REPLICATE_SIZE", "2", 1);
    hybrid = run_split(t, 4, 1, 1);
    setenv("PARALLELISM_CONFIG_DP_SHARD_SIZE", "3", 1);
    const fsdp_status status = fsdp_run_ranks(4, train_rank, wrong, NULL);
    unsetenv("PARALLELISM_CONFIG_DP_REPLICATE_SIZE");
    ASSERT_ERROR(status, FSDP_ERR_INVALID, "do not give the 4 ranks");
    setenv("PARALLELISM_CONFIG_DP_SHARD_SIZE", "2", 1);
    const fsdp_status sharded = fsdp_run_ranks(4, train_rank, wrong, NULL);
    unsetenv("PARALLELISM_CONFIG_DP_SHARD_SIZE");
    CHECK_HERE();
    for (size_t i = 0; i < JOB_WEIGHTS; i++)
        ASSERT_NEAR(plain->weights[i], hybrid->weights[i], 1e-5);
    ASSERT_ERROR(sharded, FSDP_ERR_INVALID,
                 "SHARD_SIZE 2 do not give the 4 ranks of the job; without replicas");
    free(wrong);
    free(hybrid);
    free(plain);
}

/* Activation checkpointing and offload of the environment change no bit. */
TEST(activation_checkpointing_of_the_environment_gives_the_same_bits)
{
    run *plain = run_split(t, 2, 1, 1), *checkpointed;
    CHECK_HERE();
    setenv("FSDP_ACTIVATION_CHECKPOINTING", "true", 1);
    setenv("FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", "true", 1);
    checkpointed = run_split(t, 2, 1, 1);
    unsetenv("FSDP_ACTIVATION_CHECKPOINTING");
    unsetenv("FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD");
    CHECK_HERE();
    ASSERT(same_weights(plain, checkpointed));
    free(plain);
    free(checkpointed);
}

/* Without dropout, 4 batches of 3 rows have the gradients of one of 12, up to the order of sums
 * within a batch. */
TEST(accumulation_equals_a_larger_batch)
{
    run small = {.epochs = 2,
                 .options = {.accelerator = {.gradient_accumulation_steps = 4}, .batch_size = 3}};
    run *large = calloc(1, sizeof *large);
    ASSERT(large);
    large->epochs = 2;
    large->options.batch_size = 12;
    ASSERT_OK(fsdp_run_ranks(1, train_rank, &small, NULL));
    ASSERT_OK(fsdp_run_ranks(1, train_rank, large, NULL));
    ASSERT_INT(small.steps, 6);
    ASSERT_INT(large->steps, 6);
    ASSERT_INT(small.n_losses, 24);
    for (size_t i = 0; i < JOB_WEIGHTS; i++)
        ASSERT_NEAR(small.weights[i], large->weights[i], 2e-4);
    for (int step = 0; step < 6; step++) {
        double mean = 0;
        for (int k = 0; k < 4; k++)
            mean += small.losses[4 * step + k] / 4;
        ASSERT_NEAR(mean, large->losses[step], 1e-4);
    }
    free(large);
}

/* 30 rows in batches of 3 are 10 batches on a rank: with 4 a step, the third accumulation of an
 * epoch has 2, and is completed by the end of the loader, unless that was turned off. */
TEST(the_end_of_a_loader_completes_an_accumulation)
{
    for (int goes_on = 0; goes_on < 2; goes_on++) {
        run r = {.epochs = 2,
                 .options = {.accelerator = {.gradient_accumulation_steps = 4,
                                             .no_sync_with_dataloader = goes_on},
                             .rows = 30}};
        ASSERT_OK(fsdp_run_ranks(1, train_rank, &r, NULL));
        ASSERT_INT(r.n_losses, 20);
        ASSERT_INT(r.steps, goes_on ? 5 : 6);
    }
}

/* ---- schedules ---- */

static double lr_after_an_epoch(fsdp_test *t, int ranks, const fsdp_accelerator_options *options)
{
    run r = {.epochs = 1,
             .options = {.accelerator = *options, .batch_size = 4, .total_steps = 100}};
    if (fsdp_run_ranks(ranks, train_rank, &r, NULL) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return r.lr;
}

/* 36 rows in batches of 4: 9 steps of a process on 1 rank, 5 on 2. The schedule falls by 1e-4 a
 * step. */
TEST(a_schedule_advances_by_the_number_of_ranks)
{
    const fsdp_accelerator_options plain = {0}, split = {.split_batches = true},
                                   alone = {.no_step_scheduler_with_optimizer = true,
                                            .gradient_accumulation_steps = 3},
                                   accumulated = {.gradient_accumulation_steps = 3};
    ASSERT_NEAR(lr_after_an_epoch(t, 1, &plain), 0.01 - 9e-4, 1e-12);
    ASSERT_NEAR(lr_after_an_epoch(t, 2, &plain), 0.01 - 10e-4, 1e-12);
    ASSERT_NEAR(lr_after_an_epoch(t, 2, &split), 0.01 - 9e-4, 1e-12);
    ASSERT_NEAR(lr_after_an_epoch(t, 1, &accumulated), 0.01 - 3e-4, 1e-12);
    ASSERT_NEAR(lr_after_an_epoch(t, 2, &alone), 0.01 - 5e-4, 1e-12);
}

/* ---- fp16 ---- */

/* What one step did: whether it was skipped, the place of the schedule, the scale of its loss. */
typedef struct overflow {
    bool skipped;
    int64_t last_epoch;
    double scale;
} overflow;

static fsdp_status overflow_once(job *j, overflow found[2])
{
    for (int step = 0; step < 2; step++) {
        double loss;
        bool more;
        FSDP_TRY(job_step(j, &loss, &more));
        found[step] =
            (overflow){.skipped = fsdp_accelerator_optimizer_step_was_skipped(j->accelerator),
                       .last_epoch = fsdp_accelerated_scheduler_last_epoch(j->scheduler),
                       .scale = fsdp_grad_scaler_scale(fsdp_accelerator_scaler(j->accelerator))};
    }
    return FSDP_OK;
}

static fsdp_status overflow_rank(fsdp_group *group, void *arg)
{
    const fsdp_grad_scaler_options scaler = {.init_scale = 0x1p120, .backoff_factor = 0x1p-110};
    const job_options options = {.accelerator = {.mixed_precision = "fp16", .grad_scaler = &scaler},
                                 .max_grad_norm = 1.0,
                                 .total_steps = 100};
    overflow *found = arg;
    job j;
    fsdp_status status = job_open(&j, group, &options);
    if (status == FSDP_OK)
        status = overflow_once(&j, found + 2 * fsdp_group_rank(group));
    if (status != FSDP_OK)
        fsdp_group_abort(group, status);
    job_close(&j);
    return status;
}

/* A step whose gradients are not finite is skipped on all ranks, and so is its schedule. The next
 * forward uses the lower scale. */
TEST(an_overflow_skips_step_and_schedule)
{
    overflow found[4];
    ASSERT_OK(fsdp_run_ranks(2, overflow_rank, found, NULL));
    for (int rank = 0; rank < 2; rank++) {
        ASSERT(found[2 * rank].skipped && !found[2 * rank + 1].skipped);
        ASSERT_INT(found[2 * rank].last_epoch, 0);
        ASSERT_INT(found[2 * rank + 1].last_epoch, 2);
        ASSERT_F32(found[2 * rank + 1].scale, 1024);
    }
}

/* Compute gradients of a batch, and clip them without effect. Set *norm to their norm. */
static fsdp_status clip_only(job *j, double *norm)
{
    fsdp_batch *batch;
    FSDP_TRY(fsdp_accelerator_next(j->accelerator, j->loader, &batch));
    fsdp_status status =
        fsdp_accelerator_forward_backward(j->accelerator, j->models[0], batch, NULL);
    if (status == FSDP_OK)
        status = fsdp_accelerator_clip_grad_norm(j->accelerator, j->models[0], 1e30, NULL, norm);
    fsdp_batch_release(batch);
    return status;
}

/* A loop clips, and leaves the step out. The gradients of the next batch are unscaled, too: their
 * norms are those of a loop that does not scale. Without zero_grad() between them, the second
 * clipping is an error. */
TEST_RANKS(a_step_may_be_left_out_after_clipping, 1)
{
    static const char *const precisions[] = {"no", "fp16"};
    double norms[2][2];
    for (int i = 0; i < 2; i++) {
        const job_options options = {.accelerator = {.mixed_precision = precisions[i]}};
        job j;
        ASSERT_OK(job_open(&j, t->group, &options));
        for (int k = 0; k < 2; k++) {
            ASSERT_OK(clip_only(&j, &norms[i][k]));
            ASSERT_OK(fsdp_accelerator_zero_grad(j.accelerator, j.optimizers[0]));
        }
        ASSERT_NEAR(norms[i][0], norms[0][0], 1e-3 * norms[0][0]);
        ASSERT_NEAR(norms[i][1], norms[0][1], 1e-3 * norms[0][1]);
        ASSERT_OK(clip_only(&j, NULL));
        if (i == 1)
            ASSERT_ERROR(clip_only(&j, NULL), FSDP_ERR_STATE,
                         "a backward in fp16 added to gradients that were clipped before");
        job_close(&j);
    }
}

/* If the gradients that were clipped are not finite, the scale is lowered although the loop left
 * the step out. */
TEST_RANKS(gradients_that_are_released_after_clipping_lower_the_scale, 1)
{
    const fsdp_grad_scaler_options scaler = {.init_scale = 0x1p120, .backoff_factor = 0x1p-110};
    const job_options options = {
        .accelerator = {.mixed_precision = "fp16", .grad_scaler = &scaler}};
    double norm;
    job j;
    ASSERT_OK(job_open(&j, t->group, &options));
    ASSERT_OK(clip_only(&j, &norm));
    ASSERT(!isfinite(norm));
    ASSERT_OK(fsdp_accelerator_zero_grad(j.accelerator, j.optimizers[0]));
    ASSERT_OK(clip_only(&j, &norm));
    ASSERT(isfinite(norm));
    ASSERT_F32(fsdp_grad_scaler_scale(fsdp_accelerator_scaler(j.accelerator)), 1024);
    job_close(&j);
}

/* A loop unscales by the scaler itself, as from-pytorch.md shows, and leaves the step out. */
TEST_RANKS(gradients_that_the_program_unscaled_may_be_released, 1)
{
    const job_options options = {.accelerator = {.mixed_precision = "fp16"}};
    job j;
    ASSERT_OK(job_open(&j, t->group, &options));
    fsdp_grad_scaler *scaler = fsdp_accelerator_scaler(j.accelerator);
    for (int i = 0; i < 2; i++) {
        fsdp_batch *batch;
        ASSERT_OK(fsdp_accelerator_next(j.accelerator, j.loader, &batch));
        ASSERT_OK(fsdp_accelerator_forward_backward(j.accelerator, j.models[0], batch, NULL));
        fsdp_batch_release(batch);
        ASSERT_OK(fsdp_grad_scaler_unscale(scaler, j.optimizers[0]));
        ASSERT_OK(fsdp_accelerator_zero_grad(j.accelerator, j.optimizers[0]));
    }
    /* or the program also updates the scale itself */
    ASSERT_OK(clip_only(&j, NULL));
    ASSERT_OK(fsdp_grad_scaler_update(scaler));
    ASSERT_OK(fsdp_accelerator_zero_grad(j.accelerator, j.optimizers[0]));
    ASSERT_OK(clip_only(&j, NULL));
    job_close(&j);
}

/* free_memory() after a step: the same optimizer is prepared again, and clips and steps. */
TEST_RANKS(an_optimizer_steps_in_fp16_after_free_memory, 1)
{
    const job_options options = {.accelerator = {.mixed_precision = "fp16"}, .max_grad_norm = 1.0};
    double loss;
    bool more;
    job j;
    ASSERT_OK(job_open(&j, t->group, &options));
    ASSERT_OK(job_step(&j, &loss, &more));
    fsdp_accelerator_free_memory(j.accelerator);
    ASSERT_OK(fsdp_accelerator_prepare_model(j.accelerator, j.models[0]));
    ASSERT_OK(fsdp_accelerator_prepare_optimizer(j.accelerator, j.optimizers[0]));
    ASSERT_OK(fsdp_accelerator_prepare_data_loader(j.accelerator, j.loader));
    ASSERT_OK(job_step(&j, &loss, &more));
    job_close(&j);
}

/* Two networks and their optimizers in one iteration use one scale, which is updated once. */
TEST(mixed_precision_trains_two_models)
{
    static const char *const precisions[] = {"no", "fp16", "bf16"};
    for (int i = 0; i < 3; i++) {
        run r = {.epochs = 4,
                 .options = {.accelerator = {.mixed_precision = precisions[i]},
                             .max_grad_norm = 1.0,
                             .second = true}};
        ASSERT_OK(fsdp_run_ranks(2, train_rank, &r, NULL));
        ASSERT_INT(r.n_losses, 24);
        ASSERT(r.losses[23] < r.losses[0]);
    }
}

/* Each of two models is trained as it is alone: losses of the first are those without a second. */
TEST(two_models_do_not_disturb_each_other)
{
    run one = {.epochs = 2, .options = {.dropout = 0.1}};
    run *two = calloc(1, sizeof *two);
    ASSERT(two);
    two->epochs = 2;
    two->options = (job_options){.dropout = 0.1, .second = true};
    ASSERT_OK(fsdp_run_ranks(2, train_rank, &one, NULL));
    ASSERT_OK(fsdp_run_ranks(2, train_rank, two, NULL));
    ASSERT(memcmp(one.losses, two->losses, sizeof one.losses) == 0);
    free(two);
}

/* Rank 1 clips by a wrong value. Rank 0 gets an error that names rank 1, and would wait for it in
 * the next collective otherwise. */
TEST_RANKS(a_wrong_clip_value_of_one_rank_is_an_error_on_all_ranks, 2)
{
    const bool wrong = t->rank == 1;
    job j;
    ASSERT_OK(job_open(&j, t->group, &(job_options){0}));
    ASSERT_ERROR(
        fsdp_accelerator_clip_grad_value(j.accelerator, j.models[0], wrong ? (double)NAN : 1.0),
        FSDP_ERR_INVALID,
        wrong ? "clip_value is nan" : "rank 1: clip_grad_value: clip_value is nan");
    ASSERT_OK(fsdp_accelerator_clip_grad_value(j.accelerator, j.models[0], 1.0));
    job_close(&j);
}
