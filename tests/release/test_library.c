/* What a program does that uses the library: it uses the public API and the installed library. All
 * other test programs link the testing build (Note [Hooks for tests] in
 * src/base/alloc_testing.h). */
#include <stdio.h>

#include <fsdp.h>

#include "tests/test.h"

enum {
    RANKS = 2,
    ROWS = 3,   /* per rank and step */
    LENGTH = 7, /* tokens of a row */
    VOCAB = 37,
    STEPS = 6,
    SAVED = 3 /* steps before the checkpoint */
};

typedef struct job {
    const char *dir;
    bool resumes;
    double losses[STEPS];
} job;

typedef struct run {
    job *job;
    fsdp_group *group;
    fsdp_device *device;
    fsdp_module *model;
    fsdp_optimizer *optimizer;
    fsdp_parameter_list parameters;
    fsdp_tape *tape;
} run;

static fsdp_status open_model(run *r)
{
    const fsdp_fully_shard_options options = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}};
    const fsdp_adamw_options adamw = fsdp_adamw_defaults();
    fsdp_model_config config;
    FSDP_TRY(fsdp_device_create(NULL, &r->device));
    FSDP_TRY(fsdp_model_config_read(r->job->dir, &config));
    FSDP_TRY(fsdp_model_create(&config, &r->model));
    fsdp_module *layers = fsdp_module_find(r->model, "model.layers");
    for (int i = 0; i < fsdp_module_n_children(layers); i++)
        FSDP_TRY(fsdp_fully_shard(fsdp_module_child(layers, i), r->group, r->device, &options));
    FSDP_TRY(fsdp_fully_shard(r->model, r->group, r->device, &options));
    FSDP_TRY(fsdp_module_init(r->model, r->job->resumes ? 2 : 1));
    FSDP_TRY(fsdp_module_parameters(r->model, false, &r->parameters));
    FSDP_TRY(fsdp_adamw_create(r->model, &adamw, &r->optimizer));
    return fsdp_tape_create(&r->tape);
}

/* Rows follow a rule, so the model can learn something. */
static fsdp_status make_batch(const run *r, int step, fsdp_batch **batch)
{
    const fsdp_batch_format format = {.task = FSDP_TASK_CAUSAL_LM};
    int32_t ids[ROWS][LENGTH];
    fsdp_batch_row rows[ROWS];
    for (int i = 0; i < ROWS; i++) {
        ids[i][0] = (step * 5 + fsdp_group_rank(r->group) * 11 + i * 3) % VOCAB;
        for (int k = 1; k < LENGTH; k++)
            ids[i][k] = (ids[i][k - 1] * 2 + 1) % VOCAB;
        rows[i] = (fsdp_batch_row){.source = ids[i], .source_len = LENGTH};
    }
    return fsdp_batch_create(rows, ROWS, &format, batch);
}

static fsdp_status forward_backward(const run *r, int step, const fsdp_batch *batch, double *loss)
{
    const fsdp_scope_options options = {.training = true, .step = (uint32_t)step, .batch = batch};
    fsdp_scope *s;
    FSDP_TRY(fsdp_scope_open(r->device, r->tape, &options, &s));
    fsdp_tensor *out = fsdp_model_loss(s, r->model, 1.0f / (float)batch->label_tokens);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_tensor_item(out, loss);
    if (status == FSDP_OK)
        status = fsdp_backward(r->tape, &out, NULL, 1);
    fsdp_scope_close(s);
    return status;
}

static fsdp_status train_step(run *r, int step, double *loss)
{
    fsdp_batch *batch;
    double norm;
    float scale;
    FSDP_TRY(make_batch(r, step, &batch));
    fsdp_status status = forward_backward(r, step, batch, loss);
    fsdp_batch_release(batch);
    FSDP_TRY(status);
    FSDP_TRY(fsdp_clip_grad_norm(&r->parameters, 1.0, NULL, &norm, &scale));
    FSDP_TRY(fsdp_optimizer_step(r->optimizer, scale));
    fsdp_optimizer_zero_grad(r->optimizer);
    return fsdp_all_reduce(r->group, loss, 1, FSDP_DTYPE_F64, FSDP_REDUCE_AVG);
}

