/* Fine-tune a T5 with fully sharded parameters, gradients and optimizer state, using only the
 * public API: the counterpart of a PyTorch FSDP script.
 *
 *     fsdp launch -n 2 build/examples/train_t5 MODEL DATA.csv OUTPUT [EPOCHS]
 *
 * MODEL is a Hugging Face folder with config.json, model.safetensors and spiece.model. config.json
 * and the trained weights are written to OUTPUT, an existing folder. Without `fsdp launch` there is
 * one rank. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fsdp.h>

enum {
    BATCH = 4 /* rows per rank and step */
};

typedef struct job {
    fsdp_group *group;
    fsdp_device *device;
    fsdp_module *model;
    fsdp_parameter_list parameters;
    fsdp_optimizer *optimizer;
    fsdp_tape *tape;
    fsdp_tokenizer *tokenizer;
    fsdp_dataset *data;
    fsdp_loader *loader;
    int epochs;
} job;

/* Each block of a stack becomes a unit; the root's unit has the remaining parameters. */
static fsdp_status shard(job *j)
{
    fsdp_fully_shard_options options = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}};
    static const char *const stacks[] = {"encoder.block", "decoder.block"};
    for (int s = 0; s < 2; s++) {
        fsdp_module *blocks = fsdp_module_find(j->model, stacks[s]);
        for (int i = 0; i < fsdp_module_n_children(blocks); i++)
            FSDP_TRY(fsdp_fully_shard(fsdp_module_child(blocks, i), j->group, j->device, &options));
    }
    return fsdp_fully_shard(j->model, j->group, j->device, &options);
}

/* The modules have no memory until they are sharded, so no rank allocates the unsharded model. */
static fsdp_status open_model(job *j, const char *folder)
{
    fsdp_t5_config config;
    fsdp_checkpoint_reader *weights;
    FSDP_TRY(fsdp_t5_config_read(folder, &config));
    FSDP_TRY(fsdp_t5_create(&config, &j->model));
    FSDP_TRY(shard(j));
    FSDP_TRY(fsdp_checkpoint_open(folder, &weights));
    fsdp_status status = fsdp_module_load(j->model, weights, j->group, NULL, NULL);
    fsdp_checkpoint_close(weights);
    FSDP_TRY(status);
    fsdp_adamw_options adamw = fsdp_adamw_defaults();
    FSDP_TRY(fsdp_module_parameters(j->model, false, &j->parameters));
    FSDP_TRY(fsdp_adamw_create(j->model, &adamw, &j->optimizer));
    return fsdp_tape_create(&j->tape);
}

static fsdp_status open_data(job *j, const char *folder, const char *csv)
{
    fsdp_model_config config;
    FSDP_TRY(fsdp_model_get_config(j->model, &config));
    FSDP_TRY(fsdp_tokenizer_open(folder, &j->tokenizer));
    fsdp_dataset_options rows = {.tokenizer = j->tokenizer, .source_prefix = "summarize: "};
    FSDP_TRY(fsdp_dataset_open(csv, &rows, &j->data));
    fsdp_loader_options options = {.sampler = {.batch_size = BATCH,
                                               .rank = fsdp_group_rank(j->group),
                                               .world_size = fsdp_group_world_size(j->group),
                                               .seed = 1},
                                   .format = fsdp_model_config_info(&config).format};
    return fsdp_loader_create(j->data, &options, &j->loader);
}

/* Run forward and backward on one batch. Hooks gather and free the units. As in PyTorch, gradients
 * are averaged over the ranks. */
static fsdp_status forward_backward(job *j, const fsdp_batch *batch, double *loss)
{
    fsdp_scope *s;
    fsdp_scope_options options = {.training = true,
                                  .seed = batch->seed,
                                  .step = batch->step,
                                  .micro_batch = batch->micro_batch,
                                  .batch = batch};
    float labels = batch->label_tokens > 0 ? (float)batch->label_tokens : 1.0f;
    FSDP_TRY(fsdp_scope_open(j->device, j->tape, &options, &s));
    fsdp_tensor *out = fsdp_t5_loss(s, j->model, 1.0f / labels);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_tensor_item(out, loss);
    if (status == FSDP_OK)
        status = fsdp_backward(j->tape, &out, NULL, 1);
    fsdp_scope_close(s);
    return status;
}