/* Save model and optimizer, or load them. */
static fsdp_status checkpoint(const run *r, bool load)
{
    char path[128];
    fsdp_state_dict *model = NULL, *optim = NULL, *all = NULL;
    snprintf(path, sizeof path, "%s/checkpoint", r->job->dir);
    FSDP_TRY(fsdp_get_state_dict(r->model, r->optimizer, NULL, &model, &optim));
    fsdp_status status = fsdp_state_dict_create(&all);
    if (status == FSDP_OK)
        status = fsdp_state_dict_add(all, "model", model);
    if (status == FSDP_OK)
        status = fsdp_state_dict_add(all, "optim", optim);
    if (status == FSDP_OK)
        status = load ? fsdp_dcp_load(all, path, r->group, NULL)
                      : fsdp_dcp_save(all, path, r->group, NULL);
    if (status == FSDP_OK && load)
        status = fsdp_set_state_dict(r->model, r->optimizer, model, optim, NULL, NULL);
    fsdp_state_dict_destroy(model);
    fsdp_state_dict_destroy(optim);
    fsdp_state_dict_destroy(all);
    return status;
}

static fsdp_status train(run *r)
{
    FSDP_TRY(open_model(r));
    if (r->job->resumes)
        FSDP_TRY(checkpoint(r, true));
    for (int step = r->job->resumes ? SAVED : 0; step < STEPS; step++) {
        double loss;
        FSDP_TRY(train_step(r, step, &loss));
        if (fsdp_group_rank(r->group) == 0)
            r->job->losses[step] = loss;
        if (step + 1 == SAVED && !r->job->resumes)
            FSDP_TRY(checkpoint(r, false));
    }
    return FSDP_OK;
}

static fsdp_status train_on_rank(fsdp_group *group, void *arg)
{
    run r = {.job = arg, .group = group};
    const fsdp_status status = train(&r);
    fsdp_tape_destroy(r.tape);
    fsdp_optimizer_destroy(r.optimizer);
    fsdp_parameter_list_free(&r.parameters);
    fsdp_module_destroy(r.model);
    fsdp_device_destroy(r.device);
    return status;
}

static bool write_config(const char *dir)
{
    char path[128];
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    fprintf(file,
            "{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": 18,\n"
            " \"intermediate_size\": 29, \"num_hidden_layers\": 2, \"num_attention_heads\": 3,\n"
            " \"num_key_value_heads\": 1, \"head_dim\": 6, \"max_position_embeddings\": 64,\n"
            " \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\",\n"
            " \"initializer_range\": 0.1, \"tie_word_embeddings\": false}\n",
            VOCAB);
    return fclose(file) == 0;
}

/* Weights from another seed, replaced by loading, together with the optimizer's state. */
TEST(a_sharded_model_learns_and_resumes_with_the_same_losses)
{
    job whole = {.dir = fsdp_test_dir(t)}, resumed = {.dir = whole.dir, .resumes = true};
    ASSERT(write_config(whole.dir));
    ASSERT_OK(fsdp_run_ranks(RANKS, train_on_rank, &whole, NULL));
    ASSERT_OK(fsdp_run_ranks(RANKS, train_on_rank, &resumed, NULL));
    ASSERT(whole.losses[0] > 3 && whole.losses[0] < 5); /* about log(VOCAB) */
    ASSERT(whole.losses[STEPS - 1] < whole.losses[0]);
    for (int step = SAVED; step < STEPS; step++)
        ASSERT(resumed.losses[step] == whole.losses[step]);
}

static fsdp_status fail_on_rank_1(fsdp_group *group, void *arg)
{
    (void)arg;
    FSDP_TRY(fsdp_barrier(group));
    if (fsdp_group_rank(group) == 1) {
        const fsdp_status status = fsdp_error(FSDP_ERR_NUMERIC, "the loss is NaN");
        fsdp_group_abort(group, status);
        return status;
    }
    return fsdp_barrier(group);
}

TEST(a_rank_that_fails_ends_the_others_wait)
{
    fsdp_status status[RANKS];
    ASSERT_ERROR(fsdp_run_ranks(RANKS, fail_on_rank_1, NULL, status), FSDP_ERR_NUMERIC,
                 "the loss is NaN");
    ASSERT_INT(status[0], FSDP_ERR_COMM);
    ASSERT_INT(status[1], FSDP_ERR_NUMERIC);
}