static fsdp_status train_step(job *j, const fsdp_batch *batch)
{
    double loss, norm;
    float scale;
    FSDP_TRY(forward_backward(j, batch, &loss));
    FSDP_TRY(fsdp_clip_grad_norm(&j->parameters, 1.0, NULL, &norm, &scale));
    FSDP_TRY(fsdp_optimizer_step(j->optimizer, scale));
    fsdp_optimizer_zero_grad(j->optimizer);
    FSDP_TRY(fsdp_all_reduce(j->group, &loss, 1, FSDP_DTYPE_F64, FSDP_REDUCE_SUM));
    if (fsdp_group_rank(j->group) == 0)
        printf("step %u: loss %.4f, gradient norm %.3f\n", (unsigned)batch->step + 1,
               loss / fsdp_group_world_size(j->group), norm);
    return FSDP_OK;
}

static fsdp_status train(job *j, int epochs)
{
    for (int epoch = 0; epoch < epochs; epoch++) {
        fsdp_loader_set_epoch(j->loader, epoch);
        for (;;) {
            fsdp_batch *batch;
            FSDP_TRY(fsdp_loader_next(j->loader, &batch));
            if (!batch)
                break;
            fsdp_status status = train_step(j, batch);
            fsdp_batch_release(batch);
            FSDP_TRY(status);
        }
    }
    return FSDP_OK;
}

/* Save the model: the weights are gathered one by one, and rank 0 writes them. */
static fsdp_status save(const job *j, const char *source, const char *output)
{
    const fsdp_t5_config *config = fsdp_t5_get_config(j->model);
    char from[4096], to[4096];
    snprintf(from, sizeof from, "%s/config.json", source);
    snprintf(to, sizeof to, "%s/config.json", output);
    if (fsdp_group_rank(j->group) == 0)
        FSDP_TRY(
            fsdp_t5_config_write(config, !config->tie_word_embeddings, FSDP_DTYPE_F32, from, to));
    return fsdp_module_save(j->model, output, j->group, NULL);
}

/* Check, before the training, that rank 0 can write the model. If it cannot, its error ends the
 * other ranks, too. */
static fsdp_status check_output(const job *j, const char *output)
{
    if (fsdp_group_rank(j->group) == 0 && access(output, W_OK | X_OK) != 0)
        return fsdp_error(FSDP_ERR_IO, "OUTPUT %s: %s; make this folder first: mkdir -p %s", output,
                          strerror(errno), output);
    return FSDP_OK;
}

static fsdp_status run(job *j, char **argv)
{
    FSDP_TRY(fsdp_init_process_group(NULL, &j->group));
    FSDP_TRY(check_output(j, argv[3]));
    FSDP_TRY(fsdp_device_create(NULL, &j->device));
    FSDP_TRY(open_model(j, argv[1]));
    FSDP_TRY(open_data(j, argv[1], argv[2]));
    FSDP_TRY(train(j, j->epochs));
    return save(j, argv[1], argv[3]);
}

int main(int argc, char **argv)
{
    job j = {.epochs = 1};
    char rest = 0;
    if (argc < 4 || argc > 5 ||
        (argc == 5 && (sscanf(argv[4], "%d%c", &j.epochs, &rest) != 1 || j.epochs < 1))) {
        (void)fsdp_error(FSDP_ERR_INVALID,
                         "usage: train_t5 MODEL DATA.csv OUTPUT [EPOCHS, at least 1]");
        fsdp_error_print("train_t5");
        return 2;
    }
    fsdp_status status = run(&j, argv);
    if (status != FSDP_OK) {
        fsdp_error_print("train_t5");
        if (j.group)
            fsdp_group_abort(j.group, status); /* stops the peers immediately, with this message */
    }
    fsdp_loader_destroy(j.loader);
    fsdp_dataset_close(j.data);
    fsdp_tokenizer_close(j.tokenizer);
    fsdp_tape_destroy(j.tape);
    fsdp_optimizer_destroy(j.optimizer);
    fsdp_parameter_list_free(&j.parameters);
    fsdp_module_destroy(j.model);
    fsdp_device_destroy(j.device);
    fsdp_destroy_process_group(j.group);
    return status == FSDP_OK ? 0 : 1;
}
